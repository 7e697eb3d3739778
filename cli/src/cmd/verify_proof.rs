//! `icecore verify-proof`.

use std::path::PathBuf;

use icecore::{Proof, Root};
use serde_json::json;

use super::prove::Document;
use crate::encoding::Encoding;
use crate::exit::{Exit, Failure, Outcome};
use crate::input::Lines;
use crate::print::Out;

/// Check a proof that `icecore prove` wrote; needs no archive. Exit code 0: it holds, 1: it does not.
#[derive(clap::Args)]
#[command(after_help = "\
Without --root the proof is checked against the root that stands in it, which shows only that the two fit.

Examples:
  icecore verify-proof alice.json --root 0x5ac6..
  icecore prove chain.ice alice | icecore verify-proof -")]
pub(crate) struct Args {
    /// The proof; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// The root that must be proved, 0x hex
    #[arg(long, value_name = "HEX")]
    root: Option<String>,
    /// Tell the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut lines = Lines::of(vec![args.file]);
    let mut text = Vec::new();
    while let Some(line) = lines.next_line()? {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| lines.bad(format!("this is no proof: {error}")))?;
    let bad = |what: &str, reason: String| lines.bad(format!("{what}: {reason}"));
    let key = Encoding::Hex.bytes(&document.key).map_err(|reason| bad("key", reason))?;
    let value = document.value.as_deref().map(|value| Encoding::Hex.bytes(value)).transpose();
    let value = value.map_err(|reason| bad("value", reason))?;
    let proof = Encoding::Hex.bytes(&document.proof).map_err(|reason| bad("proof", reason))?;
    let expected = match &args.root {
        Some(root) => root_of(root).map_err(|reason| Failure::usage(format!("--root: {reason}")))?,
        None => root_of(&document.root).map_err(|reason| bad("root", reason))?,
    };
    let verdict = Proof::from_ics23_bytes(&proof)
        .and_then(|proof| proof.verify(&expected, &document.domain, &key, value.as_deref()));
    let mut out = Out::new();
    if args.json {
        let reason = verdict.as_ref().err().map(ToString::to_string);
        out.json(&json!({ "verified": verdict.is_ok(), "reason": reason }))?;
    } else {
        match &verdict {
            Ok(()) if value.is_some() => out.line("verified: the key has this value under this root")?,
            Ok(()) => out.line("verified: the key is absent under this root")?,
            Err(reason) => out.line(format_args!("not verified: {reason}"))?,
        }
    }
    out.flush()?;
    Ok(if verdict.is_ok() { Exit::Done } else { Exit::No })
}

fn root_of(text: &str) -> Result<Root, String> {
    let bytes = Encoding::Hex.bytes(text)?;
    bytes.try_into().map(Root).map_err(|_| "a root has 32 bytes".to_owned())
}
