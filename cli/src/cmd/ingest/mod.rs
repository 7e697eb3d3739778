//! `icecore ingest`: one thread reads and parses, this one commits.

mod form;
mod headers;
mod help;
mod tally;
mod target;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use icecore::{
    Archive, Commitment, Comparison, Difference, Domain, Durability, Error, MergeOptions, ReindexRule,
    Written,
};
use indicatif::ProgressBar;

use self::form::Form;
use self::tally::{Tally, summarise, tell_empty, tell_unknown};
use self::target::{check_domains, create, declared, open_present};
use super::create::{Declared, Shape};
use super::tell_repairs;
use crate::encoding::{Encoding, Face, brief};
use crate::exit::{Failure, Outcome};
use crate::input::{Block, EthChanges, FormatName, GethDiff, Inputs, Jsonl, Meter, NewFormat};
use crate::keys::{ETHEREUM_DOMAINS, KeyShape};
use crate::number::{self, ByteSize};
use crate::print::count;
use crate::progress::{self, Bars};
#[cfg(feature = "s3")]
use crate::push_to::{PushTo, PushToArgs, tell_pushed};

/// Blocks that are parsed ahead of the one being committed.
const AHEAD_MAX: usize = 16;

/// Blocks a sync with `--sync group`.
const GROUP_BLOCKS: u32 = 64;

/// Add blocks from files of changes.
#[derive(clap::Args)]
#[command(after_help = help::HELP.as_str())]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Files of changes, merged by block: they may follow each other or have parts of the same blocks; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the lines are
    #[arg(long, short, value_enum)]
    format: FormatName,
    /// Make the archive where there is none yet
    #[arg(long, short)]
    create: bool,
    /// With --create: the domains, with commas or one a flag [default: kv for jsonl; balance, nonce, code and storage for the
    /// Ethereum formats]
    #[arg(long = "domain", short, value_name = "NAME[:BYTES]", requires = "create", value_delimiter = ',')]
    domains: Vec<Declared>,
    #[command(flatten)]
    shape: Shape,
    /// Headers of the chain, a JSON object a line with "number" and "stateRoot", in order: the root of each block must be the one here.
    /// For archives of the profile ethereum
    #[arg(long, value_name = "FILE")]
    headers: Option<PathBuf>,
    /// Clear the accounts that blocks from N on change and leave without nonce, balance and code (EIP-161). Without it the input says
    /// which accounts go. For archives of the profile ethereum
    #[arg(long, value_name = "N", value_parser = number::whole)]
    eip161_from: Option<u64>,
    /// How keys and values of jsonl are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Number the bare replies of geth-diff from here on, in the order of the files
    #[arg(long, value_name = "N", value_parser = number::whole)]
    first_block: Option<u64>,
    /// When blocks are safe from a power loss: block (each before the next), group or group:N (every N, else every 64), relaxed
    /// (when a step ends). A killed process loses nothing in any case
    #[arg(long, value_name = "WHEN", default_value = "block")]
    sync: Sync,
    /// What the tree of an archive of the profile ethereum may take of memory; of a larger one some leaves stay in the archive and are read
    /// when a block changes them [default: an eighth of the memory]
    #[arg(long, value_name = "SIZE")]
    tree_memory: Option<ByteSize>,
    /// Leave merging for later; finished steps still become segments
    #[arg(long)]
    no_merge: bool,
    #[cfg(feature = "s3")]
    #[command(flatten)]
    push_to: PushToArgs,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

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

pub(crate) fn run(args: Args) -> Outcome {
    check(&args)?;
    #[cfg(feature = "s3")]
    let target = args.push_to.target()?;
    let present = open_present(&args)?;
    let domains =
        present.as_ref().map_or_else(|| declared(&args), |archive| archive.reader().domains().to_vec());
    let commitment =
        present.as_ref().map_or(args.shape.commitment(), |archive| archive.reader().commitment());
    if commitment != Commitment::Ethereum {
        check_domains(&domains, args.format)?;
        let given = [
            ("--headers", args.headers.is_some()),
            ("--eip161-from", args.eip161_from.is_some()),
            ("--tree-memory", args.tree_memory.is_some()),
        ];
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!("{option} is for archives of the profile ethereum")));
        }
    }
    let head = present.as_ref().and_then(|archive| archive.reader().head());
    let stopped = |failure| Failure::Stopped { cause: Box::new(failure), head };
    let started = Instant::now();
    let (inputs, meter) = open_inputs(&args, &domains, present.is_none()).map_err(stopped)?;
    let mut blocks = parse_ahead(inputs).into_iter().peekable();
    // Before an archive is made: input that is refused at its first block must not leave an empty one.
    if present.is_none()
        && let Some(Err(failure)) = blocks.next_if(Result::is_err)
    {
        return Err(stopped(failure));
    }
    if blocks.peek().is_none() {
        tell_empty(&args.files);
    }
    let archive = present.map_or_else(|| create(&args, domains), Ok)?;
    archive.set_progress_listener(Arc::new(Bars::new()));
    tell_repairs(&archive);
    #[cfg(feature = "s3")]
    let push = target.map(|target| PushTo::start(&archive, target));
    let names: Vec<String> = match args.format {
        FormatName::Jsonl => archive.reader().domains().iter().map(|domain| domain.name.clone()).collect(),
        FormatName::EthChanges | FormatName::GethDiff => ETHEREUM_DOMAINS.map(str::to_owned).to_vec(),
    };
    let bar = progress::input(size_of(&args.files));
    let mut tally = Tally::default();
    let shown = Shown { bar: &bar, meter: &meter, started };
    let mut form = Form::of(&archive, args.format, args.headers.clone(), args.eip161_from, names);
    let ingested = commit_all(&archive, &mut form, blocks, &mut tally, &shown);
    bar.finish_and_clear();
    let ingested = ingested.and_then(|()| if args.no_merge { Ok(()) } else { tidy(&archive) });
    let head = archive.reader().head();
    let root = tally.root.map_or_else(|| archive.reader().latest().and_then(|view| view.root()).ok(), Some);
    // Syncs what was committed also where the input was bad.
    let closed = archive.close();
    #[cfg(feature = "s3")]
    let pushed = push.map(PushTo::finish).transpose();
    match ingested {
        Ok(()) => {}
        // Given again it would stop at the same block.
        Err(conflict @ Failure::Conflict { .. }) => return Err(conflict),
        Err(failure) => return Err(Failure::Stopped { cause: Box::new(failure), head }),
    }
    closed?;
    tell_unknown(&tally);
    let told = summarise(&tally, head, root, started.elapsed().as_secs_f64(), args.json)?;
    #[cfg(feature = "s3")]
    tell_pushed(pushed?.flatten());
    Ok(told)
}

/// Opens the inputs and reads their first lines.
fn open_inputs(args: &Args, domains: &[Domain], is_new: bool) -> Result<(Inputs, Meter), Failure> {
    let (shapes, encoding, first_block) = (KeyShape::all(domains), args.encoding, args.first_block);
    let new_format: NewFormat = match args.format {
        FormatName::Jsonl => Box::new(move || Box::new(Jsonl::new(shapes.clone(), encoding).is_new(is_new))),
        FormatName::EthChanges => Box::new(|| Box::new(EthChanges)),
        FormatName::GethDiff => Box::new(move || Box::new(GethDiff::new(first_block))),
    };
    let meter = Meter::default();
    // Numbered replies have no other order than that of the files.
    let in_order = first_block.is_some();
    Ok((Inputs::open(args.files.clone(), in_order, new_format, meter.clone())?, meter))
}

/// Parses beside the commits. The thread is not waited for: after a failed commit it may still hang on a pipe that
/// nobody closes.
fn parse_ahead(blocks: Inputs) -> Receiver<Result<Block, Failure>> {
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
        return Err(Failure::usage(
            "--blocks-per-step, --reorg-window, --snapshot-every, --commitment, --profile and --rows need --create",
        ));
    }
    Ok(())
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
    form: &mut Form,
    blocks: impl Iterator<Item = Result<Block, Failure>>,
    tally: &mut Tally,
    shown: &Shown,
) -> Result<(), Failure> {
    let head = archive.reader().head();
    for block in blocks {
        let block = block?;
        if head.is_some_and(|head| block.height <= head) {
            pass_over(archive, form, &block, tally)?;
        } else {
            let committed = form.draft(archive, &block)?.commit();
            tally.root = Some(committed.map_err(|error| form.told(&block, error))?);
            tally.blocks += 1;
            tally.changes += block.changes.len() as u64;
            tally.overwritten += block.changes.overwritten();
        }
        shown.update(block.height, tally);
    }
    Ok(())
}

/// Passes over a block that is in the archive, where it is the same.
fn pass_over(archive: &Archive, form: &mut Form, block: &Block, tally: &mut Tally) -> Result<(), Failure> {
    let height = block.height;
    let conflict = |reason| Err(Failure::Conflict { block: height, reason });
    let compared = match form.draft(archive, block)?.compare() {
        Err(error @ Error::UnexpectedRoot { .. }) => {
            return conflict(format!(
                "block {height} is in the archive already, and its header is another one: {error}"
            ));
        }
        compared => compared?,
    };
    match compared {
        Comparison::Same => {}
        Comparison::Contained => tally.contained += 1,
        Comparison::Pruned => tally.pruned += 1,
        Comparison::NoBlock | Comparison::NotCommitted => {
            let head = archive.reader().head().unwrap_or_default();
            return conflict(format!("block {height} lies below the head ({head}) and cannot be inserted"));
        }
        Comparison::Different(difference) => {
            let told = told(&form.names, block, &difference);
            return conflict(format!("block {height} is in the archive already and differs: {told}"));
        }
    }
    tally.skipped += 1;
    Ok(())
}

/// What differs, and where it stands in the input.
fn told(names: &[String], block: &Block, difference: &Difference) -> String {
    let written = |written: &Written| match written {
        Written::Nothing => "no change of it".to_owned(),
        Written::Deletion => "a deletion".to_owned(),
        Written::Value(value) => brief(value),
    };
    let key = Face::Readable.line(&difference.key);
    let domain = names.iter().position(|name| *name == difference.domain);
    let place = block.place_of(domain.unwrap_or(usize::MAX), &difference.key);
    let (given, held) = (written(&difference.given), written(&difference.held));
    format!("key {key} of {}: {given} in {place}, {held} in the archive", difference.domain)
}

/// Finishes what the archive does beside the ingest, so that what it leaves does not hang on how fast either was.
fn tidy(archive: &Archive) -> Result<(), Failure> {
    archive.emit()?;
    archive.merge(&MergeOptions::default(), &Bars::new())?;
    archive.reindex(ReindexRule::Current, None, &Bars::new())?;
    Ok(())
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
