//! Lookups in the evicted segment: counts first, and time beside the disk's own.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use icecore::measure::LoneSegment;
use icecore_index::FilterHash;
use icecore_tools::measure::baseline::deep_reads;
use icecore_tools::measure::evict::PAGE_SIZE;
use icecore_tools::measure::faults::thread_faults;
use icecore_tools::measure::lookup::{
    Mode, Query, measure as lookups, measure_beside_baseline, on_distinct_pages,
};
use icecore_tools::workload::storage::{Entry, KEY_LEN};

use super::Bench;
use crate::files::cold::check;

/// The rounds in which lookups and touches take turns.
const ROUNDS: usize = 5;

/// Where files are evicted before every lookup, one in this many keys is looked up.
const EACH_SHARE: usize = 40;

/// How much of the filter is in memory when unknown keys are looked up, in percent.
const SHARES: [u64; 5] = [0, 25, 50, 75, 100];

/// How many keys a `multi_get` asks for, and how often.
const MULTI_KEYS: usize = 1000;
const MULTI_ROUNDS: usize = 9;

const DEPTH: usize = 32;
const DEEP_READS: usize = 4000;

/// Known keys, unknown keys, many keys at once.
pub(super) fn measure(
    bench: &mut Bench,
    segment: &LoneSegment,
    asked: &[Entry],
) -> Result<(), Box<dyn Error>> {
    let query = |key: &[u8; KEY_LEN]| Query { key: key.to_vec(), at: u64::MAX };
    let mut queries: Vec<Query> = asked.iter().map(|entry| query(entry.key())).collect();
    // They came in the order of keys.
    icecore_tools::workload::SplitMix64::new(1).shuffle(&mut queries);
    let unknown = bench.dataset.absent_keys(0, bench.cold_keys);
    resident(bench, segment, queries.clone())?;
    let few = &queries[..queries.len().div_ceil(EACH_SHARE)];
    for (name, mode) in [("only what open loads", Mode::Opened), ("all evicted", Mode::Each)] {
        let series = lookups(segment, mode, few, bench.method)?.summary();
        check(few.len(), series.found)?;
        bench.figures.add(&format!("scale, known key, {name}: waits mean"), series.faults.mean);
    }
    for share in SHARES {
        unknown_keys(bench, segment, &unknown, share)?;
    }
    multi_get(bench, segment, &queries)
}

/// Known keys with the accessors in memory, no page of the `.kv` twice, and as many touches of the same file between them.
fn resident(bench: &mut Bench, segment: &LoneSegment, queries: Vec<Query>) -> Result<(), Box<dyn Error>> {
    let queries = on_distinct_pages(segment, queries)?;
    let (series, baseline) = measure_beside_baseline(segment, &queries, bench.method, ROUNDS)?;
    let summary = series.summary();
    check(queries.len(), summary.found)?;
    let mut add = |what: &str, measured| {
        bench.figures.add(&format!("scale, known key, accessors in memory: {what}"), measured);
    };
    add("waits mean", summary.faults.mean);
    add("waits p99", summary.faults.p99 as f64);
    add("p50", summary.time_ns.p50 as f64 / 1e3);
    add("p50 / one random touch", summary.time_ns.p50 as f64 / baseline.time.quantile(0.5) as f64);
    Ok(())
}

/// Unknown keys while a part of the filter is in memory, with the index and no page of the `.kv`, as where the filter is larger than the
/// memory. Which part does not matter: a key's page follows from its hash. No page of the filter is asked for twice.
fn unknown_keys(
    bench: &mut Bench,
    segment: &LoneSegment,
    keys: &[[u8; KEY_LEN]],
    percent: u64,
) -> Result<(), Box<dyn Error>> {
    for file in segment.files() {
        bench.method.evict(&file)?;
    }
    let reader = segment.reader()?;
    let (filter, index) = (reader.filter()?, reader.index()?);
    let bytes: &[u8] = filter.data().as_ref();
    let part = (bytes.len() as u64 * percent / 100) as usize;
    for pages in [&bytes[..part], index.data().as_ref()] {
        pages.iter().step_by(PAGE_SIZE as usize).for_each(|byte| _ = black_box(*byte));
    }
    let mut seen = HashSet::new();
    let (mut waits, mut asked) = (0, 0u64);
    for key in keys.iter().filter(|key| seen.insert(filter.page_range(FilterHash::of(&key[..])).start)) {
        let before = thread_faults();
        if reader.find(key, u64::MAX, |_| {})?.is_some() {
            return Err("an unknown key was found".into());
        }
        waits += (thread_faults() - before).waits();
        asked += 1;
    }
    let name = format!("scale, unknown key, {percent} % of the filter in memory: waits mean");
    bench.figures.add(&name, waits as f64 / asked as f64);
    Ok(())
}

/// Many known keys at once, the accessors in memory; the disk reads at depth 32 in between. Compared as pages per second, so that keys
/// that share a page count once.
fn multi_get(bench: &mut Bench, segment: &LoneSegment, queries: &[Query]) -> Result<(), Box<dyn Error>> {
    let [kv, bt, kvei] = segment.files();
    let mut shares = Vec::new();
    for round in 0..MULTI_ROUNDS {
        let disk = deep_reads(&kv, bench.method, DEPTH, DEEP_READS, round as u64)?.per_second;
        black_box((fs::read(&bt)?, fs::read(&kvei)?));
        bench.method.evict(&kv)?;
        let reader = segment.reader()?;
        let first = round * MULTI_KEYS % queries.len();
        let keys: Vec<&[u8]> =
            queries.iter().map(|query| &query.key[..]).cycle().skip(first).take(MULTI_KEYS).collect();
        let (before, start) = (thread_faults(), Instant::now());
        let answers = reader.multi_get(&keys, u64::MAX)?;
        let seconds = start.elapsed().as_secs_f64();
        let pages = (thread_faults() - before).pages_read;
        check(keys.len(), answers.iter().flatten().count() as u64)?;
        shares.push(pages as f64 / seconds / disk);
    }
    shares.sort_by(f64::total_cmp);
    let name = "scale, multi_get of 1000 keys: share of the disk's rate at depth 32";
    bench.figures.add(name, shares[MULTI_ROUNDS / 2]);
    Ok(())
}
