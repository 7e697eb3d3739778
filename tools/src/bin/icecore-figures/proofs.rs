//! The figures of proofs at past blocks of an archive for Ethereum: what rows take of disk and of the writer's time, and what a proof
//! takes from them.
//!
//! The same blocks go to an archive with rows and to one without, in turn, so that both see the machine as it was. Proofs are of random
//! accounts at random blocks of the merged archive.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use icecore::ethereum::{ACCOUNT, Account, Address, word};
use icecore::storage::os::OsStorage;
use icecore::{
    Archive, Commitment, Domain, Durability, Maintenance, MergeOptions, OpenOptions, Options, Reader,
    RowsRule,
};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::{Times, process_cpu_time};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::faults::thread_faults;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::measure::peak::{Peak, watch};
use icecore_tools::workload::{SplitMix64, mix};
use serde::Serialize;

use crate::child::{Work, spawn};
use crate::report::Figures;

/// The updates of a block of mainnet, on average.
const BLOCK: u64 = 465;
/// The blocks that bring the first state, each a step of its own.
const FIRST: u64 = 16;
const STEP: u64 = 1024;
/// How many proofs are timed, warm and cold.
const PROOFS: (u64, u64) = (1000, 100);

/// How to measure the figures of proofs.
#[derive(Args)]
pub(crate) struct ProofsArgs {
    /// The number of accounts, as a power of two.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(16..=32))]
    bits: u32,
    /// The number of blocks, of 465 updates each.
    #[arg(long, default_value_t = 8 * STEP, value_parser = clap::value_parser!(u64).range(2..))]
    blocks: u64,
    /// Of Icecore's own tree with its domain by path, not of Ethereum's. Only what a proof and an ingest take.
    #[arg(long)]
    by_path: bool,
    /// A trial run: a state 1,024 times smaller, few blocks and proofs, under the names of the full run. No figure of it counts.
    #[arg(long)]
    small: bool,
    /// Where the archives are built, and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct ProofsConditions {
    /// Whether the state was smaller than the names say: then no figure counts.
    trial: bool,
    by_path: bool,
    accounts: u64,
    blocks: u64,
    machine: Conditions,
    workload: &'static str,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const WORKLOAD: &str = "blocks of 465 updates: new nonces and balances of random accounts; proofs: random accounts at random blocks of the \
     merged archive, one at a time";

const CLOCK: &str = "ingest: processor time of all threads, emission included; proofs: wall clock; cold: all files evicted before each, \
     opening the archive left out; retrofit: wall clock, the load of the state before its first block included";

/// Measures and prints.
pub(crate) fn run(args: &ProofsArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let (bits, blocks, proofs) =
        if args.small { (args.bits - 10, 64, (10, 3)) } else { (args.bits, args.blocks, PROOFS) };
    let mut figures = Figures::new();
    let chain = Chain { accounts: 1 << bits, blocks, proofs, by_path: args.by_path };
    let with = folder.path().join("with.ice");
    let without = folder.path().join("without.ice");
    chain.build(&with, &without, &mut figures)?;
    chain.prove(&with, &mut figures)?;
    if !args.by_path {
        chain.build_rows(&without, &mut figures)?;
    }
    let conditions = ProofsConditions {
        trial: args.small || args.bits != 24,
        by_path: args.by_path,
        accounts: chain.accounts,
        blocks,
        machine: Conditions::of(folder.path()),
        workload: WORKLOAD,
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// The blocks of the archives: they come after those that bring the first state.
struct Chain {
    accounts: u64,
    blocks: u64,
    /// See [`PROOFS`].
    proofs: (u64, u64),
    /// Whether the tree is Icecore's.
    by_path: bool,
}

impl Chain {
    /// The height of a block.
    fn height(block: u64) -> u64 {
        FIRST * STEP + block
    }

    /// Writes both archives, merges that with rows, and measures its files.
    fn build(&self, with: &Path, without: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let runs = [create(with, self.by_path, true)?, create(without, self.by_path, false)?];
        for first in 0..FIRST {
            for archive in &runs {
                let mut block = archive.begin(first * STEP)?;
                for number in (first..self.accounts).step_by(FIRST as usize) {
                    block.put(ACCOUNT, &address(number), &record(number, 0))?;
                }
                block.commit()?;
            }
        }
        let (mut random, mut spent) = (SplitMix64::new(1), [Duration::ZERO; 2]);
        let mut before = None;
        for height in Self::height(0)..Self::height(self.blocks) {
            let changes: Vec<(u64, u64)> =
                (0..BLOCK).map(|_| (random.below(self.accounts), random.next_u64())).collect();
            for (archive, spent) in runs.iter().zip(&mut spent) {
                let begun = process_cpu_time();
                let mut block = archive.begin(height)?;
                for (number, new) in &changes {
                    block.put(ACCOUNT, &address(*number), &record(*number, *new))?;
                }
                block.commit()?;
                // The first block emits what came before it.
                if before.is_some() {
                    *spent += process_cpu_time().saturating_sub(begun);
                }
            }
            if before.is_none() {
                runs[0].merge(&MergeOptions::default(), &())?;
                before = Some((bytes(&runs[0], "_nodes"), bytes(&runs[0], ACCOUNT)));
            }
        }
        let [archive, plain] = runs;
        if archive.reader().latest()?.root()? != plain.reader().latest()?.root()? {
            return Err("the roots differ".into());
        }
        drop(plain);
        // The last step is emitted with the first block of the next.
        archive.begin(Self::height(self.blocks.next_multiple_of(STEP)))?.commit()?;
        archive.emit()?;
        archive.merge(&MergeOptions::default(), &())?;
        let (nodes, values) = before.unwrap_or_default();
        let updates = (self.blocks * BLOCK) as f64;
        let nodes = bytes(&archive, "_nodes").saturating_sub(nodes) as f64;
        let values = bytes(&archive, ACCOUNT).saturating_sub(values) as f64;
        archive.close()?;
        figures.add("rows: bytes an update", nodes / updates);
        figures.add("values: bytes an update", values / updates);
        figures.add("rows / values", nodes / values);
        let rate = |spent: Duration| (self.blocks - 1) as f64 * BLOCK as f64 / spent.as_secs_f64();
        figures.add("ingest with rows", rate(spent[0]) / 1e3);
        figures.add("ingest with rows / without", rate(spent[0]) / rate(spent[1]));
        Ok(())
    }

    /// Proves, warm and cold.
    fn prove(&self, dir: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let (warm_proofs, cold_proofs) = self.proofs;
        let reader = Reader::open(dir)?;
        let mut random = SplitMix64::new(2);
        let (mut warm, mut cpu) = (Histogram::default(), Histogram::default());
        let lookups = reader.stats().reads.lookups;
        // What is read first is not warm yet.
        for proof in 0..2 * warm_proofs {
            let (times, _) = self.prove_one(&reader, &mut random)?;
            if proof >= warm_proofs {
                warm.record_time(times.wall);
                cpu.record_time(times.cpu);
            }
        }
        let lookups = (reader.stats().reads.lookups - lookups) as f64 / (2 * warm_proofs) as f64;
        drop(reader);
        let p50 = quantile(&warm, 0.5);
        figures.add("proof at a past block, warm: p50", p50);
        figures.add("proof at a past block, warm: p99 / p50", quantile(&warm, 0.99) / p50);
        figures.add("proof at a past block, warm: processor time, p50", quantile(&cpu, 0.5));
        figures.add("proof at a past block: lookups", lookups);
        // In a process of its own: this one has memory left of building the archive, which hides what a proof takes.
        let (accounts, blocks, proofs) = (self.accounts, self.blocks, warm_proofs);
        let by_path = self.by_path;
        let peak: Peak = spawn(&Work::Proofs { dir: dir.to_owned(), accounts, blocks, proofs, by_path })?;
        figures.add(
            "proof at a past block: memory beyond the open archive",
            peak.anonymous.saturating_sub(peak.anonymous_before) as f64 / f64::from(1 << 20),
        );
        let (mut cold, mut faults) = (Histogram::default(), 0);
        let method = EvictMethod::Fadvise;
        for _ in 0..cold_proofs {
            for file in std::fs::read_dir(dir)? {
                let file = file?;
                if file.file_type()?.is_file() {
                    method.evict(&file.path())?;
                }
            }
            let (times, major) = self.prove_one(&Reader::open(dir)?, &mut random)?;
            cold.record_time(times.wall);
            faults += major;
        }
        let p50 = quantile(&cold, 0.5);
        figures.add("proof at a past block, cold: p50", p50);
        figures.add("proof at a past block, cold: p99 / p50", quantile(&cold, 0.99) / p50);
        figures.add("proof at a past block, cold: major faults", faults as f64 / cold_proofs as f64);
        Ok(())
    }

    /// Gives the archive without rows those of its blocks of 465 updates, and proves from them.
    fn build_rows(&self, dir: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
        let archive = Archive::open(dir, OpenOptions::new().maintenance(Maintenance::EmitOnly))?;
        archive.begin(Self::height(self.blocks.next_multiple_of(STEP)))?.commit()?;
        archive.emit()?;
        // Its first blocks are none of a chain.
        archive.prune(Self::height(0), &())?;
        let (times, report) = Times::of(|| archive.build_rows(RowsRule::Missing, &()));
        let updates = report?.updates as f64;
        self.prove_one(archive.reader(), &mut SplitMix64::new(4))?;
        archive.close()?;
        figures.add("retrofit", updates / times.wall.as_secs_f64() / 1e3);
        figures.add("retrofit: processor time an update", times.cpu.as_secs_f64() * 1e6 / updates);
        Ok(())
    }

    /// Proves a random account at a random block and checks it: the times of the proof, and its major faults.
    fn prove_one(&self, reader: &Reader, random: &mut SplitMix64) -> Result<(Times, u64), Box<dyn Error>> {
        let (height, address) =
            (Self::height(random.below(self.blocks)), address(random.below(self.accounts)));
        let view = reader.at(height)?;
        let root = view.root()?;
        let faults = thread_faults();
        if self.by_path {
            let value = view.get(ACCOUNT, &address)?;
            let (times, proof) = Times::of(|| view.prove(ACCOUNT, &address));
            let (proof, faults) = (proof?, thread_faults() - faults);
            proof.verify(&root, ACCOUNT, &address, value.as_deref())?;
            return Ok((times, faults.major));
        }
        let (times, proof) = Times::of(|| view.prove_account(&address, &[]));
        let (proof, faults) = (proof?, thread_faults() - faults);
        proof.verify(&root, &address)?;
        Ok((times, faults.major))
    }
}

/// What random proofs take of memory beyond the open archive.
pub(crate) fn peak(
    dir: &Path,
    by_path: bool,
    accounts: u64,
    blocks: u64,
    proofs: u64,
) -> Result<Peak, Box<dyn Error>> {
    let chain = Chain { accounts, blocks, proofs: (proofs, 0), by_path };
    let (reader, mut random) = (Reader::open(dir)?, SplitMix64::new(3));
    let (proved, peak) =
        watch(|| (0..proofs).try_for_each(|_| chain.prove_one(&reader, &mut random).map(drop)));
    proved?;
    Ok(peak)
}

/// In milliseconds.
fn quantile(times: &Histogram, fraction: f64) -> f64 {
    times.quantile(fraction) as f64 / 1e6
}

fn create(dir: &Path, by_path: bool, keeps_rows: bool) -> Result<Archive, icecore::Error> {
    let options = if by_path {
        Options::new().declare(Domain::new(ACCOUNT).key_len(20).by_path())
    } else {
        Options::new().commitment(Commitment::Ethereum)
    };
    let options = options.keep_rows(keeps_rows).blocks_per_step(STEP).reorg_window(0);
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
    Archive::create_on(Arc::new(OsStorage), dir, options, open)
}

/// The bytes of all files of a domain.
fn bytes(archive: &Archive, domain: &str) -> u64 {
    let segments = archive.reader().segments().into_iter().filter(|segment| segment.domain == domain);
    segments.map(|segment| segment.kv_bytes + segment.bt_bytes + segment.kvei_bytes).sum()
}

/// The address of an account.
pub(crate) fn address(number: u64) -> Address {
    let mut address = [0; 20];
    address[..8].copy_from_slice(&mix(number).to_be_bytes());
    address
}

/// An account with a nonce and a balance of some Ether.
pub(crate) fn record(number: u64, new: u64) -> Vec<u8> {
    let balance = word(mix(number ^ new));
    Account { nonce: 1 + mix(new) % 1000, balance, ..Account::default() }.encode()
}
