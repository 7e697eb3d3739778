//! The definition of the root, as short as it can be written.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;

use icecore_hot::{KeyHash, Root, tree_key, tree_value};

const TAG: &[u8; 64] = b"icecore state leaf, version 1: BLAKE3(tag, key hash, value hash)";

/// A leaf hash; a type of its own, so that it is not taken for a value hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf(pub(crate) [u8; 32]);

/// Leaves by key hash.
pub(crate) type Leaves = BTreeMap<[u8; 32], Leaf>;

/// The hash of a leaf.
pub(crate) fn leaf(key: &[u8; 32], value: &[u8; 32]) -> Leaf {
    Leaf(*blake3::hash(&[&TAG[..], key, value].concat()).as_bytes())
}

/// The root of a set of leaves.
pub(crate) fn definition(leaves: &Leaves) -> Root {
    let leaves: Vec<_> = leaves.iter().map(|(key, leaf)| (*key, *leaf)).collect();
    Root(subtree(&leaves, 0))
}

/// The hash of ascending leaves that share `depth` bits.
pub(crate) fn subtree(leaves: &[([u8; 32], Leaf)], depth: usize) -> [u8; 32] {
    match leaves {
        [] => [0; 32],
        [(_, leaf)] => leaf.0,
        _ => {
            let zeros = leaves.iter().filter(|(key, _)| key[depth / 8] >> (7 - depth % 8) & 1 == 0).count();
            let (left, right) = leaves.split_at(zeros);
            let children = [subtree(left, depth + 1), subtree(right, depth + 1)];
            *blake3::hash(&children.concat()).as_bytes()
        }
    }
}

/// A state, as the definition sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Its leaves.
    pub(crate) leaves: Leaves,
}

impl Model {
    /// Sets a value.
    pub(crate) fn put(&mut self, domain: &str, key: &[u8], value: &[u8]) {
        let key = *blake3::hash(&tree_key(domain, key)).as_bytes();
        let value = *blake3::hash(&tree_value(value)).as_bytes();
        self.leaves.insert(key, leaf(&key, &value));
    }

    /// Deletes a value.
    pub(crate) fn delete(&mut self, domain: &str, key: &[u8]) {
        self.leaves.remove(blake3::hash(&tree_key(domain, key)).as_bytes());
    }

    /// The root of the state.
    pub(crate) fn root(&self) -> Root {
        definition(&self.leaves)
    }
}

/// A key hash whose first `shared` bits are the same for every tail.
pub(crate) fn key_hash_sharing(shared: usize, tail: u64) -> KeyHash {
    let common = *blake3::hash(b"shared").as_bytes();
    let own = *blake3::hash(&tail.to_le_bytes()).as_bytes();
    let mut out = own;
    for depth in 0..shared {
        let mask = 128 >> (depth % 8);
        out[depth / 8] = out[depth / 8] & !mask | common[depth / 8] & mask;
    }
    KeyHash(out)
}
