//! `icecore unwind`.

use std::path::PathBuf;

use icecore::UnwindPlan;
use serde_json::json;

use super::{open_for_upkeep, plan};
use crate::ask::open_for_one_read;
use crate::encoding::hex;
use crate::exit::{Exit, Outcome};
use crate::number::Height;
use crate::print::{Out, plural};
use crate::progress::Bars;

/// Forget the blocks above a height, as a chain reorganisation asks.
#[derive(clap::Args)]
#[command(after_help = "\
Cheap inside the reorg window; deeper, the segments that hold the blocks are
rewritten. Between two blocks the height means the lower one. --to -N forgets
the newest N. The lowest block that the archive has stays: without any block it
would be another archive, which `icecore create` makes.

Examples:
  icecore unwind chain.ice --to 1000000 --dry-run   how many blocks would go
  icecore unwind chain.ice --to 1000000")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// The block that is to be the newest
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    to: Height,
    /// Only say what would be done; takes no lock and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

fn dry_run(args: &Args) -> Outcome {
    let reader = open_for_one_read(&args.dir)?;
    let plan = reader.plan_unwind(args.to.resolve(&reader)?)?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "head_before": plan.head,
            "head": plan.new_head,
            "blocks_dropped": plan.blocks_dropped,
            "emitted_blocks_dropped": plan.emitted_blocks_dropped,
            "segments_dropped": plan.segments_dropped,
            "rewrites": plan::as_json(&plan.rewrites, plan.free_space),
            "free_bytes": plan.free_space,
        }))?;
    } else {
        let (before, head) = (plan.head, plan.new_head);
        out.line(format_args!("head {before} -> {head}, {} would be forgotten", dropped(&plan)))?;
        plan::print(&mut out, "unwind", &plan.rewrites, plan.free_space)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn dropped(plan: &UnwindPlan) -> String {
    let blocks = plural(plan.blocks_dropped, "block");
    match plan.emitted_blocks_dropped {
        0 => blocks,
        emitted => format!("{blocks} ({emitted} of them in segments)"),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.dry_run {
        return dry_run(args);
    }
    let archive = open_for_upkeep(&args.dir)?;
    let to = args.to.resolve(archive.reader())?;
    let plan = archive.reader().plan_unwind(to)?;
    let before = archive.reader().head();
    archive.unwind(to, &Bars::new())?;
    let view = archive.reader().latest()?;
    let root = hex(&view.root()?.0);
    archive.close()?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "head_before": before,
            "head": view.height(),
            "root": root,
            "blocks_dropped": plan.blocks_dropped,
            "emitted_blocks_dropped": plan.emitted_blocks_dropped,
        }))?;
    } else {
        let before = before.map_or_else(|| "none".to_owned(), |head| head.to_string());
        out.summary(format_args!(
            "head {before} -> {}, {} forgotten, root {root}",
            view.height(),
            dropped(&plan)
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
