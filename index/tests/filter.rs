//! What the existence filter promises: never a false *no*, few false *maybes*, the same bytes whatever the way.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pages;

use icecore_index::{
    BuildParallelism, ExistenceFilter, FilterBits, FilterBuilder, FilterHash, FilterSummary, MemorySpool,
};
use pages::{PARENT, SplitMix64, steps};
use proptest::collection::vec;
use proptest::prelude::*;

const BOTH: [FilterBits; 2] = [FilterBits::Eight, FilterBits::Sixteen];

fn hashes(count: u64, seed: u64) -> Vec<u64> {
    let mut rng = SplitMix64(seed);
    (0..count).map(|_| rng.next()).collect()
}

fn build(hashes: &[u64], bits: FilterBits, parallelism: BuildParallelism) -> (FilterSummary, Vec<u8>) {
    let mut builder = FilterBuilder::new(bits, hashes.len() as u64, MemorySpool::default(), parallelism);
    hashes.iter().try_for_each(|&hash| builder.push(FilterHash::from_u64(hash))).unwrap();
    builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap()
}

#[test]
fn every_key_is_found_at_every_size() {
    let all = hashes(9000, 1);
    for bits in BOTH {
        for count in [0, 1, 2, 3, 1321, 1322, 1323, 2937, 2938, 2946, 2947, 5874, 5875, 9000] {
            let (summary, bytes) = build(&all[..count], bits, BuildParallelism::Off);
            let filter = ExistenceFilter::open(bytes, PARENT).unwrap();
            filter.verify().unwrap();
            assert_eq!((summary, summary.keys), (*filter.summary(), count as u64));
            for &hash in &all[..count] {
                assert!(filter.may_contain(FilterHash::from_u64(hash)).unwrap(), "{bits:?} {count}");
            }
            if count == 0 {
                assert!(!filter.may_contain(FilterHash::of(b"")).unwrap());
                assert_eq!(filter.page_range(FilterHash::of(b"")), 0..0);
            }
        }
    }
}

#[test]
fn false_positives_are_as_rare_as_promised_and_a_probe_takes_one_page() {
    let keys = hashes(100_000, 2);
    for (bits, most) in [(FilterBits::Eight, 0.0045), (FilterBits::Sixteen, 0.000_05)] {
        let (summary, bytes) = build(&keys, bits, BuildParallelism::Off);
        let filter = ExistenceFilter::open(bytes, PARENT).unwrap();
        let (mut maybe, probes) = (0u32, 400_000);
        for hash in hashes(probes, 3) {
            let hash = FilterHash::from_u64(hash);
            maybe += u32::from(filter.may_contain(hash).unwrap());
            let range = filter.page_range(hash);
            assert!(range.start >= 4096 && range.end == range.start + 4096);
            assert!(range.end <= (summary.shards + 1) * 4096);
        }
        let rate = f64::from(maybe) / probes as f64;
        assert!(rate < most, "{bits:?}: {rate}");
    }
}

#[test]
fn bytes_depend_on_the_set_alone() {
    let mut keys = hashes(50_000, 4);
    for bits in BOTH {
        let (_, bytes) = build(&keys, bits, BuildParallelism::Off);
        assert!(build(&keys, bits, BuildParallelism::Rayon).1 == bytes);
        for threads in [1, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(
                pool.install(|| build(&keys, bits, BuildParallelism::Rayon)).1 == bytes,
                "{threads} threads"
            );
        }
        keys.reverse();
        assert!(build(&keys, bits, BuildParallelism::Off).1 == bytes, "another order");
        let twice = [&keys[..], &keys[..], &keys[..100]].concat();
        assert!(build(&twice, bits, BuildParallelism::Off).1 == bytes, "every hash twice");
    }
}

#[test]
fn a_bound_beyond_memory_gives_the_same_bytes() {
    // So many keys announced that the builder partitions; so few pushed that all stay in its buffers.
    let keys = hashes(20_000, 5);
    let (_, bytes) = build(&keys, FilterBits::Eight, BuildParallelism::Off);
    for keys_max in [9_000_000, 1 << 33, u64::MAX] {
        let mut builder =
            FilterBuilder::new(FilterBits::Eight, keys_max, MemorySpool::default(), BuildParallelism::Rayon);
        keys.iter().try_for_each(|&hash| builder.push(FilterHash::from_u64(hash))).unwrap();
        assert!(builder.finish(Vec::new(), "storage", steps(), PARENT).unwrap().1 == bytes, "{keys_max}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hashes_of_any_shape_are_found(
        tops in vec(any::<u32>(), 1..4),
        hashes in vec((any::<prop::sample::Index>(), any::<u32>()), 0..6000),
        extremes in any::<bool>(),
    ) {
        let mut keys: Vec<u64> =
            hashes.iter().map(|(top, low)| u64::from(*top.get(&tops)) << 32 | u64::from(*low)).collect();
        if extremes {
            keys.extend([0, u64::MAX]);
        }
        let (_, bytes) = build(&keys, FilterBits::Eight, BuildParallelism::Off);
        let filter = ExistenceFilter::open(bytes, PARENT).unwrap();
        filter.verify().unwrap();
        for hash in keys {
            prop_assert!(filter.may_contain(FilterHash::from_u64(hash)).unwrap());
        }
    }
}
