//! Following an archive that another process may be writing: what a [`Reader`](crate::Reader) opens, and how it goes on.
//!
//! A manifest is one file under one name, replaced as a whole; the log only grows. So nothing is new as long as the name
//! stands for the file that was read and the log has the length it had. What is new is added to what is there: segments
//! that both manifests name are taken over, and the log is read from where it was left.
//!
//! A writer may replace the manifest, and remove what the former one named, while a reader takes hold of the files. What
//! is held by then is kept, and only the difference is opened again, so a reader gets there however fast the writer is.

use std::path::Path;
use std::sync::Arc;

use icecore_segments::step::{BlockNumber, Step};
use rayon::prelude::*;

use crate::error::Error;
use crate::manifest::{Manifest, SegmentRecord};
use crate::memtable::log_tail::{LogTail, NewTail};
use crate::read::read_state::{LogFault, ReadState, SegmentSet, by_domain};
use crate::segment::live::LiveSegment;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::storage::{ReadFile, Storage};
use crate::wal::{Heights, LogEvent, WalFollower};

/// How far a reader has followed an archive.
pub(crate) struct Follower {
    directory: Directory,
    manifest: Manifest,
    manifest_file: Box<dyn ReadFile>,
    /// The last log file that was read; `None` when the log must be read from its beginning.
    log: Option<WalFollower>,
    /// The heights in the log so far.
    heights: Heights,
}

/// What the files are at one moment.
struct Held {
    segments: SegmentSet,
    /// Those that were not held before.
    fresh: Vec<Arc<LiveSegment>>,
    is_missing: bool,
}

impl Follower {
    /// Opens the archive at `path`.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
    ) -> Result<(Directory, Self, ReadState), Error> {
        let (manifest, manifest_file) = Manifest::open(&**storage, path)?;
        let directory = Directory::new(storage, path, &manifest.config);
        let heights = manifest.heights();
        let mut follower = Self { directory: directory.clone(), manifest, manifest_file, log: None, heights };
        let nothing = follower.empty_version();
        let version = follower.catch_up(&nothing)?;
        // In parallel, because each waits for the first and the last pages of three files.
        version.segments.par_iter().flatten().for_each(|segment| segment.open_if_large());
        Ok((directory, follower, version))
    }

    /// What the archive is now, if that is not `before`, which is what the last call gave.
    ///
    /// # Cost
    /// Two system calls when nothing is new; else what is new is read.
    pub(crate) fn refresh(&mut self, before: &ReadState) -> Result<Option<ReadState>, Error> {
        let log_is_read = match &self.log {
            Some(log) => !log.has_news()?,
            None => false,
        };
        if log_is_read && self.is_current()? {
            return Ok(None);
        }
        // After a failure it is not known how far the log was taken over.
        let version = self.catch_up(before).inspect_err(|_| self.log = None)?;
        Ok(Some(version))
    }

    fn empty_version(&self) -> ReadState {
        ReadState {
            segments: Arc::new(by_domain(self.directory.config.domains.len(), [])),
            tables: Vec::new(),
            log: Some(Arc::new(LogTail::new(Arc::clone(&self.directory.config)))),
            log_fault: None,
            first: None,
            is_pruned: false,
            head: None,
            emitted_head: None,
            keeps_rows: self.manifest.config.keeps_rows,
        }
    }

    /// Whether the manifest that was read is still the archive's.
    pub(crate) fn is_current(&self) -> Result<bool, Error> {
        self.manifest_file.is_at(&self.directory.path.join(layout::MANIFEST))
    }

    /// Reads the manifest again; `false` when it is the one that was read.
    fn reload(&mut self) -> Result<bool, Error> {
        if self.is_current()? {
            return Ok(false);
        }
        let (manifest, file) = Manifest::open(&*self.directory.storage, &self.directory.path)?;
        if !self.manifest.config.is_same_archive(&manifest.config) {
            // Another archive took the place of this one.
            return Err(Error::Replaced { path: self.directory.path.clone() });
        }
        (self.manifest, self.manifest_file) = (manifest, file);
        Ok(true)
    }

    fn catch_up(&mut self, before: &ReadState) -> Result<ReadState, Error> {
        let mut known = Arc::clone(&before.segments);
        self.reload()?;
        loop {
            let held = self.hold_segments(&known);
            // What was removed meanwhile, or has another file under its name by now, no longer stands in the manifest.
            if !self.is_current()? && (held.is_missing || held.fresh.iter().any(|s| s.kv.check().is_err())) {
                self.reload()?;
                let lost = |s: &Arc<LiveSegment>| {
                    held.fresh.iter().any(|f| Arc::ptr_eq(f, s) && f.kv.check().is_err())
                };
                let kept = held.segments.iter().flatten().filter(|segment| !lost(segment)).cloned();
                known = Arc::new(by_domain(held.segments.len(), kept));
                continue;
            }
            let mut version = ReadState { segments: Arc::new(held.segments), ..self.empty_version() };
            version.emitted_head = self.manifest.emitted_head;
            match self.follow_log(before, &mut version) {
                Err(Error::Missing { .. } | Error::Damaged { .. }) if self.reload()? => {
                    (known, self.log) = (Arc::clone(&version.segments), None);
                }
                Err(error) => {
                    // What is in segments can be read without the log; what is not cannot.
                    version.log_fault = Some(LogFault::of(error)?);
                    version.set_log(LogTail::new(Arc::clone(&self.directory.config)), &self.manifest);
                    self.log = None;
                    return Ok(version);
                }
                Ok(()) => return Ok(version),
            }
        }
    }

    /// Takes hold of the segments of the manifest, and takes over those of `known` that it names.
    fn hold_segments(&self, known: &SegmentSet) -> Held {
        let mut held = Held { segments: vec![Vec::new(); known.len()], fresh: Vec::new(), is_missing: false };
        for record in &self.manifest.segments {
            let domain = record.domain.index();
            let segment = self.hold(&known[domain], record, &mut held);
            held.segments[domain].push(segment);
        }
        held
    }

    fn hold(&self, known: &[Arc<LiveSegment>], record: &SegmentRecord, held: &mut Held) -> Arc<LiveSegment> {
        let place = known.binary_search_by_key(&record.steps, |segment| segment.record.steps);
        let former = place.ok().map(|at| &known[at]);
        if let Some(same) = former.filter(|former| former.record == *record) {
            return Arc::clone(same);
        }
        let mut missing = |error: Error| held.is_missing |= matches!(error, Error::Missing { .. });
        let segment = match former.filter(|former| former.has_kv_of(record)) {
            Some(former) => former.hold_changed(&self.directory, record.clone(), &mut missing),
            None => LiveSegment::hold(&self.directory, record.clone(), &mut missing),
        };
        let segment = Arc::new(segment);
        if record.is_held {
            held.fresh.push(Arc::clone(&segment));
        }
        segment
    }

    /// Brings `version` to the end of the log, from where `before` left it if the manifest still names that file.
    fn follow_log(&mut self, before: &ReadState, version: &mut ReadState) -> Result<(), Error> {
        let (first, last) = (self.manifest.wal_first, self.manifest.wal_last);
        let goes_on = self.log.take().filter(|log| first <= log.sequence() && log.sequence() <= last);
        let is_new = goes_on.is_none();
        let mut tail = match &before.log {
            Some(log) if !is_new => {
                let boundary = self.directory.config.step_len.first_block(self.manifest.emitted_to);
                let newest = boundary.checked_sub(1).and_then(|last| log.newest_block(last));
                self.heights.emit_to(self.manifest.emitted_to, newest.map(|(height, _)| height));
                NewTail::from_step(log, self.manifest.emitted_to)
            }
            _ => {
                self.heights = self.manifest.heights();
                NewTail::from_step(&LogTail::new(Arc::clone(&self.directory.config)), Step(0))
            }
        };
        let mut log = match goes_on {
            Some(log) => log,
            None => self.open_log(first)?,
        };
        loop {
            let is_sealed = log.sequence() < last;
            for event in log.advance(is_sealed)? {
                self.apply(event, &mut tail)?;
            }
            if !is_sealed {
                break;
            }
            log = self.open_log(log.sequence() + 1)?;
        }
        self.manifest.check_log_end(&self.directory.path, log.records_end())?;
        if log.is_ended() {
            self.manifest.check_log_is_last(&*self.directory.storage, &self.directory.path)?;
        }
        self.log = Some(log);
        version.set_log(tail.finish(), &self.manifest);
        self.heights.check_emitted(self.manifest.emitted_head, version.head).map_err(|reason| {
            let path = self.directory.path.join(layout::MANIFEST);
            Error::Damaged { path, offset: 0, reason }
        })
    }

    fn open_log(&self, sequence: u64) -> Result<WalFollower, Error> {
        let path = layout::wal_file(&self.directory.path, sequence);
        let config = &self.directory.config;
        let opened = WalFollower::open(&*self.directory.storage, config, &path, config.log_file(sequence))?;
        opened.ok_or(Error::Missing { path })
    }

    fn apply(&mut self, event: LogEvent, tail: &mut NewTail) -> Result<(), Error> {
        match event {
            LogEvent::Unwind { to, place } => {
                self.heights.fall(to).map_err(|reason| place.damaged(reason))?;
                tail.unwind(to);
            }
            LogEvent::Block(block) => {
                self.heights.rise(block.height).map_err(|reason| block.place().damaged(reason))?;
                if self.directory.config.step_len.step_of(block.height) >= self.manifest.emitted_to {
                    tail.push(block)?;
                }
            }
        }
        Ok(())
    }
}

impl ReadState {
    /// Takes the blocks of a log, and the heights that follow from it and from the manifest.
    fn set_log(&mut self, log: LogTail, manifest: &Manifest) {
        let first = manifest.first_block.or(log.first());
        self.first = first.map(|first| first.max(manifest.pruned_before));
        self.is_pruned = manifest.pruned_before > 0;
        self.head = log.newest_block(BlockNumber::MAX).map(|(height, _)| height).or(manifest.emitted_head);
        self.emitted_head = manifest.emitted_head;
        self.log = Some(Arc::new(log));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SimStorage;
    use crate::wal::{RecordRef, WalWriter};
    use crate::{Archive, OpenOptions, Options, Reader, VerifyMode, verify_on};

    const PATH: &str = "/archive";

    fn commit(archive: &Archive, heights: std::ops::Range<u64>) {
        for height in heights {
            archive.begin(height).unwrap().commit().unwrap();
        }
    }

    fn place(error: &Error) -> (&Path, u64) {
        match error {
            Error::Damaged { path, offset, .. } => (path, *offset),
            other => panic!("{other:?}"),
        }
    }

    /// An archive whose first log file is written again with other records, and closed as it was.
    fn forged(records: &[RecordRef<'_>]) -> (Arc<dyn Storage>, u64) {
        let disk = SimStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let options = Options::new().domain("kv").blocks_per_step(4).reorg_window(100);
        let archive = Archive::create_on(Arc::clone(&storage), PATH, options, OpenOptions::new()).unwrap();
        commit(&archive, 1..10);
        archive.close().unwrap();
        let manifest = Manifest::load(&*storage, Path::new(PATH)).unwrap();
        assert_eq!((manifest.wal_first, manifest.wal_last), (1, 2));
        let path = layout::wal_file(Path::new(PATH), 1);
        storage.remove(&path).unwrap();
        let mut writer = WalWriter::create(&*storage, &path, manifest.config.log_file(1)).unwrap();
        let mut last = 0;
        for record in records {
            last = storage.len(&path).unwrap().unwrap();
            writer.append(record).unwrap();
        }
        writer.seal().unwrap();
        (storage, last)
    }

    #[test]
    fn a_height_that_no_writer_wrote_is_blamed_on_its_record() {
        let block = |height| RecordRef::Block { height, root: &[0; 32], changes: &[] };
        for records in [[block(1), block(20), block(20)], [block(1), block(20), RecordRef::Unwind { to: 20 }]]
        {
            let (storage, offset) = forged(&records);
            let path = layout::wal_file(Path::new(PATH), 1);
            let reader = Reader::open_on(Arc::clone(&storage), PATH).unwrap();
            assert_eq!(place(&reader.latest().map(drop).unwrap_err()), (&*path, offset));
            let opened = Archive::open_on(Arc::clone(&storage), PATH, OpenOptions::new());
            assert_eq!(place(&opened.map(drop).unwrap_err()), (&*path, offset));
            let report = verify_on(storage, PATH, VerifyMode::Fast, &()).unwrap();
            assert_eq!(report.problems.iter().map(place).collect::<Vec<_>>(), [(&*path, offset)]);
        }
    }
}
