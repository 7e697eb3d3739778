//! `icecore merge`.

use std::path::PathBuf;

use icecore::{Archive, MergeOptions};
use serde_json::json;

use super::plan;
use super::upkeep::UpkeepArgs;
use crate::ask::open_for_one_read;
use crate::exit::{Exit, Outcome};
use crate::print::{Out, plural};
use crate::progress::Bars;

/// Merge adjacent segments to aligned power-of-two step ranges. No answer changes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  icecore merge chain.ice
  icecore merge chain.ice --dry-run      what it would read, and the space it needs
  icecore merge chain.ice --domain storage --max-span 64")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Only this domain
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    /// Make no segment longer than this many steps
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    max_span: Option<u64>,
    #[command(flatten)]
    upkeep: UpkeepArgs,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let options =
        MergeOptions::new().domain(args.domain.as_deref()).span_max(args.max_span.unwrap_or(u64::MAX));
    if args.upkeep.dry_run {
        let plan = open_for_one_read(&args.dir)?.plan_merge(&options)?;
        let mut out = Out::new();
        if args.json {
            let merges = plan::as_json(&plan.merges, plan.free_space);
            out.json(&json!({ "merges": merges, "free_bytes": plan.free_space }))?;
        } else {
            plan::print(&mut out, "merge", &plan.merges, plan.free_space)?;
        }
        out.flush()?;
        return Ok(Exit::Done);
    }
    let work = |archive: &Archive| {
        let before = archive.reader().stats().segments;
        let merges = archive.merge(&options, &Bars::new())?;
        Ok((merges, before, archive.reader().stats().segments))
    };
    args.upkeep.run(&args.dir, work, |(merges, before, after)| {
        let mut out = Out::new();
        if args.json {
            out.json(&json!({ "merges": merges, "segments_before": before, "segments_after": after }))?;
        } else {
            let (merges, after) = (plural(merges, "merge"), plural(after, "segment"));
            out.summary(format_args!("{merges}: {before} -> {after}"))?;
        }
        out.flush()?;
        Ok(Exit::Done)
    })
}
