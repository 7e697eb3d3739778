//! Prune: the versions that no block at or above a height can see are forgotten; the state at that height stays whole.
//!
//! Of the versions of a key at or below the height only the newest can still be seen, and not even that when it is a
//! deletion by an older block. The segments that reach below the height are rewritten one after another, each in a streaming
//! pass over it and those after it.

use std::sync::Arc;

use icecore_segments::step::BlockNumber;
use icecore_segments::{Entry, Value};

use crate::domain::{DomainId, root_height};
use crate::error::Error;
use crate::maintain::file_work::FileWork;
use crate::maintain::new_segment::options_of_new;
use crate::manifest::SegmentRecord;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::segment::live::{LiveSegment, entries_of};
use crate::segment::rewrite::{for_each_entry, rewrite};
use crate::write::version_edit::VersionEdit;
use crate::write::writer::Writer;

/// Forgets what only blocks below `before` could see. The newest block at or below `before` becomes the lowest that is
/// answered, the *floor*.
///
/// The first manifest moves the floor and drops, without writing any, the segments that nothing needs. Then one domain
/// after the other is rewritten, the smallest first, segment by segment with a manifest for each: space is freed as the work
/// goes, what was freed stays freed when it stops, and the room it needs is that of the largest segment. On a full disk it
/// begins with the reserve.
///
/// # Cost
/// Each segment is read together with the newer ones that reach below the floor.
///
/// # Errors
/// [`Error::OutOfRange`] for a height above the head or below the range.
pub(crate) fn prune(
    writer: &Writer,
    before: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let work = FileWork::begin(writer);
    let _reserve = writer.shared.directory.draw_on_reserve()?;
    check_readable(writer, before)?;
    let Some(kept) = move_floor(writer, before)? else { return Ok(()) };
    smallest_first(writer, kept)
        .into_iter()
        .try_for_each(|domain| prune_domain(writer, &work, domain, kept, listener))
}

/// Opens every segment that reaches below a height: what cannot be opened cannot be pruned, which is better known before history is
/// given up.
fn check_readable(writer: &Writer, before: BlockNumber) -> Result<(), Error> {
    let version = writer.read_state();
    let mut segments = version.segments.iter().flatten().filter(|segment| segment.blocks.0 <= before);
    segments.try_for_each(|segment| segment.kv.check())
}

/// Makes the newest block at or below `before` the lowest that is answered, and drops the segments of roots below it.
/// Returns the block below which versions may go. Holds no version when it returns, so the files are gone.
fn move_floor(writer: &Writer, before: BlockNumber) -> Result<Option<BlockNumber>, Error> {
    let version = writer.read_state();
    version.check(before)?;
    // Between two blocks the state is that of the lower one, whose root must stay.
    let (floor, _) = version.newest_root(before)?;
    let kept = version.floor_kept(&writer.shared.directory.config, floor)?;
    drop_below(writer, &version, floor, kept)?;
    Ok(kept)
}

/// The domains by the bytes that pruning them reads.
fn smallest_first(writer: &Writer, floor: BlockNumber) -> Vec<DomainId> {
    let version = writer.read_state();
    let mut domains: Vec<_> = (0..version.segments.len()).map(|index| DomainId(index as u16)).collect();
    domains.sort_by_key(|domain| {
        let reaching = reaching(&version, *domain, floor);
        reaching.iter().map(|segment| segment.record.kv.summary.len).sum::<u64>()
    });
    domains
}

fn drop_below(
    writer: &Writer,
    version: &ReadState,
    floor: BlockNumber,
    kept: Option<BlockNumber>,
) -> Result<(), Error> {
    let mut edit = VersionEdit::default();
    let is_below = |segment: &&Arc<LiveSegment>| kept.is_some_and(|kept| segment.blocks.1 < kept);
    edit.removed = version.domain(DomainId::ROOTS).iter().filter(is_below).cloned().collect();
    let mut guard = writer.lock();
    // With the new manifest the roots below the floor are gone, so the block there must be durable, and readers must
    // know that it is.
    guard.sync_log_marker()?;
    guard.publish(edit, |manifest, next| {
        manifest.pruned_before = manifest.pruned_before.max(floor);
        next.first = next.first.max(Some(floor));
        next.is_pruned = true;
    })
}

fn prune_domain(
    writer: &Writer,
    work: &FileWork<'_>,
    domain: DomainId,
    floor: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let mut reaching = reaching(&writer.read_state(), domain, floor);
    let _long = work.begin_long();
    // The oldest first: a deletion may go when no older version is left that it hides.
    while !reaching.is_empty() {
        prune_segment(writer, work, &reaching, floor, listener)?;
        // Its files go with it.
        reaching.remove(0);
    }
    Ok(())
}

/// Rewrites the first of the segments that reach below the floor without what the later ones hide; drops it where nothing
/// is left of it, and leaves it alone where nothing would go.
fn prune_segment(
    writer: &Writer,
    work: &FileWork<'_>,
    reaching: &[Arc<LiveSegment>],
    floor: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let (directory, segment) = (&writer.shared.directory, &reaching[0]);
    let inputs = || reaching.iter().map(|segment| &**segment);
    let mut visible = Visible::new(segment.record.domain, floor);
    let mut is_shrunk = false;
    for_each_entry(directory, inputs(), |entry| {
        is_shrunk = !visible.keeps(entry) && segment.has(entry);
        Ok(!is_shrunk)
    })?;
    if !is_shrunk {
        return Ok(());
    }
    let SegmentRecord { domain, steps, .. } = segment.record;
    let name = segment.record.stem(&directory.config);
    listener.begin(&format!("prune {name}"), Some(entries_of(reaching)?));
    let options = options_of_new(writer, domain, steps, segment.summary()?.entries)?;
    let mut visible = Visible::new(domain, floor);
    let keep = |entry: &Entry<'_>| visible.keeps(entry) && segment.has(entry);
    let record = rewrite(directory, domain, inputs(), steps, options, work.on_progress(listener), keep)?;
    listener.end();
    let added = record.map(|record| LiveSegment::open_new(directory, record)).transpose()?;
    let added = added.into_iter().map(Arc::new).collect();
    let edit = VersionEdit { removed: vec![Arc::clone(segment)], added, log: None };
    writer.lock().publish(edit, |_, _| {})
}

/// The segments that have blocks at or below the floor.
pub(crate) fn reaching(version: &ReadState, domain: DomainId, floor: BlockNumber) -> Vec<Arc<LiveSegment>> {
    version.domain(domain).iter().filter(|segment| segment.blocks.0 <= floor).cloned().collect()
}

/// Decides, entry by entry in order, what blocks at or above the floor can see.
pub(crate) struct Visible {
    domain: DomainId,
    floor: BlockNumber,
    /// The key whose newest version at or below the floor went by.
    settled: Option<Vec<u8>>,
}

impl Visible {
    pub(crate) fn new(domain: DomainId, floor: BlockNumber) -> Self {
        Self { domain, floor, settled: None }
    }

    pub(crate) fn keeps(&mut self, entry: &Entry<'_>) -> bool {
        if self.domain == DomainId::ROOTS {
            return root_height(entry.key).is_none_or(|height| height >= self.floor);
        }
        if entry.block > self.floor {
            return true;
        }
        if self.settled.as_deref() == Some(entry.key) {
            return false;
        }
        let settled = self.settled.get_or_insert_default();
        settled.clear();
        settled.extend_from_slice(entry.key);
        entry.block == self.floor || !matches!(entry.value, Value::Deletion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_floor_or_a_later_block_sees_stays() {
        let mut visible = Visible::new(DomainId(1), 10);
        let mut keeps = |key: &[u8], block, value| visible.keeps(&Entry { key, block, value });
        let value = Value::Inline(b"v");
        assert!(keeps(b"a", 12, value));
        assert!(keeps(b"a", 10, value), "the state at the floor");
        assert!(!keeps(b"a", 9, value));
        assert!(keeps(b"b", 11, Value::Deletion));
        assert!(!keeps(b"b", 9, Value::Deletion), "absent is deleted when nothing older is left");
        assert!(!keeps(b"b", 3, value));
        assert!(keeps(b"c", 1, value));
        assert!(keeps(b"d", 10, Value::Deletion), "the floor is a block like those above it");
    }
}
