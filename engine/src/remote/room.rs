//! How much room a cache takes on its disk, all processes that share it together.
//!
//! Where its disk has less than it was given it keeps to what the disk has, so that there is always some left to go on with.
//!
//! What is true is what the files of the folder take: it is counted again whenever a process has written so much, and a margin is left
//! for what several of them write between two counts. A file that is open is locked, shared; only one that nobody has open is removed.
//! One that a reader gave up, and still has open, keeps a name of its own until then, so that it counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_segments::frame::Kind;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, one_line};
use crate::read::renewal;
use crate::remote::names::{self, Hash};
use crate::remote_error::RemoteError;
use crate::storage::Storage as _;
use crate::storage::os::OsStorage;
use crate::storage::sparse::{FileId, create_folder, list_folder, remove_unused, rename_same};

/// A cache is full where so little is left of it, as long as that is no more than a quarter: what processes write between two counts,
/// and what they have open twice while they exchange files.
const MARGIN_MIN: u64 = 64 << 20;

/// Part of the size that is left at least, and that is made free where the cache is full.
const STEP: u64 = 16;

/// A reader begins anew with empty files when the cache is this full: what remains is for reads that began before.
const RENEWAL: u64 = 10;

/// Of a file no more than this part of the size is requested in advance.
const IN_ADVANCE: u64 = 32;

/// Files are counted again when a process has written this part of the size.
const COUNTED_EVERY: u64 = 64;

/// What a file ends with that a reader gave up.
const RETIRED: &str = ".old";

/// What the hashes of the blocks of a file end with.
pub(crate) const HASHES: &str = "hashes";

/// Digits that say what the bytes of a file must be: see [`file_name`].
const CLAIM_DIGITS: usize = 32;

/// What a read should find besides headers and tails, at least.
const ROOM_MIN: u64 = 1 << 20;

/// What is left of a cache of this size when it is full.
fn margin(size: u64) -> u64 {
    (size / STEP).max(MARGIN_MIN).min(size / 4)
}

/// A folder of files that may take so many bytes together.
pub(crate) struct Room {
    dir: PathBuf,
    /// What it was given.
    size: u64,
    /// What it can have of that: no more than its files take and its disk has left, when they were counted.
    limit: AtomicU64,
    /// Bytes that its files took when they were counted, and that this process wrote since.
    used: AtomicU64,
    /// Where `used` is more, files are counted again.
    recount_at: AtomicU64,
    /// The files that this process has open, by their names.
    held: Mutex<HashMap<String, Vec<Arc<Held>>>>,
    /// Makes the names of retired files different.
    retired: AtomicU64,
}

/// A file that this process has open.
struct Held {
    id: FileId,
    /// Changes when it is retired.
    name: Mutex<String>,
    /// Bytes that it took when files were counted, or when it was opened, and that this process wrote since. Others may write to it too.
    taken: AtomicU64,
}

impl Room {
    /// Makes or takes up the cache in a folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn open(dir: &Path, size: u64) -> Result<Arc<Self>, Error> {
        create_folder(dir)?;
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let (used, recount_at, retired) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let limit = AtomicU64::new(size);
        let room = Self { dir, size, limit, used, recount_at, held: Mutex::default(), retired };
        room.clear(0)?;
        Ok(Arc::new(room))
    }

    /// Why something cannot be kept.
    pub(crate) fn failure(&self, error: Error) -> RemoteError {
        match error {
            Error::Remote(error) => error,
            error if error.kind() == ErrorKind::NoSpace => RemoteError::DiskFull { dir: self.dir.clone() },
            error => RemoteError::Cache { cause: one_line(&error) },
        }
    }

    /// The most bytes of a file that are requested in advance: what a read needs at once must fit beside them.
    pub(crate) fn in_advance_max(&self) -> u64 {
        self.limit() / IN_ADVANCE
    }

    /// Where a file is.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Has a file count that is opened and takes so much already.
    pub(crate) fn share(self: &Arc<Self>, name: &str, id: FileId, allocated: u64) -> Share {
        let name = name.to_owned();
        let held = Arc::new(Held { id, name: Mutex::new(name.clone()), taken: AtomicU64::new(allocated) });
        self.held.lock().entry(name).or_default().push(Arc::clone(&held));
        Share { room: Arc::clone(self), held }
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// What its files may take before it is full.
    fn full(&self) -> u64 {
        let limit = self.limit();
        limit - margin(limit)
    }

    /// Refuses an archive whose headers and tails alone fill it.
    ///
    /// # Errors
    /// [`RemoteError::CacheTooSmall`], [`RemoteError::DiskFull`].
    pub(crate) fn check_opening(&self, bytes: u64) -> Result<(), RemoteError> {
        if bytes <= self.full() {
            return Ok(());
        }
        if self.is_short_of_disk() {
            return Err(RemoteError::DiskFull { dir: self.dir.clone() });
        }
        // What is read comes besides: some of it must fit as well.
        let (mut needed, wanted) = (self.size, bytes.saturating_add(bytes / 4).saturating_add(ROOM_MIN));
        while needed - margin(needed) < wanted {
            needed = needed.saturating_add(needed / 4).saturating_add(1 << 20);
        }
        let needed = needed.next_multiple_of(1 << 20);
        Err(RemoteError::CacheTooSmall { dir: self.dir.clone(), size: self.size, needed })
    }

    /// Whether its disk gives it less than it was given.
    fn is_short_of_disk(&self) -> bool {
        self.limit() < self.size
    }

    /// Removes what nobody has open after the disk refused a write, and keeps to what is left from then on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn yield_to_disk(&self, wanted: u64) -> Result<(), Error> {
        self.clear(wanted).map(drop)
    }

    /// Counts what is taken, and returns it. Removes files that nobody has open where `wanted` more bytes do not fit: those first that were
    /// given up, then those that were opened longest ago.
    fn clear(&self, wanted: u64) -> Result<u64, Error> {
        let held = self.held.lock();
        let mut entries = list_folder(&self.dir)?;
        entries.retain(|entry| is_ours(&entry.name));
        entries.sort_by_key(|entry| (!entry.name.ends_with(RETIRED), entry.used));
        let mut used: u64 = entries.iter().map(|entry| entry.allocated).sum();
        // By what they are, since another process may have renamed them.
        let taken: HashMap<FileId, u64> = entries.iter().map(|entry| (entry.id, entry.allocated)).collect();
        for file in held.values().flatten() {
            if let Some(taken) = taken.get(&file.id) {
                file.taken.store(*taken, Ordering::Relaxed);
            }
        }
        let free = OsStorage.free_space(&self.dir)?.map_or(self.size, |free| used.saturating_add(free));
        self.limit.store(self.size.min(free), Ordering::Relaxed);
        let is_full = used + wanted > self.full();
        for entry in entries.iter().filter(|entry| !held.contains_key(&entry.name)) {
            let goes = entry.name.ends_with(RETIRED)
                || (is_full && used + wanted + self.limit() / STEP > self.full());
            if goes && remove_unused(&self.dir.join(&entry.name))? {
                used -= entry.allocated;
            }
        }
        self.used.store(used, Ordering::Relaxed);
        self.recount_at.store(used + self.limit() / COUNTED_EVERY, Ordering::Relaxed);
        Ok(used)
    }
}

impl renewal::Room for Room {
    fn wants_renewal(&self) -> bool {
        if self.used.load(Ordering::Relaxed) < self.limit() / 16 * RENEWAL {
            return false;
        }
        let held = self.held.lock();
        let data = held.iter().filter(|(name, _)| is_data(name)).flat_map(|(_, held)| held);
        data.map(|held| held.taken.load(Ordering::Relaxed)).sum::<u64>() > self.limit() / 4
    }

    fn retire(&self) -> Result<(), Error> {
        let mut held = self.held.lock();
        let names: Vec<String> = held.keys().filter(|name| is_data(name)).cloned().collect();
        for name in names {
            let number = self.retired.fetch_add(1, Ordering::Relaxed);
            let retired = format!("{name}.{}-{number}{RETIRED}", process::id());
            let of_name = held.remove(&name).unwrap_or_default();
            for held in &of_name {
                // Another process may have done so before.
                rename_same(&self.dir.join(&name), held.id, &self.dir.join(&retired))?;
                held.name.lock().clone_from(&retired);
            }
            held.insert(retired, of_name);
        }
        Ok(())
    }

    fn has_retired(&self) -> Result<bool, Error> {
        // What nobody has open any more goes with the count.
        self.clear(0)?;
        let is_retired = |name: &str| name.ends_with(RETIRED) && is_ours(name);
        Ok(list_folder(&self.dir)?.iter().any(|entry| is_retired(&entry.name)))
    }
}

/// Whether a file is one for data, and was not given up.
fn is_data(name: &str) -> bool {
    name.rsplit('.').next() == Some(Kind::Segment.extension())
}

/// The file for what was read of an object: `claim` is a hash of all that was said of its bytes, and of who said it. Whoever says
/// something else has another file, so that nobody is answered from what another one believed.
pub(crate) fn file_name(id: &Hash, claim: &Hash, kind: &str) -> String {
    format!("{}.{}.{kind}", names::hex(id), &names::hex(claim)[..CLAIM_DIGITS])
}

/// Whether a file of the folder is one of a cache: no other is counted, or removed.
fn is_ours(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    // Before what makes the name of a retired file its own.
    let parts = if name.ends_with(RETIRED) { &parts[..parts.len() - 2] } else { &parts[..] };
    let is_kind = |kind: &str| kind == HASHES || Kind::ALL.iter().any(|known| known.extension() == kind);
    let is_claim = |claim: &str| {
        claim.len() == CLAIM_DIGITS && claim.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    match parts {
        [id, claim, kind] => blake3::Hash::from_hex(id).is_ok() && is_claim(claim) && is_kind(kind),
        _ => false,
    }
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
        let after = room.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if after > room.full() || after > room.recount_at.load(Ordering::Relaxed) {
            if room.clear(bytes)? + bytes > room.full() {
                let (dir, size) = (room.dir.clone(), room.size);
                let error = if room.is_short_of_disk() {
                    RemoteError::DiskFull { dir }
                } else {
                    RemoteError::CacheFull { dir, size }
                };
                return Err(error.into());
            }
            room.used.fetch_add(bytes, Ordering::Relaxed);
        }
        self.held.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Share {
    /// Takes room that a file which was given up leaves soon: never refused.
    #[expect(clippy::unnecessary_wraps, reason = "in place of `take`")]
    pub(crate) fn take_in_advance(&self, bytes: u64) -> Result<(), Error> {
        self.room.used.fetch_add(bytes, Ordering::Relaxed);
        self.held.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.room.held.lock();
        let name = self.held.name.lock().clone();
        let Some(same) = held.get_mut(&name) else { return };
        same.retain(|other| !Arc::ptr_eq(other, &self.held));
        if same.is_empty() {
            held.remove(&name);
            // What stays, because another process has it open or the system refuses, goes when files are counted.
            if name.ends_with(RETIRED) {
                let _ = remove_unused(&self.room.dir.join(&name));
                // Whether that freed anything only a count says: where another process gave the same file up before, it has the name that
                // it got there, and its bytes stay until that process closes it too.
                self.room.recount_at.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::read::renewal::Room as _;
    use crate::storage::sparse::SparseFile;

    const PIECE: u64 = 64 << 10;
    const SIZE: u64 = 64 * PIECE;

    /// What a process has of a cache: as far as the system is concerned, a second one in this process is another process.
    struct Process {
        room: Arc<Room>,
        file: SparseFile,
        share: Share,
        written: u64,
    }

    impl Process {
        fn open(dir: &Path) -> Self {
            let room = Room::open(dir, SIZE).unwrap();
            let (file, share) = Self::file(&room);
            Self { room, file, share, written: 0 }
        }

        fn file(room: &Arc<Room>) -> (SparseFile, Share) {
            let name = file_name(&[7; 32], &[9; 32], Kind::Segment.extension());
            let file = SparseFile::open(&room.path_of(&name), 2 * SIZE).unwrap();
            let share = room.share(&name, file.id, file.allocated().unwrap());
            (file, share)
        }

        /// Writes pieces from a place on, until one is refused; returns how many it wrote.
        fn write(&mut self, from: u64, most: u64) -> u64 {
            let fits = |piece: &u64| {
                self.share.take(PIECE).is_ok_and(|()| {
                    self.file.write_at((from + piece) * PIECE, &vec![7; PIECE as usize]).unwrap();
                    true
                })
            };
            let written = (0..most).take_while(fits).count() as u64;
            self.written += written;
            written
        }

        /// Goes on with an empty file.
        fn renew(&mut self) {
            self.room.retire().unwrap();
            (self.file, self.share) = Self::file(&self.room);
        }
    }

    fn taken(dir: &Path) -> u64 {
        list_folder(dir).unwrap().iter().map(|entry| entry.allocated).sum()
    }

    #[test]
    fn a_file_that_two_processes_give_up_counts_until_both_have_closed_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut one, other) = (Process::open(dir.path()), Process::open(dir.path()));
        assert_eq!(one.write(0, 36), 36);
        // The other one gives it up first, and still reads it.
        other.room.retire().unwrap();
        one.renew();
        one.write(0, u64::MAX);
        assert!(taken(dir.path()) <= SIZE * 3 / 4, "{} of {SIZE}", taken(dir.path()));
        let few = one.written - 36;
        one.renew();
        assert_eq!(one.write(0, u64::MAX), few, "what it gave up alone is free again");
        drop(other);
        one.renew();
        assert!(one.write(0, u64::MAX) > 36, "and now the first as well");
        drop(one);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn each_of_the_processes_that_fill_a_file_together_gives_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut processes: Vec<Process> = (0..4).map(|_| Process::open(dir.path())).collect();
        for (from, process) in (0..).step_by(11).zip(&mut processes) {
            assert!(!process.room.wants_renewal());
            assert_eq!(process.write(from, 11), 11);
        }
        for process in &mut processes {
            // A process that reads nothing new has no reason to count.
            process.write(60, 1);
            assert!(process.room.wants_renewal());
            process.renew();
        }
        assert!(processes[0].write(0, 11) == 11 && taken(dir.path()) < SIZE / 4);
    }

    #[test]
    fn only_files_of_a_cache_are_touched() {
        let id = blake3::hash(b"x").to_hex();
        let ours = |kind| file_name(&[7; 32], &[9; 32], kind);
        for name in [
            ours("kv"),
            ours("kvei"),
            ours("kvbi"),
            ours(HASHES),
            format!("{}.71-0.old", ours("bt")),
            format!("{}.71-0.old", ours("kv")),
        ] {
            assert!(is_ours(&name), "{name}");
            let kind = Path::new(&name).extension();
            assert_eq!(is_data(&name), kind.is_some_and(|kind| kind == "kv"), "{name}");
        }
        for name in [
            format!("{id}.txt"),
            format!("{id}"),
            format!("{id}.kv"),
            format!("{id}.other.kv"),
            format!("{}.bak", ours("kv")),
            format!("{id}.{}.kv", &id[..31]),
            "notes.kv".to_owned(),
            "1.old".to_owned(),
        ] {
            assert!(!is_ours(&name), "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = (dir.path().join("letter.txt"), dir.path().join(ours("kv")));
        crate::storage::sparse::SparseFile::open(&ours, 8192).unwrap().write_at(0, &[1; 8192]).unwrap();
        crate::storage::sparse::SparseFile::open(&theirs, 8192).unwrap().write_at(0, &[1; 8192]).unwrap();
        Room::open(dir.path(), 4096).unwrap();
        assert!(theirs.exists() && !ours.exists());
    }
}
