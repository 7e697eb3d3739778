//! `icecore prove`.

use icecore::{Parallelism, ProofCost, ProofSource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::{Asked, Question};
use crate::encoding::{RULE, hex};
use crate::exit::{Exit, Failure, Outcome};
use crate::input::LINE_LEN_MAX;
use crate::notes::note;
use crate::number::{HEIGHT_FORMS, Height};
use crate::print::{Out, bytes, count, plural};

/// Write a proof of a key's value, or of its absence, at a block. Always JSON.
#[derive(clap::Args)]
#[command(after_help = format!("\
The proof is one line of JSON: domain, key, value (null: absent), block, root
and the ICS23 commitment proof, bytes as 0x hex. It holds against the root
alone: whoever checks it should know the root from elsewhere.

At a snapshot (see create --snapshot-every) it is made of a few kept nodes;
at any other block the Merkle tree is rebuilt from the whole state at the
block. --cost tells which on standard error, and what was read.

{RULE}

{HEIGHT_FORMS}

Examples:
  icecore prove chain.ice alice --at 17 > alice.json
  icecore verify-proof alice.json --root $(icecore root chain.ice --at 17)"))]
pub(crate) struct Args {
    #[command(flatten)]
    question: Question,
    /// The key
    key: String,
}

/// A proof as a document: everything that it says is checked against the root.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a proof")]
pub(crate) struct Document {
    /// That of the request, in answers of `icecore query`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Box<RawValue>>,
    /// The keyspace.
    pub(crate) domain: String,
    /// `0x` hex.
    pub(crate) key: String,
    /// `0x` hex, or nothing: the key is absent.
    pub(crate) value: Option<String>,
    /// The height asked for. Told, not proved.
    pub(crate) block: u64,
    /// `0x` hex.
    pub(crate) root: String,
    /// The ICS23 commitment proof, `0x` hex.
    pub(crate) proof: String,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let asked = args.question.open()?;
    let (document, cost) = prove(&asked, args.question.domain.as_deref(), &args.key, args.question.at)?;
    if args.question.place.cost {
        note(told(cost));
    }
    let mut out = Out::new();
    out.json(&document)?;
    out.flush()?;
    asked.tell_reads();
    Ok(Exit::Done)
}

/// The proof that is asked for.
pub(crate) fn prove(
    asked: &Asked,
    domain: Option<&str>,
    key: &str,
    at: Option<Height>,
) -> Result<(Document, ProofCost), Failure> {
    let domain = asked.domain(domain)?;
    let view = asked.view(at)?;
    let key = asked.key(domain, key)?;
    let value = view.get(domain, &key)?;
    check_len(value.as_ref().map_or(0, Vec::len) as u64)?;
    let (batch, cost) = view.prove_counted(&[(domain, &key)], Parallelism::Off)?;
    let document = Document {
        id: None,
        domain: domain.to_owned(),
        key: hex(&key),
        value: value.as_deref().map(hex),
        block: view.height(),
        root: hex(&view.root()?.0),
        proof: hex(&batch.proofs[0].to_ics23_bytes()),
    };
    Ok((document, cost))
}

/// What a document has beside the value: 256 siblings, a key, names, twice as long in hex.
const PROOF_SPARE: u64 = 64 << 10;

/// Refuses to write what [`verify-proof`](super::verify_proof) would not read: a line in which the value stands twice, in hex, once by itself
/// and once in the proof.
fn check_len(value_len: u64) -> Result<(), Failure> {
    if 4 * value_len + PROOF_SPARE <= LINE_LEN_MAX {
        return Ok(());
    }
    let reason = format!(
        "the value has {}: its proof would be longer than {}, which `icecore verify-proof` reads",
        bytes(value_len),
        bytes(LINE_LEN_MAX),
    );
    Err(Failure::usage(format!("{reason}; the library makes and checks proofs of any value (`View::prove`)")))
}

fn told(cost: ProofCost) -> String {
    let what = match cost.source {
        ProofSource::Snapshot => "from the snapshot of the block",
        ProofSource::State => "rebuilt from the whole state: the block is no snapshot",
    };
    format!("{what}; {} entries in {}", count(cost.entries), plural(cost.reads, "read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_that_nobody_could_read_is_refused() {
        for (len, is_fine) in
            [(0, true), (200 << 20, true), (255 << 20, true), (256 << 20, false), (1 << 30, false)]
        {
            assert_eq!(check_len(len).is_ok(), is_fine, "{len}");
        }
        let told = check_len(300 << 20).unwrap_err().to_string();
        assert!(told.contains("300.0 MiB") && told.contains("longer than 1.0 GiB"), "{told}");
    }
}
