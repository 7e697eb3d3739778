//! Files of live segments: held from the moment a manifest names them, opened when they are first read.
//!
//! A reader pins a [`ReadState`](crate::read::read_state::ReadState), which pins its segments, a segment pins its files.
//! When a change replaces a file, the file is marked obsolete and removed by whoever lets go of it last, as long as the
//! writer that marked it is there; after that, by the next writer.
//!
//! To *hold* a file is to map it without reading a page of it: its bytes stay until the mapping goes, whatever happens to
//! the name. Every `.kv` is held, and every accessor that is not small; a segment that has such a one is opened at once,
//! because there are few of them and their first lookup should find header, footer and resident parts read. A small accessor is read into memory when it is
//! first used, which saves two mappings a segment where there are thousands of small ones; if it has gone by then, or is
//! damaged, lookups do without it ([`read`](crate::read::get)).
//!
//! A partial copy names segments whose files it does not have. Whoever needs one of these files is told so by [`Error::NotHeld`]: nobody has to
//! ask beforehand, and no lookup can pass such a segment over as if it had nothing to say.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use icecore_index::{BlockIndex, ExistenceFilter, PivotIndex};
use icecore_segments::bytes::key_head;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;
use icecore_segments::{Entry, Segment, SegmentSummary, Value};
use parking_lot::Mutex;

use crate::error::{Error, one_line};
use crate::manifest::SegmentRecord;
use crate::options::Config;
#[cfg(feature = "object-store")]
use crate::remote_error::RemoteError;
use crate::segment::absence::Absence;
use crate::segment::file_view::{FileView, Identity};
use crate::storage::directory::{Directory, Removals};
use crate::storage::layout;
use crate::storage::{Access, Mapping, Storage};

/// Why a file cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// The error and all that caused it, in one line.
    pub(crate) line: String,
    /// Whether the file is not there: where a newer manifest does not name it, that is no damage.
    pub(crate) is_missing: bool,
}

/// A file that was opened and found to be the one that the manifest names.
pub(crate) struct OpenFile<T> {
    view: T,
    path: PathBuf,
}

impl<T> OpenFile<T> {
    /// The reader over the file's bytes.
    pub(crate) fn view(&self) -> &T {
        &self.view
    }

    /// Gives an error of a floor its path.
    pub(crate) fn error(&self, source: icecore_segments::Error) -> Error {
        #[cfg(feature = "object-store")]
        let source = match RemoteError::out_of(source) {
            Ok(error) => return error.into(),
            Err(source) => source,
        };
        Error::File { path: self.path.clone(), source }
    }
}

impl<T: FileView> OpenFile<T> {
    /// Parses a file and compares it with what the manifest says of it.
    fn parse(path: &Path, data: Mapping, expected: &Identity) -> Result<Self, Error> {
        let mismatch = |what, expected: String, found: String| Error::File {
            path: path.to_owned(),
            source: icecore_segments::Error::Mismatch { what, expected, found },
        };
        let (len, found) = (expected.summary.len, data.as_ref().len() as u64);
        if found != len {
            return Err(mismatch("file length", len.to_string(), found.to_string()));
        }
        let view =
            T::parse(data, expected).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let (stated, found) = view.stated();
        if let Some((domain, steps)) = stated
            && (domain != expected.domain || steps != expected.steps)
        {
            let expected = layout::segment_stem(&expected.domain, expected.steps);
            return Err(mismatch("identity", expected, layout::segment_stem(domain, steps)));
        }
        let content = expected.summary.content;
        if found.content != content && !left_out!(FileIdentity) {
            return Err(mismatch("content checksum", content.to_string(), found.content.to_string()));
        }
        Ok(Self { view, path: path.to_owned() })
    }
}

/// A file that a manifest names.
pub(crate) struct LiveFile<T> {
    path: PathBuf,
    identity: Identity,
    storage: Arc<dyn Storage>,
    removals: Removals,
    /// The bytes, where the file is held and not open yet.
    held: OnceLock<Mapping>,
    open: OnceLock<OpenFile<T>>,
    /// What the last attempt to use the file met.
    problem: Mutex<Option<Problem>>,
    /// How often it could not be used.
    failures: AtomicU64,
    obsolete: AtomicBool,
    /// What is missing, where the segment is not held.
    absence: Option<Arc<Absence>>,
}

impl<T> LiveFile<T> {
    /// Refuses a file that is not here because its segment is not held.
    ///
    /// # Errors
    /// [`Error::NotHeld`].
    fn check_held(&self) -> Result<(), Error> {
        self.absence.as_ref().map_or(Ok(()), |absence| Err(absence.error()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What keeps the file from being used, if anything did when it was last tried.
    pub(crate) fn problem(&self) -> Option<Problem> {
        self.problem.lock().clone()
    }

    /// Remembers that the file could not be used.
    pub(crate) fn report(&self, error: &Error) {
        self.note(error);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, error: &Error) {
        let is_missing = matches!(error, Error::Missing { .. });
        *self.problem.lock() = Some(Problem { line: one_line(error), is_missing });
    }

    /// How often the file could not be used.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Has the file removed when the last holder lets go.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The view, if the file was used before.
    pub(crate) fn opened(&self) -> Option<&T> {
        self.open.get().map(|file| &file.view)
    }
}

impl<T: FileView> LiveFile<T> {
    fn new(directory: &Directory, record: &SegmentRecord, absence: Option<&Arc<Absence>>) -> Self {
        let identity = identity_of(record, &directory.config, T::KIND);
        Self {
            path: record.path(directory, T::KIND),
            identity,
            storage: Arc::clone(&directory.storage),
            removals: directory.removals.clone(),
            held: OnceLock::new(),
            open: OnceLock::new(),
            problem: Mutex::new(None),
            failures: AtomicU64::new(0),
            obsolete: AtomicBool::new(false),
            absence: absence.cloned(),
        }
    }

    /// Whether the file is mapped from the beginning. One that is not must be small.
    fn is_mapped(&self) -> bool {
        T::KIND == Kind::Segment || self.identity.summary.len > self.storage.read_whole_max()
    }

    /// Takes hold of the bytes. What keeps it from that is reported, and met again by whoever reads.
    fn hold(&self) -> Result<(), Error> {
        if !self.is_mapped() || self.absence.is_some() {
            return Ok(());
        }
        let mapping = self.storage.map(&self.path, Access::Random).inspect_err(|error| self.report(error))?;
        let _ = self.held.set(mapping);
        Ok(())
    }

    /// Looks whether a file that was not used yet is there, and as long as it should be, without reading it.
    fn look(&self) {
        if self.open.get().is_none()
            && self.absence.is_none()
            && let Err(error) = self.check_len()
        {
            self.note(&error);
        }
    }

    fn check_len(&self) -> Result<(), Error> {
        let len = self.storage.len(&self.path)?.ok_or_else(|| Error::Missing { path: self.path.clone() })?;
        if len == self.identity.summary.len {
            return Ok(());
        }
        let (expected, found) = (self.identity.summary.len.to_string(), len.to_string());
        let source = icecore_segments::Error::Mismatch { what: "file length", expected, found };
        Err(Error::File { path: self.path.clone(), source })
    }

    /// The bytes of the file as it is now.
    fn read(&self) -> Result<Mapping, Error> {
        self.check_held()?;
        if self.is_mapped() {
            return self.held.get().cloned().map_or_else(|| self.storage.map(&self.path, Access::Random), Ok);
        }
        // A file that is longer than it should be must not be read whole to learn that.
        self.check_len()?;
        let bytes =
            self.storage.read(&self.path)?.ok_or_else(|| Error::Missing { path: self.path.clone() })?;
        Ok(Mapping::from(Arc::from(bytes)))
    }

    /// Opens the file, if it is not open, as if it were used, and keeps nothing of that.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.open.get().is_some() {
            return Ok(());
        }
        OpenFile::<T>::parse(&self.path, self.read()?, &self.identity).map(drop)
    }

    /// The file, opened by the first who needs it. A failure is not kept: the next one tries again.
    #[inline]
    pub(crate) fn get(&self) -> Result<&OpenFile<T>, Error> {
        match self.open.get() {
            Some(open) => Ok(open),
            None => self.open(),
        }
    }

    #[cold]
    fn open(&self) -> Result<&OpenFile<T>, Error> {
        // Before the report: what a partial copy does without is no problem of the file.
        self.check_held()?;
        let opened = self.read().and_then(|data| OpenFile::parse(&self.path, data, &self.identity));
        let opened = opened.inspect_err(|error| self.report(error))?;
        *self.problem.lock() = None;
        Ok(self.open.get_or_init(|| opened))
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

/// The `.kv` of a segment, open.
pub(crate) type KvFile = OpenFile<Segment<Mapping>>;

/// A segment that a manifest names.
pub(crate) struct LiveSegment {
    pub(crate) record: SegmentRecord,
    /// The heights its steps cover, both inside.
    pub(crate) blocks: (BlockNumber, BlockNumber),
    pub(crate) kv: Arc<LiveFile<Segment<Mapping>>>,
    pub(crate) bt: Arc<LiveFile<PivotIndex<Mapping>>>,
    pub(crate) kvei: Arc<LiveFile<ExistenceFilter<Mapping>>>,
    pub(crate) kvbi: Option<Arc<LiveFile<BlockIndex<Mapping>>>>,
    /// The heads of the first and the last key, once the `.kv` was opened.
    key_heads: OnceLock<(u64, u64)>,
    /// Whether the filter said *maybe* to the key before, and so is expected to do it again: a guess of lookups.
    pub(crate) expects_key: AtomicBool,
}

impl LiveSegment {
    /// Takes hold of the files that a record names. Reads no page.
    ///
    /// A file that is missing fails the lookups that need it; `missing` hears of it.
    pub(crate) fn hold(directory: &Directory, record: SegmentRecord, missing: &mut dyn FnMut(Error)) -> Self {
        let segment = Self::named(directory, record);
        let kvbi = segment.kvbi.as_ref().map_or(Ok(()), |kvbi| kvbi.hold());
        for held in [segment.kv.hold(), segment.bt.hold(), segment.kvei.hold(), kvbi] {
            held.unwrap_or_else(&mut *missing);
        }
        segment
    }

    /// Whether it has the `.kv` that a record names.
    pub(crate) fn has_kv_of(&self, record: &SegmentRecord) -> bool {
        self.record.kv == record.kv && self.record.is_held == record.is_held
    }

    /// The same segment with other accessors: takes over each file that both records name, and holds the others.
    pub(crate) fn hold_changed(
        &self,
        directory: &Directory,
        record: SegmentRecord,
        missing: &mut dyn FnMut(Error),
    ) -> Self {
        let mut segment = Self::named(directory, record);
        segment.kv = Arc::clone(&self.kv);
        if segment.record.bt == self.record.bt {
            segment.bt = Arc::clone(&self.bt);
        } else {
            segment.bt.hold().unwrap_or_else(&mut *missing);
        }
        if segment.record.kvei == self.record.kvei {
            segment.kvei = Arc::clone(&self.kvei);
        } else {
            segment.kvei.hold().unwrap_or_else(&mut *missing);
        }
        if segment.record.kvbi == self.record.kvbi {
            segment.kvbi.clone_from(&self.kvbi);
        } else if let Some(kvbi) = &segment.kvbi {
            kvbi.hold().unwrap_or_else(&mut *missing);
        }
        segment
    }

    /// The same segment with its `.kv` in another place.
    #[cfg(feature = "object-store")]
    pub(crate) fn with_kv(&self, directory: &Directory, kv: LiveFile<Segment<Mapping>>) -> Self {
        let mut segment = Self::named(directory, self.record.clone());
        segment.kv = Arc::new(kv);
        (segment.bt, segment.kvei) = (Arc::clone(&self.bt), Arc::clone(&self.kvei));
        segment.kvbi.clone_from(&self.kvbi);
        segment
    }

    fn named(directory: &Directory, record: SegmentRecord) -> Self {
        let absence = (!record.is_held).then(|| Arc::new(Absence::of(directory, &record)));
        let kv = Arc::new(LiveFile::new(directory, &record, absence.as_ref()));
        let bt = Arc::new(LiveFile::new(directory, &record, absence.as_ref()));
        let kvei = Arc::new(LiveFile::new(directory, &record, absence.as_ref()));
        let kvbi = record.kvbi.map(|_| Arc::new(LiveFile::new(directory, &record, absence.as_ref())));
        let blocks = directory.config.step_len.blocks(record.steps);
        Self {
            record,
            blocks,
            kv,
            bt,
            kvei,
            kvbi,
            key_heads: OnceLock::new(),
            expects_key: AtomicBool::new(true),
        }
    }

    /// Opens a segment that is not small, so that its first lookup waits for the pages it needs and for no others. What keeps a
    /// file from being opened is reported, and met again by whoever reads.
    pub(crate) fn open_if_large(&self) {
        if self.record.is_held && (self.bt.is_mapped() || self.kvei.is_mapped()) {
            let _ = self.open_for_lookups();
        }
    }

    /// The bytes of the accessors that are mapped. One that cannot be opened is left to the lookups, which report it.
    pub(crate) fn mapped_accessors(&self) -> impl Iterator<Item = Mapping> {
        let bt = self.bt.is_mapped().then(|| self.bt.get().ok().map(|file| file.view().data().clone()));
        let kvei = self.kvei.is_mapped().then(|| self.kvei.get().ok().map(|file| file.view().data().clone()));
        [bt, kvei].into_iter().flatten().flatten()
    }

    /// Opens a segment that was just written. Where that fails, its files go again.
    pub(crate) fn open_new(directory: &Directory, record: SegmentRecord) -> Result<Self, Error> {
        let segment = Self::hold(directory, record, &mut |_| {});
        segment.open_all().inspect_err(|_| {
            for kind in segment.record.kinds() {
                // What cannot be removed now is garbage that the next opening removes.
                let _ = directory.storage.remove(&segment.record.path(directory, kind));
            }
        })?;
        Ok(segment)
    }

    /// Opens the files that were not used yet.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::File`] with what is wrong: another length or checksum than the manifest's, damage,
    /// or an accessor of another segment.
    pub(crate) fn open_all(&self) -> Result<(), Error> {
        self.open_for_lookups()?;
        self.kvbi.as_ref().map_or(Ok(()), |kvbi| kvbi.get().map(drop))
    }

    /// The same of those files that a lookup by key reads.
    fn open_for_lookups(&self) -> Result<(), Error> {
        self.kv.get()?;
        self.bt.get()?;
        self.kvei.get().map(drop)
    }

    /// What the footer of the `.kv` says.
    #[inline]
    pub(crate) fn summary(&self) -> Result<&SegmentSummary, Error> {
        Ok(self.kv.get()?.view().summary())
    }

    /// The bytes of a value of this segment, `None` for a deletion.
    ///
    /// A value outside its page is fetched as a whole first: a mapping for random reading would bring it page by page, each waited for.
    pub(crate) fn load(kv: &KvFile, value: &Value<'_>) -> Result<Option<Vec<u8>>, Error> {
        if let Value::Overflow(blob) = value {
            kv.view().data().fetch_value(blob).map_err(|e| kv.error(e))?;
        }
        Ok(value.load().map_err(|e| kv.error(e))?.map(Cow::into_owned))
    }

    /// Whether a key can be between the first and the last key by its head, so that the files are worth asking. Where that cannot
    /// be known, it may: the lookup then says what is wrong.
    #[inline]
    pub(crate) fn spans_key(&self, head: u64) -> bool {
        let heads = self.key_heads.get().copied().or_else(|| self.read_key_heads());
        heads.is_none_or(|(first, last)| first <= head && head <= last)
    }

    #[cold]
    fn read_key_heads(&self) -> Option<(u64, u64)> {
        let summary = self.summary().ok()?;
        Some(*self.key_heads.get_or_init(|| (key_head(&summary.first_key), key_head(&summary.last_key))))
    }

    /// Whether an entry of a pass over several segments of one domain is of this one: their steps do not overlap (E4).
    pub(crate) fn has(&self, entry: &Entry<'_>) -> bool {
        self.blocks.0 <= entry.block && entry.block <= self.blocks.1
    }

    /// What keeps its files from being used. Looks at the accessors that were not used yet: a system call each.
    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.bt.look();
        self.kvei.look();
        let kvbi = self.kvbi.as_ref().and_then(|kvbi| {
            kvbi.look();
            kvbi.problem()
        });
        [self.kv.problem(), self.bt.problem(), self.kvei.problem(), kvbi].into_iter().flatten()
    }
}

/// The versions of several segments together.
pub(crate) fn entries_of(segments: &[Arc<LiveSegment>]) -> Result<u64, Error> {
    segments.iter().map(|segment| Ok(segment.summary()?.entries)).sum()
}

/// What a file of a segment must be.
fn identity_of(record: &SegmentRecord, config: &Config, kind: Kind) -> Identity {
    Identity {
        domain: config.name(record.domain).to_owned(),
        steps: record.steps,
        segment: record.kv.summary.content,
        summary: record.file(kind).summary,
    }
}

impl KvFile {
    /// Opens a `.kv` by a mapping of its own, for one pass from front to back.
    pub(crate) fn open_for_pass(directory: &Directory, record: &SegmentRecord) -> Result<Self, Error> {
        if !record.is_held {
            return Err(Absence::of(directory, record).error());
        }
        let path = record.path(directory, Kind::Segment);
        let mapping = directory.storage.map(&path, Access::Sequential)?;
        OpenFile::parse(&path, mapping, &identity_of(record, &directory.config, Kind::Segment))
    }
}

#[cfg(feature = "object-store")]
impl<T: FileView> LiveFile<T> {
    /// The same file with its bytes in another place.
    pub(crate) fn with_data(&self, data: Mapping) -> Result<Self, Error> {
        let open = OnceLock::from(OpenFile::parse(&self.path, data, &self.identity)?);
        let (path, identity, storage) = (self.path.clone(), self.identity.clone(), Arc::clone(&self.storage));
        let (held, problem, removals) = (OnceLock::new(), Mutex::new(None), self.removals.clone());
        let (failures, obsolete, absence) = (AtomicU64::new(0), AtomicBool::new(false), None);
        Ok(Self { path, identity, storage, removals, held, open, problem, failures, obsolete, absence })
    }
}
