//! Reading: a [`Reader`] follows an archive, a [`View`] is the state at one block.
//!
//! Readers share nothing mutable but counters. A view pins the version it was made from: whatever is committed,
//! merged, pruned or unwound meanwhile, it answers the same.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore_hot::Root;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::domain::{Domain, DomainId, RootRow, root_height, root_key};
use crate::error::{Error, one_line};
use crate::failures::Failures;
use crate::read::follow::Follower;
use crate::read::get::Origin;
use crate::read::read_state::Version;
use crate::read::scan::{Entries, Scan};
use crate::segment::info::{Problem, SegmentInfo};
use crate::segment::live::Directory;
use crate::stats::{Counters, Stats};
use crate::storage::Storage;
use crate::storage::os::OsStorage;

/// Between two looks of a reader that waits for a writer of another process: at first, and in the end.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// What a reader and its views share.
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    version: RwLock<Arc<Version>>,
    /// Counts the versions.
    installed: AtomicU64,
    /// Notified with each version.
    changed: Condvar,
    waiting: Mutex<()>,
    /// How the archive is followed where another process may write it.
    follower: Option<Mutex<Follower>>,
    pub(crate) counters: Counters,
    pub(crate) failures: Failures,
}

impl Shared {
    pub(crate) fn new(directory: Directory, version: Version) -> Arc<Self> {
        Self::with_follower(directory, version, None)
    }

    fn with_follower(directory: Directory, version: Version, follower: Option<Follower>) -> Arc<Self> {
        Arc::new(Self {
            directory,
            version: RwLock::new(Arc::new(version)),
            installed: AtomicU64::new(0),
            changed: Condvar::new(),
            waiting: Mutex::default(),
            follower: follower.map(Mutex::new),
            counters: Counters::default(),
            failures: Failures::default(),
        })
    }

    /// Lets readers see a version.
    pub(crate) fn install(&self, version: Version) {
        *self.version.write() = Arc::new(version);
        self.installed.fetch_add(1, Ordering::Release);
        // Between the look and the wait of a reader there must be no gap.
        drop(self.waiting.lock());
        self.changed.notify_all();
    }

    /// Whether files may be gone because a writer of another process replaced them since.
    fn is_stale(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| !follower.lock().is_current().unwrap_or(true))
    }

    /// Brings what this process sees to what the archive is now.
    fn follow(&self) -> Result<(), Error> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let mut follower = follower.lock();
        if let Some(version) = follower.refresh(&self.version())? {
            self.install(version);
        }
        Ok(())
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.read())
    }
}

/// Reads an archive. Cheap to clone; any number of threads may read at once.
///
/// Beside a writer of this process it sees each block as soon as its `commit` returns. One that was opened by
/// [`Reader::open`] sees what the archive was then, and goes on when [`Reader::refresh`] or [`Reader::wait`] is called; its
/// clones go on with it. Views stay what they were.
///
/// ```
/// # use icecore::{Archive, Options, Reader};
/// # use std::time::Duration;
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("state.ice");
/// # let archive = Archive::create(&path, Options::new().domain("accounts"))?;
/// let reader = Reader::open(&path)?;
/// assert_eq!(reader.head(), None);
/// # archive.begin(7)?.commit()?;
/// // Another process commits block 7.
/// let head = reader.wait(reader.head(), Duration::from_secs(1))?;
/// assert_eq!(head, Some(7));
/// assert!(!reader.refresh()?, "nothing is new since");
/// # Ok::<(), icecore::Error>(())
/// ```
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
    /// The number of the version that this reader was told of.
    seen: AtomicU64,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        let seen = AtomicU64::new(self.seen.load(Ordering::Relaxed));
        Self { shared: Arc::clone(&self.shared), seen }
    }
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block that wrote it.
    pub block: BlockNumber,
    /// The value, or `None` for a deletion.
    pub value: Option<Vec<u8>>,
}

/// Where an answer came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The versions in memory.
    Memory,
    /// A segment, named as in the directory without its extension: `storage.0-64`.
    Segment(String),
}

/// The answer to a lookup, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The version that answers.
    pub change: Change,
    /// Where it was found.
    pub source: Source,
}

impl Reader {
    /// Opens an archive for reading, beside a writer or without one. Sees every block that was committed by then, in every
    /// mode of durability and also after the writer was killed; a block whose `commit` is under way in another process
    /// may be seen a moment before it returns.
    ///
    /// A segment that is missing or damaged does not keep an archive from being opened: it fails the lookups that need it.
    ///
    /// # Cost
    /// A mapping of each `.kv`; header, footer and resident parts of each segment whose accessors are longer than 64 KiB; the headers of the blocks in the write-ahead log, and those blocks of it whole that were
    /// not synced. Neither the lock nor the Merkle tree.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(Arc::new(OsStorage), path)
    }

    /// The same on any storage.
    pub fn open_with(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self, Error> {
        let (directory, follower, version) = Follower::open(&storage, path.as_ref())?;
        Ok(Self::of(Shared::with_follower(directory, version, Some(follower))))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared, seen: AtomicU64::new(0) }
    }

    /// Takes over what a writer of another process committed or changed since. `true` when something is new since this reader
    /// was opened or last refreshed, `false` when nothing is.
    ///
    /// # Cost
    /// Two system calls when nothing is new. Else what was added is read: the new blocks of the log, and after an emission
    /// the manifest. Beside a writer of this process, none.
    ///
    /// # Errors
    /// Those of the system; [`Error::Replaced`]. The reader stays what it was, and may be refreshed again.
    pub fn refresh(&self) -> Result<bool, Error> {
        self.shared.follow()?;
        let installed = self.shared.installed.load(Ordering::Acquire);
        Ok(self.seen.swap(installed, Ordering::Relaxed) != installed)
    }

    /// Waits for a block above `after`, which is what [`Reader::head`] gave, and returns the head; `None` when there was none
    /// within `timeout`.
    ///
    /// # Cost
    /// Beside a writer of this process the thread sleeps until it is woken. Otherwise it looks about as
    /// [`Reader::refresh`] does, at first every 0.1 ms, then every 5.
    pub fn wait(
        &self,
        after: impl Into<Option<BlockNumber>>,
        timeout: Duration,
    ) -> Result<Option<BlockNumber>, Error> {
        let (after, started) = (after.into(), Instant::now());
        let mut pause = PAUSE_MIN;
        loop {
            let installed = self.shared.installed.load(Ordering::Acquire);
            self.refresh()?;
            let head = self.head();
            if head > after {
                return Ok(head);
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if self.shared.follower.is_some() {
                thread::sleep(pause.min(left));
                pause = (pause * 2).min(PAUSE_MAX);
            } else {
                let mut waiting = self.shared.waiting.lock();
                if self.shared.installed.load(Ordering::Acquire) == installed {
                    self.shared.changed.wait_for(&mut waiting, left);
                }
            }
        }
    }

    /// The newest block.
    pub fn head(&self) -> Option<BlockNumber> {
        self.shared.version().head
    }

    /// The heights that can be read, both inside; `None` before the first block.
    pub fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        self.shared.version().range()
    }

    /// The declared domains.
    pub fn domains(&self) -> &[Domain] {
        self.shared.directory.config.declared()
    }

    /// The number of blocks in a step.
    pub fn blocks_per_step(&self) -> u64 {
        self.shared.directory.config.step_len.0.get()
    }

    /// The blocks behind the head that stay in memory.
    pub fn reorg_window(&self) -> u64 {
        self.shared.directory.config.reorg_window
    }

    /// The heights between two snapshots, `None` where there are none. See [`Options::snapshot_period`](crate::Options).
    pub fn snapshot_period(&self) -> Option<NonZeroU64> {
        self.shared.directory.config.snapshots.map(|snapshots| snapshots.period)
    }

    /// The state at the end of block `height`; between two blocks, at the end of the lower one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] above the head, below the first block, or below what prune kept.
    pub fn at(&self, height: BlockNumber) -> Result<View, Error> {
        let version = self.shared.version();
        version.check(height)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at: height })
    }

    /// The state at the head.
    ///
    /// # Errors
    /// [`Error::Empty`] before the first block.
    pub fn latest(&self) -> Result<View, Error> {
        let version = self.shared.version();
        version.check_head()?;
        let at = version.head.ok_or(Error::Empty)?;
        version.check(at)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at })
    }

    /// The root of the state at the end of block `height`.
    pub fn root(&self, height: BlockNumber) -> Result<Root, Error> {
        self.at(height)?.root()
    }

    /// All versions of a key, newest first. After pruning the oldest may be the one that the pruned height saw.
    ///
    /// # Cost
    /// One filter page per segment; for each segment that has the key, an index page and the pages of its versions.
    pub fn history(&self, domain: &str, key: &[u8]) -> Result<Vec<Change>, Error> {
        let version = self.shared.version();
        version.check_head()?;
        let domain = self.shared.directory.domain_of(domain, [key])?;
        let found = version.history(domain, key, self.shared.counters.mine())?;
        Ok(found.into_iter().map(|(block, value)| Change { block, value }).collect())
    }

    /// The live segments, by domain and step.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let version = self.shared.version();
        let is_stale = self.shared.is_stale();
        let info = |segment| SegmentInfo::new(&self.shared.directory.config, segment, is_stale);
        version.all_segments().map(|segment| info(segment)).collect()
    }

    /// What the archive holds and what reads touched.
    pub fn stats(&self) -> Stats {
        let version = self.shared.version();
        let mut stats = Stats { head: version.head, first: version.first, ..Stats::default() };
        let nodes = self.shared.directory.config.nodes();
        let is_stale = self.shared.is_stale();
        let is_damage = |problem: &Problem| !(is_stale && problem.is_missing);
        for segment in version.all_segments() {
            stats.segments += 1;
            let record = &segment.record;
            if Some(record.domain) == nodes {
                stats.node_bytes += Kind::ALL.iter().map(|kind| record.file(*kind).summary.len).sum::<u64>();
            } else if record.domain != DomainId::ROOTS {
                stats.entries += segment.summary().map_or(0, |summary| summary.entries);
            }
            stats.problems.extend(segment.problems().filter(is_damage).map(|problem| problem.line));
            stats.degraded_reads += segment.bt.failures() + segment.kvei.failures();
            stats.kv_bytes += record.kv.summary.len;
            stats.bt_bytes += record.bt.summary.len;
            stats.kvei_bytes += record.kvei.summary.len;
            stats.resident_bytes += segment.resident_bytes();
        }
        (stats.steps_in_memory, stats.memory_bytes) = match &version.log {
            Some(log) => (log.steps() as u64, log.bytes()),
            None => (version.tables.len() as u64, version.tables.iter().map(|table| table.bytes()).sum()),
        };
        stats.problems.extend(version.log_fault.as_ref().map(|fault| one_line(&fault.error())));
        stats.reads = self.shared.counters.reads();
        stats.failures = self.shared.failures.all();
        stats
    }
}

/// The state at the end of one block. Pins what it reads from; drop it to let obsolete files go.
#[derive(Clone)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) version: Arc<Version>,
    pub(crate) at: BlockNumber,
}

impl View {
    /// The height asked for.
    pub fn block(&self) -> BlockNumber {
        self.at
    }

    /// The value of a key, `None` when it is absent or deleted.
    ///
    /// # Cost
    /// From memory none; else a filter page per segment down to the one that has the key, there an index page and a data page.
    pub fn get(&self, domain: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let domain = self.shared.directory.domain_of(domain, [key])?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.and_then(|((_, value), _)| value))
    }

    /// The version that answers for a key, deletions included, and where it was found.
    pub fn lookup(&self, domain: &str, key: &[u8]) -> Result<Option<Lookup>, Error> {
        let domain = self.shared.directory.domain_of(domain, [key])?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.map(|((block, value), origin)| {
            let source = match origin {
                Origin::Memory => Source::Memory,
                Origin::Segment(segment) => {
                    Source::Segment(self.shared.directory.segment_name(&segment.record))
                }
            };
            Lookup { change: Change { block, value }, source }
        }))
    }

    /// The values of many keys, in the order asked. Pages are planned first and fetched together, so that a cold call
    /// keeps the disk busy.
    pub fn multi_get(&self, domain: &str, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let domain = self.shared.directory.domain_of(domain, keys.iter().copied())?;
        self.version.multi_get(domain, keys, self.at, self.shared.counters.mine())
    }

    /// Keys and values in order.
    pub fn scan(&self, domain: &str, scan: &Scan) -> Result<Entries<'_>, Error> {
        let domain = self.shared.directory.domain(domain)?;
        Entries::new(&self.version, domain, scan, self.at)
    }

    /// The root of this state.
    pub fn root(&self) -> Result<Root, Error> {
        self.version.root(self.at)
    }

    /// The height of the block whose state this is: the newest at or below [`View::block`].
    pub fn height(&self) -> Result<BlockNumber, Error> {
        self.version.newest_root(self.at).map(|(height, _)| height)
    }
}

impl Version {
    /// The newest block at or below `at` and its root.
    pub(crate) fn newest_root(&self, at: BlockNumber) -> Result<(BlockNumber, Root), Error> {
        self.newest_block(at)?.ok_or_else(|| self.check(at).err().unwrap_or(Error::RootMissing { block: at }))
    }

    /// The same, `None` where there is none.
    pub(crate) fn newest_block(&self, at: BlockNumber) -> Result<Option<(BlockNumber, Root)>, Error> {
        if let Some((height, root)) = self.log.as_ref().and_then(|log| log.newest_block(at)) {
            return Ok(Some((height, Root(root))));
        }
        let scan = Scan::all().to_included(&root_key(at)).backward();
        let newest = Entries::new(self, DomainId::ROOTS, &scan, at)?.next().transpose()?;
        Ok(newest.and_then(|(key, value)| Some((root_height(&key)?, RootRow::decode(&value)?.root))))
    }

    pub(crate) fn root(&self, at: BlockNumber) -> Result<Root, Error> {
        self.newest_root(at).map(|(_, root)| root)
    }
}

impl Directory {
    /// The number of a declared domain.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the names there are.
    pub(crate) fn domain(&self, name: &str) -> Result<DomainId, Error> {
        self.declared(name).map(|(id, _)| id)
    }

    /// The number of a declared domain that can have these keys.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`].
    pub(crate) fn domain_of<'k>(
        &self,
        name: &str,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<DomainId, Error> {
        let (id, domain) = self.declared(name)?;
        keys.into_iter().try_for_each(|key| domain.check_key(key))?;
        Ok(id)
    }

    fn declared(&self, name: &str) -> Result<(DomainId, &Domain), Error> {
        self.config.declared_ids().find(|(_, domain)| domain.name == name).ok_or_else(|| {
            let names: Vec<_> = self.config.declared().iter().map(|domain| domain.name.as_str()).collect();
            Error::UnknownDomain { name: name.to_owned(), declared: names.join(", ") }
        })
    }
}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<Reader>();
    shareable::<View>();
};
