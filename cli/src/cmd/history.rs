//! `icecore history`.

use serde_json::json;

use crate::ask::Asked;
use crate::encoding::{Encoding, RULE};
use crate::exit::{Exit, Outcome};
use crate::number::{HEIGHT_FORMS, Height};
use crate::place::{ONE_READ, Place};
use crate::print::Out;

/// Print all versions of a key, newest first: the block that wrote it, a tab, the value or `-` for a deletion.
/// Exit code 1: the key has no version.
#[derive(clap::Args)]
#[command(after_help = format!("In an archive of the profile ethereum the domains balance, nonce and code, with
an address, are the fields of that account: a line for each block that changed
the field.

{RULE}

{HEIGHT_FORMS}

Examples:
  icecore history chain.ice alice
  icecore history eth.ice 0x00000961ef480eb55e80d19ad83579a64c007002 \\
      --domain nonce --at 100 --json
  icecore history state.ice 0x00000961ef480eb55e80d19ad83579a64c007002 \\
      --domain account"))]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The key
    key: String,
    /// The domain; may be left out where the archive has one
    #[arg(long, short, value_name = "NAME")]
    domain: Option<String>,
    /// Only versions that block N can see; all where it is left out
    #[arg(long, short, alias = "block", value_name = "N", allow_hyphen_values = true)]
    at: Option<Height>,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Print one line of JSON: {"versions":[[block,value|null],...]}
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let asked = Asked::open(&args.place, args.encoding, ONE_READ)?;
    let domain = asked.domain(args.domain.as_deref())?;
    let key = asked.key(domain, &args.key)?;
    let face = asked.face_of(domain);
    let versions = asked.history(args.at, domain, &key)?;
    let mut out = Out::new();
    if args.json {
        let list: Vec<_> =
            versions.iter().map(|v| (v.block, v.value.as_deref().map(|value| face.json(value)))).collect();
        out.json(&json!({ "versions": list }))?;
    } else {
        for version in &versions {
            let value = version.value.as_deref().map_or_else(|| "-".to_owned(), |value| face.line(value));
            out.line(format_args!("{}\t{value}", version.block))?;
        }
    }
    out.flush()?;
    if versions.is_empty() && !args.json {
        asked.tell_absent(&args.key, format_args!("no version in {domain}"));
    }
    asked.tell_reads();
    Ok(if versions.is_empty() { Exit::No } else { Exit::Done })
}
