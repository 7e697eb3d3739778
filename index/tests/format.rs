//! `FORMAT.md` against the bytes: the worked examples are what the builders write.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::{
    BlockIndexBuilder, BuildParallelism, Density, FilterBits, FilterBuilder, FilterHash, MemorySpool,
    PivotBuilder,
};
use icecore_segments::bytes::{u16_at, u32_at};
use icecore_segments::format_doc::FormatDoc;
use icecore_segments::frame::Kind;
use icecore_segments::span::{Pivot, PivotSink, Separator};
use pages::{PARENT, steps};

const PAGE: usize = 4096;

const DOC: FormatDoc = FormatDoc::new(include_str!("../FORMAT.md"));

fn leaf() -> Vec<u8> {
    let mut builder = PivotBuilder::new(Vec::new(), "storage", steps(), Density::new(1).unwrap()).unwrap();
    let places =
        [(&b"a"[..], None, 0, 0, 0), (b"cold", Some(9), 0, 1, 3), (b"d\0\0\0\0\0\0\x01", None, 1, 0, 6)];
    for (key, before, page, restart, ordinal) in places {
        let separator = Separator { key, before };
        builder.pivot(&Pivot { separator, page, restart, ordinal }).unwrap();
    }
    let (_, bytes) = builder.finish(PARENT, 2, 8).unwrap();
    let page = &bytes[PAGE..2 * PAGE];
    let end = usize::from(u16_at(page, 12).unwrap());
    assert!(page[end..].iter().all(|&byte| byte == 0), "zeros after the last group");
    page[..end].to_vec()
}

fn shard() -> Vec<u8> {
    let mut builder = FilterBuilder::new(FilterBits::Eight, 3, MemorySpool::default(), BuildParallelism::Off);
    [1, 2, 3].into_iter().try_for_each(|hash| builder.push(FilterHash::from_u64(hash))).unwrap();
    let (_, bytes) = builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap();
    let page = &bytes[PAGE..2 * PAGE];
    let [s, p] = [16, 20].map(|at| u32_at(page, at).unwrap() as usize);
    let (used, unused) = page.split_at(32 + p + 2 * s);
    assert!(unused.iter().all(|&byte| byte == 0), "zeros after the last cell");
    used.to_vec()
}

fn block_leaf() -> Vec<u8> {
    let mut builder = BlockIndexBuilder::new(MemorySpool::default());
    let entries = [(7, 0), (9, 0), (7, 0), (8, 1), (7, 1)];
    entries.into_iter().try_for_each(|(block, page)| builder.push(block, page)).unwrap();
    let (_, bytes) = builder.finish(Vec::new(), "storage", steps(), PARENT, 2).unwrap();
    let page = &bytes[PAGE..2 * PAGE];
    let end = usize::from(u16_at(page, 18).unwrap());
    assert!(page[end..].iter().all(|&byte| byte == 0), "zeros after the last record");
    page[..end].to_vec()
}

#[test]
fn the_worked_examples_are_what_the_builders_write() {
    DOC.check_example("```hex leaf", &leaf());
    DOC.check_example("```hex shard", &shard());
    DOC.check_example("```hex block leaf", &block_leaf());
}

#[test]
fn the_history_ends_with_the_version_that_is_written() {
    let history = DOC.table("## History", "file");
    for kind in [Kind::PivotIndex, Kind::ExistenceFilter, Kind::BlockIndex] {
        let file = format!("`.{kind}`");
        let newest = history.iter().rfind(|row| row[0] == file).unwrap();
        assert_eq!(newest[1], kind.version().to_string());
    }
}
