//! `icecore ingest`: one thread reads and parses, this one commits.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use icecore::{Archive, Durability, Error, Maintenance, MergeOptions, OpenOptions, ReindexRule, Root, Scan};
use indicatif::ProgressBar;
use serde_json::json;

use super::create::{Every, Shape};
use super::tell_repairs;
use crate::encoding::{Encoding, hex};
use crate::exit::{Exit, Failure, Outcome};
use crate::input::{
    Block, Blocks, ETHEREUM_DOMAINS, EthChanges, Format, FormatName, GethDiff, Jsonl, LIMITS, Lines,
};
use crate::input::{Meter, STORAGE};
use crate::print::{Out, count, plural};
use crate::progress::{self, Bars};

/// Blocks that are parsed ahead of the one being committed.
const AHEAD_MAX: usize = 16;

/// Blocks a sync with `--sync group`.
const GROUP_BLOCKS: u32 = 64;

/// Add blocks from files of changes.
#[derive(clap::Args)]
#[command(after_help = HELP.as_str())]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Files of changes in order; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the lines are
    #[arg(long, short, value_enum)]
    format: FormatName,
    /// Make the archive where there is none yet
    #[arg(long, short)]
    create: bool,
    /// With --create: the domains [default: kv for jsonl; balance, nonce, code and storage for the Ethereum formats]
    #[arg(long = "domain", short, value_name = "NAME", requires = "create", num_args = 1..)]
    domains: Vec<String>,
    #[command(flatten)]
    shape: Shape,
    /// How keys and values of jsonl are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Number the bare replies of geth-diff from here on, instead of by their "id"
    #[arg(long, value_name = "N")]
    first_block: Option<u64>,
    /// When blocks are safe from a power loss: block (each before the next), group or group:N (every N, else every 64), relaxed
    /// (when a step ends). A killed process loses nothing in any case
    #[arg(long, value_name = "WHEN", default_value = "block")]
    sync: Sync,
    /// Leave merging for later; finished steps still become segments
    #[arg(long)]
    no_merge: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

static HELP: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "\
Formats, a JSON object a line, blocks rising; plain, zstd or gzip:
  jsonl
    {{\"block\":1,\"domain\":\"kv\",\"key\":\"...\",\"value\":\"...\"|null}}
    null deletes. 0x means hex, else UTF-8; --encoding text takes every string
    literally. \"domain\" may be left out where the archive has one. A line
    with \"block\" alone is an empty block.
  eth-changes
    {{\"block\":1,\"address\":\"0x..\",\"field\":\"balance\",\"value\":\"0x..\"|null}}
    field: balance, nonce, code, or storage, which has a \"slot\":\"0x..\" too.
    Into the domains balance, nonce and code (key: the address, 20 bytes) and
    storage (key: address and slot, 52 bytes). balance and nonce become
    minimal big-endian bytes, zero one zero byte; storage 32 bytes. null:
    absent or cleared. Other fields are passed over.
  geth-diff
    A reply of debug_traceBlockByNumber, prestateTracer {{diffMode:true}}, bare
    or as {{\"block\":N,\"response\":reply}}, into the same domains. Transactions
    are folded into one change of the block: the last write wins, a slot that
    only `pre` has is cleared, an account that only `pre` has is destroyed,
    one that only `post` has is born with zeros. A bare reply does not name
    its block: its \"id\" is taken for it, or --first-block N numbers them.

{LIMITS}

A block that is cut off or has a bad line is not taken: the command stops with
file, line and reason and exit code 2; the blocks before it stay. Blocks up to
the head of the archive are passed over, so the same command given again, or
given after a kill, goes on where it stopped.

Examples:
  icecore ingest chain.ice changes.jsonl --format jsonl --create
  icecore ingest eth.ice changes.jsonl.zst --format eth-changes --create \\
      --blocks-per-step 4096
  zcat traces.gz | icecore ingest eth.ice - --format geth-diff --sync relaxed"
    )
});

/// When a block is durable, as it stands on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sync(Durability);

impl FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text.split_once(':') {
            None if text == "block" => Durability::Block,
            None if text == "relaxed" => Durability::Relaxed,
            None if text == "group" => Durability::Group { blocks: GROUP_BLOCKS },
            Some(("group", blocks)) => match blocks.parse() {
                Ok(blocks) if 1 <= blocks => Durability::Group { blocks },
                _ => return Err("group:N needs a number of blocks, at least 1".to_owned()),
            },
            _ => return Err("must be block, group, group:N or relaxed".to_owned()),
        }))
    }
}

/// What was done so far.
#[derive(Default)]
struct Tally {
    blocks: u64,
    changes: u64,
    skipped: u64,
    root: Option<Root>,
}

pub(crate) fn run(args: Args) -> Outcome {
    check(&args)?;
    let archive = open(&args)?;
    archive.report_to(Arc::new(Bars::new()));
    tell_repairs(&archive);
    let names: Vec<String> = match args.format {
        FormatName::Jsonl => archive.reader().domains().iter().map(|domain| domain.name.clone()).collect(),
        FormatName::EthChanges | FormatName::GethDiff => ETHEREUM_DOMAINS.map(str::to_owned).to_vec(),
    };
    check_domains(&archive, &names, args.format)?;
    let format: Box<dyn Format> = match args.format {
        FormatName::Jsonl => Box::new(Jsonl::new(names.clone(), args.encoding)),
        FormatName::EthChanges => Box::new(EthChanges),
        FormatName::GethDiff => Box::new(GethDiff::new(args.first_block)),
    };
    let bar = progress::input(size_of(&args.files));
    let lines = Lines::of(args.files);
    let meter = lines.meter();
    let started = Instant::now();
    let mut tally = Tally::default();
    let blocks = parse_ahead(Blocks::new(lines, format));
    let shown = Shown { bar: &bar, meter: &meter, started };
    let ingested = commit_all(&archive, &names, blocks, &mut tally, &shown);
    bar.finish_and_clear();
    let ingested = ingested.and_then(|()| if args.no_merge { Ok(()) } else { tidy(&archive) });
    let head = archive.reader().head();
    let root = tally.root.map_or_else(|| archive.reader().latest().and_then(|view| view.root()).ok(), Some);
    // Syncs what was committed also where the input was bad.
    let closed = archive.close();
    if let Err(failure) = ingested {
        return Err(Failure::Stopped { cause: Box::new(failure), head });
    }
    closed?;
    summarise(&tally, head, root, started.elapsed().as_secs_f64(), args.json)
}

/// Parses beside the commits. The thread is not waited for: after a failed commit it may still hang on a pipe that
/// nobody closes.
fn parse_ahead(blocks: Blocks) -> Receiver<Result<Block, Failure>> {
    let (sender, receiver) = sync_channel(AHEAD_MAX);
    std::thread::spawn(move || {
        for block in blocks {
            if sender.send(block).is_err() {
                break;
            }
        }
    });
    receiver
}

fn check(args: &Args) -> Result<(), Failure> {
    if args.encoding != Encoding::Auto && args.format != FormatName::Jsonl {
        return Err(Failure::usage("--encoding is for --format jsonl"));
    }
    if args.first_block.is_some() && args.format != FormatName::GethDiff {
        return Err(Failure::usage("--first-block is for --format geth-diff"));
    }
    if !args.create && args.shape.is_given() {
        return Err(Failure::usage("--blocks-per-step, --reorg-window and --snapshot-every need --create"));
    }
    Ok(())
}

fn open(args: &Args) -> Result<Archive, Failure> {
    let threads = std::thread::available_parallelism();
    let options = OpenOptions::new()
        .durability(args.sync.0)
        .maintenance(if args.no_merge { Maintenance::EmitOnly } else { Maintenance::Background })
        .parallelism(threads.map_or(icecore::Parallelism::Off, icecore::Parallelism::Threads));
    match Archive::open(&args.dir, options) {
        Err(Error::NotAnArchive { .. }) if args.create => {
            let declared = args.domains.iter().map(String::as_str);
            let needed = args.format.domains().iter().copied();
            let archive = Archive::create(
                &args.dir,
                if args.domains.is_empty() {
                    args.shape.options(needed)
                } else {
                    args.shape.options(declared)
                },
            )?;
            // Creating opens with options of its own.
            archive.close()?;
            Ok(Archive::open(&args.dir, options)?)
        }
        opened => {
            let archive = opened?;
            check_shape(&archive, args)?;
            Ok(archive)
        }
    }
}

/// What was fixed at creation cannot be asked for differently later.
fn check_shape(archive: &Archive, args: &Args) -> Result<(), Failure> {
    let reader = archive.reader();
    let differs = |option: &str, asked: String, there: String| {
        Err(Failure::usage(format!(
            "{option} {asked}: the archive was created with {there}, which cannot be changed"
        )))
    };
    match args.shape.blocks_per_step {
        Some(asked) if asked != reader.blocks_per_step() => {
            return differs("--blocks-per-step", asked.to_string(), reader.blocks_per_step().to_string());
        }
        _ => {}
    }
    match args.shape.reorg_window {
        Some(asked) if asked != reader.reorg_window() => {
            return differs("--reorg-window", asked.to_string(), reader.reorg_window().to_string());
        }
        _ => {}
    }
    let every = Every(reader.snapshot_period());
    match args.shape.snapshot_every {
        Some(asked) if asked != every => {
            return differs("--snapshot-every", asked.to_string(), every.to_string());
        }
        _ => {}
    }
    let there: Vec<_> = reader.domains().iter().map(|domain| domain.name.clone()).collect();
    if !args.domains.is_empty() && args.domains != there {
        return differs("--domain", args.domains.join(", "), there.join(", "));
    }
    Ok(())
}

fn check_domains(archive: &Archive, needed: &[String], format: FormatName) -> Result<(), Failure> {
    let there: Vec<_> = archive.reader().domains().iter().map(|domain| domain.name.clone()).collect();
    if needed.iter().all(|name| there.contains(name)) {
        return Ok(());
    }
    let format = if format == FormatName::EthChanges { "eth-changes" } else { "geth-diff" };
    Err(Failure::usage(format!(
        "the format {format} needs the domains {}; the archive has {}",
        needed.join(", "),
        there.join(", ")
    )))
}

/// The bytes of all files together, if they can be known.
fn size_of(files: &[PathBuf]) -> Option<u64> {
    files.iter().try_fold(0, |sum, path| {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(sum + file.len())
    })
}

/// What the person at the terminal sees meanwhile.
struct Shown<'a> {
    bar: &'a ProgressBar,
    meter: &'a Meter,
    started: Instant,
}

impl Shown<'_> {
    fn update(&self, height: u64, tally: &Tally) {
        if !self.bar.is_hidden() {
            let rate = tally.changes as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
            self.bar.set_position(self.meter.bytes());
            self.bar.set_message(format!("block {height}, {} changes/s", count(rate as u64)));
        }
    }
}

fn commit_all(
    archive: &Archive,
    names: &[String],
    blocks: Receiver<Result<Block, Failure>>,
    tally: &mut Tally,
    shown: &Shown,
) -> Result<(), Failure> {
    let head = archive.reader().head();
    for block in blocks {
        let block = block?;
        if head.is_some_and(|head| block.height <= head) {
            tally.skipped += 1;
        } else {
            tally.root = Some(commit(archive, names, &block)?);
            tally.blocks += 1;
            tally.changes += block.changes.len() as u64;
        }
        shown.update(block.height, tally);
    }
    Ok(())
}

/// Finishes what the archive does beside the ingest, so that what it leaves does not hang on how fast either was.
fn tidy(archive: &Archive) -> Result<(), Failure> {
    archive.emit()?;
    archive.merge(&MergeOptions::default(), &Bars::new())?;
    archive.reindex(ReindexRule::Policy, None, &Bars::new())?;
    Ok(())
}

fn commit(archive: &Archive, names: &[String], block: &Block) -> Result<Root, Error> {
    let mut writer = archive.begin(block.height)?;
    if !block.changes.wiped().is_empty() && archive.reader().head().is_some() {
        let view = archive.reader().latest()?;
        for address in block.changes.wiped() {
            for slot in view.scan(&names[STORAGE], &Scan::prefix(address))? {
                writer.delete(&names[STORAGE], &slot?.0)?;
            }
        }
    }
    for (domain, key, value) in block.changes.iter() {
        match value {
            Some(value) => writer.put(&names[domain], key, value)?,
            None => writer.delete(&names[domain], key)?,
        }
    }
    writer.commit()
}

fn summarise(tally: &Tally, head: Option<u64>, root: Option<Root>, seconds: f64, as_json: bool) -> Outcome {
    let rate = tally.changes as f64 / seconds.max(1e-9);
    let root = root.map(|root| hex(&root.0));
    let mut out = Out::new();
    if as_json {
        out.json(&json!({
            "blocks": tally.blocks,
            "changes": tally.changes,
            "blocks_skipped": tally.skipped,
            "head": head,
            "root": root,
            "seconds": seconds,
            "changes_per_second": rate,
        }))?;
    } else {
        let skipped = match tally.skipped {
            0 => String::new(),
            skipped => format!("; {} passed over, they were in already", plural(skipped, "block")),
        };
        out.line(format_args!(
            "{}, {} in {seconds:.2} s ({} changes/s){skipped}",
            plural(tally.blocks, "block"),
            plural(tally.changes, "change"),
            count(rate as u64)
        ))?;
        match (head, root) {
            (Some(head), Some(root)) => out.line(format_args!("head {head}, root {root}"))?,
            _ => out.line("the archive has no block yet")?,
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_is_read_from_the_command_line() {
        for (text, expected) in [
            ("block", Some(Durability::Block)),
            ("relaxed", Some(Durability::Relaxed)),
            ("group", Some(Durability::Group { blocks: 64 })),
            ("group:7", Some(Durability::Group { blocks: 7 })),
            ("group:0", None),
            ("group:x", None),
            ("block:2", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected.map(Sync), "{text}");
        }
    }
}
