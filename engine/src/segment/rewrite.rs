//! From segments to a segment: the one streaming pass of merge, prune and unwinding.
//!
//! Inputs are read through mappings of their own, in order; nothing but the builders' constants is held in memory.

use icecore_segments::step::StepRange;
use icecore_segments::{Entry, EntrySource, MergeCursor};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::SegmentRecord;
use crate::segment::live::KvFile;
use crate::segment::live::LiveSegment;
use crate::segment::writer::{RELEASE_EVERY, SegmentOptions, SegmentOutput};
use crate::storage::directory::Directory;

/// Entries between two calls of `on_progress`: some milliseconds.
const PROGRESS_EVERY: u64 = 1 << 14;

/// Writes the entries of `inputs` that `keep` says to keep as one segment over `steps`; `None` when none is kept.
///
/// `keep` sees every entry in order, so it may remember what it saw of the same key. `on_progress` is called every few thousand
/// more entries, and says whether to go on; otherwise what was written is removed and there is no segment.
pub(crate) fn rewrite<'i>(
    directory: &Directory,
    domain: DomainId,
    inputs: impl IntoIterator<Item = &'i LiveSegment>,
    steps: StepRange,
    options: SegmentOptions,
    mut on_progress: impl FnMut(u64) -> Result<bool, Error>,
    mut keep: impl FnMut(&Entry<'_>) -> bool,
) -> Result<Option<SegmentRecord>, Error> {
    let mut opened = Vec::new();
    let mut keys_max = 0;
    for input in inputs {
        keys_max += input.summary()?.keys;
        opened.push(input);
    }
    let mut output = SegmentOutput::create(directory, domain, steps, options, keys_max)?;
    let (mut seen, mut may_continue) = (0, true);
    for_each_entry(directory, opened, |entry| {
        if keep(entry) {
            output.push(*entry)?;
        }
        seen += 1;
        if seen % PROGRESS_EVERY == 0 {
            may_continue = on_progress(PROGRESS_EVERY)?;
        }
        Ok(may_continue)
    })?;
    if !may_continue || !on_progress(seen % PROGRESS_EVERY)? {
        return Ok(None);
    }
    output.finish()
}

/// Passes the entries of several segments in the order of one, until `visit` says to stop.
pub(crate) fn for_each_entry<'i>(
    directory: &Directory,
    inputs: impl IntoIterator<Item = &'i LiveSegment>,
    mut visit: impl FnMut(&Entry<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    let opened: Vec<_> = inputs
        .into_iter()
        .map(|input| KvFile::open_for_pass(directory, &input.record))
        .collect::<Result<_, _>>()?;
    // A merged entry does not say which input it came from; the first names the set.
    let error = |e| opened[0].error(e);
    let mut cursors = Vec::with_capacity(opened.len());
    for file in &opened {
        let mut cursor = file.view().cursor();
        cursor.seek_first().map_err(|e| file.error(e))?;
        cursors.push(cursor);
    }
    let mut merged = MergeCursor::new(cursors).map_err(error)?;
    let mut seen = 0;
    while let Some(entry) = merged.entry() {
        if !visit(&entry)? {
            return Ok(());
        }
        seen += 1;
        if seen % RELEASE_EVERY == 0 {
            opened.iter().for_each(|file| file.view().data().advise_dont_need());
        }
        merged.advance().map_err(error)?;
    }
    Ok(())
}
