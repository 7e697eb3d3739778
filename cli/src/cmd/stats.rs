//! `icecore stats`.

use icecore::{Commitment, default_resident_budget};
use serde_json::json;

use super::ls::damage_in;
use super::reindex::{rule_as_json, rule_name};
use crate::encoding::printable;
use crate::exit::Outcome;
use crate::place::{ONE_READ, Place};
use crate::print::{Out, bytes, count, plural, table};

/// Sum up what the archive holds. Exit code 4: a file is missing or damaged.
#[derive(clap::Args)]
#[command(after_help = "\
density is the rule for how many entries of a .kv each entry of its .bt stands
for; `icecore reindex` chooses it. Of a partial copy, versions and bytes are those
of the segments that are held.

Examples:
  icecore stats chain.ice
  icecore stats chain.ice --json | jq .head")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let reader = args.place.open(ONE_READ)?;
    let stats = reader.stats();
    let domains: Vec<_> = reader.domains().iter().map(|domain| domain.name.as_str()).collect();
    let mut out = Out::new();
    // Of a process that keeps the archive open, where nobody set another: this one reads nothing.
    let resident_budget = default_resident_budget();
    let accessors = stats.bt_bytes + stats.kvei_bytes;
    if args.json {
        out.json(&json!({
            "domains": domains,
            "blocks_per_step": reader.blocks_per_step(),
            "reorg_window": reader.reorg_window(),
            "snapshot_every": reader.snapshot_period(),
            "first": stats.first,
            "head": stats.head,
            "segments": stats.segments,
            "segments_not_held": stats.segments_not_held,
            "entries": stats.entries,
            "kv_bytes": stats.kv_bytes,
            "bt_bytes": stats.bt_bytes,
            "kvei_bytes": stats.kvei_bytes,
            "kvbi_bytes": stats.kvbi_bytes,
            "resident_budget": resident_budget,
            "node_bytes": stats.node_bytes,
            "commitment": reader.commitment().name(),
            "log_bytes": stats.log_bytes,
            "density": stats.rule.map(rule_as_json),
            "steps_in_memory": stats.steps_in_memory,
            "memory_bytes": stats.memory_bytes,
            "problems": stats.problems,
        }))?;
    } else {
        let blocks = match reader.range() {
            Some((first, head)) => format!("{first} to {head}"),
            None => "none yet".to_owned(),
        };
        let (nodes, kept) = match (reader.snapshot_period(), reader.commitment()) {
            (Some(blocks), _) => {
                ("snapshots", format!("every {}, part of the files above", plural(blocks.get(), "block")))
            }
            (None, _) if reader.keeps_rows() => {
                ("rows", "at every block, part of the files above".to_owned())
            }
            (None, Commitment::Ethereum) => (
                "nodes",
                "no rows, which `icecore rows DIR --build` builds; part of the files above".to_owned(),
            ),
            (None, _) => ("snapshots", "off".to_owned()),
        };
        let per_entry = |size: u64| match stats.entries {
            0 => String::new(),
            entries => format!("{:.2} B an entry", size as f64 / entries as f64),
        };
        let fits = accessors <= resident_budget;
        let read_at_opening = if fits { accessors } else { 0 };
        let of_budget = bytes(resident_budget);
        let resident = if fits {
            format!(".bt and .kvei; the budget is {of_budget}")
        } else {
            format!(".bt and .kvei are {}, the budget is {of_budget}", bytes(accessors))
        };
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let segments = match stats.segments_not_held {
            0 => count(stats.segments),
            elsewhere => format!("{}, {} not held", count(stats.segments), count(elsewhere)),
        };
        let rows = [
            ["domains".to_owned(), domains.join(", "), String::new()],
            ["commitment".to_owned(), reader.commitment().name().to_owned(), String::new()],
            ["blocks".to_owned(), blocks, format!("{} heights a step", count(reader.blocks_per_step()))],
            ["segments".to_owned(), segments, plural(stats.entries, "version")],
            [".kv".to_owned(), bytes(stats.kv_bytes), per_entry(stats.kv_bytes)],
            [".bt".to_owned(), bytes(stats.bt_bytes), per_entry(stats.bt_bytes)],
            [".kvei".to_owned(), bytes(stats.kvei_bytes), per_entry(stats.kvei_bytes)],
            [".kvbi".to_owned(), bytes(stats.kvbi_bytes), per_entry(stats.kvbi_bytes)],
            ["read at opening".to_owned(), bytes(read_at_opening), resident],
            [nodes.to_owned(), bytes(stats.node_bytes), kept],
            ["log".to_owned(), known(stats.log_bytes.map(bytes)), String::new()],
            ["in memory".to_owned(), bytes(stats.memory_bytes), plural(stats.steps_in_memory, "step")],
            ["density".to_owned(), String::new(), known(stats.rule.map(rule_name))],
        ];
        out.line(table(["", "", ""], rows))?;
        for problem in &stats.problems {
            out.line(format_args!("damage: {}", printable(problem)))?;
        }
    }
    out.flush()?;
    args.place.tell_cost(&reader);
    damage_in(&args.place.dir, stats.problems.len())
}
