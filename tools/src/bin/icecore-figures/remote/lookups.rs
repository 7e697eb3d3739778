//! Lookups in a bucket: what a cold one takes, with accessors here and with nothing, and what one takes whose page is in the cache.

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use icecore::remote::{Accessors, RemoteCost};
use icecore::{Reader, Scan};
use icecore_tools::measure::baseline::cold_touches;
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::workload::mix;

use super::{Bench, DOMAIN, LATENCY, Place};

const PAGE: u64 = 4096;

/// What is fetched by default where one page is needed.
const PIECE: u64 = 64 << 10;

/// Keys of one `multi_get`.
const MANY: usize = 1_000;

/// Lookups in a cache after a restart.
const RESTARTED: usize = 1_000;

/// What lookups of one kind cost.
#[derive(Default)]
struct Costs {
    lookups: f64,
    requests: f64,
    bytes: f64,
    waits: f64,
    time: Histogram,
}

fn since(after: RemoteCost, before: RemoteCost) -> (f64, f64, f64) {
    let difference = |after: u64, before: u64| (after - before) as f64;
    (
        difference(after.requests, before.requests),
        difference(after.bytes, before.bytes),
        difference(after.waits, before.waits),
    )
}

fn cost(reader: &Reader) -> Result<RemoteCost, &'static str> {
    reader.remote_cost().ok_or("it reads no bucket")
}

/// Cold lookups of present keys and of unknown ones, beside single ranged GETs.
pub(super) fn measure(bench: &mut Bench<'_>, place: &Place, shape: &str) -> Result<(), Box<dyn Error>> {
    let mut raw = Histogram::default();
    for (warm, with, fetch, at) in [
        (Accessors::All, "accessors resident", PIECE, "64K"),
        (Accessors::None, "nothing resident", PIECE, "64K"),
        (Accessors::All, "accessors resident", PAGE, "4K"),
        (Accessors::None, "nothing resident", PAGE, "4K"),
    ] {
        let is_timed = fetch == PIECE;
        let costs = cold(bench, place, warm, fetch, is_timed.then_some(&mut raw))?;
        let mut add = |what: &str, measured: f64| {
            bench.figures.add(&format!("bucket, {shape}, {with}, {at}: {what}"), measured);
        };
        add("GETs a cold hit", costs.requests / costs.lookups);
        add("waits a cold hit", costs.waits / costs.lookups);
        add("bytes a cold hit", costs.bytes / costs.lookups / 1e3);
        if is_timed {
            let ratio = costs.time.quantile(0.5) as f64 / raw.quantile(0.5) as f64;
            add("p50 / one raw ranged GET, 20 ms injected", ratio);
        }
    }
    unknown(bench, place, shape)
}

/// Each lookup with a cache of its own. Beside each, one GET of as many bytes.
fn cold(
    bench: &Bench<'_>,
    place: &Place,
    warm: Accessors,
    fetch: u64,
    mut raw: Option<&mut Histogram>,
) -> Result<Costs, Box<dyn Error>> {
    let latency = if raw.is_some() { LATENCY } else { Duration::ZERO };
    let files = place.files();
    let (largest, len) = &files[0];
    let places = bench.dataset.cold_places(0, bench.args.lookups as usize);
    let mut costs = Costs::default();
    for (number, entry) in (0..).zip(bench.dataset.pick(&places)) {
        let cache = bench.dir.join("cold");
        let reader = place.open(&cache, fetch, warm)?;
        let (view, before) = (reader.latest()?, cost(&reader)?);
        place.stub.set_latency(latency);
        let begun = Instant::now();
        let found = view.get(DOMAIN, entry.key())?;
        costs.time.record_time(begun.elapsed());
        if let Some(raw) = &mut raw {
            let from = mix(number) % (len / PIECE).max(1) * PIECE;
            raw.record_time(place.raw.get(largest, from..(from + PIECE).min(*len))?);
        }
        place.stub.set_latency(Duration::ZERO);
        if found.as_deref() != Some(entry.value()) {
            return Err("a key has another value than the archive got".into());
        }
        let (requests, bytes, waits) = since(cost(&reader)?, before);
        costs.lookups += 1.0;
        costs.requests += requests;
        costs.bytes += bytes;
        costs.waits += waits;
        drop((view, reader));
        fs::remove_dir_all(&cache)?;
    }
    Ok(costs)
}

fn unknown(bench: &mut Bench<'_>, place: &Place, shape: &str) -> Result<(), Box<dyn Error>> {
    let cache = bench.dir.join("unknown");
    let reader = place.open(&cache, PIECE, Accessors::All)?;
    let (view, before) = (reader.latest()?, cost(&reader)?);
    let keys = bench.dataset.absent_keys(0, 20 * bench.args.lookups as usize);
    for key in &keys {
        if view.get(DOMAIN, key)?.is_some() {
            return Err("a key has a value that the archive never got".into());
        }
    }
    let (requests, ..) = since(cost(&reader)?, before);
    let name = format!("bucket, {shape}, accessors resident, 64K: GETs an unknown key");
    bench.figures.add(&name, requests / keys.len() as f64);
    drop((view, reader));
    Ok(fs::remove_dir_all(&cache)?)
}

/// One `multi_get` of many keys, beside as many GETs of a piece at once.
pub(super) fn many_keys(bench: &mut Bench<'_>, place: &Place) -> Result<(), Box<dyn Error>> {
    let files = place.files();
    let (largest, len) = &files[0];
    for (latency, name) in [(LATENCY, "20 ms injected"), (Duration::ZERO, "nothing injected")] {
        let (mut requests, mut best, mut best_raw) = (0.0, Duration::MAX, Duration::MAX);
        for pass in 0..3 {
            let cache = bench.dir.join("many");
            let reader = place.open(&cache, PIECE, Accessors::All)?;
            let places = bench.dataset.cold_places(pass, MANY);
            let entries = bench.dataset.pick(&places);
            let keys: Vec<&[u8]> = entries.iter().map(|entry| &entry.key()[..]).collect();
            let (view, before) = (reader.latest()?, cost(&reader)?);
            place.stub.set_latency(latency);
            let begun = Instant::now();
            let found = view.multi_get(DOMAIN, &keys)?;
            best = best.min(begun.elapsed());
            if !found.iter().zip(&entries).all(|(found, entry)| found.as_deref() == Some(entry.value())) {
                return Err("a key has another value than the archive got".into());
            }
            requests = since(cost(&reader)?, before).0;
            let pieces = (0..requests as u64).map(|number| mix(number) % (len / PIECE).max(1) * PIECE);
            let pieces: Vec<Range<u64>> = pieces.map(|from| from..(from + PIECE).min(*len)).collect();
            best_raw = best_raw.min(place.raw.get_many(largest, &pieces)?);
            place.stub.set_latency(Duration::ZERO);
            drop((view, reader));
            fs::remove_dir_all(&cache)?;
        }
        let mut add = |what: &str, measured: f64| {
            bench.figures.add(&format!("bucket, multi_get of 1000 keys, {name}: {what}"), measured);
        };
        add("GETs", requests);
        add("rate / as many raw GETs at depth 32", best_raw.as_secs_f64() / best.as_secs_f64());
    }
    Ok(())
}

/// Lookups after a restart, all of whose pages are in the cache and not in memory, beside touches of pages of the same file.
pub(super) fn after_restart(bench: &mut Bench<'_>, place: &Place) -> Result<(), Box<dyn Error>> {
    let cache = bench.dir.join("restarted");
    let reader = place.open(&cache, PIECE, Accessors::All)?;
    reader.latest()?.scan(DOMAIN, &Scan::all())?.try_for_each(|entry| entry.map(drop))?;
    drop(reader);
    let data = largest_of(&cache)?;
    let method = EvictMethod::detect();
    let (mut touch, mut time, mut requests) = (Histogram::default(), Histogram::default(), 0.0);
    for pass in 0..2 {
        touch.add(&cold_touches(&data, method, RESTARTED, pass)?.time);
        method.evict(&data)?;
        let reader = place.open(&cache, PIECE, Accessors::All)?;
        // So that the accessors are in memory and were checked.
        for key in bench.dataset.absent_keys(pass, 20 * RESTARTED) {
            reader.latest()?.get(DOMAIN, &key)?;
        }
        let (view, before) = (reader.latest()?, cost(&reader)?);
        let places = bench.dataset.cold_places(pass, RESTARTED);
        for entry in bench.dataset.pick(&places) {
            let begun = Instant::now();
            let found = view.get(DOMAIN, entry.key())?;
            time.record_time(begun.elapsed());
            if found.as_deref() != Some(entry.value()) {
                return Err("a key has another value than the archive got".into());
            }
        }
        requests += since(cost(&reader)?, before).0;
    }
    let ratio = time.quantile(0.5) as f64 / touch.quantile(0.5) as f64;
    bench.figures.add("bucket, a hit in the cache after a restart: GETs", requests);
    bench.figures.add("bucket, a hit in the cache after a restart: p50", time.quantile(0.5) as f64 / 1e3);
    bench.figures.add("bucket, a hit in the cache after a restart: p50 / one 4 KiB touch", ratio);
    Ok(fs::remove_dir_all(&cache)?)
}

/// The file of a folder that takes most.
fn largest_of(folder: &std::path::Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut largest = (0, PathBuf::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        largest = largest.max((entry.metadata()?.len(), entry.path()));
    }
    Ok(largest.1)
}
