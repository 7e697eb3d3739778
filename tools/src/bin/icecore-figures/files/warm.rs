//! Lookups in files that are in memory as a whole, stage by stage, and the filter alone.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use icecore_index::FilterHash;
use icecore_tools::measure::baseline::clock_cost;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::measure::lookup::{Mode, Query, measure as lookups};
use icecore_tools::workload::storage::WARM_PROBES;

use super::cold::check;
use super::sizes::Files;
use super::{Bench, PASSES};

/// The stages of a warm lookup, the filter's probe and its errors.
pub(super) fn measure(bench: &mut Bench, files: &Files) -> Result<(), Box<dyn Error>> {
    let places = bench.dataset.warm_places(0, WARM_PROBES);
    let query = |place: &u64| Query { key: bench.entries[*place as usize].key().to_vec(), at: u64::MAX };
    let queries: Vec<Query> = places.iter().map(query).collect();
    let summary = lookups(&files.reference, Mode::Warm, &queries, bench.method)?.summary();
    check(queries.len(), summary.found)?;
    bench.figures.add("warm stage, filter with the hash: p50", summary.filter.time_ns.p50 as f64);
    bench.figures.add("warm stage, pivot index M=64: p50", summary.pivot.time_ns.p50 as f64);
    bench.figures.add("warm stage, page and value: p50", summary.value.time_ns.p50 as f64);
    filter(bench, files, &queries)
}

fn filter(bench: &mut Bench, files: &Files, queries: &[Query]) -> Result<(), Box<dyn Error>> {
    let reader = files.reference.reader()?;
    let filter = reader.filter()?;
    for place in 0..bench.entries.len() {
        if !filter.may_contain(FilterHash::of(bench.entries[place].key()))? {
            return Err("the filter says no for a key that it has".into());
        }
    }
    let clock_ns = clock_cost().quantile(0.5);
    let mut lowest = u64::MAX;
    for _ in 0..PASSES {
        let mut time = Histogram::default();
        for query in queries {
            let start = Instant::now();
            black_box(filter.may_contain(FilterHash::of(&query.key))?);
            let elapsed = start.elapsed().as_nanos() as u64;
            time.record(elapsed.saturating_sub(clock_ns));
        }
        lowest = lowest.min(time.quantile(0.5));
    }
    bench.figures.add("filter probe, warm: p50", lowest as f64);
    let absent = bench.dataset.absent_keys(0, bench.unknown_keys);
    let mut maybe = 0u64;
    for key in &absent {
        maybe += u64::from(filter.may_contain(FilterHash::of(key))?);
    }
    bench.figures.add("filter: false positives", 100.0 * maybe as f64 / absent.len() as f64);
    Ok(())
}
