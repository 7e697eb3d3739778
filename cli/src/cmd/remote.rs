//! `icecore remote`: what a bucket holds, whether it is right, what nobody names any more.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use icecore::remote::{Bucket, BucketReport, GcOptions, RemoteOptions, default_cache, gc, list, verify};
use icecore::{ErrorKind, Reader};
use serde_json::json;

use crate::bucket::{BucketArgs, ENVIRONMENT, TrustArgs, signed_by, tell_requests};
use crate::encoding::{printable, quoted};
use crate::exit::{Exit, Failure, Outcome};
use crate::number::{ByteSize, at_least_one};
use crate::print::{Out, bytes, count, plural, table};
use crate::progress::Bars;

const HOUR: u64 = 60 * 60;

/// Look at a bucket: what it holds, whether every byte is right, what nobody names any more.
#[derive(clap::Args)]
#[command(after_help = format!("\
{ENVIRONMENT}

Examples:
  icecore remote ls s3://bucket/chain
  icecore remote verify s3://bucket/chain --pubkey minisign.pub
  icecore remote verify s3://bucket/chain --blocks --cache-size 100GiB
  icecore remote gc s3://bucket/chain --dry-run"))]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// List the archives of a bucket, or the one that --archive names
    Ls(Ls),
    /// Read every object of the newest generation and compare it with its hashes
    Verify(Verify),
    /// Remove objects that no kept generation names
    Gc(Gc),
}

#[derive(clap::Args)]
struct Ls {
    /// The bucket
    url: String,
    #[command(flatten)]
    bucket: BucketArgs,
    /// Print a line of JSON for each archive
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Verify {
    /// The bucket
    url: String,
    #[command(flatten)]
    bucket: TrustArgs,
    /// How many files are read at once
    #[arg(long, short, value_name = "N", default_value = "8", value_parser = at_least_one)]
    jobs: usize,
    /// Then compare what each block changed with the digest recorded with its root, as `icecore verify DIR` does: reads every entry in place
    /// once more
    #[arg(long)]
    blocks: bool,
    /// Where --blocks keeps what it reads [default: icecore in the cache folder of the user]
    #[arg(long, value_name = "DIR", requires = "blocks")]
    cache: Option<PathBuf>,
    /// How much of its disk that may take
    #[arg(long, value_name = "BYTES", default_value = "20GiB", requires = "blocks")]
    cache_size: ByteSize,
    /// Tell what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Gc {
    /// The bucket
    url: String,
    #[command(flatten)]
    bucket: BucketArgs,
    /// How many generations of each archive stay whole, at least 1
    #[arg(long, value_name = "N", default_value = "8", value_parser = at_least_one)]
    keep: usize,
    /// Hours that an object stays which nothing names: longer than any push takes, at least 2
    #[arg(long, value_name = "HOURS", default_value_t = 7 * 24)]
    grace: u64,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.task {
        Task::Ls(args) => ls(args),
        Task::Verify(args) => verify_as_asked(args),
        Task::Gc(args) => collect(args),
    }
}

fn ls(args: &Ls) -> Outcome {
    let bucket = args.bucket.open(&args.url)?;
    let mut archives = list(&bucket)?;
    tell_requests(&bucket);
    if let Some(name) = args.bucket.archive() {
        archives.retain(|archive| archive.name == name);
    }
    if archives.is_empty() {
        let name =
            args.bucket.archive().map_or(String::new(), |name| format!(" by the name {}", quoted(name)));
        return Err(Failure::usage(format!(
            "there is no archive{name} in {}: check the URL; `icecore push DIR URL` puts one there",
            args.url
        )));
    }
    let mut out = Out::new();
    if args.json {
        for archive in &archives {
            out.json(&json!({
                "name": archive.name,
                "generation": archive.generation,
                "first": archive.range.map(|(first, _)| first),
                "head": archive.range.map(|(_, head)| head),
                "domains": archive.domains,
                "signer": archive.signer,
                "segments": archive.segments,
                "bytes": archive.bytes,
                "opening_bytes": archive.opening_bytes,
            }))?;
        }
    } else {
        let rows = archives.iter().map(|archive| {
            let range = archive.range.map_or("-".to_owned(), |(first, head)| format!("{first}-{head}"));
            [
                archive.name.clone(),
                archive.generation.to_string(),
                range,
                count(archive.segments),
                bytes(archive.bytes),
                bytes(archive.opening_bytes),
                archive.signer.clone().unwrap_or("-".to_owned()),
                archive.domains.join(","),
            ]
        });
        let columns =
            ["ARCHIVE", ">GENERATION", ">BLOCKS", ">SEGMENTS", ">BYTES", ">OPENING", "SIGNER", "DOMAINS"];
        out.line(table(columns, rows))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Verifies the newest generation of a bucket.
pub(super) fn check(bucket: &Bucket, url: &str, jobs: usize, as_json: bool) -> Outcome {
    let report = verify(bucket, jobs, &Bars::new())?;
    tell_requests(bucket);
    tell_report(&report, url, as_json)
}

fn verify_as_asked(args: &Verify) -> Outcome {
    let bucket = args.bucket.open(&args.url)?;
    let mut report = verify(&bucket, args.jobs, &Bars::new())?;
    // What damaged objects say of blocks is nothing.
    if args.blocks && report.problems.is_empty() {
        let cache = args.cache.clone().unwrap_or_else(default_cache);
        let options = RemoteOptions::new(cache).cache_size(args.cache_size.0).generation(report.generation);
        let checked =
            Reader::open_remote(&bucket, &options).and_then(|reader| reader.verify_blocks(&Bars::new()));
        match checked {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                report.problems.push(Failure::Archive(error).to_string());
            }
            checked => checked?,
        }
    }
    tell_requests(&bucket);
    tell_report(&report, &args.url, args.json)
}

fn tell_report(report: &BucketReport, url: &str, as_json: bool) -> Outcome {
    let mut out = Out::new();
    if as_json {
        out.json(&json!({
            "generation": report.generation,
            "generations": report.generations,
            "signer": report.signer,
            "files": report.files,
            "bytes": report.bytes,
            "problems": report.problems,
        }))?;
    } else {
        for problem in &report.problems {
            out.line(format_args!("damage: {}", printable(problem)))?;
        }
        out.summary(format_args!(
            "generation {}: {} sound ({}), a chain of {}, {}",
            report.generation,
            plural(report.files, "file"),
            bytes(report.bytes),
            plural(report.generations, "generation"),
            signed_by(report.signer.as_deref()),
        ))?;
    }
    out.flush()?;
    match report.problems.len() as u64 {
        0 => Ok(Exit::Done),
        some => Err(Failure::Damage(format!("{} in {}", plural(some, "problem"), url))),
    }
}

fn collect(args: &Gc) -> Outcome {
    if args.bucket.archive().is_some() {
        return Err(Failure::usage(
            "gc takes all archives of a bucket together, which share objects: leave --archive out",
        ));
    }
    let bucket = args.bucket.open(&args.url)?;
    let grace = Duration::from_secs(args.grace.saturating_mul(HOUR));
    let options = GcOptions::new().keep(args.keep).grace(grace).dry_run(args.dry_run);
    let report = gc(&bucket, &options)?;
    tell_requests(&bucket);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "kept": report.kept,
            "bytes_kept": report.bytes_kept,
            "young": report.young,
            "dry_run": args.dry_run,
            "removed": report.removed,
            "bytes_removed": report.bytes_removed,
        }))?;
    } else {
        let verb = if args.dry_run { "would go" } else { "removed" };
        out.summary(format_args!(
            "{} {verb} ({}), {} named ({}), {} too young",
            plural(report.removed, "object"),
            bytes(report.bytes_removed),
            report.kept,
            bytes(report.bytes_kept),
            report.young,
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
