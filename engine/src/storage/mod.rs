//! The one seam between the engine and a disk: every file operation the engine needs, each with what it promises.
//!
//! [`OsStorage`](os::OsStorage) is the real one; `testing::SimStorage` forgets what was not synced and fails at
//! any operation that a test names. Nothing else in the crate opens, maps, syncs, renames or removes a file. Errors
//! get their path here and nowhere else.
//!
//! Durability: bytes survive a power loss after [`WriteFile::sync`]; a name (created, renamed, removed) survives after
//! [`Storage::sync_dir`] of its directory. A rename replaces its target as a whole or not at all.

pub(crate) mod directory;
pub(crate) mod layout;
pub mod map;
pub(crate) mod memory;
pub mod os;
pub(crate) mod reserve;

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Operation};
pub use map::{Access, Mapping};
pub(crate) use memory::physical_memory;

/// A file system as the engine uses it. Paths are whole; the engine composes them.
pub trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Creates a directory and those above it; one that exists is no error.
    fn create_dir(&self, path: &Path) -> Result<(), Error>;

    /// The one path of a file or directory, whatever links lead there; `None` where there is none. A storage without links may say
    /// that any path is the one.
    fn canonical(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        Ok(Some(path.to_owned()))
    }

    /// The names of the files in a directory, sorted; `None` where there is no such directory.
    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error>;

    /// The length of a file in bytes; `None` where there is none.
    fn len(&self, path: &Path) -> Result<Option<u64>, Error>;

    /// Creates a new file for writing. A file of that name must not exist.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error>;

    /// Opens an existing file, cuts it to the end of `unsure` and goes on writing there.
    ///
    /// The bytes of `unsure` are written again as they are: a sync of them may have failed, and then the system may go on showing
    /// bytes that it will not write, whatever later syncs say.
    fn append(&self, path: &Path, unsure: Range<u64>) -> Result<Box<dyn WriteFile>, Error>;

    /// Reads a whole small file (manifest, log, small accessor) into memory; `None` where there is none.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error>;

    /// Opens a file for reading that another process may append to or replace; `None` where there is none.
    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error>;

    /// Maps a file that nobody writes any more.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is none.
    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error>;

    /// Gives a file a second name, which nothing has; `false` where the file system does not, because it is another one or has
    /// no hard links.
    ///
    /// # Errors
    /// [`Error::Missing`] where there is no such file.
    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error>;

    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &Path) -> Result<(), Error>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<(), Error>;

    /// The bytes that can still be written to the file system of a directory; `None` where that is not known.
    fn free_space(&self, dir: &Path) -> Result<Option<u64>, Error> {
        let _ = dir;
        Ok(None)
    }

    /// A nameless temporary file in `dir`, gone when dropped.
    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error>;

    /// Takes the writer's lock of a directory, held until the value is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`] when another holder has it, in this process or another.
    fn lock(&self, dir: &Path) -> Result<DirLock, Error>;

    /// Whether somebody holds the writer's lock of a directory.
    fn is_locked(&self, dir: &Path) -> Result<bool, Error>;
}

/// A file being written, from its end only.
pub trait WriteFile: Write + Send {
    /// Makes all bytes written so far durable.
    ///
    /// After a failure the bytes may be lost although a later sync succeeds, so the caller must not retry
    /// (Rebello et al., ATC '20): it refuses further writes.
    fn sync(&mut self) -> Result<(), Error>;
}

/// An open file, read by position. Its bytes stay until it is dropped, whatever happens to its name.
pub trait ReadFile: Send + Sync {
    /// The length in bytes now.
    fn len(&self) -> Result<u64, Error>;

    /// Whether it has no byte now.
    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset` and returns how many bytes there were: fewer than asked for at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error>;

    /// Whether `path` names this very file and not one that took its place.
    fn is_at(&self, path: &Path) -> Result<bool, Error>;
}

/// A temporary file: appended to, then read back.
pub trait SpoolFile: Send {
    /// Appends bytes and returns the offset where they begin.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error>;

    /// Fills `buf` from `offset`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;
}

/// The proof that this process is the only writer of a directory.
pub struct DirLock(
    #[expect(dead_code, reason = "held for its drop, which releases the lock")] Box<dyn Send + Sync>,
);

impl DirLock {
    /// Wraps whatever releases the lock when dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}

/// Bytes read and written at once where a file is copied.
const COPY_BUFFER: usize = 1 << 20;

/// Copies the bytes that a file has now, durably.
pub(crate) fn copy_file(storage: &dyn Storage, source: &Path, target: &Path) -> Result<u64, Error> {
    let file = storage.open(source)?.ok_or_else(|| Error::Missing { path: source.to_owned() })?;
    let mut out = storage.create(target)?;
    let len = file.len()?;
    let (mut buffer, mut at) = (vec![0; COPY_BUFFER], 0);
    while at < len {
        let part = buffer.len().min((len - at) as usize);
        let read = file.read_at(at, &mut buffer[..part])?;
        if read == 0 {
            break;
        }
        let written = out.write_all(&buffer[..read]);
        let operation = Operation::Write;
        written.map_err(|source| Error::Io { operation, path: target.to_owned(), source })?;
        at += read as u64;
    }
    out.sync()?;
    Ok(at)
}
