//! The interface between the engine and a disk: every file operation that the engine needs, and what each promises.
//!
//! [`OsStorage`](os::OsStorage) is the real file system; `testing::SimStorage` loses what was not synced and fails at any
//! operation that a test names. Nothing else in the crate opens, maps, syncs, renames or removes a file. Errors get their path
//! here and nowhere else.
//!
//! Durability: bytes survive a power loss after [`WriteFile::sync`]; a name (created, renamed, removed) survives after
//! [`Storage::sync_dir`] of its directory. A rename replaces its target as a whole or not at all.

pub(crate) mod directory;
pub(crate) mod layout;
pub mod map;
pub(crate) mod memory;
pub mod os;
pub(crate) mod regular;
pub(crate) mod reserve;
#[cfg(feature = "object-store")]
pub(crate) mod sparse;
pub(crate) mod write_behind;

use std::fmt;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Operation};
pub use map::{Access, Mapping};
pub(crate) use memory::physical_memory;

/// The file system as the engine uses it: implement it to put an archive elsewhere, or to inject faults.
/// [`OsStorage`](os::OsStorage) is the real one. Paths are complete; the engine composes them.
///
/// Errors are [`Error::Io`] with the operation and the path, unless a method says otherwise. The feature `testing` has a
/// simulated disk, and a test of every promise made here.
pub trait Storage: Send + Sync + fmt::Debug + 'static {
    /// Creates a directory and those above it. One that exists is not an error.
    fn create_dir(&self, path: &Path) -> Result<(), Error>;

    /// The canonical path of a file or directory, links resolved; `None` where it does not exist. A storage without links may return
    /// the path as it is.
    fn canonical(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        Ok(Some(path.to_owned()))
    }

    /// The names of the files in a directory, sorted; `None` where the directory does not exist.
    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error>;

    /// The length of a file in bytes; `None` where it does not exist.
    fn len(&self, path: &Path) -> Result<Option<u64>, Error>;

    /// Creates a file for writing. Fails where one of that name exists.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error>;

    /// Opens an existing file for appending, cut off at the end of `unsure`.
    ///
    /// The bytes of `unsure` are rewritten as they are. An earlier sync of them may have failed, and then the system may go on
    /// showing bytes that it will never write, whatever later syncs report.
    fn append(&self, path: &Path, unsure: Range<u64>) -> Result<Box<dyn WriteFile>, Error>;

    /// Reads a whole file, a small one, into memory; `None` where it does not exist.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error>;

    /// Opens a file for reading that another process may append to or replace; `None` where it does not exist.
    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error>;

    /// Maps a file that is never written again.
    ///
    /// # Errors
    /// [`Error::Missing`] where it does not exist.
    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error>;

    /// The longest accessor in bytes that is not mapped but read when it is first used, which saves mappings where there are thousands
    /// of small ones.
    fn read_whole_max(&self) -> u64 {
        64 << 10
    }

    /// Makes a hard link `to` a file, under a name that is free; `false` where the file system cannot, across file systems or for
    /// want of hard links.
    ///
    /// # Errors
    /// [`Error::Missing`] where the file does not exist.
    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error>;

    /// Renames a file, atomically replacing one that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Removes a file. One that does not exist is not an error.
    fn remove(&self, path: &Path) -> Result<(), Error>;

    /// Makes the entries of a directory durable: files created, renamed and removed.
    fn sync_dir(&self, dir: &Path) -> Result<(), Error>;

    /// The free bytes of the file system that a directory is on; `None` where they are not known.
    fn free_space(&self, dir: &Path) -> Result<Option<u64>, Error> {
        let _ = dir;
        Ok(None)
    }

    /// Creates a nameless temporary file in `dir`, gone when dropped.
    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error>;

    /// Takes the writer's lock of a directory and holds it until the value is dropped. The lock of a killed process is free.
    ///
    /// # Errors
    /// [`Error::Locked`] while it is held, in this process or another.
    fn lock(&self, dir: &Path) -> Result<DirLock, Error>;

    /// Whether the writer's lock of a directory is held.
    fn is_locked(&self, dir: &Path) -> Result<bool, Error>;
}

/// A file open for appending: part of [`Storage`].
pub trait WriteFile: Write + Send {
    /// Makes all bytes written so far durable.
    ///
    /// After a failure the bytes may be lost although a later sync succeeds, so the caller must not retry
    /// (Rebello et al., ATC '20): it refuses further writes.
    fn sync(&mut self) -> Result<(), Error>;
}

/// A file open for reading by position: part of [`Storage`]. Its bytes stay readable until it is dropped, whatever becomes of its
/// name.
pub trait ReadFile: Send + Sync {
    /// The current length in bytes.
    fn len(&self) -> Result<u64, Error>;

    /// Whether the file is empty now.
    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// Reads from `offset` into `buf` and returns the number of bytes read: fewer than fit only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error>;

    /// Whether `path` still names this file, and not one that replaced it.
    fn is_at(&self, path: &Path) -> Result<bool, Error>;
}

/// A temporary file, appended to and read back: part of [`Storage`].
pub trait SpoolFile: Send {
    /// Appends bytes and returns the offset at which they begin.
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error>;

    /// Fills `buf` with the bytes from `offset`.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;
}

/// The writer's lock of a directory, held until it is dropped: part of [`Storage`].
pub struct DirLock(
    #[expect(dead_code, reason = "held for its drop, which releases the lock")] Box<dyn Send + Sync>,
);

impl DirLock {
    /// Wraps a guard that releases the lock when dropped.
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
