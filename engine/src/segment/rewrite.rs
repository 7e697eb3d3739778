//! From segments to a segment: the one streaming pass of merge, prune and unwinding.
//!
//! Inputs are read through mappings of their own, in order; nothing but the builders' constants and a few batches of entries
//! is held in memory.
//!
//! ```text
//! inputs --> decode, merge --> batches --> encode, index, hash --> chunks --> .kv
//!            a thread of its own           the caller's                       a thread of its own
//! ```

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use icecore_index::BuildParallelism;
use icecore_segments::step::StepRange;
use icecore_segments::{Cursor, Entry, EntryBatch, EntrySource, MergeCursor, Segment};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::SegmentRecord;
use crate::segment::live::{KvFile, LiveSegment, OpenFile};
use crate::segment::new_file::RELEASE_EVERY;
use crate::segment::writer::{ONE_THREAD_MAX, SegmentOptions, SegmentOutput};
use crate::storage::Mapping;
use crate::storage::directory::Directory;

/// Entries between two calls of `on_progress`: some milliseconds.
const PROGRESS_EVERY: u64 = 1 << 14;

/// Batches of entries, of some 70 KB each, that may be read and not yet written.
const BATCHES_AHEAD: usize = 4;

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
    let inputs = open(directory, inputs)?;
    let summaries = || inputs.iter().map(|input| input.view().summary());
    let keys_max = summaries().map(|summary| summary.keys).sum();
    let is_long = summaries().map(|summary| summary.entries).sum::<u64>() > ONE_THREAD_MAX;
    let mut output = SegmentOutput::create(directory, domain, steps, options, keys_max)?;
    let (mut seen, mut may_continue) = (0, true);
    let visit = |entry: &Entry<'_>| {
        if keep(entry) {
            output.push(*entry)?;
        }
        seen += 1;
        if seen % PROGRESS_EVERY == 0 {
            may_continue = on_progress(PROGRESS_EVERY)?;
        }
        Ok(may_continue)
    };
    match options.parallelism {
        BuildParallelism::Rayon if is_long => pass_on_two_threads(&inputs, visit)?,
        BuildParallelism::Rayon | BuildParallelism::Off => pass(&inputs, visit)?,
    }
    if !may_continue || !on_progress(seen % PROGRESS_EVERY)? {
        return Ok(None);
    }
    output.finish()
}

/// Passes the entries of several segments in the order of one, until `visit` says to stop.
pub(crate) fn for_each_entry<'i>(
    directory: &Directory,
    inputs: impl IntoIterator<Item = &'i LiveSegment>,
    visit: impl FnMut(&Entry<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    pass(&open(directory, inputs)?, visit)
}

type Input = OpenFile<Segment<Mapping>>;

fn open<'i>(
    directory: &Directory,
    inputs: impl IntoIterator<Item = &'i LiveSegment>,
) -> Result<Vec<Input>, Error> {
    inputs.into_iter().map(|input| KvFile::open_for_pass(directory, &input.record)).collect()
}

/// The inputs as one, on the first entry of all.
fn merged(inputs: &[Input]) -> Result<MergeCursor<Cursor<'_, Mapping>>, Error> {
    let mut cursors = Vec::with_capacity(inputs.len());
    for file in inputs {
        let mut cursor = file.view().cursor();
        cursor.seek_first().map_err(|e| file.error(e))?;
        cursors.push(cursor);
    }
    // Two of them have the same entry; the first names the set.
    MergeCursor::new(cursors).map_err(|e| inputs[0].error(e))
}

/// The error of the input that was read when it arose.
fn error_of(
    inputs: &[Input],
    merged: &MergeCursor<Cursor<'_, Mapping>>,
    error: icecore_segments::Error,
) -> Error {
    inputs[merged.moved().unwrap_or(0)].error(error)
}

/// Keeps a pass from filling memory with the pages that it read.
#[derive(Default)]
struct Reclaim {
    seen: u64,
}

impl Reclaim {
    fn advance(&mut self, inputs: &[Input], entries: u64) {
        self.seen += entries;
        if self.seen >= RELEASE_EVERY {
            self.seen = 0;
            inputs.iter().for_each(|file| file.view().data().advise_dont_need());
        }
    }
}

fn pass(inputs: &[Input], mut visit: impl FnMut(&Entry<'_>) -> Result<bool, Error>) -> Result<(), Error> {
    let mut merged = merged(inputs)?;
    let mut reclaim = Reclaim::default();
    while let Some(entry) = merged.entry() {
        if !visit(&entry)? {
            return Ok(());
        }
        reclaim.advance(inputs, 1);
        merged.advance().map_err(|e| error_of(inputs, &merged, e))?;
    }
    Ok(())
}

/// The same on two threads: one reads and merges, the caller's visits. On the caller's alone where there is no second one to be had.
fn pass_on_two_threads(
    inputs: &[Input],
    mut visit: impl FnMut(&Entry<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (full, batches) = sync_channel(BATCHES_AHEAD);
        let (spent, empty) = channel();
        let read = move || {
            // Without a receiver nobody wants to know how the pass ends.
            let _ = read_batches(inputs, &full, &empty).map_err(|error| full.send(Err(error)));
        };
        let thread = thread::Builder::new().name("icecore-merge".to_owned()).spawn_scoped(scope, read);
        if thread.is_err() {
            return pass(inputs, visit);
        }
        for batch in batches {
            let batch: EntryBatch<'_> = batch?;
            for entry in batch.iter() {
                if !visit(&entry)? {
                    return Ok(());
                }
            }
            // A reader that is done takes no batch back.
            let _ = spent.send(batch);
        }
        Ok(())
    })
}

/// Sends all entries in batches, until there is no receiver any more.
fn read_batches<'i>(
    inputs: &'i [Input],
    full: &SyncSender<Result<EntryBatch<'i>, Error>>,
    empty: &Receiver<EntryBatch<'i>>,
) -> Result<(), Error> {
    let mut merged = merged(inputs)?;
    let mut reclaim = Reclaim::default();
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        batch.fill(&mut merged).map_err(|e| error_of(inputs, &merged, e))?;
        let count = batch.len() as u64;
        if count == 0 || full.send(Ok(batch)).is_err() {
            return Ok(());
        }
        reclaim.advance(inputs, count);
    }
}
