//! The disk with a counter beside it: what is asked of it that a power loss would need, and how often.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore::Error;
use icecore::storage::os::OsStorage;
use icecore::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};

/// The disk of the system, counted.
#[derive(Debug, Default)]
pub(super) struct CountingStorage {
    counts: Arc<Counts>,
    /// Nothing is made durable: for an archive that is built to be measured and thrown away.
    unsynced: bool,
}

/// How often what was done.
#[derive(Debug, Default)]
pub(super) struct Counts {
    syncs: AtomicU64,
    manifests: AtomicU64,
}

impl CountingStorage {
    /// One that makes nothing durable.
    pub(super) fn unsynced() -> Arc<Self> {
        Arc::new(Self { unsynced: true, ..Self::default() })
    }

    /// Syncs of files and directories, and manifests that were put in place, so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.counts.syncs.load(Ordering::Relaxed), self.counts.manifests.load(Ordering::Relaxed))
    }

    fn file(&self, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(CountingFile { file, counts: Arc::clone(&self.counts), unsynced: self.unsynced })
    }
}

impl Storage for CountingStorage {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        OsStorage.create_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        OsStorage.list(dir)
    }

    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        OsStorage.len(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        Ok(self.file(OsStorage.create(path)?))
    }

    fn append(&self, path: &Path, unsure: std::ops::Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        Ok(self.file(OsStorage.append(path, unsure)?))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        OsStorage.read(path)
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        OsStorage.open(path)
    }

    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error> {
        OsStorage.map(path, access)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        OsStorage.link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        // The manifest is the only file that is written beside its place and renamed into it.
        self.counts.manifests.fetch_add(1, Ordering::Relaxed);
        OsStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        OsStorage.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        if self.unsynced { Ok(()) } else { OsStorage.sync_dir(dir) }
    }

    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        OsStorage.spool(dir)
    }

    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        OsStorage.lock(dir)
    }

    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        OsStorage.is_locked(dir)
    }
}

struct CountingFile {
    file: Box<dyn WriteFile>,
    counts: Arc<Counts>,
    unsynced: bool,
}

impl Write for CountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for CountingFile {
    fn sync(&mut self) -> Result<(), Error> {
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        if !self.unsynced {
            return self.file.sync();
        }
        // What was written must be with the system all the same, since others map the file.
        self.file.flush().map_err(|source| Error::Io {
            operation: icecore::Operation::Write,
            path: std::path::PathBuf::new(),
            source,
        })
    }
}
