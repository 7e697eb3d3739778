//! What a snapshot saves a proof, and the preload: many proofs at once, whose nodes are fetched row by row.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use icecore::{Parallelism, ProofSource, Reader, View};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::faults::thread_faults;
use icecore_tools::measure::histogram::Histogram;
use serde::Serialize;

use super::{DOMAIN, SnapshotsArgs, filled, key};

/// The keys come in this many blocks: the first and the last of them are snapshots.
const BLOCKS: u64 = 4;

/// Proofs of one kind from a snapshot are timed so often; a rebuilt one once.
const PROOFS: u64 = 1000;

/// How often a batch is proved; the median counts.
const ROUNDS: usize = 5;

/// One proof at a time.
#[derive(Serialize)]
pub(super) struct Figure {
    keys: u64,
    source: &'static str,
    kind: &'static str,
    p50_us: f64,
    reads: f64,
    entries: f64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "proof of {}, {} keys, from {}: {:.0} us, {:.1} reads, {:.1} entries",
            self.kind, self.keys, self.source, self.p50_us, self.reads, self.entries
        )
    }
}

/// Proofs at the last block, and at the one before it, which is no snapshot.
pub(super) fn measure(args: &SnapshotsArgs, dir: &Path) -> Result<Vec<Figure>, Box<dyn Error>> {
    let dir = dir.join("proofs");
    filled(&dir, args.keys, BLOCKS, BLOCKS)?;
    let reader = Reader::open(&dir)?;
    let mut figures = Vec::new();
    for (kind, first) in [("presence", 0), ("absence", 1 << 40)] {
        figures.push(one_by_one(&reader.at(BLOCKS)?, args.keys, kind, first, PROOFS)?);
        let before = args.keys - args.keys / BLOCKS;
        figures.push(one_by_one(&reader.at(BLOCKS - 1)?, before, kind, first, 1)?);
    }
    figures.iter().for_each(|figure| args.tell(figure));
    Ok(figures)
}

fn one_by_one(
    view: &View,
    keys: u64,
    kind: &'static str,
    first: u64,
    count: u64,
) -> Result<Figure, Box<dyn Error>> {
    let (mut times, mut reads, mut entries, mut source) = (Histogram::default(), 0, 0, "the whole state");
    for i in 0..count {
        // These numbers are there from the first block on.
        let key = key(first + i * BLOCKS * (keys / BLOCKS / count));
        let begun = Instant::now();
        let (_, cost) = view.prove_counted(&[(DOMAIN, &key)], Parallelism::Off)?;
        times.record_time(begun.elapsed());
        (reads, entries) = (reads + cost.reads, entries + cost.entries);
        if cost.source == ProofSource::Snapshot {
            source = "the snapshot";
        }
    }
    let mean = |sum: u64| sum as f64 / count as f64;
    let p50_us = times.quantile(0.5) as f64 / 1e3;
    Ok(Figure { keys, source, kind, p50_us, reads: mean(reads), entries: mean(entries) })
}

/// Many proofs at once.
#[derive(Serialize)]
pub(super) struct Preload {
    proofs: u64,
    threads: usize,
    cold: bool,
    seconds: f64,
    proofs_per_second: f64,
    /// Of the calling thread.
    major_faults: u64,
}

impl fmt::Display for Preload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.cold { "cold" } else { "warm" };
        let threads = if self.threads == 1 { "off".to_owned() } else { format!("{} threads", self.threads) };
        write!(
            f,
            "{} proofs of as many keys, {state}, parallelism {threads}: {:.3} s, {:.0} proofs/s, {} faults of the caller",
            self.proofs, self.seconds, self.proofs_per_second, self.major_faults
        )
    }
}

/// All keys of a state at once, warm and with every file evicted, by one thread and by two.
pub(super) fn preload(
    args: &SnapshotsArgs,
    dir: &Path,
    method: EvictMethod,
) -> Result<Vec<Preload>, Box<dyn Error>> {
    let mut figures = Vec::new();
    for &keys in &args.batches {
        let dir = dir.join(format!("batch-{keys}"));
        filled(&dir, keys, 1, 1)?;
        let numbers: Vec<_> = (0..keys).map(key).collect();
        let asked: Vec<(&str, &[u8])> = numbers.iter().map(|key| (DOMAIN, &key[..])).collect();
        for cold in [false, true] {
            let ways = [Parallelism::Off, Parallelism::Threads(NonZeroUsize::MIN.saturating_add(1))];
            let mut runs = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (way, runs) in ways.iter().zip(&mut runs) {
                    runs.push(timed(&dir, &asked, *way, cold.then_some(method))?);
                }
            }
            for (way, mut runs) in ways.iter().zip(runs) {
                runs.sort_by(|a, b| a.0.total_cmp(&b.0));
                let (seconds, major_faults) = runs[ROUNDS / 2];
                let (threads, proofs_per_second) = (way.threads(), keys as f64 / seconds);
                let figure =
                    Preload { proofs: keys, threads, cold, seconds, proofs_per_second, major_faults };
                args.tell(&figure);
                figures.push(figure);
            }
        }
    }
    Ok(figures)
}

/// Opens, proves, and returns the time and the faults of the proving alone.
fn timed(
    dir: &Path,
    asked: &[(&str, &[u8])],
    parallelism: Parallelism,
    evict: Option<EvictMethod>,
) -> Result<(f64, u64), Box<dyn Error>> {
    if let Some(method) = evict {
        for file in files_of(dir)? {
            method.evict(&file)?;
        }
    }
    let view = Reader::open(dir)?.latest()?;
    if evict.is_none() {
        view.prove_batch(asked, Parallelism::Off)?;
    }
    let (faults, begun) = (thread_faults(), Instant::now());
    let batch = view.prove_batch(asked, parallelism)?;
    let (seconds, faults) = (begun.elapsed().as_secs_f64(), thread_faults() - faults);
    let root = view.root()?;
    if batch.proofs.len() != asked.len()
        || batch.proofs.iter().take(100).any(|proof| {
            let (domain, key, value) = proof.claim();
            value.is_none() || proof.verify(&root, domain, key, value).is_err()
        })
    {
        return Err("a proof is wrong".into());
    }
    Ok((seconds, faults.major))
}

fn files_of(dir: &Path) -> Result<Vec<PathBuf>, icecore::Error> {
    let segments = Reader::open(dir)?.segments().into_iter();
    Ok(segments.flat_map(|segment| segment.files).map(|file| dir.join(file)).collect())
}
