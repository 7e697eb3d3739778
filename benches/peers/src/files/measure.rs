//! Loads a store and asks it: cold, each lookup from nothing, and warm.
//!
//! | phase | what is in memory before a lookup |
//! |---|---|
//! | `cold` | of the store's files nothing before the first lookup, which opening has read; then what the lookups before have read. The keys are far apart |
//! | `each` | of the store's files nothing but what opening reads, before each lookup |
//! | `warm` | everything: all questions were asked before |
//!
//! Every eviction is one of all files in the store's folder, proven by `mincore` ([`icecore_tools::measure::evict`]), while the store is closed,
//! so that caches of its own are empty too. Opening is never timed as part of a lookup; what it takes and reads stands in [`Opening`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use icecore_tools::measure::baseline::{clock_cost, cold_touches};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::faults::process_faults;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::measure::peak::anonymous_resident_bytes;
use serde::{Deserialize, Serialize};

use super::workload::{Question, Workload};
use super::{Lookup, Peer, Task};
use crate::Outcome;

/// How often a warm series is asked. The lowest counts, since what slows one down is another program.
const WARM_PASSES: usize = 3;

/// How a store was filled.
#[derive(Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// Seconds from the first block until all blocks are durable.
    pub(crate) load_s: f64,
    /// Seconds of the compaction that came after.
    pub(crate) compact_s: f64,
    /// What the files take on the disk after the compaction, in bytes.
    pub(crate) bytes: u64,
    /// The same before it.
    pub(crate) bytes_before_compaction: u64,
}

/// What belongs to the cold series.
#[derive(Serialize, Deserialize)]
pub(crate) struct Cold {
    /// Opening the store with all files evicted.
    pub(crate) opening: Opening,
    /// One touch of a random 4 KiB page of another file on the same disk, evicted and mapped: p50, in nanoseconds.
    pub(crate) touch_p50_ns: u64,
    /// The same with an eviction before each touch, as before each lookup of the series `each`: after the pause that an eviction is,
    /// a disk is slower to answer.
    pub(crate) touch_each_p50_ns: u64,
}

/// What belongs to the warm series.
#[derive(Serialize, Deserialize)]
pub(crate) struct Warm {
    /// The memory that no file backs after the series, above that before opening, in bytes.
    pub(crate) warm_memory_bytes: u64,
}

/// What opening a cold store takes.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) seconds: f64,
    /// Read from the disk.
    pub(crate) read_bytes: u64,
    /// Memory that no file backs.
    pub(crate) memory_bytes: u64,
}

/// One series of lookups.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    /// See the [module](self).
    pub(crate) phase: String,
    /// `past`: a known key at or after its first version; `early`: before it; `unknown`: a key that never was.
    pub(crate) question: String,
    pub(crate) lookups: usize,
    pub(crate) p10_ns: u64,
    pub(crate) p25_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p75_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    /// The distribution, for drawing: what 0, 1 to 100 of 100 lookups took no longer than.
    pub(crate) quantiles_ns: Vec<u64>,
    pub(crate) mean_ns: f64,
    /// Bytes read from the disk per lookup, by all threads of the process.
    pub(crate) read_bytes: f64,
    /// Calls of `read` and its like per lookup, whatever they found in memory.
    pub(crate) read_calls: f64,
    /// Major page faults per lookup.
    pub(crate) major_faults: f64,
}

/// Fills and compacts the store of a task.
pub(crate) fn load(task: &Task) -> Outcome<Loaded> {
    let peer = task.peer()?;
    let workload = Workload::new(task.entries);
    let start = Instant::now();
    peer.load(&task.dir, &mut workload.blocks())?;
    let load_s = start.elapsed().as_secs_f64();
    let bytes_before_compaction = disk_bytes(&task.dir)?;
    let start = Instant::now();
    peer.compact(&task.dir)?;
    let compact_s = start.elapsed().as_secs_f64();
    Ok(Loaded { load_s, compact_s, bytes: disk_bytes(&task.dir)?, bytes_before_compaction })
}

/// Asks the store of a task with its files out of memory.
pub(crate) fn ask_cold(task: &Task) -> Outcome<(Cold, Vec<Row>)> {
    let peer = task.peer()?;
    let workload = Workload::new(task.entries);
    let mut bench = Bench { peer: &*peer, dir: &task.dir, method: EvictMethod::detect(), rows: Vec::new() };
    let touches = cold_touches(&task.reference, bench.method, task.cold_lookups, 1)?;
    let mut touches_each = Histogram::default();
    for number in 0..task.each_lookups as u64 {
        let touch = cold_touches(&task.reference, bench.method, 1, 2 + number)?;
        touches_each.record(touch.time.quantile(0.5));
    }
    let opening = bench.cold("past", &workload.past_apart(1, task.cold_lookups))?;
    bench.cold("early", &workload.early(1, task.cold_lookups))?;
    bench.cold("unknown", &workload.unknown(1, task.cold_lookups))?;
    bench.each("past", &workload.past_apart(2, task.each_lookups))?;
    bench.each("unknown", &workload.unknown(2, task.each_lookups))?;
    let touch_each_p50_ns = touches_each.quantile(0.5);
    Ok((Cold { opening, touch_p50_ns: touches.time.quantile(0.5), touch_each_p50_ns }, bench.rows))
}

/// Asks the store of a task with everything in memory.
pub(crate) fn ask_warm(task: &Task) -> Outcome<(Warm, Vec<Row>)> {
    let peer = task.peer()?;
    let workload = Workload::new(task.entries);
    let series = [
        ("past", workload.past(3, task.lookups)),
        ("early", workload.early(3, task.lookups)),
        ("unknown", workload.unknown(3, task.lookups)),
    ];
    let clock_ns = clock_cost().quantile(0.5);
    let before = memory();
    let (mut rows, mut warm_memory_bytes) = (Vec::new(), 0);
    peer.open(&task.dir, &mut |lookup| {
        for (_, questions) in &series {
            Series::default().ask(lookup, questions, clock_ns)?;
        }
        for (question, questions) in &series {
            rows.extend(lowest_pass(lookup, question, questions, clock_ns)?);
        }
        warm_memory_bytes = memory().saturating_sub(before);
        Ok(())
    })?;
    Ok((Warm { warm_memory_bytes }, rows))
}

fn lowest_pass(
    lookup: &mut dyn Lookup,
    question: &str,
    questions: &[Question],
    clock_ns: u64,
) -> Outcome<Option<Row>> {
    let mut passes = Vec::new();
    for _ in 0..WARM_PASSES {
        let mut series = Series::default();
        series.ask(lookup, questions, clock_ns)?;
        passes.push(series.row("warm", question));
    }
    Ok(passes.into_iter().min_by_key(|row| row.p50_ns))
}

fn memory() -> u64 {
    anonymous_resident_bytes().unwrap_or(0)
}

struct Bench<'a> {
    peer: &'a dyn Peer,
    dir: &'a Path,
    method: EvictMethod,
    rows: Vec<Row>,
}

impl Bench<'_> {
    /// One eviction, then a series.
    fn cold(&mut self, question: &str, questions: &[Question]) -> Outcome<Opening> {
        self.evict()?;
        let mut opening = Opening::default();
        let watch = OpeningWatch::begin()?;
        let mut series = Series::default();
        self.peer.open(self.dir, &mut |lookup| {
            opening = watch.end()?;
            series.ask(lookup, questions, 0)
        })?;
        self.rows.push(series.row("cold", question));
        Ok(opening)
    }

    /// An eviction before each lookup.
    fn each(&mut self, question: &str, questions: &[Question]) -> Outcome {
        let mut series = Series::default();
        for one in questions {
            self.evict()?;
            self.peer.open(self.dir, &mut |lookup| series.ask(lookup, std::slice::from_ref(one), 0))?;
        }
        self.rows.push(series.row("each", question));
        Ok(())
    }

    fn evict(&self) -> Outcome {
        for file in files_in(self.dir)? {
            self.method.evict(&file)?;
        }
        Ok(())
    }
}

/// Takes what opening a store costs.
struct OpeningWatch {
    start: Instant,
    io: ProcessIo,
    memory: u64,
}

impl OpeningWatch {
    fn begin() -> Outcome<Self> {
        Ok(Self { memory: memory(), io: ProcessIo::now()?, start: Instant::now() })
    }

    fn end(&self) -> Outcome<Opening> {
        let seconds = self.start.elapsed().as_secs_f64();
        let read_bytes = ProcessIo::now()?.read_bytes - self.io.read_bytes;
        let memory_bytes = memory().saturating_sub(self.memory);
        Ok(Opening { seconds, read_bytes, memory_bytes })
    }
}

/// Lookups of one kind.
#[derive(Default)]
struct Series {
    time: Histogram,
    read_bytes: u64,
    read_calls: u64,
    major_faults: u64,
}

impl Series {
    /// Asks all questions and fails on the first wrong answer.
    fn ask(&mut self, lookup: &mut dyn Lookup, questions: &[Question], clock_ns: u64) -> Outcome {
        let mut value = Vec::with_capacity(64);
        let (before, io, faults) = (ProcessIo::now()?, ProcessIo::now()?, process_faults());
        // Asking for the number of calls makes some.
        let own_calls = io.read_calls - before.read_calls;
        for question in questions {
            value.clear();
            let start = Instant::now();
            let found = lookup.get(&question.key, question.at, &mut value);
            let time = start.elapsed().as_nanos() as u64;
            let found = found?.then_some(&value[..]);
            if found != question.expected.as_ref().map(AsRef::as_ref) {
                return Err(format!("wrong answer {found:02x?} to {question:02x?}").into());
            }
            self.time.record(time.saturating_sub(clock_ns));
        }
        let (io_after, faults) = (ProcessIo::now()?, process_faults() - faults);
        self.read_bytes += io_after.read_bytes - io.read_bytes;
        self.read_calls += (io_after.read_calls - io.read_calls).saturating_sub(own_calls);
        self.major_faults += faults.major;
        Ok(())
    }

    fn row(&self, phase: &str, question: &str) -> Row {
        let summary = self.time.summary();
        let each = |sum: u64| sum as f64 / (summary.count as f64).max(1.0);
        Row {
            phase: phase.to_owned(),
            question: question.to_owned(),
            lookups: summary.count as usize,
            p10_ns: self.time.quantile(0.1),
            p25_ns: self.time.quantile(0.25),
            p50_ns: summary.p50,
            p75_ns: self.time.quantile(0.75),
            p90_ns: self.time.quantile(0.9),
            p99_ns: summary.p99,
            quantiles_ns: (0..=100).map(|percent| self.time.quantile(f64::from(percent) / 100.0)).collect(),
            mean_ns: summary.mean,
            read_bytes: each(self.read_bytes),
            read_calls: each(self.read_calls),
            major_faults: each(self.major_faults),
        }
    }
}

/// What this process has read so far: `/proc/self/io`, `proc_pid_io(5)`.
#[derive(Clone, Copy)]
struct ProcessIo {
    /// From the device, by `read` or by page faults.
    read_bytes: u64,
    /// Calls of `read` and its like.
    read_calls: u64,
}

impl ProcessIo {
    fn now() -> Outcome<Self> {
        let text = fs::read_to_string("/proc/self/io")?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|number| number.parse().ok()).ok_or_else(|| format!("/proc/self/io has no {name}"))
        };
        Ok(Self { read_bytes: field("read_bytes")?, read_calls: field("syscr")? })
    }
}

/// All files below a folder.
fn files_in(dir: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_in(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// What the files below a folder take on the disk: holes in them take nothing.
fn disk_bytes(dir: &Path) -> Outcome<u64> {
    files_in(dir)?.iter().try_fold(0, |sum, path| Ok(sum + fs::metadata(path)?.blocks() * 512))
}
