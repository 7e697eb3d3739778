//! The block index against a plain list.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::{BlockIndex, BlockIndexBuilder, BlockIndexSummary, BlockPage, MemorySpool};
use pages::{PARENT, SplitMix64, steps};

fn build(entries: &[(u64, u64)]) -> (BlockIndexSummary, Vec<u8>) {
    let mut builder = BlockIndexBuilder::new(MemorySpool::default());
    entries.iter().try_for_each(|(block, page)| builder.push(*block, *page)).unwrap();
    let pages = entries.last().map_or(0, |(_, page)| page + 1);
    builder.finish(Vec::new(), "storage", steps(), PARENT, pages).unwrap()
}

/// Entries of `blocks` blocks, some of them in a row, on pages of up to `per_page`.
fn entries(count: u64, blocks: u64, per_page: u64, seed: u64) -> Vec<(u64, u64)> {
    let mut rng = SplitMix64(seed);
    let (mut page, mut left, mut block) = (0, per_page, 1000);
    let mut entry = || {
        if left == 0 {
            (page, left) = (page + 1, 1 + rng.below(per_page));
        }
        left -= 1;
        if rng.below(4) > 0 {
            block = 1000 + rng.below(blocks) * rng.below(2).max(1);
        }
        (block, page)
    };
    (0..count).map(|_| entry()).collect()
}

fn expected(entries: &[(u64, u64)], from: u64) -> Vec<BlockPage> {
    let mut sorted: Vec<_> = entries.iter().copied().filter(|(block, _)| *block >= from).collect();
    sorted.sort_unstable();
    let groups = sorted.chunk_by(|a, b| a == b);
    groups.map(|g| BlockPage { block: g[0].0, page: g[0].1, entries: g.len() as u64 }).collect()
}

#[test]
fn every_block_is_found_from_every_block_on() {
    for (count, blocks, per_page) in
        [(0, 1, 1), (1, 1, 1), (9000, 1, 3), (40_000, 700, 60), (40_000, 1 << 40, 9)]
    {
        let entries = entries(count, blocks, per_page, count + blocks);
        let (summary, bytes) = build(&entries);
        let index = BlockIndex::open(bytes.as_slice(), PARENT).unwrap();
        index.verify().unwrap();
        assert_eq!((summary, summary.entries), (*index.summary(), count));
        let some = entries.iter().step_by(5000).flat_map(|(block, _)| [block - 1, *block, block + 1]);
        for from in [0, u64::MAX].into_iter().chain(some) {
            let (mut cursor, mut found) = (index.cursor(from), Vec::new());
            while let Some(page) = cursor.next().unwrap() {
                found.push(page);
            }
            assert!(found == expected(&entries, from), "{count} entries of {blocks} blocks from {from}");
        }
    }
}

#[test]
fn an_entry_takes_some_two_bytes() {
    // As many blocks and pages as 5 M entries of storage have, 62 a page and 1,000 a block: each twentieth of them.
    let mut rng = SplitMix64(5);
    let entries: Vec<_> = (0..1_000_000u64).map(|entry| (rng.below(1000), entry / 62)).collect();
    let (summary, bytes) = build(&entries);
    let per_entry = bytes.len() as f64 / summary.entries as f64;
    assert!(per_entry < 2.0, "{per_entry}");
}
