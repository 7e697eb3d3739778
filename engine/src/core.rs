//! What writing shares: the log, the Merkle tree, the manifest, and the rules by which they change together.
//!
//! Two locks, always taken in this order. `structure` is held for the whole of an emission, merge, reindex, prune or
//! unwinding, so there is one at a time; `state` is held for a commit and for the moment in which a change is published, so
//! commits go on while files are built. Readers take neither.

use std::sync::Arc;

use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Poison};
use crate::live::{LiveFile, LiveSegment};
use crate::log::Log;
use crate::manifest::Manifest;
use crate::observer::Observer;
use crate::options::{Maintenance, OpenOptions};
use crate::reader::Shared;
use crate::storage::DirLock;
use crate::tree::LiveTree;
use crate::version::{Version, by_domain};

/// Complete steps that may wait for emission before a commit waits for them.
const STEPS_WAITING_MAX: u64 = 4;

/// The writing side of an archive.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: OpenOptions,
    pub(crate) state: Mutex<State>,
    pub(crate) structure: Mutex<()>,
    /// Notified after each commit and each emission.
    pub(crate) changed: Condvar,
    pub(crate) repairs: Vec<String>,
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
}

impl State {
    /// Refuses writes after a failed one.
    pub(crate) fn check_poison(&self) -> Result<(), Error> {
        self.poison.as_ref().map_or(Ok(()), |poison| Err(poison.refusal()))
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

    /// Publishes a change of files: the manifest on disk first, then the version that readers get.
    ///
    /// `edit` adjusts manifest and version to what the change means beyond the list of segments. Files that the new manifest
    /// does not name go when their last reader lets go.
    ///
    /// Durability: when this returns the change survives a power loss. After an error the archive is poisoned, because
    /// nobody knows which manifest the disk has.
    pub(crate) fn publish(
        &self,
        state: &mut State,
        mut change: FileChange,
        edit: impl FnOnce(&mut Manifest, &mut Version),
    ) -> Result<(), Error> {
        state.check_poison()?;
        // From here on the manifest on disk may name them.
        let added = std::mem::take(&mut change.added);
        let directory = &self.shared.directory;
        let mut version = (*self.version()).clone();
        let mut manifest = state.manifest.clone();
        let kept = version
            .all_segments()
            .filter(|segment| !change.removed.iter().any(|gone| Arc::ptr_eq(gone, segment)))
            .cloned();
        let segments = by_domain(directory.config.domains.len(), kept.chain(added));
        version.segments = Arc::new(segments);
        manifest.segments = version.all_segments().map(|segment| segment.record.clone()).collect();
        manifest.generation += 1;
        edit(&mut manifest, &mut version);
        let stored = directory
            .storage
            .sync_dir(&directory.path)
            .and_then(|()| manifest.store(&*directory.storage, &directory.path));
        state.poisoned(stored)?;
        state.manifest = manifest;
        for segment in &change.removed {
            segment.retire_unless_named(&version);
        }
        self.shared.install(version);
        self.changed.notify_all();
        Ok(())
    }

    /// Lets emission catch up before the writer runs further ahead.
    pub(crate) fn wait_for_emission(&self) {
        if self.options.maintenance != Maintenance::Background {
            return;
        }
        let mut state = self.state.lock();
        while state.poison.is_none() && !state.closing && self.steps_waiting(&state) > STEPS_WAITING_MAX {
            self.changed.wait(&mut state);
        }
    }

    /// Complete steps that wait for emission.
    pub(crate) fn steps_waiting(&self, state: &State) -> u64 {
        let config = &self.shared.directory.config;
        let border =
            self.version().head.map(|head| config.step_len.emission_border(head, config.reorg_window));
        let emitted = state.manifest.emitted_to;
        let version = self.version();
        version.tables.iter().filter(|t| t.step() >= emitted && border.is_some_and(|b| t.step() < b)).count()
            as u64
    }

    /// What follows a commit: emission, and merging where the options leave it to the writer.
    pub(crate) fn maintain_inline(&self) -> Result<(), Error> {
        match self.options.maintenance {
            Maintenance::Background => Ok(()),
            Maintenance::EmitOnly => self.emit_ready(&()),
            Maintenance::Inline => self.maintain(&()),
        }
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
