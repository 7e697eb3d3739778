//! What the pivot index says, against a list of entries that is searched from end to end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::PivotIndex;
use pages::{Entry, Model, PARENT, SplitMix64, storage_like};
use proptest::collection::vec;
use proptest::prelude::*;

const DENSITIES: [u32; 5] = [1, 16, 64, 256, 1000];

fn check(model: &Model, m: u32, probes: &[Entry]) {
    let (summary, bytes) = model.index(m);
    let index = PivotIndex::open(bytes, PARENT).unwrap();
    assert_eq!(*index.summary(), summary);
    assert_eq!((summary.entries, summary.pages), (model.entries.len() as u64, model.pages()));
    index.verify().unwrap();
    for (key, at) in probes {
        let span = index.locate(key, *at).unwrap();
        assert!(model.allows(span, key, *at), "m={m} {key:02x?} at {at}: {span:?}");
        assert!(span.last < summary.pages);
        let range = index.leaf_range(index.leaf(key, *at));
        assert!(range.start >= 4096 && range.end == range.start + 4096 && range.end < summary.file.len);
    }
}

/// Each entry itself, just above and below in block and key, and keys before the first and after the last.
fn probes(entries: &[Entry]) -> Vec<Entry> {
    let mut probes = vec![(vec![], 0), (vec![0], u64::MAX), (vec![0xFF; 60], 5)];
    for (key, block) in entries {
        let longer = [&key[..], &[0]].concat();
        let shorter = key[..key.len().saturating_sub(1)].to_vec();
        let mut greater = key.clone();
        *greater.last_mut().unwrap_or(&mut 0) = key.last().copied().unwrap_or(0).wrapping_add(1);
        probes.extend([(longer, *block), (shorter, *block), (greater, *block)]);
        let heights = [*block, block.saturating_sub(1), block.saturating_add(1), 0, u64::MAX];
        probes.extend(heights.map(|at| (key.clone(), at)));
    }
    probes
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..6),
        2 => (0u8..3, vec(any::<u8>(), 2)).prop_map(|(a, tail)| [vec![a; 20], vec![0; 30], tail].concat()),
        // The longest shared part that a code can say is here.
        1 => (122usize..132).prop_map(|len| vec![7; len]),
        1 => (100usize..600, vec(0u8..2, 0..3)).prop_map(|(len, tail)| [vec![7; len], tail].concat()),
    ]
}

fn block() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0u64..40, 1 => any::<u64>(), 1 => (0u64..4).prop_map(|i| u64::MAX - i)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_span_holds_the_answer(
        entries in vec((key(), block()), 1..400),
        pages in vec(1usize..40, 8),
        groups in vec(1usize..9, 8),
    ) {
        let (mut page, mut group) = (pages.iter().cycle(), groups.iter().cycle());
        let model = Model::new(entries, || *page.next().unwrap(), || *group.next().unwrap());
        let probes = probes(&model.entries);
        for m in DENSITIES {
            check(&model, m, &probes);
        }
    }
}

/// Keys that make a search in a leaf go wrong if it can: long shared prefixes around the 126 bytes that a code says, zeros and
/// ends of keys where codes have zeros, heads that are equal, versions of one key among others, the longest keys.
fn adversarial(seed: u64) -> Vec<Entry> {
    let mut rng = SplitMix64(seed);
    let mut entries: Vec<Entry> = vec![(Vec::new(), 3)];
    while entries.len() < 2500 {
        let shared = [0, 1, 4, 20, 52, 124, 125, 126, 127, 128, 1000][rng.below(11) as usize];
        let filler = [0, 7, 255][rng.below(3) as usize];
        for _ in 0..rng.below(40) {
            let tail = rng.below(7) as usize;
            let tail = (0..tail).map(|_| [0, 0, 1, 7, 255][rng.below(5) as usize]);
            let mut key: Vec<u8> = vec![filler; shared];
            key.extend(tail);
            if rng.below(30) == 0 {
                key.resize(1024, 0);
            }
            let versions = if rng.below(12) == 0 { rng.below(90) } else { 1 };
            let start = rng.next() >> rng.below(64);
            entries.extend((0..versions).map(|version| (key.clone(), start.saturating_add(3 * version))));
        }
    }
    entries
}

#[test]
fn adversarial_separators_are_searched_as_a_list_is() {
    for (seed, ms) in (0..6).zip([1..=20, 21..=60, 61..=110, 111..=170, 171..=230, 231..=300]) {
        let (mut pages, mut groups) = (SplitMix64(seed), SplitMix64(seed + 50));
        let page_len = [3, 15, 60, 105][seed as usize % 4];
        let model = Model::new(
            adversarial(seed),
            || 1 + pages.below(page_len) as usize,
            || 1 + groups.below(7) as usize,
        );
        let probes: Vec<Entry> = probes(&model.entries).into_iter().skip(seed as usize).step_by(17).collect();
        for m in ms {
            check(&model, m, &probes);
        }
    }
}

#[test]
fn restarts_beyond_a_byte_and_pages_far_apart_are_said() {
    // One page of 3000 restarts; then pages between which no place is short enough to be a pivot.
    let long = |i: u32| [&vec![9; 5000][..], &i.to_be_bytes()].concat();
    let mut entries: Vec<Entry> = (0..3000u32).map(|i| (i.to_be_bytes().to_vec(), 1)).collect();
    entries.extend((0..700).map(|i| (long(i), 1)));
    entries.extend((0..20u8).map(|i| (vec![10, i], 1)));
    let mut page = 0;
    let page_len = || {
        page += 1;
        if page == 1 { 3000 } else { 1 }
    };
    let model = Model::new(entries, page_len, || 1);
    for m in DENSITIES {
        check(&model, m, &probes(&model.entries).into_iter().step_by(13).collect::<Vec<_>>());
    }
}

#[test]
fn storage_like_entries_are_found_through_many_leaves() {
    let mut rng = SplitMix64(5);
    let entries = storage_like(60_000, 1);
    let mut sizes = SplitMix64(6);
    let model = Model::new(entries, || 95 + rng.below(20) as usize, || 6 + sizes.below(6) as usize);
    let probes: Vec<Entry> = probes(&model.entries).into_iter().step_by(7).collect();
    for m in DENSITIES {
        check(&model, m, &probes);
    }
}

#[test]
fn with_a_pivot_at_every_page_a_lookup_gets_one_page() {
    // Versions of one key over many pages, between keys with few.
    let mut entries = storage_like(9000, 2);
    entries.extend((0..3000).map(|block| (vec![0x80; 52], 5 * block)));
    let model = Model::new(entries, || 100, || 8);
    let key_pages: std::collections::BTreeSet<u64> = (0..model.entries.len())
        .filter(|&i| model.entries[i].0 == [0x80; 52])
        .map(|i| model.places[i].0)
        .collect();
    assert!(key_pages.len() > 29, "the versions cross page boundaries");
    for m in [1, 16, 64, 100, 149] {
        let (_, bytes) = model.index(m);
        let index = PivotIndex::open(bytes, PARENT).unwrap();
        for (key, at) in probes(&model.entries) {
            let span = index.locate(&key, at).unwrap();
            assert_eq!(span.len(), 1, "m={m} {key:02x?} at {at}: {span:?}");
            assert!(model.allows(span, &key, at), "m={m} {key:02x?} at {at}: {span:?}");
        }
    }
}

#[test]
fn fences_leave_few_pages_of_a_long_span() {
    // Each key once: between versions of one key there is no byte to tell pages apart by.
    let mut entries = storage_like(300_000, 9);
    entries.dedup_by(|a, b| a.0 == b.0);
    let model = Model::new(entries, || 105, || 7);
    // A span has 2.4 pages, and 9.5. What stays open are the pages of one address, of which a fence far before tells the first bytes.
    for (m, most) in [(256, 2.0), (1000, 3.6)] {
        let (_, bytes) = model.index(m);
        let index = PivotIndex::open(bytes, PARENT).unwrap();
        let mut pages = 0;
        for (key, at) in &model.entries {
            let span = index.locate(key, *at).unwrap();
            assert!(model.allows(span, key, *at), "m={m} {key:02x?}: {span:?}");
            pages += span.len();
        }
        let mean = pages as f64 / model.entries.len() as f64;
        assert!(mean <= most, "m={m}: {mean} pages");
    }
}

#[test]
fn m_is_the_average_number_of_entries_per_pivot() {
    let model = Model::new(storage_like(200_000, 3), || 105, || 7);
    for (m, low, high) in [(16, 15.5, 16.5), (64, 63.0, 65.0), (256, 250.0, 262.0), (1000, 980.0, 1050.0)] {
        let (summary, _) = model.index(m);
        let average = summary.entries as f64 / summary.pivots as f64;
        assert!(low < average && average < high, "m={m}: {average}");
    }
    // Denser than the restarts: all of them.
    let (summary, _) = model.index(1);
    let restarts = (1..model.places.len()).filter(|&i| model.places[i] != model.places[i - 1]).count();
    assert_eq!(summary.pivots, restarts as u64 + 1);
}

#[test]
fn pages_of_few_entries_get_a_pivot_each_until_m_is_larger() {
    let entries: Vec<Entry> = (0..3000u32).map(|i| (i.to_be_bytes().to_vec(), 1)).collect();
    let model = Model::new(entries, || 3, || 8);
    for (m, pivots) in [(1, 1000), (4, 1000), (6, 500), (30, 100)] {
        let (summary, _) = model.index(m);
        assert!(summary.pivots.abs_diff(pivots) <= 2, "m={m}: {} pivots", summary.pivots);
    }
}

#[test]
fn separators_longer_than_a_leaf_cost_a_longer_span_and_nothing_else() {
    let long = |i: u32| [&vec![9; 5000][..], &i.to_be_bytes()].concat();
    let mut entries: Vec<Entry> = (0..50).map(|i| (long(i), 3)).collect();
    entries.extend((0..50u32).map(|i| (i.to_be_bytes().to_vec(), 3)));
    entries.extend((0..50).map(|i| ([&vec![8; 3000][..], &[i]].concat(), 3)));
    let model = Model::new(entries, || 2, || 1);
    for m in DENSITIES {
        check(&model, m, &probes(&model.entries));
    }
}

#[test]
fn an_index_of_nothing_opens_and_verifies() {
    let model = Model::new(Vec::new(), || 1, || 1);
    let (summary, bytes) = model.index(64);
    let index = PivotIndex::open(bytes, PARENT).unwrap();
    index.verify().unwrap();
    assert_eq!((summary.pivots, index.leaf_range(index.leaf(b"k", 0))), (0, 0..0));
    assert_eq!(index.locate(b"k", 0).unwrap().first, 0);
}

#[test]
fn disorder_is_refused_and_changes_nothing() {
    use icecore_index::{Density, Error, PivotBuilder};
    use icecore_segments::span::{Pivot, PivotSink, Separator};
    let place = |key: &'static [u8], before, page, restart, ordinal| Pivot {
        separator: Separator { key, before },
        page,
        restart,
        ordinal,
    };
    let m = Density::new(1).unwrap();
    let mut builder = PivotBuilder::new(Vec::new(), "storage", pages::steps(), m).unwrap();
    let refused = |result| assert!(matches!(result, Err(Error::OutOfOrder { .. })));
    refused(builder.pivot(&place(b"a", None, 1, 0, 0)));
    builder.pivot(&place(b"a", None, 0, 0, 0)).unwrap();
    builder.pivot(&place(b"c", Some(9), 0, 1, 4)).unwrap();
    for wrong in [
        place(b"b", None, 1, 0, 8),
        place(b"c", None, 1, 0, 8),
        place(b"c", Some(9), 1, 0, 8),
        place(b"c", Some(10), 1, 0, 8),
        place(b"d", None, 0, 1, 8),
        place(b"d", None, 1, 0, 4),
    ] {
        refused(builder.pivot(&wrong));
    }
    builder.pivot(&place(b"c", Some(8), 1, 0, 8)).unwrap();
    let (summary, _) = builder.finish(PARENT, 2, 9).unwrap();
    assert_eq!(summary.pivots, 3);
}
