//! A request and its answer, a line each.

use std::io::{self, Write};

use icecore::{Commitment, Entry, ErrorKind};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::ask::Asked;
use crate::cmd::prove::{Document, prove, prove_account};
use crate::cmd::scan::Bounds;
use crate::exit::Failure;
use crate::json::{self, Text};
use crate::number::Height;
use crate::print::Out;

/// One of the kinds of request, and what its answer is to be known by.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a request")]
pub(super) struct Request<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) get: Option<OfKey<'a>>,
    #[serde(borrow, default)]
    pub(super) scan: Option<Range<'a>>,
    #[serde(borrow, default)]
    pub(super) history: Option<AllOfKey<'a>>,
    #[serde(default)]
    pub(super) root: Option<AtHeight>,
    #[serde(borrow, default)]
    pub(super) prove: Option<OfProof<'a>>,
}

/// The `id` of a request that is not sound otherwise.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<&'a RawValue>,
}

/// An `id` that is there, `null` too.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"key\"")]
pub(super) struct OfKey<'a> {
    #[serde(borrow, default)]
    pub(super) domain: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) key: Text<'a>,
    #[serde(default)]
    pub(super) at: Option<Height>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"key\"")]
pub(super) struct OfProof<'a> {
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    #[serde(borrow)]
    key: Text<'a>,
    /// Of an account, in archives for Ethereum.
    #[serde(default)]
    slots: Vec<String>,
    #[serde(default)]
    at: Option<Height>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"key\"")]
pub(super) struct AllOfKey<'a> {
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    #[serde(borrow)]
    key: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct Range<'a> {
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
    /// Of which the slots are, in archives for Ethereum.
    #[serde(borrow, default)]
    account: Option<Text<'a>>,
    #[serde(borrow, default)]
    prefix: Option<Text<'a>>,
    #[serde(borrow, default)]
    from: Option<Text<'a>>,
    #[serde(borrow, default)]
    to: Option<Text<'a>>,
    #[serde(default)]
    reverse: bool,
    #[serde(default)]
    at: Option<Height>,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct AtHeight {
    #[serde(default)]
    at: Option<Height>,
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

/// Answers a request, whichever it is, or tells why not. Returns the failure where the archive is at fault.
///
/// `refreshed` is whether the archive could be read again before it.
///
/// # Errors
/// Nobody reads the answers.
pub(super) fn respond(
    asked: &Asked,
    line: &[u8],
    refreshed: Result<(), Failure>,
    out: &mut Out,
) -> Result<Option<Failure>, Failure> {
    let answered = refreshed.map_err(Refusal::Told).and_then(|()| answer(asked, line, out));
    let failure = match answered {
        Ok(()) => None,
        Err(Refusal::Output(error)) => return Err(Failure::Output(error)),
        Err(Refusal::Cut(failure)) => Some(failure),
        Err(Refusal::Told(failure)) => {
            let id = serde_json::from_slice::<Named>(line).ok().and_then(|named| named.id);
            begin(id, out).and_then(|()| error(&failure, out)).map_err(Failure::Output)?;
            Some(failure)
        }
    };
    out.line("}")?;
    Ok(failure.filter(is_fault))
}

/// Whether the archive is at fault and not the request.
fn is_fault(failure: &Failure) -> bool {
    match failure {
        Failure::Archive(error) => {
            !matches!(error.kind(), ErrorKind::Misuse | ErrorKind::OutOfRange | ErrorKind::NotHeld)
        }
        _ => false,
    }
}

/// Begins an answer.
pub(super) fn begin(id: Option<&RawValue>, out: &mut impl Write) -> io::Result<()> {
    match id {
        Some(id) => write!(out, "{{\"id\":{id},"),
        None => out.write_all(b"{"),
    }
}

/// The member of an answer that tells a failure.
fn error(failure: &Failure, out: &mut Out) -> io::Result<()> {
    write!(out, "\"error\":{}", serde_json::Value::from(failure.to_string()))
}

/// Writes the answer but for its last brace. Nothing is written before the first error can no longer happen, except in a
/// scan, which then ends with the error.
fn answer(asked: &Asked, line: &[u8], out: &mut Out) -> Result<(), Refusal> {
    let request: Request = serde_json::from_slice(line)
        .map_err(|error| Failure::usage(format!("bad request: {}", json::reason(&error))))?;
    let id = request.id;
    match request {
        Request { get: Some(of), scan: None, history: None, root: None, prove: None, .. } => {
            get(asked, &of, id, out)
        }
        Request { scan: Some(range), get: None, history: None, root: None, prove: None, .. } => {
            scan(asked, &range, id, out)
        }
        Request { history: Some(of), get: None, scan: None, root: None, prove: None, .. } => {
            history(asked, &of, id, out)
        }
        Request { root: Some(of), get: None, scan: None, history: None, prove: None, .. } => {
            let root = asked.view(of.at)?.root()?;
            written(begin(id, out))?;
            written(write!(out, "\"root\":\"{}\"", crate::encoding::hex(&root.0)))
        }
        Request { prove: Some(of), get: None, scan: None, history: None, root: None, .. } => {
            if asked.reader.commitment() == Commitment::Ethereum {
                let proof = prove_account(asked, &of.key, &of.slots, of.at)?;
                written(begin(id, out))?;
                let text = serde_json::to_string(&proof).map_err(|error| Refusal::Output(error.into()))?;
                return written(write!(out, "\"proof\":{text}"));
            }
            if !of.slots.is_empty() {
                return Err(Failure::usage("\"slots\" are for archives of the profile ethereum").into());
            }
            let (document, _) = prove(asked, of.domain.as_deref(), &of.key, of.at)?;
            let document = Document { id: id.map(ToOwned::to_owned), ..document };
            let text = serde_json::to_string(&document).map_err(|error| Refusal::Output(error.into()))?;
            written(out.write_all(text.trim_end_matches('}').as_bytes()))
        }
        _ => {
            let reason =
                "bad request: it must have one of \"get\", \"scan\", \"history\", \"root\" and \"prove\"";
            Err(Failure::usage(reason).into())
        }
    }
}

fn get(asked: &Asked, of: &OfKey, id: Option<&RawValue>, out: &mut Out) -> Result<(), Refusal> {
    let domain = asked.domain(of.domain.as_deref())?;
    let key = asked.key(domain, &of.key)?;
    let value = asked.value(&asked.view(of.at)?, domain, domain, &key)?;
    written(begin(id, out))?;
    written(out.write_all(b"\"value\":"))?;
    written(asked.face_of(domain).write_json_value(value.as_deref(), out))
}

fn history(asked: &Asked, of: &AllOfKey, id: Option<&RawValue>, out: &mut Out) -> Result<(), Refusal> {
    let domain = asked.domain(of.domain.as_deref())?;
    let versions = asked.history(None, domain, &asked.key(domain, &of.key)?)?;
    let face = asked.face_of(domain);
    written(begin(id, out))?;
    written(out.write_all(b"\"versions\":["))?;
    for (idx, version) in versions.iter().enumerate() {
        written(write!(out, "{}[{},", if idx == 0 { "" } else { "," }, version.block))?;
        written(face.write_json_value(version.value.as_deref(), out))?;
        written(out.write_all(b"]"))?;
    }
    written(out.write_all(b"]"))
}

fn scan(asked: &Asked, range: &Range, id: Option<&RawValue>, out: &mut Out) -> Result<(), Refusal> {
    let domain = asked.domain(range.domain.as_deref())?;
    let bounds = Bounds {
        account: range.account.as_deref(),
        prefix: range.prefix.as_deref(),
        from: range.from.as_deref(),
        to: range.to.as_deref(),
        reverse: range.reverse,
    };
    let scan = bounds.scan(asked, domain)?;
    let (face_of_keys, face) = (asked.face_of_keys(bounds.first()), asked.face_of(domain));
    let view = asked.view(range.at)?;
    let entries = view.scan(domain, &scan)?;
    written(begin(id, out))?;
    written(out.write_all(b"\"items\":["))?;
    for (idx, entry) in entries.take(range.limit.unwrap_or(usize::MAX)).enumerate() {
        let Entry { key, value, .. } = match entry {
            Ok(entry) => entry,
            Err(cause) => {
                let failure = Failure::from(cause);
                written(out.write_all(b"],").and_then(|()| error(&failure, out)))?;
                return Err(Refusal::Cut(failure));
            }
        };
        written(out.write_all(if idx == 0 { b"[" } else { b",[" }))?;
        written(face_of_keys.write_json(&key, out))?;
        written(out.write_all(b","))?;
        written(face.write_json(&value, out))?;
        written(out.write_all(b"]"))?;
    }
    written(out.write_all(b"]"))
}

fn written(result: io::Result<()>) -> Result<(), Refusal> {
    result.map_err(Refusal::Output)
}
