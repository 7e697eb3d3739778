//! What a reader, its views and the writer of an archive share in one process: the present read state and what follows it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::error::Error;
use crate::open_options::ReadOptions;
use crate::read::follow::Follower;
use crate::read::read_state::ReadState;
use crate::read::resident::{ResidentLoad, default_resident_budget};
use crate::stats::{Counters, Failures};
use crate::storage::Storage;
use crate::storage::directory::Directory;

/// What a reader and its views share.
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    version: RwLock<Arc<ReadState>>,
    /// Counts the read states.
    pub(crate) installed: AtomicU64,
    /// Notified with each read state, and when the archive is closed.
    pub(crate) changed: Condvar,
    pub(crate) waiting: Mutex<()>,
    /// Whether the archive of this process that installs read states is gone: none will come.
    closed: AtomicBool,
    /// How the archive is followed where another process may write it.
    pub(crate) follower: Option<Mutex<Follower>>,
    pub(crate) counters: Counters,
    pub(crate) failures: Failures,
    /// The reading of accessors at opening, where there is any.
    resident: OnceLock<ResidentLoad>,
    pub(crate) resident_budget: AtomicU64,
}

impl Shared {
    pub(crate) fn new(directory: Directory, version: ReadState) -> Arc<Self> {
        Self::with_follower(directory, version, None)
    }

    /// What a reader of an archive that another process may write begins with.
    pub(crate) fn open(storage: &Arc<dyn Storage>, path: &Path) -> Result<Arc<Self>, Error> {
        let (directory, follower, version) = Follower::open(storage, path)?;
        Ok(Self::with_follower(directory, version, Some(follower)))
    }

    fn with_follower(directory: Directory, version: ReadState, follower: Option<Follower>) -> Arc<Self> {
        Arc::new(Self {
            directory,
            version: RwLock::new(Arc::new(version)),
            installed: AtomicU64::new(0),
            changed: Condvar::new(),
            waiting: Mutex::default(),
            closed: AtomicBool::new(false),
            follower: follower.map(Mutex::new),
            counters: Counters::default(),
            failures: Failures::default(),
            resident: OnceLock::new(),
            resident_budget: AtomicU64::new(0),
        })
    }

    /// Has the accessors read in the background, if all of them fit the budget.
    pub(crate) fn load_accessors(&self, options: ReadOptions) {
        let budget = options.resident_budget.unwrap_or_else(default_resident_budget);
        self.resident_budget.store(budget, Ordering::Relaxed);
        if let Some(load) = ResidentLoad::start(&self.read_state(), budget) {
            let _ = self.resident.set(load);
        }
    }

    /// The bytes of accessors that were read since the archive was opened, and whether there are more to come.
    pub(crate) fn loaded_accessors(&self) -> (u64, bool) {
        self.resident.get().map_or((0, false), |load| (load.loaded(), load.loaded() < load.total))
    }

    /// Lets readers see a read state.
    pub(crate) fn install(&self, version: ReadState) {
        *self.version.write() = Arc::new(version);
        self.installed.fetch_add(1, Ordering::Release);
        self.wake_waiting();
    }

    /// Replaces a read state by one that answers the same, if it is still the present one.
    #[cfg(feature = "object-store")]
    pub(crate) fn exchange(&self, before: &Arc<ReadState>, after: &Arc<ReadState>) {
        let mut version = self.version.write();
        if Arc::ptr_eq(&version, before) {
            version.clone_from(after);
        }
    }

    /// Tells readers that no further read state comes.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        // Between the look and the wait of a reader there must be no gap.
        drop(self.waiting.lock());
        self.changed.notify_all();
    }

    /// Refuses to wait for what cannot come any more.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { path: self.directory.path.clone() });
        }
        Ok(())
    }

    /// Whether files may be gone because a writer of another process replaced them since.
    pub(crate) fn is_stale(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| !follower.lock().is_current().unwrap_or(true))
    }

    /// Brings what this process sees to what the archive is now.
    pub(crate) fn follow(&self) -> Result<(), Error> {
        let Some(follower) = &self.follower else { return Ok(()) };
        let mut follower = follower.lock();
        if let Some(version) = follower.refresh(&self.read_state())? {
            self.install(version);
        }
        Ok(())
    }

    pub(crate) fn read_state(&self) -> Arc<ReadState> {
        Arc::clone(&self.version.read())
    }
}
