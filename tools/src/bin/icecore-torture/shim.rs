//! The library that stands between the driver and the system: compiled from `shim.c` at run time, so that no part of the
//! workspace is C; and the faults that it is told to make.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::trace::Class;

const SOURCE: &str = include_str!("shim.c");

/// The compiled library, in a folder of its own.
pub(crate) struct Shim(PathBuf);

/// What is done to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The process is killed before the call.
    KillBefore,
    /// The process is killed after the call.
    KillAfter,
    /// Half of a write is done, and the process is killed.
    KillShort,
    /// A read or write is done by half.
    Short,
    /// The call fails and does nothing.
    Fail(Errno),
    /// So do all later ones that take space.
    FailFromThenOn(Errno),
    /// The call is done and reported as failed.
    FailLate(Errno),
}

/// An error of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    Interrupted,
    Io,
    NoMemory,
    TooManyFiles,
    NoSpace,
}

impl Errno {
    const ALL: [Self; 5] = [Self::Interrupted, Self::Io, Self::NoMemory, Self::TooManyFiles, Self::NoSpace];

    fn name(self) -> &'static str {
        match self {
            Self::Interrupted => "EINTR",
            Self::Io => "EIO",
            Self::NoMemory => "ENOMEM",
            Self::TooManyFiles => "EMFILE",
            Self::NoSpace => "ENOSPC",
        }
    }

    fn number(self) -> i32 {
        match self {
            Self::Interrupted => libc::EINTR,
            Self::Io => libc::EIO,
            Self::NoMemory => libc::ENOMEM,
            Self::TooManyFiles => libc::EMFILE,
            Self::NoSpace => libc::ENOSPC,
        }
    }
}

impl How {
    /// The faults that a call of this class can meet.
    pub(crate) fn of(class: Class) -> Vec<Self> {
        use Errno::{Interrupted, Io, NoMemory, NoSpace, TooManyFiles};
        let mut all = vec![Self::KillBefore, Self::KillAfter];
        all.extend_from_slice(match class {
            Class::Open => &[Self::Fail(TooManyFiles), Self::Fail(Io), Self::Fail(Interrupted)],
            Class::Create => &[Self::Fail(TooManyFiles), Self::Fail(NoSpace), Self::FailFromThenOn(NoSpace)],
            Class::Read => &[Self::Fail(Io), Self::Fail(Interrupted), Self::Short],
            Class::Write => &[
                Self::KillShort,
                Self::Short,
                Self::Fail(Io),
                Self::Fail(NoSpace),
                Self::Fail(Interrupted),
                Self::FailFromThenOn(NoSpace),
                Self::FailLate(Io),
            ],
            Class::Sync => &[Self::Fail(Io), Self::Fail(NoSpace), Self::FailLate(Io)],
            Class::Cut => &[Self::Fail(Io), Self::Fail(Interrupted)],
            Class::Rename | Class::Remove | Class::Link => &[Self::Fail(Io), Self::FailLate(Io)],
            Class::MakeDir => &[Self::Fail(NoSpace), Self::Fail(Io)],
            Class::Map => &[Self::Fail(NoMemory)],
            Class::Lock => &[Self::Fail(Io)],
            Class::None => &[],
        });
        all
    }

    /// Whether the process is gone after it.
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter | Self::KillShort)
    }

    /// As the shim reads it.
    fn variable(self) -> String {
        match self {
            Self::KillBefore => "kill-before".to_owned(),
            Self::KillAfter => "kill-after".to_owned(),
            Self::KillShort => "kill-short".to_owned(),
            Self::Short => "short".to_owned(),
            Self::Fail(errno) => format!("errno:{}", errno.number()),
            Self::FailFromThenOn(errno) => format!("errno:{}+", errno.number()),
            Self::FailLate(errno) => format!("late:{}", errno.number()),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(errno) => f.write_str(errno.name()),
            Self::FailFromThenOn(errno) => write!(f, "{}-from", errno.name()),
            Self::FailLate(errno) => write!(f, "{}-late", errno.name()),
            other => f.write_str(&other.variable()),
        }
    }
}

impl FromStr for How {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = [Self::KillBefore, Self::KillAfter, Self::KillShort, Self::Short];
        let failing = Errno::ALL.map(|e| [Self::Fail(e), Self::FailFromThenOn(e), Self::FailLate(e)]);
        let mut all = plain.into_iter().chain(failing.into_iter().flatten());
        all.find(|how| how.to_string() == text).ok_or_else(|| format!("unknown fault {text:?}"))
    }
}

impl Shim {
    /// Compiles the library into `dir`. `Ok(None)`: there is no C compiler.
    pub(crate) fn compile(dir: &Path) -> Result<Option<Self>, String> {
        let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
        fs::write(&source, SOURCE).map_err(|error| format!("cannot write {}: {error}", source.display()))?;
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(&compiler);
        command.args(["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        match command.args(["-ldl", "-lpthread"]).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot run {compiler}: {error}")),
            Ok(output) if !output.status.success() => {
                Err(format!("{compiler}: {}", String::from_utf8_lossy(&output.stderr)))
            }
            Ok(_) => Ok(Some(Self(library))),
        }
    }

    /// Has a command watched: what it does to files below `root` is recorded in `trace`, and one call is hit.
    pub(crate) fn watch(
        &self,
        command: &mut Command,
        root: &Path,
        trace: &Path,
        ack: &Path,
        fault: Option<(How, u32)>,
    ) {
        command
            .env("LD_PRELOAD", &self.0)
            .env("TORTURE_ROOT", root)
            .env("TORTURE_TRACE", trace)
            .env("TORTURE_ACK", ack);
        if let Some((how, at)) = fault {
            command.env("TORTURE_AT", at.to_string()).env("TORTURE_HOW", how.variable());
        }
    }
}
