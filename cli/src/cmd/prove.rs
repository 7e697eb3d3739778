//! `icecore prove`.

use icecore::ethereum::{self, AccountProof, Address, Word};
use icecore::{Commitment, Parallelism, ProofCost, ProofSource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ask::{Asked, Question};
use crate::encoding::{RULE, hex, quantity_of};
use crate::exit::{Exit, Failure, Outcome};
use crate::input::{LINE_LEN_MAX, ethereum_address, word};
use crate::notes::note;
use crate::number::{HEIGHT_FORMS, Height};
use crate::place::ONE_READ;
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

In an archive of the profile ethereum the key is an address, and the proof is
the object that eth_getProof answers (EIP-1186), with the slots of --slot.

{RULE}

{HEIGHT_FORMS}

Examples:
  icecore prove state.ice 0x00000961ef480eb55e80d19ad83579a64c007002 --slot 0x1
  icecore prove chain.ice alice --at 17 > alice.json
  icecore verify-proof alice.json --root $(icecore root chain.ice --at 17)"))]
pub(crate) struct Args {
    #[command(flatten)]
    question: Question,
    /// The key, or the address of an account
    key: String,
    /// A slot of the account to prove with it, 0x hex; for archives of the profile ethereum, as often as there are slots
    #[arg(long = "slot", value_name = "HEX")]
    slots: Vec<String>,
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
    let mut out = Out::new();
    let asked = Asked::open(&args.question.place, args.question.encoding, ONE_READ)?;
    if asked.reader.commitment() == Commitment::Ethereum {
        if args.question.domain.as_deref().is_some_and(|domain| domain != ethereum::ACCOUNT) {
            return Err(Failure::usage(
                "--domain: a proof of an archive of the profile ethereum is of an account, and of slots of it by --slot",
            ));
        }
        let proof = prove_account(&asked, &args.key, &args.slots, args.question.at)?;
        out.json(&proof)?;
        out.flush()?;
        asked.tell_reads();
        return Ok(Exit::Done);
    }
    if !args.slots.is_empty() {
        return Err(Failure::usage("--slot is for archives of the profile ethereum"));
    }
    let (document, cost) = prove(&asked, args.question.domain.as_deref(), &args.key, args.question.at)?;
    if args.question.place.cost {
        note(told(cost));
    }
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

/// The answer of `eth_getProof`, its members in the order in which geth writes them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "the answer of eth_getProof")]
pub(crate) struct Eip1186 {
    pub(crate) address: String,
    pub(crate) account_proof: Vec<String>,
    pub(crate) balance: String,
    pub(crate) code_hash: String,
    pub(crate) nonce: String,
    pub(crate) storage_hash: String,
    pub(crate) storage_proof: Vec<Eip1186Slot>,
}

/// A slot in it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Eip1186Slot {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) proof: Vec<String>,
}

/// Proves an account and slots of it.
pub(crate) fn prove_account(
    asked: &Asked,
    address: &str,
    slots: &[String],
    at: Option<Height>,
) -> Result<Eip1186, Failure> {
    let address = ethereum_address(address).map_err(|reason| Failure::usage(format!("key: {reason}")))?;
    let words =
        slots.iter().map(|slot| word(slot).map_err(|reason| Failure::usage(format!("slot: {reason}"))));
    let words = words.collect::<Result<Vec<Word>, Failure>>()?;
    let proof = asked.view(at)?.prove_account(&address, &words)?;
    Ok(eip1186(&address, slots, &proof))
}

fn eip1186(address: &Address, keys: &[String], proof: &AccountProof) -> Eip1186 {
    let nodes = |nodes: &[Vec<u8>]| nodes.iter().map(|node| hex(node)).collect::<Vec<_>>();
    let account = proof.account.unwrap_or_default();
    let hash = |hash: &Word| if proof.account.is_some() { hex(hash) } else { hex(&Word::default()) };
    let slot = |(key, slot): (&String, &icecore::ethereum::SlotProof)| Eip1186Slot {
        // A key of 32 bytes is given back as it came.
        key: if key.len() == 66 { key.clone() } else { quantity_of(&slot.slot) },
        value: quantity_of(&slot.value),
        proof: nodes(&slot.nodes),
    };
    Eip1186 {
        address: hex(address),
        account_proof: nodes(&proof.nodes),
        balance: quantity_of(&account.balance),
        code_hash: hash(&account.code_hash),
        nonce: quantity_of(&account.nonce.to_be_bytes()),
        storage_hash: hash(&account.storage_root),
        storage_proof: keys.iter().zip(&proof.slots).map(slot).collect(),
    }
}

fn told(cost: ProofCost) -> String {
    let what = match cost.source {
        ProofSource::Snapshot => "from the snapshot of the block",
        ProofSource::Rows => "from the rows of the block",
        ProofSource::State => "rebuilt from the whole state: the block has no snapshot and no rows",
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
