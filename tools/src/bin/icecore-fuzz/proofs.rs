//! Targets over proofs: what is decoded is what was encoded, and what is verified is true.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use icecore_hot::{BatchProof, Entry, HotTree, KeyHash, Loader, Options, Proof, Root};

use crate::guard;
use crate::tape::Tape;

const DOMAIN: &str = "kv";

/// A tree with what is in it, and proofs of some of its keys.
struct State {
    root: Root,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    proofs: Vec<Proof>,
}

static STATE: LazyLock<State> = LazyLock::new(|| {
    let entries: BTreeMap<Vec<u8>, Vec<u8>> =
        (0..60u32).map(|i| (i.to_string().into_bytes(), (i * 7).to_string().into_bytes())).collect();
    let mut loader = Loader::new(Options::default());
    let mut by_hash = BTreeMap::new();
    for (key, value) in &entries {
        loader.push(DOMAIN, key, value);
        let entry = Entry { domain: DOMAIN.to_owned(), key: key.clone(), value: value.clone() };
        by_hash.insert(KeyHash::of(DOMAIN, key), entry);
    }
    let tree: HotTree = loader.finish();
    let prove = |key: &[u8]| {
        let path = tree.prove(&KeyHash::of(DOMAIN, key));
        path.complete(DOMAIN, key, |hash| by_hash.get(hash).cloned()).expect("the state has all entries")
    };
    let keys: [&[u8]; 7] = [b"7", b"absent", b"8", b"other", b"7", b"59", b""];
    State { root: tree.root(), proofs: keys.map(prove).to_vec(), entries }
});

/// Whether what a proof claims under the root is so.
fn is_true(proof: &Proof) -> Result<(), String> {
    let (domain, key, value) = proof.claim();
    let holds = proof.verify(&STATE.root, domain, key, value).is_ok();
    let expected = STATE.entries.get(key).filter(|_| domain == DOMAIN).map(Vec::as_slice);
    if holds && value != expected {
        return Err(format!("lied: verified that {key:02x?} has {value:02x?}"));
    }
    Ok(())
}

pub(crate) fn single(tape: &mut Tape<'_>) -> Result<(), String> {
    let proof = tape.pick(&STATE.proofs);
    let compact = tape.below(2) == 0;
    let mut bytes = if compact { proof.to_bytes() } else { proof.to_ics23_bytes() };
    change(tape, &mut bytes);
    guard::within(bytes.len(), || {
        for (decoded, again) in [
            (Proof::from_bytes(&bytes), Proof::to_bytes as fn(&Proof) -> Vec<u8>),
            (Proof::from_ics23_bytes(&bytes), Proof::to_ics23_bytes),
        ] {
            let Ok(proof) = decoded else { continue };
            if again(&proof) != bytes {
                return Err("lied: one proof with two encodings".to_owned());
            }
            is_true(&proof)?;
        }
        Ok(())
    })
}

pub(crate) fn batch(tape: &mut Tape<'_>) -> Result<(), String> {
    let count = 1 + tape.below(STATE.proofs.len());
    let mut bytes = BatchProof { proofs: STATE.proofs[..count].to_vec() }.to_ics23_bytes();
    change(tape, &mut bytes);
    guard::within(bytes.len(), || {
        let Ok(batch) = BatchProof::from_ics23_bytes(&bytes) else { return Ok(()) };
        if batch.to_ics23_bytes() != bytes {
            return Err("lied: one batch with two encodings".to_owned());
        }
        let _ = batch.verify(&STATE.root);
        batch.proofs.iter().try_for_each(is_true)
    })
}

/// Changes bytes, takes some out, puts some in, and now and then repeats a stretch many times.
fn change(tape: &mut Tape<'_>, bytes: &mut Vec<u8>) {
    for _ in 0..tape.below(3) {
        let at = tape.below(bytes.len());
        match tape.below(4) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, tape.byte()),
            2 => {
                let end = (at + 1 + tape.below(40)).min(bytes.len());
                let stretch = bytes[at..end].repeat(1 + tape.below(2000));
                bytes.splice(at..at, stretch);
            }
            _ => tape.mutate(bytes),
        }
        if bytes.is_empty() {
            return;
        }
    }
    if tape.below(4) == 0 {
        tape.mutate(bytes);
    }
}
