//! `icecore unwind`.

use std::path::PathBuf;

use serde_json::json;

use super::open_for_upkeep;
use crate::encoding::hex;
use crate::exit::{Exit, Outcome};
use crate::print::Out;
use crate::progress::Bars;

/// Forget the blocks above a height, as a chain reorganisation asks.
#[derive(clap::Args)]
#[command(after_help = "\
Cheap inside the reorg window; deeper, the segments that hold the blocks are
rewritten. Between two blocks the height means the lower one.

Example:
  icecore unwind chain.ice --to 1000000")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// The block that is to be the newest
    #[arg(long, value_name = "N")]
    to: u64,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let archive = open_for_upkeep(&args.dir)?;
    let before = archive.reader().head();
    archive.unwind(args.to, &Bars::new())?;
    let view = archive.reader().latest()?;
    let root = hex(&view.root()?.0);
    archive.close()?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "head_before": before, "head": view.block(), "root": root }))?;
    } else {
        let before = before.map_or_else(|| "none".to_owned(), |head| head.to_string());
        out.line(format_args!("head {before} -> {}, root {root}", view.block()))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
