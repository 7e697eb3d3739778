//! The error of the library: what happened, to which file, and what the caller should do ([`ErrorKind`]).

use std::fmt;
use std::io;
use std::path::PathBuf;

use icecore_segments::step::BlockNumber;

/// What the engine was doing to a file when the system refused.
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

/// Everything that the library reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} {}{}", path.display(), LimitHint::of(source))]
    Io {
        /// What was tried.
        operation: Operation,
        /// On what.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A segment or accessor is damaged or foreign.
    #[error("{}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and where in it.
        source: icecore_segments::Error,
    },
    /// The manifest or the write-ahead log is damaged.
    #[error("damaged {} offset={offset} reason={reason}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What does not hold.
        reason: &'static str,
    },
    /// A file that the manifest names is not there.
    #[error("missing file {}", path.display())]
    Missing {
        /// Which file.
        path: PathBuf,
    },
    /// The archive's format is newer than this build.
    #[error("unsupported format version={found} supported={supported} in {}", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What it says.
        found: u64,
        /// The newest that this build reads.
        supported: u64,
    },
    /// Another process, or another handle of this one, writes the archive.
    #[error("archive is locked by another writer: {}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A writer replaced the manifest each time this reader tried to open what it names.
    #[error("the archive at {} keeps changing", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// Another archive was put in the place of the one that this reader follows.
    #[error("the archive at {} was replaced by another one", path.display())]
    Replaced {
        /// The directory.
        path: PathBuf,
    },
    /// The [`Archive`](crate::Archive) of this process that a reader was cloned from was closed or dropped, so no block will
    /// reach the reader any more. What it sees stays readable.
    #[error("the archive at {} was closed", path.display())]
    Closed {
        /// The directory.
        path: PathBuf,
    },
    /// There is no archive here.
    #[error("no archive at {}", path.display())]
    NotAnArchive {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint to this place was killed or failed before it was finished.
    #[error("the checkpoint at {} was not finished", path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// An archive or another non-empty directory is already here.
    #[error("{} exists and is not empty", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint to a place in the archive that it is made of.
    #[error("{} is inside the archive {}, a checkpoint needs a directory outside it", path.display(), archive.display())]
    InsideArchive {
        /// The place given.
        path: PathBuf,
        /// The directory of the archive.
        archive: PathBuf,
    },
    /// A height that the archive does not hold.
    #[error("block {asked} is out of range: {available}")]
    OutOfRange {
        /// The height asked for.
        asked: BlockNumber,
        /// What there is.
        available: Available,
    },
    /// The archive has no block yet, so it has no newest state.
    #[error("the archive has no block")]
    Empty,
    /// A block must be higher than the head.
    #[error("block {got} does not rise above the head {head}")]
    NotRising {
        /// The head of the archive.
        head: BlockNumber,
        /// The height given.
        got: BlockNumber,
    },
    /// A domain that was not declared when the archive was created.
    #[error("unknown domain '{}', declared: {declared}", name.escape_debug())]
    UnknownDomain {
        /// The name given.
        name: String,
        /// The names there are.
        declared: String,
    },
    /// A key does not have the length that its domain declares.
    #[error("a key of domain {domain} has {expected} bytes, this one has {found}")]
    KeyLength {
        /// The domain.
        domain: String,
        /// The declared length in bytes.
        expected: usize,
        /// The length of the key given.
        found: usize,
    },
    /// A key or value is longer than the format allows.
    #[error("{what} too large len={len} max={max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// An option has a value that makes no sense.
    #[error("option {field}: {reason}")]
    Options {
        /// Which option.
        field: &'static str,
        /// Why not.
        reason: String,
    },
    /// The state does not have the root that was recorded for it.
    #[error("root of block {block} does not match the state expected={expected} found={found}")]
    RootMismatch {
        /// The height.
        block: BlockNumber,
        /// The root that was recorded.
        expected: String,
        /// The root that the state gives.
        found: String,
    },
    /// The root of a block that the archive holds was not found: a segment of roots is damaged or incomplete.
    #[error("no root recorded for block {block}")]
    RootMissing {
        /// The height.
        block: BlockNumber,
    },
    /// The digest that was recorded for the changes of a block is not theirs: a segment is damaged or incomplete.
    #[error("the changes of block {block} are not those that were recorded")]
    DigestMismatch {
        /// The height.
        block: BlockNumber,
    },
    /// The nodes that were kept at a block are not those of its state: a segment of nodes is incomplete.
    #[error("the snapshot of block {block} does not fit the state")]
    SnapshotDamaged {
        /// The height.
        block: BlockNumber,
    },
    /// Complete steps wait in memory because they cannot be written to files. The block was not committed; nothing else was
    /// lost, and a later commit goes on as soon as the cause is gone.
    #[error("block not committed while complete steps cannot be written to files: {since}")]
    HeldUp {
        /// Why emission failed at its last attempt.
        since: String,
        /// What to do about it.
        cause: ErrorKind,
    },
    /// The log failed while it took a block. The block may be in the log, whole and durable, or not: opening the archive again
    /// tells by its head. Until then the archive refuses writes. Every other error of a commit means that the block was not
    /// committed.
    #[error("block {height} may or may not be committed, open the archive again to learn which")]
    CommitUnknown {
        /// The height of the block.
        height: BlockNumber,
        /// What the log met.
        source: Box<Error>,
    },
    /// Work that writes files was not begun, because the file system has too little room for what it writes.
    #[error("{task} needs {needed} bytes, {} has {free} free", path.display())]
    NoRoom {
        /// What was to be done.
        task: String,
        /// The directory of the archive.
        path: PathBuf,
        /// Bytes it may write before it frees any.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A write or sync failed before; the archive reads but refuses writes until it is opened again.
    #[error("writes are refused since an earlier failure: {since}")]
    Poisoned {
        /// The failure, with what caused it.
        since: String,
        /// What to do about that failure before opening again.
        cause: ErrorKind,
    },
}

/// Which limit of the system an operation on a file ran into, for error texts: the system's own word names none.
#[derive(PartialEq, Eq)]
enum LimitHint {
    None,
    ProcessFiles,
    SystemFiles,
    Mappings,
}

impl LimitHint {
    fn of(source: &io::Error) -> Self {
        // No `io::ErrorKind` stands for these two; their numbers are the same on every Unix.
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match source.raw_os_error() {
            Some(EMFILE) => Self::ProcessFiles,
            Some(ENFILE) => Self::SystemFiles,
            // Of all operations on files only mapping fails for want of memory, and it needs none but the entry in the table
            // of mappings and the addresses.
            Some(_) if source.kind() == io::ErrorKind::OutOfMemory => Self::Mappings,
            _ => Self::None,
        }
    }
}

impl fmt::Display for LimitHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "",
            Self::ProcessFiles => ": the open files of a process are limited by `ulimit -n`, raise it or merge segments",
            Self::SystemFiles => ": the open files of all processes are limited by fs.file-max, raise it or merge segments",
            Self::Mappings => {
                ": the mappings of a process are limited by vm.max_map_count and its addresses by `ulimit -v`, raise them or \
                 merge segments"
            }
        })
    }
}

/// The heights that can be read, for error texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Available {
    /// No block yet.
    Nothing,
    /// From the first to the second, both inside.
    Blocks(BlockNumber, BlockNumber),
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("the archive has no block"),
            Self::Blocks(first, head) => write!(f, "the archive has blocks {first} to {head}"),
        }
    }
}

/// What to do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes on disk are wrong: run `verify`; rebuild the accessor or restore the file.
    Corrupt,
    /// Use a newer build.
    Unsupported,
    /// Fix disk, permissions or path and open again.
    Environment,
    /// The disk is full: free space and open again.
    NoSpace,
    /// The system grants this process no more open files or mappings: raise the limit that the text names, or merge.
    Limit,
    /// Fix the call.
    Misuse,
    /// The height asked for is not held: ask within the range.
    OutOfRange,
    /// Another writer has the archive: wait or stop it.
    Busy,
    /// Open the archive again.
    Closed,
}

impl Error {
    /// Whether a fresh accessor cures the error. A newer format or a system that refuses is not cured by it.
    pub(crate) fn is_cured_by_rebuild(&self) -> bool {
        use icecore_segments::Error::{Corrupt, Mismatch};
        matches!(self, Self::Missing { .. } | Self::File { source: Corrupt(_) | Mismatch { .. }, .. })
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } | Self::File { source: icecore_segments::Error::Write(source), .. } => {
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                    _ if LimitHint::of(source) != LimitHint::None => ErrorKind::Limit,
                    _ => ErrorKind::Environment,
                }
            }
            Self::File { source: icecore_segments::Error::Unsupported { .. }, .. }
            | Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::File { .. }
            | Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::RootMismatch { .. }
            | Self::RootMissing { .. }
            | Self::DigestMismatch { .. }
            | Self::SnapshotDamaged { .. } => ErrorKind::Corrupt,
            Self::NotAnArchive { .. } | Self::Unfinished { .. } | Self::Exists { .. } => {
                ErrorKind::Environment
            }
            Self::Locked { .. } | Self::Busy { .. } => ErrorKind::Busy,
            Self::OutOfRange { .. } | Self::Empty => ErrorKind::OutOfRange,
            Self::NotRising { .. }
            | Self::InsideArchive { .. }
            | Self::UnknownDomain { .. }
            | Self::KeyLength { .. }
            | Self::TooLarge { .. }
            | Self::Options { .. } => ErrorKind::Misuse,
            Self::NoRoom { .. } => ErrorKind::NoSpace,
            Self::CommitUnknown { source, .. } => source.kind(),
            // Of a poisoned archive these causes must be known for what they are, or opening again fails as well.
            Self::HeldUp { cause, .. }
            | Self::Poisoned { cause: cause @ (ErrorKind::NoSpace | ErrorKind::Limit), .. } => *cause,
            Self::Poisoned { .. } | Self::Replaced { .. } | Self::Closed { .. } => ErrorKind::Closed,
        }
    }
}

/// An error and all that caused it, in one line.
pub(crate) fn one_line(error: &Error) -> String {
    let mut line = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        line = format!("{line}: {cause}");
        source = cause.source();
    }
    line
}

/// A failure after which nothing is written any more.
pub(crate) struct Poison {
    /// The failure and all that caused it, in one line.
    pub(crate) since: String,
    pub(crate) cause: ErrorKind,
}

impl Poison {
    /// Remembers a failed write or sync.
    pub(crate) fn of(error: &Error) -> Self {
        Self { since: one_line(error), cause: error.kind() }
    }

    /// What every later write gets.
    pub(crate) fn refusal(&self) -> Error {
        Error::Poisoned { since: self.since.clone(), cause: self.cause }
    }
}
