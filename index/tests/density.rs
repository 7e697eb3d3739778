//! The length that a budget is spent by is never less than what an index takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::Density;
use icecore_index::density::index_len_max;
use pages::{Entry, Model, storage_like};

fn check(name: &str, entries: &[Entry]) {
    for per_page in [5, 20, 43, 64, 105, 300] {
        let model = Model::new(entries.to_vec(), || per_page, || 10);
        for m in [1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096] {
            let (summary, _) = model.index(m);
            let most = index_len_max(summary.entries, summary.pages, Density::new(m).unwrap());
            assert!(
                summary.file.len <= most,
                "{name}, {per_page} a page, m={m}: {} > {most}",
                summary.file.len
            );
        }
    }
}

#[test]
fn an_index_is_never_longer_than_estimated() {
    check("storage", &storage_like(60_000, 21));
    check("numbers", &(0..60_000u32).map(|i| (i.to_be_bytes().to_vec(), 1)).collect::<Vec<_>>());
    check("one key", &(0..60_000).map(|block| (vec![9; 52], 3 * block)).collect::<Vec<_>>());
}
