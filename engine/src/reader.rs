//! Reading: a [`Reader`] follows an archive, a [`View`] is the state at one block.
//!
//! Readers share nothing mutable but counters. A view pins the version it was made from: whatever is committed,
//! merged, pruned or unwound meanwhile, it answers the same.

use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore_hot::Root;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;

use crate::domain::{Domain, DomainId};
use crate::error::{Error, one_line};
use crate::handle::{AsDomain, DomainHandle, id_for_keys};
use crate::maintain::checkpoint::{CheckpointReport, checkpoint};
use crate::maintain::merge::MergeOptions;
use crate::maintain::plan::{self, MergePlan, PrunePlan, UnwindPlan};
use crate::maintain::reindex::{ReindexPlan, ReindexRule};
use crate::manifest::Manifest;
use crate::options::DensityRule;
use crate::progress::ProgressListener;
use crate::read::history::History;
use crate::read::shared::Shared;
use crate::segment::info::SegmentInfo;
use crate::segment::live::Problem;
use crate::stats::Stats;
use crate::storage::directory::Directory;
use crate::storage::os::OsStorage;
use crate::storage::{Storage, layout};
use crate::view::View;
use crate::write::log_drop::{LogDrop, plan_log_drop};

/// Between two looks of a reader that waits for a writer of another process: at first, and in the end.
const PAUSE_MIN: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(5);

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
        Self::open_on(Arc::new(OsStorage), path)
    }

    /// The same on any storage.
    pub fn open_on(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::of(Shared::open(&storage, path.as_ref())?))
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
        // Before the look: what was committed before the archive was closed is told first.
        let open = self.shared.check_open();
        let installed = self.shared.installed.load(Ordering::Acquire);
        let is_new = self.seen.swap(installed, Ordering::Relaxed) != installed;
        self.shared.read_state().check_head()?;
        if is_new { Ok(true) } else { open.map(|()| false) }
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
            self.shared.follow()?;
            // Before the look, as in `refresh`.
            let open = self.shared.check_open();
            let installed = self.shared.installed.load(Ordering::Acquire);
            self.seen.store(installed, Ordering::Relaxed);
            let state = self.shared.read_state();
            state.check_head()?;
            if state.head > after {
                return Ok(state.head);
            }
            open?;
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if self.shared.follower.is_some() {
                thread::sleep(pause.min(left));
                pause = (pause * 2).min(PAUSE_MAX);
            } else {
                let mut waiting = self.shared.waiting.lock();
                if self.shared.installed.load(Ordering::Acquire) == installed
                    && self.shared.check_open().is_ok()
                {
                    self.shared.changed.wait_for(&mut waiting, left);
                }
            }
        }
    }

    /// The newest block.
    pub fn head(&self) -> Option<BlockNumber> {
        self.shared.read_state().head
    }

    /// The heights that can be read, both inside; `None` before the first block.
    pub fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        self.shared.read_state().range()
    }

    /// The declared domains.
    pub fn domains(&self) -> &[Domain] {
        self.shared.directory.config.declared()
    }

    /// The number of blocks in a step.
    pub fn blocks_per_step(&self) -> u64 {
        self.shared.directory.config.step_len.0.get()
    }

    /// The blocks below the head that stay in memory.
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
        let version = self.shared.read_state();
        version.check(height)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at: height })
    }

    /// The state at the head.
    ///
    /// # Errors
    /// [`Error::Empty`] before the first block.
    pub fn latest(&self) -> Result<View, Error> {
        let version = self.shared.read_state();
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
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; damage of the log, which may have newer versions.
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        let version = self.shared.read_state();
        version.check_head()?;
        let domain = id_for_keys(&self.shared.directory.config, domain, [key])?;
        let head = version.head;
        Ok(History::new(Arc::clone(&self.shared), version, domain, key, head))
    }

    /// A declared domain, resolved once for many calls.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the names there are.
    pub fn domain(&self, name: &str) -> Result<DomainHandle, Error> {
        DomainHandle::new(&self.shared.directory.config, name)
    }

    /// The live segments, by domain and step.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let version = self.shared.read_state();
        let is_stale = self.shared.is_stale();
        let info = |segment| SegmentInfo::new(&self.shared.directory.config, segment, is_stale);
        version.all_segments().map(|segment| info(segment)).collect()
    }

    /// What the archive holds and what reads touched.
    pub fn stats(&self) -> Stats {
        let version = self.shared.read_state();
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
        match self.log_bytes_and_rule() {
            Ok((bytes, rule)) => (stats.log_bytes, stats.rule) = (Some(bytes), Some(rule)),
            Err(error) => stats.problems.push(one_line(&error)),
        }
        stats.reads = self.shared.counters.reads();
        stats.failures = self.shared.failures.all();
        stats
    }

    /// Bytes of the log and the rule for densities, from the manifest of this moment.
    fn log_bytes_and_rule(&self) -> Result<(u64, DensityRule), Error> {
        let Directory { storage, path, .. } = &self.shared.directory;
        let manifest = Manifest::load(&**storage, path)?;
        let named = manifest.wal_first..=manifest.wal_last;
        let dir = layout::wal_dir(path);
        let mut bytes = 0;
        for name in storage.list(&dir)?.unwrap_or_default() {
            if layout::parse_wal_name(&name).is_some_and(|sequence| named.contains(&sequence)) {
                // One that is gone was trimmed meanwhile.
                bytes += storage.len(&dir.join(name))?.unwrap_or(0);
            }
        }
        Ok((bytes, manifest.rule))
    }

    /// What [`Archive::merge`](crate::Archive::merge) would do now. Takes no lock and writes nothing.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; a damaged manifest, log or segment, which keep a writer from it too.
    pub fn plan_merge(&self, options: &MergeOptions) -> Result<MergePlan, Error> {
        plan::plan_merge(&self.shared, options)
    }

    /// What [`Archive::prune`](crate::Archive::prune) would do now. Takes no lock and writes nothing.
    ///
    /// # Cost
    /// Reads what pruning would read, to count what would go.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height that cannot be pruned to; a damaged log, which keeps a writer from it too.
    pub fn plan_prune(&self, before: BlockNumber) -> Result<PrunePlan, Error> {
        plan::plan_prune(&self.shared, before)
    }

    /// What [`Archive::unwind`](crate::Archive::unwind) would do now. Takes no lock and writes nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height that cannot be gone back to; a damaged log, which keeps a writer from it too.
    pub fn plan_unwind(&self, to: BlockNumber) -> Result<UnwindPlan, Error> {
        plan::plan_unwind(&self.shared, to)
    }

    /// What [`Archive::reindex`](crate::Archive::reindex) would do now. Takes no lock and writes nothing.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; a damaged manifest, log or segment, which keep a writer from it too.
    pub fn plan_reindex(&self, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<ReindexPlan>, Error> {
        plan::plan_reindex(&self.shared, rule, domain)
    }

    /// What opening for writing with [`LogDamage::DropAfter`](crate::LogDamage::DropAfter) would give up now; `None` where the
    /// log is sound. Takes no lock and writes nothing.
    ///
    /// # Cost
    /// Reads the log; where it is damaged, the newest version of every key too.
    ///
    /// # Errors
    /// The damage itself where nothing that can be read would be left.
    pub fn plan_log_drop(&self) -> Result<Option<LogDrop>, Error> {
        plan_log_drop(&self.shared.directory)
    }

    /// Makes a consistent copy of the archive as it is now at `copy`: an archive of its own, openable at once. Takes no lock; a
    /// writer, in this or another process, goes on.
    ///
    /// `copy` must not exist or be empty, or be what a checkpoint left that was killed: that begins again.
    ///
    /// # Cost
    /// On the same file system a hard link for each file, and the bytes of the last log file. Links share their space with
    /// the archive for as long as it keeps the files. On another file system all bytes are copied.
    ///
    /// # Errors
    /// [`Error::InsideArchive`]; [`Error::Exists`]; [`Error::Missing`] for a file that the archive should have. What was copied by then stays, and says
    /// that it is not finished: opening it is [`Error::Unfinished`].
    ///
    /// # Durability
    /// When this returns the copy survives a power loss.
    pub fn checkpoint(
        &self,
        copy: impl AsRef<Path>,
        listener: &dyn ProgressListener,
    ) -> Result<CheckpointReport, Error> {
        let directory = &self.shared.directory;
        checkpoint(&directory.storage, &directory.path, copy.as_ref(), listener)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.shared.directory.path;
        f.debug_struct("Reader").field("path", path).field("head", &self.head()).finish_non_exhaustive()
    }
}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<Reader>();
};
