//! The figures of a tree of Ethereum that is larger than its memory: what it holds, how fast it opens, and what an update takes beside
//! what the disk can do of random reads.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use icecore::ethereum::{ACCOUNT, Address};
use icecore::storage::os::OsStorage;
use icecore::{Archive, Commitment, Durability, Maintenance, MergeOptions, OpenOptions, Options};
use icecore_hot::HashBackend;
use icecore_hot::ethereum::keccak256_batch;
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::baseline::deep_reads;
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::peak::{Peak, watch};
use icecore_tools::workload::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::child::{Work, spawn};
use crate::proofs::{address, record};
use crate::report::Figures;

/// The accounts come in the order of their paths, a first byte of the path a block, and each block is a step.
const FIRST: u64 = 256;
/// The updates of a block that is measured.
const BATCH: u64 = 1 << 17;
const BATCHES: u64 = 8;
/// Random reads of the disk, and how many of them at a time.
const READS: (usize, usize) = (1 << 16, 32);

/// How to measure the figures of a tree within its memory.
#[derive(Args)]
pub(crate) struct TreeArgs {
    /// The number of accounts, as a power of two.
    #[arg(long, default_value_t = 28, value_parser = clap::value_parser!(u32).range(20..=31))]
    bits: u32,
    /// What the nodes of the tree may take, in MiB.
    #[arg(long, default_value_t = 2048)]
    memory: u64,
    /// A trial run: a state and a memory 4,096 times smaller, and small blocks, under the names of the full run. No figure of it counts.
    #[arg(long)]
    small: bool,
    /// Where the archive is built, and removed again: some 60 bytes an account. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the archive here, or take the one that is here from a run before with as many accounts.
    #[arg(long, conflicts_with = "dir")]
    archive: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct TreeConditions {
    /// Whether the state or its memory was another one than the names say: then no figure counts.
    trial: bool,
    accounts: u64,
    tree_memory_bytes: u64,
    archive_bytes: u64,
    machine: Conditions,
    workload: &'static str,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const WORKLOAD: &str = "8 blocks of 2^17 updates: new nonces and balances of random accounts, rows kept; random reads: pages of the largest file, 32 \
     threads";

const CLOCK: &str = "wall clock, in a process of its own; all files evicted before it opens, and again before the blocks; it is killed after them, and another one opens; memory: of that process, mapped \
     files left out";

/// Measures and prints.
pub(crate) fn run(args: &TreeArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let dir = args.archive.clone().unwrap_or_else(|| folder.path().join("tree.ice"));
    let less = if args.small { 12 } else { 0 };
    let (accounts, memory, batch) = (1 << (args.bits - less), (args.memory << 20) >> less, BATCH >> less);
    if !dir.exists() {
        build(&dir, accounts, memory)?;
    }
    let largest = files(&dir)?.into_iter().max_by_key(|(_, len)| *len).ok_or("an archive has files")?.0;
    let reads = if args.small { 64 } else { READS.0 };
    let raw = deep_reads(&largest, EvictMethod::Fadvise, READS.1, reads, 7)?;
    let measured: TreeCost = spawn(&Work::Tree { dir: dir.clone(), accounts, memory, batch })?;
    let after_kill: f64 = spawn(&Work::TreeOpen { dir: dir.clone(), memory })?;
    let mut figures = Figures::new();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    figures.add("tree in 2 GiB: memory of the process", mib(measured.peak.anonymous));
    figures.add("tree in 2 GiB: opening", measured.open_seconds);
    figures.add("tree in 2 GiB: opening after a kill", after_kill);
    figures.add("tree in 2 GiB: updates", measured.updates_per_second / 1e3);
    figures.add("random reads of the disk", raw.per_second / 1e3);
    figures.add("updates / random reads of the disk", measured.updates_per_second / raw.per_second);
    let conditions = TreeConditions {
        trial: args.small || args.bits != 28 || args.memory != 2048,
        accounts,
        tree_memory_bytes: memory,
        archive_bytes: files(&dir)?.iter().map(|(_, len)| len).sum(),
        machine: Conditions::of(&dir),
        workload: WORKLOAD,
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// What the process that was measured says.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct TreeCost {
    open_seconds: f64,
    updates_per_second: f64,
    peak: Peak,
}

/// Opens the archive and commits blocks of random updates.
pub(crate) fn update(dir: &Path, accounts: u64, memory: u64, batch: u64) -> Result<TreeCost, Box<dyn Error>> {
    evict(dir)?;
    let work = || -> Result<(f64, f64), Box<dyn Error>> {
        let begun = Instant::now();
        let (archive, next) = opened(dir, memory)?;
        let open_seconds = begun.elapsed().as_secs_f64();
        evict(dir)?;
        let mut random = SplitMix64::new(5);
        let begun = Instant::now();
        for height in 1..=BATCHES {
            let mut block = archive.begin(next + height)?;
            for _ in 0..batch {
                let number = random.below(accounts);
                block.put(ACCOUNT, &address(number), &record(number, random.next_u64()))?;
            }
            block.commit()?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        // As if it were killed: the next one finds what was kept of the tree before these blocks.
        std::mem::forget(archive);
        Ok((open_seconds, (BATCHES * batch) as f64 / seconds))
    };
    let (measured, peak) = watch(work);
    let (open_seconds, updates_per_second) = measured?;
    Ok(TreeCost { open_seconds, updates_per_second, peak })
}

/// Opens the archive, which a process left that did not close it, and closes it. Gives how long the opening took.
pub(crate) fn open_after_kill(dir: &Path, memory: u64) -> Result<f64, Box<dyn Error>> {
    evict(dir)?;
    let begun = Instant::now();
    let (archive, _) = opened(dir, memory)?;
    let seconds = begun.elapsed().as_secs_f64();
    archive.close()?;
    Ok(seconds)
}

/// The archive with its tree, which the first block builds, and the height of the block after that one.
fn opened(dir: &Path, memory: u64) -> Result<(Archive, u64), Box<dyn Error>> {
    let archive = Archive::open(dir, open_options(memory))?;
    let next = archive.reader().head().map_or(0, |head| head + 1);
    archive.begin(next)?.commit()?;
    Ok((archive, next))
}

/// Writes the archive and merges it.
fn build(dir: &Path, accounts: u64, memory: u64) -> Result<(), Box<dyn Error>> {
    let options = Options::new().commitment(Commitment::Ethereum).blocks_per_step(1).reorg_window(0);
    let archive = Archive::create_on(Arc::new(OsStorage), dir, options, open_options(memory))?;
    let mut by_path: Vec<Vec<u32>> = vec![Vec::new(); FIRST as usize];
    let numbers: Vec<u32> = (0..u32::try_from(accounts)?).collect();
    for chunk in numbers.chunks(1 << 12) {
        let addresses: Vec<Address> = chunk.iter().map(|number| address(u64::from(*number))).collect();
        for (number, path) in chunk.iter().zip(keccak256_batch(&addresses, HashBackend::Auto)) {
            by_path[usize::from(path[0])].push(*number);
        }
    }
    for (height, numbers) in (0..).zip(by_path) {
        let mut block = archive.begin(height)?;
        for number in numbers.into_iter().map(u64::from) {
            block.put(ACCOUNT, &address(number), &record(number, 0))?;
        }
        block.commit()?;
    }
    archive.merge(&MergeOptions::default(), &())?;
    archive.close()?;
    Ok(())
}

fn open_options(memory: u64) -> OpenOptions {
    let options = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    options.tree_memory(memory)
}

/// The files of the archive, and how long they are.
fn files(dir: &Path) -> Result<Vec<(PathBuf, u64)>, Box<dyn Error>> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let file = file?;
        if file.file_type()?.is_file() {
            files.push((file.path(), file.metadata()?.len()));
        }
    }
    Ok(files)
}

fn evict(dir: &Path) -> Result<(), Box<dyn Error>> {
    for (file, _) in files(dir)? {
        EvictMethod::Fadvise.evict_mapped(&file)?;
    }
    Ok(())
}
