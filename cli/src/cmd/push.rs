//! `icecore push`.

use std::path::PathBuf;

use icecore::remote::{PushOptions, push};
use serde_json::json;

use crate::bucket::{BucketArgs, ENVIRONMENT, blocks, tell_requests};
use crate::exit::{Exit, Outcome};
use crate::number::at_least_one;
use crate::print::{Out, bytes, plural};
use crate::progress::Bars;
use crate::sign::SignArgs;

/// Publish the segments of an archive in object storage, also beside a running writer.
#[derive(clap::Args)]
#[command(after_help = format!("\
What was emitted goes up; the newest steps and the window stay with the
writer. What the bucket has does not go up again, and a push that was killed
is taken up by the next. Of two pushers one wins; the other is told.

What was published stays what it is: an archive that lacks blocks of the
bucket, has others in their place, or was pruned above the first of them is
refused. With --allow-rewind it becomes the newest generation all the same.

With --sign what is published is signed, for readers that give the public key
with --pubkey: whoever else can write to the bucket changes nothing for them.
`minisign -G` makes a pair of keys. After a signed push an unsigned one, or one
by another key, is refused.

{ENVIRONMENT}

Examples:
  icecore push chain.ice s3://bucket/chain
  icecore push chain.ice s3://bucket/chain --endpoint http://localhost:7070
  icecore push chain.ice s3://bucket/chain --sign ~/.minisign/minisign.key
  icecore push chain.ice file:///mnt/shared/chain --dry-run"))]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// The bucket
    url: String,
    #[command(flatten)]
    bucket: BucketArgs,
    #[command(flatten)]
    sign: SignArgs,
    /// How many files go up at once
    #[arg(long, short, value_name = "N", default_value = "8", value_parser = at_least_one)]
    jobs: usize,
    /// Only say what would go up
    #[arg(long)]
    dry_run: bool,
    /// Publish also where published blocks go: newer steps, blocks that others replaced, or that were pruned
    #[arg(long)]
    allow_rewind: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let bucket = args.bucket.open(&args.url)?;
    let options = PushOptions::new().jobs(args.jobs).dry_run(args.dry_run).allow_rewind(args.allow_rewind);
    let options = args.sign.apply(options)?;
    let report = push(&args.dir, &bucket, &options, &Bars::new())?;
    tell_requests(&bucket);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "generation": report.generation,
            "is_new": report.is_new,
            "first": report.range.map(|(first, _)| first),
            "head": report.range.map(|(_, head)| head),
            "files_sent": report.files_sent,
            "bytes_sent": report.bytes_sent,
            "files_present": report.files_present,
            "bytes_present": report.bytes_present,
        }))?;
    } else if report.range.is_none() {
        out.summary(format_args!("nothing to push yet: every block is in memory and in the log"))?;
    } else {
        let sent = format!("{} ({})", plural(report.files_sent, "file"), bytes(report.bytes_sent));
        let present = format!("{} there", plural(report.files_present, "file"));
        match (report.generation, report.is_new) {
            (Some(generation), true) => out.summary(format_args!(
                "generation {generation}: {}, {sent} sent, {present}",
                blocks(report.range)
            ))?,
            (Some(generation), false) => {
                out.summary(format_args!(
                    "nothing new: generation {generation} has {}",
                    blocks(report.range)
                ))?;
            }
            (None, _) => {
                out.summary(format_args!("{sent} would go up, {present}; {}", blocks(report.range)))?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
