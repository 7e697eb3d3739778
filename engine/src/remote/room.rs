//! How much room a cache takes on its disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::Error;
use crate::remote_error::RemoteError;
use crate::storage::sparse::{create_folder, list_folder, remove_file};

/// Where a cache is full it is emptied to this share of its size, in sixteenths.
const LOW_WATER: u64 = 14;

/// A reader begins anew with empty files when the cache is this full, in sixteenths: what remains is for views of before.
const RENEWAL: u64 = 10;

/// A folder of files that may take so many bytes together.
pub(crate) struct Room {
    dir: PathBuf,
    size: u64,
    /// Bytes that its files take, as far as this process knows, those included that were retired and are still open.
    used: AtomicU64,
    /// The files that this process has open under their names.
    held: Mutex<HashMap<String, Vec<Arc<Held>>>>,
    /// Bytes of files that have no name any more and are still open.
    retired: AtomicU64,
}

/// A file that this process has open.
struct Held {
    name: String,
    /// Bytes that it takes.
    written: AtomicU64,
    is_retired: AtomicBool,
}

impl Room {
    /// Makes or takes up the cache in a folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn open(dir: &Path, size: u64) -> Result<Arc<Self>, Error> {
        create_folder(dir)?;
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let (used, retired) = (AtomicU64::new(0), AtomicU64::new(0));
        let room = Self { dir, size, used, held: Mutex::default(), retired };
        room.clear(0)?;
        Ok(Arc::new(room))
    }

    /// Where the cached file of an object is.
    pub(crate) fn path_of(&self, object: &str) -> PathBuf {
        self.dir.join(file_name(object))
    }

    /// Has a file count that is opened and takes so much already.
    pub(crate) fn share(self: &Arc<Self>, object: &str, allocated: u64) -> Share {
        let (name, written) = (file_name(object).to_owned(), AtomicU64::new(allocated));
        let held = Arc::new(Held { name: name.clone(), written, is_retired: AtomicBool::new(false) });
        self.held.lock().entry(name).or_default().push(Arc::clone(&held));
        Share { room: Arc::clone(self), held }
    }

    /// Whether so much is taken that a reader should begin anew with empty files, and would gain by it.
    pub(crate) fn wants_renewal(&self, extension: &str) -> bool {
        if self.used.load(Ordering::Relaxed) < self.size / 16 * RENEWAL {
            return false;
        }
        let held = self.held.lock();
        let of_kind = held.iter().filter(|(name, _)| name.ends_with(extension)).flat_map(|(_, held)| held);
        let written: u64 = of_kind.map(|held| held.written.load(Ordering::Relaxed)).sum();
        written > self.size / 4
    }

    /// Takes the files of a kind out of the folder. Who has them open keeps them until the last of them is closed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn retire(&self, extension: &str) -> Result<(), Error> {
        let mut held = self.held.lock();
        let names: Vec<String> = held.keys().filter(|name| name.ends_with(extension)).cloned().collect();
        for name in names {
            remove_file(&self.dir.join(&name))?;
            for held in held.remove(&name).unwrap_or_default() {
                held.is_retired.store(true, Ordering::Relaxed);
                self.retired.fetch_add(held.written.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Removes files that this process does not have open, those first that were opened longest ago, until `wanted` more bytes fit.
    fn clear(&self, wanted: u64) -> Result<(), Error> {
        let held = self.held.lock();
        let mut entries = list_folder(&self.dir)?;
        entries.sort_by_key(|entry| entry.used);
        let mut used: u64 = entries.iter().map(|entry| entry.allocated).sum();
        used += self.retired.load(Ordering::Relaxed);
        if used + wanted > self.size {
            let low = self.size / 16 * LOW_WATER;
            for entry in entries.iter().filter(|entry| !held.contains_key(&entry.name)) {
                if used + wanted <= low {
                    break;
                }
                remove_file(&self.dir.join(&entry.name))?;
                used -= entry.allocated;
            }
        }
        self.used.store(used, Ordering::Relaxed);
        Ok(())
    }
}

/// The last part of the name of an object, which no other object has.
fn file_name(object: &str) -> &str {
    object.rsplit('/').next().unwrap_or(object)
}

/// An open file of a cache.
pub(crate) struct Share {
    room: Arc<Room>,
    held: Arc<Held>,
}

impl Share {
    /// Takes room for bytes that are about to be written.
    ///
    /// # Errors
    /// [`RemoteError::CacheFull`] where nothing more can go; [`Error::Io`].
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Error> {
        let room = &self.room;
        let fits = || room.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= room.size;
        if !fits() {
            room.clear(bytes)?;
            if !fits() {
                room.used.fetch_sub(bytes, Ordering::Relaxed);
                return Err(RemoteError::CacheFull { dir: room.dir.clone(), size: room.size }.into());
            }
        }
        self.held.written.fetch_add(bytes, Ordering::Relaxed);
        if self.held.is_retired.load(Ordering::Relaxed) {
            room.retired.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.room.held.lock();
        if self.held.is_retired.load(Ordering::Relaxed) {
            let written = self.held.written.load(Ordering::Relaxed);
            self.room.retired.fetch_sub(written, Ordering::Relaxed);
            self.room.used.fetch_sub(written, Ordering::Relaxed);
        } else if let Some(same) = held.get_mut(&self.held.name) {
            same.retain(|other| !Arc::ptr_eq(other, &self.held));
            if same.is_empty() {
                held.remove(&self.held.name);
            }
        }
    }
}
