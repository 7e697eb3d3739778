//! What a proof shows of its leaves, collected from wherever the path comes, and what that took.

use icecore_hot::{Entry, KeyHash, PathProof};

use crate::domain::DomainId;

/// What it took to make proofs: part of the answer of [`View::prove_counted`](crate::View::prove_counted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProofCost {
    /// What the proofs were made from.
    pub source: ProofSource,
    /// How many ranges and keys were looked up.
    pub reads: u64,
    /// How many nodes, leaves and values were read.
    pub entries: u64,
}

/// What proofs are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofSource {
    /// The nodes kept at a snapshot: a few reads per proof.
    Snapshot,
    /// The rows of the block, and the leaves below a place of the deepest: some hundred reads and some thousand leaves per proof.
    Rows,
    /// The tree, rebuilt from the whole state at the block.
    State,
}

/// The leaves whose entries are known, by key hash.
#[derive(Default)]
pub(crate) struct Leaves(Vec<(KeyHash, Entry)>);

impl Leaves {
    /// Adds an entry; [`order`](Self::order) must follow before the next question.
    pub(crate) fn push(&mut self, hash: KeyHash, entry: Entry) {
        self.0.push((hash, entry));
    }

    pub(crate) fn order(&mut self) {
        self.0.sort_by_key(|(hash, _)| *hash);
        self.0.dedup_by(|later, first| later.0 == first.0);
    }

    pub(crate) fn get(&self, hash: &KeyHash) -> Option<&Entry> {
        self.0.binary_search_by(|(known, _)| known.cmp(hash)).ok().map(|at| &self.0[at].1)
    }

    /// Ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(KeyHash, Entry)> {
        self.0.iter()
    }
}

/// A key to prove.
pub(crate) struct Asked<'k> {
    pub(crate) id: DomainId,
    pub(crate) domain: &'k str,
    /// As callers know it.
    pub(crate) key: &'k [u8],
    /// As it is stored.
    pub(crate) stored: &'k [u8],
    pub(crate) hash: KeyHash,
}

impl Asked<'_> {
    /// The leaf that shows its value.
    pub(crate) fn entry(&self, value: Vec<u8>) -> Entry {
        Entry { domain: self.domain.to_owned(), key: self.key.to_vec(), value }
    }
}

/// The paths of the keys of a proof, in the order asked, and what completes them.
pub(crate) struct Paths {
    pub(crate) of_keys: Vec<PathProof>,
    pub(crate) leaves: Leaves,
    pub(crate) cost: ProofCost,
}
