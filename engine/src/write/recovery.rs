//! The whole of opening an archive, top to bottom.
//!
//! 1. the lock (writers);
//! 2. the manifest;
//! 3. the segments that it names;
//! 4. the log, replayed into tables; on request, one that is damaged is given up from the damage on first;
//! 5. what no manifest names is removed, a torn tail is cut, and the reserve is taken (writers).
//!
//! A reader does less, and goes on where it left off: [`follow`](crate::read::follow).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::BuildParallelism;
use icecore_segments::frame::Kind;
use parking_lot::Mutex;
use rayon::prelude::*;

use crate::error::Error;
use crate::manifest::{Manifest, SegmentRecord, had_content};
use crate::open_options::{LogDamage, OpenOptions};
use crate::options::{ArchiveId, Config, DensityRule};
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::segment::block_tap::rebuild_block_index;
use crate::segment::file_view::FileView;
use crate::segment::live::{LiveFile, LiveSegment};
use crate::segment::writer::{rebuild_filter, rebuild_index};
use crate::storage::Storage;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::wal::log::{Log, LogFile, create_file};
use crate::wal::{ChangeRef, Heights, Position, Record, Tail, WalReader, digest};
use crate::write::log_drop::{self, Recovered};
use crate::write::writer::Writer;

/// Makes the directory of a new archive. The manifest comes last: without it there is no archive.
pub(crate) fn create(
    storage: &Arc<dyn Storage>,
    path: &Path,
    config: Config,
    rule: DensityRule,
) -> Result<(), Error> {
    let config = Config { id: ArchiveId::draw(), ..config };
    check_vacant(&**storage, path)?;
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    let mut new = 0;
    while new + 1 < above.len() && storage.len(above[new])?.is_none() {
        new += 1;
    }
    storage.create_dir(path)?;
    let lock = storage.lock(path)?;
    // Somebody else may have created one before this process got the lock.
    check_vacant(&**storage, path)?;
    storage.create_dir(&layout::wal_dir(path))?;
    let manifest = Manifest { rule, ..Manifest::new(config) };
    let directory = Directory::new(storage, path, &manifest.config);
    create_file(&directory, manifest.wal_first)?;
    // Before the manifest: a writer that finds one relies on the names beside and above it, even if this process is killed.
    for dir in path.ancestors().take(new + 2) {
        storage.sync_dir(dir)?;
    }
    manifest.store(&**storage, path)?;
    drop(lock);
    Ok(())
}

fn check_vacant(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    let foreign = |name: &String| name != layout::LOCK && name != layout::MANIFEST_NEW;
    match storage.list(path)? {
        Some(names) if names.iter().any(foreign) || had_content(storage, path)? => {
            Err(Error::Exists { path: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Opens for writing.
pub(crate) fn open_for_writing(
    storage: Arc<dyn Storage>,
    path: &Path,
    options: OpenOptions,
) -> Result<Writer, Error> {
    options.check()?;
    let Some(names) = storage.list(path)? else {
        return Err(Error::NotAnArchive { path: path.to_owned() });
    };
    // What is no archive gets no file of ours, and taking the lock would make one.
    if !names.iter().any(|name| name == layout::MANIFEST) {
        Manifest::load(&*storage, path)?;
    }
    let lock = storage.lock(path)?;
    let mut manifest = Manifest::load(&*storage, path)?;
    manifest.check_whole(path)?;
    // After a kill in the midst of a publication the rename may be visible and not durable. Nothing may be built on it, and
    // nothing removed that the manifest before it names, until it is.
    storage.sync_dir(path)?;
    let directory = Directory::new(&storage, path, &manifest.config);
    let log_drop = match options.log_damage {
        LogDamage::Refuse => None,
        LogDamage::DropAfter => log_drop::drop_damaged(&directory, &mut manifest)?,
    };
    let repairs = Mutex::new(Vec::new());
    let loaded = load(&directory, &manifest, options.file_parallelism(), &repairs)?;
    let mut repairs = repairs.into_inner();
    repairs.sort();
    if !repairs.is_empty() {
        manifest.segments = loaded.version.all_segments().map(|segment| segment.record.clone()).collect();
        storage.sync_dir(path)?;
        manifest = manifest.store_next(&*storage, path)?;
    }
    remove_garbage(&directory, &manifest, &loaded.version)?;
    let log = Log::resume(&directory, loaded.files, loaded.log_end)?;
    directory.fill_reserve()?;
    let (shared, recovered) = (Shared::new(directory, loaded.version), Recovered { repairs, log_drop });
    Ok(Writer::new(shared, options, recovered, manifest, log, lock))
}

/// What the manifest names, opened and replayed.
struct Loaded {
    version: ReadState,
    files: VecDeque<LogFile>,
    /// Where the last log file ends.
    log_end: Position,
}

fn load(
    directory: &Directory,
    manifest: &Manifest,
    parallelism: BuildParallelism,
    repairs: &Mutex<Vec<String>>,
) -> Result<Loaded, Error> {
    let hold =
        |record: &SegmentRecord| hold_repaired(directory, record.clone(), parallelism, repairs).map(Arc::new);
    let records = &manifest.segments;
    let segments: Vec<_> = match parallelism {
        BuildParallelism::Off => records.iter().map(hold).collect::<Result<_, _>>()?,
        // Checking accessors waits for the first and the last page of each.
        BuildParallelism::Rayon => records.par_iter().map(hold).collect::<Result<_, _>>()?,
    };
    let mut version = ReadState::of_segments(&directory.config, manifest, segments);
    let (mut files, mut heights) = (VecDeque::new(), manifest.heights());
    for sequence in manifest.wal_first..manifest.wal_last {
        let tail = Tail::Sealed;
        files.push_back(replay_file(directory, manifest, &mut version, &mut heights, sequence, tail)?.0);
    }
    let (last, log_end) =
        replay_file(directory, manifest, &mut version, &mut heights, manifest.wal_last, Tail::Open)?;
    files.push_back(last);
    manifest.check_log_end(&directory.path, log_end.records_end)?;
    manifest.check_log_is_last(&*directory.storage, &directory.path)?;
    heights.check_emitted(manifest.emitted_head, version.head).map_err(|reason| Error::Damaged {
        path: directory.path.join(layout::MANIFEST),
        offset: 0,
        reason,
    })?;
    version.first = version.first.map(|first| first.max(manifest.pruned_before));
    Ok(Loaded { version, files, log_end })
}

/// Adds the blocks of one log file to the tables of `version`.
fn replay_file(
    directory: &Directory,
    manifest: &Manifest,
    version: &mut ReadState,
    heights: &mut Heights,
    sequence: u64,
    tail: Tail,
) -> Result<(LogFile, Position), Error> {
    let path = layout::wal_file(&directory.path, sequence);
    let bytes = directory.storage.read(&path)?.ok_or_else(|| Error::Missing { path: path.clone() })?;
    let mut file = LogFile::new(sequence);
    let config = &directory.config;
    let reader = WalReader::open(&path, &bytes, config.log_file(sequence), tail)?;
    for record in reader.records(config) {
        let (offset, record) = record?;
        heights.follow(&record).map_err(|reason| Error::Damaged { path: path.clone(), offset, reason })?;
        match record {
            Record::Unwind { to } => version.unwind_tables(to, false),
            Record::Block(block) => {
                let step = config.step_len.step_of(block.height);
                file.add_block(step);
                if step >= manifest.emitted_to {
                    let changes: Vec<_> = block.changes.iter().map(ChangeRef::from).collect();
                    version.add_block(config, block.height, &block.root, digest(&changes), &changes);
                }
            }
        }
    }
    Ok((file, reader.position()))
}

/// Takes hold of a segment for a writer: an accessor that is missing or cannot be opened is built again from its `.kv`.
///
/// Where the `.kv` cannot be used either, the segment stays as it is: what needs it will say so.
fn hold_repaired(
    directory: &Directory,
    record: SegmentRecord,
    parallelism: BuildParallelism,
    repairs: &Mutex<Vec<String>>,
) -> Result<LiveSegment, Error> {
    let segment = LiveSegment::hold(directory, record, &mut |_| {});
    segment.open_if_large();
    let mut record = segment.record.clone();
    let note = |record: &SegmentRecord, kind| repairs.lock().push(record.file_name(&directory.config, kind));
    if needs_rebuild(&segment.bt)? && segment.kv.get().is_ok() {
        note(&record, Kind::PivotIndex);
        record.bt = rebuild_index(directory, &record, record.m, &mut |_| Ok(()))?;
    }
    if needs_rebuild(&segment.kvei)? && segment.kv.get().is_ok() {
        note(&record, Kind::ExistenceFilter);
        let bits = record.filter_bits;
        record.kvei = rebuild_filter(directory, &record, bits, parallelism, &mut |_| Ok(()))?;
    }
    if let Some(kvbi) = &segment.kvbi
        && needs_rebuild(kvbi)?
        && segment.kv.get().is_ok()
    {
        note(&record, Kind::BlockIndex);
        record.kvbi = Some(rebuild_block_index(directory, &record, &mut |_| Ok(()))?);
    }
    if record == segment.record {
        Ok(segment)
    } else {
        Ok(segment.hold_changed(directory, record, &mut |_| {}))
    }
}

/// Whether an accessor is missing or cannot be opened. Looking costs its first and its last page.
fn needs_rebuild<T: FileView>(accessor: &LiveFile<T>) -> Result<bool, Error> {
    match accessor.check() {
        Err(error) if error.is_cured_by_rebuild() => Ok(true),
        checked => checked.map(|()| false),
    }
}

/// Removes files of ours that the manifest does not name: what a crash or a pinned reader of a former process left.
///
/// Files of segments stay as long as a `.kv` that it names is missing or is another one: it may be an older manifest, and they
/// those of the right one.
fn remove_garbage(directory: &Directory, manifest: &Manifest, version: &ReadState) -> Result<(), Error> {
    let is_of_segment =
        |path: &PathBuf| path.extension().is_some_and(|kind| Kind::ALL.iter().any(|k| kind == k.extension()));
    let mut garbage = find_garbage(directory, manifest)?;
    if garbage.iter().any(is_of_segment)
        && !version.all_segments().all(|segment| segment.kv.check().is_ok())
        && !left_out!(GarbageGuard)
    {
        garbage.retain(|path| !is_of_segment(path));
    }
    garbage.iter().try_for_each(|path| directory.storage.remove(path))
}

/// The files of ours that the manifest does not name.
pub(crate) fn find_garbage(directory: &Directory, manifest: &Manifest) -> Result<Vec<PathBuf>, Error> {
    let names = manifest.file_names();
    let mut garbage = Vec::new();
    for name in directory.storage.list(&directory.path)?.unwrap_or_default() {
        if layout::is_ours(&name) && !names.contains(&name) {
            garbage.push(directory.path.join(name));
        }
    }
    let wal = layout::wal_dir(&directory.path);
    for name in directory.storage.list(&wal)?.unwrap_or_default() {
        let live = manifest.wal_first..=manifest.wal_last;
        if layout::parse_wal_name(&name).is_some_and(|sequence| !live.contains(&sequence)) {
            garbage.push(wal.join(name));
        }
    }
    Ok(garbage)
}
