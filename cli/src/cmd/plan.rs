//! What `--dry-run` says of the segments that would be written.

use icecore::RewritePlan;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::print::{Out, bytes, count, plural, table};

/// Lists the segments that `verb` would write, and says whether the file system has room for the largest.
pub(crate) fn print(
    out: &mut Out,
    verb: &str,
    plans: &[RewritePlan],
    free_space: Option<u64>,
) -> Result<(), Failure> {
    if !plans.is_empty() {
        out.line(table(["SEGMENT", ">INPUTS", ">ENTRIES", ">READS", ">NEEDS"], plans.iter().map(row)))?;
    }
    let largest = plans.iter().map(|plan| plan.bytes_needed).max().unwrap_or(0);
    let free = free_space.map_or_else(|| "unknown".to_owned(), bytes);
    out.line(format_args!(
        "{} would be written by {verb}; needs up to {} at once, free: {free}",
        plural(plans.len() as u64, "segment"),
        bytes(largest),
    ))
}

/// The same as a member of a JSON document.
pub(crate) fn as_json(plans: &[RewritePlan], free_space: Option<u64>) -> Value {
    let plan = |plan: &RewritePlan| {
        json!({
            "segment": plan.segment,
            "inputs": plan.inputs,
            "entries": plan.entries,
            "bytes_read": plan.bytes_read,
            "bytes_needed": plan.bytes_needed,
            "fits": free_space.map(|free| plan.bytes_needed <= free),
        })
    };
    plans.iter().map(plan).collect()
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
