//! `icecore verify-proof`.

use std::path::PathBuf;

use icecore::ethereum::{Account, AccountProof, SlotProof};
use icecore::{ParseRootError, Proof, ProofError, Root};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::prove::{Document, Eip1186};
use crate::encoding::{Encoding, Face, hex, printable};
use crate::exit::{Exit, Failure, Outcome};
use crate::input::{Lines, ethereum_address, word};
use crate::json;
use crate::print::{Out, plural};

/// Check a proof that `icecore prove` wrote; needs no archive. Exit code 0: it holds, 1: it does not.
#[derive(clap::Args)]
#[command(after_help = "\
Give the root of the block that you know from a source of your own. Without
--root the proof is checked against the root that the file itself names, which
shows only that the two fit. The block in the file is not part of what is
proved: the root alone says which state it is.

The answer of eth_getProof (EIP-1186) is checked in the same way, with its
slots. It names no root, so --root is needed: the stateRoot of the header.

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

/// A document with its parts as bytes.
struct Claim {
    domain: String,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    block: u64,
    root: Root,
    proof: Vec<u8>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let expected = args.root.as_deref().map(root_of).transpose();
    let expected = expected.map_err(|reason| Failure::usage(format!("--root: {reason}")))?;
    let mut lines = Lines::of(vec![args.file]);
    let text = read(&mut lines)?;
    if serde_json::from_slice::<IsEip1186>(&text).is_ok() {
        return verify_account(&lines, &text, expected, args.json);
    }
    let claim = parse(&lines, &text)?;
    let root = expected.unwrap_or(claim.root);
    let verdict = Proof::from_ics23_bytes(&claim.proof)
        .and_then(|proof| proof.verify(&root, &claim.domain, &claim.key, claim.value.as_deref()));
    let reason = verdict.as_ref().err().map(|error| match error {
        ProofError::WrongKind if claim.value.is_none() => "it proves presence, not absence".to_owned(),
        ProofError::WrongKind => "it proves absence, not presence".to_owned(),
        other => other.to_string(),
    });
    let mut out = Out::new();
    if args.json {
        out.json(&serde_json::json!({
            "verified": verdict.is_ok(),
            "root_given": expected.is_some(),
            "reason": reason,
            "domain": claim.domain,
            "key": hex(&claim.key),
            "value": claim.value.as_deref().map(hex),
            "root": hex(&root.0),
            "claimed_block": claim.block,
            "claimed_root": hex(&claim.root.0),
        }))?;
    } else {
        out.summary(told(&claim, &root, reason.as_deref(), expected.is_some()))?;
    }
    out.flush()?;
    Ok(if verdict.is_ok() { Exit::Done } else { Exit::No })
}

/// A document that has a proof of an account.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IsEip1186 {
    #[serde(rename = "accountProof")]
    _account_proof: IgnoredAny,
}

/// Checks the answer of `eth_getProof`.
fn verify_account(lines: &Lines, text: &[u8], root: Option<Root>, as_json: bool) -> Outcome {
    let Some(root) = root else {
        return Err(Failure::usage(
            "an answer of eth_getProof names no root: --root HEX gives the stateRoot in the header of its block",
        ));
    };
    let document: Eip1186 =
        serde_json::from_slice(text).map_err(|error| bad(lines, error.line(), json::reason(&error)))?;
    let claim = account_claim(&document).map_err(|reason| bad(lines, 1, reason))?;
    let address = ethereum_address(&document.address).map_err(|reason| bad(lines, 1, reason))?;
    let verdict = claim.verify(&root, &address);
    let reason = verdict.as_ref().err().map(ToString::to_string);
    let mut out = Out::new();
    if as_json {
        out.json(&serde_json::json!({
            "verified": reason.is_none(),
            "reason": reason,
            "address": document.address,
            "exists": claim.account.is_some(),
            "slots": claim.slots.len(),
            "root": hex(&root.0),
        }))?;
    } else {
        let verdict =
            reason.as_ref().map_or("verified".to_owned(), |reason| format!("not verified: {reason}"));
        let is_there = if claim.account.is_some() { "is there" } else { "is absent" };
        out.summary(format_args!(
            "{verdict}\n  claim  account {} {is_there}, with {}\n  root   {} (given)",
            document.address,
            plural(claim.slots.len() as u64, "slot"),
            hex(&root.0),
        ))?;
    }
    out.flush()?;
    Ok(if reason.is_none() { Exit::Done } else { Exit::No })
}

/// What an answer of `eth_getProof` claims.
fn account_claim(document: &Eip1186) -> Result<AccountProof, String> {
    let nodes =
        |nodes: &[String]| nodes.iter().map(|node| Encoding::Hex.bytes(node)).collect::<Result<_, _>>();
    let (code_hash, storage_root) = (word(&document.code_hash)?, word(&document.storage_hash)?);
    let nonce = word(&document.nonce)?;
    let (high, low) = nonce.split_last_chunk().ok_or("a nonce has 8 bytes")?;
    if high.iter().any(|byte| *byte != 0) {
        return Err("nonce: it has at most 64 bits".to_owned());
    }
    let account = Account {
        nonce: u64::from_be_bytes(*low),
        balance: word(&document.balance)?,
        code_hash,
        storage_root,
    };
    // Of an account that is not there geth tells two hashes of zeros, which no account has.
    let is_absent = Account { code_hash: [0; 32], storage_root: [0; 32], ..Account::default() };
    let slots = document.storage_proof.iter().map(|slot| {
        Ok(SlotProof { slot: word(&slot.key)?, value: word(&slot.value)?, nodes: nodes(&slot.proof)? })
    });
    Ok(AccountProof {
        account: Some(account).filter(|account| *account != is_absent),
        nodes: nodes(&document.account_proof)?,
        slots: slots.collect::<Result<_, String>>()?,
    })
}

fn bad(lines: &Lines, line: usize, reason: String) -> Failure {
    Failure::Input {
        file: lines.file().to_owned(),
        line: line.max(1) as u64,
        reason: format!("this is not a proof: {reason}"),
        help: Some("`icecore prove` writes proofs; one that was changed by hand does not hold".to_owned()),
    }
}

/// Reads the document. It may be laid out over several lines.
fn read(lines: &mut Lines) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let mut last = 0;
    while let Some((number, line)) = lines.next_numbered()? {
        // Blank lines are passed over, and must count.
        text.resize(text.len() + usize::try_from(number - 1 - last).unwrap_or(0), b'\n');
        text.extend_from_slice(line);
        text.push(b'\n');
        last = number;
    }
    Ok(text)
}

/// What a document of ICS23 claims.
fn parse(lines: &Lines, text: &[u8]) -> Result<Claim, Failure> {
    let bad = |line, reason| bad(lines, line, reason);
    let document: Document = serde_json::from_slice(text.trim_ascii_end())
        .map_err(|error| bad(error.line(), json::reason(&error)))?;
    let field = |name: &str, text_of: &str| {
        Encoding::Hex.bytes(text_of).map_err(|reason| bad(line_of(text, name), format!("{name}: {reason}")))
    };
    Ok(Claim {
        key: field("key", &document.key)?,
        value: document.value.as_deref().map(|value| field("value", value)).transpose()?,
        root: root_of(&document.root)
            .map_err(|reason| bad(line_of(text, "root"), format!("root: {reason}")))?,
        proof: field("proof", &document.proof)?,
        domain: document.domain,
        block: document.block,
    })
}

/// The line in which a member of the document begins.
fn line_of(text: &[u8], name: &str) -> usize {
    let name = format!("\"{name}\"");
    let at = text.windows(name.len()).position(|window| window == name.as_bytes()).unwrap_or(0);
    text[..at].split(|byte| *byte == b'\n').count()
}

fn told(claim: &Claim, root: &Root, reason: Option<&str>, root_is_given: bool) -> String {
    // The document has bytes; text is shown as text, as the archive would show it.
    let face = Face::Readable;
    let key = face.line(&claim.key);
    let value = match &claim.value {
        Some(value) => format!("has the value {}", face.line(value)),
        None => "is absent".to_owned(),
    };
    let verdict = match reason {
        None if root_is_given => "verified".to_owned(),
        None => "consistent with its own root; not checked against a root you trust: --root".to_owned(),
        Some(reason) => format!("not verified: {reason}"),
    };
    let whose = if root_is_given { "given" } else { "from the file itself" };
    let other = if *root == claim.root {
        String::new()
    } else {
        format!("\n  note   the file names another root, {}", hex(&claim.root.0))
    };
    format!(
        "{verdict}\n  claim  key {key} of {} {value}\n  block  {} (claimed by the file, not checked)\n  root   {} ({whose}){other}",
        printable(&claim.domain),
        claim.block,
        hex(&root.0),
    )
}

fn root_of(text: &str) -> Result<Root, String> {
    text.parse().map_err(|error: ParseRootError| error.to_string())
}
