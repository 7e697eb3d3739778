//! The figures of an archive of many files: what it costs to open, list, ask and verify one, and how many files there come to be.
//!
//! | part | on what |
//! |---|---|
//! | [`open`] | an archive of unmerged steps of one block, at half its files and at all: each thing in a fresh process |
//! | [`emission`] | a step of one block, committed and emitted: how often the disk is synced and the manifest replaced |
//! | [`backlog`] | steps of one and of eight blocks committed at full speed, merging in the background: how many files there are |

mod backlog;
mod counting;
mod emission;
mod open;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use icecore::{Archive, Durability, Maintenance, OpenOptions, Options};
use icecore_tools::usage::{Conditions, load_average};
use icecore_tools::workload::mix;
use serde::Serialize;

pub(crate) use self::open::{Task, perform};
use crate::report::Figures;

/// The domains of every archive here; that of roots comes to them.
const DOMAINS: [&str; 2] = ["accounts", "storage"];

/// What a step has in files: of each domain and that of roots, three.
const FILES_PER_STEP: u64 = 3 * (DOMAINS.len() as u64 + 1);

/// How to measure the figures of many files.
#[derive(Args)]
pub(crate) struct ManyArgs {
    /// How many files the archive has that is opened.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2 * FILES_PER_STEP..))]
    files: u64,
    /// How many blocks are committed at full speed, four times over; 20000 show whether files stay few in the long run.
    #[arg(long, default_value_t = 4_000)]
    blocks: u64,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What the parts of the measurement share.
struct Bench<'a> {
    args: &'a ManyArgs,
    dir: PathBuf,
    figures: Figures,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct ManyConditions {
    files: u64,
    blocks: u64,
    changes_per_block: u64,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str = "processor time of a whole process, user and system, from its start; the lowest of 3 processes. Files are in memory";

/// Measures and prints.
pub(crate) fn run(args: &ManyArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let mut bench = Bench { args, dir: folder.path().to_owned(), figures: Figures::new() };
    open::measure(&mut bench)?;
    emission::measure(&mut bench)?;
    backlog::measure(&mut bench)?;
    let conditions = ManyConditions {
        files: args.files,
        blocks: args.blocks,
        changes_per_block: CHANGES,
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    bench.figures.print(&conditions, args.json)?;
    Ok(())
}

/// How many keys a block changes in each domain.
const CHANGES: u64 = 8;

/// Of how many keys.
const KEYS: u64 = 10_000;

/// An archive without a reorg window.
fn create(
    storage: Arc<dyn icecore::storage::Storage>,
    dir: &std::path::Path,
    blocks_per_step: u64,
    open: OpenOptions,
) -> Result<Archive, icecore::Error> {
    let options = Options::new().blocks_per_step(blocks_per_step).reorg_window(0);
    let options = DOMAINS.iter().fold(options, |options, domain| options.domain(domain));
    Archive::create_on(storage, dir, options, open)
}

/// What opens an archive so that it emits and does nothing else.
fn emit_only() -> OpenOptions {
    OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly)
}

/// Commits a block. The first one changes the key [`key`] of 0.
fn commit(archive: &Archive, height: u64) -> Result<(), icecore::Error> {
    let mut block = archive.begin(height)?;
    for domain in DOMAINS {
        for change in 0..CHANGES {
            let number = if height == 0 { change } else { mix(height * CHANGES + change) % KEYS };
            block.put(domain, &key(number), &mix(height).to_le_bytes())?;
        }
    }
    block.commit()?;
    Ok(())
}

/// Key number `number`.
fn key(number: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[12..].copy_from_slice(&number.to_be_bytes());
    key
}
