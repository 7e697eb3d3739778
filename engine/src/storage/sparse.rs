//! Files of full length that are filled piece by piece: what a cache of objects is made of.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, SeekFrom, flock};

use crate::error::{Error, Operation};
use crate::storage::map::{Mapping, Origin};
use crate::storage::regular::{Links, open_regular};

/// The unit of [`MetadataExt::blocks`], in bytes.
const BLOCK: u64 = 512;

fn at<T>(operation: Operation, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
}

/// What is the same for two names of one file, on one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    fn of(metadata: &fs::Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }

    /// The file of a name; `None` where there is none.
    fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// A file that has its full length from the beginning and its bytes as they come.
///
/// What is in no place yet takes no room. Nothing is synced: who reads knows what is whole by its checksum.
///
/// It is locked, shared, as long as it is open or mapped, so that other processes do not remove it ([`remove_unused`]).
pub(crate) struct SparseFile {
    path: PathBuf,
    file: File,
    pub(crate) id: FileId,
}

impl SparseFile {
    /// Opens a file of a length, or makes an empty one. One that is longer is replaced and keeps its bytes: who has it mapped would die of a
    /// page that is cut off.
    pub(crate) fn open(path: &Path, len: u64) -> Result<Self, Error> {
        let (file, id) = loop {
            let (file, id) = Self::open_locked(path)?;
            let found = at(Operation::Open, path, file.metadata())?.len();
            if found <= len {
                if found < len {
                    at(Operation::Write, path, file.set_len(len))?;
                }
                break (file, id);
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => at(Operation::Remove, path, removed)?,
            }
        };
        // Which files were used last is what is kept of a cache that is full.
        at(Operation::Write, path, file.set_modified(SystemTime::now()))?;
        Ok(Self { path: path.to_owned(), file, id })
    }

    /// Opens or makes the file that has the name once it is locked: another process may be removing the one found first.
    fn open_locked(path: &Path) -> Result<(File, FileId), Error> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = at(Operation::Create, path, open_regular(&mut options, path, Links::Refuse))?;
            // A file system without locks has none for those who remove either.
            let _ = flock(&file, FlockOperation::LockShared);
            let id = FileId::of(&at(Operation::Open, path, file.metadata())?);
            if FileId::at(path) == Some(id) {
                return Ok((file, id));
            }
        }
    }

    /// Where there are bytes. Where the file system does not know, everywhere.
    pub(crate) fn filled(&self) -> Result<Vec<Range<u64>>, Error> {
        let len = at(Operation::Read, &self.path, self.file.metadata())?.len();
        let (mut filled, mut from) = (Vec::new(), 0);
        while from < len {
            // Behind the last bytes there are none: an error of its own.
            let Ok(start) = rustix::fs::seek(&self.file, SeekFrom::Data(from)) else { break };
            let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(len);
            filled.push(start..end.max(start + 1));
            from = end.max(start + 1);
        }
        Ok(filled)
    }

    /// The bytes that the file takes of its disk.
    pub(crate) fn allocated(&self) -> Result<u64, Error> {
        Ok(at(Operation::Read, &self.path, self.file.metadata())?.blocks() * BLOCK)
    }

    /// Reads bytes; those that were never written are zero.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        at(Operation::Read, &self.path, self.file.read_exact_at(buf, offset))
    }

    /// Writes bytes to their place.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        at(Operation::Write, &self.path, self.file.write_all_at(bytes, offset))
    }

    /// Maps it. `origin` fills it.
    pub(crate) fn map(&self, origin: Arc<dyn Origin>) -> Result<Mapping, Error> {
        at(Operation::Map, &self.path, Mapping::of_sparse_file(&self.file, origin))
    }
}

/// A file of a folder of sparse files.
pub(crate) struct SparseEntry {
    pub(crate) name: String,
    pub(crate) id: FileId,
    /// The bytes that it takes of its disk.
    pub(crate) allocated: u64,
    pub(crate) used: SystemTime,
}

/// Makes a folder for sparse files.
pub(crate) fn create_folder(dir: &Path) -> Result<(), Error> {
    at(Operation::Create, dir, fs::create_dir_all(dir))
}

/// The files of such a folder.
pub(crate) fn list_folder(dir: &Path) -> Result<Vec<SparseEntry>, Error> {
    let mut entries = Vec::new();
    for entry in at(Operation::List, dir, fs::read_dir(dir))? {
        let entry = at(Operation::List, dir, entry)?;
        // One that is gone by now was removed by another process.
        let Ok(metadata) = entry.metadata() else { continue };
        if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let (id, allocated) = (FileId::of(&metadata), metadata.blocks() * BLOCK);
            entries.push(SparseEntry { name, id, allocated, used });
        }
    }
    Ok(entries)
}

/// Removes a file that nobody has open, in this process or another; `false` where somebody has.
pub(crate) fn remove_unused(path: &Path) -> Result<bool, Error> {
    let file = match open_regular(OpenOptions::new().read(true), path, Links::Refuse) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => at(Operation::Open, path, opened)?,
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        removed => at(Operation::Remove, path, removed).map(|()| true),
    }
}

/// Renames a file, unless its name has gone to another one meanwhile.
pub(crate) fn rename_same(from: &Path, id: FileId, to: &Path) -> Result<(), Error> {
    if FileId::at(from) != Some(id) {
        return Ok(());
    }
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => at(Operation::Rename, from, renamed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_folder_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (letter, path) = (dir.path().join("letter.txt"), dir.path().join("file"));
        fs::write(&letter, b"precious").unwrap();
        std::os::unix::fs::symlink(&letter, &path).unwrap();
        let refused = SparseFile::open(&path, 8192).err().unwrap();
        assert!(refused.to_string().contains("file"), "{refused}");
        assert_eq!(fs::read(&letter).unwrap(), b"precious");
    }

    #[test]
    fn what_was_written_is_known_when_the_file_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        create_folder(dir.path()).unwrap();
        let path = dir.path().join("file");
        let len = 1 << 20;
        let file = SparseFile::open(&path, len).unwrap();
        assert_eq!(file.filled().unwrap(), Vec::new());
        file.write_at(1 << 16, &[7; 8192]).unwrap();
        file.write_at(len - 4096, &[8; 4096]).unwrap();
        drop(file);
        let file = SparseFile::open(&path, len).unwrap();
        let covers = |at: u64| file.filled().unwrap().iter().any(|range| range.contains(&at));
        assert!(covers(1 << 16) && covers((1 << 16) + 8191) && covers(len - 1));
        assert!(!covers(0) && !covers(1 << 19));
        let mut bytes = [0; 2];
        file.read_at((1 << 16) + 8191, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 0]);
        let listed = list_folder(dir.path()).unwrap();
        assert_eq!((listed.len(), &*listed[0].name, listed[0].allocated), (1, "file", 12288));
        assert!(!remove_unused(&path).unwrap(), "it is open");
        let moved = dir.path().join("moved");
        rename_same(&path, file.id, &moved).unwrap();
        rename_same(&path, file.id, &moved).unwrap();
        assert!(!path.exists() && !remove_unused(&moved).unwrap());
        let other = SparseFile::open(&path, len).unwrap();
        rename_same(&path, file.id, &moved).unwrap();
        assert!(path.exists() && other.id != file.id, "it is another one by now");
        // Another length is another file: who has this one mapped goes on.
        let shorter = SparseFile::open(&path, len / 2).unwrap();
        other.read_at(len - 2, &mut bytes).unwrap();
        assert!(shorter.id != other.id && shorter.read_at(len - 2, &mut bytes).is_err());
        drop(file);
        assert!(remove_unused(&moved).unwrap() && remove_unused(&moved).unwrap() && !moved.exists());
    }
}
