//! What an ingest did, counted while it runs and told at its end.

use std::path::PathBuf;

use icecore::Root;
use serde_json::json;

use crate::encoding::hex;
use crate::exit::{Exit, Outcome};
use crate::notes::note;
use crate::print::{Out, count, plural};

/// What was done so far.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) blocks: u64,
    pub(super) changes: u64,
    /// Of these, changes of a key that the same block changes again.
    pub(super) overwritten: u64,
    pub(super) skipped: u64,
    /// Of these, blocks of which the archive may have more.
    pub(super) contained: u64,
    /// Of these, blocks that pruning took.
    pub(super) pruned: u64,
    pub(super) root: Option<Root>,
}

/// Says that there was nothing to do, which may be a mistake of whoever wrote the files.
pub(super) fn tell_empty(files: &[PathBuf]) {
    match files {
        [file] if file.as_os_str() == "-" => note("standard input has no lines"),
        [file] => note(format_args!("{} has no lines", file.display())),
        _ => note("none of the files has a line"),
    }
}

/// Says what was passed over without being compared in full.
pub(super) fn tell_unknown(tally: &Tally) {
    if tally.contained > 0 {
        let blocks = plural(tally.contained, "block");
        note(format_args!(
            "of {blocks} all changes are in the archive, but whether it has others there is not known: they were written \
             by an earlier version, or pruning dropped some"
        ));
    }
    if tally.pruned > 0 {
        let blocks = plural(tally.pruned, "block");
        note(format_args!(
            "{blocks} below the first that the archive keeps were passed over and not compared"
        ));
    }
}

/// Says what was done.
pub(super) fn summarise(
    tally: &Tally,
    head: Option<u64>,
    root: Option<Root>,
    seconds: f64,
    as_json: bool,
) -> Outcome {
    let rate = tally.changes as f64 / seconds.max(1e-9);
    let root = root.map(|root| hex(&root.0));
    let mut out = Out::new();
    if as_json {
        out.json(&json!({
            "blocks": tally.blocks,
            "changes": tally.changes,
            "changes_overwritten": tally.overwritten,
            "blocks_skipped": tally.skipped,
            "blocks_not_compared": tally.contained + tally.pruned,
            "head": head,
            "root": root,
            "seconds": seconds,
            "changes_per_second": rate,
        }))?;
    } else {
        let skipped = match tally.skipped {
            0 => String::new(),
            skipped => format!("; {} already in the archive and passed over", plural(skipped, "block")),
        };
        let overwritten = match tally.overwritten {
            0 => String::new(),
            some => format!(" ({} overwritten in the same block)", count(some)),
        };
        out.summary(format_args!(
            "{}, {}{overwritten} in {seconds:.2} s ({} changes/s){skipped}",
            plural(tally.blocks, "block"),
            plural(tally.changes, "change"),
            count(rate as u64)
        ))?;
        match (head, root) {
            (Some(head), Some(root)) => out.summary(format_args!("head {head}, root {root}"))?,
            _ => out.summary("the archive has no block yet")?,
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
