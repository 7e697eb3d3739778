//! `icecore root`.

use serde_json::json;

use crate::ask::warn_of_slow_reads;
use crate::encoding::hex;
use crate::exit::{Exit, Outcome};
use crate::number::Height;
use crate::place::{ONE_READ, Place};
use crate::print::Out;

/// Print the root of the state at a block: 32 bytes that stand for every key and value there.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  icecore root chain.ice
  icecore root chain.ice --at 17 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The height: N, 0x hex, latest, or -N for N below the newest block [default: latest]
    #[arg(long, short, alias = "block", value_name = "N", allow_hyphen_values = true)]
    at: Option<Height>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let reader = args.place.open(ONE_READ)?;
    let view = match args.at {
        Some(at) => reader.at(at.resolve(&reader)?)?,
        None => reader.latest()?,
    };
    let root = hex(&view.root()?.0);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "at": view.height(), "block": view.block()?, "root": root }))?;
    } else {
        out.line(root)?;
    }
    out.flush()?;
    warn_of_slow_reads(&reader);
    args.place.tell_cost(&reader);
    Ok(Exit::Done)
}
