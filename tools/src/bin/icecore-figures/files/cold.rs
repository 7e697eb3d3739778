//! Lookups in evicted files, each beside the disk's own baseline.

use std::error::Error;

use icecore_tools::measure::lookup::{
    Mode, Query, measure as lookups, measure_beside_baseline, on_distinct_pages,
};

use super::Bench;
use super::sizes::{DENSITIES, Files};

/// The rounds in which lookups and touches take turns.
const ROUNDS: usize = 10;

/// Where files are evicted before every lookup, one in this many keys is looked up.
const EACH_SHARE: usize = 10;

/// Faults and time of cold lookups.
pub(super) fn measure(bench: &mut Bench, files: &Files) -> Result<(), Box<dyn Error>> {
    let places = bench.dataset.cold_places(0, bench.cold_keys);
    let query = |place: &u64| Query { key: bench.entries[*place as usize].key().to_vec(), at: u64::MAX };
    let queries: Vec<Query> = places.iter().map(query).collect();
    for m in DENSITIES {
        resident(bench, files, m, queries.clone())?;
        let few = &queries[..queries.len().div_ceil(EACH_SHARE)];
        let opened = lookups(files.at(m), Mode::Opened, few, bench.method)?.summary();
        check(few.len(), opened.found)?;
        let name = format!("cold lookup M={m}, only what open loads: faults mean");
        bench.figures.add(&name, opened.faults.mean);
    }
    let few = &queries[..queries.len().div_ceil(EACH_SHARE)];
    let first = lookups(&files.reference, Mode::Each, few, bench.method)?.summary();
    check(few.len(), first.found)?;
    bench.figures.add("first lookup after everything was evicted: faults max", first.faults.max as f64);
    bench.figures.add("first lookup after everything was evicted: p50", first.time_ns.p50 as f64 / 1e3);
    bench.figures.add("filter probe, cold: pages touched max", first.filter.faults.max as f64);
    Ok(())
}

/// Lookups with the accessors in memory, no page of the `.kv` twice, and as many touches of the same file between them.
fn resident(bench: &mut Bench, files: &Files, m: u32, queries: Vec<Query>) -> Result<(), Box<dyn Error>> {
    let segment = files.at(m);
    let queries = on_distinct_pages(segment, queries)?;
    let (series, baseline) = measure_beside_baseline(segment, &queries, bench.method, ROUNDS)?;
    let summary = series.summary();
    check(queries.len(), summary.found)?;
    let baseline_ns = baseline.time.quantile(0.5) as f64;
    let p50 = summary.time_ns.p50 as f64;
    let mut add = |what: &str, measured| bench.figures.add(&format!("cold lookup M={m}: {what}"), measured);
    add("faults mean", summary.faults.mean);
    add("faults p99", summary.faults.p99 as f64);
    add("pages read mean", summary.pages_read.mean);
    add("p50", p50 / 1e3);
    add("p50 / one random touch", p50 / baseline_ns);
    Ok(())
}

/// A figure of lookups that do not find what was put in is none.
pub(crate) fn check(expected: usize, found: u64) -> Result<(), Box<dyn Error>> {
    if expected as u64 == found {
        Ok(())
    } else {
        Err(format!("{found} of {expected} keys were found").into())
    }
}
