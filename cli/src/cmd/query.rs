//! `icecore query`: many questions, one answer a line, in order.
//!
//! Answers are written as soon as nobody waits to be read: a program on the other end of a pipe may ask, wait for the
//! answer and ask again, and a file of requests is still answered at full speed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;

use icecore::ErrorKind;
use serde::Deserialize;

use super::scan::Bounds;
use crate::ask::Asked;
use crate::encoding::{Encoding, RULE};
use crate::exit::{Exit, Failure, Outcome};
use crate::input::Lines;
use crate::print::Out;

/// Answer many questions, one JSON request and one JSON answer a line, in order.
#[derive(clap::Args)]
#[command(after_help = format!("\
Requests and answers:
  {{\"get\":{{\"domain\":\"kv\",\"key\":\"...\",\"at\":17}}}}
      {{\"value\":\"...\"|null}}
  {{\"scan\":{{\"domain\":\"kv\",\"prefix\":\"...\",\"at\":17,\"limit\":10}}}}
      {{\"items\":[[key,value],...]}} in key order
      also \"from\", \"to\" (the key behind the last) and \"reverse\":true
  {{\"history\":{{\"domain\":\"kv\",\"key\":\"...\"}}}}
      {{\"versions\":[[block,value|null],...]}} newest first
  {{\"root\":{{\"at\":17}}}}
      {{\"root\":\"0x...\"}}
\"domain\" may be left out where the archive has one, \"at\" for the newest
block. A request that cannot be answered gets {{\"error\":\"...\"}} on its line and
the rest go on. Damage of the archive shows in the exit code too.

{RULE}

Examples:
  echo '{{\"get\":{{\"key\":\"alice\",\"at\":17}}}}' | icecore query chain.ice
  icecore query chain.ice requests.jsonl.zst > answers.jsonl"))]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// The requests, plain, zstd or gzip; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// How keys and values are written
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    encoding: Encoding,
    /// Answers are always JSON; taken so that every command takes it
    #[arg(long, hide = true)]
    json: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Request<'a> {
    #[serde(borrow)]
    Get(OfKey<'a>),
    Scan(Range<'a>),
    History(AllOfKey<'a>),
    Root(Height),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKey<'a> {
    #[serde(borrow, default)]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(default)]
    at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllOfKey<'a> {
    #[serde(borrow, default)]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range<'a> {
    #[serde(borrow, default)]
    domain: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    prefix: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    to: Option<Cow<'a, str>>,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    at: Option<u64>,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Height {
    #[serde(default)]
    at: Option<u64>,
}

/// Why a request got no answer.
enum Refusal {
    /// Told on its line.
    Told(Failure),
    /// Told at the end of an answer that had begun.
    Cut(Failure),
    /// Nobody reads the answers.
    Output(io::Error),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Told(failure)
    }
}

impl From<icecore::Error> for Refusal {
    fn from(error: icecore::Error) -> Self {
        Self::Told(error.into())
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let asked = Asked::open(&args.dir, args.encoding)?;
    let mut lines = Lines::of(vec![args.file]);
    let mut out = Out::new();
    let mut broken = None;
    loop {
        if !lines.has_line() {
            out.flush()?;
        }
        let Some(line) = lines.next_line()? else { break };
        let failure = match answer(&asked, line, &mut out) {
            Ok(()) => None,
            Err(Refusal::Output(error)) => return Err(Failure::Output(error)),
            Err(Refusal::Cut(failure)) => Some(failure),
            Err(Refusal::Told(failure)) => {
                let text = serde_json::Value::from(failure.to_string());
                out.with(|out| write!(out, "{{\"error\":{text}}}"))?;
                Some(failure)
            }
        };
        out.line("")?;
        if let Some(failure) = failure.filter(is_fault) {
            broken.get_or_insert(failure);
        }
    }
    out.flush()?;
    broken.map_or(Ok(Exit::Done), Err)
}

/// Whether the archive is at fault and not the request.
fn is_fault(failure: &Failure) -> bool {
    match failure {
        Failure::Archive(error) => !matches!(error.kind(), ErrorKind::Misuse | ErrorKind::OutOfRange),
        _ => false,
    }
}

/// Writes the answer without its line end. Nothing is written before the first error can no longer happen, except
/// in a scan, whose line then ends with the error.
fn answer(asked: &Asked, line: &[u8], out: &mut Out) -> Result<(), Refusal> {
    let request: Request =
        serde_json::from_slice(line).map_err(|error| Failure::usage(format!("bad request: {error}")))?;
    match request {
        Request::Get(OfKey { domain, key, at }) => {
            let domain = asked.domain(domain.as_deref())?;
            let value = asked.view(at)?.get(domain, &asked.bytes("key", &key)?)?;
            let face = asked.face(Some(&key));
            written(out.write_all(b"{\"value\":"))?;
            written(face.write_json_value(value.as_deref(), out))?;
        }
        Request::Scan(range) => return scan(asked, &range, out),
        Request::History(AllOfKey { domain, key }) => {
            let domain = asked.domain(domain.as_deref())?;
            let versions = asked.reader.history(domain, &asked.bytes("key", &key)?)?;
            let face = asked.face(Some(&key));
            written(out.write_all(b"{\"versions\":["))?;
            for (idx, version) in versions.iter().enumerate() {
                written(write!(out, "{}[{},", if idx == 0 { "" } else { "," }, version.block))?;
                written(face.write_json_value(version.value.as_deref(), out))?;
                written(out.write_all(b"]"))?;
            }
            written(out.write_all(b"]"))?;
        }
        Request::Root(Height { at }) => {
            let root = asked.view(at)?.root()?;
            written(write!(out, "{{\"root\":\"{}\"", crate::encoding::hex(&root.0)))?;
        }
    }
    written(out.write_all(b"}"))
}

fn scan(asked: &Asked, range: &Range, out: &mut Out) -> Result<(), Refusal> {
    let domain = asked.domain(range.domain.as_deref())?;
    let bounds = Bounds {
        prefix: range.prefix.as_deref(),
        from: range.from.as_deref(),
        to: range.to.as_deref(),
        reverse: range.reverse,
    };
    let scan = bounds.scan(asked)?;
    let face = asked.face(bounds.face_of());
    let view = asked.view(range.at)?;
    let entries = view.scan(domain, &scan)?;
    written(out.write_all(b"{\"items\":["))?;
    for (idx, entry) in entries.take(range.limit.unwrap_or(usize::MAX)).enumerate() {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let failure = Failure::from(error);
                let text = serde_json::Value::from(failure.to_string());
                written(write!(out, "],\"error\":{text}}}"))?;
                return Err(Refusal::Cut(failure));
            }
        };
        written(out.write_all(if idx == 0 { b"[" } else { b",[" }))?;
        written(face.write_json(&key, out))?;
        written(out.write_all(b","))?;
        written(face.write_json(&value, out))?;
        written(out.write_all(b"]"))?;
    }
    written(out.write_all(b"]}"))
}

fn written(result: io::Result<()>) -> Result<(), Refusal> {
    result.map_err(Refusal::Output)
}
