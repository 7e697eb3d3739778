//! A disk in memory that forgets what was not synced, and fails where a test says.
//!
//! Every operation counts one; [`SimStorage::inject`] names the one that fails. At any moment a test can take a copy of
//! the disk as another process would find it after `kill -9` ([`SimStorage::kill_clone`]) or as the next boot would
//! after a power loss ([`SimStorage::crash_clone`]), and open that. Everything is a function of the operations and
//! the seeds.
//!
//! What a power loss may do here, after POSIX and the failures seen in Pillai et al., OSDI '14:
//!
//! * Synced bytes stay. Of the bytes after them, any prefix, perhaps with zeros or garbage after it, or single
//!   sectors in any combination.
//! * A cut that was not synced may not have happened.
//! * Bytes whose sync failed are clean to the system: a later sync that succeeds does not save them.
//! * Each name that was created, renamed or removed since its directory was synced may be as before, one without
//!   the other; a rename happens as a whole. Names under a directory whose own name is lost are lost with it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::{Disk, Entry, Fault, Film, Node, Outcome};
use crate::error::{Error, Operation};
use crate::storage::layout::LOCK;
use crate::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};

/// What a file collects before it pushes to the simulated system: small, so that a test sees many write operations.
const WRITE_BUFFER: usize = 16 << 10;

/// A file system in memory.
///
/// A clone is a second handle to the same disk, as two processes have. Paths are taken as they are; the root, and the
/// empty path, exist.
#[derive(Clone, Default)]
pub struct SimStorage(Arc<Mutex<Disk>>);

impl SimStorage {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of operations so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Lets operation number `at`, counted from 1, fail once. Short for [`SimStorage::inject`].
    pub fn fail_at(&self, at: u64) {
        self.inject(Fault::at(at));
    }

    /// Arranges a failure. It takes the place of one arranged before.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().fault = Some(fault);
    }

    /// No more failures.
    pub fn heal(&self) {
        self.0.lock().fault = None;
    }

    /// The disk as a new process finds it after this one was killed: what was handed to the system is there, what
    /// sat in buffers is not, locks are free. It can lose power still. No failures are arranged, no operations counted.
    pub fn kill_clone(&self) -> Self {
        let mut disk = self.0.lock().clone();
        (disk.locks, disk.fault, disk.film, disk.operations) = (BTreeSet::new(), None, None, 0);
        Self(Arc::new(Mutex::new(disk)))
    }

    /// The disk as it may be after a power loss at this moment; see the module. Another seed, another outcome.
    pub fn crash_clone(&self, seed: u64) -> Self {
        let disk = self.0.lock().after_power_loss(seed);
        Self(Arc::new(Mutex::new(disk)))
    }

    /// Keeps a copy of the disk as it is before operation number `first`, counted from 1, and before every `every`-th
    /// one after it.
    pub fn film(&self, first: u64, every: u64) {
        self.0.lock().film = Some(Film { next: first, every, frames: Vec::new() });
    }

    /// Ends [`SimStorage::film`]: the copies, each with the number of the operation that had not happened yet, as
    /// after a kill.
    pub fn frames(&self) -> Vec<(u64, Self)> {
        let film = self.0.lock().film.take();
        let frames = film.map(|film| film.frames).unwrap_or_default();
        frames.into_iter().map(|(at, disk)| (at, Self(Arc::new(Mutex::new(disk))).kill_clone())).collect()
    }

    /// Every file with its length, in order.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let disk = self.0.lock();
        let file = |(path, entry): (&PathBuf, &Entry)| match entry {
            Entry::Dir => None,
            Entry::File(node) => Some((path.clone(), disk.nodes[node].bytes.len() as u64)),
        };
        disk.names.iter().filter_map(file).collect()
    }

    /// The bytes of a file, as the system has them.
    ///
    /// # Panics
    /// If there is no such file; so do the other methods that damage one.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        self.0.lock().expect_file(path).bytes.clone()
    }

    /// Damages one byte, on the disk itself.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) {
        let mut disk = self.0.lock();
        let node = disk.expect_file(path);
        node.bytes[offset as usize] ^= xor;
        node.mapped = None;
    }

    /// Cuts a file, as someone else may: durable at once.
    pub fn truncate(&self, path: &Path, len: u64) {
        let mut disk = self.0.lock();
        let node = disk.expect_file(path);
        node.bytes.truncate(len as usize);
        *node = Node::durable(mem::take(&mut node.bytes));
    }

    /// Exchanges the contents of two files: durable at once.
    pub fn swap(&self, a: &Path, b: &Path) {
        let mut disk = self.0.lock();
        let (first, second) = (mem::take(disk.expect_file(a)), mem::take(disk.expect_file(b)));
        *disk.expect_file(a) = Node::durable(second.bytes);
        *disk.expect_file(b) = Node::durable(first.bytes);
    }

    /// Removes a file, as someone else may: durable at once.
    pub fn lose(&self, path: &Path) {
        let mut disk = self.0.lock();
        disk.expect_file(path);
        disk.names.remove(path);
        disk.durable_names.remove(path);
        disk.pending.iter_mut().for_each(|change| change.sets.retain(|(name, _)| name != path));
    }
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.0.lock();
        write!(f, "SimStorage({} names, {} operations)", disk.names.len(), disk.operations)
    }
}

/// Adds operation and path to what the simulated system said.
fn at<T>(operation: Operation, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
}

impl SimStorage {
    /// Counts an operation that changes names as a whole, and does it unless it is to fail.
    fn name_operation(
        &self,
        operation: Operation,
        path: &Path,
        act: impl FnOnce(&mut Disk) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut disk = self.0.lock();
        let (happens, report) = disk.step().whole();
        if happens {
            at(operation, path, act(&mut disk))?;
        }
        at(operation, path, report)
    }

    fn open_file(&self, path: &Path, node: u64) -> Box<dyn WriteFile> {
        let (path, buffer) = (path.to_owned(), Vec::new());
        Box::new(SimFile { disk: Arc::clone(&self.0), path, node, buffer })
    }
}

impl Storage for SimStorage {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        self.name_operation(Operation::Create, path, |disk| disk.create_dirs(path))
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        let mut disk = self.0.lock();
        at(Operation::List, dir, disk.step().check())?;
        if !disk.is_dir(dir) {
            return Ok(None);
        }
        let name = |(path, entry): (&PathBuf, &Entry)| {
            let inside = *entry != Entry::Dir && path.parent() == Some(dir);
            inside.then(|| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        };
        Ok(Some(disk.names.iter().filter_map(name).collect()))
    }

    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        let mut disk = self.0.lock();
        at(Operation::Open, path, disk.step().check())?;
        Ok(disk.file(path).map(|node| disk.node(node).bytes.len() as u64))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        let mut node = 0;
        self.name_operation(Operation::Create, path, |disk| {
            node = disk.create_file(path)?;
            Ok(())
        })?;
        Ok(self.open_file(path, node))
    }

    fn append(&self, path: &Path, unsure: Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        let mut node = 0;
        self.name_operation(Operation::Open, path, |disk| {
            node = disk.file(path).ok_or(ErrorKind::NotFound)?;
            let file = disk.node(node);
            if (file.bytes.len() as u64) < unsure.end {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            file.cut(unsure.end as usize);
            file.write_again(unsure.start as usize);
            Ok(())
        })?;
        Ok(self.open_file(path, node))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        let mut disk = self.0.lock();
        at(Operation::Read, path, disk.step().check())?;
        Ok(disk.file(path).map(|node| disk.node(node).bytes.clone()))
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        let mut disk = self.0.lock();
        at(Operation::Open, path, disk.step().check())?;
        let file = |node| -> Box<dyn ReadFile> {
            Box::new(SimReadFile { disk: Arc::clone(&self.0), path: path.to_owned(), node })
        };
        Ok(disk.file(path).map(file))
    }

    fn map(&self, path: &Path, _: Access) -> Result<Mapping, Error> {
        let mut disk = self.0.lock();
        at(Operation::Read, path, disk.step().check())?;
        let Some(node) = disk.file(path) else { return Err(Error::Missing { path: path.to_owned() }) };
        let node = disk.node(node);
        let bytes = node.mapped.get_or_insert_with(|| Arc::from(node.bytes.as_slice()));
        Ok(Mapping::from(Arc::clone(bytes)))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        if self.0.lock().file(from).is_none() {
            return Err(Error::Missing { path: from.to_owned() });
        }
        self.name_operation(Operation::Create, to, |disk| disk.link(from, to))?;
        Ok(true)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.name_operation(Operation::Rename, from, |disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.name_operation(Operation::Remove, path, |disk| {
            if disk.file(path).is_some() {
                disk.change(vec![(path.to_owned(), None)]);
            }
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        self.name_operation(Operation::Sync, dir, |disk| {
            if !disk.is_dir(dir) {
                return Err(ErrorKind::NotFound.into());
            }
            disk.sync_names(dir);
            Ok(())
        })
    }

    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        let mut disk = self.0.lock();
        at(Operation::Create, dir, disk.step().check())?;
        if !disk.is_dir(dir) {
            return at(Operation::Create, dir, Err(ErrorKind::NotFound.into()));
        }
        let disk = Arc::clone(&self.0);
        Ok(Box::new(SimSpool { disk, dir: dir.to_owned(), bytes: Vec::new(), pushed: 0 }))
    }

    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        let path = dir.join(LOCK);
        let mut disk = self.0.lock();
        at(Operation::Lock, &path, disk.step().check())?;
        if disk.file(&path).is_none() {
            at(Operation::Lock, &path, disk.create_file(&path))?;
        }
        if !disk.locks.insert(dir.to_owned()) {
            return Err(Error::Locked { path });
        }
        Ok(DirLock::new(Held { disk: Arc::clone(&self.0), dir: dir.to_owned() }))
    }

    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        let mut disk = self.0.lock();
        at(Operation::Lock, dir, disk.step().check())?;
        Ok(disk.locks.contains(dir))
    }
}

/// A lock while it is held.
struct Held {
    disk: Arc<Mutex<Disk>>,
    dir: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.lock().locks.remove(&self.dir);
    }
}

/// A file that is read by position.
struct SimReadFile {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    node: u64,
}

impl ReadFile for SimReadFile {
    fn len(&self) -> Result<u64, Error> {
        let mut disk = self.disk.lock();
        at(Operation::Read, &self.path, disk.step().check())?;
        Ok(disk.node(self.node).bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let mut disk = self.disk.lock();
        at(Operation::Read, &self.path, disk.step().check())?;
        let bytes = &disk.node(self.node).bytes;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn is_at(&self, path: &Path) -> Result<bool, Error> {
        let mut disk = self.disk.lock();
        at(Operation::Open, path, disk.step().check())?;
        Ok(disk.file(path) == Some(self.node))
    }
}

/// A file being written. What is in the buffer when it is dropped is lost, as with the real one.
struct SimFile {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
    node: u64,
    buffer: Vec<u8>,
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BUFFER {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = mem::take(&mut self.buffer);
        if buffer.is_empty() {
            return Ok(());
        }
        let mut disk = self.disk.lock();
        let (written, report) = match disk.step() {
            Outcome::Good => (buffer.len(), Ok(())),
            Outcome::Bad(error, torn) => {
                (torn.map_or(0, |mut random| random.below(buffer.len() + 1)), Err(error))
            }
        };
        disk.node(self.node).push(&buffer[..written]);
        report
    }
}

impl WriteFile for SimFile {
    fn sync(&mut self) -> Result<(), Error> {
        let flushed = self.flush();
        at(Operation::Write, &self.path, flushed)?;
        let mut disk = self.disk.lock();
        let (happens, report) = disk.step().whole();
        let node = disk.node(self.node);
        if happens {
            node.sync();
        } else {
            node.drop_unsynced();
        }
        at(Operation::Sync, &self.path, report)
    }
}

/// A temporary file. It has no name, so that neither kill nor power loss leaves anything of it.
struct SimSpool {
    disk: Arc<Mutex<Disk>>,
    dir: PathBuf,
    bytes: Vec<u8>,
    pushed: usize,
}

impl SpoolFile for SimSpool {
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.pushed >= WRITE_BUFFER {
            at(Operation::Write, &self.dir, self.disk.lock().step().check())?;
            self.pushed = self.bytes.len();
        }
        Ok(offset)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        at(Operation::Read, &self.dir, self.disk.lock().step().check())?;
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.bytes.len() as u64);
        let Some(end) = end else {
            return at(Operation::Read, &self.dir, Err(ErrorKind::UnexpectedEof.into()));
        };
        buf.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        Ok(())
    }
}

#[cfg(test)]
#[path = "sim_tests.rs"]
mod tests;
