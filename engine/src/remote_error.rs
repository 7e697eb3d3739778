//! What goes wrong between an archive and a bucket: which object, why, and what to do about it.

use std::path::PathBuf;

use icecore_segments::Error as FileError;

/// Why a call on a [`remote`](crate::remote) bucket failed: part of [`Error::Remote`](crate::Error::Remote).
///
/// Texts are one line each, name the object, and hold no credentials. [`RemoteError::remedy`] says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The URL or an option of the bucket makes no sense.
    #[error("not a bucket: {reason}")]
    Url {
        /// What is wrong with it. The URL is not repeated: it may hold a secret.
        reason: String,
    },
    /// The store did not answer, or failed, also when the request was repeated.
    #[error("cannot {operation} {object}: {cause}")]
    Request {
        /// What was tried: `get`, `put`, `list`, `remove` or `look at`.
        operation: &'static str,
        /// The object or prefix.
        object: String,
        /// The last failure.
        cause: String,
    },
    /// The store refused the credentials, or they do not permit this.
    #[error("not permitted to {operation} {object}: {cause}")]
    Denied {
        /// What was tried.
        operation: &'static str,
        /// The object or prefix.
        object: String,
        /// The store's word.
        cause: String,
    },
    /// The disk of a folder that is a bucket has no room left.
    #[error("no space is left for {object}")]
    Full {
        /// The object.
        object: String,
    },
    /// An object that a manifest names is not there.
    #[error("{object} is not there")]
    Gone {
        /// The object.
        object: String,
    },
    /// A push published, while a collection ran, what this removed at the same moment.
    #[error("{objects} objects that a push published at this moment were removed from {bucket}")]
    Collected {
        /// The URL.
        bucket: String,
        /// How many.
        objects: u64,
    },
    /// An object does not have the bytes that it should have.
    #[error("{object} is damaged: {reason}")]
    Damaged {
        /// The object.
        object: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// An object has a newer format than this build reads.
    #[error("{object} has format version {found}, this build reads up to {supported}")]
    Unsupported {
        /// The object.
        object: String,
        /// Its version.
        found: u64,
        /// The newest that this build reads.
        supported: u64,
    },
    /// The bucket has no archive of that name.
    #[error("{bucket} has no archive `{archive}`")]
    NoArchive {
        /// The URL.
        bucket: String,
        /// The name.
        archive: String,
    },
    /// The bucket has another archive under that name.
    #[error("{bucket} has another archive under the name `{archive}`")]
    OtherArchive {
        /// The URL.
        bucket: String,
        /// The name.
        archive: String,
    },
    /// What was given as a key is none that can be used.
    #[error("cannot use the key: {reason}")]
    Key {
        /// Why. Nothing of a secret key is repeated.
        reason: String,
    },
    /// The key that the bucket was opened with did not sign this.
    #[error("{object} is not to be trusted: {reason}")]
    Untrusted {
        /// The object.
        object: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The newest generation is signed, and this push is not, or by another key.
    #[error("the newest generation of {bucket} is signed by key {signer}, this push {ours}")]
    OtherSigner {
        /// The URL.
        bucket: String,
        /// The id of the key that signed it.
        signer: String,
        /// How this push differs.
        ours: String,
    },
    /// The bucket has steps that the archive to be pushed does not have.
    #[error("{bucket} has blocks up to step {theirs}, this archive up to step {ours}")]
    Behind {
        /// The URL.
        bucket: String,
        /// The first step that the bucket does not have.
        theirs: u64,
        /// The first step that the archive does not have in segments.
        ours: u64,
    },
    /// The newest generation has another block than the archive to be pushed, or one of them has none at that height.
    #[error("{bucket} has another block {block} than this archive")]
    Diverged {
        /// The URL.
        bucket: String,
        /// The first such height.
        block: u64,
    },
    /// The newest generation has blocks before the first of the archive to be pushed.
    #[error("{bucket} has blocks from {theirs} on, this archive from {ours} on")]
    Pruned {
        /// The URL.
        bucket: String,
        /// The first block of the newest generation.
        theirs: u64,
        /// The first block of the archive.
        ours: u64,
    },
    /// Another pusher published a generation first. Nothing of this push is visible.
    #[error("another pusher published generation {generation} of {bucket} first")]
    Lost {
        /// The URL.
        bucket: String,
        /// The generation.
        generation: u64,
    },
    /// The store lets two requests create the same object, so that two pushers could overwrite each other.
    #[error("{bucket} ignores that an object is to be created once")]
    Unconditional {
        /// The URL.
        bucket: String,
    },
    /// The generation was never published, or its objects were collected.
    #[error("{bucket} has no generation {generation}, the newest is {newest}")]
    NoGeneration {
        /// The URL.
        bucket: String,
        /// The generation asked for.
        generation: u64,
        /// The newest.
        newest: u64,
    },
    /// What was read cannot be kept in the cache.
    #[error("cannot keep what was read of a bucket: {cause}")]
    Cache {
        /// The system's word.
        cause: String,
    },
    /// The disk of the cache has no room left.
    #[error("no space is left on the disk of the cache at {}", dir.display())]
    DiskFull {
        /// The folder.
        dir: PathBuf,
    },
    /// One read needs more than the cache may take, or reads that are under way take all of it.
    #[error("the cache at {} is full: its size is {size} bytes", dir.display())]
    CacheFull {
        /// The folder.
        dir: PathBuf,
        /// Bytes that it may take.
        size: u64,
    },
    /// Opening the archive alone fills the cache: it has a header and a tail of each file.
    #[error(
        "the cache at {} is too small for this archive: its size is {size} bytes, it needs {needed}",
        dir.display()
    )]
    CacheTooSmall {
        /// The folder.
        dir: PathBuf,
        /// Bytes that it may take.
        size: u64,
        /// Bytes that are enough to open the archive and read a little.
        needed: u64,
    },
    /// The system gave no thread for requests, or one ended.
    #[error("cannot work on requests: {cause}")]
    Runtime {
        /// The system's word.
        cause: String,
    },
}

impl RemoteError {
    /// Why bytes could not be brought, where an error of a file says that.
    pub(crate) fn out_of(error: FileError) -> Result<Self, FileError> {
        let FileError::Absent(cause) = error else { return Err(error) };
        cause.downcast().map(|error| *error).map_err(FileError::Absent)
    }

    /// What to do about it, in one line.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Url { .. } => {
                "name a bucket as s3://BUCKET/PREFIX or file:///FOLDER; keys and regions come from AWS_* or the profile, another \
                 server from --endpoint"
            }
            Self::Request { .. } => {
                "check the network, the endpoint, the region and the name of the bucket, and repeat the command: it resumes. On a slow line \
                 try fewer --jobs, of a slow server allow a longer --timeout"
            }
            Self::Denied { .. } => {
                "renew the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or AWS_PROFILE), have this \
                 permitted, or, where the time is too skewed, set the clock of this machine; and repeat the command: it resumes"
            }
            Self::Full { .. } => "make room on that disk and repeat the command: it resumes",
            Self::Gone { .. } => {
                "if it was collected, repeat the command to use the newest generation; else push again from the archive"
            }
            Self::Damaged { .. } => {
                "repeat the command in case the transfer was damaged; if it stays, `icecore remote verify` lists all damage: \
                 remove the damaged objects and push again from the archive, which sends what is missing"
            }
            Self::Collected { .. } => {
                "push again from the archive, which sends what is missing; `icecore remote verify` tells what is"
            }
            Self::Unsupported { .. } => "it was pushed by a newer icecore: use that one",
            Self::NoArchive { .. } => {
                "`icecore remote ls URL` lists what the bucket has; --archive chooses one; check the URL"
            }
            Self::OtherArchive { .. } => "choose another prefix, or another name with --archive",
            Self::Key { .. } => {
                "`minisign -G` makes a pair of keys: --sign takes the secret one, --pubkey the public one, as a file or as its second \
                 line; ICECORE_SIGN_PASSWORD may have the password"
            }
            Self::Untrusted { .. } => {
                "do not use it: somebody else wrote to the bucket, or the key is not that of its owner; --generation N takes an older \
                 generation that is signed"
            }
            Self::OtherSigner { .. } => {
                "repeat with --sign and the key that signed it; or, where the signer changes on purpose, with --allow-signer-change"
            }
            Self::Behind { .. } => {
                "push from the archive that is ahead; or, where blocks were unwound on purpose, repeat with --allow-rewind"
            }
            Self::Diverged { .. } => {
                "push from the archive that was pushed before, or to another prefix or --archive; or, where a reorganisation replaced these \
                 blocks on purpose, repeat with --allow-rewind"
            }
            Self::Pruned { .. } => {
                "push to another prefix or --archive, and the published blocks stay; or, where they were pruned on purpose, repeat with \
                 --allow-rewind"
            }
            Self::Lost { .. } => {
                "let one process push an archive; repeat the command to push on top of that generation"
            }
            Self::Unconditional { .. } => {
                "use a store that honours `If-None-Match: *` on PUT, as S3, R2, MinIO and versitygw do"
            }
            Self::NoGeneration { .. } => "`icecore remote ls URL` tells the newest generation",
            Self::Cache { .. } | Self::DiskFull { .. } => {
                "make room on that disk, choose another folder with --cache, or let it take less with --cache-size"
            }
            Self::CacheFull { .. } => "allow more with --cache-size, or read less at a time",
            Self::CacheTooSmall { .. } => {
                "allow as much with --cache-size; an archive that was merged has fewer files, and needs less"
            }
            Self::Runtime { .. } => "free some memory or threads and repeat the command",
        }
    }
}
