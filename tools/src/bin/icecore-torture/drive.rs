//! The child that is hit: goes through a script and says, outside the archive, what it begins and what was done.
//!
//! Each line is one write: `b 12` operation 12 begins, `d 12` it returned, `f 12 why` it failed, `w why` an answer was wrong.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore::{Archive, Density, DensityRule, Error, Maintenance, MergeOptions, OpenOptions, ReindexRule};

use crate::case::ScriptId;
use crate::copies;
use crate::examine::{Difference, examine, resembles, with_causes};
use crate::model::domains;
use crate::script::{Op, Script};

#[derive(Args)]
pub(crate) struct DriveArgs {
    /// The script.
    id: ScriptId,
    /// Where the archive goes.
    dir: PathBuf,
    /// Where the lines go.
    ack: PathBuf,
}

/// An archive in the hands of a script.
pub(crate) struct Driver<'s> {
    script: &'s Script,
    dir: &'s Path,
    open: OpenOptions,
    /// Absent before the first operation and after a failed one.
    archive: Option<Archive>,
}

impl<'s> Driver<'s> {
    pub(crate) fn new(
        script: &'s Script,
        dir: &'s Path,
        open: OpenOptions,
        archive: Option<Archive>,
    ) -> Self {
        Self { script, dir, open, archive }
    }

    pub(crate) fn into_archive(self) -> Option<Archive> {
        self.archive
    }

    /// Does operation `i`.
    pub(crate) fn step(&mut self, i: usize) -> Result<(), Difference> {
        match &self.script.ops[i] {
            Op::Create => {
                self.archive = Some(Archive::create_on(
                    std::sync::Arc::new(icecore::storage::os::OsStorage),
                    self.dir,
                    self.script.options.clone(),
                    self.open,
                )?);
            }
            Op::Reopen { close } => {
                let before = self.archive.take().expect("an archive is open between operations");
                if *close {
                    before.close()?;
                } else {
                    drop(before);
                }
                self.archive = Some(Archive::open(self.dir, self.open)?);
            }
            op => self.change(op, i)?,
        }
        Ok(())
    }

    fn change(&self, op: &Op, i: usize) -> Result<(), Difference> {
        let archive = self.archive.as_ref().expect("an archive is open between operations");
        match op {
            Op::Commit { height, .. } => {
                let root = commit(archive, op)?;
                let expected = self.script.states[i + 1].block_at(*height);
                if Some((*height, root)) != expected {
                    return Err(Difference::Wrong(format!(
                        "block {height} has root {root}, expected {expected:?}"
                    )));
                }
            }
            Op::Emit => archive.emit()?,
            Op::Merge => drop(archive.merge(&MergeOptions::default(), &())?),
            Op::Reindex { m } => {
                let m = Density::new(*m).expect("the script draws densities in range");
                archive.reindex(ReindexRule::Rule(DensityRule::Fixed(m)), None, &())?;
            }
            Op::Rebuild => drop(archive.reindex(ReindexRule::Rebuild, None, &())?),
            Op::Prune { before } => archive.prune(*before, &())?,
            Op::Unwind { to } => archive.unwind(*to, &())?,
            Op::Flush => archive.flush()?,
            Op::Checkpoint => {
                archive.checkpoint(copies::path(self.dir, i), &())?;
            }
            Op::Create | Op::Reopen { .. } => unreachable!("`step` does these"),
        }
        Ok(())
    }
}

fn commit(archive: &Archive, op: &Op) -> Result<icecore::Root, Error> {
    let Op::Commit { height, changes } = op else { unreachable!("only commits are committed") };
    let domains = domains(archive.reader().commitment());
    let mut block = archive.begin(*height)?;
    for ((domain, key), value) in changes {
        match value {
            Some(value) => block.put(domains[*domain], key, value)?,
            None => block.delete(domains[*domain], key)?,
        }
    }
    block.commit()
}

/// The lines that the driver writes.
struct Ack(File);

impl Ack {
    fn say(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).expect("the file of acknowledgements takes a line");
    }
}

/// Goes through the script, and ends as by a kill once all is synced: closing would leave an archive that needs no recovery.
pub(crate) fn run(args: &DriveArgs) {
    let script = args.id.script();
    let mut driver = Driver::new(&script, &args.dir, args.id.open_options(), None);
    go_through(args, &script, &mut driver);
    // What works in the background would leave files that it did not finish.
    if args.id.maintenance != Maintenance::Background
        && let Some(archive) = driver.into_archive()
    {
        // What is not synced after a failure is not promised.
        let _ = archive.flush();
        std::mem::forget(archive);
    }
}

/// An operation that failed is tried once more, if the archive is still open: it may be refused, but what it says it did must
/// be done.
fn go_through(args: &DriveArgs, script: &Script, driver: &mut Driver<'_>) {
    let mut ack = Ack(File::create(&args.ack).expect("the file of acknowledgements can be made"));
    let (mut i, mut failed) = (0, None);
    while i < script.ops.len() {
        ack.say(&format!("b {i}"));
        let is_done = match driver.step(i) {
            Ok(()) => Ok(true),
            Err(Difference::Wrong(what)) => Err(what),
            Err(Difference::Failed(what)) => {
                ack.say(&format!("f {i} {what}"));
                driver.live_on(i)
            }
        };
        match is_done {
            Err(what) => return ack.say(&format!("w {what}")),
            Ok(true) => {
                ack.say(&format!("d {i}"));
                i += 1;
            }
            Ok(false) if failed == Some(i) || driver.archive.is_none() => return,
            Ok(false) => failed = Some(i),
        }
    }
}

impl Driver<'_> {
    /// After operation `i` failed the archive still answers, with the state before or after it. Returns whether it is known
    /// to be done all the same.
    fn live_on(&self, i: usize) -> Result<bool, String> {
        let Some(archive) = &self.archive else { return Ok(false) };
        for state in [i + 1, i] {
            let model = &self.script.states[state];
            if resembles(archive.reader(), model).map_err(|error| with_causes(&error))? {
                examine(archive.reader(), model).map_err(|difference| match difference {
                    Difference::Failed(what) | Difference::Wrong(what) => {
                        format!("after operation {i} failed: {what}")
                    }
                })?;
                return Ok(state == i + 1 && self.script.ops[i].shows());
            }
        }
        Err(format!("operation {i} failed and left neither the state before it nor that after it"))
    }
}
