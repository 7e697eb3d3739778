//! `icecore prove`.

use icecore::{Parallelism, ProofCost, ProofSource};
use serde::{Deserialize, Serialize};

use crate::ask::Question;
use crate::encoding::{RULE, hex};
use crate::exit::{Exit, Outcome};
use crate::print::{Out, count, plural};

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

Examples:
  icecore prove chain.ice alice --at 17 > alice.json
  icecore verify-proof alice.json --root $(icecore root chain.ice --at 17)"))]
pub(crate) struct Args {
    #[command(flatten)]
    question: Question,
    /// The key
    key: String,
    /// Tell on standard error what the proof was made of
    #[arg(long)]
    cost: bool,
}

/// A proof as a document: everything that it says is checked against the root.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
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
    let domain = asked.domain(args.question.domain.as_deref())?;
    let view = asked.view(args.question.at)?;
    let key = asked.bytes("key", &args.key)?;
    let value = view.get(domain, &key)?;
    let (batch, cost) = view.prove_counted(&[(domain, &key)], Parallelism::Off)?;
    if args.cost {
        eprintln!("{}", told(cost));
    }
    let proof = &batch.proofs[0];
    let document = Document {
        domain: domain.to_owned(),
        key: hex(&key),
        value: value.as_deref().map(hex),
        block: view.block(),
        root: hex(&view.root()?.0),
        proof: hex(&proof.to_ics23_bytes()),
    };
    let mut out = Out::new();
    out.json(&document)?;
    out.flush()?;
    Ok(Exit::Done)
}

fn told(cost: ProofCost) -> String {
    let what = match cost.source {
        ProofSource::Snapshot => "from the snapshot of the block",
        ProofSource::State => "rebuilt from the whole state: the block is no snapshot",
    };
    format!("{what}; {} entries in {}", count(cost.entries), plural(cost.reads, "read"))
}
