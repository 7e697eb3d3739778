//! The error of the library: what happened, to which file, and what the caller should do ([`ErrorKind`]).

use std::fmt;
use std::io;
use std::path::PathBuf;

use icecore_segments::step::BlockNumber;

use crate::commitment::Commitment;
use crate::error_text::{LimitHint, PullLine};

pub use crate::error_kind::ErrorKind;
pub use crate::operation::Operation;

/// Why a call failed: what happened, to which file, at which place. [`Error::kind`] says what to do about it.
///
/// The causes of an error are its [`source`](std::error::Error::source) chain. Texts are one line each and may change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file or directory.
    #[error("cannot {operation} {}{}", path.display(), LimitHint::of(source))]
    Io {
        /// What was tried.
        operation: Operation,
        /// The file or directory.
        path: PathBuf,
        /// The underlying OS error.
        source: io::Error,
    },
    /// A file of a segment is damaged, belongs to another archive, or is of a newer format.
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
        /// What is wrong there.
        reason: &'static str,
    },
    /// A file that the manifest names is missing.
    #[error("missing file {}", path.display())]
    Missing {
        /// Which file.
        path: PathBuf,
    },
    /// The manifest or the log has a format newer than this build.
    #[error("unsupported format version={found} supported={supported} in {}", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// The version it has.
        found: u64,
        /// The newest version that this build reads.
        supported: u64,
    },
    /// Another process, or another [`Archive`](crate::Archive) of this one, has the archive open for writing.
    #[error("archive is locked by another writer: {}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A writer replaced the manifest each time this call tried to open the files it names.
    #[error("the archive at {} keeps changing", path.display())]
    KeepsChanging {
        /// The directory.
        path: PathBuf,
    },
    /// Another archive took the place of the one that this reader follows. What the reader sees stays readable.
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
    /// There is no archive at the path.
    #[error("no archive at {}", path.display())]
    NotAnArchive {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is a checkpoint or a pulled copy that was interrupted before it was complete. Repeat that, or remove it.
    #[error("the copy at {} was not finished", path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The directory for a new archive or copy is not empty.
    #[error("{} exists and is not empty", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A checkpoint was to go into the very archive that it copies.
    #[error("{} is inside the archive {}, a checkpoint needs a directory outside it", path.display(), archive.display())]
    InsideArchive {
        /// The directory given.
        path: PathBuf,
        /// The directory of the archive.
        archive: PathBuf,
    },
    /// The height cannot be read: it is above the head, below the first block, or was pruned.
    #[error("block {asked} is out of range: {available}")]
    OutOfRange {
        /// The height asked for.
        asked: BlockNumber,
        /// The heights that can be read.
        available: Available,
    },
    /// The archive has no block yet, so it has no latest state.
    #[error("the archive has no block")]
    Empty,
    /// The height of a block must be above the head.
    #[error("block {got} does not rise above the head {head}")]
    NotRising {
        /// The head of the archive.
        head: BlockNumber,
        /// The height given.
        got: BlockNumber,
    },
    /// The block was begun before [`Archive::unwind`](crate::Archive::unwind) took blocks back, so it may belong to the branch
    /// that was given up. It was not committed: begin it again.
    #[error("block {height} was begun before blocks were unwound, begin it again")]
    StaleBlock {
        /// The height of the block.
        height: BlockNumber,
    },
    /// A block at the height `u64::MAX`, which an underflow gives more often than a chain. No block could follow it.
    #[error("block {got} is too high, no block could follow it")]
    TooHigh {
        /// The height given.
        got: BlockNumber,
    },
    /// The domain was not declared when the archive was created.
    #[error("unknown domain '{}', declared: {declared}", name.escape_debug())]
    UnknownDomain {
        /// The name given.
        name: String,
        /// The declared names, separated by commas.
        declared: String,
    },
    /// The key does not have the length that its domain fixes.
    #[error("a key of domain {domain} has {expected} bytes, this one has {found}")]
    KeyLength {
        /// The name of the domain.
        domain: String,
        /// The length that the domain fixes, in bytes.
        expected: usize,
        /// The length of the key given, in bytes.
        found: usize,
    },
    /// A key, a value or a block is longer than the format allows.
    #[error("{what} too large len={len} max={max}")]
    TooLarge {
        /// What is too large: `key`, `value` or `block`.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// The answer needs a segment that a partial copy does not hold. What is in segments that it holds is answered, and what is not is
    /// this error, never an absent key or a shorter list.
    #[error("{domain} of blocks {} to {} is not held here: {} brings it", blocks.0, blocks.1, PullLine { path, domain, blocks: *blocks })]
    NotHeld {
        /// The directory of the copy.
        path: PathBuf,
        /// The name of the domain; `_nodes` is the archive's own.
        domain: String,
        /// The blocks of the segment, both included.
        blocks: (BlockNumber, BlockNumber),
    },
    /// The archive is a partial copy, which is for reading: what it does not hold cannot be written, merged, pruned or pushed.
    #[error("{} is a partial copy, which is for reading: `icecore pull BUCKET {}` makes it whole", path.display(), path.display())]
    Partial {
        /// The directory of the copy.
        path: PathBuf,
    },
    /// A scan of a domain that is kept [by path](crate::Domain::by_path) has a range: its keys are in no order that a range could be of.
    #[error(
        "domain {domain} is kept by path and not by key: a scan of it has no range, but all keys or those with a prefix"
    )]
    NoRange {
        /// The name of the domain.
        domain: String,
    },
    /// An option is invalid, or is not that of the archive.
    #[error("option {field}: {reason}")]
    Options {
        /// The name of the option.
        field: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// The call needs another commitment than the one that the archive was created with.
    #[error("{asked}: the archive was created with the commitment {commitment}")]
    Commitment {
        /// What was asked for.
        asked: &'static str,
        /// The commitment of the archive.
        commitment: Commitment,
    },
    /// The changes of a block are none of a state that the commitment of the archive is of, such as a slot of an account that is not
    /// there.
    #[error("block {block} has no state of the commitment {commitment}: {reason}")]
    NoState {
        /// The height of the block.
        block: BlockNumber,
        /// The commitment of the archive.
        commitment: Commitment,
        /// What is wrong.
        reason: String,
    },
    /// The state after a block does not have the root that [`BlockWriter::expect_root`](crate::BlockWriter::expect_root) was given. A block
    /// that was to be committed was not.
    #[error("the root of block {block} is {found}, not {expected} as expected")]
    UnexpectedRoot {
        /// The height of the block.
        block: BlockNumber,
        /// The root that was expected, in hex.
        expected: String,
        /// The root that the block gives, in hex.
        found: String,
    },
    /// The state that was read does not have the root recorded for it: a segment is damaged or incomplete.
    #[error("root of block {block} does not match the state expected={expected} found={found}")]
    RootMismatch {
        /// The height.
        block: BlockNumber,
        /// The recorded root, in hex.
        expected: String,
        /// The root of the state that was read, in hex.
        found: String,
    },
    /// No root was found for a block that the archive holds: a segment of roots is damaged or incomplete.
    #[error("no root recorded for block {block}")]
    RootMissing {
        /// The height.
        block: BlockNumber,
    },
    /// The changes that were read of a block are not those recorded for it: a segment is damaged or incomplete.
    #[error("the changes of block {block} are not those that were recorded")]
    DigestMismatch {
        /// The height.
        block: BlockNumber,
    },
    /// A record that was read is none of its domain: whoever wrote it wrote something else, or a segment is damaged.
    #[error("a record of {domain} in the state of block {block} is none")]
    RecordDamaged {
        /// The name of the domain.
        domain: &'static str,
        /// The height.
        block: BlockNumber,
    },
    /// A node that is kept of the tree at every block, or should be, is not what the state of the block says: the state has the recorded
    /// root. [`Archive::build_rows`](crate::Archive::build_rows) builds those of Ethereum anew.
    #[error("{}: {node} is not what the state of block {block} says", path.display())]
    NodeDamaged {
        /// The file.
        path: PathBuf,
        /// Which node.
        node: String,
        /// The height.
        block: BlockNumber,
    },
    /// The Merkle nodes kept at a snapshot do not fit its state: a segment of nodes is incomplete.
    #[error("the snapshot of block {block} does not fit the state")]
    SnapshotDamaged {
        /// The height.
        block: BlockNumber,
    },
    /// Complete steps pile up in memory because emission fails. The block was not committed, or the merge or reindex left segments
    /// as they were; nothing else is lost, and all goes on as soon as the cause is gone.
    #[error("held up while complete steps cannot be written to files: {since}")]
    HeldUp {
        /// Why emission failed at its last attempt, in one line.
        since: String,
        /// What to do about that.
        cause: ErrorKind,
    },
    /// A write or sync of the log failed while a block was committed. The block is in the log, whole and durable, or it is not:
    /// the head tells after the archive was opened again. Until then it refuses writes. Every other error of a commit means that
    /// the block was not committed.
    #[error("block {height} may or may not be committed, open the archive again to learn which")]
    CommitUnknown {
        /// The height of the block.
        height: BlockNumber,
        /// The failure of the log.
        source: Box<Error>,
    },
    /// Work on files was not begun, because the file system has too little space for what it writes.
    #[error("{task} needs {needed} bytes, {} has {free} free", path.display())]
    NoRoom {
        /// The work, such as a merge.
        task: String,
        /// The directory of the archive.
        path: PathBuf,
        /// Bytes it may write before it frees any.
        needed: u64,
        /// Bytes free on the file system.
        free: u64,
    },
    /// A bucket or an object in it.
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Remote(#[from] crate::remote_error::RemoteError),
    /// An earlier write or sync failed and left the disk in doubt. The archive answers reads and refuses writes. Mend the cause,
    /// drop the [`Archive`](crate::Archive) and open it again; readers cloned from it get [`Error::Closed`] then.
    #[error("writes are refused since an earlier failure: {since}")]
    Poisoned {
        /// That failure and its causes, in one line.
        since: String,
        /// What to do about it before opening again.
        cause: ErrorKind,
    },
}

/// The heights that can be read: part of [`Error::OutOfRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Available {
    /// None: the archive has no block.
    Nothing,
    /// From the first height to the second, both included.
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

impl Error {
    /// Whether a fresh accessor cures the error. A newer format or a system that refuses is not cured by it.
    pub(crate) fn is_cured_by_rebuild(&self) -> bool {
        use icecore_segments::Error::{Corrupt, Mismatch};
        matches!(self, Self::Missing { .. } | Self::File { source: Corrupt(_) | Mismatch { .. }, .. })
    }

    /// Whether a read does without the accessor that gave the error: it is damaged or missing, or the system refuses to let it be read, as
    /// without a permission or from a bad disk. Where memory, handles or space are short the next file fares no better.
    pub(crate) fn is_of_accessor_alone(&self) -> bool {
        self.is_cured_by_rebuild() || matches!(self, Self::Io { .. }) && self.kind() == ErrorKind::Environment
    }

    /// What to do about it. [`ErrorKind`] has the table.
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
            | Self::RecordDamaged { .. }
            | Self::NodeDamaged { .. }
            | Self::SnapshotDamaged { .. } => ErrorKind::Corrupt,
            Self::NotHeld { .. } => ErrorKind::NotHeld,
            Self::NotAnArchive { .. } | Self::Unfinished { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::AlreadyExists,
            Self::Locked { .. } | Self::KeepsChanging { .. } => ErrorKind::Busy,
            Self::OutOfRange { .. } | Self::Empty => ErrorKind::OutOfRange,
            Self::NotRising { .. }
            | Self::StaleBlock { .. }
            | Self::TooHigh { .. }
            | Self::InsideArchive { .. }
            | Self::Commitment { .. }
            | Self::NoState { .. }
            | Self::UnexpectedRoot { .. }
            | Self::UnknownDomain { .. }
            | Self::KeyLength { .. }
            | Self::TooLarge { .. }
            | Self::Partial { .. }
            | Self::NoRange { .. }
            | Self::Options { .. } => ErrorKind::Misuse,
            Self::NoRoom { .. } => ErrorKind::NoSpace,
            #[cfg(feature = "object-store")]
            Self::Remote(error) => kind_of_remote(error),
            Self::CommitUnknown { source, .. } => source.kind(),
            // Of a poisoned archive these causes must be known for what they are, or opening again fails as well.
            Self::HeldUp { cause, .. }
            | Self::Poisoned { cause: cause @ (ErrorKind::NoSpace | ErrorKind::Limit), .. } => *cause,
            Self::Poisoned { .. } | Self::Replaced { .. } | Self::Closed { .. } => ErrorKind::Closed,
        }
    }
}

#[cfg(feature = "object-store")]
fn kind_of_remote(error: &crate::remote_error::RemoteError) -> ErrorKind {
    use crate::remote_error::RemoteError as R;
    match error {
        R::Gone { .. } | R::Collected { .. } | R::Damaged { .. } | R::Untrusted { .. } => ErrorKind::Corrupt,
        R::Unsupported { .. } => ErrorKind::Unsupported,
        R::Url { .. }
        | R::OtherArchive { .. }
        | R::Key { .. }
        | R::OtherSigner { .. }
        | R::Behind { .. }
        | R::Diverged { .. }
        | R::Pruned { .. } => ErrorKind::Misuse,
        R::NoArchive { .. } | R::NoGeneration { .. } => ErrorKind::NotFound,
        R::Lost { .. } => ErrorKind::Busy,
        R::Full { .. } | R::DiskFull { .. } | R::CacheFull { .. } | R::CacheTooSmall { .. } => {
            ErrorKind::NoSpace
        }
        _ => ErrorKind::Environment,
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
