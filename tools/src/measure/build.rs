//! Builds a segment by the engine's writer and tells the time that writing took from the time that syncing took.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use icecore::Error;
use icecore::measure::{LoneSegment, SegmentSpec};
use icecore::storage::os::OsStorage;
use icecore::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};
use icecore_segments::Entry;

/// What was built, and how long it took.
#[derive(Clone, Debug)]
pub struct Built {
    /// The segment.
    pub segment: LoneSegment,
    /// Until the system had every byte of the three files.
    pub pass: Duration,
    /// Until every byte was on the disk.
    pub sync: Duration,
}

/// Builds a segment from entries in order in a directory that has none of its files. `keys_max` is an upper bound of their keys.
///
/// # Errors
/// No entry, or entries out of order; whatever the disk reports.
pub fn build<'e>(
    dir: &Path,
    options: &SegmentSpec<'_>,
    keys_max: u64,
    mut entries: impl Iterator<Item = Entry<'e>>,
) -> Result<Built, Error> {
    build_from(dir, None, options, keys_max, |push| entries.try_for_each(push))
}

/// The same from entries that are never all in memory: `feed` pushes them one after the other. What only building needs lies in
/// `spool_dir`, where one is named, else in `dir`.
///
/// # Errors
/// As [`build`]; whatever `feed` reports.
pub fn build_from(
    dir: &Path,
    spool_dir: Option<&Path>,
    options: &SegmentSpec<'_>,
    keys_max: u64,
    feed: impl FnOnce(&mut dyn FnMut(Entry<'_>) -> Result<(), Error>) -> Result<(), Error>,
) -> Result<Built, Error> {
    let clock = SyncClock { spool_dir: spool_dir.map(Path::to_owned), ..SyncClock::default() };
    let storage: Arc<dyn Storage> = Arc::new(clock.clone());
    storage.create_dir(dir)?;
    let start = Instant::now();
    let segment = LoneSegment::write(&storage, dir, options, keys_max, feed)?;
    let total = start.elapsed();
    let sync = clock.total();
    let empty = || Error::Options { field: "entries", reason: "a segment has at least 1 entry".to_owned() };
    Ok(Built { segment: segment.ok_or_else(empty)?, pass: total.saturating_sub(sync), sync })
}

/// The disk, with the time that its syncs took.
#[derive(Clone, Debug, Default)]
struct SyncClock {
    nanos: Arc<AtomicU64>,
    spool_dir: Option<PathBuf>,
}

impl SyncClock {
    fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// A file whose syncs are timed.
struct TimedFile {
    file: Box<dyn WriteFile>,
    clock: SyncClock,
}

impl Write for TimedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for TimedFile {
    fn sync(&mut self) -> Result<(), Error> {
        // What is left in the buffer belongs to writing; an error of it is met again by the sync.
        let _ = self.file.flush();
        let start = Instant::now();
        let result = self.file.sync();
        self.clock.nanos.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Storage for SyncClock {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        Ok(Box::new(TimedFile { file: OsStorage.create(path)?, clock: self.clone() }))
    }

    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        OsStorage.create_dir(path)
    }

    fn canonical(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        OsStorage.canonical(path)
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        OsStorage.list(dir)
    }

    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        OsStorage.len(path)
    }

    fn append(&self, path: &Path, unsure: Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        OsStorage.append(path, unsure)
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
        OsStorage.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        OsStorage.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        OsStorage.sync_dir(dir)
    }

    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        OsStorage.spool(self.spool_dir.as_deref().unwrap_or(dir))
    }

    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        OsStorage.lock(dir)
    }

    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        OsStorage.is_locked(dir)
    }
}
