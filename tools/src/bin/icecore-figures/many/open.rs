//! What an archive of many files costs a process: to open it, to list it, to ask it for a key, to verify it.

use std::error::Error;

use std::path::Path;

use clap::ValueEnum;
use icecore::{Archive, Maintenance, OpenOptions, Reader, VerifyMode, verify};

use super::counting::CountingStorage;
use super::{Bench, DOMAINS, FILES_PER_STEP, KEYS, commit, create, emit_only, key};
use crate::child::{Cost, Work, spawn};

/// How often each is measured. The lowest counts, since what slows one down is another program.
const PASSES: usize = 3;

/// What a process does with the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    OpenReader,
    OpenWriter,
    List,
    Stats,
    Get,
    GetAbsent,
    Verify,
}

/// The tasks and the names of their figures.
const TASKS: [(Task, &str); 7] = [
    (Task::OpenReader, "open for reading"),
    (Task::OpenWriter, "open for writing"),
    (Task::List, "ls"),
    (Task::Stats, "stats"),
    (Task::Get, "get of a present key"),
    (Task::GetAbsent, "get of an absent key"),
    (Task::Verify, "verify, fast"),
];

/// Builds half of the archive and measures, then the other half and measures again.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Box<dyn Error>> {
    let dir = bench.dir.join("many");
    let steps = bench.args.files / FILES_PER_STEP;
    let storage = CountingStorage::unsynced();
    let archive = create(storage.clone(), &dir, 1, emit_only())?;
    (0..steps / 2).try_for_each(|height| emit_one(&archive, height))?;
    archive.close()?;
    let work = |task| Work::Task { task, dir: dir.clone() };
    let half: Vec<Cost> = TASKS.iter().map(|(task, _)| lowest(&work(*task))).collect::<Result<_, _>>()?;
    let archive = Archive::open_on(storage, &dir, emit_only())?;
    (steps / 2..steps).try_for_each(|height| emit_one(&archive, height))?;
    let segments = archive.reader().stats().segments as f64;
    archive.close()?;
    bench.figures.add("many files: files", segments * 3.0);
    for ((task, name), half) in TASKS.iter().zip(&half) {
        let all = lowest(&work(*task))?;
        let mut add =
            |what: &str, measured| bench.figures.add(&format!("many files, {name}: {what}"), measured);
        add("processor", all.cpu_seconds);
        add("processor, to that of half the files", all.cpu_seconds / half.cpu_seconds);
        add("memory", all.resident_peak as f64 / 1e6);
        if matches!(task, Task::OpenReader | Task::OpenWriter) {
            add("mappings for each segment", all.mappings as f64 / segments);
        }
    }
    Ok(())
}

/// Commits a block and emits it, so that its step gets files of its own.
fn emit_one(archive: &Archive, height: u64) -> Result<(), icecore::Error> {
    commit(archive, height)?;
    archive.emit()
}

/// The costs of the process that took the least processor time.
fn lowest(work: &Work) -> Result<Cost, Box<dyn Error>> {
    let mut costs: Vec<Cost> = (0..PASSES).map(|_| spawn(work)).collect::<Result<_, _>>()?;
    costs.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    Ok(costs[0])
}

/// Does a task in this process. What is opened is open when `opened` is called.
pub(crate) fn perform(task: Task, dir: &Path, opened: impl FnOnce()) -> Result<(), Box<dyn Error>> {
    if task == Task::Verify {
        let report = verify(dir, VerifyMode::Fast, &())?;
        return if report.problems.is_empty() { Ok(()) } else { Err("the archive is damaged".into()) };
    }
    if task == Task::OpenWriter {
        let archive = Archive::open(dir, OpenOptions::new().maintenance(Maintenance::EmitOnly))?;
        opened();
        return Ok(archive.close()?);
    }
    let reader = Reader::open(dir)?;
    let get = |number| reader.latest()?.get(DOMAINS[0], &key(number));
    let is_right = match task {
        Task::List => !reader.segments().is_empty(),
        Task::Stats => reader.stats().entries > 0,
        Task::Get => get(0)?.is_some(),
        Task::GetAbsent => get(KEYS)?.is_none(),
        Task::OpenReader | Task::OpenWriter | Task::Verify => true,
    };
    opened();
    if is_right { Ok(()) } else { Err(format!("{task:?} gave a wrong answer").into()) }
}
