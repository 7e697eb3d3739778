//! Checkpoint: a consistent copy of an archive beside a running writer, by hard links where the file system has them.
//!
//! Files of segments and sealed log files are never written again, so a second name for them is a copy; only the last log
//! file is read and written. A writer may replace the manifest meanwhile and remove what the former one named: then what
//! the new one names besides is linked too, and what it does not name goes. The manifest comes last. Until it is there a
//! file named `CHECKPOINT` says that the copy is not finished, and the next checkpoint to that place begins again.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::manifest::{Manifest, SegmentRecord, had_content};
use crate::progress::ProgressListener;
use crate::read::shared::Shared;
use crate::segment::live::{KvFile, LiveSegment};
use crate::storage::copy_file;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::storage::{ReadFile, Storage};
use crate::wal::{Tail, WalReader, WalWriter};

/// What a checkpoint copied: the answer of [`Reader::checkpoint`](crate::Reader::checkpoint).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The heights that can be read in the copy, both included; `None` before the first block.
    pub range: Option<(BlockNumber, BlockNumber)>,
    /// How many files are hard links to those of the archive.
    pub files_linked: u64,
    /// Bytes of the linked files. They take no space of their own while the archive keeps them.
    pub bytes_linked: u64,
    /// How many files were copied.
    pub files_copied: u64,
    /// Bytes of the copied files.
    pub bytes_copied: u64,
}

/// A copy that is being made.
struct Checkpoint<'a> {
    storage: &'a Arc<dyn Storage>,
    source: &'a Path,
    copy: &'a Path,
    listener: &'a dyn ProgressListener,
    /// The files in the copy, by name: what the manifest said of them, and whether they are links.
    files: HashMap<String, (FileSummary, bool)>,
    /// The sealed log files in the copy, by number: their lengths, and whether they are links.
    log: HashMap<u64, (u64, bool)>,
    /// The last log file by number, and its length. It may be sealed and longer by the time a newer manifest is read.
    log_last: (u64, u64),
}

/// Copies the archive at `source` to `copy`, which must not exist or be empty, or be a checkpoint that was not finished.
pub(crate) fn checkpoint(
    storage: &Arc<dyn Storage>,
    source: &Path,
    copy: &Path,
    listener: &dyn ProgressListener,
) -> Result<CheckpointReport, Error> {
    let copy = absolute(copy);
    let (files, log) = (HashMap::new(), HashMap::new());
    let mut checkpoint = Checkpoint { storage, source, copy: &copy, listener, files, log, log_last: (0, 0) };
    checkpoint.check_place()?;
    checkpoint.begin()?;
    checkpoint.fill()
}

impl Checkpoint<'_> {
    /// Refuses a place inside the archive, where the archive would take the copy for its own.
    fn check_place(&self) -> Result<(), Error> {
        let Some(archive) = self.storage.canonical(self.source)? else { return Ok(()) };
        if self.place()?.starts_with(&archive) {
            return Err(Error::InsideArchive { path: self.copy.to_owned(), archive });
        }
        Ok(())
    }

    /// Where the copy will be: what is missing of its path will be directories, links and `..` in the rest lead where they do.
    fn place(&self) -> Result<PathBuf, Error> {
        let mut place = PathBuf::new();
        for component in self.copy.components() {
            if component == Component::ParentDir {
                place.pop();
            } else {
                place.push(component);
                place = self.storage.canonical(&place)?.unwrap_or(place);
            }
        }
        Ok(place)
    }

    /// Makes the directory, says that it is not finished, and clears what an earlier attempt left.
    fn begin(&self) -> Result<(), Error> {
        let marker = self.copy.join(layout::CHECKPOINT);
        let is_unfinished = self.storage.len(&marker)?.is_some();
        let names = self.storage.list(self.copy)?.unwrap_or_default();
        if !is_unfinished && (!names.is_empty() || had_content(&**self.storage, self.copy)?) {
            return Err(Error::Exists { path: self.copy.to_owned() });
        }
        if names.iter().any(|name| name == layout::MANIFEST) {
            // Complete but for the removal of the marker.
            return Err(Error::Exists { path: self.copy.to_owned() });
        }
        self.storage.create_dir(self.copy)?;
        self.storage.create_dir(&layout::wal_dir(self.copy))?;
        if !is_unfinished {
            self.storage.create(&marker)?.sync()?;
            self.storage.sync_dir(self.copy)?;
        }
        for name in names.iter().filter(|name| layout::is_ours(name) && *name != layout::CHECKPOINT) {
            self.storage.remove(&self.copy.join(name))?;
        }
        let wal = layout::wal_dir(self.copy);
        for name in self.storage.list(&wal)?.unwrap_or_default() {
            if layout::parse_wal_name(&name).is_some() {
                self.storage.remove(&wal.join(name))?;
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<CheckpointReport, Error> {
        loop {
            let (manifest, file) = Manifest::open(&**self.storage, self.source)?;
            let total = manifest.segments.iter().map(SegmentRecord::bytes).sum();
            self.listener.begin("checkpoint", Some(total));
            match self.take(&manifest, &*file) {
                Ok(true) => return self.finish(&manifest),
                Ok(false) => {}
                // The file may have been removed because a newer manifest does not name it.
                Err(Error::Missing { .. }) if !self.is_current(&*file)? => {}
                Err(error) => return Err(error),
            }
            self.listener.end();
        }
    }

    fn is_current(&self, manifest_file: &dyn ReadFile) -> Result<bool, Error> {
        manifest_file.is_at(&self.source.join(layout::MANIFEST))
    }

    /// Takes over what a manifest names; `false` when some of it has another file under its name by now.
    fn take(&mut self, manifest: &Manifest, file: &dyn ReadFile) -> Result<bool, Error> {
        let mut fresh: Vec<&SegmentRecord> = Vec::new();
        for record in &manifest.segments {
            let mut is_fresh = false;
            for kind in record.kinds() {
                is_fresh |=
                    self.take_file(&record.file_name(&manifest.config, kind), record.file(kind).summary)?;
            }
            if is_fresh {
                fresh.push(record);
            }
        }
        for sequence in manifest.wal_first..manifest.wal_last {
            self.take_sealed(sequence)?;
        }
        let last = layout::wal_file(Path::new(""), manifest.wal_last);
        self.storage.remove(&self.copy.join(&last))?;
        self.log_last = (manifest.wal_last, self.copy_file(&last)?);
        self.log.retain(|sequence, _| (manifest.wal_first..manifest.wal_last).contains(sequence));
        if self.is_current(file)? {
            return Ok(true);
        }
        // Names may have been given to other files while they were linked: these are the ones that were named?
        let directory = Directory::new(self.storage, self.copy, &manifest.config);
        let wrong = fresh.into_iter().filter(|record| !is_whole(&directory, record));
        let files = wrong.flat_map(|record| record.kinds().map(move |kind| (record, kind)));
        let names: Vec<String> =
            files.map(|(record, kind)| record.file_name(&manifest.config, kind)).collect();
        for name in &names {
            self.forget(name)?;
        }
        Ok(names.is_empty())
    }

    /// Links or copies a file of a segment; `false` when the copy has it.
    fn take_file(&mut self, name: &str, summary: FileSummary) -> Result<bool, Error> {
        match self.files.get(name) {
            Some((taken, _)) if *taken == summary => return Ok(false),
            Some(_) => self.forget(name)?,
            None => {}
        }
        let (_, is_link) = self.link_or_copy(Path::new(name))?;
        self.files.insert(name.to_owned(), (summary, is_link));
        self.listener.advance(summary.len);
        Ok(true)
    }

    fn take_sealed(&mut self, sequence: u64) -> Result<(), Error> {
        if !self.log.contains_key(&sequence) {
            let taken = self.link_or_copy(&layout::wal_file(Path::new(""), sequence))?;
            self.log.insert(sequence, taken);
        }
        Ok(())
    }

    fn forget(&mut self, name: &str) -> Result<(), Error> {
        self.storage.remove(&self.copy.join(name))?;
        self.files.remove(name);
        Ok(())
    }

    /// Gives a file of the archive a name in the copy. Returns its length and whether it is a link.
    fn link_or_copy(&self, name: &Path) -> Result<(u64, bool), Error> {
        let target = self.copy.join(name);
        // An attempt that failed half way may have left it.
        self.storage.remove(&target)?;
        if self.storage.link(&self.source.join(name), &target)? {
            let len = self.storage.len(&target)?.ok_or(Error::Missing { path: target })?;
            return Ok((len, true));
        }
        Ok((self.copy_file(name)?, false))
    }

    fn copy_file(&self, name: &Path) -> Result<u64, Error> {
        copy_file(&**self.storage, &self.source.join(name), &self.copy.join(name))
    }

    /// Lets go of what the manifest does not name, and makes the copy an archive.
    fn finish(&mut self, manifest: &Manifest) -> Result<CheckpointReport, Error> {
        let named = manifest.file_names();
        let unnamed: Vec<String> = self.files.keys().filter(|name| !named.contains(*name)).cloned().collect();
        unnamed.iter().try_for_each(|name| self.forget(name))?;
        let wal = layout::wal_dir(self.copy);
        for name in self.storage.list(&wal)?.unwrap_or_default() {
            let is_taken = |sequence| self.log.contains_key(&sequence) || self.log_last.0 == sequence;
            if layout::parse_wal_name(&name).is_some_and(|sequence| !is_taken(sequence)) {
                self.storage.remove(&wal.join(name))?;
            }
        }
        self.check_segments(manifest)?;
        let manifest = Manifest { wal_reached: self.check_log(manifest)?, ..manifest.clone() };
        self.storage.sync_dir(&wal)?;
        self.storage.sync_dir(self.copy)?;
        manifest.store(&**self.storage, self.copy)?;
        self.storage.remove(&self.copy.join(layout::CHECKPOINT))?;
        self.storage.sync_dir(self.copy)?;
        self.storage.sync_dir(self.copy.parent().unwrap_or(Path::new("")))?;
        self.listener.end();
        let copy = Shared::open(self.storage, self.copy)?;
        let mut report = CheckpointReport { range: copy.read_state().range(), ..CheckpointReport::default() };
        let files = self.files.values().map(|(summary, is_link)| (summary.len, *is_link));
        for (len, is_link) in files.chain(self.log.values().copied()).chain([(self.log_last.1, false)]) {
            let (files, bytes) = if is_link {
                (&mut report.files_linked, &mut report.bytes_linked)
            } else {
                (&mut report.files_copied, &mut report.bytes_copied)
            };
            *files += 1;
            *bytes += len;
        }
        Ok(report)
    }
}

impl Checkpoint<'_> {
    /// Opens each `.kv` of the copy: one that is cut short, or is another's, would be found when a backup is needed. Pages are not
    /// read, and accessors can be built again.
    ///
    /// # Errors
    /// [`Error::File`] with the file of the archive.
    fn check_segments(&self, manifest: &Manifest) -> Result<(), Error> {
        let [copy, archive] =
            [self.copy, self.source].map(|path| Directory::new(self.storage, path, &manifest.config));
        for record in manifest.segments.iter().filter(|record| record.is_held) {
            KvFile::open_for_pass(&copy, record).map_err(|error| match error {
                Error::File { source, .. } => {
                    Error::File { path: record.path(&archive, Kind::Segment), source }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    /// Checks the log of the copy, and marks in its last file that all of it is durable. Returns where its last record ends.
    ///
    /// # Errors
    /// [`Error::Damaged`]: a copy that is no whole archive is not finished.
    fn check_log(&self, manifest: &Manifest) -> Result<u64, Error> {
        let mut end = None;
        for sequence in manifest.wal_first..=manifest.wal_last {
            let path = layout::wal_file(self.copy, sequence);
            let bytes = self.storage.read(&path)?.ok_or_else(|| Error::Missing { path: path.clone() })?;
            let tail = if sequence == manifest.wal_last { Tail::Open } else { Tail::Sealed };
            let reader = WalReader::open(&path, &bytes, manifest.config.log_file(sequence), tail)?;
            reader.records(&manifest.config).try_for_each(|record| record.map(drop))?;
            end = Some(reader.position());
        }
        let end = end.expect("a log has a last file");
        manifest.check_log_end(self.copy, end.records_end)?;
        WalWriter::resume(
            &**self.storage,
            &layout::wal_file(self.copy, manifest.wal_last),
            manifest.config.log_file(manifest.wal_last),
            end,
        )?
        .sync_marker()?;
        Ok(end.records_end)
    }
}

/// Whether the files of a segment are those that its record names.
fn is_whole(directory: &Directory, record: &SegmentRecord) -> bool {
    let segment = LiveSegment::hold(directory, record.clone(), &mut |_| {});
    let kvbi = segment.kvbi.as_ref().is_none_or(|kvbi| kvbi.check().is_ok());
    kvbi && segment.kv.check().is_ok() && segment.bt.check().is_ok() && segment.kvei.check().is_ok()
}

/// A path whose parent can be named.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
