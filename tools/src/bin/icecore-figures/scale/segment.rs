//! A segment from a stream of entries: how fast, in how much memory, how many bytes, and what opening it costs.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use icecore::measure::{LoneSegment, SegmentSpec};
use icecore_index::Density;
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{EncodingRule, Value};
use icecore_tools::measure::build::{Built, build_from};
use icecore_tools::measure::cpu::Times;
use icecore_tools::measure::faults::thread_faults;
use icecore_tools::measure::peak::anonymous_resident_bytes;
use icecore_tools::workload::storage::{Entry, StorageEntries};

use super::{Bench, Work};

/// Entries that the generator hands over at once, and how many such chunks may wait.
const CHUNK: usize = 4096;
const CHUNKS_WAITING: usize = 8;

/// How segments are built here: one step, plain pages, the usual density.
pub(super) fn spec(steps: StepRange) -> SegmentSpec<'static> {
    SegmentSpec { domain: "storage", steps, m: Density::MEDIUM, encoding: EncodingRule::Plain }
}

/// Builds the segment of all entries. Returns it with the entries of the places that are looked up cold.
pub(super) fn measure(bench: &mut Bench) -> Result<(LoneSegment, Vec<Entry>), Box<dyn Error>> {
    let entries = bench.dataset.len();
    let mut places = bench.dataset.cold_places(0, bench.cold_keys);
    places.sort_unstable();
    let dir = bench.dir.join("segment");
    let steps = StepRange::single(Step(0));
    let (written, mut work) =
        Work::of(|| write((&dir, bench.spool.as_deref()), &bench.dataset, steps, |_| true, &places));
    let Written { built, asked, generating } = written?;
    work.wall = built.pass.as_secs_f64();
    work.cpu -= generating.as_secs_f64();
    work.tell(&mut bench.figures, "build", entries);
    let segment = built.segment;
    for (name, file) in [".kv", "pivot index M=64", "filter"].into_iter().zip(segment.files()) {
        let per_key = file.metadata()?.len() as f64 / entries as f64;
        bench.figures.add(&format!("scale, {name}: bytes per key"), per_key);
    }
    open(bench, &segment)?;
    Ok((segment, asked))
}

/// A segment that was written from a stream.
pub(super) struct Written {
    pub(super) built: Built,
    /// The entries that were asked for.
    asked: Vec<Entry>,
    /// The time that the generator had a processor.
    generating: Duration,
}

/// Writes the entries whose place `keep` says to keep as a segment at the block of its step, and returns those at `asked`, which
/// ascends. The directories are that of the files and that of the hashes meanwhile.
pub(super) fn write(
    (dir, spool): (&Path, Option<&Path>),
    dataset: &StorageEntries,
    steps: StepRange,
    keep: impl Fn(u64) -> bool + Send,
    asked: &[u64],
) -> Result<Written, icecore::Error> {
    let (send, receive) = sync_channel(CHUNKS_WAITING);
    thread::scope(|scope| {
        let generator = scope.spawn(move || Times::of(|| generate(dataset, keep, asked, &send)));
        let block = steps.from().0;
        let built = build_from(dir, spool, &spec(steps), dataset.len(), |push| {
            receive.into_iter().flatten().try_for_each(|entry: Entry| {
                let value = Value::Inline(entry.value());
                push(icecore_segments::Entry { key: entry.key(), block, value })
            })
        });
        let (times, asked) = generator.join().expect("the dataset has no equal keys");
        Ok(Written { built: built?, asked, generating: times.cpu })
    })
}

/// Sends the entries that are kept, and returns those that are asked for.
fn generate(
    dataset: &StorageEntries,
    keep: impl Fn(u64) -> bool,
    asked: &[u64],
    send: &SyncSender<Vec<Entry>>,
) -> Vec<Entry> {
    let mut found = Vec::with_capacity(asked.len());
    let mut asked = asked.iter().peekable();
    let mut chunk = Vec::with_capacity(CHUNK);
    for (place, entry) in (0..).zip(dataset) {
        while asked.next_if(|asked| **asked == place).is_some() {
            found.push(entry);
        }
        if keep(place) {
            chunk.push(entry);
        }
        if chunk.len() == CHUNK {
            let full = std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK));
            if send.send(full).is_err() {
                return found; // The builder failed, and says why.
            }
        }
    }
    // A builder that failed says why.
    let _ = send.send(chunk);
    found
}

/// Opens the evicted files.
fn open(bench: &mut Bench, segment: &LoneSegment) -> Result<(), Box<dyn Error>> {
    for file in segment.files() {
        bench.method.evict(&file)?;
    }
    let memory = anonymous_resident_bytes().unwrap_or(0);
    let (before, start) = (thread_faults(), Instant::now());
    let reader = segment.reader()?;
    let seconds = start.elapsed().as_secs_f64();
    let pages = (thread_faults() - before).pages_read;
    let held = anonymous_resident_bytes().unwrap_or(0).saturating_sub(memory);
    let mut add = |what: &str, measured| bench.figures.add(&format!("scale, opening: {what}"), measured);
    add("time", seconds * 1e3);
    add("pages read", pages as f64);
    add("memory that it holds", held as f64 / 1e6);
    let tops = reader.index()?.summary().top_bytes + reader.filter()?.summary().top_bytes;
    add("tops of index and filter", tops as f64 / 1e6);
    Ok(())
}
