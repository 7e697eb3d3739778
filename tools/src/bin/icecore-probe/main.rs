//! Measures lookups in segment files, cold and warm, beside the disk's baseline, for any density of the pivot index.

mod archive;
mod drawing;
mod html;
mod measure;
mod progress;
mod report;
mod sample;
mod table;
mod target;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use icecore_index::Density;
use icecore_tools::machine::Conditions;
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::lookup::Mode;
use icecore_tools::provenance::Provenance;
use progress::Progress;
use report::{ProbeConditions, Report};

/// Measure what lookups in segment files cost.
///
/// Each segment is measured by itself, and an archive as a whole too. Nothing is written into an archive: what a file lacks is built
/// in a temporary folder.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        icecore-probe ARCHIVE --domain storage --m 16,64,256 --misses\n  \
        icecore-probe storage.0-64.kv --mode resident,warm --html probe.html"
)]
struct Args {
    /// Archive directories or `.kv` files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The densities: entries per pivot, separated by commas. The index of a file is used where it has that M.
    #[arg(long, value_delimiter = ',', default_value = "16,64,256", value_parser = density)]
    m: Vec<Density>,
    /// How many keys are looked up cold; ten times as many warm, a tenth where files are evicted before each.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// What is in memory before a lookup.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "resident,each,warm")]
    mode: Vec<ModeArg>,
    /// Look up keys that are not there, too.
    #[arg(long)]
    misses: bool,
    /// How many threads read an archive at once, where all of it is in memory.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Of an archive, only this domain.
    #[arg(long)]
    domain: Option<String>,
    /// Where missing files are built; must be on a disk. Default: the temporary folder.
    #[arg(long)]
    temp: Option<PathBuf>,
    /// Another seed takes other keys.
    #[arg(long, default_value_t = 4242)]
    seed: u64,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Write a page with the table and the distributions of latency drawn.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// The accessors; the `.kv` is evicted.
    Resident,
    /// The filter, and of the index what opening loads; the rest is evicted before every lookup.
    Opened,
    /// Nothing before the first lookup; all is evicted once.
    Once,
    /// Nothing; all is evicted before every lookup.
    Each,
    /// Everything.
    Warm,
}

impl ModeArg {
    fn mode(self) -> Mode {
        match self {
            Self::Resident => Mode::Resident,
            Self::Opened => Mode::Opened,
            Self::Once => Mode::Once,
            Self::Each => Mode::Each,
            Self::Warm => Mode::Warm,
        }
    }
}

fn density(text: &str) -> Result<Density, String> {
    let m = text.parse::<u32>().ok().and_then(Density::new);
    m.ok_or_else(|| format!("M is a number between 1 and {}", Density::MAX))
}

fn main() -> ExitCode {
    icecore_tools::exit::code("icecore-probe", run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let run = Provenance::of_this_run();
    let temp = tempfile::Builder::new()
        .prefix("icecore-probe")
        .tempdir_in(args.temp.clone().unwrap_or_else(std::env::temp_dir))?;
    let targets = target::find(&args.paths, args.domain.as_deref())?;
    let plan = measure::Plan {
        densities: args.m.clone(),
        keys: args.keys as usize,
        modes: args.mode.iter().map(|mode| mode.mode()).collect(),
        misses: args.misses,
        threads: args.threads as usize,
        seed: args.seed,
        method: EvictMethod::detect(),
        temp: temp.path().to_owned(),
    };
    let mut domains = Vec::new();
    for dir in args.paths.iter().filter(|path| path.is_dir()) {
        domains.extend(archive::domains(dir, args.domain.as_deref())?);
    }
    let progress = Progress::new();
    progress.expect(targets.len() * plan.measurements());
    progress.expect(domains.iter().map(|_| archive::measurements(&plan)).sum());
    let mut files = Vec::new();
    for target in &targets {
        files.extend(measure::file(target, &plan, &progress)?);
    }
    let archives: Vec<_> =
        domains.iter().map(|domain| domain.measure(&plan, &progress)).collect::<Result<_, _>>()?;
    drop(progress);
    let conditions = ProbeConditions {
        run,
        machine: Conditions::of(&targets[0].kv),
        evicted_by: plan.method,
        keys: plan.keys,
        seed: plan.seed,
        clock: "warm: p50 of the clock's cost subtracted; cold: not subtracted",
    };
    let report = Report { conditions, files, archives };
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&report))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    report.print(args.json)?;
    Ok(())
}
