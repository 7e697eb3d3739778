//! Work in a process of its own, so that its peak of memory is its own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use icecore::{Archive, DensityRule, MergeOptions, Observer, OpenOptions, ReindexRule};
use icecore_index::Density;
use icecore_tools::watch::{Peak, watch};
use serde::{Deserialize, Serialize};

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

/// Starts this program again and waits for what it says.
pub(crate) fn spawn(work: &Work) -> Result<Outcome, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").stdin(Stdio::null()).stderr(Stdio::inherit());
    match work {
        Work::Merge { dir, domain } => command.arg("merge").arg(dir).arg(domain),
        Work::Reindex { dir, domain, m } => command.arg("reindex").arg(dir).arg(domain).arg(m.to_string()),
    };
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// What the child does with its arguments.
pub(crate) fn run(args: &ChildArgs) -> Result<(), Box<dyn Error>> {
    let tasks = Tasks::default();
    let (result, peak) = match &args.work {
        Work::Merge { dir, domain } => {
            let archive = open(dir)?;
            let options = MergeOptions { domain: Some(domain.clone()), ..MergeOptions::default() };
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
    };
    result?;
    let (time, entries) = tasks.total();
    let outcome = Outcome { seconds: time.as_secs_f64(), entries, peak };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
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

impl Observer for Tasks {
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
