//! What the benches share: their workloads, built once, and the sums that say that the answers were right.
//!
//! The workloads are those of `icecore-tools`, so a bench and the latency probe speak of the same data. A bench sums its answers and
//! compares the sum with one made from the workload alone before anything is timed.
//!
//! ```text
//! cargo bench -p icecore-benches                                  # everything, minutes
//! cargo bench -p icecore-benches --bench lookup -- segment_get    # what matches
//! cargo bench -p icecore-benches -- --test                        # each bench once, tiny, as a test
//! ```
//!
//! Ids can be parsed: `what_is_timed/name=value name=value`.

#![forbid(unsafe_code)]

use icecore_index::filter::BuildParallelism as Parallelism;
use icecore_index::{
    Density, ExistenceFilter, FilterBits, FilterBuilder, FilterHash, MemorySpool, PivotBuilder, PivotIndex,
};
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{EncodingRule, Entry, Segment, SegmentBuilder, Value};
use icecore_tools::workload::mix;
use icecore_tools::workload::storage::{Entry as StorageEntry, StorageEntries, WARM_PROBES};

/// The domain of all bench segments.
pub const DOMAIN: &str = "storage";

/// The block of all entries that a bench segment holds.
pub const BLOCK: u64 = 1;

/// Whether the benches run as tests, once and tiny: with `--test`, or without the `--bench` that `cargo bench` gives.
pub fn is_test_run() -> bool {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    has("--test") || !has("--bench")
}

/// `full` for a measurement, `tiny` for a test run.
pub fn size(full: u64, tiny: u64) -> u64 {
    if is_test_run() { tiny } else { full }
}

/// The steps of a bench segment.
pub fn steps() -> StepRange {
    StepRange::single(Step(0))
}

/// Folds an answer into a sum; the order counts.
pub fn fold(sum: u64, answer: Option<&[u8]>) -> u64 {
    let Some(bytes) = answer else { return mix(sum ^ 1) };
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(sum ^ bytes.len() as u64), |sum, word| mix(sum ^ word))
}

/// The reference dataset in memory, with the keys that lookups ask for.
pub struct Dataset {
    /// All entries, ascending by key.
    pub entries: Vec<StorageEntry>,
    /// Random entries to be asked for.
    pub present: Vec<StorageEntry>,
    /// Keys that are not there.
    pub absent: Vec<[u8; 52]>,
}

impl Dataset {
    /// The dataset of `len` entries.
    pub fn new(len: u64) -> Self {
        let dataset = StorageEntries::new(len);
        let probes = WARM_PROBES.min(len as usize);
        let entries: Vec<StorageEntry> = dataset.iter().collect();
        let places = dataset.warm_places(0, probes);
        let present = places.into_iter().map(|place| entries[place as usize]).collect();
        Self { entries, present, absent: dataset.absent_keys(0, probes) }
    }

    /// The sum that the lookups of all [`present`](Self::present) keys must give.
    pub fn present_sum(&self) -> u64 {
        self.present.iter().fold(0, |sum, entry| fold(sum, Some(entry.value())))
    }
}

/// One segment with its accessors, in memory.
pub struct Files {
    /// The `.kv`.
    pub kv: Vec<u8>,
    /// The `.bt`.
    pub bt: Vec<u8>,
    /// The `.kvei`.
    pub kvei: Vec<u8>,
}

/// [`Files`], opened.
pub struct Opened<'a> {
    /// The `.kv`.
    pub segment: Segment<&'a [u8]>,
    /// The `.bt`.
    pub index: PivotIndex<&'a [u8]>,
    /// The `.kvei`.
    pub filter: ExistenceFilter<&'a [u8]>,
}

/// Builds a segment alone.
pub fn build_segment<'a>(rule: EncodingRule, entries: impl IntoIterator<Item = &'a StorageEntry>) -> Vec<u8> {
    let mut builder = SegmentBuilder::new(Vec::new(), DOMAIN, steps(), rule, ()).expect("the name is short");
    for entry in entries {
        builder.push(versioned(entry)).expect("entries come in order");
    }
    builder.finish().expect("memory takes all writes").1
}

/// An entry of the dataset as a segment takes it.
pub fn versioned(entry: &StorageEntry) -> Entry<'_> {
    Entry { key: entry.key(), block: BLOCK, value: Value::Inline(entry.value()) }
}

impl Files {
    /// Builds all three files in one pass over the entries.
    pub fn build(rule: EncodingRule, m: Density, entries: &[StorageEntry]) -> Self {
        let pivots = PivotBuilder::new(Vec::new(), DOMAIN, steps(), m).expect("the name is short");
        let mut builder =
            SegmentBuilder::new(Vec::new(), DOMAIN, steps(), rule, pivots).expect("the name is short");
        let mut filter = FilterBuilder::new(
            FilterBits::Eight,
            entries.len() as u64,
            MemorySpool::default(),
            Parallelism::Off,
        );
        for entry in entries {
            builder.push(versioned(entry)).expect("entries come in order");
            filter.push(FilterHash::of(entry.key())).expect("no more keys than entries");
        }
        let (summary, kv, pivots) = builder.finish().expect("memory takes all writes");
        let parent = summary.file.content;
        let (_, bt) = pivots.finish(parent, summary.pages, summary.entries).expect("memory takes all writes");
        let (_, kvei) = filter.finish(Vec::new(), DOMAIN, steps(), parent).expect("memory takes all writes");
        Self { kv, bt, kvei }
    }

    /// Opens the three files.
    pub fn open(&self) -> Opened<'_> {
        let segment = Segment::open(self.kv.as_slice()).expect("a segment just built opens");
        let parent = segment.summary().file.content;
        let index = PivotIndex::open(self.bt.as_slice(), parent).expect("an index just built opens");
        let filter = ExistenceFilter::open(self.kvei.as_slice(), parent).expect("a filter just built opens");
        Opened { segment, index, filter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_tell_answers_and_their_order_apart() {
        let sums = [
            fold(fold(0, Some(b"a")), Some(b"b")),
            fold(fold(0, Some(b"b")), Some(b"a")),
            fold(fold(0, Some(b"ab")), None),
            fold(fold(0, None), Some(b"ab")),
            fold(0, Some(b"")),
            fold(0, Some(&[0; 8])),
            fold(0, None),
        ];
        for (i, sum) in sums.iter().enumerate() {
            assert!(!sums[..i].contains(sum), "sum {i}");
        }
    }
}
