//! The benchmarks of files, measured on the reference dataset.
//!
//! | part | on what |
//! |---|---|
//! | [`sizes`] | segment files built from the dataset, all entries at one block: bytes, and how fast they were built |
//! | [`cold`] | those files, evicted: faults and time of a lookup beside the disk's baseline |
//! | [`warm`] | those files in memory: the stages of a lookup, the filter |
//! | [`shapes`] | segment files of other keys and values: faults, time and bytes |
//! | [`archive`] | an archive that ingested the dataset in steps and merged them: lookups through the engine, merge, reindex |

mod archive;
pub(crate) mod cold;
mod shapes;
mod sizes;
mod warm;

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use icecore_segments::EncodingRule;
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::baseline::{self, Baseline, BaselineOptions};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::workload::storage::{BlockRule, Entry, StorageEntries};
use serde::Serialize;

use crate::report::Figures;
use crate::scale::{self, ScaleArgs};

/// How to measure files.
#[derive(Args)]
pub(crate) struct FilesArgs {
    /// How many entries the dataset has; of more than 100 million only what `scale` measures.
    #[arg(short = 'n', long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    entries: u64,
    /// Where the files are built and removed again: on the disk that is to be measured. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many keys are looked up cold.
    #[arg(long, default_value_t = 2000)]
    cold_keys: usize,
    /// How many unknown keys the filter is probed for: the false positives are then known to 1 % of themselves.
    #[arg(long, default_value_t = 2_000_000)]
    unknown_keys: usize,
    /// Leave the files there, for icecore-probe to look at.
    #[arg(long)]
    keep: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What the parts of the measurement share.
struct Bench {
    dataset: StorageEntries,
    entries: Vec<Entry>,
    dir: PathBuf,
    method: EvictMethod,
    cold_keys: usize,
    unknown_keys: usize,
    figures: Figures,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct FilesConditions {
    entries: u64,
    machine: Conditions,
    disk_baseline: Baseline,
    evicted_by: EvictMethod,
    cold_keys: usize,
    clock: &'static str,
    repetitions: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str =
    "warm: each operation timed alone, the p50 of the clock's cost subtracted; cold: not subtracted";

const REPETITIONS: &str = "warm p50: the lowest of 5 passes, its baseline too; build: the fastest of 3; multi_get: the median of 9; others once";

/// How often a warm figure is measured. The lowest counts, since what slows one down is another program.
const PASSES: u64 = 5;

/// More entries than these are measured as a stream: the parts here hold all of them in memory, and an archive its tree besides.
const IN_MEMORY_MAX: u64 = 100_000_000;

/// Measures and prints.
pub(crate) fn run(args: &FilesArgs) -> Result<(), Box<dyn Error>> {
    if args.entries > IN_MEMORY_MAX {
        eprintln!(
            "more than {IN_MEMORY_MAX} entries: what `scale` measures, and nothing that holds them in memory"
        );
        let &FilesArgs { entries, cold_keys, json, .. } = args;
        return scale::run(&ScaleArgs { entries, dir: args.dir.clone(), spool: None, cold_keys, json });
    }
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let dataset = StorageEntries::new(args.entries);
    let entries = dataset.iter().collect();
    let mut bench = Bench {
        dataset,
        entries,
        dir: folder.path().to_owned(),
        method: EvictMethod::detect(),
        cold_keys: args.cold_keys,
        unknown_keys: args.unknown_keys,
        figures: Figures::new(),
    };
    let files = sizes::measure(&mut bench)?;
    let touches = BaselineOptions { touches: args.cold_keys, ..BaselineOptions::default() };
    let disk_baseline = baseline::measure(&files.reference.files()[0], bench.method, &touches)?;
    cold::measure(&mut bench, &files)?;
    warm::measure(&mut bench, &files)?;
    archive::measure(&mut bench)?;
    shapes::measure(&mut bench)?;
    let conditions = FilesConditions {
        entries: args.entries,
        machine: Conditions::of(folder.path()),
        disk_baseline,
        evicted_by: bench.method,
        cold_keys: args.cold_keys,
        clock: CLOCK,
        repetitions: REPETITIONS,
        load_average: [load_before, load_average()],
    };
    bench.figures.print(&conditions, args.json)?;
    if args.keep {
        eprintln!("the files are in {}", folder.keep().display());
    }
    Ok(())
}

impl Bench {
    fn entry(&self, place: usize, rule: BlockRule) -> icecore_segments::Entry<'_> {
        let entry = &self.entries[place];
        let value = icecore_segments::Value::Inline(entry.value());
        icecore_segments::Entry { key: entry.key(), block: rule.block(place as u64), value }
    }
}

/// How an encoding is called in names of figures and of files.
fn name_of(encoding: EncodingRule) -> &'static str {
    match encoding {
        EncodingRule::Plain => "plain",
        EncodingRule::Zstd => "zstd",
        EncodingRule::Auto => "auto",
    }
}
