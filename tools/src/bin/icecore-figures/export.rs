//! The figures of an export: how fast the crate gives the changes of all blocks of a merged archive, how fast the command `icecore` writes
//! them, and in how much memory.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options, Reader};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::workload::blocks::{BlockOptions, Change};
use serde::Serialize;

use crate::child::{Cost, Work, spawn};
use crate::report::Figures;

/// The domains of the changes.
const DOMAINS: [&str; 3] = ["accounts", "code", "storage"];

/// How to measure the figures of an export.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// How many blocks.
    #[arg(long, default_value_t = 12_500, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: u64,
    /// The changes drawn for each. A key that is drawn twice changes once.
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u64).range(1..))]
    changes: u64,
    /// The command, built with its feature `parquet`. Default: the `icecore` beside this program.
    #[arg(long, value_name = "FILE")]
    icecore: Option<PathBuf>,
    /// Where the archive is built, exported, and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct ExportConditions {
    blocks: u64,
    rows: u64,
    icecore: PathBuf,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str = "wall clock, one run each; the archive was just written and is in memory";

/// Measures and prints.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let beside = std::env::current_exe()?.with_file_name("icecore");
    let icecore = args.icecore.clone().unwrap_or(beside);
    if !icecore.is_file() {
        let place = icecore.display();
        return Err(format!("no command at {place}: build it with `cargo build --release -p icecore-cli --features parquet`, or name it with --icecore").into());
    }
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let archive = folder.path().join("archive");
    fill(&archive, &BlockOptions::chain(args.blocks, args.changes))?;
    let mut figures = Figures::new();
    let reader = Reader::open(&archive)?;
    let stats = reader.stats();
    figures.add("block index: bytes an entry", stats.kvbi_bytes as f64 / stats.entries as f64);
    let started = Instant::now();
    let rows = reader.changes(..)?.try_fold(0u64, |rows, change| change.map(|_| rows + 1))?;
    figures.add("changes of all blocks: rate", rows as f64 / 1e6 / started.elapsed().as_secs_f64());
    drop(reader);
    for format in ["csv", "jsonl", "parquet"] {
        let out = folder.path().join(format);
        let started = Instant::now();
        let cost = spawn::<Cost>(&Work::Command { command: command(&icecore, &archive, format, &out) })?;
        let rate = rows as f64 / 1e6 / started.elapsed().as_secs_f64();
        figures.add(&format!("icecore export, {format}: rate"), rate);
        figures.add(&format!("icecore export, {format}: memory"), cost.resident_peak as f64 / 1e6);
        std::fs::remove_dir_all(out)?;
    }
    let conditions = ExportConditions {
        blocks: args.blocks,
        rows,
        icecore,
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

fn command(icecore: &Path, archive: &Path, format: &str, out: &Path) -> Vec<OsString> {
    let words =
        [icecore.as_os_str(), "export".as_ref(), archive.as_os_str(), "--format".as_ref(), format.as_ref()];
    let out = ["--out".as_ref(), out.as_os_str()];
    words.into_iter().chain(out).map(OsString::from).collect()
}

/// An archive of these blocks, merged.
fn fill(dir: &Path, options: &BlockOptions) -> Result<(), icecore::Error> {
    let declared = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::new(OsStorage), dir, declared, open)?;
    for block in options.stream() {
        let mut writer = archive.begin(block.height)?;
        for Change { domain, key, value } in &block.changes {
            match value {
                Some(value) => writer.put(DOMAINS[*domain], key, value)?,
                None => writer.delete(DOMAINS[*domain], key)?,
            }
        }
        writer.commit()?;
    }
    archive.merge(&MergeOptions::default(), &())?;
    archive.close()
}
