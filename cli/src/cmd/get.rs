//! `icecore get`.

use icecore::{Lookup, Source};
use serde_json::json;

use crate::ask::Question;
use crate::encoding::RULE;
use crate::exit::{Exit, Outcome};
use crate::number::HEIGHT_FORMS;
use crate::print::Out;

/// Print the value of a key at a block. Exit code 1: the key is absent there.
#[derive(clap::Args)]
#[command(after_help = format!("{RULE}

{HEIGHT_FORMS}

Examples:
  icecore get chain.ice alice                    at the newest block
  icecore get chain.ice alice --at 17 --json     who wrote it, where it is
  icecore get eth.ice 0x00000961ef480eb55e80d19ad83579a64c007002 \\
      --domain code --raw > code.bin"))]
pub(crate) struct Args {
    #[command(flatten)]
    question: Question,
    /// The key
    key: String,
    /// Write the bytes of the value as they are, without a line end
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

/// Where an answer came from, in a word.
pub(crate) fn source_name(source: &Source) -> &str {
    match source {
        Source::Memory => "memory",
        Source::Segment(name) => name,
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let asked = args.question.open()?;
    let domain = asked.domain(args.question.domain.as_deref())?;
    let view = asked.view(args.question.at)?;
    let found: Option<Lookup> = asked.lookup(&view, domain, domain, &asked.key(domain, &args.key)?)?;
    let face = asked.face_of(domain);
    let value = found.as_ref().and_then(|found| found.change.value.as_deref());
    let mut out = Out::new();
    if args.question.json {
        out.json(&json!({
            "domain": domain,
            "key": args.key,
            "at": view.height(),
            "value": value.map(|value| face.json(value)),
            "block": found.as_ref().map(|found| found.change.block),
            "source": found.as_ref().map(|found| source_name(&found.source)),
        }))?;
    } else if let Some(value) = value {
        if args.raw {
            out.with(|out| out.write_all(value))?;
        } else {
            out.line(face.line(value))?;
        }
    }
    out.flush()?;
    if value.is_none() && !args.question.json {
        asked.tell_absent(&args.key, format_args!("no value in {domain} at block {}", view.height()));
    }
    asked.tell_reads();
    Ok(if value.is_some() { Exit::Done } else { Exit::No })
}
