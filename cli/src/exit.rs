//! How a command ends: the exit code that a script sees and the error that a person reads.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use icecore::{Error, ErrorKind};

/// The exit codes, as `--help` tells them.
pub(crate) const CODES: &str = "\
Exit codes:
  0  done                          4  corruption
  1  not found or not verified     5  locked by another writer
  2  usage or bad input            6  no space left
  3  block out of range            7  anything else of the environment";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The key is absent, or the proof does not hold.
    No = 1,
    /// The command line or the input is wrong.
    Usage = 2,
    /// The archive does not hold the height.
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
    /// A line of input is wrong.
    Input {
        /// The file, or `-`.
        file: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong.
        reason: String,
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
    /// `verify` found damage and has listed it.
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
        Self::Archive(error)
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
            Self::Archive(error) => match error.kind() {
                ErrorKind::Corrupt => Exit::Corrupt,
                ErrorKind::NoSpace => Exit::NoSpace,
                ErrorKind::Misuse => Exit::Usage,
                ErrorKind::OutOfRange => Exit::OutOfRange,
                ErrorKind::Busy => Exit::Locked,
                _ => Exit::Environment,
            },
            Self::Usage(_) | Self::Input { .. } => Exit::Usage,
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

const MEND: &str = "`icecore reindex DIR --rebuild` builds .bt and .kvei files again; any other file must come back from a copy";

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::NotAnArchive { .. } => {
            "check the path; `icecore create DIR --domain NAME` makes an archive, and so does `icecore ingest --create`"
        }
        Error::Exists { .. } => "choose another directory; `icecore ingest` adds to an archive that is there",
        Error::NotRising { .. } => "heights rise strictly; `icecore unwind DIR --to N` takes blocks back",
        Error::UnknownDomain { .. } => {
            "domains are declared when the archive is created; --domain chooses one"
        }
        _ => match error.kind() {
            ErrorKind::Corrupt => {
                "`icecore verify DIR` lists every damage; `icecore reindex DIR --rebuild` builds .bt and .kvei files \
                 again, any other file must come back from a copy"
            }
            ErrorKind::Unsupported => "the archive was made by a newer icecore: use that one",
            ErrorKind::NoSpace => "free some space and give the same command again",
            ErrorKind::Limit => {
                "raise the limit and give the same command again; `icecore merge DIR` leaves fewer files to open"
            }
            ErrorKind::Misuse => "--help shows the usage with examples",
            ErrorKind::OutOfRange => {
                "ask for a height that the archive holds, or leave --at out for the newest"
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
            Self::Archive(error) => {
                write!(f, "{error}")?;
                let mut source = error.source();
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
            Self::Usage(reason) | Self::Damage(reason) => f.write_str(reason),
            Self::Input { file, line, reason } => write!(f, "{file}:{line}: {reason}"),
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
    if !failure.is_broken_pipe() {
        eprintln!("icecore: error: {failure}");
        if let Some(remedy) = failure.remedy() {
            eprintln!("  help: {remedy}");
        }
    }
    failure.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        let io = |kind| Failure::File { operation: "open", path: "x".into(), source: io::Error::from(kind) };
        for (failure, exit) in [
            (Failure::usage("x"), Exit::Usage),
            (Failure::Input { file: "-".into(), line: 1, reason: "x".into() }, Exit::Usage),
            (io(io::ErrorKind::NotFound), Exit::Environment),
            (io(io::ErrorKind::StorageFull), Exit::NoSpace),
            (Failure::Damage("x".into()), Exit::Corrupt),
            (Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done),
            (Failure::Archive(Error::Locked { path: "x".into() }), Exit::Locked),
            (Failure::Archive(Error::Missing { path: "x".into() }), Exit::Corrupt),
            (Failure::Archive(Error::NotAnArchive { path: "x".into() }), Exit::Environment),
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
