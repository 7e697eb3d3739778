//! The child that looks at what a fault left: as a reader before any writer, then as a writer that goes on with the script.
//!
//! Says one line: the verdict, the state found, and why. It runs in a process of its own, so that a panic or a signal is a
//! verdict too.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use icecore::{Archive, Error, Reader, VerifyMode};

use crate::case::ScriptId;
use crate::copies;
use crate::drive::Driver;
use crate::examine::{Difference, examine, resembles, with_causes};
use crate::follow::{self, Follower};
use crate::script::{Op, Script};

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// As what.
    pub(crate) stage: Stage,
    /// The script.
    pub(crate) id: ScriptId,
    /// Where the archive is.
    pub(crate) dir: PathBuf,
    /// The first state of the script that may be there.
    #[arg(long)]
    pub(crate) lowest: usize,
    /// The last state of the script that may be there.
    #[arg(long)]
    pub(crate) highest: usize,
    /// The state that a reader found.
    #[arg(long)]
    pub(crate) seen: Option<usize>,
    /// The operations before this one said that they were done.
    #[arg(long, default_value_t = 0)]
    pub(crate) promised: usize,
    /// Where a recovery says which state it found.
    #[arg(long)]
    pub(crate) ack: Option<PathBuf>,
}

/// As what an archive is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// By a reader: everything is asked.
    Reader,
    /// By a writer: everything is asked, the script goes on to its end, everything is asked again, and verified.
    Writer,
    /// By a writer that only opens and closes.
    Recovery,
    /// By a reader that goes on with it, from before the fault until the last writer is through.
    Follower,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// A state that may be there, and all answers right.
    Good,
    /// An acknowledged block that must be there is gone.
    Lost,
    /// A reader misses an acknowledged block that a writer still finds.
    Unseen,
    /// An answer is wrong, or `verify` reports damage where there is none or none where there is some.
    Wrong,
    /// The archive, or something in it, cannot be read.
    Unopenable,
    /// A process panicked, got a signal or did not end.
    Panicked,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Lost => "lost",
            Self::Unseen => "unseen",
            Self::Wrong => "wrong",
            Self::Unopenable => "unopenable",
            Self::Panicked => "panicked",
        })
    }
}

/// A kind, the state found, and why.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) state: Option<usize>,
    pub(crate) why: String,
}

impl Verdict {
    pub(crate) fn good(state: usize) -> Self {
        Self { kind: Kind::Good, state: Some(state), why: String::new() }
    }

    pub(crate) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, state: None, why: why.into() }
    }

    /// Reads back what [`run`] printed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, '\t');
        let kind = Kind::from_str(parts.next()?, false).ok()?;
        Some(Self { kind, state: parts.next()?.parse().ok(), why: parts.next()?.to_owned() })
    }
}

impl From<Difference> for Verdict {
    fn from(difference: Difference) -> Self {
        match difference {
            Difference::Wrong(what) => Self::new(Kind::Wrong, what),
            Difference::Failed(what) => Self::new(Kind::Unopenable, what),
        }
    }
}

impl From<Error> for Verdict {
    fn from(error: Error) -> Self {
        Self::new(Kind::Unopenable, with_causes(&error))
    }
}

/// Looks, and prints the verdict.
pub(crate) fn run(args: &CheckArgs) {
    let script = args.id.script();
    let verdict = match args.stage {
        Stage::Reader => read(args, &script),
        Stage::Writer => write(args, &script),
        Stage::Recovery => recover(args, &script),
        Stage::Follower => follow::until_told(&args.dir, &script),
    };
    let verdict = verdict.unwrap_or_else(|verdict| verdict);
    let state = verdict.state.map_or(String::new(), |state| state.to_string());
    println!("{}\t{state}\t{}", verdict.kind, verdict.why.replace('\n', " "));
}

/// The newest state that may be there and that the archive resembles.
fn find(args: &CheckArgs, script: &Script, reader: &Reader, missing: Kind) -> Result<usize, Verdict> {
    let find_in = |states: std::ops::Range<usize>| -> Result<Option<usize>, Error> {
        for i in states.rev() {
            if resembles(reader, &script.states[i])? {
                return Ok(Some(i));
            }
        }
        Ok(None)
    };
    if let Some(state) = find_in(args.lowest..args.highest + 1)? {
        return Ok(state);
    }
    let found = reader.range();
    let allowed = format!("states {} to {} may be there", args.lowest, args.highest);
    match find_in(0..args.lowest)? {
        Some(state) => {
            Err(Verdict::new(missing, format!("blocks {found:?} are those of state {state}; {allowed}")))
        }
        None => Err(Verdict::new(Kind::Wrong, format!("blocks {found:?} are those of no state; {allowed}"))),
    }
}

/// Whether there is no archive where there need not be one.
fn may_be_absent(args: &CheckArgs, error: &Error) -> bool {
    args.lowest == 0 && matches!(error, Error::NotAnArchive { .. })
}

fn read(args: &CheckArgs, script: &Script) -> Result<Verdict, Verdict> {
    let reader = match Reader::open(&args.dir) {
        Err(error) if may_be_absent(args, &error) => return Ok(Verdict::good(0)),
        other => other?,
    };
    let state = find(args, script, &reader, Kind::Unseen)?;
    examine(&reader, &script.states[state])?;
    copies::examine_left(&args.dir, script, args.promised)?;
    Ok(Verdict::good(state))
}

fn recover(args: &CheckArgs, script: &Script) -> Result<Verdict, Verdict> {
    let archive = match Archive::open(&args.dir, args.id.open_options()) {
        Err(error) if may_be_absent(args, &error) => return Ok(Verdict::good(0)),
        other => other?,
    };
    let state = find(args, script, archive.reader(), Kind::Lost)?;
    if let Some(path) = &args.ack {
        let mut ack = File::create(path).expect("the file of acknowledgements can be made");
        ack.write_all(format!("s {state}\n").as_bytes()).expect("it takes a line");
    }
    Ok(Verdict::good(state))
}

fn write(args: &CheckArgs, script: &Script) -> Result<Verdict, Verdict> {
    let open = args.id.open_options();
    // It may fail where the reader before did, which said so.
    let mut follower = Follower::open(&args.dir, script).ok().flatten();
    let (archive, state) = match Archive::open(&args.dir, open) {
        Err(error) if may_be_absent(args, &error) => (None, 0),
        other => {
            let archive = other?;
            let state = find(args, script, archive.reader(), Kind::Lost)?;
            examine(archive.reader(), &script.states[state])?;
            if let [first, ..] = archive.repairs() {
                return Err(Verdict::new(Kind::Wrong, format!("{first} was damaged and built again")));
            }
            verify(args)?;
            (Some(archive), state)
        }
    };
    compare_with_reader(args, script, state)?;
    let mut driver = Driver::new(script, &args.dir, open, archive);
    for i in state..script.ops.len() {
        if let Some(follower) = &mut follower {
            follower.go_on_to(i).map_err(|verdict| at(verdict, &format!("before {}", script.ops[i])))?;
        }
        if matches!(script.ops[i], Op::Checkpoint) && copies::is_finished(&args.dir, i) {
            continue;
        }
        driver
            .step(i)
            .map_err(|difference| at(Verdict::from(difference), &format!("then {}", script.ops[i])))?;
    }
    if let Some(follower) = follower {
        follower.finish()?;
    }
    let last = script.last();
    let archive = driver.into_archive().expect("the script created an archive");
    examine(archive.reader(), last)
        .map_err(|difference| at(difference.into(), "at the end of the script"))?;
    archive.close()?;
    copies::write_to(&args.dir, script, open, |i| i < args.promised || i >= state)?;
    let reader = Reader::open(&args.dir)?;
    examine(&reader, last).map_err(|difference| at(difference.into(), "read again at the end"))?;
    let garbage = verify(args)?;
    if let [first, ..] = &garbage[..] {
        return Err(Verdict::new(
            Kind::Wrong,
            format!("after everything was closed {} is left", first.display()),
        ));
    }
    Ok(Verdict::good(state))
}

/// What a reader saw before must be what the writer found: both go by the same bytes.
fn compare_with_reader(args: &CheckArgs, script: &Script, state: usize) -> Result<(), Verdict> {
    let Some(seen) = args.seen else { return Ok(()) };
    let [read, wrote] = [seen, state].map(|i| script.states[i].range());
    if seen == state || read == wrote {
        return Ok(());
    }
    let kind = if seen < state { Kind::Unseen } else { Kind::Wrong };
    Err(Verdict::new(kind, format!("a reader saw blocks {read:?} and then a writer {wrote:?}")))
}

fn at(verdict: Verdict, when: &str) -> Verdict {
    Verdict { why: format!("{when}: {}", verdict.why), ..verdict }
}

/// Verifies everything. Returns what no manifest names.
fn verify(args: &CheckArgs) -> Result<Vec<PathBuf>, Verdict> {
    let report = icecore::verify(&args.dir, VerifyMode::Full, &())?;
    match report.problems.first() {
        None => Ok(report.garbage),
        Some(problem) => Err(Verdict::new(Kind::Wrong, format!("verify: {}", with_causes(problem)))),
    }
}
