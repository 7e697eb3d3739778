//! `icecore pull`.

use std::path::PathBuf;

use icecore::remote::{PullOptions, pull};
use serde_json::json;

use crate::bucket::{BucketArgs, ENVIRONMENT, Which, blocks, tell_requests};
use crate::exit::{Exit, Outcome};
use crate::print::{Out, bytes, plural};
use crate::progress::Bars;

/// Copy an archive from object storage to disk.
#[derive(clap::Args)]
#[command(after_help = format!("\
Every byte is compared with its hash and synced. A pull that was killed goes on
where it ended when the same command is given again.

{ENVIRONMENT}

Examples:
  icecore pull s3://bucket/chain chain.ice
  icecore pull file:///mnt/shared/chain chain.ice --generation 31"))]
pub(crate) struct Args {
    /// The bucket
    url: String,
    /// Where the copy goes; must not exist, be empty, or be an unfinished copy
    dir: PathBuf,
    #[command(flatten)]
    bucket: BucketArgs,
    /// An older generation than the newest
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Which accessors come; `icecore reindex DIR --rebuild` builds the others
    #[arg(long, value_enum, value_name = "WHICH", default_value = "all")]
    accessors: Which,
    /// How many files come at once
    #[arg(long, short, value_name = "N", default_value_t = 8)]
    jobs: usize,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let bucket = args.bucket.open(&args.url)?;
    let mut options = PullOptions::new().jobs(args.jobs).accessors(args.accessors.into());
    if let Some(generation) = args.generation {
        options = options.generation(generation);
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
        }))?;
    } else {
        out.summary(format_args!(
            "generation {}: {}, {} pulled ({})",
            report.generation,
            blocks(report.range),
            plural(report.files_pulled, "file"),
            bytes(report.bytes_pulled),
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
