//! What to do about an error: the few classes that programs tell apart.

/// What to do about an [`Error`](crate::Error): what a program decides by, where the text of the error is for people.
///
/// Which error has which kind, what became of the block when [`BlockWriter::commit`](crate::BlockWriter::commit) gives it, and whether
/// the archive has to be reopened before it takes writes again:
///
/// | [`Error`](crate::Error) | kind | the block | reopen |
/// |---|---|---|---|
/// | [`Io`](crate::Error::Io) | [`NoSpace`](Self::NoSpace) on a full disk or quota, [`Limit`](Self::Limit) where a limit on open files or mappings was met, else [`Environment`](Self::Environment) | not committed | if poisoned |
/// | [`File`](crate::Error::File) | [`Unsupported`](Self::Unsupported) for a newer format; for a failed write as `Io`; else [`Corrupt`](Self::Corrupt) | not committed | if poisoned |
/// | [`Damaged`](crate::Error::Damaged), [`Missing`](crate::Error::Missing), [`RootMismatch`](crate::Error::RootMismatch), [`RootMissing`](crate::Error::RootMissing), [`DigestMismatch`](crate::Error::DigestMismatch), [`RecordDamaged`](crate::Error::RecordDamaged), [`NodeDamaged`](crate::Error::NodeDamaged), [`SnapshotDamaged`](crate::Error::SnapshotDamaged) | [`Corrupt`](Self::Corrupt) | not committed | if poisoned |
/// | [`Unsupported`](crate::Error::Unsupported) | [`Unsupported`](Self::Unsupported) | not committed | no |
/// | [`NotRising`](crate::Error::NotRising), [`StaleBlock`](crate::Error::StaleBlock), [`TooHigh`](crate::Error::TooHigh), [`TooLarge`](crate::Error::TooLarge), [`UnknownDomain`](crate::Error::UnknownDomain), [`KeyLength`](crate::Error::KeyLength), [`NoState`](crate::Error::NoState), [`UnexpectedRoot`](crate::Error::UnexpectedRoot) | [`Misuse`](Self::Misuse) | not committed | no |
/// | [`Options`](crate::Error::Options), [`Commitment`](crate::Error::Commitment), [`InsideArchive`](crate::Error::InsideArchive), [`Partial`](crate::Error::Partial), [`NoRange`](crate::Error::NoRange) | [`Misuse`](Self::Misuse) | | no |
/// | [`OutOfRange`](crate::Error::OutOfRange), [`Empty`](crate::Error::Empty) | [`OutOfRange`](Self::OutOfRange) | | no |
/// | [`NotHeld`](crate::Error::NotHeld) | [`NotHeld`](Self::NotHeld) | | no |
/// | [`NotAnArchive`](crate::Error::NotAnArchive), [`Unfinished`](crate::Error::Unfinished) | [`NotFound`](Self::NotFound) | | |
/// | [`Exists`](crate::Error::Exists) | [`AlreadyExists`](Self::AlreadyExists) | | |
/// | [`Locked`](crate::Error::Locked), [`KeepsChanging`](crate::Error::KeepsChanging) | [`Busy`](Self::Busy) | | |
/// | [`HeldUp`](crate::Error::HeldUp) | that of the emission that fails | not committed | no |
/// | [`NoRoom`](crate::Error::NoRoom) | [`NoSpace`](Self::NoSpace) | | no |
/// | [`CommitUnknown`](crate::Error::CommitUnknown) | that of the log write that failed | **unknown**: the head after reopening tells | yes |
/// | [`Poisoned`](crate::Error::Poisoned) | [`NoSpace`](Self::NoSpace) or [`Limit`](Self::Limit) where that was the failure, else [`Closed`](Self::Closed) | not committed | yes |
/// | [`Closed`](crate::Error::Closed), [`Replaced`](crate::Error::Replaced) | [`Closed`](Self::Closed) | | yes |
///
/// *If poisoned*: [`Archive::is_poisoned`](crate::Archive::is_poisoned) tells. As long as it is `false`, the call can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes on disk are wrong or missing. [`verify`](crate::verify) lists all damage; accessors are rebuilt by
    /// [`ReindexRule::Rebuild`](crate::ReindexRule::Rebuild), anything else comes back from a copy.
    Corrupt,
    /// The format is newer than this build. Use a newer one.
    Unsupported,
    /// The system refused: mend the disk, the permissions or the path, and repeat the call.
    Environment,
    /// The disk is full, or a quota is used up. Free space and repeat the call; [`Archive::prune`](crate::Archive::prune)
    /// works on a full disk.
    NoSpace,
    /// The system grants no more open files or mappings. Raise `ulimit -n`, `fs.file-max`, `vm.max_map_count` or `ulimit -v`,
    /// or merge segments; the text of the error names the limit that was met.
    Limit,
    /// The call is wrong, or does not fit the archive. Repeating it does not help.
    Misuse,
    /// The height cannot be read. [`Reader::range`](crate::Reader::range) says which can; before the first block, none.
    OutOfRange,
    /// The archive is a partial copy, and this needs more of it than it holds. The text of the error has the `icecore pull` that brings it.
    NotHeld,
    /// There is no archive at the path, or not yet: create one, wait for whoever does, or mend the path.
    NotFound,
    /// The directory is not empty, so nothing is created there: open what is there, or choose another.
    AlreadyExists,
    /// Another writer has the archive, or changes it faster than it can be opened. Try again later.
    Busy,
    /// The handle is of no more use, or for reading only. Drop it and open the archive again.
    Closed,
}
