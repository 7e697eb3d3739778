//! `hot`: the same keys and the same batches for the Merkle tree of Icecore and for four others, a root after each batch.
//!
//! The keys have 52 bytes and the values 32. A batch is 85 % new values of random keys, 10 % new keys, 5 % deletions, each key at
//! most once. Hashing keys and values and bringing the batch into the order that a tree wants is part of the work; making the batch is not.
//!
//! The trees promise different things, which no table can make equal; each states in its settings what is durable when a batch is
//! done, and what it cannot do.

mod akd;
mod commonware;
mod icecore;
mod jmt;
mod nomt;
mod run;
mod workload;

use std::path::{Path, PathBuf};

use clap::Args;
use icecore_tools::machine::{Conditions, load_average};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::child::{Work, spawn};
use crate::report::{digits, print_conditions, print_json, print_settings, print_table};
use run::{Run, Updated};

/// How to compare trees.
#[derive(Args)]
pub(crate) struct HotArgs {
    /// The binary logarithm of the number of keys.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=26))]
    keys_log2: u32,
    /// The binary logarithm of the number of changes in a batch.
    #[arg(long, default_value_t = 17, value_parser = clap::value_parser!(u32).range(4..=22))]
    batch_log2: u32,
    /// How many batches are timed.
    #[arg(long, default_value_t = 8)]
    batches: usize,
    /// The seconds after which a peer begins no further batch. The first is always done.
    #[arg(long, default_value_t = 60)]
    budget: u64,
    /// Where trees on disk are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Only these peers.
    #[arg(long = "peer", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    peers: Vec<String>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// A tree with fixed options.
trait Peer {
    /// Its name on the command line and in the report.
    fn name(&self) -> &'static str;

    /// Versions and options, what is durable after a batch, what the tree cannot do.
    fn settings(&self) -> &'static str;

    /// Whether it can use more than one thread.
    fn is_parallel(&self) -> bool;

    /// Takes all batches of a run.
    fn run(&self, threads: usize, dir: &Path, run: &mut Run) -> Outcome;
}

fn peers() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(icecore::IcecoreHot),
        Box::new(nomt::Nomt),
        Box::new(jmt::Jmt),
        Box::new(akd::Akd),
        Box::new(commonware::Commonware { proofs: commonware::Proofs::AnyValue }),
        Box::new(commonware::Commonware { proofs: commonware::Proofs::CurrentValue }),
    ]
}

fn names() -> Vec<&'static str> {
    peers().iter().map(|peer| peer.name()).collect()
}

/// What a child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    peer: String,
    dir: PathBuf,
    threads: usize,
    keys_log2: u32,
    batch_log2: u32,
    batches: usize,
    budget: u64,
}

/// Updates the tree of a task.
pub(crate) fn update(task: &Task) -> Outcome<Updated> {
    let found = peers().into_iter().find(|peer| peer.name() == task.peer);
    let peer = found.ok_or_else(|| format!("no peer is called {}", task.peer))?;
    let mut run = Run::new(1 << task.keys_log2, 1 << task.batch_log2, task.batches, task.budget);
    peer.run(task.threads, &task.dir, &mut run)?;
    run.finish()
}

/// What was measured of one peer.
#[derive(Serialize)]
struct PeerReport {
    name: &'static str,
    settings: &'static str,
    rows: Vec<Row>,
}

/// One run.
#[derive(Serialize)]
struct Row {
    threads: usize,
    #[serde(flatten)]
    updated: Updated,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct HotConditions {
    keys: u64,
    batch: u64,
    batches: usize,
    budget_s: u64,
    machine: Conditions,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

/// Measures and prints.
pub(crate) fn run(args: &HotArgs) -> Outcome {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut reports = Vec::new();
    let wanted = |name: &str| args.peers.is_empty() || args.peers.iter().any(|wanted| wanted == name);
    for peer in peers().iter().filter(|peer| wanted(peer.name())) {
        let threads = if peer.is_parallel() && cores > 1 { vec![1, cores] } else { vec![1] };
        let rows = threads.into_iter().map(|threads| {
            eprintln!("{} with {threads} threads", peer.name());
            let folder = tempfile::Builder::new().prefix("icecore-peers").tempdir_in(&parent)?;
            let task = Task {
                peer: peer.name().to_owned(),
                dir: folder.path().to_owned(),
                threads,
                keys_log2: args.keys_log2,
                batch_log2: args.batch_log2,
                batches: args.batches,
                budget: args.budget,
            };
            Ok(Row { threads, updated: spawn(&Work::Update(task))? })
        });
        let rows = rows.collect::<Outcome<_>>()?;
        reports.push(PeerReport { name: peer.name(), settings: peer.settings(), rows });
    }
    let conditions = HotConditions {
        keys: 1 << args.keys_log2,
        batch: 1 << args.batch_log2,
        batches: args.batches,
        budget_s: args.budget,
        machine: Conditions::of(&parent),
        load_average: [load_before, load_average()],
    };
    if args.json {
        return Ok(print_json(&conditions, &reports)?);
    }
    print(&conditions, &reports);
    Ok(())
}

fn print(conditions: &HotConditions, reports: &[PeerReport]) {
    let data = format!(
        "{} keys, {} batches of {} changes, at most {} s per peer",
        conditions.keys, conditions.batches, conditions.batch, conditions.budget_s
    );
    print_conditions(&conditions.machine, conditions.load_average, &[("data", data)]);
    print_settings(reports.iter().map(|report| (report.name, report.settings)));
    let header =
        ["peer", "threads", "batches", "thousand updates/s", "CPU s / million", "load s", "MB", "B/key"];
    let rows = reports.iter().flat_map(|report| {
        report.rows.iter().map(|Row { threads, updated }| {
            let numbers = [
                updated.updates_per_s / 1e3,
                updated.cpu_s / updated.updates as f64 * 1e6,
                updated.load_s,
                updated.memory_bytes as f64 / 1e6,
                updated.memory_bytes as f64 / updated.keys as f64,
            ];
            let names = [report.name.to_owned(), threads.to_string(), updated.batches.to_string()];
            names.into_iter().chain(numbers.map(digits)).collect()
        })
    });
    print_table(
        "Updates, a root after each batch; MB is memory that no file backs",
        1,
        &header,
        rows.collect(),
    );
}
