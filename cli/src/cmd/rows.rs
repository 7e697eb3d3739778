//! `icecore rows`.

use std::path::PathBuf;

use icecore::{Commitment, RowsReport, RowsRule};
use serde_json::json;

use super::create::is_by_path;
use super::open_for_upkeep;
use crate::ask::open_for_one_read;
use crate::exit::{Exit, Failure, Outcome};
use crate::print::{Out, count, plural};
use crate::progress::Bars;

/// Tell whether an archive keeps rows of its tree, from which every block is proven, or build those of Ethereum.
#[derive(clap::Args)]
#[command(after_help = "\
--build gives rows to an archive that was made with --rows off, and the blocks
to come get theirs. Every block is applied again and its root compared with
the recorded one; this takes the memory of a writer. It can be stopped at any
moment, and the same command goes on where it was. Readers are not disturbed:
a proof is right all the time, and fast as soon as its block has rows. Of an
archive that was pruned the blocks that are left get rows. Where rows are kept
already nothing is done; with --again they are dropped and built anew, which
repairs rows that are wrong.

Examples:
  icecore rows state.ice            whether there are rows
  icecore rows state.ice --build")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Build the rows that are missing
    #[arg(long)]
    build: bool,
    /// Also where there are rows: drop them first
    #[arg(long, requires = "build")]
    again: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut out = Out::new();
    if args.build {
        let rule = if args.again { RowsRule::Again } else { RowsRule::Missing };
        let archive = open_for_upkeep(&args.dir)?;
        let had_rows = archive.reader().keeps_rows();
        let built = archive.build_rows(rule, &Bars::new());
        let closed = archive.close();
        let report = built?;
        closed?;
        tell_built(args, &mut out, &report, had_rows)?;
    } else {
        let reader = open_for_one_read(&args.dir)?;
        let (commitment, rows) = (reader.commitment(), reader.keeps_rows());
        if commitment != Commitment::Ethereum && !is_by_path(reader.domains()) {
            let path = args.dir.display();
            return Err(Failure::usage(format!(
                "{path} has the commitment {commitment}: rows are of the tries of Ethereum, or of domains by path"
            )));
        }
        if args.json {
            out.json(&json!({ "rows": rows }))?;
        } else if rows {
            out.line("rows at every block")?;
        } else {
            out.line("no rows, or not at every block: a proof rebuilds the tree of its block; --build builds rows for Ethereum")?;
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn tell_built(args: &Args, out: &mut Out, report: &RowsReport, had_rows: bool) -> Result<(), Failure> {
    let RowsReport { first, blocks, updates, .. } = *report;
    if args.json {
        out.json(&json!({ "rows": true, "first": first, "blocks": blocks, "updates": updates }))?;
    } else if had_rows && !args.again {
        out.summary("rows are kept at every block already: nothing was done")?;
    } else {
        let from = first.map_or_else(String::new, |first| format!(", from block {first} on"));
        let blocks = plural(blocks, "block");
        out.summary(format_args!("rows of {blocks} built{from}: {} changes applied", count(updates)))?;
    }
    Ok(())
}
