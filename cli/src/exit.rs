//! How a command ends: the exit code that a script sees and the error that a person reads.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[cfg(feature = "s3")]
use icecore::remote::RemoteError;
use icecore::{Error, ErrorKind};
use serde_json::json;

use crate::encoding::printable;
use crate::notes::{speaks_json, tell};

/// The exit codes, as `--help` tells them.
pub(crate) const CODES: &str = "\
With --json an error is one line on standard error:
{\"error\":{\"kind\":..,\"code\":..,\"message\":..,\"help\":..}}

Exit codes:
  0  done                               4  corruption
  1  not found, not verified, different  5  locked by another writer
  2  usage or bad input                 6  no space left
  3  block out of range, or not held    7  other I/O error";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The key is absent, the proof does not hold, or the states differ.
    No = 1,
    /// The command line or the input is wrong.
    Usage = 2,
    /// The archive does not have the height, or a partial copy not the segment.
    OutOfRange = 3,
    /// Bytes on disk are wrong.
    Corrupt = 4,
    /// Another process writes the archive.
    Locked = 5,
    /// The disk is full.
    NoSpace = 6,
    /// Files, permissions, versions.
    Environment = 7,
}

impl Exit {
    /// What it is called under `--json`.
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::No => "no",
            Self::Usage => "usage",
            Self::OutOfRange => "out_of_range",
            Self::Corrupt => "corruption",
            Self::Locked => "locked",
            Self::NoSpace => "no_space",
            Self::Environment => "environment",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The archive refused.
    Archive(Error),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// The archive does not hold the height.
    OutOfRange(String),
    /// A block of the input is in the archive with other content.
    Conflict {
        /// The block.
        block: u64,
        /// What differs, and where in the input; or why there can be no such block.
        reason: String,
    },
    /// A line of input is wrong.
    Input {
        /// The file, or `-`.
        file: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong.
        reason: String,
        /// What to do where mending the line is not the answer.
        help: Option<String>,
    },
    /// The system refused something about a file that is not the archive's.
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Standard output cannot be written.
    Output(io::Error),
    /// Damage was found and has been listed.
    Damage(String),
    /// An ingest stopped half way; what was committed before stays.
    Stopped {
        /// Why.
        cause: Box<Failure>,
        /// The newest block of the archive.
        head: Option<u64>,
    },
}

/// What a command returns.
pub(crate) type Outcome = Result<Exit, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match file_in_place_of_directory(&error) {
            Some(path) => Self::Usage(format!(
                "{} is a file, not an archive: an archive is a directory, and comes before other arguments",
                path.display()
            )),
            None => Self::Archive(error),
        }
    }
}

impl Failure {
    /// A wrong use of the command line.
    pub(crate) fn usage(reason: impl Into<String>) -> Self {
        Self::Usage(reason.into())
    }

    /// Nobody reads the output any more; that is no failure of ours.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Archive(Error::NotAnArchive { .. } | Error::Exists { .. })
            | Self::Usage(_)
            | Self::Input { .. }
            | Self::Conflict { .. } => Exit::Usage,
            // As a directory that is no archive.
            #[cfg(feature = "s3")]
            Self::Archive(Error::Remote(
                RemoteError::NoArchive { .. } | RemoteError::NoGeneration { .. },
            )) => Exit::Usage,
            Self::Archive(error) => match error.kind() {
                ErrorKind::Corrupt => Exit::Corrupt,
                ErrorKind::NoSpace => Exit::NoSpace,
                ErrorKind::Misuse => Exit::Usage,
                ErrorKind::OutOfRange | ErrorKind::NotHeld => Exit::OutOfRange,
                ErrorKind::Busy => Exit::Locked,
                _ => Exit::Environment,
            },
            Self::OutOfRange(_) => Exit::OutOfRange,
            Self::File { source, .. } | Self::Output(source) => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::NoSpace,
                io::ErrorKind::BrokenPipe => Exit::Done,
                _ => Exit::Environment,
            },
            Self::Damage(_) => Exit::Corrupt,
            Self::Stopped { cause, .. } => cause.exit(),
        }
    }

    /// What the person at the terminal can do about it.
    pub(crate) fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::Archive(error) => remedy(error),
            Self::Usage(_) => "--help shows the usage with examples",
            Self::OutOfRange(_) => OUT_OF_RANGE,
            Self::Conflict { .. } => {
                "files with parts of the same blocks go into one `icecore ingest`; `icecore unwind DIR --to N` takes blocks \
                 back; what belongs to another chain goes into another archive"
            }
            Self::Input { help: Some(help), .. } => help,
            Self::Input { file, .. } if file == "-" => {
                "mend what writes the line and give the same command again"
            }
            Self::Input { .. } => "mend the line and give the same command again",
            Self::File { source, .. } | Self::Output(source) => match source.kind() {
                io::ErrorKind::NotFound => "check the path",
                io::ErrorKind::PermissionDenied => "check the permissions",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
                _ => return None,
            },
            Self::Damage(_) => MEND,
            Self::Stopped { cause, head } => {
                let state = match head {
                    Some(head) => {
                        format!("blocks up to {head} are in; the same command resumes after block {head}")
                    }
                    None => "no block is in; the same command starts again".to_owned(),
                };
                return Some(cause.remedy().map_or(state.clone(), |remedy| format!("{remedy}\n  {state}")));
            }
        };
        Some(text.to_owned())
    }
}

const MEND: &str = "restore a damaged .kv, log or MANIFEST from a checkpoint or another copy; `icecore reindex DIR --rebuild` \
                    builds .bt, .kvei and .kvbi files again; without a copy of the log, `icecore recover DIR --dry-run` says what \
                    giving it up would cost";

const OUT_OF_RANGE: &str = "ask for a height that the archive holds; what reads takes the newest without --at, and what unwinds leaves the lowest block";

/// The file that was named where the directory of an archive should be.
fn file_in_place_of_directory(error: &Error) -> Option<&Path> {
    let Error::Io { path, source, .. } = error else { return None };
    let is_file = |path: &&Path| source.kind() == io::ErrorKind::NotADirectory && path.is_file();
    [Some(path.as_path()), path.parent()].into_iter().flatten().find(is_file)
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::NotAnArchive { .. } => {
            "check the path; `icecore create DIR --domain NAME` makes an archive, and so does `icecore ingest --create`"
        }
        Error::Partial { .. } => {
            "BUCKET is the URL that it was pulled from; or write to another archive: a partial copy answers `get`, `scan`, `history`"
        }
        Error::Unfinished { .. } => {
            "give the `icecore checkpoint` or `icecore pull` that makes it once more; or remove the directory"
        }
        Error::Exists { .. } => "choose another directory; `icecore ingest` adds to an archive that is there",
        Error::Empty => "`icecore ingest DIR FILE --format jsonl` adds blocks",
        Error::NotRising { .. } => "heights rise strictly; `icecore unwind DIR --to N` takes blocks back",
        Error::UnexpectedRoot { .. } => {
            "the changes of the block are not complete, or the header is of another chain; blocks before it are in the archive, and \
             the same command goes on from there once the input is right"
        }
        Error::NodeDamaged { .. } => {
            "`icecore rows DIR --build --again` builds the rows anew from the state, which has the recorded root; or restore the file \
             from a checkpoint or another copy"
        }
        Error::RootMismatch { .. } => {
            "the values of the state are wrong, not its rows: `icecore verify DIR` names the file or the block. Restore it from a \
             checkpoint or another copy, or `icecore unwind DIR --to N` to before the block and ingest the blocks after it again"
        }
        Error::UnknownDomain { name, declared }
            if declared.starts_with("account,") && ["balance", "nonce"].contains(&name.as_str()) =>
        {
            "balance and nonce are fields of accounts: `get` and `history` know them by these names, here `--domain account` has them"
        }
        Error::UnknownDomain { .. } => {
            "domains are declared when the archive is created; --domain chooses one"
        }
        Error::Damaged { path, .. } | Error::Missing { path }
            if path.extension().is_some_and(|kind| kind == "wal") =>
        {
            "bring the file back from a copy; without one, `icecore recover DIR --dry-run` says what continuing from the \
             block before the damage would cost"
        }
        #[cfg(feature = "s3")]
        Error::Remote(error) => error.remedy(),
        _ => match error.kind() {
            ErrorKind::Corrupt => {
                "restore this file from a checkpoint or another copy; `icecore verify DIR` lists every damage, and \
                 `icecore reindex DIR --rebuild` builds .bt, .kvei and .kvbi files again"
            }
            ErrorKind::Unsupported => "the archive was made by a newer icecore: use that one",
            ErrorKind::NoSpace => {
                "nothing that was committed is lost: free some space and give the same command again. `icecore prune DIR \
                 --before N` works on a full disk, `icecore checkpoint DIR COPY` copies to another one"
            }
            ErrorKind::Limit => {
                "raise the limit and give the same command again; `icecore merge DIR` leaves fewer files to open"
            }
            ErrorKind::Misuse => "--help shows the usage with examples",
            ErrorKind::OutOfRange => OUT_OF_RANGE,
            ErrorKind::NotHeld => {
                "BUCKET is the URL that this partial copy was pulled from; without --domain and --blocks all of the archive \
                 comes. `icecore ls DIR` lists what it holds"
            }
            ErrorKind::Busy => "wait for the other writer or stop it; commands that only read need no lock",
            ErrorKind::Closed => "give the same command again; if it stays, check the disk",
            _ => "check path, permissions and disk, and give the same command again",
        },
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(Error::TooLarge { what, len, max }) => {
                write!(f, "{what} is too large: {len} bytes, at most {max} are allowed")
            }
            Self::Archive(error) => {
                write!(f, "{error}")?;
                let mut source = error.source();
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
            Self::Usage(reason)
            | Self::OutOfRange(reason)
            | Self::Damage(reason)
            | Self::Conflict { reason, .. } => f.write_str(reason),
            Self::Input { file, line, reason, .. } => write!(f, "{file}:{line}: {reason}"),
            Self::File { operation, path, source } => {
                write!(f, "cannot {operation} {}: {source}", path.display())
            }
            Self::Output(source) => write!(f, "cannot write standard output: {source}"),
            Self::Stopped { cause, .. } => cause.fmt(f),
        }
    }
}

/// Tells a failure on standard error and gives its exit code.
pub(crate) fn report(failure: &Failure) -> Exit {
    if failure.is_broken_pipe() {
        return failure.exit();
    }
    let remedy = failure.remedy();
    if speaks_json() {
        tell(format_args!("{}", as_json(failure, remedy.as_deref())));
    } else {
        tell(format_args!("icecore: error: {}", printable(&failure.to_string())));
        if let Some(remedy) = remedy {
            tell(format_args!("  help: {remedy}"));
        }
    }
    failure.exit()
}

/// Tells what clap has to say: help, or a command line that it does not take.
pub(crate) fn report_usage(error: &clap::Error) -> Exit {
    if error.use_stderr() && speaks_json() {
        let text = error.render().to_string();
        let message = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
        return report(&Failure::usage(message.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    // Nobody reads it where this fails.
    let _ = error.print();
    if error.use_stderr() { Exit::Usage } else { Exit::Done }
}

fn as_json(failure: &Failure, help: Option<&str>) -> serde_json::Value {
    let mut error = json!({
        "kind": failure.exit().name(), "code": failure.exit() as u8, "message": failure.to_string(), "help": help,
    });
    let cause = match failure {
        Failure::Stopped { cause, head } => {
            error["head"] = json!(head);
            cause
        }
        other => other,
    };
    match cause {
        Failure::Input { file, line, .. } => {
            error["file"] = json!(file);
            error["line"] = json!(line);
        }
        Failure::Conflict { block, .. } => error["block"] = json!(block),
        Failure::File { path, .. } => error["file"] = json!(path.display().to_string()),
        _ => {}
    }
    json!({ "error": error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        let io = |kind| Failure::File { operation: "open", path: "x".into(), source: io::Error::from(kind) };
        for (failure, exit) in [
            (Failure::usage("x"), Exit::Usage),
            (Failure::Input { file: "-".into(), line: 1, reason: "x".into(), help: None }, Exit::Usage),
            (io(io::ErrorKind::NotFound), Exit::Environment),
            (io(io::ErrorKind::StorageFull), Exit::NoSpace),
            (Failure::Damage("x".into()), Exit::Corrupt),
            (Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done),
            (Failure::Archive(Error::Locked { path: "x".into() }), Exit::Locked),
            (Failure::Archive(Error::Missing { path: "x".into() }), Exit::Corrupt),
            (Failure::Archive(Error::Partial { path: "x".into() }), Exit::Usage),
            (Failure::Archive(Error::NotAnArchive { path: "x".into() }), Exit::Usage),
            (Failure::Archive(Error::NotRising { head: 2, got: 1 }), Exit::Usage),
        ] {
            assert_eq!(failure.exit(), exit, "{failure}");
        }
    }

    #[test]
    fn the_whole_chain_is_told() {
        let source = io::Error::other("inner");
        let error = Error::Io { operation: icecore::Operation::Open, path: "a/b".into(), source };
        assert_eq!(Failure::Archive(error).to_string(), "cannot open a/b: inner");
    }
}
