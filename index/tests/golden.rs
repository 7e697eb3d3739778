//! The bytes of seeded accessors: a format does not change by accident.
//!
//! Where one of these changes on purpose, the format version goes up and `FORMAT.md` says why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::{BuildParallelism, FilterBits, FilterBuilder, FilterHash, MemorySpool};
use icecore_segments::checksum::ContentHasher;
use pages::{Model, PARENT, SplitMix64, steps, storage_like};

fn hash(files: impl IntoIterator<Item = Vec<u8>>) -> String {
    let mut hasher = ContentHasher::default();
    files.into_iter().for_each(|file| hasher.update(&file));
    hasher.finish().to_string()
}

#[test]
fn pivot_indexes_keep_their_bytes() {
    let model = Model::new(storage_like(30_000, 77), || 105, || 9);
    let files = [1, 16, 64, 256, 1000].map(|m| model.index(m).1);
    assert_eq!(hash(files), "803281323ad620e1c0d3c6ea90c6cb7e51842673d71b2ec8d26a06dd6c5798cf");
}

#[test]
fn filters_keep_their_bytes() {
    let files = [FilterBits::Eight, FilterBits::Sixteen].map(|bits| {
        let (mut rng, count) = (SplitMix64(78), 20_000);
        let mut builder = FilterBuilder::new(bits, count, MemorySpool::default(), BuildParallelism::Rayon);
        (0..count).try_for_each(|_| builder.push(FilterHash::from_u64(rng.next()))).unwrap();
        builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap().1
    });
    assert_eq!(hash(files), "482ca175b196b39d83ae18408a761d01bcc4ada6bdf2a96f2173ae1dfaee877e");
}
