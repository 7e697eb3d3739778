//! Work in a process of its own, so that its peak of memory is its own.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use icecore::{Archive, DensityRule, MergeOptions, OpenOptions, ProgressListener, ReindexRule};
use icecore_index::Density;
use icecore_tools::measure::cpu::{children_cpu_time, process_cpu_time};
use icecore_tools::measure::peak::{Peak, watch};
use icecore_tools::measure::peak::{children_peak_resident_bytes, peak_bytes_since_reset};
use icecore_tools::measure::system::{bytes_read, mappings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::follow::{self, Sync};
use crate::ingest::{self, Order};
use crate::instructions;
use crate::many::{self, Task};
use crate::proofs;
use crate::tree;

#[derive(Args)]
pub(crate) struct ChildArgs {
    #[command(subcommand)]
    work: Work,
}

/// What a child does.
#[derive(Subcommand)]
pub(crate) enum Work {
    /// Merges a domain of an archive.
    Merge { dir: PathBuf, domain: String },
    /// Gives all segments of a domain of an archive the same M.
    Reindex { dir: PathBuf, domain: String, m: u32 },
    /// Does something with an archive of many files.
    Task { task: Task, dir: PathBuf },
    /// Runs a command and waits for it; what it prints goes nowhere.
    Command {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Looks up the keys of the counted parts.
    Lookups { dir: PathBuf },
    /// Proves random accounts at past blocks.
    Proofs {
        dir: PathBuf,
        accounts: u64,
        blocks: u64,
        proofs: u64,
        #[arg(long)]
        by_path: bool,
    },
    /// Updates random accounts of a tree that has so many bytes of memory.
    Tree { dir: PathBuf, accounts: u64, memory: u64, batch: u64 },
    /// Opens an archive whose writer was killed, with so many bytes of memory for the tree.
    TreeOpen { dir: PathBuf, memory: u64 },
    /// Commits blocks that were made before.
    Ingest { dir: PathBuf, order: Order, blocks: u64, changes: u64 },
    /// Commits blocks as it is told on standard input.
    Writer { dir: PathBuf, sync: Sync },
}

/// What a child says when it is done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How long the work itself took, the opening of the archive left out.
    pub(crate) seconds: f64,
    /// The entries that went through it.
    pub(crate) entries: u64,
    pub(crate) peak: Peak,
}

/// What a process cost as a whole.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// The time that it had a processor, from its start to its end.
    pub(crate) cpu_seconds: f64,
    /// The most memory that it ever had resident, mapped pages of files included, in bytes.
    pub(crate) resident_peak: u64,
    /// The mappings that its work added while it was open; 0 where nobody looked.
    pub(crate) mappings: usize,
    /// What it read by calls, in bytes: not what it touched of mapped files.
    pub(crate) bytes_read: u64,
}

/// This program with the arguments that make it do `work`.
pub(crate) fn command(work: &Work) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").stdin(Stdio::null()).stderr(Stdio::inherit());
    match work {
        Work::Merge { dir, domain } => command.arg("merge").arg(dir).arg(domain),
        Work::Reindex { dir, domain, m } => command.arg("reindex").arg(dir).arg(domain).arg(m.to_string()),
        Work::Task { task, dir } => command.arg("task").arg(value_name(task)).arg(dir),
        Work::Command { command: run } => command.arg("command").arg("--").args(run),
        Work::Lookups { dir } => command.arg("lookups").arg(dir),
        Work::Proofs { dir, accounts, blocks, proofs, by_path } => {
            command.arg("proofs").arg(dir).args([accounts, blocks, proofs].map(u64::to_string));
            command.args(by_path.then_some("--by-path"))
        }
        Work::Tree { dir, accounts, memory, batch } => {
            command.arg("tree").arg(dir).args([accounts, memory, batch].map(u64::to_string))
        }
        Work::TreeOpen { dir, memory } => command.arg("tree-open").arg(dir).arg(memory.to_string()),
        Work::Ingest { dir, order, blocks, changes } => {
            let numbers = [blocks.to_string(), changes.to_string()];
            command.arg("ingest").arg(dir).arg(value_name(order)).args(numbers)
        }
        Work::Writer { dir, sync } => command.arg("writer").arg(dir).arg(value_name(sync)),
    };
    Ok(command)
}

/// How a value stands on the command line.
fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is skipped").get_name().to_owned()
}

/// Starts this program again and waits for what it says.
pub(crate) fn spawn<T: DeserializeOwned>(work: &Work) -> Result<T, Box<dyn Error>> {
    let mut command = command(work)?;
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the child does with its arguments.
pub(crate) fn run(args: &ChildArgs) -> Result<(), Box<dyn Error>> {
    let said = match &args.work {
        Work::Task { task, dir } => serde_json::to_string(&task_cost(*task, dir)?)?,
        Work::Command { command } => serde_json::to_string(&command_cost(command)?)?,
        Work::Writer { dir, sync } => return follow::write(dir, *sync),
        Work::Lookups { dir } => return instructions::look_up(dir),
        Work::Proofs { dir, accounts, blocks, proofs, by_path } => {
            serde_json::to_string(&proofs::peak(dir, *by_path, *accounts, *blocks, *proofs)?)?
        }
        Work::Tree { dir, accounts, memory, batch } => {
            serde_json::to_string(&tree::update(dir, *accounts, *memory, *batch)?)?
        }
        Work::TreeOpen { dir, memory } => serde_json::to_string(&tree::open_after_kill(dir, *memory)?)?,
        Work::Ingest { dir, order, blocks, changes } => {
            serde_json::to_string(&ingest::commit_all(dir, *order, *blocks, *changes)?)?
        }
        Work::Merge { .. } | Work::Reindex { .. } => serde_json::to_string(&rewrite(&args.work)?)?,
    };
    println!("{said}");
    Ok(())
}

/// The whole cost of this process, which does nothing but the task.
fn task_cost(task: Task, dir: &Path) -> Result<Cost, Box<dyn Error>> {
    let before = mappings().unwrap_or(0);
    let mut during = before;
    many::perform(task, dir, || during = mappings().unwrap_or(0))?;
    Ok(Cost {
        cpu_seconds: process_cpu_time().as_secs_f64(),
        resident_peak: peak_bytes_since_reset(),
        mappings: during.saturating_sub(before),
        bytes_read: bytes_read().unwrap_or(0),
    })
}

/// The whole cost of the one process that this one starts. Its peak of memory is at least that of this one, which has little.
fn command_cost(command: &[OsString]) -> Result<Cost, Box<dyn Error>> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let before = bytes_read().unwrap_or(0);
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{}: {status}", program.display()).into());
    }
    Ok(Cost {
        cpu_seconds: children_cpu_time().as_secs_f64(),
        resident_peak: children_peak_resident_bytes(),
        mappings: 0,
        bytes_read: bytes_read().unwrap_or(0) - before,
    })
}

/// Merges or reindexes.
fn rewrite(work: &Work) -> Result<Outcome, Box<dyn Error>> {
    let tasks = Tasks::default();
    let (result, peak) = match work {
        Work::Merge { dir, domain } => {
            let archive = open(dir)?;
            let options = MergeOptions::new().domain(Some(domain));
            let (merged, peak) = watch(|| archive.merge(&options, &tasks));
            (merged.map(drop), peak)
        }
        Work::Reindex { dir, domain, m } => {
            let archive = open(dir)?;
            let m = Density::new(*m).ok_or("M is between 1 and 65536")?;
            let rule = ReindexRule::Rule(DensityRule::Fixed(m));
            let (plans, peak) = watch(|| archive.reindex(rule, Some(domain), &tasks));
            (plans.map(drop), peak)
        }
        Work::Task { .. }
        | Work::Command { .. }
        | Work::Lookups { .. }
        | Work::Proofs { .. }
        | Work::Tree { .. }
        | Work::TreeOpen { .. }
        | Work::Ingest { .. }
        | Work::Writer { .. } => {
            return Err("this rewrites nothing".into());
        }
    };
    result?;
    let (time, entries) = tasks.total();
    Ok(Outcome { seconds: time.as_secs_f64(), entries, peak })
}

fn open(dir: &Path) -> Result<Archive, icecore::Error> {
    Archive::open(dir, OpenOptions::new().maintenance(icecore::Maintenance::EmitOnly))
}

/// Times the tasks that an archive reports.
#[derive(Default)]
struct Tasks(Mutex<Times>);

#[derive(Default)]
struct Times {
    begun: Option<Instant>,
    total: Duration,
    entries: u64,
}

impl Tasks {
    fn total(&self) -> (Duration, u64) {
        let times = self.0.lock().expect("no reporter panics");
        (times.total, times.entries)
    }
}

impl ProgressListener for Tasks {
    fn begin(&self, _: &str, _: Option<u64>) {
        self.0.lock().expect("no reporter panics").begun = Some(Instant::now());
    }

    fn advance(&self, units: u64) {
        self.0.lock().expect("no reporter panics").entries += units;
    }

    fn end(&self) {
        let mut times = self.0.lock().expect("no reporter panics");
        let begun = times.begun.take();
        times.total += begun.map_or(Duration::ZERO, |begun| begun.elapsed());
    }
}
