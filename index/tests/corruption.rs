//! Every damage is an error or makes no difference; nothing panics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::{
    BlockIndex, BlockIndexBuilder, BlockPage, BuildParallelism, Density, Error, ExistenceFilter, FilterBits,
    FilterBuilder, FilterHash, MemorySpool, PivotBuilder, PivotIndex,
};
use icecore_segments::checksum::Checksum;
use icecore_segments::span::PageSpan;
use pages::{Entry, Model, PARENT, steps, storage_like};

const PAGE: usize = 4096;

fn index() -> (Vec<Entry>, Vec<u8>) {
    let model = Model::new(storage_like(7000, 9), || 100, || 7);
    let (summary, bytes) = model.index(8);
    assert!(summary.leaves >= 2);
    (model.entries.into_iter().step_by(40).collect(), bytes)
}

fn filter() -> (Vec<FilterHash>, Vec<u8>) {
    let hashes: Vec<FilterHash> = (0..6000u32).map(|i| FilterHash::of(&i.to_le_bytes())).collect();
    let mut builder =
        FilterBuilder::new(FilterBits::Eight, 6000, MemorySpool::default(), BuildParallelism::Off);
    hashes.iter().try_for_each(|&hash| builder.push(hash)).unwrap();
    let (_, bytes) = builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap();
    (hashes.into_iter().step_by(60).collect(), bytes)
}

/// Three leaves, of which the first two share a block.
fn blocks() -> (Vec<u64>, Vec<u8>) {
    let mut builder = BlockIndexBuilder::new(MemorySpool::default());
    for entry in 0..9000u64 {
        let block = if entry % 2 == 0 { 40 } else { 30 + entry % 41 };
        builder.push(block, entry / 3).unwrap();
    }
    let (summary, bytes) = builder.finish(Vec::new(), "storage", steps(), PARENT, 3000).unwrap();
    assert_eq!(summary.leaves, 3);
    (vec![0, 30, 39, 40, 41, 70, 71], bytes)
}

/// The pages of the blocks from each of the probes on.
fn ask_blocks(bytes: &[u8], probes: &[u64]) -> Answers<Vec<BlockPage>> {
    let from = |index: &BlockIndex<&[u8]>, block| {
        let (mut cursor, mut found) = (index.cursor(block), Vec::new());
        while let Some(page) = cursor.next().ok()? {
            found.push(page);
        }
        Some(found)
    };
    match BlockIndex::open(bytes, PARENT) {
        Ok(index) => (probes.iter().map(|&block| from(&index, block)).collect(), index.verify()),
        Err(error) => (vec![None; probes.len()], Err(error)),
    }
}

/// Opens, asks everything and verifies. `Some` answers where all went well.
fn ask_index(bytes: &[u8], probes: &[Entry]) -> Answers<PageSpan> {
    match PivotIndex::open(bytes, PARENT) {
        Ok(index) => (probes.iter().map(|(key, at)| index.locate(key, *at).ok()).collect(), index.verify()),
        Err(error) => (vec![None; probes.len()], Err(error)),
    }
}

fn ask_filter(bytes: &[u8], probes: &[FilterHash]) -> Answers<bool> {
    match ExistenceFilter::open(bytes, PARENT) {
        Ok(filter) => (probes.iter().map(|&hash| filter.may_contain(hash).ok()).collect(), filter.verify()),
        Err(error) => (vec![None; probes.len()], Err(error)),
    }
}

type Answers<A> = (Vec<Option<A>>, Result<(), Error>);

fn check<P, A: PartialEq>(bytes: &[u8], probes: &[P], ask: fn(&[u8], &[P]) -> Answers<A>) {
    let (right, sound) = ask(bytes, probes);
    sound.unwrap();
    let damaged = |damaged: &[u8], what: &str| {
        let (answers, verified) = ask(damaged, probes);
        assert!(verified.is_err(), "{what}: verify noticed nothing");
        assert!(answers.iter().zip(&right).all(|(a, r)| a.is_none() || a == r), "{what}: another answer");
    };
    let mut copy = bytes.to_vec();
    for at in 0..bytes.len() {
        copy[at] ^= 1 << (at % 8);
        damaged(&copy, &format!("flip at {at}"));
        copy[at] = bytes[at];
    }
    for len in (0..bytes.len()).step_by(61).chain((0..bytes.len()).step_by(PAGE)) {
        damaged(&bytes[..len], &format!("cut at {len}"));
    }
    let pages = bytes.len() / PAGE;
    for (a, b) in (0..pages).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let mut swapped: Vec<&[u8]> = bytes.chunks(PAGE).collect();
        swapped.swap(a, b);
        damaged(&swapped.concat(), &format!("pages {a} and {b} swapped"));
        damaged(&[&bytes[..b * PAGE], &bytes[a * PAGE..]].concat(), &format!("pages {b} to {a} missing"));
    }
    damaged(&[bytes, &[0; PAGE]].concat(), "a page more");
}

#[test]
fn a_damaged_index_is_noticed() {
    let (probes, bytes) = index();
    check(&bytes, &probes, ask_index);
}

#[test]
fn a_damaged_filter_is_noticed() {
    let (probes, bytes) = filter();
    check(&bytes, &probes, ask_filter);
}

#[test]
fn a_damaged_block_index_is_noticed() {
    let (probes, bytes) = blocks();
    check(&bytes, &probes, ask_blocks);
}

#[test]
fn an_accessor_of_another_segment_and_another_kind_are_named() {
    let (other, index, filter) = (Checksum([1; 32]), index().1, filter().1);
    assert!(matches!(
        PivotIndex::open(&index[..], other),
        Err(Error::Mismatch { what: "segment checksum", .. })
    ));
    assert!(matches!(ExistenceFilter::open(&filter[..], other), Err(Error::Mismatch { .. })));
    assert!(matches!(PivotIndex::open(&filter[..], PARENT), Err(Error::Mismatch { what: "file kind", .. })));
    assert!(matches!(ExistenceFilter::open(&index[..], PARENT), Err(Error::Mismatch { .. })));
}

#[test]
fn more_entries_than_the_pages_can_have_are_refused() {
    let model = Model::new(storage_like(700, 9), || 100, || 7);
    for (entries, is_sound) in [(700, true), (600 + 16_384, true), (601 + 16_384, false), (u64::MAX, false)] {
        for m in [1, 16, 65_536] {
            let m = Density::new(m).unwrap();
            let mut builder = PivotBuilder::new(Vec::new(), "storage", steps(), m).unwrap();
            // Without the restarts of the last page, its beginning is the last place that the builder knows.
            model.offer_until(600, &mut builder).unwrap();
            assert_eq!(builder.finish(PARENT, 7, entries).is_ok(), is_sound, "{entries}");
        }
    }
}

/// Pages whose checksum is right and whose content is not: a search ends, in an error or not, without a panic.
#[test]
fn a_page_that_was_sealed_with_nonsense_panics_nowhere() {
    use icecore_segments::checksum::seal;
    use icecore_segments::frame::{Frame, Kind};
    use pages::SplitMix64;
    let ((probes, index), (hashes, filter), (heights, blocks)) = (index(), filter(), blocks());
    let mut rng = SplitMix64(11);
    for round in 0..2000 {
        let files =
            [(&index, Kind::PivotIndex), (&filter, Kind::ExistenceFilter), (&blocks, Kind::BlockIndex)];
        for (bytes, kind) in files {
            let salt = Frame::parse(bytes, kind).unwrap().salt;
            let mut copy = bytes.clone();
            let page = &mut copy[PAGE..2 * PAGE];
            for _ in 0..=round % 30 {
                // Mostly the header and the tables, where damage leads far.
                let range = if rng.below(2) == 0 { 32 } else { 4000 };
                let at = 8 + rng.below(range) as usize;
                page[at] = rng.next() as u8;
            }
            seal(page, 1, salt);
            match kind {
                Kind::PivotIndex => drop(ask_index(&copy, &probes[..20])),
                Kind::ExistenceFilter => drop(ask_filter(&copy, &hashes[..20])),
                _ => drop(ask_blocks(&copy, &heights)),
            }
        }
    }
}
