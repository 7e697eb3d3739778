//! `icecore prune`.

use std::path::PathBuf;

use icecore::Archive;
use serde_json::json;

use super::plan;
use super::upkeep::UpkeepArgs;
use crate::ask::open_for_one_read;
use crate::exit::{Exit, Outcome};
use crate::number::Height;
use crate::print::{Out, bytes, plural};
use crate::progress::Bars;

/// Forget the versions that no block at or above a height can see. The state at that height stays whole.
#[derive(clap::Args)]
#[command(after_help = "\
Blocks below the height are out of range from then on (exit code 3).

The lowest block that stays is the newest at or below the height. One domain
is rewritten after the other, the smallest first, so that space is freed as
it goes.

On a full disk pruning begins with a reserve that every archive keeps for it
(the file RESERVE), drops what goes whole, and then rewrites what fits. Where
that is not enough (exit code 6), what was freed stays freed:
  icecore prune DIR --before N --dry-run    says what it needs and what is free
  icecore prune DIR --before HIGHER         leaves less to be written
  icecore unwind DIR --to N                 drops the newest blocks
  icecore checkpoint DIR /other/disk/COPY   goes on with a copy elsewhere

Examples:
  icecore prune chain.ice --before 1000000 --dry-run
  icecore prune chain.ice --before 1000000")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// The lowest block that is to stay readable
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    before: Height,
    #[command(flatten)]
    upkeep: UpkeepArgs,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

fn dry_run(args: &Args) -> Outcome {
    let reader = open_for_one_read(&args.dir)?;
    let plan = reader.plan_prune(args.before.resolve(&reader)?)?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "first": plan.floor,
            "blocks_dropped": plan.blocks_dropped,
            "versions_dropped": plan.versions_dropped,
            "segments_dropped": plan.segments_dropped,
            "rewrites": plan::as_json(&plan.rewrites, plan.free_space),
            "free_bytes": plan.free_space,
        }))?;
    } else {
        out.line(format_args!(
            "{} and {} would be forgotten, {} dropped whole; block {} would be the lowest",
            plural(plan.blocks_dropped, "block"),
            plural(plan.versions_dropped, "version"),
            plural(plan.segments_dropped.len() as u64, "segment"),
            plan.floor,
        ))?;
        plan::print(&mut out, "prune", &plan.rewrites, plan.free_space)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.upkeep.dry_run {
        return dry_run(args);
    }
    let work = |archive: &Archive| {
        let before = archive.reader().stats();
        archive.prune(args.before.resolve(archive.reader())?, &Bars::new())?;
        Ok((before, archive.reader().stats(), archive.reader().range()))
    };
    args.upkeep.run(&args.dir, work, |(before, after, range)| {
        let forgotten = before.entries.saturating_sub(after.entries);
        let mut out = Out::new();
        if args.json {
            out.json(&json!({
                "first": range.map(|range| range.0),
                "head": range.map(|range| range.1),
                "versions_forgotten": forgotten,
                "kv_bytes_before": before.kv_bytes,
                "kv_bytes_after": after.kv_bytes,
            }))?;
        } else {
            let (first, head) = range.unwrap_or_default();
            out.summary(format_args!(
                "{} forgotten, .kv {} -> {}; blocks {first} to {head} stay",
                plural(forgotten, "version"),
                bytes(before.kv_bytes),
                bytes(after.kv_bytes),
            ))?;
        }
        out.flush()?;
        Ok(Exit::Done)
    })
}
