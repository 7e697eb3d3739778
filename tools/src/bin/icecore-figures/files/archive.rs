//! Figures through the engine: an archive takes the dataset in steps, merges and reindexes them in a child process each, and
//! answers, warm and cold.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use icecore::{Archive, DomainHandle, Durability, Maintenance, OpenOptions, Options, Reader, View};
use icecore_tools::measure::baseline::{clock_cost, deep_reads, warm_reads};
use icecore_tools::measure::evict::{Mapping, Residency};
use icecore_tools::measure::faults::{Faults, thread_faults};
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::workload::storage::{KEY_LEN, WARM_PROBES};

use super::cold::check;
use super::{Bench, PASSES};
use crate::child::{Outcome, Work, spawn};

const DOMAIN: &str = "storage";

/// A domain of one segment, which no merge touches: its pages must not leave memory either.
const BYSTANDER: &str = "bystander";

/// A step has at most this many entries, so that ingesting needs memory for one step and the tree alone.
const STEP_ENTRIES: usize = 1_000_000;

/// At least this many segments are merged.
const STEPS_MIN: usize = 8;

/// How many keys a `multi_get` asks for, and how often.
const MULTI_KEYS: usize = 1000;
const MULTI_ROUNDS: u64 = 9;

/// How often the archive is opened for two unknown keys.
const OPENINGS: usize = 50;

const DEPTH: usize = 32;
const DEEP_READS: usize = 4000;
const WARM_READS: usize = 1_000_000;

type Key = [u8; KEY_LEN];

/// Ingests, merges, reindexes, asks.
pub(super) fn measure(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let dir = bench.dir.join("archive");
    ingest(bench, &dir)?;
    merge(bench, &dir)?;
    warm(bench, &dir)?;
    cold_after_open(bench, &dir)?;
    unknown_after_open(bench, &dir)?;
    cold_multi_get(bench, &dir)?;
    reindex(bench, &dir)
}

/// Entry i of the dataset goes into step i mod (number of steps), so that every input of the merge spans all keys.
fn ingest(bench: &Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let steps = bench.entries.len().div_ceil(STEP_ENTRIES).next_power_of_two().max(STEPS_MIN);
    let options = Options::new().domain(DOMAIN).domain(BYSTANDER).blocks_per_step(1).reorg_window(0);
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive =
        Archive::create_on(std::sync::Arc::new(icecore::storage::os::OsStorage), dir, options, open)?;
    for step in 0..steps {
        let mut block = archive.begin(step as u64)?;
        for entry in bench.entries.iter().skip(step).step_by(steps) {
            block.put(DOMAIN, entry.key(), entry.value())?;
            if step == 0 {
                block.put(BYSTANDER, entry.key(), entry.value())?;
            }
        }
        block.commit()?;
    }
    archive.close()?;
    Ok(())
}

fn merge(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    // Mapped, so that they can be asked for when the merge has removed their names; no page of them is touched through it.
    let paths = files_of(dir, None)?;
    let mapped: Vec<Mapping> = paths.iter().map(|path| Mapping::open(path)).collect::<Result<_, _>>()?;
    for path in &paths {
        black_box(fs::read(path)?);
    }
    let before = residency(&mapped)?;
    let outcome: Outcome = spawn(&Work::Merge { dir: dir.to_owned(), domain: DOMAIN.to_owned() })?;
    let after = residency(&mapped)?;
    check(bench.entries.len(), outcome.entries)?;
    bench.figures.add("merge: rate", outcome.entries as f64 / outcome.seconds / 1e6);
    bench.figures.add("merge: resident memory that no file backs", outcome.peak.anonymous as f64 / 1e6);
    bench.figures.add("merge: resident memory, pages of files included", outcome.peak.resident as f64 / 1e6);
    let kept = 100.0 * after.resident as f64 / before.resident as f64;
    bench.figures.add("merge: pages of live files kept in memory", kept);
    Ok(())
}

fn residency(mapped: &[Mapping]) -> Result<Residency, Box<dyn Error>> {
    let mut sum = Residency { resident: 0, total: 0 };
    for mapping in mapped {
        let residency = mapping.residency()?;
        sum.resident += residency.resident;
        sum.total += residency.total;
    }
    Ok(sum)
}

fn reindex(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    for path in files_of(dir, Some(DOMAIN))? {
        black_box(fs::read(path)?);
    }
    let to = |m| -> Result<Outcome, _> {
        spawn(&Work::Reindex { dir: dir.to_owned(), domain: DOMAIN.to_owned(), m })
    };
    // A segment of many steps has M = 64 already: then there would be nothing to do.
    to(128)?;
    let outcome = to(64)?;
    check(bench.entries.len(), outcome.entries)?;
    bench.figures.add("reindex to M=64: rate", outcome.entries as f64 / outcome.seconds / 1e6);
    bench.figures.add("reindex to M=64: memory", outcome.peak.anonymous as f64 / 1e6);
    Ok(())
}

/// Lookups of known and unknown keys through the engine, all pages in memory and mapped.
fn warm(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let places = bench.dataset.warm_places(0, WARM_PROBES);
    let keys: Vec<Key> = places.iter().map(|place| *bench.entries[*place as usize].key()).collect();
    let view = Reader::open(dir)?.latest()?;
    // Every page of the files is touched and checked before the clock runs.
    for entry in &bench.entries {
        black_box(view.get(DOMAIN, entry.key())?);
    }
    let absent = bench.dataset.absent_keys(1, WARM_PROBES);
    let kv = kv_of(dir)?;
    let (mut p50, mut p99, mut unknown_p50, mut baseline) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    for pass in 0..PASSES {
        let (known, found) = timed_gets(&view, &keys)?;
        check(keys.len(), found)?;
        (p50, p99) = (p50.min(known.quantile(0.5)), p99.min(known.quantile(0.99)));
        let (unknown, found) = timed_gets(&view, &absent)?;
        check(0, found)?;
        unknown_p50 = unknown_p50.min(unknown.quantile(0.5));
        baseline = baseline.min(warm_reads(&kv, WARM_READS, pass)?.quantile(0.5));
    }
    let mut add = |what: &str, measured| {
        bench.figures.add(&format!("warm lookup through the engine{what}"), measured);
    };
    add(": p50", p50 as f64 / 1e3);
    add(": p99", p99 as f64 / 1e3);
    add(": p50 / one dependent 64-byte read", p50 as f64 / baseline as f64);
    add(", unknown key: p50", unknown_p50 as f64 / 1e3);
    Ok(())
}

fn timed_gets(view: &View, keys: &[Key]) -> Result<(Histogram, u64), Box<dyn Error>> {
    let clock_ns = clock_cost().quantile(0.5);
    let (mut histogram, mut found) = (Histogram::default(), 0);
    for key in keys {
        let start = Instant::now();
        let value = black_box(view.get(DOMAIN, key)?);
        let time = start.elapsed().as_nanos() as u64;
        found += u64::from(value.is_some());
        histogram.record(time.saturating_sub(clock_ns));
    }
    Ok((histogram, found))
}

/// Lookups by a reader that was opened as readers are, after everything was evicted: what its accessors need was read beside.
fn cold_after_open(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    for path in files_of(dir, None)? {
        bench.method.evict(&path)?;
    }
    let started = Instant::now();
    let reader = Reader::open(dir)?;
    let (view, domain) = (reader.latest()?, reader.domain(DOMAIN)?);
    bench.figures.add("opening after everything was evicted: time", started.elapsed().as_secs_f64() * 1e3);
    while reader.stats().is_loading {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    bench
        .figures
        .add("opening after everything was evicted: accessors read", started.elapsed().as_secs_f64() * 1e3);
    let (mut waits, mut time) = (Vec::new(), Histogram::default());
    for place in bench.dataset.cold_places(0, bench.cold_keys) {
        let key = bench.entries[place as usize].key();
        let (before, start) = (thread_faults(), Instant::now());
        let value = view.get(&domain, key)?;
        time.record(start.elapsed().as_nanos() as u64);
        waits.push((thread_faults() - before).waits() as f64);
        check(1, u64::from(value.is_some()))?;
    }
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    bench.figures.add("cold lookup after opening by default: waits mean", mean);
    bench.figures.add("cold lookup after opening by default: p50", time.quantile(0.5) as f64 / 1e3);
    Ok(())
}

/// Two unknown keys each time that everything was evicted and the archive opened again. Neither reads anything; the first has the caches of
/// the processor as that left them.
fn unknown_after_open(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let keys = bench.dataset.absent_keys(0, 2 * OPENINGS);
    let (mut times, mut faults) = ([Histogram::default(), Histogram::default()], [Faults::default(); 2]);
    for pair in keys.as_chunks::<2>().0 {
        let (reader, domain) = open_evicted(bench, dir)?;
        let view = reader.latest()?;
        for (place, key) in pair.iter().enumerate() {
            let (before, start) = (thread_faults(), Instant::now());
            black_box(view.get(&domain, key)?);
            times[place].record(start.elapsed().as_nanos() as u64);
            faults[place] = faults[place] + (thread_faults() - before);
        }
    }
    for (place, name) in ["first", "second"].into_iter().enumerate() {
        let mut add = |what: &str, measured: f64| {
            bench.figures.add(&format!("the {name} unknown key after opening: {what}"), measured);
        };
        add("p50", times[place].quantile(0.5) as f64 / 1e3);
        add("faults mean", (faults[place].major + faults[place].minor) as f64 / OPENINGS as f64);
    }
    Ok(())
}

/// The archive, opened after everything was evicted, when its accessors are read.
fn open_evicted(bench: &Bench, dir: &Path) -> Result<(Reader, DomainHandle), Box<dyn Error>> {
    for path in files_of(dir, None)? {
        bench.method.evict(&path)?;
    }
    let reader = Reader::open(dir)?;
    while reader.stats().is_loading {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let domain = reader.domain(DOMAIN)?;
    Ok((reader, domain))
}

/// Asks for keys of an evicted `.kv`, then with the accessors evicted too, and has the disk read at depth 32 in between. Both are
/// compared as pages per second, so that keys that share a page count once.
fn cold_multi_get(bench: &mut Bench, dir: &Path) -> Result<(), Box<dyn Error>> {
    let (mut keys_rate, mut share, mut share_evicted, mut pages_per_key) = (vec![], vec![], vec![], vec![]);
    for round in 0..MULTI_ROUNDS {
        let places = bench.dataset.cold_places(round + 1, MULTI_KEYS);
        let keys: Vec<Key> = places.iter().map(|place| *bench.entries[*place as usize].key()).collect();
        let kv = kv_of(dir)?;
        let disk = deep_reads(&kv, bench.method, DEPTH, DEEP_READS, round)?.per_second;
        for path in files_of(dir, Some(DOMAIN))? {
            black_box(fs::read(path)?);
        }
        bench.method.evict(&kv)?;
        let (seconds, pages) = multi_get(dir, &keys)?;
        keys_rate.push(keys.len() as f64 / seconds);
        share.push(pages as f64 / seconds / disk);
        for path in files_of(dir, Some(DOMAIN))? {
            bench.method.evict(&path)?;
        }
        let (seconds, pages) = multi_get(dir, &keys)?;
        share_evicted.push(pages as f64 / seconds / disk);
        pages_per_key.push(pages as f64 / keys.len() as f64);
    }
    let mut add = |what: &str, measured: Vec<f64>| {
        bench.figures.add(&format!("cold multi_get of 1000 keys{what}"), median(measured));
    };
    add(": keys per second", keys_rate);
    add(": share of the disk's rate at depth 32", share);
    add(", all evicted: pages read per key", pages_per_key);
    add(", all evicted: share of the disk's rate at depth 32", share_evicted);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The seconds of one call and the pages that it had read.
fn multi_get(dir: &Path, keys: &[Key]) -> Result<(f64, u64), Box<dyn Error>> {
    let view = Reader::open(dir)?.latest()?;
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let before = thread_faults();
    let start = Instant::now();
    let answers = view.multi_get(DOMAIN, &keys)?;
    let seconds = start.elapsed().as_secs_f64();
    let pages = (thread_faults() - before).pages_read;
    check(keys.len(), answers.iter().flatten().count() as u64)?;
    Ok((seconds, pages))
}

/// The live files of a domain or of both.
fn files_of(dir: &Path, domain: Option<&str>) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let segments = Reader::open(dir)?.segments().into_iter();
    let wanted =
        segments.filter(|segment| domain.map_or(!segment.domain.starts_with('_'), |d| segment.domain == d));
    Ok(wanted.flat_map(|segment| segment.files).map(|file| dir.join(file)).collect())
}

/// The `.kv` of the one segment that the merge left.
fn kv_of(dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let files = files_of(dir, Some(DOMAIN))?;
    match &files[..] {
        [kv, _, _] => Ok(kv.clone()),
        other => Err(format!("one segment was expected, not {} files", other.len()).into()),
    }
}
