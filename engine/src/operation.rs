//! What is done to files, for errors.

use std::fmt;

/// What was being done to a file when the system refused: part of [`Error::Io`](crate::Error::Io).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Creating a file or directory.
    Create,
    /// Opening a file.
    Open,
    /// Reading.
    Read,
    /// Mapping a file into memory.
    Map,
    /// Writing.
    Write,
    /// Making written bytes durable.
    Sync,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Listing a directory.
    List,
    /// Taking the lock.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::Map => "map",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Lock => "lock",
        })
    }
}
