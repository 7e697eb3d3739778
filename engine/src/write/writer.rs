//! The writer: the log, the Merkle tree, the manifest, and the rules by which they change together.
//!
//! Two locks, always taken in this order. The maintenance lock is held for the whole of an emission, merge, reindex, prune or
//! unwinding, so there is one at a time; the state is locked for a commit and for the moment in which a change is published,
//! so commits go on while files are built. Readers take neither.
//!
//! The state is private to this file. Commits and maintenance change it by the methods of [`WriterGuard`]: each keeps the
//! invariants that `FORMAT.md` numbers, and poisons the archive where a failure leaves in doubt what is on disk.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use icecore_hot::Root;
use icecore_segments::checksum::Checksum;
use icecore_segments::step::{BlockNumber, Step};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Poison};
use crate::manifest::Manifest;
use crate::merkle::live_build;
use crate::merkle::live_tree::LiveTree;
use crate::open_options::{Durability, OpenOptions};
use crate::progress::ProgressListener;
use crate::read::read_state::{ReadState, by_domain};
use crate::read::shared::Shared;
use crate::segment::merge_plan::{Bounds, step_ranges, surplus};
use crate::stats::MaintenanceTask;
use crate::storage::DirLock;
use crate::wal::log::{Log, NextFile};
use crate::wal::{ChangeRef, RecordRef};
use crate::write::changes::SpareBuffers;
use crate::write::log_drop::Recovered;
use crate::write::version_edit::VersionEdit;

/// The writing side of an archive.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: OpenOptions,
    pub(crate) recovered: Recovered,
    /// How many unwindings took blocks back: a block begun before one may be of the branch that it gave up. Rises under the lock.
    pub(crate) unwinds: AtomicU64,
    pub(crate) spare_buffers: SpareBuffers,
    state: Mutex<State>,
    maintenance_lock: Mutex<()>,
    /// Notified when the state changed in a way that a commit or the maintenance thread may wait for.
    changed: Condvar,
    #[expect(dead_code, reason = "held for its drop, which releases the lock")]
    lock: DirLock,
}

/// What commits and publications change.
struct State {
    manifest: Manifest,
    log: Log,
    /// Built from the state of the archive at the first commit.
    tree: Option<Box<dyn LiveTree>>,
    /// Hears of work that starts by itself: building the tree.
    listener: Arc<dyn ProgressListener>,
    /// The failure after which nothing is written any more.
    poison: Option<Poison>,
    closing: bool,
    /// Attempts to emit that ended, well or not.
    emission_attempts: u64,
    /// A commit is held up by an emission that failed and requests another attempt.
    emission_wanted: bool,
    /// The most segments of a domain that merging would remove, as of the last change of files.
    merge_backlog: usize,
    /// The segments of all domains together that merging would remove, a long merge under way or not.
    total_backlog: usize,
    /// Steps before this one belong to long work: no merge in between touches them.
    merging_from: Step,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        options: OpenOptions,
        recovered: Recovered,
        manifest: Manifest,
        log: Log,
        lock: DirLock,
    ) -> Self {
        let state = State {
            manifest,
            log,
            tree: None,
            listener: Arc::new(()),
            poison: None,
            closing: false,
            emission_attempts: 0,
            emission_wanted: false,
            merge_backlog: 0,
            total_backlog: 0,
            merging_from: Step(0),
        };
        let (state, maintenance_lock, changed) = (Mutex::new(state), Mutex::new(()), Condvar::new());
        let (unwinds, spare_buffers) = (AtomicU64::new(0), SpareBuffers::default());
        let writer = Self {
            shared,
            options,
            recovered,
            unwinds,
            spare_buffers,
            state,
            maintenance_lock,
            changed,
            lock,
        };
        let version = writer.read_state();
        writer.lock().count_backlog(&version);
        writer
    }

    /// What readers of this process see now.
    pub(crate) fn read_state(&self) -> Arc<ReadState> {
        self.shared.read_state()
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> WriterGuard<'_> {
        WriterGuard { writer: self, state: self.state.lock() }
    }

    /// Locks the state of an archive that may be written.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn lock_unpoisoned(&self) -> Result<WriterGuard<'_>, Error> {
        let guard = self.lock();
        guard.check_poison()?;
        Ok(guard)
    }

    /// Waits until no other maintenance changes the set of files.
    pub(crate) fn lock_maintenance(&self) -> MaintenanceGuard<'_> {
        MaintenanceGuard { _lock: self.maintenance_lock.lock() }
    }

    /// The same; `None` at once where other maintenance does.
    pub(crate) fn try_lock_maintenance(&self) -> Option<MaintenanceGuard<'_>> {
        Some(MaintenanceGuard { _lock: self.maintenance_lock.try_lock()? })
    }

    /// Records how maintenance went, and returns it.
    pub(crate) fn recorded<T>(&self, task: MaintenanceTask, outcome: Result<T, Error>) -> Result<T, Error> {
        self.shared.failures.record(task, self.read_state().head, &outcome);
        outcome
    }

    /// Makes everything committed durable, and has the manifest say how far the log reaches: from then on a log that was cut is
    /// known to be.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut guard = self.lock_unpoisoned()?;
        guard.sync_log_marker()?;
        guard.keep_tree(true);
        if guard.state.log.reached() == guard.manifest().wal_reached {
            return Ok(());
        }
        let manifest = guard.manifest().clone();
        guard.store_manifest(manifest, None)
    }

    /// Has maintenance end as soon as it can.
    pub(crate) fn begin_closing(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// Refuses further writes because of a failure that no write of this file met.
    pub(crate) fn poison(&self, poison: Poison) {
        self.state.lock().poison.get_or_insert(poison);
        self.changed.notify_all();
    }

    /// Has work that starts by itself tell `listener` of its progress.
    pub(crate) fn set_progress_listener(&self, listener: Arc<dyn ProgressListener>) {
        self.state.lock().listener = listener;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Before the lock goes.
        self.shared.directory.removals.end();
    }
}

/// The right to change the set of files: there is one at a time.
pub(crate) struct MaintenanceGuard<'w> {
    _lock: MutexGuard<'w, ()>,
}

/// The state of a [`Writer`], locked: no other thread commits or publishes while this lives.
pub(crate) struct WriterGuard<'w> {
    writer: &'w Writer,
    state: MutexGuard<'w, State>,
}

/// What is known of the archive.
impl WriterGuard<'_> {
    /// The manifest on disk.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// Refuses writes after a failed one.
    pub(crate) fn check_poison(&self) -> Result<(), Error> {
        self.state.poison.as_ref().map_or(Ok(()), |poison| Err(poison.refusal()))
    }

    /// Whether writes are refused.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.poison.is_some()
    }

    /// Whether the archive is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.state.closing
    }
}

/// How commits and maintenance wait for each other.
impl WriterGuard<'_> {
    /// Unlocks the state, waits until it changes, and locks it again.
    pub(crate) fn wait(&mut self) {
        self.writer.changed.wait(&mut self.state);
    }

    /// The same, at most for so long.
    pub(crate) fn wait_for(&mut self, timeout: Duration) {
        self.writer.changed.wait_for(&mut self.state, timeout);
    }

    /// The same, at most until `deadline`; `false` when that came first.
    pub(crate) fn wait_until(&mut self, deadline: Instant) -> bool {
        !self.writer.changed.wait_until(&mut self.state, deadline).timed_out()
    }

    /// Attempts to emit that ended, well or not.
    pub(crate) fn emission_attempts(&self) -> u64 {
        self.state.emission_attempts
    }

    /// Counts an attempt to emit that ended.
    pub(crate) fn end_emission_attempt(&mut self) {
        self.state.emission_attempts += 1;
        self.state.emission_wanted = false;
        self.writer.changed.notify_all();
    }

    /// Whether somebody wants an emission that failed to be tried again now.
    pub(crate) fn is_emission_wanted(&self) -> bool {
        self.state.emission_wanted
    }

    /// Wants an emission that failed to be tried again now.
    pub(crate) fn request_emission(&mut self) {
        self.state.emission_wanted = true;
        self.writer.changed.notify_all();
    }

    /// What bounds the merges of segments no longer than `span_max` steps.
    pub(crate) fn merge_bounds(&self, span_max: u64) -> Bounds {
        let (from, emitted_to) = (self.state.merging_from, self.state.manifest.emitted_to);
        Bounds { from, emitted_to, span_max, room: u64::MAX }
    }

    /// From now on no merge touches steps before this one. Returns what held before.
    pub(crate) fn merge_only_from(&mut self, step: Step) -> Step {
        let before = std::mem::replace(&mut self.state.merging_from, step);
        let version = self.writer.read_state();
        self.count_backlog(&version);
        // Commits wait for merges only as far as merging can go on.
        self.writer.changed.notify_all();
        before
    }

    /// The most segments of a domain that merging would remove.
    pub(crate) fn merge_backlog(&self) -> usize {
        self.state.merge_backlog
    }

    /// The segments of all domains together that merging would remove, a long merge under way or not.
    pub(crate) fn total_backlog(&self) -> usize {
        self.state.total_backlog
    }

    fn count_backlog(&mut self, version: &ReadState) {
        let bounds = self.merge_bounds(self.writer.options.merge_span_max);
        let surplus =
            |bounds| version.segments.iter().map(move |segments| surplus(&step_ranges(segments), bounds));
        self.state.merge_backlog = surplus(bounds).max().unwrap_or(0);
        self.state.total_backlog = surplus(Bounds { from: Step(0), ..bounds }).sum();
    }
}

/// The tree.
impl WriterGuard<'_> {
    /// The tree of the state at the head, built if it is not there. See [`live_build::build`].
    pub(crate) fn tree(&mut self) -> Result<&mut dyn LiveTree, Error> {
        if self.state.tree.is_none() {
            let (shared, options) = (&self.writer.shared, &self.writer.options);
            let listener = Arc::clone(&self.state.listener);
            let state = self.writer.read_state();
            self.state.tree = Some(live_build::build(shared, &state, options, &*listener)?);
        }
        Ok(&mut **self.state.tree.as_mut().expect("the tree was just built"))
    }

    /// Takes the blocks above `to` out of the tree. `false` when it does not know how, or there is none: then it is built
    /// again when it is needed.
    pub(crate) fn rewind_tree(&mut self, to: BlockNumber) -> bool {
        let version = self.writer.read_state();
        let rewound = self.state.tree.take_if(|tree| !tree.rewind(&version, to)).is_none();
        rewound && self.state.tree.is_some()
    }

    /// Writes what the tree can be built from again without a look at the state, where enough changed since the last time or the archive
    /// `closes`. Without it, and where this fails, the tree is built from the state.
    pub(crate) fn keep_tree(&mut self, closes: bool) {
        if let (Some(tree), Some(head)) = (&mut self.state.tree, self.writer.read_state().head) {
            let _ = tree.keep(&self.writer.shared.directory, head, closes);
        }
    }

    /// Has the tree built again when it is needed.
    pub(crate) fn drop_tree(&mut self) {
        self.state.tree = None;
    }
}

/// The log. Every method poisons the archive when it fails, unless it says otherwise.
impl WriterGuard<'_> {
    /// Makes the log ready for a block of `step`: the steps before it are durable, and the file that takes it is named by the
    /// manifest before it has a record, so that its loss would be noticed (W2).
    ///
    /// # Errors
    /// Where there is no space for a new file, nothing has changed and a later block tries again.
    pub(crate) fn ready_log(&mut self, step: Step) -> Result<(), Error> {
        if !self.state.log.begins_step(step) {
            return Ok(());
        }
        if self.state.log.is_full(step) {
            let (next, manifest) = (self.next_log_file()?, self.manifest().clone());
            return self.store_manifest(manifest, Some(next));
        }
        self.sync_log()
    }

    /// Appends a block, and syncs it as the durability of the archive says. Returns the digest of its changes.
    pub(crate) fn log_block(
        &mut self,
        height: BlockNumber,
        root: Root,
        changes: &[ChangeRef<'_>],
    ) -> Result<Checksum, Error> {
        assert!(self.writer.read_state().head < Some(height), "W5: a block is above the newest one");
        let step = self.writer.shared.directory.config.step_len.step_of(height);
        assert!(
            step >= self.manifest().emitted_to,
            "E3: a block in the log is of a step that was not emitted"
        );
        let log = &mut self.state.log;
        let record = RecordRef::Block { height, root: &root.0, changes };
        let logged = log.append_block(&record, step).and_then(|digest| {
            match self.writer.options.durability {
                Durability::Block => log.sync()?,
                Durability::Group { blocks } if log.unsynced() >= blocks => log.sync()?,
                Durability::Group { .. } | Durability::Relaxed => {}
            }
            Ok(digest)
        });
        self.poison_on_err(logged)
    }

    /// Appends an unwinding to block `to`. It is durable when this returns, as a block is in the strictest mode.
    pub(crate) fn log_unwind(&mut self, to: BlockNumber) -> Result<(), Error> {
        assert!(Some(to) < self.writer.read_state().head, "W5: an unwinding goes below the newest block");
        let appended = self.state.log.append_unwind(to);
        self.poison_on_err(appended)?;
        self.sync_log()
    }

    /// Makes every record durable.
    pub(crate) fn sync_log(&mut self) -> Result<(), Error> {
        let synced = self.state.log.sync();
        self.poison_on_err(synced)
    }

    /// Makes every record durable, and that the log says so: after a power loss, too, a reader knows of all of them.
    pub(crate) fn sync_log_marker(&mut self) -> Result<(), Error> {
        let synced = self.state.log.sync_marker();
        self.poison_on_err(synced)
    }

    /// Creates the file after the last one of the log, for [`VersionEdit::log`].
    ///
    /// # Errors
    /// Nothing is left of the file, and nothing is poisoned.
    pub(crate) fn next_log_file(&self) -> Result<NextFile, Error> {
        self.state.log.create_next()
    }

    /// The first file of the log that is needed once the steps before `emitted_to` are in segments.
    pub(crate) fn first_log_file_needed(&self, emitted_to: Step) -> u64 {
        self.state.log.first_needed(emitted_to)
    }

    /// Remembers a failed write or sync: after it what is on disk is not known.
    fn poison_on_err<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && !left_out!(Poison)
        {
            self.state.poison.get_or_insert_with(|| Poison::of(error));
        }
        result
    }
}

/// What is published.
impl WriterGuard<'_> {
    /// Lets readers see `next`, and whoever waits look again.
    pub(crate) fn install(&mut self, next: ReadState) {
        let emitted_to = self.manifest().emitted_to;
        let first_in_memory = next.tables.first().map(|table| table.step());
        assert!(first_in_memory.is_none_or(|step| step >= emitted_to), "E3: emitted steps are in no table");
        self.writer.shared.install(next);
        self.writer.changed.notify_all();
    }

    /// Publishes a change of files: the manifest on disk first, then the state that readers get. `adjust` says what the
    /// change means beyond the list of segments.
    ///
    /// Files of segments that the new manifest does not name go when their last reader lets go (E2), those of the log before
    /// its first are gone when this returns.
    ///
    /// # Durability
    /// When this returns the change survives a power loss. A failure before the new manifest takes the place of the old one
    /// leaves everything as it was; after a later one the archive is poisoned, because which manifest is on disk is not
    /// known.
    pub(crate) fn publish(
        &mut self,
        mut edit: VersionEdit,
        adjust: impl FnOnce(&mut Manifest, &mut ReadState),
    ) -> Result<(), Error> {
        self.check_poison()?;
        let directory = &self.writer.shared.directory;
        let mut version = (*self.writer.read_state()).clone();
        let mut manifest = self.manifest().clone();
        let kept = version
            .all_segments()
            .filter(|segment| !edit.removed.iter().any(|gone| Arc::ptr_eq(gone, segment)))
            .chain(&edit.added)
            .cloned();
        let segments = by_domain(directory.config.domains.len(), kept);
        version.segments = Arc::new(segments);
        manifest.segments = version.all_segments().map(|segment| segment.record.clone()).collect();
        adjust(&mut manifest, &mut version);
        if !edit.added.is_empty() {
            let synced = directory.storage.sync_dir(&directory.path);
            self.poison_on_err(synced)?;
        }
        let stored = self.store_manifest(manifest, edit.log.take());
        if self.is_poisoned() {
            // The manifest on disk may name them.
            edit.added.clear();
        }
        stored?;
        edit.added.clear();
        for segment in &edit.removed {
            segment.retire_unless_in(version.domain(segment.record.domain));
        }
        self.count_backlog(&version);
        self.install(version);
        let first_file = self.manifest().wal_first;
        let trimmed = self.state.log.trim(first_file);
        self.poison_on_err(trimmed)
    }

    /// Makes `manifest` that of the archive, and `log`, if there is one, the file that the log goes on in.
    ///
    /// # Errors
    /// All that needs space comes first, and a failure of it changes nothing; a later one poisons.
    fn store_manifest(&mut self, mut manifest: Manifest, log: Option<NextFile>) -> Result<(), Error> {
        let directory = &self.writer.shared.directory;
        manifest.wal_last = log.as_ref().map_or(manifest.wal_last, NextFile::sequence);
        manifest.wal_reached = log.as_ref().map_or_else(|| self.state.log.reached(), NextFile::reached);
        let staged = manifest.stage_next(&*directory.storage, &directory.path)?;
        let installed = log
            .map_or(Ok(()), |next| self.state.log.go_on_in(next))
            .and_then(|()| staged.install(&*directory.storage, &directory.path));
        self.state.manifest = self.poison_on_err(installed)?;
        Ok(())
    }
}
