//! Open files of live segments, and what keeps them from being removed too early.
//!
//! A reader pins a [`Version`](crate::version::Version), a version pins its segments, a segment pins its three files.
//! When a change replaces a file, the file is marked obsolete and removed by whoever lets go of it last, as long as the
//! writer that marked it is there; after that, by the next writer.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use icecore_index::{ExistenceFilter, PivotIndex};
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::step::BlockNumber;
use icecore_segments::{Segment, Value};
use parking_lot::Mutex;

use crate::error::Error;
use crate::manifest::{FileRecord, SegmentRecord};
use crate::options::Config;
use crate::storage::{Access, Mapping, Storage};

/// Where an archive lives and what it is: shared by everything that touches its files.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) path: PathBuf,
    pub(crate) config: Arc<Config>,
    pub(crate) removals: Removals,
}

/// The right to remove files of a directory. It ends with the writer's lock: the next writer may use a name again that
/// a reader of this one still holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removals {
    ended: Arc<Mutex<bool>>,
}

impl Removals {
    /// Nothing is removed any more when this returns.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
    }

    fn while_allowed(&self, remove: impl FnOnce()) {
        let ended = self.ended.lock();
        if !*ended {
            remove();
        }
    }
}

/// An open file and its name on disk.
pub(crate) struct LiveFile<T> {
    view: T,
    path: PathBuf,
    storage: Arc<dyn Storage>,
    removals: Removals,
    obsolete: AtomicBool,
}

impl<T> LiveFile<T> {
    /// The reader over the file's bytes.
    pub(crate) fn view(&self) -> &T {
        &self.view
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives an error of a floor its path.
    pub(crate) fn error(&self, source: icecore_segments::Error) -> Error {
        Error::File { path: self.path.clone(), source }
    }

    /// Has the file removed when the last holder lets go.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl<T> Drop for LiveFile<T> {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // A file that stays is garbage that the next opening removes, so a failure loses nothing but space.
            self.removals.while_allowed(|| drop(self.storage.remove(&self.path)));
        }
    }
}

/// A segment whose three files are open.
pub(crate) struct LiveSegment {
    pub(crate) record: SegmentRecord,
    /// The heights its steps cover, both inside.
    pub(crate) blocks: (BlockNumber, BlockNumber),
    pub(crate) kv: Arc<LiveFile<Segment<Mapping>>>,
    pub(crate) bt: Arc<LiveFile<PivotIndex<Mapping>>>,
    pub(crate) kvei: Arc<LiveFile<ExistenceFilter<Mapping>>>,
}

impl LiveSegment {
    /// Opens the files that a record names. Reads header, footer and resident parts only.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::File`] with what is wrong: another length or checksum than the manifest's, damage,
    /// or an accessor of another segment.
    pub(crate) fn open(directory: &Directory, record: SegmentRecord) -> Result<Self, Error> {
        let kv = directory.open_segment(&record, Access::Random)?;
        let content = record.kv.summary.content;
        let bt = directory.open_index(&record, content)?;
        let kvei = directory.open_filter(&record, content)?;
        Ok(Self::assemble(directory, record, Arc::new(kv), Arc::new(bt), Arc::new(kvei)))
    }

    /// Opens a segment that was just written. Where that fails, its files go again.
    pub(crate) fn open_new(directory: &Directory, record: SegmentRecord) -> Result<Self, Error> {
        Self::open(directory, record.clone()).inspect_err(|_| {
            for kind in Kind::ALL {
                // What cannot be removed now is garbage that the next opening removes.
                let _ = directory.storage.remove(&directory.file(&record, kind));
            }
        })
    }

    pub(crate) fn assemble(
        directory: &Directory,
        record: SegmentRecord,
        kv: Arc<LiveFile<Segment<Mapping>>>,
        bt: Arc<LiveFile<PivotIndex<Mapping>>>,
        kvei: Arc<LiveFile<ExistenceFilter<Mapping>>>,
    ) -> Self {
        let blocks = directory.config.step_len.blocks(record.steps);
        Self { record, blocks, kv, bt, kvei }
    }

    /// The bytes of a value of this segment, `None` for a deletion.
    ///
    /// A value outside its page is fetched as a whole first: a mapping for random reading would bring it page by page, each waited for.
    pub(crate) fn load(&self, value: &Value<'_>) -> Result<Option<Vec<u8>>, Error> {
        if let Value::Overflow(blob) = value {
            self.kv.view().data().advise_fetch(blob.file_range());
        }
        Ok(value.load().map_err(|e| self.kv.error(e))?.map(Cow::into_owned))
    }

    /// Whether a key lies between the first and the last key, so that the files are worth asking.
    pub(crate) fn spans_key(&self, key: &[u8]) -> bool {
        let summary = self.kv.view().summary();
        summary.first_key.as_slice() <= key && key <= summary.last_key.as_slice()
    }
}

impl Directory {
    /// The path of one file of a segment.
    pub(crate) fn file(&self, record: &SegmentRecord, kind: Kind) -> PathBuf {
        self.path.join(record.file_name(&self.config, kind))
    }

    /// Opens a `.kv` for random or sequential reading.
    pub(crate) fn open_segment(
        &self,
        record: &SegmentRecord,
        access: Access,
    ) -> Result<LiveFile<Segment<Mapping>>, Error> {
        let file = self.open_file(record, Kind::Segment, access, Segment::open)?;
        let summary = file.view.summary();
        let domain = &self.config.domains[record.domain.index()].name;
        if summary.steps != record.steps || &summary.domain != domain {
            let (expected, found) =
                (format!("{domain}.{}", record.steps), format!("{}.{}", summary.domain, summary.steps));
            return Err(file.error(icecore_segments::Error::Mismatch { what: "identity", expected, found }));
        }
        file.check_summary(summary.file, record.kv)?;
        Ok(file)
    }

    pub(crate) fn open_index(
        &self,
        record: &SegmentRecord,
        kv: Checksum,
    ) -> Result<LiveFile<PivotIndex<Mapping>>, Error> {
        let file =
            self.open_file(record, Kind::PivotIndex, Access::Random, |data| PivotIndex::open(data, kv))?;
        file.check_summary(file.view.summary().file, record.bt)?;
        Ok(file)
    }

    pub(crate) fn open_filter(
        &self,
        record: &SegmentRecord,
        kv: Checksum,
    ) -> Result<LiveFile<ExistenceFilter<Mapping>>, Error> {
        let file = self.open_file(record, Kind::ExistenceFilter, Access::Random, |data| {
            ExistenceFilter::open(data, kv)
        })?;
        file.check_summary(file.view.summary().file, record.kvei)?;
        Ok(file)
    }

    fn open_file<T>(
        &self,
        record: &SegmentRecord,
        kind: Kind,
        access: Access,
        open: impl FnOnce(Mapping) -> Result<T, icecore_segments::Error>,
    ) -> Result<LiveFile<T>, Error> {
        let path = self.file(record, kind);
        let mapping = self.storage.map(&path, access)?;
        let expected = record.file(kind).summary.len;
        let found = mapping.as_ref().len() as u64;
        if found != expected {
            let (expected, found) = (expected.to_string(), found.to_string());
            let source = icecore_segments::Error::Mismatch { what: "file length", expected, found };
            return Err(Error::File { path, source });
        }
        let view = open(mapping).map_err(|source| Error::File { path: path.clone(), source })?;
        let (storage, removals) = (Arc::clone(&self.storage), self.removals.clone());
        Ok(LiveFile { view, path, storage, removals, obsolete: AtomicBool::new(false) })
    }
}

impl<T> LiveFile<T> {
    /// Compares what a file says of itself with what the manifest says of it.
    fn check_summary(&self, found: FileSummary, expected: FileRecord) -> Result<(), Error> {
        if found.content == expected.summary.content {
            return Ok(());
        }
        let (expected, found) = (expected.summary.content.to_string(), found.content.to_string());
        Err(self.error(icecore_segments::Error::Mismatch { what: "content checksum", expected, found }))
    }
}
