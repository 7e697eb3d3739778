//! The figures of one lookup by the command `icecore` in an archive whose changes are all in memory, which for another process is the
//! log: what it takes must not grow with the log.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, OpenOptions, Options};
use icecore_tools::usage::{Conditions, load_average};
use icecore_tools::workload::mix;
use serde::Serialize;

use crate::child::{Cost, Work, spawn};
use crate::report::Figures;

const DOMAIN: &str = "storage";

/// What a block changes.
const CHANGES_PER_BLOCK: u64 = 300;

/// How often each lookup is run. The lowest counts, since what slows one down is another program.
const PASSES: usize = 5;

/// How to measure the figures of one lookup by the command.
#[derive(Args)]
pub(crate) struct GetArgs {
    /// The smaller number of changes in memory.
    #[arg(long, default_value_t = 277_000, value_parser = clap::value_parser!(u64).range(1..))]
    fewer: u64,
    /// The greater one.
    #[arg(long, default_value_t = 2_500_000, value_parser = clap::value_parser!(u64).range(1..))]
    more: u64,
    /// The command. Default: the `icecore` beside this program.
    #[arg(long, value_name = "FILE")]
    icecore: Option<PathBuf>,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct GetConditions {
    fewer_changes: u64,
    more_changes: u64,
    icecore: PathBuf,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str =
    "processor time of the whole command, user and system; the lowest of 5 runs. The log is in memory";

/// Measures and prints.
pub(crate) fn run(args: &GetArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let beside = std::env::current_exe()?.with_file_name("icecore");
    let icecore = args.icecore.clone().unwrap_or(beside);
    if !icecore.is_file() {
        let place = icecore.display();
        return Err(format!("no command at {place}: build it with `cargo build --release -p icecore-cli`, or name it with --icecore").into());
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let mut figures = Figures::new();
    let mut processor = Vec::new();
    for (name, changes) in [("fewer", args.fewer), ("more", args.more)] {
        let dir = folder.path().join(name);
        fill(&dir, changes)?;
        let cost = lowest(&icecore, &dir)?;
        let mut add = |what: &str, measured| {
            figures.add(&format!("icecore get, {name} changes in memory: {what}"), measured);
        };
        add("processor", cost.cpu_seconds);
        add("memory", cost.resident_peak as f64 / 1e6);
        add("bytes read", cost.bytes_read as f64 / 1e6);
        add("bytes of the log", log_bytes(&dir)? as f64 / 1e6);
        processor.push(cost.cpu_seconds);
    }
    let growth = processor[1] / processor[0];
    figures.add("icecore get, more changes in memory: processor, to that of fewer", growth);
    let conditions = GetConditions {
        fewer_changes: args.fewer,
        more_changes: args.more,
        icecore,
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// An archive whose one step is far from complete, so that nothing was emitted.
fn fill(dir: &Path, changes: u64) -> Result<(), icecore::Error> {
    let options = Options::new().domain(DOMAIN).blocks_per_step(1 << 40);
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::new(OsStorage), dir, options, open)?;
    for (height, first) in (1..).zip((0..changes).step_by(CHANGES_PER_BLOCK as usize)) {
        let mut block = archive.begin(height)?;
        for number in first..changes.min(first + CHANGES_PER_BLOCK) {
            block.put(DOMAIN, key(number).as_bytes(), &mix(number).to_le_bytes().repeat(4))?;
        }
        block.commit()?;
    }
    archive.close()
}

/// Key number `number`, as the command takes it literally.
fn key(number: u64) -> String {
    format!("{:016x}{number:08x}", mix(number))
}

/// The costs of the run that took the least processor time, each with another key of the first blocks.
fn lowest(icecore: &Path, dir: &Path) -> Result<Cost, Box<dyn Error>> {
    let mut costs = Vec::new();
    for pass in 0..PASSES {
        let arguments = [OsString::from("get"), dir.into(), key(pass as u64).into()];
        let command = std::iter::once(icecore.as_os_str().to_owned()).chain(arguments).collect();
        costs.push(spawn::<Cost>(&Work::Command { command })?);
    }
    costs.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    Ok(costs[0])
}

/// What the log holds on the disk.
fn log_bytes(dir: &Path) -> Result<u64, std::io::Error> {
    std::fs::read_dir(dir.join("wal"))?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}
