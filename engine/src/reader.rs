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
use icecore_segments::step::BlockNumber;

use crate::commitment::Commitment;
use crate::domain::{Domain, DomainId};
use crate::error::{Error, one_line};
use crate::handle::{AsDomain, DomainHandle, with_stored_key};
use crate::maintain::checkpoint::{CheckpointReport, checkpoint};
use crate::maintain::merge::MergeOptions;
use crate::maintain::plan::{self, MergePlan, PrunePlan, UnwindPlan};
use crate::maintain::reindex::{ReindexPlan, ReindexRule};
use crate::manifest::Manifest;
use crate::open_options::ReadOptions;
use crate::options::DensityRule;
use crate::progress::ProgressListener;
use crate::read::history::History;
use crate::read::shared::Shared;
#[cfg(feature = "object-store")]
use crate::remote::open::OpenBucket;
use crate::segment::info::SegmentInfo;
use crate::segment::live::Problem;
use crate::stats::Stats;
use crate::storage::directory::Directory;
use crate::storage::os::OsStorage;
use crate::storage::{Storage, layout};
use crate::view::View;
use crate::write::log_drop::{LogDrop, plan_log_drop};

/// The reading side of an archive: its newest block, views of any block, histories, statistics and plans. Cheap to clone, `Send`
/// and `Sync`; it takes no lock.
///
/// [`Archive::reader`](crate::Archive::reader) gives the reader of an archive of this process: it sees each block as soon as its
/// `commit` returns. [`Reader::open`] reads an archive that another process may write: it sees what the archive was when it
/// was opened, and catches up when [`Reader::refresh`] or [`Reader::wait`] is called on it or a clone.
///
/// What it sees may shrink, too, when the writer unwinds blocks. A [`View`] stays what it was.
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
    /// The bucket that it reads, where it does.
    #[cfg(feature = "object-store")]
    pub(crate) bucket: Option<Arc<OpenBucket>>,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            seen: AtomicU64::new(self.seen.load(Ordering::Relaxed)),
            #[cfg(feature = "object-store")]
            bucket: self.bucket.clone(),
        }
    }
}

impl Reader {
    /// Opens an archive for reading, beside a writer or without one.
    ///
    /// It sees every block committed by then, whatever the durability, also after the writer was killed. A block whose `commit`
    /// is under way in another process may be seen a moment before that returns.
    ///
    /// Damage does not keep an archive from being opened, only from answering what needs the damaged file. Where the log is
    /// damaged, that is every block that is in no segment yet: see [`Reader::head`].
    ///
    /// # Cost
    /// A mapping of each `.kv`. For segments whose accessors are longer than 64 KiB, also the header, footer and resident part
    /// of each accessor. Of the log, the headers of its blocks, and in full the blocks not marked as synced. Takes no lock and
    /// builds no Merkle tree.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`]; [`Error::Unfinished`] for a checkpoint that was interrupted; a manifest that is damaged or of a newer
    /// format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(path, ReadOptions::new())
    }

    /// Opens an archive for reading with options, as [`Reader::open`] does without.
    ///
    /// # Errors
    /// Those of [`Reader::open`].
    pub fn open_with(path: impl AsRef<Path>, options: ReadOptions) -> Result<Self, Error> {
        let storage: Arc<dyn Storage> = Arc::new(OsStorage);
        Self::open_shared(&storage, path.as_ref(), options)
    }

    /// Opens an archive for reading like [`Reader::open`], on a custom [`Storage`] instead of the file system.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`]; [`Error::Unfinished`]; a manifest that is damaged or of a newer format.
    pub fn open_on(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_shared(&storage, path.as_ref(), ReadOptions::new())
    }

    fn open_shared(storage: &Arc<dyn Storage>, path: &Path, options: ReadOptions) -> Result<Self, Error> {
        let shared = Shared::open(storage, path)?;
        shared.load_accessors(options);
        Ok(Self::of(shared))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            seen: AtomicU64::new(0),
            #[cfg(feature = "object-store")]
            bucket: None,
        }
    }

    /// Catches up with what was committed, unwound or maintained since. `true` when anything is new to this reader since it was
    /// opened, cloned or last asked, `false` when nothing is. Each clone is told for itself; all clones of an opened reader see
    /// the same archive, whichever of them was refreshed.
    ///
    /// # Cost
    /// Two system calls when nothing is new. Otherwise what was added is read: the new blocks of the log, and after an emission
    /// the manifest. None for a reader of an archive of this process.
    ///
    /// # Errors
    /// - Damage of the log ([`Error::Damaged`], [`Error::Missing`]): blocks that are in no segment cannot be read. The reader has
    ///   caught up with the segments;
    /// - [`Error::Closed`] when the archive of this process was closed or dropped, and everything it committed was reported;
    /// - [`Error::Replaced`] when another archive took its place;
    /// - [`Error::Io`], and damage of the manifest.
    ///
    /// After an error it may be called again, and what the reader sees stays readable.
    pub fn refresh(&self) -> Result<bool, Error> {
        #[cfg(feature = "object-store")]
        self.follow_bucket()?;
        self.shared.follow()?;
        // Before the look: what was committed before the archive was closed is told first.
        let open = self.shared.check_open();
        let installed = self.shared.installed.load(Ordering::Acquire);
        let is_new = self.seen.swap(installed, Ordering::Relaxed) != installed;
        self.shared.read_state().check_head()?;
        if is_new { Ok(true) } else { open.map(|()| false) }
    }

    /// Waits for a block above `after`, usually the last [`Reader::head`], and returns the head; `None` when the timeout passes
    /// first.
    ///
    /// Only a head above `after` wakes it. It does not report unwinding: after the writer unwinds blocks 46 to 50 and commits
    /// others up to 50, `wait(50, ..)` times out although block 50 is another. On a chain that reorganises, remember the height
    /// and [root](Reader::root) of the last block handled, and compare the root after each wake **and** each timeout: another
    /// root, or [`Error::OutOfRange`], means that it was replaced. `examples/many_readers.rs` in the repository does so.
    ///
    /// # Cost
    /// In the process of the writer the thread sleeps until it is woken. Otherwise it polls like [`Reader::refresh`], every
    /// 0.1 ms at first and every 5 ms later; in a bucket, where a look is a request, every 0.5 s at first and every 10 s later.
    ///
    /// # Errors
    /// Those of [`Reader::refresh`], at once: a damaged log, [`Error::Closed`], [`Error::Replaced`], [`Error::Io`]. Closing the
    /// archive wakes those that wait.
    pub fn wait(
        &self,
        after: impl Into<Option<BlockNumber>>,
        timeout: Duration,
    ) -> Result<Option<BlockNumber>, Error> {
        let (after, started) = (after.into(), Instant::now());
        let mut pauses = self.pauses();
        loop {
            #[cfg(feature = "object-store")]
            self.follow_bucket()?;
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
            if let Some((pause, pause_max)) = &mut pauses {
                thread::sleep(left.min(*pause));
                *pause = (2 * *pause).min(*pause_max);
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

    /// The height of the newest block; `None` before the first.
    ///
    /// Of an archive opened by [`Reader::open`] whose log is damaged, this is the newest block in segments, and `None` may mean
    /// that all blocks are in the log. [`Reader::latest`], [`Reader::refresh`] and [`Reader::wait`] report that damage.
    pub fn head(&self) -> Option<BlockNumber> {
        self.shared.read_state().head
    }

    /// The lowest and the highest height that can be read, both included; `None` before the first block. The lowest is the first
    /// block, or the floor of a prune.
    ///
    /// With a damaged log these are the heights in segments only, as with [`Reader::head`].
    pub fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        self.shared.read_state().range()
    }

    /// The declared domains, in the order of their declaration.
    pub fn domains(&self) -> &[Domain] {
        self.shared.directory.config.declared()
    }

    /// The length of a step in heights. See [`Options::blocks_per_step`](crate::Options::blocks_per_step).
    pub fn blocks_per_step(&self) -> u64 {
        self.shared.directory.config.step_len.0.get()
    }

    /// The length of the reorg window in heights. See [`Options::reorg_window`](crate::Options::reorg_window).
    pub fn reorg_window(&self) -> u64 {
        self.shared.directory.config.reorg_window
    }

    /// The snapshot period in heights; `None` without snapshots. See
    /// [`Options::snapshot_period`](crate::Options::snapshot_period).
    pub fn snapshot_period(&self) -> Option<NonZeroU64> {
        self.shared.directory.config.snapshots.map(|snapshots| snapshots.period)
    }

    /// What the roots of the archive commit to. See [`Options::commitment`](crate::Options::commitment).
    pub fn commitment(&self) -> Commitment {
        self.shared.directory.config.commitment
    }

    /// The state at the end of block `height`, as a view; in a gap of heights, at the end of the block below.
    ///
    /// # Cost
    /// None: nothing is read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] above the head, below the first block, or below the floor of a prune; damage of the log, where the
    /// height is above what is in segments.
    pub fn at(&self, height: BlockNumber) -> Result<View, Error> {
        let version = self.pin()?;
        version.state().check(height)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at: height })
    }

    /// The state at the head, as a view.
    ///
    /// # Cost
    /// None: nothing is read.
    ///
    /// # Errors
    /// [`Error::Empty`] before the first block; damage of the log, which may have newer blocks.
    pub fn latest(&self) -> Result<View, Error> {
        let version = self.pin()?;
        let state = version.state();
        state.check_head()?;
        let at = state.head.ok_or(Error::Empty)?;
        state.check(at)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at })
    }

    /// The root of the state at the end of block `height`; in a gap of heights, of the block below.
    ///
    /// # Cost
    /// One lookup.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::RootMissing`], and damage of a file that is read.
    pub fn root(&self, height: BlockNumber) -> Result<Root, Error> {
        self.at(height)?.root()
    }

    /// All versions of a key, newest first, as an iterator. After a prune the oldest is the one that the floor saw.
    ///
    /// # Cost
    /// That of [`History`], as far as it is consumed.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; damage of the log, which may have newer versions.
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        let version = self.pin()?;
        version.state().check_head()?;
        let head = version.state().head;
        with_stored_key(&self.shared.directory.config, domain, key, |domain, key| {
            Ok(History::new(Arc::clone(&self.shared), version, domain, key, head))
        })
    }

    /// A declared domain, resolved once for many calls.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the declared names.
    pub fn domain(&self, name: &str) -> Result<DomainHandle, Error> {
        DomainHandle::new(&self.shared.directory.config, name)
    }

    /// The live segments, by domain and step.
    ///
    /// # Cost
    /// The first and the last page of each file that was not opened yet.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let version = self.shared.read_state();
        let is_stale = self.shared.is_stale();
        let info = |segment| SegmentInfo::new(&self.shared.directory.config, segment, is_stale);
        version.all_segments().map(|segment| info(segment)).collect()
    }

    /// What the archive holds, and what the reads of this process touched.
    ///
    /// # Cost
    /// The manifest, the names in the log folder, and the first and the last page of each segment that was not opened yet. A problem
    /// on the way is an entry of [`Stats::problems`].
    pub fn stats(&self) -> Stats {
        let version = self.shared.read_state();
        let mut stats = Stats { head: version.head, first: version.first, ..Stats::default() };
        let nodes = self.shared.directory.config.nodes();
        let is_stale = self.shared.is_stale();
        let is_damage = |problem: &Problem| !(is_stale && problem.is_missing);
        for segment in version.all_segments() {
            let record = &segment.record;
            if !record.is_held {
                stats.segments_not_held += 1;
                continue;
            }
            stats.segments += 1;
            if Some(record.domain) == nodes {
                stats.node_bytes += record.bytes();
            } else if record.domain != DomainId::ROOTS {
                stats.entries += segment.summary().map_or(0, |summary| summary.entries);
            }
            stats.problems.extend(segment.problems().filter(is_damage).map(|problem| problem.line));
            stats.degraded_reads += segment.bt.failures() + segment.kvei.failures();
            stats.degraded_reads += segment.kvbi.as_ref().map_or(0, |kvbi| kvbi.failures());
            stats.kv_bytes += record.kv.summary.len;
            stats.bt_bytes += record.bt.summary.len;
            stats.kvei_bytes += record.kvei.summary.len;
            stats.kvbi_bytes += record.kvbi.map_or(0, |kvbi| kvbi.summary.len);
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
        stats.resident_budget = self.shared.resident_budget.load(Ordering::Relaxed);
        (stats.loaded_bytes, stats.is_loading) = self.shared.loaded_accessors();
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

    /// What [`Archive::merge`](crate::Archive::merge) would do now. Changes nothing and takes no lock.
    ///
    /// # Cost
    /// The manifest and the footer of each segment.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; damage of the manifest, the log or a segment, which would stop the merge as well.
    pub fn plan_merge(&self, options: &MergeOptions) -> Result<MergePlan, Error> {
        plan::plan_merge(&self.shared, options)
    }

    /// What [`Archive::prune`](crate::Archive::prune) would do now. Changes nothing and takes no lock.
    ///
    /// # Cost
    /// Reads what pruning would read, to count what would be dropped.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height that cannot be the floor; damage of the log or a segment, which would stop the prune
    /// as well.
    pub fn plan_prune(&self, before: BlockNumber) -> Result<PrunePlan, Error> {
        plan::plan_prune(&self.shared, before)
    }

    /// What [`Archive::unwind`](crate::Archive::unwind) would do now. Changes nothing and takes no lock.
    ///
    /// # Cost
    /// The roots of the blocks that would be taken back, and the footers of the segments that would change.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height that cannot be the head; damage of the log or a segment, which would stop the unwinding
    /// as well.
    pub fn plan_unwind(&self, to: BlockNumber) -> Result<UnwindPlan, Error> {
        plan::plan_unwind(&self.shared, to)
    }

    /// What [`Archive::reindex`](crate::Archive::reindex) would rebuild now, a segment each; those that match the rule are left out.
    /// Changes nothing and takes no lock.
    ///
    /// # Cost
    /// The manifest and the footer of each segment.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::Options`] for a budget that the sparsest indexes exceed; damage of the manifest, the log
    /// or a segment, which would stop the reindex as well.
    pub fn plan_reindex(&self, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<ReindexPlan>, Error> {
        plan::plan_reindex(&self.shared, rule, domain)
    }

    /// What opening for writing with [`LogDamage::DropAfter`](crate::LogDamage::DropAfter) would drop now; `None` where the log is
    /// sound. Changes nothing and takes no lock.
    ///
    /// # Cost
    /// Reads the log; where it is damaged, also the latest version of every key.
    ///
    /// # Errors
    /// The damage itself, where nothing readable would be left.
    pub fn plan_log_drop(&self) -> Result<Option<LogDrop>, Error> {
        plan_log_drop(&self.shared.directory)
    }

    /// Copies the archive as it is now to the directory `copy`, consistently: an archive of its own, ready to be opened. Takes no
    /// lock; a writer, in this or another process, goes on meanwhile.
    ///
    /// `copy` must not exist or be empty, or hold a checkpoint that was interrupted, which begins anew.
    ///
    /// # Cost
    /// On the same file system one hard link per file, and a copy of the last log file. Linked files share their space with the
    /// archive for as long as it keeps them. On another file system every byte is copied.
    ///
    /// # Errors
    /// [`Error::InsideArchive`]; [`Error::Exists`]; [`Error::Missing`] for a file that the archive should have, [`Error::File`] for a `.kv`
    /// that is not the one that the manifest names. Pages are not read: [`verify`](crate::verify) does that. What was copied by then stays,
    /// marked as incomplete: opening it is [`Error::Unfinished`].
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
