//! Measures the accessors on the reference dataset: sizes, build rates, locate and probe times.
//!
//! `cargo run --release -p icecore-index --example figures -- [--entries 5000000] [--addresses 50000] [--restart 14]`
//!
//! The dataset is that of `datasets/STORAGE.md`; its pages are modelled: an entry takes a fixed number of bytes plus its value and
//! the part of its key that it does not share with its neighbour, so that about 105 entries fill 4096 bytes.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use icecore_index::{
    BuildParallelism, Density, ExistenceFilter, FilterBits, FilterBuilder, FilterHash, MemorySpool,
    PivotBuilder, PivotIndex,
};
use icecore_segments::checksum::Checksum;
use icecore_segments::span::{Pivot, PivotSink, Separator};
use icecore_segments::step::{Step, StepRange};

const KEY_LEN: usize = 52;
const PARENT: Checksum = Checksum([7; 32]);
const PROBES: usize = 100_000;
const BATCH: usize = 250;

type Key = [u8; KEY_LEN];

struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The keys of the dataset with the lengths of their values, sorted.
fn dataset(entries: u64, addresses: u64) -> Vec<(Key, u8)> {
    let mut rng = SplitMix64(0x00E2_1609);
    let c = if addresses == 50_000 { entries * 4330 / 50_000 } else { entries / 12 };
    let mut counts: Vec<u64> = (0..addresses).map(|i| c / (i + 1) + 1).collect();
    let sum: u64 = counts.iter().sum();
    counts[0] += entries.checked_sub(sum).expect("at least as many entries as the addresses need");
    let mut out = Vec::with_capacity(entries as usize);
    for count in counts {
        let mut address = [0; 20];
        rng.fill(&mut address);
        let (mut small, mut previous) = (0u64, None::<[u8; 32]>);
        for _ in 0..count {
            let kind = rng.below(100);
            let slot = match previous {
                _ if kind < 10 => {
                    let mut slot = [0; 32];
                    slot[24..].copy_from_slice(&small.to_be_bytes());
                    small += 1;
                    slot
                }
                Some(mut slot) if kind < 35 => {
                    let mut tail = [0; 8];
                    tail.copy_from_slice(&slot[24..]);
                    slot[24..].copy_from_slice(&u64::from_be_bytes(tail).wrapping_add(1).to_be_bytes());
                    *previous.insert(slot)
                }
                _ => {
                    let mut slot = [0; 32];
                    rng.fill(&mut slot);
                    *previous.insert(slot)
                }
            };
            let mut key = [0; KEY_LEN];
            key[..20].copy_from_slice(&address);
            key[20..].copy_from_slice(&slot);
            let len = match rng.below(100) {
                d if d < 35 => 1,
                d if d < 60 => 20,
                d if d < 85 => 6 + rng.below(7) as u8,
                _ => 32,
            };
            rng.fill(&mut [0; 32][..usize::from(len)]);
            out.push((key, len));
        }
    }
    out.sort_unstable();
    out
}

/// The ordinals at which the modelled pages begin.
fn pages(entries: &[(Key, u8)]) -> Vec<usize> {
    let (mut begins, mut filled) = (vec![0], 0);
    for (i, (key, value_len)) in entries.iter().enumerate() {
        let shared = if i == 0 { 0 } else { shared_len(key, &entries[i - 1].0) };
        let cost = 4 + KEY_LEN - shared + usize::from(*value_len);
        if filled + cost > 4096 - 64 {
            begins.push(i);
            filled = 0;
        }
        filled += cost;
    }
    begins
}

fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

struct Model {
    entries: Vec<(Key, u8)>,
    begins: Vec<usize>,
    restart: usize,
}

impl Model {
    /// Offers the places of all pages as a segment builder does.
    fn offer(&self, sink: &mut impl PivotSink) -> Result<(), Box<dyn Error>> {
        for (page, &begin) in self.begins.iter().enumerate() {
            let end = self.begins.get(page + 1).copied().unwrap_or(self.entries.len());
            for (number, i) in self.restarts(begin, end).into_iter().enumerate() {
                let key = &self.entries[i].0;
                let shared = if i == 0 { 0 } else { shared_len(key, &self.entries[i - 1].0) + 1 };
                let separator = Separator { key: &key[..shared], before: None };
                let (page, restart, ordinal) = (page as u64, number as u16, i as u64);
                sink.pivot(&Pivot { separator, page, restart, ordinal })?;
            }
        }
        Ok(())
    }

    /// Restarts inside a page slide to where they repeat little, as those of a segment builder do.
    fn restarts(&self, begin: usize, end: usize) -> Vec<usize> {
        let shared = |i: usize| shared_len(&self.entries[i].0, &self.entries[i - 1].0);
        let (ideal, mut restarts) = (self.restart, vec![begin]);
        loop {
            let last = restarts[restarts.len() - 1];
            let window = last + ideal * 4 / 7..(last + ideal * 12 / 7 + 1).min(end);
            let Some(best) = window.min_by_key(|&i| 2 * shared(i) + i.abs_diff(last + ideal)) else {
                return restarts;
            };
            restarts.push(best);
        }
    }

    fn page_of(&self, i: usize) -> u64 {
        self.begins.partition_point(|&begin| begin <= i) as u64 - 1
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> u128 {
    sorted[(sorted.len() - 1) * percent / 100].as_nanos()
}

/// Times every call alone, less what reading the clock takes.
fn time(mut call: impl FnMut(usize)) -> String {
    let mut clock: Vec<Duration> = (0..10_000).map(|_| Instant::now().elapsed()).collect();
    clock.sort_unstable();
    let clock = clock[clock.len() / 2];
    (0..PROBES).for_each(&mut call);
    let mut times: Vec<Duration> = (0..PROBES)
        .map(|i| {
            let start = Instant::now();
            call(i);
            start.elapsed().saturating_sub(clock)
        })
        .collect();
    times.sort_unstable();
    // A batch that nobody interrupted: the machine may be shared.
    let batches = (0..PROBES / BATCH).map(|batch| {
        let start = Instant::now();
        (batch * BATCH..(batch + 1) * BATCH).for_each(&mut call);
        start.elapsed()
    });
    let mut batches: Vec<Duration> = batches.collect();
    batches.sort_unstable();
    let mean = batches[batches.len() / 4].as_nanos() as f64 / BATCH as f64;
    let (p50, p90, p99) = (percentile(&times, 50), percentile(&times, 90), percentile(&times, 99));
    format!("p50 {p50} p90 {p90} p99 {p99} ns, in batches of {BATCH} {mean:.0} ns each (first quartile)")
}

fn pivots(model: &Model, m: u32, probes: &[Key]) -> Result<(), Box<dyn Error>> {
    let count = model.entries.len() as f64;
    let density = Density::new(m).ok_or("M out of range")?;
    let start = Instant::now();
    let mut builder = PivotBuilder::new(Vec::new(), "storage", StepRange::single(Step(0)), density)?;
    model.offer(&mut builder)?;
    let (summary, bytes) = builder.finish(PARENT, model.begins.len() as u64, model.entries.len() as u64)?;
    let rate = count / start.elapsed().as_secs_f64() / 1e6;
    let index = PivotIndex::open(bytes, PARENT)?;
    index.verify()?;
    let mut spans = 0;
    for (i, (key, _)) in model.entries.iter().enumerate().step_by(7) {
        let span = index.locate(key, 0)?;
        let page = model.page_of(i);
        assert!(span.first <= page && page <= span.last, "entry {i}: {span:?} misses page {page}");
        spans += span.len();
    }
    println!(
        "M={m}: {:.4} B/key, {} pivots ({:.1} entries each, {:.2} B each), {} leaves, top {} B, build {rate:.1} M entries/s, {:.3} pages per span",
        summary.file.len as f64 / count,
        summary.pivots,
        count / summary.pivots as f64,
        summary.file.len as f64 / summary.pivots as f64,
        summary.leaves,
        summary.top_bytes,
        spans as f64 / model.entries.len().div_ceil(7) as f64,
    );
    let timed = time(|i| {
        black_box(index.locate(&probes[i], 0).is_ok());
    });
    println!("  locate: {timed}");
    Ok(())
}

fn filter(model: &Model, bits: FilterBits, probes: &[Key]) -> Result<(), Box<dyn Error>> {
    let count = model.entries.len() as f64;
    let hashes: Vec<FilterHash> = model.entries.iter().map(|(key, _)| FilterHash::of(key)).collect();
    let mut rates = Vec::new();
    let mut file = None;
    for parallelism in [BuildParallelism::Off, BuildParallelism::Rayon] {
        let start = Instant::now();
        let mut builder = FilterBuilder::new(bits, hashes.len() as u64, MemorySpool::default(), parallelism);
        hashes.iter().try_for_each(|&hash| builder.push(hash))?;
        file = Some(builder.finish(Vec::new(), "storage", StepRange::single(Step(0)), PARENT)?);
        rates.push(count / start.elapsed().as_secs_f64() / 1e6);
    }
    let (summary, bytes) = file.ok_or("no file")?;
    let filter = ExistenceFilter::open(bytes, PARENT)?;
    filter.verify()?;
    for hash in &hashes {
        assert!(filter.may_contain(*hash)?, "a false no");
    }
    let mut rng = SplitMix64(99);
    let mut maybe = 0u64;
    let absent = 2_000_000;
    for _ in 0..absent {
        let mut key = model.entries[rng.below(hashes.len() as u64) as usize].0;
        rng.fill(&mut key[20..]);
        maybe += u64::from(filter.may_contain(FilterHash::of(&key))?);
    }
    println!(
        "filter {} bits: {:.4} B/key, {} shards, {:.3} % false positives, build {:.1} M keys/s on one thread, {:.1} on all",
        bits.get(),
        summary.file.len as f64 / count,
        summary.shards,
        100.0 * maybe as f64 / f64::from(absent),
        rates[0],
        rates[1],
    );
    let timed = time(|i| {
        black_box(filter.may_contain(FilterHash::of(&probes[i])).is_ok());
    });
    println!("  probe, hash of the key included: {timed}");
    Ok(())
}

fn argument(name: &str) -> Option<usize> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)?.parse().ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = argument("--entries").unwrap_or(5_000_000);
    let entries = dataset(count as u64, argument("--addresses").unwrap_or(50_000) as u64);
    assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "no key twice");
    let begins = pages(&entries);
    let model = Model { entries, begins, restart: argument("--restart").unwrap_or(14) };
    let per_page = count as f64 / model.begins.len() as f64;
    println!(
        "{count} entries, {} pages, {per_page:.1} entries a page, a restart every {}",
        model.begins.len(),
        model.restart
    );
    let mut rng = SplitMix64(42);
    let probes: Vec<Key> = (0..PROBES).map(|_| model.entries[rng.below(count as u64) as usize].0).collect();
    let all = [16, 64, 256, 1024];
    let one = argument("--m").map(|m| [m as u32]);
    for &m in one.as_ref().map_or(&all[..], |one| &one[..]) {
        pivots(&model, m, &probes)?;
    }
    for bits in [FilterBits::Eight, FilterBits::Sixteen] {
        filter(&model, bits, &probes)?;
    }
    Ok(())
}
