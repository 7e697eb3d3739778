//! A reindex of the whole segment, and a merge of two halves.

use std::error::Error;

use icecore::measure::LoneSegment;
use icecore_index::Density;
use icecore_segments::step::{Step, StepRange};
use icecore_tools::workload::storage::StorageEntries;

use super::segment::{spec, write};
use super::{Bench, Work};
use crate::files::cold::check;

/// Builds another pivot index from the evicted `.kv`.
pub(super) fn reindex(bench: &mut Bench, segment: &LoneSegment) -> Result<(), Box<dyn Error>> {
    let [kv, ..] = segment.files();
    bench.method.evict(&kv)?;
    let (indexed, work) = Work::of(|| segment.with_index(Density::MEDIUM));
    let [_, bt, _] = indexed?.files();
    work.tell(&mut bench.figures, "reindex to M=64", bench.dataset.len());
    Ok(std::fs::remove_file(bt)?)
}

/// Merges two halves of a dataset of `entries`; each spans all keys: entry i is in half i mod 2.
pub(super) fn merge(bench: &mut Bench, entries: u64) -> Result<(), Box<dyn Error>> {
    let smaller;
    let dataset = if entries == bench.dataset.len() {
        &bench.dataset
    } else {
        smaller = StorageEntries::new(entries);
        &smaller
    };
    let dir = bench.dir.join("halves");
    let mut halves = Vec::new();
    for half in 0..2 {
        let steps = StepRange::single(Step(half));
        let dirs = (&*dir, bench.spool.as_deref());
        halves.push(write(dirs, dataset, steps, |place| place % 2 == half, &[])?.built.segment);
    }
    for file in halves.iter().flat_map(LoneSegment::files) {
        bench.method.evict(&file)?;
    }
    let steps = StepRange::new(Step(0), Step(2)).ok_or("two steps are a range")?;
    let (merged, work) = Work::of(|| LoneSegment::merge(&halves, &spec(steps)));
    let merged = merged?.ok_or("the halves have entries")?;
    check(entries as usize, merged.reader()?.kv()?.summary().entries)?;
    work.tell(&mut bench.figures, "merge of two halves", entries);
    let files = halves.iter().chain([&merged]).flat_map(LoneSegment::files);
    Ok(files.into_iter().try_for_each(std::fs::remove_file)?)
}
