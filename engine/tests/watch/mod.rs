//! A storage that shows a test every operation before it happens, and lets the test refuse it.

#![allow(dead_code, reason = "each test uses the part it needs")]

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};
use icecore::{Error, Operation};

/// Sees an operation that is about to happen. The path of a rename is the new one.
pub(crate) trait Watch: Send + Sync + 'static {
    /// An error is what the operation then returns.
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error>;

    /// What the file system says it has left.
    fn free_space(&self) -> Option<u64> {
        None
    }

    /// Bytes were appended to a temporary file, which has no name.
    fn spooled(&self, _bytes: u64) {}
}

impl<F: Fn(Operation, &Path) -> Result<(), Error> + Send + Sync + 'static> Watch for F {
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error> {
        self(operation, path)
    }
}

/// A full disk, as the system reports it.
pub(crate) fn no_space(operation: Operation, path: &Path) -> Error {
    Error::Io { operation, path: path.to_owned(), source: io::ErrorKind::StorageFull.into() }
}

/// See the module.
pub(crate) struct Watched<S, W> {
    pub(crate) storage: S,
    pub(crate) watch: Arc<W>,
}

impl<S: Storage, W: Watch> Watched<S, W> {
    pub(crate) fn new(storage: S, watch: W) -> Arc<Self> {
        Arc::new(Self { storage, watch: Arc::new(watch) })
    }

    fn file(&self, path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        let watch: Arc<dyn Watch> = Arc::clone(&self.watch) as _;
        Box::new(WatchedFile { file, watch, path: path.to_owned() })
    }
}

impl<S: fmt::Debug, W> fmt::Debug for Watched<S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.storage)
    }
}

impl<S: Storage, W: Watch> Storage for Watched<S, W> {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        self.storage.create_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        self.watch.before(Operation::List, dir)?;
        self.storage.list(dir)
    }
    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        self.storage.len(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        self.watch.before(Operation::Create, path)?;
        Ok(self.file(path, self.storage.create(path)?))
    }
    fn append(&self, path: &Path, unsure: std::ops::Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        self.watch.before(Operation::Open, path)?;
        Ok(self.file(path, self.storage.append(path, unsure)?))
    }
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        self.watch.before(Operation::Read, path)?;
        self.storage.read(path)
    }
    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        self.watch.before(Operation::Open, path)?;
        self.storage.open(path)
    }
    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error> {
        self.watch.before(Operation::Read, path)?;
        self.storage.map(path, access)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        self.watch.before(Operation::Create, to)?;
        self.storage.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.watch.before(Operation::Rename, to)?;
        self.storage.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.watch.before(Operation::Remove, path)?;
        self.storage.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        self.watch.before(Operation::Sync, dir)?;
        self.storage.sync_dir(dir)
    }
    fn free_space(&self, _: &Path) -> Result<Option<u64>, Error> {
        Ok(self.watch.free_space())
    }
    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        let watch: Arc<dyn Watch> = Arc::clone(&self.watch) as _;
        Ok(Box::new(WatchedSpool { spool: self.storage.spool(dir)?, watch }))
    }
    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        self.storage.lock(dir)
    }
    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        self.storage.is_locked(dir)
    }
}

struct WatchedSpool {
    spool: Box<dyn SpoolFile>,
    watch: Arc<dyn Watch>,
}

impl SpoolFile for WatchedSpool {
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        self.watch.spooled(bytes.len() as u64);
        self.spool.append(bytes)
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.spool.read_at(offset, buf)
    }
}

/// A file whose writes are seen as they leave its buffer.
struct WatchedFile {
    file: Box<dyn WriteFile>,
    watch: Arc<dyn Watch>,
    path: PathBuf,
}

impl Write for WatchedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch.before(Operation::Write, &self.path).map_err(|error| match error {
            Error::Io { source, .. } => source,
            other => io::Error::other(other),
        })?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for WatchedFile {
    fn sync(&mut self) -> Result<(), Error> {
        self.watch.before(Operation::Sync, &self.path)?;
        self.file.sync()
    }
}
