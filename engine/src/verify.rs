//! Verify: is what the manifest names there, whole and consistent? Works on an archive that cannot be opened.
//!
//! Every problem is collected with its file instead of ending the run. Fast: presence, lengths, headers, footers, log
//! records, accessors bound to their segment. Full: also every page checksum and content checksum, order and
//! counts, every key found through its filter and its index, and the state at the head against its recorded root.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::KeyHash;
use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::Kind;
use icecore_segments::{EntrySource, PageBuf};

use crate::error::Error;
use crate::layout;
use crate::live::{Directory, LiveSegment};
use crate::manifest::Manifest;
use crate::observer::Observer;
use crate::reader::Reader;
use crate::recovery;
use crate::storage::os::OsStorage;
use crate::storage::{Access, Storage};
use crate::wal::{Tail, WalReader};

/// How often the run starts again when a writer keeps changing the manifest under it.
const RETRIES_MAX: usize = 10;

/// How much to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMode {
    /// What can be seen without reading data pages.
    Fast,
    /// Everything.
    Full,
}

/// What was verified and what is wrong.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Files looked at.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, by file.
    pub problems: Vec<Error>,
    /// Files in the directory that the manifest does not name: left by a crash, removed by the next writer.
    pub garbage: Vec<PathBuf>,
}

/// Verifies the archive at `path`. Takes no lock and changes nothing.
///
/// # Errors
/// Only what keeps the manifest from being read; everything else stands in the report.
pub fn verify(
    path: impl AsRef<Path>,
    mode: VerifyMode,
    observer: &dyn Observer,
) -> Result<VerifyReport, Error> {
    verify_with(Arc::new(OsStorage), path, mode, observer)
}

/// The same on any storage.
pub fn verify_with(
    storage: Arc<dyn Storage>,
    path: impl AsRef<Path>,
    mode: VerifyMode,
    observer: &dyn Observer,
) -> Result<VerifyReport, Error> {
    let path = path.as_ref();
    for _ in 0..RETRIES_MAX {
        let manifest = Manifest::load(&*storage, path)?;
        let report = verify_manifest(&storage, path, &manifest, mode, observer)?;
        // What a writer replaced meanwhile is no damage: its new manifest is to be verified.
        if report.problems.is_empty()
            || Manifest::load(&*storage, path).is_ok_and(|now| now.generation == manifest.generation)
        {
            return Ok(report);
        }
    }
    Err(Error::Busy { path: path.to_owned() })
}

fn verify_manifest(
    storage: &Arc<dyn Storage>,
    path: &Path,
    manifest: &Manifest,
    mode: VerifyMode,
    observer: &dyn Observer,
) -> Result<VerifyReport, Error> {
    let directory = recovery::directory(storage, path, manifest);
    let mut report = VerifyReport::default();
    for record in &manifest.segments {
        observer.begin(&format!("verify {}", directory.segment_name(record)), Some(record.kv.summary.len));
        report.files += Kind::ALL.len() as u64;
        report.bytes += Kind::ALL.iter().map(|kind| record.file(*kind).summary.len).sum::<u64>();
        match LiveSegment::open(&directory, record.clone()) {
            Ok(segment) if mode == VerifyMode::Full => report.problems.extend(segment.verify(&directory)),
            Ok(_) => {}
            Err(error) => report.problems.push(error),
        }
        observer.advance(record.kv.summary.len);
        observer.end();
    }
    verify_log(&directory, manifest, &mut report);
    report.garbage = recovery::find_garbage(&directory, manifest)?;
    if mode == VerifyMode::Full && report.problems.is_empty() {
        report.problems.extend(verify_root(Arc::clone(storage), path, observer).err());
    }
    Ok(report)
}

fn verify_log(directory: &Directory, manifest: &Manifest, report: &mut VerifyReport) {
    for sequence in manifest.wal_first..=manifest.wal_last {
        let path = layout::wal_file(&directory.path, sequence);
        let tail = if sequence == manifest.wal_last { Tail::Open } else { Tail::Sealed };
        report.files += 1;
        let checked = directory.storage.read(&path).and_then(|bytes| {
            let bytes = bytes.ok_or_else(|| Error::Missing { path: path.clone() })?;
            report.bytes += bytes.len() as u64;
            WalReader::open(&path, &bytes, sequence, tail)?.records().try_for_each(|record| record.map(drop))
        });
        report.problems.extend(checked.err());
    }
}

fn verify_root(storage: Arc<dyn Storage>, path: &Path, observer: &dyn Observer) -> Result<(), Error> {
    let reader = Reader::open_with(storage, path)?;
    let Some(head) = reader.head() else { return Ok(()) };
    let version = reader.shared.version();
    let config = &reader.shared.directory.config;
    let tree = version.build_tree(config, head, None, icecore_hot::Options::default(), observer)?.tree;
    version.check_root(head, tree.root())
}

impl LiveSegment {
    /// Everything that is wrong with the files of this segment.
    fn verify(&self, directory: &Directory) -> Vec<Error> {
        let mut problems = Vec::new();
        problems.extend(self.bt.view().verify().err().map(|e| self.bt.error(e)));
        problems.extend(self.kvei.view().verify().err().map(|e| self.kvei.error(e)));
        let sequential = match directory.open_segment(&self.record, Access::Sequential) {
            Ok(file) => file,
            Err(error) => {
                problems.push(error);
                return problems;
            }
        };
        problems.extend(sequential.view().verify().err().map(|e| sequential.error(e)));
        if problems.is_empty() {
            problems.extend(self.verify_accessors(directory).err());
        }
        problems
    }

    /// Whether every entry is found by way of its filter and its index.
    fn verify_accessors(&self, directory: &Directory) -> Result<(), Error> {
        let file = directory.open_segment(&self.record, Access::Sequential)?;
        let mut cursor = file.view().cursor();
        cursor.seek_first().map_err(|e| file.error(e))?;
        let mut last: Option<Vec<u8>> = None;
        let mut page = PageBuf::default();
        while let Some(entry) = cursor.entry() {
            let is_new = last.as_deref() != Some(entry.key);
            if is_new
                && !self.kvei.view().may_contain(KeyHash::of(entry.key)).map_err(|e| self.kvei.error(e))?
            {
                return Err(self.kvei.error(inconsistent(Part::Shard)));
            }
            let span = self.bt.view().locate(entry.key, entry.block).map_err(|e| self.bt.error(e))?;
            let found =
                file.view().get_in(span, entry.key, entry.block, &mut page).map_err(|e| file.error(e))?;
            if found.map(|version| version.block) != Some(entry.block) {
                return Err(self.bt.error(inconsistent(Part::Leaf)));
            }
            if is_new {
                last = Some(entry.key.to_vec());
            }
            cursor.advance().map_err(|e| file.error(e))?;
        }
        Ok(())
    }
}

fn inconsistent(part: Part) -> icecore_segments::Error {
    Corruption { part, offset: 0, reason: Reason::Order }.into()
}
