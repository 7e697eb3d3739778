//! Unwinding: the blocks above a height are forgotten, as a chain reorganisation needs.
//!
//! Blocks that are still in memory go by one record in the log. Deeper, the step that holds the height goes back into memory and
//! into a fresh log file, segments before it stay or are cut to the steps before it, and one manifest makes it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use icecore_segments::checksum::Checksum;
use icecore_segments::step::{BlockNumber, Step, StepRange};
use icecore_segments::{Entry, EntrySource};

use crate::domain::{DomainId, RootRow, root_height};
use crate::error::Error;
use crate::maintain::file_work::FileWork;
use crate::maintain::new_segment::options_of_new;
use crate::merkle::check_state::check_rows;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::segment::live::KvFile;
use crate::segment::live::LiveSegment;
use crate::segment::rewrite::rewrite;
use crate::wal::log::NextFile;
use crate::wal::{ChangeRef, RecordRef, digest};
use crate::write::version_edit::VersionEdit;
use crate::write::writer::{Writer, WriterGuard};

/// The blocks of one step, taken out of segments: by height the root and the changes.
type Blocks = BTreeMap<BlockNumber, TakenBlock>;

struct TakenBlock {
    root: [u8; 32],
    /// What was recorded of its changes.
    recorded: Option<Checksum>,
    changes: Vec<(DomainId, Vec<u8>, Option<Vec<u8>>)>,
}

/// Forgets the blocks above `to`; a height between two blocks stands for the lower one. What becomes the head is compared with what was
/// recorded of it first: with its root where the tree or rows are at hand, and what goes back into the log with its digests.
///
/// # Errors
/// [`Error::RootMismatch`], [`Error::DigestMismatch`], [`Error::NodeDamaged`] where that differs: nothing has changed then.
/// [`Error::OutOfRange`] for a height that cannot be read: what is below it is not there to go back to. [`Error::NoRoom`] on a
/// disk that is full although the reserve was given up; nothing has changed then.
pub(crate) fn unwind(writer: &Writer, to: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Error> {
    let work = FileWork::begin(writer);
    // Let go of after `version`, which has the files that go.
    let _reserve;
    writer.lock().check_poison()?;
    let version = writer.read_state();
    version.check(to)?;
    // The next block may take any height above the one that remains, so that one decides which steps stay emitted.
    let (to, _) = version.newest_root(to)?;
    let emitted = writer.shared.directory.config.step_len.first_block(writer.lock().manifest().emitted_to);
    if to.saturating_add(1) >= emitted {
        _reserve = writer.shared.directory.draw_on_reserve_for_record("unwind")?;
        unwind_memory(writer, to)?;
    } else {
        _reserve = writer.shared.directory.draw_on_reserve()?;
        unwind_segments(writer, &work, &version, to, listener)?;
    }
    Ok(())
}

/// Takes the last step in segments back into memory where the block that let it go is gone with a damaged log: else the next
/// block might come into a step that is in segments.
pub(crate) fn take_back_incomplete_steps(writer: &Writer) -> Result<(), Error> {
    let emitted_to = writer.lock().manifest().emitted_to;
    let emitted = writer.shared.directory.config.step_len.first_block(emitted_to);
    match writer.read_state().head {
        Some(head) if head.saturating_add(1) < emitted => unwind(writer, head, &()),
        _ => Ok(()),
    }
}

fn unwind_memory(writer: &Writer, to: BlockNumber) -> Result<(), Error> {
    let mut guard = writer.lock_unpoisoned()?;
    let version = writer.read_state();
    if version.head == Some(to) {
        return Ok(());
    }
    // Before the record: what cannot be unwound to stays as it is.
    let has_tree = guard.rewind_tree(to);
    if has_tree {
        let found = guard.tree()?.root();
        version.check_root(to, found).inspect_err(|_| guard.drop_tree())?;
    }
    guard.log_unwind(to)?;
    writer.unwinds.fetch_add(1, Ordering::Relaxed);
    let mut next = (*version).clone();
    // Without the tree the tables have no nodes: with it they are made again.
    next.unwind_tables(to, has_tree);
    guard.install(next);
    Ok(())
}

/// Blocks are committed while segments are cut, and forgotten with the others when the cut ones are published.
fn unwind_segments(
    writer: &Writer,
    work: &FileWork<'_>,
    version: &ReadState,
    to: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let config = Arc::clone(&writer.shared.directory.config);
    let boundary = config.step_len.step_of(to);
    let blocks = take_blocks(writer, version, boundary, to)?;
    check_blocks(version, &blocks)?;
    check_rows(version, &config, to)?;
    let emitted_head = head_before(writer, version, boundary)?;
    let mut edit = VersionEdit::default();
    let long = work.begin_long();
    for segment in version.all_segments().filter(|segment| segment.record.steps.to() > boundary) {
        edit.added.extend(cut(writer, work, segment, boundary, listener)?.map(Arc::new));
    }
    drop(long);
    let mut guard = writer.lock();
    let log = relog(writer, &guard, &blocks)?;
    let first_file = log.sequence();
    edit.log = Some(log);
    let gone = |segment: &&Arc<LiveSegment>| segment.record.steps.to() > boundary;
    edit.removed = writer.read_state().all_segments().filter(gone).cloned().collect();
    guard.publish(edit, |manifest, next| {
        manifest.emitted_to = boundary;
        manifest.emitted_head = emitted_head;
        manifest.wal_first = first_file;
        next.tables.clear();
        next.emitted_head = emitted_head;
        next.head = emitted_head;
        for (height, block) in &blocks {
            let changes = block.as_refs();
            next.add_block(&config, *height, &block.root, digest(&changes), &changes);
        }
    })?;
    writer.unwinds.fetch_add(1, Ordering::Relaxed);
    guard.drop_tree();
    Ok(())
}

/// The blocks of step `boundary` up to `to`, from whatever segments have them.
fn take_blocks(
    writer: &Writer,
    version: &ReadState,
    boundary: Step,
    to: BlockNumber,
) -> Result<Blocks, Error> {
    let from = writer.shared.directory.config.step_len.first_block(boundary);
    let mut blocks = Blocks::new();
    // Nodes are not logged: they are made again with the tree.
    let nodes = writer.shared.directory.config.nodes();
    // The domain of roots comes first: it says which blocks there are.
    let segments = version.all_segments().filter(|segment| Some(segment.record.domain) != nodes);
    for segment in segments.filter(|segment| segment.record.steps.contains(boundary)) {
        let file = KvFile::open_for_pass(&writer.shared.directory, &segment.record)?;
        let mut cursor = file.view().cursor();
        cursor.seek_first().map_err(|e| file.error(e))?;
        while let Some(entry) = EntrySource::entry(&cursor) {
            if from <= entry.block && entry.block <= to {
                let value = entry.value.load().map_err(|e| file.error(e))?.map(std::borrow::Cow::into_owned);
                take(&mut blocks, segment.record.domain, &entry, value)?;
            }
            cursor.advance().map_err(|e| file.error(e))?;
        }
    }
    Ok(blocks)
}

/// Compares the blocks that go back into the log with what was recorded of them: there they would have a new digest, and nobody could tell
/// any more that they are others.
fn check_blocks(version: &ReadState, blocks: &Blocks) -> Result<(), Error> {
    for (height, block) in blocks {
        // What the lowest block of a pruned archive changed is not known any more.
        let is_floor = version.is_pruned && version.first == Some(*height);
        if !is_floor && block.recorded.is_some_and(|recorded| recorded != digest(&block.as_refs())) {
            return Err(Error::DigestMismatch { block: *height });
        }
    }
    Ok(())
}

/// What remains of a segment when the steps from `boundary` on go.
pub(crate) fn cut(
    writer: &Writer,
    work: &FileWork<'_>,
    segment: &LiveSegment,
    boundary: Step,
    listener: &dyn ProgressListener,
) -> Result<Option<LiveSegment>, Error> {
    let directory = &writer.shared.directory;
    let Some(steps) = StepRange::new(segment.record.steps.from(), boundary) else { return Ok(None) };
    let domain = segment.record.domain;
    let end = directory.config.step_len.first_block(boundary);
    let summary = segment.summary()?;
    let options = options_of_new(writer, domain, steps, summary.entries)?;
    listener.begin(&format!("cut {}", segment.record.stem(&directory.config)), Some(summary.entries));
    let on_progress = work.on_progress(listener);
    let record =
        rewrite(directory, domain, [segment], steps, options, on_progress, |entry| entry.block < end)?;
    listener.end();
    record.map(|record| LiveSegment::open_new(directory, record)).transpose()
}

/// Writes the blocks that go back into memory to a log file of their own, durably.
fn relog(writer: &Writer, guard: &WriterGuard<'_>, blocks: &Blocks) -> Result<NextFile, Error> {
    let mut file = guard.next_log_file()?;
    for (height, block) in blocks {
        let step = writer.shared.directory.config.step_len.step_of(*height);
        let changes = block.as_refs();
        file.append(&RecordRef::Block { height: *height, root: &block.root, changes: &changes }, step)?;
    }
    file.sync_marker()?;
    Ok(file)
}

/// The newest block before a step.
fn head_before(writer: &Writer, version: &ReadState, boundary: Step) -> Result<Option<BlockNumber>, Error> {
    let first = writer.shared.directory.config.step_len.first_block(boundary);
    let Some(at) = first.checked_sub(1) else { return Ok(None) };
    let mut newest = None;
    for segment in
        version.domain(DomainId::ROOTS).iter().filter(|segment| segment.record.steps.from() < boundary)
    {
        let kv = segment.kv.get()?;
        let mut cursor = kv.view().cursor();
        cursor.seek_first().map_err(|e| kv.error(e))?;
        while let Some(entry) = cursor.entry() {
            let height =
                root_height(entry.key).filter(|height| *height == entry.block && segment.has(&entry));
            let height = height.ok_or(Error::RootMissing { block: entry.block })?;
            newest = newest.max((height <= at).then_some(height));
            cursor.next().map_err(|e| kv.error(e))?;
        }
    }
    Ok(newest)
}

/// Adds an entry of a segment to the block that wrote it. `domain` ascends from that of roots.
///
/// A version of a block that was pruned is part of the state at the lowest block that was kept, the floor, and goes there,
/// the newest of each key: blocks without a root do not come back.
fn take(
    blocks: &mut Blocks,
    domain: DomainId,
    entry: &Entry<'_>,
    value: Option<Vec<u8>>,
) -> Result<(), Error> {
    if domain == DomainId::ROOTS {
        let row = value.and_then(|row| RootRow::decode(&row));
        let row = row.ok_or(Error::RootMissing { block: entry.block })?;
        blocks
            .insert(entry.block, TakenBlock { root: row.root.0, recorded: row.changes, changes: Vec::new() });
        return Ok(());
    }
    if let Some(block) = blocks.get_mut(&entry.block) {
        block.changes.push((domain, entry.key.to_vec(), value));
        return Ok(());
    }
    let floor = blocks.first_entry().filter(|floor| entry.block < *floor.key());
    let mut floor = floor.ok_or(Error::RootMissing { block: entry.block })?;
    let changes = &mut floor.get_mut().changes;
    let is_known = changes.last().is_some_and(|(last, key, _)| *last == domain && key == entry.key);
    if !is_known && value.is_some() {
        changes.push((domain, entry.key.to_vec(), value));
    }
    Ok(())
}

impl TakenBlock {
    /// Ordered by domain and key, as segments gave them.
    fn as_refs(&self) -> Vec<ChangeRef<'_>> {
        let refs = self.changes.iter().map(|(domain, key, value)| ChangeRef {
            domain: domain.0,
            key,
            value: value.as_deref(),
        });
        refs.collect()
    }
}
