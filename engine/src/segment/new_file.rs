//! A file of a segment while it is written: under a name that none had, synced, and removed again where it is not kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::Spool;
use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::step::StepRange;

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::FileRecord;
use crate::storage::directory::Directory;
use crate::storage::{SpoolFile, Storage, WriteFile, layout};

pub(super) type Sink = Box<dyn WriteFile>;

/// A file that is being written under its final name; removed when it is dropped before [`SyncedFile::keep`].
pub(super) struct NewFile {
    storage: Arc<dyn Storage>,
    pub(super) path: PathBuf,
    revision: u32,
    kept: bool,
}

impl NewFile {
    /// Creates the file under the first revision that no file on disk has, nor the one that the manifest names for this range:
    /// that one may be missing, but a named file is never written again.
    pub(super) fn create(
        directory: &Directory,
        domain: DomainId,
        steps: StepRange,
        kind: Kind,
        named: Option<FileRecord>,
    ) -> Result<(Self, Sink), Error> {
        let name = directory.config.name(domain);
        let mut revision = 0;
        let path = loop {
            let path = directory.path.join(layout::segment_file(name, steps, revision, kind));
            let is_named = named.is_some_and(|named| named.revision == revision);
            if !is_named && directory.storage.len(&path)?.is_none() {
                break path;
            }
            revision += 1;
        };
        // Before the attempt: one that fails may have made the name.
        let this = Self { storage: Arc::clone(&directory.storage), path, revision, kept: false };
        let sink = directory.storage.create(&this.path)?;
        Ok((this, sink))
    }

    pub(super) fn error(&self, source: icecore_segments::Error) -> Error {
        file_error(&self.path, source)
    }

    /// Makes the bytes durable. The name becomes durable when the manifest's directory is synced.
    pub(super) fn sync(self, mut sink: Sink, summary: FileSummary) -> Result<SyncedFile, Error> {
        sink.sync()?;
        let record = FileRecord { revision: self.revision, summary };
        Ok(SyncedFile { file: self, record })
    }
}

/// A file that is complete and still goes with the others when one of them fails.
pub(super) struct SyncedFile {
    file: NewFile,
    record: FileRecord,
}

impl SyncedFile {
    pub(super) fn keep(mut self) -> FileRecord {
        self.file.kept = true;
        self.record
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed now is garbage that the next opening removes.
            let _ = self.storage.remove(&self.path);
        }
    }
}

fn file_error(path: &Path, source: icecore_segments::Error) -> Error {
    Error::File { path: path.to_owned(), source }
}

/// Lends a temporary file to a builder.
pub(crate) struct EngineSpool(Box<dyn SpoolFile>);

impl EngineSpool {
    pub(super) fn create(directory: &Directory) -> Result<Self, Error> {
        Ok(Self(directory.storage.spool(&directory.path)?))
    }
}

impl Spool for EngineSpool {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.0.append(bytes).map_err(io::Error::other)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf).map_err(io::Error::other)
    }
}

/// Entries (or keys, or pivots) of a sequential pass between two releases of what was read: about 50 MB of pages.
pub(crate) const RELEASE_EVERY: u64 = 1 << 20;

/// Is called with the entries of a pass as it goes; an error of it ends the pass.
pub(crate) type Progress<'p> = dyn FnMut(u64) -> Result<(), Error> + 'p;
