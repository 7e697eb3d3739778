//! The fault campaign: a scripted archive is hit in every way that a disk, a system or a kill can hit it, and everything it
//! then says is compared with a model.
//!
//! ```text
//!          script (a function of a seed; of every third an archive for Ethereum) --> states of the model before and after each operation
//!             |
//!   drive ----+--> a child goes through it under `shim.c`: one call is killed, fails or is short; every change of files and
//!                 names is traced, with what was acknowledged between them
//!   disk          from the trace: what a power loss at any event leaves, torn and out of order
//!   follow        beside that a child reads, from before the fault until everything was looked at
//!   check         a child reads what was left before any writer, another opens it for writing, asks everything, goes on with
//!                 the script to its end, asks and verifies again; the checkpoints of the script likewise
//!   flips, swaps  of a finished archive bits are flipped, and files replaced by older, exchanged or foreign ones
//!   controls      the same with one sync or one check taken out: that must be noticed
//! ```

mod campaign;
mod case;
mod check;
mod controls;
mod copies;
mod disk;
mod drive;
mod ethereum;
mod examine;
mod flips;
mod follow;
mod model;
mod report;
mod rig;
mod script;
mod shim;
mod swaps;
mod syncs;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use campaign::Campaign;
use case::Case;
use rig::{Failure, HUNG, Rig};
use shim::Shim;

/// How long a child may take.
const CHILD_TIME: Duration = Duration::from_secs(120);

/// Hit an archive with faults and compare everything it then says with a model.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        icecore-torture run --minutes 10 --jobs 4\n  \
        icecore-torture controls\n  \
        icecore-torture replay block.emit.7.30+kill-before@123"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hit scripts until the time is up; exit 1 if anything failed.
    Run(RunArgs),
    /// Take out one sync or check after another; exit 1 if nothing noticed.
    Controls(ControlsArgs),
    /// Run one case again.
    Replay {
        /// The case, as `run` prints it.
        case: Case,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Go through a script.
    #[command(hide = true)]
    Drive(drive::DriveArgs),
    /// Look at what is left.
    #[command(hide = true)]
    Check(check::CheckArgs),
    /// Flip bits.
    #[command(hide = true)]
    Flips(flips::FlipsArgs),
    /// Swap files.
    #[command(hide = true)]
    Swaps(swaps::SwapsArgs),
}

#[derive(Args)]
struct RunArgs {
    /// How long.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of the first script.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scripts at a time.
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args)]
struct ControlsArgs {
    /// How long to try each, at most.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// The seed of the first script.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scripts at a time.
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    /// Only this one.
    #[arg(long)]
    only: Option<String>,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args)]
struct PlaceArgs {
    /// Where archives are made; by default in memory, where the system has such a folder.
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(args) => run(&args),
        Command::Controls(args) => with_rig(&args.place, |rig| {
            controls::run(rig, args.only.as_deref(), Duration::from_secs(args.seconds), args.seed, args.jobs)
        }),
        Command::Replay { case, place } => with_rig(&place, |rig| campaign::replay(rig, &case)),
        Command::Drive(args) => as_child(|| drive::run(&args)),
        Command::Check(args) => as_child(|| check::run(&args)),
        Command::Flips(args) => as_child(|| flips::run(&args)),
        Command::Swaps(args) => as_child(|| swaps::run(&args)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => icecore_tools::exit::code("icecore-torture", Err(error)),
    }
}

/// Ends a child that takes too long.
fn as_child(work: impl FnOnce()) -> Result<bool, Failure> {
    controls::apply()?;
    std::thread::spawn(|| {
        std::thread::sleep(CHILD_TIME);
        std::process::exit(HUNG);
    });
    work();
    Ok(true)
}

/// A folder in memory where there is one: the campaign makes and removes thousands of files, and loses power by its own rules.
fn default_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn with_rig(place: &PlaceArgs, work: impl FnOnce(&Rig) -> Result<bool, Failure>) -> Result<bool, Failure> {
    let base = place.dir.clone().unwrap_or_else(default_dir).canonicalize()?;
    let folder = tempfile::tempdir_in(&base)?;
    let Some(shim) = Shim::compile(folder.path())? else {
        println!("skipped: there is no C compiler (cc) to make the shim with");
        return Ok(true);
    };
    work(&Rig::new(shim, base)?)
}

fn run(args: &RunArgs) -> Result<bool, Failure> {
    with_rig(&args.place, |rig| {
        let start = Instant::now();
        let campaign = Campaign::new(rig, Duration::from_secs_f64(args.minutes * 60.0), None);
        campaign.run(args.seed, args.jobs)?;
        let (report, _) = campaign.into_report();
        println!("{report}");
        println!("{:.0} s, scripts from seed {}", start.elapsed().as_secs_f64(), args.seed);
        Ok(report.is_clean())
    })
}
