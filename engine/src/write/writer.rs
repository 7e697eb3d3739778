//! What writing shares: the log, the Merkle tree, the manifest, and the rules by which they change together.
//!
//! Two locks, always taken in this order. `structure` is held for the whole of an emission, merge, reindex, prune or
//! unwinding, so there is one at a time; `state` is held for a commit and for the moment in which a change is published, so
//! commits go on while files are built. Readers take neither.

use std::sync::Arc;

use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, Step, StepRange};
use parking_lot::{Condvar, Mutex};

use crate::domain::DomainId;
use crate::error::{Error, Poison};
use crate::manifest::Manifest;
use crate::merkle::live_tree::LiveTree;
use crate::options::OpenOptions;
use crate::progress::Observer;
use crate::read::read_state::{Version, by_domain};
use crate::read::shared::Shared;
use crate::segment::live::{LiveFile, LiveSegment};
use crate::segment::merge_plan::{Bounds, pieces, surplus};
use crate::segment::policy::NewSegment;
use crate::segment::writer::Shape;
use crate::storage::DirLock;
use crate::wal::log::{Log, NextFile};
use crate::write::log_drop::LogDrop;

/// The writing side of an archive.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: OpenOptions,
    pub(crate) state: Mutex<State>,
    pub(crate) structure: Mutex<()>,
    /// Notified after each commit and each emission.
    pub(crate) changed: Condvar,
    pub(crate) repairs: Vec<String>,
    pub(crate) log_drop: Option<LogDrop>,
    #[expect(dead_code, reason = "held for its drop, which releases the lock")]
    pub(crate) lock: DirLock,
}

/// What a commit changes.
pub(crate) struct State {
    pub(crate) manifest: Manifest,
    pub(crate) log: Log,
    /// Built from the state at the first commit.
    pub(crate) live: Option<LiveTree>,
    /// Hears of work that nobody asked for by name: building the tree.
    pub(crate) observer: Arc<dyn Observer>,
    /// The failure after which nothing is written any more.
    pub(crate) poison: Option<Poison>,
    pub(crate) closing: bool,
    /// Attempts to emit that ended, well or not.
    pub(crate) emission_attempts: u64,
    /// A commit is held up by an emission that failed and requests another attempt.
    pub(crate) emission_wanted: bool,
    /// The most segments of a domain that merging would do away with, as of the last change of files.
    pub(crate) merge_backlog: usize,
    /// The segments of all domains together that merging would do away with, a long merge under way or not.
    pub(crate) total_backlog: usize,
    /// Steps before this one are in the hands of long work: nothing else merges them.
    pub(crate) merging_from: Step,
}

impl State {
    /// That of an archive that was just opened.
    pub(crate) fn new(manifest: Manifest, log: Log) -> Self {
        Self {
            manifest,
            log,
            live: None,
            observer: Arc::new(()),
            poison: None,
            closing: false,
            emission_attempts: 0,
            emission_wanted: false,
            merge_backlog: 0,
            total_backlog: 0,
            merging_from: Step(0),
        }
    }

    /// What bounds the merges of segments no longer than `span_max` steps.
    pub(crate) fn merge_bounds(&self, span_max: u64) -> Bounds {
        let (from, emitted_to) = (self.merging_from, self.manifest.emitted_to);
        Bounds { from, emitted_to, span_max, room: u64::MAX }
    }

    /// Counts the segments that merging would do away with.
    pub(crate) fn count_backlog(&mut self, version: &Version, span_max: u64) {
        let bounds = self.merge_bounds(span_max);
        let surplus =
            |bounds| version.segments.iter().map(move |segments| surplus(&pieces(segments), bounds));
        self.merge_backlog = surplus(bounds).max().unwrap_or(0);
        self.total_backlog = surplus(Bounds { from: Step(0), ..bounds }).sum();
    }

    /// Refuses writes after a failed one.
    pub(crate) fn check_poison(&self) -> Result<(), Error> {
        self.poison.as_ref().map_or(Ok(()), |poison| Err(poison.refusal()))
    }

    /// Whether writes are refused.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Remembers a failed write or sync: after it nobody knows what is on disk.
    pub(crate) fn poisoned<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && self.poison.is_none()
            && !left_out!(Poison)
        {
            self.poison = Some(Poison::of(error));
        }
        result
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Before the lock goes.
        self.shared.directory.removals.end();
    }
}

/// A change of the set of live segments. What it would add and was not published is removed again.
#[derive(Default)]
pub(crate) struct FileChange {
    pub(crate) removed: Vec<Arc<LiveSegment>>,
    pub(crate) added: Vec<Arc<LiveSegment>>,
    /// Where the log goes on.
    pub(crate) log: Option<NextFile>,
}

impl Drop for FileChange {
    fn drop(&mut self) {
        self.added.iter().for_each(|segment| segment.retire_unless_shared());
    }
}

impl Core {
    pub(crate) fn version(&self) -> Arc<Version> {
        self.shared.version()
    }

    /// Checks that a block at `height` may follow.
    pub(crate) fn check_rising(&self, height: BlockNumber) -> Result<(), Error> {
        self.state.lock().check_poison()?;
        match self.version().head {
            Some(head) if height <= head => Err(Error::NotRising { head, got: height }),
            _ => Ok(()),
        }
    }

    /// Makes everything committed durable.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check_poison()?;
        let settled = state.log.settle();
        state.poisoned(settled)
    }

    /// Makes everything committed durable, and has the manifest say how far the log reaches: from then on a log that was cut is
    /// known to be.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.flush()?;
        let mut state = self.state.lock();
        if state.log.reached() == state.manifest.wal_reached {
            return Ok(());
        }
        let manifest = state.manifest.clone();
        self.store_manifest(&mut state, manifest, None)
    }

    /// Builds the tree, if it is not there. See [`LiveTree::build`].
    pub(crate) fn ensure_tree<'s>(&self, state: &'s mut State) -> Result<&'s mut LiveTree, Error> {
        if state.live.is_none() {
            let (config, observer) = (&self.shared.directory.config, Arc::clone(&state.observer));
            let tree = LiveTree::build(&self.version(), config, self.options.parallelism, &*observer)?;
            state.live = Some(tree);
        }
        Ok(state.live.as_mut().expect("the tree was just built"))
    }

    /// How a segment that is about to be written is to be built.
    pub(crate) fn shape_of_new(
        &self,
        domain: DomainId,
        steps: StepRange,
        entries: u64,
    ) -> Result<Shape, Error> {
        let (rule, version) = (self.state.lock().manifest.rule, self.version());
        let new = NewSegment { domain, steps, entries };
        let config = &self.shared.directory.config;
        let parallelism = self.options.file_parallelism();
        new.shape(config, rule, version.head, version.all_segments(), parallelism)
    }

    /// Publishes a change of files: the manifest on disk first, then the version that readers get.
    ///
    /// `edit` adjusts manifest and version to what the change means beyond the list of segments. Files that the new manifest
    /// does not name go when their last reader lets go.
    ///
    /// Durability: when this returns the change survives a power loss. A failure before the new manifest takes the place of
    /// the old one leaves everything as it was; after a later one the archive is poisoned, because nobody knows which manifest
    /// the disk has.
    pub(crate) fn publish(
        &self,
        state: &mut State,
        mut change: FileChange,
        edit: impl FnOnce(&mut Manifest, &mut Version),
    ) -> Result<(), Error> {
        state.check_poison()?;
        let directory = &self.shared.directory;
        let mut version = (*self.version()).clone();
        let mut manifest = state.manifest.clone();
        let kept = version
            .all_segments()
            .filter(|segment| !change.removed.iter().any(|gone| Arc::ptr_eq(gone, segment)))
            .chain(&change.added)
            .cloned();
        let segments = by_domain(directory.config.domains.len(), kept);
        version.segments = Arc::new(segments);
        manifest.segments = version.all_segments().map(|segment| segment.record.clone()).collect();
        edit(&mut manifest, &mut version);
        if !change.added.is_empty() {
            let synced = directory.storage.sync_dir(&directory.path);
            state.poisoned(synced)?;
        }
        let stored = self.store_manifest(state, manifest, change.log.take());
        if state.poison.is_some() {
            // The manifest on disk may name them.
            change.added.clear();
        }
        stored?;
        change.added.clear();
        for segment in &change.removed {
            segment.retire_unless_named(&version);
        }
        state.count_backlog(&version, self.options.merge_span_max);
        self.shared.install(version);
        self.changed.notify_all();
        Ok(())
    }

    /// Makes `manifest` that of the archive, and `log`, if there is one, the file that the log goes on in.
    ///
    /// # Errors
    /// All that needs space comes first, and a failure of it changes nothing; a later one poisons.
    pub(crate) fn store_manifest(
        &self,
        state: &mut State,
        mut manifest: Manifest,
        log: Option<NextFile>,
    ) -> Result<(), Error> {
        let directory = &self.shared.directory;
        manifest.generation += 1;
        manifest.wal_last = log.as_ref().map_or(manifest.wal_last, NextFile::sequence);
        manifest.wal_reached = log.as_ref().map_or_else(|| state.log.reached(), NextFile::reached);
        manifest.write_beside(&*directory.storage, &directory.path)?;
        let installed = log
            .map_or(Ok(()), |next| state.log.go_on_in(next))
            .and_then(|()| Manifest::install(&*directory.storage, &directory.path));
        state.poisoned(installed)?;
        state.manifest = manifest;
        Ok(())
    }
}

impl LiveSegment {
    /// Marks for removal the files that no segment of `version` has.
    fn retire_unless_named(&self, version: &Version) {
        let alive = |kind: Kind, name: &std::path::Path| {
            version.domain(self.record.domain).iter().any(|segment| segment.path(kind) == name)
        };
        if !alive(Kind::Segment, self.kv.path()) {
            self.kv.retire();
        }
        if !alive(Kind::PivotIndex, self.bt.path()) {
            self.bt.retire();
        }
        if !alive(Kind::ExistenceFilter, self.kvei.path()) {
            self.kvei.retire();
        }
    }

    /// Marks for removal the files that no other segment has.
    fn retire_unless_shared(&self) {
        if Arc::strong_count(&self.kv) == 1 {
            self.kv.retire();
        }
        if Arc::strong_count(&self.bt) == 1 {
            self.bt.retire();
        }
        if Arc::strong_count(&self.kvei) == 1 {
            self.kvei.retire();
        }
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, kind: Kind) -> &std::path::Path {
        match kind {
            Kind::Segment => LiveFile::path(&self.kv),
            Kind::PivotIndex => LiveFile::path(&self.bt),
            Kind::ExistenceFilter => LiveFile::path(&self.kvei),
        }
    }
}
