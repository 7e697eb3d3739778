//! What grows with the number of entries and what does not: the reference dataset as a stream, of any size that the disk holds.
//!
//! | part | on what |
//! |---|---|
//! | [`needs`] | nothing yet: what the run will need of disk and memory, and whether it is there |
//! | [`segment`] | one segment of all entries: building, bytes, opening |
//! | [`lookups`] | that segment, evicted: what known and unknown keys wait for, with accessors in memory, on disk, and in part |
//! | [`rewrites`] | that segment: a reindex. Then two halves, written as streams, and their merge |
//!
//! No part holds entries in memory but for those that are looked up.

mod lookups;
mod needs;
mod rewrites;
mod segment;

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::process_cpu_time;
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::peak::{Peak, watch};
use icecore_tools::workload::storage::StorageEntries;
use serde::Serialize;

use self::needs::Needs;
use crate::report::Figures;

/// How to measure what grows.
#[derive(Args)]
pub(crate) struct ScaleArgs {
    /// How many entries the dataset has.
    #[arg(short = 'n', long, default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) entries: u64,
    /// Where the files are built and removed again: on the disk that is to be measured. Default: the temporary folder.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Where the hashes lie that a filter is built from, 8 bytes an entry: another disk, where one does not hold all. Default: with the
    /// files.
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// How many keys are looked up cold.
    #[arg(long, default_value_t = 2000)]
    pub(crate) cold_keys: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the parts of the measurement share.
struct Bench {
    dataset: StorageEntries,
    dir: PathBuf,
    spool: Option<PathBuf>,
    method: EvictMethod,
    cold_keys: usize,
    figures: Figures,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct ScaleConditions {
    entries: u64,
    /// How many entries the two halves have together that are merged: fewer where the disk does not hold halves and result.
    merged_entries: u64,
    machine: Conditions,
    /// Where the hashes lay that filters were built from, where not with the files.
    spool_file_system: Option<String>,
    evicted_by: EvictMethod,
    cold_keys: usize,
    rates: &'static str,
    memory: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const RATES: &str = "once each, syncs included but for `build`; while a segment is built, another thread generates its entries";

const MEMORY: &str = "the most that was resident and that no file backs, of the whole process, while building with the generator";

/// What work took.
struct Work {
    wall: f64,
    /// Of all threads.
    cpu: f64,
    peak: Peak,
}

impl Work {
    fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let (start, cpu) = (Instant::now(), process_cpu_time());
        let (result, peak) = watch(work);
        let cpu = process_cpu_time().saturating_sub(cpu).as_secs_f64();
        (result, Self { wall: start.elapsed().as_secs_f64(), cpu, peak })
    }

    /// Adds the figures of work on so many entries.
    fn tell(&self, figures: &mut Figures, name: &str, entries: u64) {
        let mut add = |what: &str, measured| figures.add(&format!("scale, {name}: {what}"), measured);
        add("rate", entries as f64 / self.wall / 1e6);
        add("processor an entry", 1e6 * self.cpu / entries as f64);
        add("memory", self.peak.anonymous as f64 / 1e6);
    }
}

/// Measures and prints.
pub(crate) fn run(args: &ScaleArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let needs = Needs::of(args.entries, &parent, args.spool.as_deref())?;
    eprintln!("{needs}");
    needs.check()?;
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let mut bench = Bench {
        dataset: StorageEntries::new(args.entries),
        dir: folder.path().to_owned(),
        spool: args.spool.clone(),
        // A process for each eviction of a file is dear where every lookup has some.
        method: EvictMethod::Fadvise,
        cold_keys: args.cold_keys,
        figures: Figures::new(),
    };
    let (segment, asked) = segment::measure(&mut bench)?;
    lookups::measure(&mut bench, &segment, &asked)?;
    rewrites::reindex(&mut bench, &segment)?;
    segment.files().iter().try_for_each(std::fs::remove_file)?;
    rewrites::merge(&mut bench, needs.merged_entries)?;
    let conditions = ScaleConditions {
        entries: args.entries,
        merged_entries: needs.merged_entries,
        machine: Conditions::of(folder.path()),
        spool_file_system: args.spool.as_ref().map(|dir| Conditions::of(dir).file_system),
        evicted_by: bench.method,
        cold_keys: args.cold_keys,
        rates: RATES,
        memory: MEMORY,
        load_average: [load_before, load_average()],
    };
    Ok(bench.figures.print(&conditions, args.json)?)
}
