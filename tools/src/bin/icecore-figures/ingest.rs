//! What a change costs on its way through the crate: the processor time of all threads from the first block that is begun to the
//! last that is in a segment, and the memory of changes that are in none yet.
//!
//! The blocks are made before the clock starts. Every run is a process of its own, so that its time and its memory are its own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, OpenOptions, Options};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::process_cpu_time;
use icecore_tools::measure::peak::anonymous_resident_bytes;
use icecore_tools::workload::SplitMix64;
use icecore_tools::workload::blocks::{Block, BlockOptions, Change};
use serde::{Deserialize, Serialize};

use crate::child::{Work, spawn};
use crate::report::Figures;

/// How often each run is made. The lowest counts, since what slows one down is another program.
const PASSES: usize = 3;

/// How to measure the figures of an ingest.
#[derive(Args)]
pub(crate) struct IngestArgs {
    /// How many blocks.
    #[arg(long, default_value_t = 2_500, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: u64,
    /// The changes drawn for each. A key that is drawn twice changes once.
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u64).range(1..))]
    changes: u64,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What a child commits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Order {
    /// The changes of a block ascend by domain and key.
    Ordered,
    /// They come as they may.
    Shuffled,
    /// They ascend, and no step is complete, so that all of them stay in memory.
    Held,
}

/// What it cost, for each change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PerChange {
    /// Of all threads, emission included, in microseconds.
    processor: f64,
    /// Resident memory that no file backs, in bytes: the tree and what is in no segment.
    memory: f64,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct IngestConditions {
    blocks: u64,
    changes_drawn_for_a_block: u64,
    blocks_per_step: u64,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str =
    "processor time, user and system; the lowest of 3 runs. The log is handed to the system and not synced";

const BLOCKS_PER_STEP: u64 = 1024;

/// Measures and prints.
pub(crate) fn run(args: &IngestArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let mut figures = Figures::new();
    for (order, name) in [(Order::Ordered, "in order"), (Order::Shuffled, "shuffled")] {
        let cost = lowest(args, folder.path(), order)?;
        figures.add(&format!("ingest, changes {name}: processor a change"), cost.processor);
    }
    let held = lowest(args, folder.path(), Order::Held)?;
    figures.add("ingest, nothing emitted: processor a change", held.processor);
    figures.add("ingest, nothing emitted: memory a change", held.memory);
    let conditions = IngestConditions {
        blocks: args.blocks,
        changes_drawn_for_a_block: args.changes,
        blocks_per_step: BLOCKS_PER_STEP,
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// The costs of the run that took the least processor time.
fn lowest(args: &IngestArgs, folder: &Path, order: Order) -> Result<PerChange, Box<dyn Error>> {
    let mut costs = Vec::new();
    for pass in 0..PASSES {
        let dir = folder.join(format!("{order:?}-{pass}"));
        let (blocks, changes) = (args.blocks, args.changes);
        costs.push(spawn::<PerChange>(&Work::Ingest { dir: dir.clone(), order, blocks, changes })?);
        std::fs::remove_dir_all(dir)?;
    }
    costs.sort_by(|a, b| a.processor.total_cmp(&b.processor));
    Ok(costs[0])
}

/// Commits the blocks to a new archive: what the child does.
pub(crate) fn commit_all(
    dir: &Path,
    order: Order,
    blocks: u64,
    changes: u64,
) -> Result<PerChange, Box<dyn Error>> {
    let (options, names) = (BlockOptions::chain(blocks, changes), ["accounts", "code", "storage"]);
    let blocks_per_step = if matches!(order, Order::Held) { 1 << 40 } else { BLOCKS_PER_STEP };
    let archive_options = names
        .iter()
        .fold(Options::new(), |options, name| options.domain(name))
        .blocks_per_step(blocks_per_step);
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::new(OsStorage), dir, archive_options, open)?;
    let blocks: Vec<Block> = options.stream().map(|block| in_order(block, order)).collect();
    let resident = || anonymous_resident_bytes().unwrap_or(0);
    let (memory_before, processor_before) = (resident(), process_cpu_time());
    blocks.iter().try_for_each(|block| commit(&archive, names, block))?;
    archive.emit()?;
    let processor = process_cpu_time().saturating_sub(processor_before);
    let memory = resident().saturating_sub(memory_before);
    archive.close()?;
    let count = blocks.iter().map(|block| block.changes.len()).sum::<usize>() as f64;
    Ok(PerChange { processor: processor.as_secs_f64() * 1e6 / count, memory: memory as f64 / count })
}

/// The block with its changes in the order wanted.
fn in_order(mut block: Block, order: Order) -> Block {
    if matches!(order, Order::Shuffled) {
        let mut random = SplitMix64::new(block.height);
        for last in (1..block.changes.len()).rev() {
            block.changes.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
    block
}

fn commit(archive: &Archive, names: [&str; 3], block: &Block) -> Result<(), icecore::Error> {
    let mut writer = archive.begin(block.height)?;
    for Change { domain, key, value } in &block.changes {
        match value {
            Some(value) => writer.put(names[*domain], key, value)?,
            None => writer.delete(names[*domain], key)?,
        }
    }
    writer.commit().map(drop)
}
