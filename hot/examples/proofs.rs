//! Sizes and times of proofs over a large tree, each checked by the unmodified `ics23` crate as well.
//!
//! ```text
//! cargo run --release -p icecore-hot --features measure --example proofs -- [log2 keys]
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

use icecore_hot::{
    BatchProof, Entry, HotTree, KeyHash, Options, Proof, Root, proof_spec, tree_key, tree_value,
};
use ics23::HostFunctionsManager;
use prost::Message;

const DOMAIN: &str = "storage";
const COUNT: u32 = 1000;

fn key(id: u32) -> [u8; 52] {
    let mut key = [0; 52];
    key[..32].copy_from_slice(blake3::hash(&id.to_le_bytes()).as_bytes());
    key
}

fn value(id: u32) -> [u8; 32] {
    *blake3::hash(&(!id).to_le_bytes()).as_bytes()
}

struct Sizes {
    name: &'static str,
    all: Vec<usize>,
}

impl Sizes {
    fn print(&mut self) {
        self.all.sort_unstable();
        let len = self.all.len();
        let mean = self.all.iter().sum::<usize>() as f64 / len as f64;
        println!(
            "{}: mean {mean:.0} B, p50 {}, p99 {}, max {}",
            self.name,
            self.all[len / 2],
            self.all[len * 99 / 100],
            self.all[len - 1]
        );
    }
}

fn ics23_accepts(bytes: &[u8], root: &Root, key: &[u8], value: Option<&[u8]>) -> bool {
    let message = ics23::CommitmentProof::decode(bytes).expect("a proof of our own");
    let (root, key) = (root.0.to_vec(), tree_key(DOMAIN, key));
    match value {
        Some(value) => {
            let value = tree_value(value);
            ics23::verify_membership::<HostFunctionsManager>(&message, &proof_spec(), &root, &key, &value)
        }
        None => ics23::verify_non_membership::<HostFunctionsManager>(&message, &proof_spec(), &root, &key),
    }
}

fn per(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(COUNT)
}

fn main() {
    let bits: u32 = std::env::args().nth(1).map_or(20, |bits| bits.parse().expect("a number"));
    let count = 1u32 << bits;
    let state: Vec<_> = (0..count).map(|id| (key(id), value(id))).collect();
    let tree =
        HotTree::load(Options::default(), state.iter().map(|(key, value)| (DOMAIN, &key[..], &value[..])));
    let ids: HashMap<KeyHash, u32> = (0..count).map(|id| (KeyHash::of(DOMAIN, &key(id)), id)).collect();
    let find = |hash: &KeyHash| {
        let id = *ids.get(hash)?;
        Some(Entry { domain: DOMAIN.into(), key: key(id).to_vec(), value: value(id).to_vec() })
    };
    let root = tree.root();
    for (name, compressed, first) in
        [("present", "present, as a batch of one", 0), ("absent", "absent, as a batch of one", count)]
    {
        let asked: Vec<u32> = (first..first + COUNT).collect();
        let hashes: Vec<KeyHash> = asked.iter().map(|id| KeyHash::of(DOMAIN, &key(*id))).collect();
        let start = Instant::now();
        let paths: Vec<_> = hashes.iter().map(|hash| tree.prove(hash)).collect();
        let made = start.elapsed();
        let proofs: Vec<Proof> = asked
            .iter()
            .zip(paths)
            .map(|(id, path)| path.complete(DOMAIN, &key(*id), find).expect("the state has all entries"))
            .collect();
        let start = Instant::now();
        for (id, proof) in asked.iter().zip(&proofs) {
            let value = (first == 0).then(|| value(*id));
            proof
                .verify(&root, DOMAIN, &key(*id), value.as_ref().map(|value| &value[..]))
                .expect("a true proof");
        }
        println!("{name}: made in {:.2} us, verified in {:.2} us", per(made), per(start.elapsed()));
        let mut plain = Sizes { name, all: Vec::new() };
        let mut compact = Sizes { name: "the same, compact", all: Vec::new() };
        let mut batch = Sizes { name: compressed, all: Vec::new() };
        for (id, proof) in asked.iter().zip(&proofs) {
            let value = (first == 0).then(|| value(*id));
            let bytes = proof.to_ics23_bytes();
            let shared = BatchProof { proofs: vec![proof.clone()] }.to_ics23_bytes();
            for bytes in [&bytes, &shared] {
                assert!(ics23_accepts(bytes, &root, &key(*id), value.as_ref().map(|value| &value[..])));
            }
            plain.all.push(bytes.len());
            compact.all.push(proof.to_bytes().len());
            batch.all.push(shared.len());
        }
        plain.print();
        batch.print();
        compact.print();
        let all = BatchProof { proofs };
        println!("{name}, {COUNT} in one batch: {} B each", all.to_ics23_bytes().len() / COUNT as usize);
    }
    println!("ics23 accepted all of them; keys=2^{bits}");
}
