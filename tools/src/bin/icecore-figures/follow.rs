//! The figures of a reader that follows a writer of another process: what it costs to look whether something is new, to take over a block
//! and an emission, and how long after a commit a waiting reader wakes up.
//!
//! The writer is this program in a process of its own. It commits a block for each line that it is given and answers with a line when the
//! commit has returned, so that the reader knows what there is to see.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, OpenOptions, Options, Reader};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::monotonic_time;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::measure::system::bytes_read;
use icecore_tools::workload::mix;
use serde::Serialize;

use crate::child::{Work, command};
use crate::report::Figures;

const DOMAIN: &str = "storage";

/// The bytes of a key and of a value.
const KEY_LEN: usize = 20;
const VALUE_LEN: usize = 32;

/// Every this many blocks one is followed by the emission of its step.
const BLOCKS_PER_STEP: u64 = 16;

/// How often a reader looks while nothing is new.
const IDLE: usize = 2_000;

/// How long the writer lets a waiting reader wait before it commits: at least this, and up to as much again, so that the commits do not
/// come in step with whatever the reader does.
const LULL: Duration = Duration::from_millis(4);

/// How long a reader waits for a block before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to measure the figures of a reader that follows.
#[derive(Args)]
pub(crate) struct FollowArgs {
    /// How many blocks the reader takes over one by one, and as many that it waits for.
    #[arg(long, default_value_t = 480, value_parser = clap::value_parser!(u64).range(BLOCKS_PER_STEP..))]
    blocks: u64,
    /// How many changes a block has.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    changes: u64,
    /// Where the archives are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// When the writer syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sync {
    Block,
    Group,
    Relaxed,
}

impl Sync {
    fn durability(self) -> Durability {
        match self {
            Self::Block => Durability::Block,
            Self::Group => Durability::Group { blocks: 8 },
            Self::Relaxed => Durability::Relaxed,
        }
    }
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct FollowConditions {
    blocks: u64,
    changes_per_block: u64,
    blocks_per_step: u64,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str = "wall time of each call; of waking up from when the commit had returned in the writer, 0 where the reader was first. \
                     Bytes: read by calls, the mean; mapped pages are not among them";

/// Measures and prints.
pub(crate) fn run(args: &FollowArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let mut figures = Figures::new();
    for (sync, name) in [(Sync::Block, "block"), (Sync::Group, "group"), (Sync::Relaxed, "relaxed")] {
        let dir = folder.path().join(name);
        let mut add = |what: &str, measured| figures.add(&format!("{name}, {what}"), measured);
        follow(args, &dir, sync, &mut add)?;
    }
    let conditions = FollowConditions {
        blocks: args.blocks,
        changes_per_block: args.changes,
        blocks_per_step: BLOCKS_PER_STEP,
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// The figures of a writer that syncs each block, for another subcommand.
#[cfg(feature = "remote")]
pub(crate) fn synced_blocks(dir: &Path, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let args = FollowArgs { blocks: 480, changes: 300, dir: None, json: false };
    follow(&args, dir, Sync::Block, &mut |what: &str, measured| {
        figures.add(&format!("block, {what}"), measured);
    })
}

/// Time and bytes of calls of one kind.
#[derive(Default)]
struct Calls {
    time: Histogram,
    bytes: u64,
}

impl Calls {
    /// Refreshes once, and checks whether it was told the truth.
    fn refresh(&mut self, reader: &Reader, is_new: bool) -> Result<(), Box<dyn Error>> {
        let read_before = bytes_read().unwrap_or(0);
        let begun = Instant::now();
        let told = reader.refresh()?;
        self.time.record_time(begun.elapsed());
        self.bytes += bytes_read().unwrap_or(0).saturating_sub(read_before);
        if told == is_new {
            Ok(())
        } else {
            Err(format!("refresh said {told} at {:?}", reader.head()).into())
        }
    }

    /// Of one call, without those that reading the counter takes.
    fn bytes_each(&self, counting: u64) -> f64 {
        (self.bytes as f64 / self.time.summary().count.max(1) as f64 - counting as f64).max(0.0)
    }
}

/// One way to sync: an archive, its writer, a reader.
fn follow(
    args: &FollowArgs,
    dir: &Path,
    sync: Sync,
    add: &mut impl FnMut(&str, f64),
) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::start(dir, sync)?;
    writer.commit(args.changes, Duration::ZERO)?;
    let reader = Reader::open(dir)?;
    let counting = {
        let before = bytes_read().unwrap_or(0);
        bytes_read().unwrap_or(0) - before
    };
    let (mut idle, mut block, mut emission) = (Calls::default(), Calls::default(), Calls::default());
    let mut lookup = Histogram::default();
    for _ in 0..IDLE {
        idle.refresh(&reader, false)?;
    }
    for _ in 0..args.blocks {
        let committed = writer.commit(args.changes, Duration::ZERO)?;
        let calls = if committed.emitted { &mut emission } else { &mut block };
        calls.refresh(&reader, true)?;
        // A reader may leave to the first lookup what it did not do when it was refreshed.
        let begun = Instant::now();
        let found = reader.at(committed.height)?.get(DOMAIN, &key(committed.height, 0, args.changes))?;
        lookup.record_time(begun.elapsed());
        if found.is_none() {
            return Err(format!("block {} is not to be seen", committed.height).into());
        }
    }
    let changed = (args.changes as usize * (KEY_LEN + VALUE_LEN)) as f64;
    let micros = |histogram: &Histogram, quantile| histogram.quantile(quantile) as f64 / 1e3;
    for (what, calls) in [
        ("refresh, nothing new", &idle),
        ("refresh after a block", &block),
        ("refresh after an emission", &emission),
    ] {
        add(&format!("{what}: p50"), micros(&calls.time, 0.5));
        add(&format!("{what}: p99"), micros(&calls.time, 0.99));
    }
    add("first lookup after a refresh: p50", micros(&lookup, 0.5));
    add("first lookup after a refresh: p99", micros(&lookup, 0.99));
    add("refresh, nothing new: bytes read", idle.bytes_each(counting));
    add("refresh after a block: bytes read, to those of its changes", block.bytes_each(counting) / changed);
    add("refresh after an emission: bytes read", emission.bytes_each(counting) / 1e3);
    let woken = wait(args, &reader, &mut writer)?;
    add("wait: p50 from the commit to waking up", micros(&woken, 0.5));
    add("wait: p99 from the commit to waking up", micros(&woken, 0.99));
    writer.stop()
}

/// How long after each commit the reader woke up.
fn wait(args: &FollowArgs, reader: &Reader, writer: &mut Writer) -> Result<Histogram, Box<dyn Error>> {
    let mut woken = Histogram::default();
    for number in 0..args.blocks {
        let lull = LULL + Duration::from_nanos(mix(number) % LULL.as_nanos() as u64);
        writer.ask(args.changes, lull)?;
        let head = reader.wait(reader.head(), PATIENCE)?.ok_or("no block came")?;
        let now = monotonic_time();
        let committed = writer.answer()?;
        if head != committed.height {
            return Err(format!("the reader waited for {} and got {head}", committed.height).into());
        }
        woken.record_time(now.saturating_sub(committed.at));
    }
    Ok(woken)
}

/// The process that commits.
struct Writer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What the writer answers.
struct Committed {
    height: u64,
    /// Whether a step was emitted by the commit.
    emitted: bool,
    /// When the commit had returned, by the clock of [`monotonic_time`].
    at: Duration,
}

impl Writer {
    fn start(dir: &Path, sync: Sync) -> Result<Self, Box<dyn Error>> {
        let mut command = command(&Work::Writer { dir: dir.to_owned(), sync })?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = (input.expect("it is piped"), output.expect("it is piped"));
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// Has a block committed after a while, without waiting for it.
    fn ask(&mut self, changes: u64, lull: Duration) -> Result<(), std::io::Error> {
        writeln!(self.input, "{changes} {}", lull.as_nanos())?;
        self.input.flush()
    }

    fn answer(&mut self) -> Result<Committed, Box<dyn Error>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [height, emitted, at] = numbers[..] else { return Err("the writer is gone".into()) };
        Ok(Committed { height, emitted: emitted == 1, at: Duration::from_nanos(at) })
    }

    fn commit(&mut self, changes: u64, lull: Duration) -> Result<Committed, Box<dyn Error>> {
        self.ask(changes, lull)?;
        self.answer()
    }

    /// Lets the writer close its archive.
    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the writer: {status}").into()) }
    }
}

/// The writer: for each line of standard input, of how many changes and after how many nanoseconds, a block; until it ends.
pub(crate) fn write(dir: &Path, sync: Sync) -> Result<(), Box<dyn Error>> {
    let options = Options::new().domain(DOMAIN).blocks_per_step(BLOCKS_PER_STEP).reorg_window(0);
    let open = OpenOptions::new().durability(sync.durability()).maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::new(OsStorage), dir, options, open)?;
    let mut segments = 0;
    for (height, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let line = line?;
        let (changes, lull) = line.split_once(' ').ok_or("a line has two numbers")?;
        thread::sleep(Duration::from_nanos(lull.parse()?));
        commit(&archive, height, changes.parse()?)?;
        let at = monotonic_time().as_nanos();
        let segments_now = archive.reader().stats().segments;
        let emitted = u8::from(segments_now != segments);
        segments = segments_now;
        println!("{height} {emitted} {at}");
    }
    archive.close()?;
    Ok(())
}

fn commit(archive: &Archive, height: u64, changes: u64) -> Result<(), icecore::Error> {
    let mut block = archive.begin(height)?;
    for change in 0..changes {
        block.put(DOMAIN, &key(height, change, changes), &[height as u8; VALUE_LEN])?;
    }
    block.commit()?;
    Ok(())
}

/// The key of a change of a block.
fn key(height: u64, change: u64, changes: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&mix(height * changes + change).to_be_bytes());
    key
}
