//! The file system of the operating system.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};
use crate::error::{Error, Operation};
use crate::storage::layout::LOCK;
use crate::storage::physical_memory;
use crate::storage::regular::{Links, open_regular};

/// How often a lock that is held is tried, and how long to wait in between.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(4);

/// What a [`WriteFile`] collects before it bothers the system: as long as a huge page, and a call ends where one does.
///
/// Linux keeps what one call wrote as one piece of its page cache, and maps a piece of this length and place by a single entry. A lookup
/// in a file that is in memory since it was written then waits less for the tables of addresses: 1.11 us at 5 M entries where pieces
/// of half this length take 1.25.
const WRITE_BUFFER: usize = 2 << 20;

/// The same for a [`SpoolFile`].
const SPOOL_BUFFER: usize = 1 << 18;

/// The file system of the operating system. Has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsStorage;

/// Adds operation and path to what the system said.
fn at<T>(operation: Operation, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
}

fn open_to_read(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path, Links::Follow)
}

/// Writes bytes of a file where they are.
fn write_again(file: &File, mut bytes: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; WRITE_BUFFER];
    while bytes.start < bytes.end {
        let part = &mut buffer[..WRITE_BUFFER.min((bytes.end - bytes.start) as usize)];
        file.read_exact_at(part, bytes.start)?;
        file.write_all_at(part, bytes.start)?;
        bytes.start += part.len() as u64;
    }
    Ok(())
}

/// The same, where a file that is not there is an answer.
fn found<T>(operation: Operation, path: &Path, result: io::Result<T>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => at(operation, path, other).map(Some),
    }
}

impl Storage for OsStorage {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        at(Operation::Create, path, fs::create_dir_all(path))
    }

    fn canonical(&self, path: &Path) -> Result<Option<PathBuf>, Error> {
        found(Operation::Open, path, fs::canonicalize(path))
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        let Some(entries) = found(Operation::List, dir, fs::read_dir(dir))? else { return Ok(None) };
        let mut names = Vec::new();
        for entry in entries {
            let entry = at(Operation::List, dir, entry)?;
            if !at(Operation::List, dir, entry.file_type())?.is_dir() {
                // A name that is no UTF-8 is none of ours, and its replacement characters say so to the caller.
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        Ok(found(Operation::Open, path, fs::metadata(path))?.map(|metadata| metadata.len()))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        let file = at(Operation::Create, path, OpenOptions::new().write(true).create_new(true).open(path))?;
        Ok(Box::new(OsFile::new(path, file, 0)))
    }

    fn append(&self, path: &Path, unsure: Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        let len = unsure.end;
        // What a link leads to may be a file of somebody else, put there to be cut and overwritten.
        let opened = open_regular(OpenOptions::new().read(true).write(true), path, Links::Refuse);
        let mut file = at(Operation::Open, path, opened)?;
        let held = at(Operation::Open, path, file.metadata())?.len();
        if held < len {
            // Setting a greater length would fill up with zeros that nobody wrote.
            let short =
                io::Error::new(io::ErrorKind::UnexpectedEof, "file is shorter than what was read of it");
            return Err(Error::Io { operation: Operation::Open, path: path.to_owned(), source: short });
        }
        at(Operation::Write, path, file.set_len(len))?;
        at(Operation::Write, path, write_again(&file, unsure))?;
        at(Operation::Write, path, file.seek(SeekFrom::Start(len)))?;
        Ok(Box::new(OsFile::new(path, file, len)))
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        let Some(mut file) = found(Operation::Read, path, open_to_read(path))? else { return Ok(None) };
        let len = at(Operation::Read, path, file.metadata())?.len();
        if physical_memory().is_some_and(|memory| len > memory) {
            let text = format!(
                "it has {len} bytes, more than this machine has memory: no file of its kind is as long"
            );
            return at(Operation::Read, path, Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let mut bytes = Vec::new();
        at(Operation::Read, path, bytes.try_reserve_exact(len as usize).map_err(io::Error::from))?;
        at(Operation::Read, path, file.read_to_end(&mut bytes)).map(|_| Some(bytes))
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        let Some(file) = found(Operation::Open, path, open_to_read(path))? else { return Ok(None) };
        let metadata = at(Operation::Open, path, file.metadata())?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(Box::new(OsReadFile { path: path.to_owned(), file, identity })))
    }

    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error> {
        let Some(file) = found(Operation::Open, path, open_to_read(path))? else {
            return Err(Error::Missing { path: path.to_owned() });
        };
        at(Operation::Map, path, Mapping::of_file(&file, access))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        use io::ErrorKind::{CrossesDevices, NotFound, PermissionDenied, TooManyLinks, Unsupported};
        match fs::hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == NotFound && !at(Operation::Open, from, from.try_exists())? => {
                Err(Error::Missing { path: from.to_owned() })
            }
            Err(error)
                if matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported) =>
            {
                Ok(false)
            }
            Err(error) => at(Operation::Create, to, Err(error)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        at(Operation::Rename, from, fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        found(Operation::Remove, path, fs::remove_file(path)).map(|_| ())
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        // The parent of a path of one component is the empty path.
        let opened = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        at(Operation::Sync, dir, File::open(opened).and_then(|opened| opened.sync_all()))
    }

    fn free_space(&self, dir: &Path) -> Result<Option<u64>, Error> {
        let found = rustix::fs::statvfs(dir).map_err(io::Error::from);
        at(Operation::Read, dir, found).map(|found| Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        let file = at(Operation::Create, dir, tempfile::tempfile_in(dir))?;
        Ok(Box::new(OsSpool { dir: dir.to_owned(), file, written: 0, buffer: Vec::new() }))
    }

    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        let path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = at(Operation::Lock, &path, open_regular(&mut options, &path, Links::Refuse))?;
        // The lock belongs to this opening of the file, so that a second handle in the same process is refused too. The
        // kernel releases it with the process, however that ends.
        let mut tries = 1;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(DirLock::new(file)),
                // Whoever looks whether a writer is there holds a shared lock for a moment.
                Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(Error::Locked { path }),
                Err(TryLockError::Error(source)) => {
                    return Err(Error::Io { operation: Operation::Lock, path, source });
                }
            }
            tries += 1;
        }
    }

    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        let path = dir.join(LOCK);
        let Some(file) = found(Operation::Lock, &path, open_to_read(&path))? else { return Ok(false) };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(Error::Io { operation: Operation::Lock, path, source }),
        }
    }
}

/// A file that is written from its end.
///
/// Buffers by hand, because `BufWriter` writes what is left when it is dropped and after an error: bytes of a record
/// that was reported as failed must not appear later.
struct OsFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    position: u64,
    /// The length as it is in the system was changed by other means than by appending.
    resized: bool,
}

impl OsFile {
    /// A file to be written from `position`, its end, on.
    fn new(path: &Path, file: File, position: u64) -> Self {
        Self { path: path.to_owned(), file, buffer: Vec::new(), position, resized: true }
    }
}

impl Write for OsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = WRITE_BUFFER - (self.position % WRITE_BUFFER as u64) as usize;
        if self.buffer.len() == end {
            self.flush()?;
            return self.write(bytes);
        }
        let taken = bytes.len().min(end - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Hands everything to the system: from here on it survives the end of this process, not a power loss.
    fn flush(&mut self) -> io::Result<()> {
        let result = self.file.write_all(&self.buffer);
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        result
    }
}

impl WriteFile for OsFile {
    fn sync(&mut self) -> Result<(), Error> {
        let flushed = self.flush();
        at(Operation::Write, &self.path, flushed)?;
        // Data and length are enough, except after `create` and after a cut.
        let synced = if self.resized { self.file.sync_all() } else { self.file.sync_data() };
        at(Operation::Sync, &self.path, synced)?;
        self.resized = false;
        Ok(())
    }
}

/// A file that is read by position.
struct OsReadFile {
    path: PathBuf,
    file: File,
    /// Device and inode. No other file gets this number while this one is open.
    identity: (u64, u64),
}

impl ReadFile for OsReadFile {
    fn len(&self) -> Result<u64, Error> {
        Ok(at(Operation::Read, &self.path, self.file.metadata())?.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return at(Operation::Read, &self.path, Err(error)),
            }
        }
        Ok(filled)
    }

    fn is_at(&self, path: &Path) -> Result<bool, Error> {
        let there = found(Operation::Open, path, fs::metadata(path))?;
        Ok(there.is_some_and(|there| (there.dev(), there.ino()) == self.identity))
    }
}

/// A nameless file: appended to through a buffer, read in place.
struct OsSpool {
    dir: PathBuf,
    file: File,
    written: u64,
    buffer: Vec<u8>,
}

impl OsSpool {
    fn flush(&mut self) -> Result<(), Error> {
        at(Operation::Write, &self.dir, self.file.write_all_at(&self.buffer, self.written))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl SpoolFile for OsSpool {
    fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let offset = self.written + self.buffer.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= SPOOL_BUFFER {
            self.flush()?;
        }
        Ok(offset)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            self.flush()?;
        }
        at(Operation::Read, &self.dir, self.file.read_exact_at(buf, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        crate::testing::contract::check(&OsStorage, dir.path());
    }

    #[test]
    fn flushed_bytes_are_with_the_system_and_unflushed_ones_never_appear() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = OsStorage.create(&path).unwrap();
        file.write_all(b"kept").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        file.write_all(b"lost").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }

    #[test]
    fn writes_around_the_size_of_the_buffer_arrive_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = OsStorage.create(&path).unwrap();
        let mut expected = Vec::new();
        for (i, len) in [3, WRITE_BUFFER - 3, 1, WRITE_BUFFER, WRITE_BUFFER + 1, 5].into_iter().enumerate() {
            let bytes = vec![i as u8; len];
            file.write_all(&bytes).unwrap();
            expected.extend_from_slice(&bytes);
            let written = fs::metadata(&path).unwrap().len();
            assert!(
                written.is_multiple_of(WRITE_BUFFER as u64),
                "{written}: a call ends where a huge page does"
            );
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * WRITE_BUFFER as u64);
        file.sync().unwrap();
        assert!(fs::read(&path).unwrap() == expected, "the bytes in the order written");
        // Appended to from another place, too.
        let len = expected.len() as u64;
        let mut file = OsStorage.append(&path, len..len).unwrap();
        let more = vec![7; WRITE_BUFFER];
        file.write_all(&more).unwrap();
        file.write_all(&[8]).unwrap();
        file.flush().unwrap();
        expected.extend(more.into_iter().chain([8]));
        assert!(fs::read(&path).unwrap() == expected, "and what was appended");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, link, letter) =
            (dir.path().join("pipe"), dir.path().join("link"), dir.path().join("letter"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        fs::write(&letter, b"precious").unwrap();
        std::os::unix::fs::symlink(&letter, &link).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            for (what, error) in [
                ("read", OsStorage.read(path).err()),
                ("open", OsStorage.open(path).map(drop).err()),
                ("map", OsStorage.map(path, Access::Random).err()),
                ("append", OsStorage.append(path, 0..0).map(drop).err()),
            ] {
                let error = error.unwrap_or_else(|| panic!("{what} {}", path.display())).to_string();
                assert!(error.contains(&*path.to_string_lossy()), "{what}: {error}");
            }
        }
        assert_eq!(OsStorage.read(&link).unwrap().unwrap(), b"precious", "who only reads follows a link");
        assert!(OsStorage.append(&link, 0..3).is_err());
        fs::rename(&link, dir.path().join(LOCK)).unwrap();
        assert!(OsStorage.lock(dir.path()).is_err(), "nor is one locked");
        assert_eq!(fs::read(&letter).unwrap(), b"precious");
    }

    #[test]
    fn a_file_longer_than_the_memory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        File::create(&path).unwrap().set_len(1 << 42).unwrap();
        let error = OsStorage.read(&path).unwrap_err().to_string();
        assert!(error.contains("long"), "{error}");
    }

    #[test]
    fn errors_have_the_operation_and_the_path() {
        let path = Path::new("/nowhere/at/all/f");
        let result = OsStorage.create(path).map(|_| ());
        assert!(
            matches!(result, Err(Error::Io { operation: Operation::Create, path: at, .. }) if at == path),
            "what was tried, and on what"
        );
    }
}
