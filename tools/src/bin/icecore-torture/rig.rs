//! Runs cases: starts the driver under the shim, builds what a power loss leaves, has it looked at, and judges.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::str::FromStr;

use tempfile::TempDir;

use crate::case::{Case, Flip, Loss, ScriptId};
use crate::check::{Kind, Stage, Verdict};
use crate::controls::{CHECK_VARIABLE, Control};
use crate::disk::Disk;
use crate::script::Script;
use crate::shim::{How, Shim};
use crate::swaps::Swap;
use crate::trace::{self, Change, Class, Event};

/// The exit code of a child that did not end in time.
pub(crate) const HUNG: i32 = 99;

/// What every case needs.
pub(crate) struct Rig {
    exe: PathBuf,
    shim: Shim,
    /// Where cases have their folders.
    base: PathBuf,
}

/// Why a case could not be run at all.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The folder of one run: the watched directory, and beside it what is told of it.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    pub(crate) fn archive(&self) -> PathBuf {
        self.root().join("archive")
    }

    fn trace(&self) -> PathBuf {
        self.0.path().join("trace")
    }

    fn ack(&self) -> PathBuf {
        self.0.path().join("ack")
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(self) -> PathBuf {
        self.0.keep()
    }
}

/// How far a script is known to have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The operations before this one returned.
    done: usize,
    /// The operations from this one on were not begun.
    begun: usize,
    /// A writer found this state, so all of it is durable.
    durable: usize,
    /// The operations before this one said that they were done.
    promised: usize,
}

impl Progress {
    /// Takes a line of the driver, or that of a recovery. An answer that was wrong is an error.
    fn take(&mut self, line: &str) -> Result<(), Verdict> {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = rest.split(' ').next().and_then(|number| number.parse::<usize>().ok());
        match (what, number) {
            ("b", Some(i)) => self.begun = i + 1,
            ("d", Some(i)) => (self.done, self.promised) = (i + 1, i + 1),
            ("f", Some(_)) => {}
            ("s", Some(state)) => *self = Self { done: state, begun: state, durable: state, ..*self },
            _ => return Err(Verdict::new(Kind::Wrong, format!("in the process that was hit: {rest}"))),
        }
        Ok(())
    }
}

/// A driver's run, ended in whatever way.
pub(crate) struct Run {
    pub(crate) place: Place,
    pub(crate) events: Vec<Event>,
    progress: Progress,
    /// What the run itself showed to be wrong.
    verdict: Option<Verdict>,
    /// Where the trace of a recovery begins.
    recovery: usize,
    /// A reader that was there before.
    follower: Option<Child>,
}

impl Rig {
    pub(crate) fn new(shim: Shim, base: PathBuf) -> io::Result<Self> {
        Ok(Self { exe: std::env::current_exe()?, shim, base })
    }

    fn place(&self) -> io::Result<Place> {
        let place = Place(tempfile::Builder::new().prefix("icecore-torture-").tempdir_in(&self.base)?);
        fs::create_dir(place.root())?;
        Ok(place)
    }

    /// This program as a child. One thread, so that the calls have the same numbers in every run.
    fn child(&self, control: Option<Control>) -> Command {
        let mut command = Command::new(&self.exe);
        command.env("RAYON_NUM_THREADS", "1").env_remove(CHECK_VARIABLE).stdin(Stdio::null());
        if let Some(Control::Check(check)) = control {
            command.env(CHECK_VARIABLE, check.name());
        }
        command
    }

    /// Runs the driver, hit at one call or not.
    pub(crate) fn drive(
        &self,
        id: ScriptId,
        call: Option<(How, u32)>,
        control: Option<Control>,
    ) -> Result<Run, Failure> {
        let place = self.place()?;
        self.drive_in(place, id, call, control)
    }

    /// The same beside a reader that follows until the run was looked at.
    pub(crate) fn drive_followed(&self, case: &Case) -> Result<Run, Failure> {
        let place = self.place()?;
        let mut command = self.checker(Stage::Follower, case.id, &place.archive(), (0, 0), case.without);
        let follower = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let run = self.drive_in(place, case.id, case.call, case.without)?;
        Ok(Run { follower: Some(follower), ..run })
    }

    fn drive_in(
        &self,
        place: Place,
        id: ScriptId,
        call: Option<(How, u32)>,
        control: Option<Control>,
    ) -> Result<Run, Failure> {
        let mut command = self.child(control);
        command.arg("drive").arg(id.to_string()).arg(place.archive()).arg(place.ack());
        self.shim.watch(&mut command, &place.root(), &place.trace(), &place.ack(), call);
        let output = command.output()?;
        let was_killed = output.status.code().is_none() && call.is_some_and(|(how, _)| how.kills());
        let mut verdict = if was_killed { None } else { died(&output) };
        let events = trace::read(&place.trace())?;
        let mut progress = Progress::default();
        for event in &events {
            if let Change::Ack { line } = &event.change
                && let Err(wrong) = progress.take(line)
            {
                verdict = verdict.or(Some(wrong));
            }
        }
        let recovery = events.len();
        Ok(Run { place, events, progress, verdict, recovery, follower: None })
    }

    /// Opens what a kill left for writing and closes it, watched.
    pub(crate) fn recover(
        &self,
        id: ScriptId,
        run: &mut Run,
        control: Option<Control>,
    ) -> Result<(), Failure> {
        let (lowest, highest) = (run.progress.done, run.progress.begun);
        let mut command = self.checker(Stage::Recovery, id, &run.place.archive(), (lowest, highest), control);
        command.arg("--ack").arg(run.place.ack());
        self.shim.watch(&mut command, &run.place.root(), &run.place.trace(), &run.place.ack(), None);
        let verdict = judge(&command.output()?);
        if verdict.kind != Kind::Good {
            run.verdict.get_or_insert(verdict);
        }
        run.events = trace::read(&run.place.trace())?;
        Ok(())
    }

    /// Looks at what a run left.
    pub(crate) fn check_run(&self, case: &Case, run: &mut Run) -> Result<Verdict, Failure> {
        let verdict = match &run.verdict {
            Some(verdict) => verdict.clone(),
            None => self.check(case, &run.place, run.progress.done, run.progress)?,
        };
        let Some(follower) = run.follower.take() else { return Ok(verdict) };
        // This closes its input.
        let followed = judge(&follower.wait_with_output()?);
        // It ends at the last state, to which only a sound archive comes.
        Ok(if verdict.kind == Kind::Good { Verdict { state: verdict.state, ..followed } } else { verdict })
    }

    /// Looks at what a power loss leaves after this many events.
    pub(crate) fn check_loss(
        &self,
        case: &Case,
        script: &Script,
        run: &Run,
        loss: Loss,
    ) -> Result<(Verdict, Place), Failure> {
        let without = match case.without {
            Some(Control::Sync(sync)) => Some(sync),
            _ => None,
        };
        let mut disk = Disk::without(without);
        let mut progress = Progress::default();
        let end = (run.recovery_offset(case) + loss.at).min(run.events.len());
        for event in &run.events[..end] {
            disk.apply(&event.change);
            if let Change::Ack { line } = &event.change {
                // What a wrong line says was judged when the run ended.
                let _ = progress.take(line);
            }
        }
        let place = self.place()?;
        disk.power_loss(loss.image, &place.root())?;
        let lowest = case.id.sync.floor(script, progress.done).max(progress.durable);
        Ok((self.check(case, &place, lowest, progress)?, place))
    }

    /// Flips bits of what a whole run left: one, or as many as asked for. Returns each with its verdict.
    pub(crate) fn check_flips(
        &self,
        case: &Case,
        run: &Run,
        seed: u64,
        count: u64,
    ) -> Result<Vec<(Flip, Verdict)>, Failure> {
        let mut command = self.child(case.without);
        command.arg("flips").arg(case.id.to_string()).arg(run.place.archive());
        Self::run_each(command, seed, count, case.flip.as_ref())
    }

    /// The same with files that are replaced.
    pub(crate) fn check_swaps(
        &self,
        case: &Case,
        run: &Run,
        seed: u64,
        count: u64,
    ) -> Result<Vec<(Swap, Verdict)>, Failure> {
        let mut command = self.child(case.without);
        command.arg("swaps").arg(case.id.to_string()).arg(run.place.archive()).arg(run.place.trace());
        Self::run_each(command, seed, count, case.swap.as_ref())
    }

    /// Runs a child that prints each fault and then its verdict.
    fn run_each<T: FromStr<Err = String> + ToString>(
        mut command: Command,
        seed: u64,
        count: u64,
        only: Option<&T>,
    ) -> Result<Vec<(T, Verdict)>, Failure> {
        command.arg("--seed").arg(seed.to_string()).arg("--count").arg(count.to_string());
        if let Some(only) = only {
            command.arg("--only").arg(only.to_string());
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().collect();
        let mut faults = Vec::new();
        for pair in lines.chunks(2) {
            let verdict = match pair {
                [_, verdict] => Verdict::parse(verdict),
                _ => died(&output),
            };
            faults.push((pair[0].parse()?, verdict.ok_or("a line of a child cannot be read")?));
        }
        match died(&output) {
            Some(verdict) if lines.is_empty() => Err(verdict.why.into()),
            _ => Ok(faults),
        }
    }

    fn checker(
        &self,
        stage: Stage,
        id: ScriptId,
        dir: &Path,
        (lowest, highest): (usize, usize),
        control: Option<Control>,
    ) -> Command {
        let mut command = self.child(control);
        let stage = match stage {
            Stage::Reader => "reader",
            Stage::Writer => "writer",
            Stage::Recovery => "recovery",
            Stage::Follower => "follower",
        };
        command.args(["check", stage]).arg(id.to_string()).arg(dir);
        command.arg("--lowest").arg(lowest.to_string()).arg("--highest").arg(highest.to_string());
        command
    }

    /// First as a reader, then as a writer. What the writer finds wrong weighs more.
    fn check(
        &self,
        case: &Case,
        place: &Place,
        lowest: usize,
        progress: Progress,
    ) -> Result<Verdict, Failure> {
        let (dir, states) = (place.archive(), (lowest, progress.begun));
        let mut command = self.checker(Stage::Reader, case.id, &dir, states, case.without);
        command.arg("--promised").arg(progress.promised.to_string());
        let read = judge(&command.output()?);
        let mut command = self.checker(Stage::Writer, case.id, &dir, states, case.without);
        command.arg("--promised").arg(progress.promised.to_string());
        if let (Kind::Good, Some(seen)) = (read.kind, read.state) {
            command.arg("--seen").arg(seen.to_string());
        }
        let wrote = judge(&command.output()?);
        Ok(match (read.kind, wrote.kind) {
            (_, Kind::Good) if read.kind != Kind::Good => {
                Verdict { why: format!("reader: {}", read.why), ..read }
            }
            (Kind::Good | Kind::Unseen, _) => wrote,
            _ => Verdict { why: format!("reader: {}; writer: {}", read.why, wrote.why), ..read.max(wrote) },
        })
    }
}

impl Verdict {
    fn max(self, other: Self) -> Self {
        if self.kind >= other.kind { self } else { other }
    }
}

impl Run {
    /// Where the events are counted from that a case names: those of a recovery by themselves.
    fn recovery_offset(&self, case: &Case) -> usize {
        if case.has_recovery() { self.recovery } else { 0 }
    }

    /// The events before which a power loss is worth trying, numbered as the case's name numbers them.
    pub(crate) fn loss_points(&self, case: &Case) -> Vec<usize> {
        let offset = self.recovery_offset(case);
        // After a failed call: what came before it is that of any run.
        let first = match case.call {
            Some((_, at)) if !case.has_recovery() => self.event_of_call(at),
            _ => offset,
        };
        (first..self.events.len()).filter(|i| self.events[*i].matters()).map(|i| i + 1 - offset).collect()
    }

    /// Of these points those right after a change of some kind.
    pub(crate) fn points_after(
        &self,
        case: &Case,
        points: &[usize],
        is_wanted: impl Fn(&Change) -> bool,
    ) -> Vec<usize> {
        let change = |point: &usize| &self.events[self.recovery_offset(case) + point - 1].change;
        points.iter().copied().filter(|point| is_wanted(change(point))).collect()
    }

    fn event_of_call(&self, call: u32) -> usize {
        let mut calls = (0..self.events.len()).filter(|i| self.events[*i].class != Class::None);
        calls.nth(call as usize - 1).unwrap_or(self.events.len())
    }
}

/// The verdict of a child that printed one.
fn judge(output: &Output) -> Verdict {
    let text = String::from_utf8_lossy(&output.stdout);
    died(output).unwrap_or_else(|| {
        let parsed = text.lines().last().and_then(Verdict::parse);
        parsed.unwrap_or_else(|| Verdict::new(Kind::Panicked, "the child ended without a verdict"))
    })
}

/// How a child ended that should have ended well.
fn died(output: &Output) -> Option<Verdict> {
    if output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = if output.status.code() == Some(HUNG) {
        "did not end".to_owned()
    } else {
        said.trim().replace('\n', " ")
    };
    Some(Verdict::new(Kind::Panicked, format!("{}: {why}", output.status)))
}
