//! Room in a cache that is full of what readers have open: files are exchanged for empty ones of the same objects.
//!
//! Never are bytes taken out of a file that is mapped, since nobody knows who reads them. Each read holds the files that it began with,
//! and those go with the last of these reads; what is read after the exchange is read from the new ones.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::error::Error;
use crate::read::read_state::{ReadState, by_domain};
use crate::read::shared::Shared;
use crate::remote_error::RemoteError;
use crate::segment::live::LiveSegment;
use crate::storage::directory::Directory;

/// How often a read begins anew with other files that finds the cache full.
const TRIES: u32 = 6;

/// Before the second of them, twice as long before each further one: reads that hold former files may end meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a read waits for the room of files that were given up and are still read: by a process that may be slow, over a network that may be.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the files are.
pub(crate) trait Room: Send + Sync {
    /// Whether so much is taken that reads should go on with empty files, and would gain by it.
    fn wants_renewal(&self) -> bool;

    /// Gives the files for data up. Who has them open keeps them until the last of them is closed.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn retire(&self) -> Result<(), Error>;

    /// Whether files that were given up, by this process or another, still take room.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn has_retired(&self) -> Result<bool, Error>;
}

/// A read state whose files can be exchanged.
pub(crate) struct Renewable {
    state: RwLock<Arc<ReadState>>,
    renewal: Arc<Renewal>,
}

/// What exchanges the files of all read states of a reader.
pub(crate) struct Renewal {
    directory: Directory,
    room: Arc<dyn Room>,
    /// Whose own read state is one of them.
    shared: Weak<Shared>,
    all: Mutex<Vec<Weak<Renewable>>>,
}

impl Renewal {
    pub(crate) fn new(directory: Directory, room: Arc<dyn Room>, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { directory, room, shared: Arc::downgrade(shared), all: Mutex::default() })
    }

    /// A read state, to be exchanged with the others.
    pub(crate) fn add(self: &Arc<Self>, state: Arc<ReadState>) -> Arc<Renewable> {
        let added = Arc::new(Renewable { state: RwLock::new(state), renewal: Arc::clone(self) });
        let mut all = self.all.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&added));
        added
    }

    /// Exchanges the files for data where the cache is nearly full of them.
    ///
    /// # Errors
    /// [`Error::Io`] of the cache.
    pub(crate) fn make_room(&self) -> Result<(), Error> {
        if self.room.wants_renewal() {
            self.renew(|| !self.room.wants_renewal())?;
        }
        Ok(())
    }

    /// Exchanges the files for data of all read states, unless `is_done` says that somebody did meanwhile.
    fn renew(&self, is_done: impl Fn() -> bool) -> Result<(), Error> {
        let all = self.all.lock();
        if is_done() {
            return Ok(());
        }
        self.room.retire()?;
        let mut renewed = HashMap::new();
        for renewable in all.iter().filter_map(Weak::upgrade) {
            let before = renewable.state();
            let mut segments = Vec::new();
            for segment in before.all_segments() {
                segments.push(match renewed.get(&Arc::as_ptr(segment)) {
                    Some(same) => Arc::clone(same),
                    None => {
                        let fresh = Arc::new(segment.renewed(&self.directory)?);
                        renewed.insert(Arc::as_ptr(segment), Arc::clone(&fresh));
                        fresh
                    }
                });
            }
            let segments = Arc::new(by_domain(self.directory.config.domains.len(), segments));
            let after = Arc::new(ReadState { segments, ..ReadState::clone(&before) });
            if let Some(shared) = self.shared.upgrade() {
                shared.exchange(&before, &after);
            }
            *renewable.state.write() = after;
        }
        Ok(())
    }
}

impl Renewable {
    /// The state as it is now.
    pub(crate) fn state(&self) -> Arc<ReadState> {
        Arc::clone(&self.state.read())
    }

    /// See [`Pinned::read`](crate::read::pinned::Pinned::read).
    pub(crate) fn read<T>(
        &self,
        read: &mut dyn FnMut(&Arc<ReadState>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut tries, mut pause, mut waited) = (1, PAUSE, Duration::ZERO);
        loop {
            let state = self.state();
            let found = read(&state);
            let Err(Error::Remote(RemoteError::CacheFull { .. } | RemoteError::DiskFull { .. })) = found
            else {
                return found;
            };
            let used = Arc::as_ptr(&state);
            drop(state);
            if tries < TRIES {
                self.renewal.renew(|| !std::ptr::eq(used, Arc::as_ptr(&self.state())))?;
            } else if waited >= PATIENCE || !self.renewal.room.has_retired()? {
                return found;
            }
            thread::sleep(pause);
            (tries, waited, pause) = (tries + 1, waited + pause, (2 * pause).min(PAUSE_MAX));
        }
    }
}

impl LiveSegment {
    /// The same with an empty file in place of that of its data.
    fn renewed(&self, directory: &Directory) -> Result<Self, Error> {
        let data = self.kv.get()?.view().data().renewed()?;
        Ok(self.with_kv(directory, self.kv.with_data(data)?))
    }
}
