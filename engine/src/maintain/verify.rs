//! Verify: is what the manifest names there, whole and consistent? Works on an archive that cannot be opened.
//!
//! Every problem is collected with its file instead of ending the run. Fast: presence, lengths, headers, footers, log
//! records, accessors bound to their segment. Full: also every page checksum and content checksum, order and
//! counts, every key found through its filter and its index, the changes of each block against their digest, and the state at the head
//! against its recorded root.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::FilterHash;
use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::{Kind, PAGE_SIZE};
use icecore_segments::{EntrySource, PageBuf};

use crate::error::Error;
use crate::maintain::digests::check_digests;
use crate::manifest::{Manifest, SegmentRecord};
use crate::merkle::check_state::check_state;
use crate::progress::ProgressListener;
use crate::read::pinned::Pinned;
use crate::read::shared::Shared;
use crate::segment::block_tap::block_index_builder;
use crate::segment::live::KvFile;
use crate::segment::live::LiveSegment;
use crate::storage::Storage;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::storage::os::OsStorage;
use crate::wal::{Heights, Tail, WalReader};
use crate::write::recovery;

/// How often the run starts again when a writer keeps changing the manifest under it.
const RETRIES_MAX: usize = 10;

/// Entries between two words to the listener.
const PROGRESS_EVERY: u64 = 1 << 14;

/// How thoroughly [`verify`] checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyMode {
    /// Presence and length of every file, headers and footers, the log, and whether accessors belong to their segments. Reads a
    /// few pages per file, and the log.
    Fast,
    /// All of that, every page and content checksum, order and counts, every key through its filter and its index, what each block
    /// changed against the digest that was recorded with its root, and the state at the head against its root. Of an archive for
    /// [Ethereum](crate::Commitment::Ethereum) also the root of each block in the log; with rows all of them, and all storage roots, at the
    /// newest block in segments, and at each block those at depth 1 against its root. Reads every byte, and takes about 110 bytes of memory
    /// per live key.
    Full,
}

/// What [`verify`] checked and what is wrong.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// How many files were checked.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// All damage, by file. Empty for a sound archive.
    pub problems: Vec<Error>,
    /// The names of the segments that a partial copy does not hold: nothing of them was checked, and where one of a declared domain is
    /// among them, neither were blocks against their digests, nor the state at the head against its root.
    pub not_held: Vec<String>,
    /// Files in the directory that the manifest does not name. Beside a running writer they are not published yet, or held by its
    /// readers. Without one they are what a killed writer left; the next opening for writing removes them.
    pub garbage: Vec<PathBuf>,
    /// Whether a writer has the archive open.
    pub writer_is_running: bool,
    /// The end of the log, where it was not synced or not written whole. That is no damage.
    pub log_tail: Option<LogTailReport>,
}

/// The end of a log whose last bytes were not synced, or not written whole: part of a [`VerifyReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogTailReport {
    /// The last log file.
    pub path: PathBuf,
    /// Where its sound records end, in bytes. What follows is not known to be durable; the next writer cuts it off.
    pub sound: u64,
    /// Bytes of sound records not yet marked as synced: a power loss can take them.
    pub unmarked: u64,
    /// The length of the file in bytes.
    pub len: u64,
}

/// Checks the archive at `path`, also one that cannot be opened, and reports all damage instead of stopping at the first. Takes no
/// lock and changes nothing; a writer may go on meanwhile.
///
/// # Cost
/// As [`VerifyMode`] says.
///
/// # Errors
/// Only what keeps the manifest from being read; [`Error::KeepsChanging`] beside a writer that is too fast. Damage is in the
/// report.
pub fn verify(
    path: impl AsRef<Path>,
    mode: VerifyMode,
    listener: &dyn ProgressListener,
) -> Result<VerifyReport, Error> {
    verify_on(Arc::new(OsStorage), path, mode, listener)
}

/// Checks an archive like [`verify`], on a custom [`Storage`] instead of the file system.
///
/// # Errors
/// Only what keeps the manifest from being read; damage is in the report.
pub fn verify_on(
    storage: Arc<dyn Storage>,
    path: impl AsRef<Path>,
    mode: VerifyMode,
    listener: &dyn ProgressListener,
) -> Result<VerifyReport, Error> {
    let path = path.as_ref();
    for _ in 0..RETRIES_MAX {
        let manifest = Manifest::load(&*storage, path)?;
        let report = verify_manifest(&storage, path, &manifest, mode, listener)?;
        // What a writer replaced meanwhile is no damage: its new manifest is to be verified.
        if report.problems.is_empty()
            || Manifest::load(&*storage, path).is_ok_and(|now| now.generation == manifest.generation)
        {
            return Ok(report);
        }
    }
    Err(Error::KeepsChanging { path: path.to_owned() })
}

/// The times that a `.kv` is read: its content, its pages, and its entries by way of the accessors.
const KV_PASSES: u64 = 3;

/// What a full verification reads of a segment.
fn bytes_to_read(record: &SegmentRecord) -> u64 {
    record.bytes() + record.kv.summary.len * (KV_PASSES - 1)
}

/// Reports of one segment exactly [`bytes_to_read`], whatever its files say.
struct Progress<'a> {
    listener: &'a dyn ProgressListener,
    left: u64,
}

impl Progress<'_> {
    fn advance(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        self.listener.advance(bytes);
    }
}

fn verify_manifest(
    storage: &Arc<dyn Storage>,
    path: &Path,
    manifest: &Manifest,
    mode: VerifyMode,
    listener: &dyn ProgressListener,
) -> Result<VerifyReport, Error> {
    let directory = Directory::new(storage, path, &manifest.config);
    let mut report = VerifyReport { not_held: manifest.not_held(), ..VerifyReport::default() };
    let here = || manifest.segments.iter().filter(|record| record.is_held);
    listener.begin("verify", Some(here().map(bytes_to_read).sum()));
    for record in here() {
        report.files += record.kinds().count() as u64;
        report.bytes += record.bytes();
        let segment = LiveSegment::hold(&directory, record.clone(), &mut |_| {});
        let mut progress = Progress { listener, left: bytes_to_read(record) };
        report.problems.extend(verify_segment(&segment, &directory, mode, &mut progress));
        progress.advance(u64::MAX);
    }
    listener.end();
    verify_log(&directory, manifest, &mut report)?;
    report.garbage = recovery::find_garbage(&directory, manifest)?;
    report.writer_is_running = storage.is_locked(path)?;
    let nodes = manifest.config.nodes();
    let has_state = manifest.segments.iter().all(|record| record.is_held || Some(record.domain) == nodes);
    if mode == VerifyMode::Full && report.problems.is_empty() && has_state {
        let nodes_are_held = manifest.segments.iter().all(|record| record.is_held);
        report.problems.extend(verify_state(storage, path, nodes_are_held, listener).err());
    }
    Ok(report)
}

/// Goes through the log files that are there, and reports those that are not: one problem for each gap, because a manifest that
/// is wrong may name any number.
fn verify_log(directory: &Directory, manifest: &Manifest, report: &mut VerifyReport) -> Result<(), Error> {
    let names = directory.storage.list(&layout::wal_dir(&directory.path))?.unwrap_or_default();
    let named = manifest.wal_first..=manifest.wal_last;
    let there = names.iter().filter_map(|name| layout::parse_wal_name(name));
    let (mut expected, mut heights) = (Some(manifest.wal_first), manifest.heights());
    for sequence in there.filter(|sequence| named.contains(sequence)) {
        if expected.is_some_and(|expected| expected < sequence) {
            let path = layout::wal_file(&directory.path, expected.unwrap_or(sequence));
            report.problems.push(Error::Missing { path });
            heights = manifest.heights();
        }
        expected = sequence.checked_add(1);
        verify_log_file(directory, manifest, sequence, &mut heights, report);
    }
    if let Some(expected) = expected.filter(|expected| named.contains(expected)) {
        report.problems.push(Error::Missing { path: layout::wal_file(&directory.path, expected) });
    }
    let is_last = manifest.check_log_is_last(&*directory.storage, &directory.path);
    report.problems.extend(is_last.err());
    Ok(())
}

fn verify_log_file(
    directory: &Directory,
    manifest: &Manifest,
    sequence: u64,
    heights: &mut Heights,
    report: &mut VerifyReport,
) {
    let path = layout::wal_file(&directory.path, sequence);
    let tail = if sequence == manifest.wal_last { Tail::Open } else { Tail::Sealed };
    report.files += 1;
    let checked = directory.storage.read(&path).and_then(|bytes| {
        let bytes = bytes.ok_or_else(|| Error::Missing { path: path.clone() })?;
        report.bytes += bytes.len() as u64;
        let reader = WalReader::open(&path, &bytes, manifest.config.log_file(sequence), tail)?;
        let (sound, unmarked, len) = (reader.position().len, reader.unmarked(), bytes.len() as u64);
        if tail == Tail::Open && (sound < len || unmarked > 0) {
            report.log_tail = Some(LogTailReport { path: path.clone(), sound, unmarked, len });
        }
        if tail == Tail::Open {
            manifest.check_log_end(&directory.path, reader.position().records_end)?;
        }
        reader.records(&directory.config).try_for_each(|record| {
            let (offset, record) = record?;
            let follows = heights.follow(&record);
            follows.map_err(|reason| Error::Damaged { path: path.clone(), offset, reason })
        })
    });
    if let Err(error) = checked {
        report.problems.push(error);
        // What this file says after the problem is not known, so the next may go on anywhere.
        *heights = manifest.heights();
    }
}

/// The changes of blocks against their digests, the state at the head against its root, and the nodes of an archive for Ethereum
/// against the state.
fn verify_state(
    storage: &Arc<dyn Storage>,
    path: &Path,
    nodes_are_held: bool,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let shared = Shared::open(storage, path)?;
    let version = shared.read_state();
    check_digests(&shared, &Pinned::Here(Arc::clone(&version)), listener)?;
    check_state(&version, &shared.directory.config, nodes_are_held, listener)
}

/// Everything that is wrong with the files of a segment.
fn verify_segment(
    segment: &LiveSegment,
    directory: &Directory,
    mode: VerifyMode,
    progress: &mut Progress<'_>,
) -> Vec<Error> {
    if mode == VerifyMode::Fast {
        let kvbi = segment.kvbi.as_ref().map_or(Ok(()), |kvbi| kvbi.check());
        let checked = [segment.kv.check(), segment.bt.check(), segment.kvei.check(), kvbi];
        return checked.into_iter().filter_map(Result::err).collect();
    }
    let len = |kind| segment.record.file(kind).summary.len;
    let index = segment.bt.get().and_then(|bt| bt.view().verify().map_err(|e| bt.error(e)));
    progress.advance(len(Kind::PivotIndex));
    let filter = segment.kvei.get().and_then(|kvei| kvei.view().verify().map_err(|e| kvei.error(e)));
    progress.advance(len(Kind::ExistenceFilter));
    let blocks = segment.kvbi.as_ref().map_or(Ok(()), |kvbi| {
        progress.advance(len(Kind::BlockIndex));
        kvbi.get().and_then(|kvbi| kvbi.view().verify().map_err(|e| kvbi.error(e)))
    });
    let content = KvFile::open_for_pass(directory, &segment.record).and_then(|file| {
        let verified = file.view().verify_with_progress(&mut |bytes| progress.advance(bytes));
        verified.map_err(|e| file.error(e))
    });
    // A file may have few pages and large values; the next pass begins where this one should have ended.
    progress.advance(progress.left.saturating_sub(len(Kind::Segment)));
    let mut problems: Vec<_> = [index, filter, blocks, content].into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        problems.extend(verify_accessors(segment, directory, progress).err());
    }
    problems
}

/// Whether every entry is found by way of its filter and its index, and its block index is the one of these entries.
fn verify_accessors(
    segment: &LiveSegment,
    directory: &Directory,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let file = KvFile::open_for_pass(directory, &segment.record)?;
    let (bt, kvei) = (segment.bt.get()?, segment.kvei.get()?);
    let (begun, entries) = (progress.left, file.view().summary().entries.max(1));
    let mut cursor = file.view().cursor();
    cursor.seek_first().map_err(|e| file.error(e))?;
    let mut last: Option<Vec<u8>> = None;
    let mut page = PageBuf::default();
    let mut seen = 0_u64;
    let mut blocks = match &segment.kvbi {
        Some(kvbi) => Some((kvbi.get()?, block_index_builder(directory)?)),
        None => None,
    };
    while let Some(entry) = cursor.entry() {
        if let Some((kvbi, builder)) = &mut blocks {
            builder.push(entry.block, cursor.page().unwrap_or(0)).map_err(|e| kvbi.error(e))?;
        }
        let is_new = last.as_deref() != Some(entry.key);
        if is_new {
            let hash = FilterHash::of(entry.key);
            if !kvei.view().may_contain(hash).map_err(|e| kvei.error(e))? {
                return Err(kvei.error(inconsistent(Part::Shard, kvei.view().page_range(hash).start)));
            }
            last = Some(entry.key.to_vec());
        }
        let span = bt.view().locate(entry.key, entry.block).map_err(|e| bt.error(e))?;
        let found = file.view().get_in(span, entry.key, entry.block, &mut page).map_err(|e| file.error(e))?;
        if found.map(|version| version.block) != Some(entry.block) {
            let leaf = bt.view().leaf_range(bt.view().leaf(entry.key, entry.block));
            return Err(bt.error(inconsistent(Part::Leaf, leaf.start)));
        }
        seen += 1;
        if seen.is_multiple_of(PROGRESS_EVERY) {
            let left = u128::from(begun) * u128::from(entries.saturating_sub(seen)) / u128::from(entries);
            progress.advance(progress.left.saturating_sub(left as u64));
        }
        cursor.advance().map_err(|e| file.error(e))?;
    }
    let Some((kvbi, builder)) = blocks else { return Ok(()) };
    let (record, parent, pages) =
        (&segment.record, segment.record.kv.summary.content, file.view().summary().pages);
    let name = directory.config.name(record.domain);
    // It is a function of the entries, so it is compared as a whole.
    let (built, _) =
        builder.finish(io::sink(), name, record.steps, parent, pages).map_err(|e| kvbi.error(e))?;
    if built.file == kvbi.view().summary().file {
        return Ok(());
    }
    Err(kvbi.error(inconsistent(Part::BlockLeaf, PAGE_SIZE as u64)))
}

fn inconsistent(part: Part, offset: u64) -> icecore_segments::Error {
    Corruption { part, offset, reason: Reason::Order }.into()
}
