//! Nodes of several proofs, each once: what a proof of many accounts, slots and blocks is made of, and one of a [range](crate::ethereum::range).

use std::collections::HashMap;

use crate::ethereum::account::{Account, EMPTY_ROOT, slot_from_rlp};
use crate::ethereum::keccak::keccak256_batch;
use crate::ethereum::nibbles::KeyPath;
use crate::ethereum::verify::{NodeProofError, follow};
use crate::hash::simd::HashBackend;
use crate::hash::{Hash, Root};

/// Nodes of tries, found by their hashes. Whatever else is among them is of no account.
#[derive(Debug)]
pub struct NodeSet<'n> {
    by_hash: HashMap<Hash, &'n [u8]>,
}

impl<'n> NodeSet<'n> {
    /// Takes the encodings of nodes, in any order.
    ///
    /// # Cost
    /// Each is hashed once, by lanes.
    pub fn new(nodes: &'n [impl AsRef<[u8]>]) -> Self {
        let nodes: Vec<&[u8]> = nodes.iter().map(AsRef::as_ref).collect();
        let hashes = keccak256_batch(&nodes, HashBackend::default());
        Self { by_hash: hashes.into_iter().zip(nodes).collect() }
    }

    /// The account that is proven under a state root, or that there is none.
    ///
    /// # Errors
    /// [`NodeProofError::Incomplete`] where a node on its path is missing, [`NodeProofError::Malformed`]; the numbers of nodes are counted from
    /// the root on.
    pub fn account(&self, root: &Root, account: &KeyPath) -> Result<Option<Account>, NodeProofError> {
        self.value(&root.0, account, Account::from_rlp)
    }

    /// The value of a slot that is proven under the storage root of its account, or that there is none.
    ///
    /// # Errors
    /// As for [`account`](Self::account).
    pub fn slot(&self, storage_root: &Hash, slot: &KeyPath) -> Result<Option<[u8; 32]>, NodeProofError> {
        self.value(storage_root, slot, slot_from_rlp)
    }

    fn value<T>(
        &self,
        root: &Hash,
        path: &KeyPath,
        value_of: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, NodeProofError> {
        if *root == EMPTY_ROOT {
            return Ok(None);
        }
        let node_of = |node, hash: &Hash| self.node(hash).ok_or(NodeProofError::Incomplete { nodes: node });
        follow(root, path, value_of, node_of).map(|(value, _)| value)
    }

    /// The encoding of the node with a hash.
    pub(crate) fn node(&self, hash: &Hash) -> Option<&'n [u8]> {
        self.by_hash.get(hash).copied()
    }
}
