//! `icecore pull`.

use std::path::PathBuf;

use icecore::remote::{PullOptions, pull};
use serde_json::json;

use crate::bucket::{ENVIRONMENT, TrustArgs, Which, blocks, tell_requests};
use crate::exit::{Exit, Outcome};
use crate::number::{Blocks, at_least_one};
use crate::print::{Out, bytes, count, plural};
use crate::progress::Bars;

/// Copy an archive from object storage to disk, as a whole or in part.
#[derive(clap::Args)]
#[command(after_help = format!("\
Every byte is compared with its hash and synced. A pull that was killed goes on
where it ended when the same command is given again.

With --domain or --blocks the copy is partial: it holds the segments of these
domains that have one of these blocks, as wholes, and the roots of all blocks.
Its heights are those of the archive. What needs a segment that is not held is
an error (exit code 3) that has the pull that brings it; `icecore ls` lists what
is held. It is for reading: nothing writes, merges, prunes or pushes it.

A key is found at the block that wrote it last, so --blocks ..B holds the state
at each block before B and all that changed it, and --blocks A..B finds the keys
that these blocks wrote and no others.

Proofs are made from _nodes, which come with all domains, or where they are named:
--domain account,_nodes proves accounts of Ethereum, with storage slots as well.
In other archives a proof may show a key of any domain, so that it needs all.

A partial copy is extended by another pull into it. What it held stays, whatever
is chosen then, and it moves on to the generation that is pulled. A pull without
--domain and --blocks makes it whole. A whole copy moves on as well, as long as
nobody wrote to it. Length and footer say which files are there; with --check,
and with --pubkey, all their bytes, and damaged ones are pulled again.

{ENVIRONMENT}

Examples:
  icecore pull s3://bucket/chain chain.ice
  icecore pull s3://bucket/chain chain.ice --pubkey minisign.pub
  icecore pull file:///mnt/shared/chain chain.ice --generation 31
  icecore pull s3://bucket/chain part.ice --domain account,_nodes --blocks ..20000000"))]
pub(crate) struct Args {
    /// The bucket
    url: String,
    /// Where the copy goes; must not exist, be empty, or be an unfinished copy or one that nobody wrote to
    dir: PathBuf,
    /// Only this domain; may be given several times, or as NAME,NAME [default: all]
    #[arg(long, short, value_name = "NAME", value_delimiter = ',')]
    domain: Vec<String>,
    /// Only segments with one of these blocks: A..B without B, A..=B with it; either may be left out [default: all]
    #[arg(long, value_name = "A..B")]
    blocks: Option<Blocks>,
    #[command(flatten)]
    bucket: TrustArgs,
    /// An older generation than the newest
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Which accessors come; `icecore reindex DIR --rebuild` builds the others, or for a partial copy another pull brings them
    #[arg(long, value_enum, value_name = "WHICH", default_value = "all")]
    accessors: Which,
    /// Compare the files that are there as well, and pull damaged ones again
    #[arg(long)]
    check: bool,
    /// How many files come at once
    #[arg(long, short, value_name = "N", default_value = "8", value_parser = at_least_one)]
    jobs: usize,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let bucket = args.bucket.open(&args.url)?;
    let mut options = PullOptions::new().jobs(args.jobs).accessors(args.accessors.into()).check(args.check);
    if let Some(generation) = args.generation {
        options = options.generation(generation);
    }
    for domain in &args.domain {
        options = options.domain(domain);
    }
    if let Some(blocks) = args.blocks {
        options = options.blocks(blocks);
    }
    let report = pull(&bucket, &args.dir, &options, &Bars::new())?;
    tell_requests(&bucket);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "generation": report.generation,
            "first": report.range.map(|(first, _)| first),
            "head": report.range.map(|(_, head)| head),
            "files_pulled": report.files_pulled,
            "bytes_pulled": report.bytes_pulled,
            "files_present": report.files_present,
            "segments": report.segments,
            "segments_held": report.segments_held,
            "segments_kept": report.segments_kept,
        }))?;
    } else {
        out.summary(format_args!(
            "generation {}: {}, {} pulled ({})",
            report.generation,
            blocks(report.range),
            plural(report.files_pulled, "file"),
            bytes(report.bytes_pulled),
        ))?;
        if report.segments_held < report.segments {
            out.summary(format_args!(
                "a partial copy: it holds {} of {}; `icecore ls` lists them",
                count(report.segments_held),
                plural(report.segments, "segment"),
            ))?;
        }
        if report.segments_kept > 0 {
            let kept = plural(report.segments_kept, "segment");
            out.summary(format_args!("of it {kept} held before and not asked for now"))?;
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
