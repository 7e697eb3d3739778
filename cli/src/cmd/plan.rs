//! What `--dry-run` prints of the segments that would be written.

use icecore::RewritePlan;
use serde_json::json;

use crate::exit::{Exit, Outcome};
use crate::print::{Out, bytes, count, plural, table};

/// Lists the segments that `verb` would write, and says whether the file system has room for the largest.
pub(crate) fn print(verb: &str, plans: &[RewritePlan], free_space: Option<u64>, as_json: bool) -> Outcome {
    let mut out = Out::new();
    if as_json {
        for plan in plans {
            out.json(&json!({
                "segment": plan.segment,
                "inputs": plan.inputs,
                "entries": plan.entries,
                "bytes_read": plan.bytes_read,
                "bytes_needed": plan.bytes_needed,
                "fits": free_space.map(|free| plan.bytes_needed <= free),
            }))?;
        }
    } else {
        if !plans.is_empty() {
            out.line(table(["SEGMENT", ">INPUTS", ">ENTRIES", ">READS", ">NEEDS"], plans.iter().map(row)))?;
        }
        let largest = plans.iter().map(|plan| plan.bytes_needed).max().unwrap_or(0);
        let free = free_space.map_or_else(|| "unknown".to_owned(), bytes);
        out.line(format_args!(
            "{} would be written by {verb}; needs up to {} at once, free: {free}",
            plural(plans.len() as u64, "segment"),
            bytes(largest),
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn row(plan: &RewritePlan) -> [String; 5] {
    [
        plan.segment.clone(),
        plan.inputs.len().to_string(),
        count(plan.entries),
        bytes(plan.bytes_read),
        bytes(plan.bytes_needed),
    ]
}
