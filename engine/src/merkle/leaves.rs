//! What a proof shows of its leaves, gathered from wherever the path comes, and what gathering it took.

use icecore_hot::{Entry, KeyHash, PathProof};

use crate::domain::DomainId;

/// What proofs were made from, and what that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProofCost {
    /// Where the paths came from.
    pub source: ProofSource,
    /// Ranges and keys that were looked up.
    pub reads: u64,
    /// Nodes, leaf entries and values that were read.
    pub entries: u64,
}

/// Where the paths of proofs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofSource {
    /// From the nodes that were kept at the block: a few reads a proof.
    Snapshot,
    /// From the tree, rebuilt from the whole state at the block.
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
    pub(crate) key: &'k [u8],
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
