//! Proofs over a tree of 2^20 keys: their bytes, and how long a path and a verification take.

use std::collections::HashMap;
use std::time::Duration;

use icecore_hot::measure::{DOMAIN, key, value};
use icecore_hot::{Entry, KeyHash, Proof};
use icecore_tools::measure::cpu::Times;

use super::{Bench, load, options};

/// Proofs of each kind.
const PROOFS: u64 = 1000;

const PASSES: u32 = 5;

/// Measures proofs of present and of absent keys.
pub(super) fn measure(bench: &mut Bench) {
    let keys = 1u64 << (20 - bench.cut);
    let tree = load(options(1), keys as usize);
    let root = tree.root();
    let ids: HashMap<KeyHash, u64> = (0..keys).map(|id| (KeyHash::of(DOMAIN, &key(id)), id)).collect();
    let find = |hash: &KeyHash| {
        let id = *ids.get(hash)?;
        Some(Entry::from((DOMAIN.to_owned(), key(id).to_vec(), value(id, 0).to_vec())))
    };
    for (kind, first) in [("existence", 0), ("absence", keys)] {
        let asked = first..first + PROOFS;
        let hashes: Vec<_> = asked.clone().map(|id| KeyHash::of(DOMAIN, &key(id))).collect();
        let path_made = fastest(|| hashes.iter().map(|hash| tree.prove(hash)).collect::<Vec<_>>());
        let proofs: Vec<Proof> = asked
            .clone()
            .zip(&hashes)
            .map(|(id, hash)| {
                tree.prove(hash).complete(DOMAIN, &key(id), find).expect("the state has all entries")
            })
            .collect();
        let verified = fastest(|| {
            for (id, proof) in asked.clone().zip(&proofs) {
                let value = (id < keys).then(|| value(id, 0));
                proof.verify(&root, DOMAIN, &key(id), value.as_ref().map(|v| &v[..])).expect("a true proof");
            }
        });
        let mut sizes: Vec<usize> = proofs.iter().map(|proof| proof.to_ics23_bytes().len()).collect();
        sizes.sort_unstable();
        let compact: usize = proofs.iter().map(|proof| proof.to_bytes().len()).sum();
        let mut add = |what: &str, figure: f64| {
            bench.figures.add(&format!("2^20 keys, proof of {kind}: {what}"), figure);
        };
        add("ICS23, mean", sizes.iter().sum::<usize>() as f64 / PROOFS as f64);
        add("ICS23, p99", sizes[sizes.len() * 99 / 100] as f64);
        add("compact, mean", compact as f64 / PROOFS as f64);
        add("path made", path_made.as_secs_f64() * 1e6 / PROOFS as f64);
        add("verified", verified.as_secs_f64() * 1e6 / PROOFS as f64);
    }
}

/// The shortest time on a processor of several passes.
fn fastest<R>(work: impl Fn() -> R) -> Duration {
    (0..PASSES).map(|_| Times::of(&work).0.cpu).min().unwrap_or_default()
}
