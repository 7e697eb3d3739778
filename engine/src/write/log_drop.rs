//! Giving up a damaged log: the blocks before the damage are kept, what follows is set aside.
//!
//! The blocks that are kept and are in no segment go to a fresh log file, and one manifest makes it the only one. The files
//! that are given up have a second name before that, so a crash at any moment leaves the log as it was or the whole change.
//!
//! An unwinding may be among the records that are lost. Then the blocks before the damage may belong to a branch that was
//! given up before the newest segments were written. So the first block that is kept must give its recorded root on the
//! state in segments; else the log is given up as a whole. An archive without a commitment has no roots that would tell, so there
//! the log is kept only where nothing was emitted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use icecore_segments::step::{BlockNumber, Step};

use crate::error::Error;
use crate::manifest::Manifest;
use crate::merkle::state_root::state_root;
use crate::read::read_state::ReadState;
use crate::segment::live::LiveSegment;
use crate::storage::copy_file;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::wal::log::create_file;
use crate::wal::{
    BlockRecord, ChangeRef, Heights, Record, RecordRef, Tail, WalReader, WalWriter, digest, whole_blocks,
};

/// What is dropped of a damaged log by an opening with [`LogDamage::DropAfter`](crate::LogDamage::DropAfter):
/// [`Archive::log_drop`](crate::Archive::log_drop) reports it, [`Reader::plan_log_drop`](crate::Reader::plan_log_drop) beforehand.
#[derive(Debug)]
#[non_exhaustive]
pub struct LogDrop {
    /// The damage, with file and place.
    pub damage: Error,
    /// The block that the archive continues from; `None` where none is left.
    pub head: Option<BlockNumber>,
    /// The lowest and the highest height above [`LogDrop::head`] found in what is dropped. There may have been more: a damaged
    /// record does not tell its height.
    pub dropped: Option<(BlockNumber, BlockNumber)>,
    /// The paths under which the dropped files are kept.
    pub files: Vec<PathBuf>,
}

/// What opening did beyond reading.
#[derive(Default)]
pub(crate) struct Recovered {
    /// The accessors that were built again, by file name.
    pub(crate) repairs: Vec<String>,
    pub(crate) log_drop: Option<LogDrop>,
}

/// A log up to its first damage.
#[derive(Default)]
struct SoundLog {
    /// The blocks that are in no segment, those that were unwound left out.
    blocks: Vec<BlockRecord>,
    /// The file with the damage, and what it is.
    damage: Option<(u64, Error)>,
}

/// What is to be done.
struct Plan {
    report: LogDrop,
    blocks: Vec<BlockRecord>,
    /// The log files that are given up.
    files: Vec<u64>,
}

/// Gives up the log of an archive from its first damage on, if it has any.
///
/// # Errors
/// The damage itself where nothing that can be read would be left: the blocks that pruning kept were in the log.
pub(crate) fn drop_damaged(directory: &Directory, manifest: &mut Manifest) -> Result<Option<LogDrop>, Error> {
    let Some(plan) = plan(directory, manifest)? else { return Ok(None) };
    let _reserve = directory.draw_on_reserve()?;
    let (storage, path) = (&*directory.storage, &*directory.path);
    for (sequence, aside) in plan.files.iter().zip(&plan.report.files) {
        // An attempt that was interrupted may have left it.
        storage.remove(aside)?;
        let source = layout::wal_file(path, *sequence);
        if !storage.link(&source, aside)? {
            copy_file(storage, &source, aside)?;
        }
    }
    let mut next = manifest.clone();
    next.wal_last += 1;
    next.wal_first = next.wal_last;
    storage.remove(&layout::wal_file(path, next.wal_last))?;
    let log = write_log(directory, next.wal_last, &plan.blocks)?;
    next.wal_reached = log.reached();
    if plan.report.head.is_none() {
        (next.emitted_to, next.first_block, next.pruned_before) = (Step(0), None, 0);
    }
    storage.sync_dir(&layout::wal_dir(path))?;
    *manifest = next.store_next(storage, path)?;
    Ok(Some(plan.report))
}

/// Writes blocks to a log file of their own, durably.
fn write_log(directory: &Directory, sequence: u64, blocks: &[BlockRecord]) -> Result<WalWriter, Error> {
    let mut log = create_file(directory, sequence)?;
    for BlockRecord { height, root, changes } in blocks {
        let changes: Vec<_> = changes.iter().map(ChangeRef::from).collect();
        log.append(&RecordRef::Block { height: *height, root, changes: &changes })?;
    }
    log.sync()?;
    log.sync_marker()?;
    Ok(log)
}

fn plan(directory: &Directory, manifest: &Manifest) -> Result<Option<Plan>, Error> {
    let SoundLog { mut blocks, damage } = SoundLog::read(directory, manifest)?;
    let Some((damaged, damage)) = damage else { return Ok(None) };
    let (mut from, mut found) = (damaged, BTreeSet::new());
    if !continues_segments(directory, manifest, blocks.first())? {
        found.extend(blocks.drain(..).map(|block| block.height));
        from = manifest.wal_first;
    }
    let head = blocks.last().map(|block| block.height).or(manifest.emitted_head);
    let is_readable = head.map_or(manifest.segments.is_empty(), |head| head >= manifest.pruned_before);
    if !is_readable {
        return Err(damage);
    }
    let files = files_from(directory, manifest, from)?;
    for sequence in files.iter().filter(|sequence| **sequence >= damaged) {
        let offset = match &damage {
            Error::Damaged { offset, .. } if *sequence == damaged => *offset as usize,
            _ => 0,
        };
        let bytes = directory.storage.read(&layout::wal_file(&directory.path, *sequence))?;
        found.extend(whole_blocks(&bytes.unwrap_or_default(), directory.config.log_file(*sequence), offset));
    }
    let mut above = found.into_iter().filter(|height| head.is_none_or(|head| *height > head));
    let dropped = above.next().map(|lowest| (lowest, above.next_back().unwrap_or(lowest)));
    let aside = |sequence: &u64| layout::wal_file_set_aside(&directory.path, *sequence);
    let report = LogDrop { damage, head, dropped, files: files.iter().map(aside).collect() };
    Ok(Some(Plan { report, blocks, files }))
}

/// The log files that are there, from this number on. A manifest that is wrong may name any number of others.
fn files_from(directory: &Directory, manifest: &Manifest, from: u64) -> Result<Vec<u64>, Error> {
    let names = directory.storage.list(&layout::wal_dir(&directory.path))?.unwrap_or_default();
    let there = names.iter().filter_map(|name| layout::parse_wal_name(name));
    Ok(there.filter(|sequence| (from..=manifest.wal_last).contains(sequence)).collect())
}

/// Whether this block, the first that is in no segment, gives its root on the state in segments.
///
/// # Cost
/// Reads the newest version of every key.
fn continues_segments(
    directory: &Directory,
    manifest: &Manifest,
    block: Option<&BlockRecord>,
) -> Result<bool, Error> {
    let Some(block) = block else { return Ok(true) };
    let hold = |record| Arc::new(LiveSegment::hold(directory, record, &mut |_| {}));
    let mut version =
        ReadState::of_segments(&directory.config, manifest, manifest.segments.iter().cloned().map(hold));
    let changes: Vec<_> = block.changes.iter().map(ChangeRef::from).collect();
    version.add_block(&directory.config, block.height, &block.root, digest(&changes), &changes);
    let root = state_root(&version, &directory.config, block.height, &())?;
    Ok(root.map_or(manifest.segments.is_empty(), |root| root.0 == block.root))
}

impl SoundLog {
    fn read(directory: &Directory, manifest: &Manifest) -> Result<Self, Error> {
        let (mut log, mut heights) = (Self::default(), manifest.heights());
        for sequence in manifest.wal_first..=manifest.wal_last {
            match log.take_file(directory, manifest, &mut heights, sequence) {
                Ok(()) => {}
                Err(damage @ (Error::Damaged { .. } | Error::Missing { .. })) => {
                    log.damage = Some((sequence, damage));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(log)
    }

    /// Takes the records of a file before its first damage, which is the error.
    fn take_file(
        &mut self,
        directory: &Directory,
        manifest: &Manifest,
        heights: &mut Heights,
        sequence: u64,
    ) -> Result<(), Error> {
        let path = layout::wal_file(&directory.path, sequence);
        let bytes = directory.storage.read(&path)?.ok_or_else(|| Error::Missing { path: path.clone() })?;
        let tail = if sequence == manifest.wal_last { Tail::Open } else { Tail::Sealed };
        let (reader, damage) =
            WalReader::open_before_damage(&path, &bytes, directory.config.log_file(sequence), tail)?;
        for record in reader.records(&directory.config) {
            let (offset, record) = record?;
            let follows = heights.follow(&record);
            follows.map_err(|reason| Error::Damaged { path: path.clone(), offset, reason })?;
            match record {
                Record::Unwind { to } => self.blocks.retain(|block| block.height <= to),
                Record::Block(block) => {
                    if directory.config.step_len.step_of(block.height) >= manifest.emitted_to {
                        self.blocks.push(block);
                    }
                }
            }
        }
        damage.map_or(Ok(()), Err)?;
        match tail {
            Tail::Open => manifest.check_log_end(&directory.path, reader.position().records_end),
            Tail::Sealed => Ok(()),
        }
    }
}

/// What [`drop_damaged`] would give up now.
pub(crate) fn plan_log_drop(directory: &Directory) -> Result<Option<LogDrop>, Error> {
    let load = || Manifest::load(&*directory.storage, &directory.path);
    loop {
        let manifest = load()?;
        manifest.check_whole(&directory.path)?;
        let planned = plan(directory, &manifest);
        // Of a log that a writer trims meanwhile, files are missing that the next manifest does not name.
        if matches!(planned, Ok(None)) || load()?.generation == manifest.generation {
            return Ok(planned?.map(|plan| plan.report));
        }
    }
}
