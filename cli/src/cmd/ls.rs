//! `icecore ls`.

use std::path::Path;

use icecore::{Encoding, SegmentInfo};
use serde_json::json;

use crate::encoding::printable;
use crate::exit::{Exit, Failure, Outcome};
use crate::place::{ONE_READ, Place};
use crate::print::{Out, bytes, count, plural, table};

/// List the segments: what they cover, how large their files are and how dense their indexes. Exit code 4: a file is missing or
/// damaged.
#[derive(clap::Args)]
#[command(after_help = "\
STEPS are half-open, BLOCKS are not: 0-64 are the steps 0 to 63, 1-4095 the
blocks from 1 to 4095. M is the number of entries for each pivot of the .bt,
BITS the width of a fingerprint in the .kvei. The domains _roots and _nodes
are the archive's own: the roots of all blocks, and the nodes that proofs are
made from. They cannot be scanned. Of a partial copy, `not held` are segments that did not
come with the pull: what they cover, and how large their files are elsewhere.

Examples:
  icecore ls chain.ice
  icecore ls chain.ice --json | jq -s 'map(.kv_bytes) | add'")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Only this domain
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    /// Print a line of JSON for each segment
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let reader = args.place.open(ONE_READ)?;
    let mut segments = reader.segments();
    if let Some(domain) = &args.domain {
        segments.retain(|segment| segment.domain == *domain);
        if segments.is_empty() {
            // One that is not declared has none either.
            reader.domain(domain)?;
        }
    }
    let mut out = Out::new();
    if args.json {
        for segment in &segments {
            out.json(&as_json(segment))?;
        }
    } else if segments.is_empty() {
        out.line("no segments yet: every step is in memory and in the write-ahead log")?;
    } else {
        out.line(listing(&segments))?;
        for segment in &segments {
            if let Some(problem) = &segment.problem {
                out.line(format_args!("damage: {}", printable(problem)))?;
            }
        }
    }
    out.flush()?;
    args.place.tell_cost(&reader);
    damage_in(&args.place.dir, segments.iter().filter(|segment| segment.problem.is_some()).count())
}

/// How a listing ends that has told this many problems.
pub(crate) fn damage_in(dir: &Path, problems: usize) -> Outcome {
    match problems as u64 {
        0 => Ok(Exit::Done),
        some => Err(Failure::Damage(format!("{} in {}", plural(some, "problem"), dir.display()))),
    }
}

/// The segments as a table.
pub(crate) fn listing(segments: &[SegmentInfo]) -> String {
    table(
        [
            "DOMAIN", ">STEPS", ">BLOCKS", ">ENTRIES", ">KEYS", ">.KV", ">.BT", ">.KVEI", ">.KVBI",
            "ENCODING", ">M", ">BITS",
        ],
        segments.iter().map(|segment| {
            [
                segment.domain.clone(),
                segment.steps.to_string(),
                format!("{}-{}", segment.blocks.0, segment.blocks.1),
                if segment.is_held { count(segment.entries) } else { "not held".to_owned() },
                if segment.is_held { count(segment.keys) } else { String::new() },
                bytes(segment.kv_bytes),
                bytes(segment.bt_bytes),
                bytes(segment.kvei_bytes),
                bytes(segment.kvbi_bytes),
                if segment.is_held { encoding_name(segment.encoding).to_owned() } else { String::new() },
                segment.m.to_string(),
                segment.filter_bits.to_string(),
            ]
        }),
    )
}

/// The name of an encoding.
pub(crate) fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Plain => "plain",
        Encoding::Zstd => "zstd",
    }
}

fn as_json(segment: &SegmentInfo) -> serde_json::Value {
    // What only the files of a segment tell is null where they are not here.
    let known = |value| if segment.is_held { value } else { serde_json::Value::Null };
    json!({
        "domain": segment.domain,
        "steps": [segment.steps.from().0, segment.steps.to().0],
        "blocks": [segment.blocks.0, segment.blocks.1],
        "is_held": segment.is_held,
        "entries": known(json!(segment.entries)),
        "keys": known(json!(segment.keys)),
        "deletions": known(json!(segment.deletions)),
        "pages": known(json!(segment.pages)),
        "kv_bytes": segment.kv_bytes,
        "bt_bytes": segment.bt_bytes,
        "kvei_bytes": segment.kvei_bytes,
        "kvbi_bytes": segment.kvbi_bytes,
        "encoding": known(json!(encoding_name(segment.encoding))),
        "m": segment.m,
        "filter_bits": segment.filter_bits,
        "files": segment.files,
        "block_index": segment.block_index,
        "problem": segment.problem,
    })
}
