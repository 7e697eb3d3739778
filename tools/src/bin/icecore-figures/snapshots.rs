//! The figures of snapshots: what they cost the writer and the disk, what they save a proof, and how fast an archive of many
//! keys is ready to write.
//!
//! | part | on what |
//! |---|---|
//! | [`ingest`] | the same blocks in one archive for each period, in turn |
//! | [`proofs`] | proofs at a snapshot and beside one; many proofs at once, cold and warm, by threads |
//! | [`open`] | an archive of many keys: opening, and building the tree for the first block |

mod ingest;
mod open;
mod proofs;

use std::error::Error;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::provenance::Provenance;
use icecore_tools::workload::mix;
use serde::Serialize;

const DOMAIN: &str = "storage";

/// How to measure the figures of snapshots.
#[derive(Args)]
pub(crate) struct SnapshotsArgs {
    /// How many keys the state has while blocks are ingested.
    #[arg(long, default_value_t = 1 << 20)]
    keys: u64,
    /// How many blocks are ingested.
    #[arg(long, default_value_t = 2100)]
    blocks: u64,
    /// How many changes a block has: nine updates, one insertion of ten.
    #[arg(long, default_value_t = 300)]
    changes: u64,
    /// The periods, in blocks; 0 is off.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,1024,0")]
    periods: Vec<u64>,
    /// How many keys the archive has that is opened; 0 leaves that part out.
    #[arg(long, default_value_t = 1 << 24)]
    open_keys: u64,
    /// How many keys are proved at once, of as many.
    #[arg(long, value_delimiter = ',', default_value = "1000,200000")]
    batches: Vec<u64>,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON alone; else every figure is told when it is there.
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Serialize)]
struct Report {
    run: Provenance,
    machine: Conditions,
    load_average: [Option<f64>; 2],
    ingest: Vec<ingest::Figure>,
    proofs: Vec<proofs::Figure>,
    preload: Vec<proofs::Preload>,
    open: Vec<open::Figure>,
}

/// Measures and prints.
pub(crate) fn run(args: &SnapshotsArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let method = EvictMethod::detect();
    let run = Provenance::of_this_run();
    if !args.json {
        println!("{run}\n");
    }
    let report = Report {
        run,
        ingest: ingest::measure(args, folder.path())?,
        proofs: proofs::measure(args, folder.path())?,
        preload: proofs::preload(args, folder.path(), method)?,
        open: open::measure(args, folder.path())?,
        machine: Conditions::of(folder.path()),
        load_average: [load_before, load_average()],
    };
    if args.json {
        println!("{:#}", serde_json::to_value(&report)?);
    }
    Ok(())
}

impl SnapshotsArgs {
    /// Tells a figure as soon as it is there.
    fn tell(&self, figure: &impl std::fmt::Display) {
        if self.json {
            eprintln!("{figure}");
        } else {
            println!("{figure}");
        }
    }
}

/// The archive of a period, emitting steps of this many blocks at once; nothing else works beside the measurement.
fn create(dir: &Path, period: u64, blocks_per_step: u64) -> Result<Archive, icecore::Error> {
    let options = Options::new().domain(DOMAIN).blocks_per_step(blocks_per_step).reorg_window(0);
    let options = options.snapshot_period(NonZeroU64::new(period));
    Archive::create_on(std::sync::Arc::new(OsStorage), dir, options, writing())
}

fn writing() -> OpenOptions {
    OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly)
}

/// An archive of keys `0..keys`, written in the blocks `1..=blocks`, in one segment.
fn filled(dir: &Path, keys: u64, blocks: u64, period: u64) -> Result<(), icecore::Error> {
    let archive = create(dir, period, 1)?;
    for height in 1..=blocks {
        let mut block = archive.begin(height)?;
        for number in (height - 1..keys).step_by(blocks as usize) {
            block.put(DOMAIN, &key(number), &value(number))?;
        }
        block.commit()?;
    }
    archive.merge(&MergeOptions::default(), &())?;
    archive.close()
}

/// Key number `number`: 32 bytes at random.
fn key(number: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (i, word) in key.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(number * 4 + i as u64).to_le_bytes());
    }
    key
}

/// A value of 32 bytes.
fn value(number: u64) -> [u8; 32] {
    key(number ^ (1 << 62))
}
