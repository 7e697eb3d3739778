//! Proofs for a light client, which has the root of a block and nothing else: a value, an absence, many keys at once, and what it
//! refuses.
//!
//! `cargo run -p icecore --example light_client`

use std::error::Error;
use std::num::NonZeroU64;

use icecore::{Archive, BatchProof, Options, Parallelism, Proof, ProofError, ProofSource, Root};

/// The client. It has `root` from a source that it trusts, and `proof` from anybody.
fn check(root: &Root, proof: &[u8], name: &[u8], owner: Option<&[u8]>) -> Result<(), ProofError> {
    Proof::from_ics23_bytes(proof)?.verify(root, "owners", name, owner)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Proofs at a snapshot read a few kept nodes; at any other block the tree is rebuilt from the whole state.
    let dir = tempfile::tempdir()?;
    let options = Options::new().domain("owners").snapshot_period(NonZeroU64::new(4));
    let archive = Archive::create(dir.path().join("names.ice"), options)?;
    let mut roots = Vec::new();
    for height in 0..20_u64 {
        let mut block = archive.begin(height)?;
        for name in 0..50 {
            block.put("owners", format!("name {height}/{name}").as_bytes(), b"carol")?;
        }
        block.put("owners", b"ice.example", if height < 10 { b"alice" } else { b"bob" })?;
        roots.push(block.commit()?);
    }

    // The server proves who owned a name at block 8, and that nobody had another one. The proof travels as an ICS23 commitment
    // proof, which every verifier of that standard accepts.
    let view = archive.at(8)?;
    let proof = view.prove("owners", b"ice.example")?.to_ics23_bytes();
    let absence = view.prove("owners", b"fire.example")?.to_ics23_bytes();
    println!("a proof of {} bytes, an absence of {}", proof.len(), absence.len());
    check(&roots[8], &proof, b"ice.example", Some(b"alice"))?;
    check(&roots[8], &absence, b"fire.example", None)?;

    // Refused: another value, another name, the root of another block, an absence of what is there, a proof with a bit turned.
    assert!(check(&roots[8], &proof, b"ice.example", Some(b"mallory")).is_err());
    assert!(check(&roots[8], &proof, b"name 1/1", Some(b"alice")).is_err());
    assert!(check(&roots[12], &proof, b"ice.example", Some(b"alice")).is_err());
    assert!(check(&roots[8], &proof, b"ice.example", None).is_err());
    for bit in 0..8 * proof.len() {
        let mut forged = proof.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&roots[8], &forged, b"ice.example", Some(b"alice")).is_err(), "bit {bit}");
    }

    // Many keys in one proof, whose paths share their upper part; each says what it claims.
    let names: Vec<String> = (0..50).map(|name| format!("name 3/{name}")).collect();
    let keys: Vec<(&str, &[u8])> = names.iter().map(|name| ("owners", name.as_bytes())).collect();
    let (batch, cost) = view.prove_counted(&keys, Parallelism::Off)?;
    assert_eq!(cost.source, ProofSource::Snapshot);
    let batch = BatchProof::from_ics23_bytes(&batch.to_ics23_bytes())?;
    batch.verify(&roots[8])?;
    for (proof, (domain, key)) in batch.proofs.iter().zip(&keys) {
        assert_eq!(proof.claim(), (*domain, *key, Some(&b"carol"[..])));
    }
    Ok(())
}
