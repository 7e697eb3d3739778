//! How long it takes from the opening of an archive of many keys to its first block.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use icecore::{Archive, Parallelism, ProgressListener};
use icecore_tools::measure::cpu::process_cpu_time;
use serde::Serialize;

use super::{SnapshotsArgs, filled, writing};

/// The keys come in this many blocks, so that building them takes little memory.
const BLOCKS: u64 = 16;

/// An archive in segments, its files in memory.
#[derive(Serialize)]
pub(super) struct Figure {
    keys: u64,
    threads: usize,
    open_seconds: f64,
    tree_seconds: f64,
    /// Of all threads: what the same takes of a machine that has nothing else to do.
    tree_cpu_seconds: f64,
    keys_per_second: f64,
    /// How often progress was told.
    reports: u64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} keys, {} threads: opened in {:.3} s, the tree built in {:.2} s ({:.2} s of a processor, {:.2} M keys/s), progress told {} times",
            self.keys,
            self.threads,
            self.open_seconds,
            self.tree_seconds,
            self.tree_cpu_seconds,
            self.keys_per_second / 1e6,
            self.reports
        )
    }
}

/// Counts reports.
#[derive(Default)]
struct Reports(AtomicU64);

impl ProgressListener for Reports {
    fn advance(&self, _: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn measure(args: &SnapshotsArgs, dir: &Path) -> Result<Vec<Figure>, Box<dyn Error>> {
    let (dir, keys) = (dir.join("open"), args.open_keys);
    if keys == 0 {
        return Ok(Vec::new());
    }
    filled(&dir, keys, BLOCKS, 0)?;
    let all = Parallelism::Threads(std::thread::available_parallelism()?);
    let mut figures = Vec::new();
    for (height, parallelism) in (BLOCKS + 1..).zip([Parallelism::Off, all, Parallelism::Off, all]) {
        let figure = timed(&dir, keys, height, parallelism)?;
        args.tell(&figure);
        figures.push(figure);
    }
    Ok(figures)
}

/// Opens and writes an empty block.
fn timed(dir: &Path, keys: u64, height: u64, parallelism: Parallelism) -> Result<Figure, Box<dyn Error>> {
    let begun = Instant::now();
    let archive = Archive::open(dir, writing().parallelism(parallelism))?;
    let open_seconds = begun.elapsed().as_secs_f64();
    let reports = Arc::new(Reports::default());
    archive.set_progress_listener(reports.clone());
    let (begun, cpu) = (Instant::now(), process_cpu_time());
    archive.begin(height)?.commit()?;
    let tree_seconds = begun.elapsed().as_secs_f64();
    let tree_cpu_seconds = process_cpu_time().saturating_sub(cpu).as_secs_f64();
    let reports = reports.0.load(Ordering::Relaxed);
    let (threads, keys_per_second) = (parallelism.threads(), keys as f64 / tree_seconds);
    Ok(Figure { keys, threads, open_seconds, tree_seconds, tree_cpu_seconds, keys_per_second, reports })
}
