//! Proofs as `eth_getProof` gives them: the nodes from the root to the leaf, or to where the path ends without one.

use crate::ethereum::arena::Arena;
use crate::ethereum::dirty::put_node;
use crate::ethereum::nibbles::{KeyPath, common_nibbles, nibble};
use crate::ethereum::node::{INLINE_BELOW, Reference, put_extension};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::trie::StateTrie;

/// The nodes of a proof, in order from the root on. A node that is inlined is in the one before it, and not on its own.
pub(crate) struct ProofNodes(Vec<Vec<u8>>);

impl ProofNodes {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, encoding: Vec<u8>) {
        if self.0.is_empty() || encoding.len() >= INLINE_BELOW {
            self.0.push(encoding);
        }
    }

    pub(crate) fn finish(self) -> Vec<Vec<u8>> {
        self.0
    }
}

/// The nodes on a path below `node`, the top of a trie.
pub(crate) fn prove(arena: &Arena, mut node: Ptr, path: &KeyPath) -> Vec<Vec<u8>> {
    let (mut nodes, mut value, mut depth) = (ProofNodes::new(), Vec::new(), 0);
    while node != Ptr::NONE {
        let mut encoding = Vec::new();
        put_node(arena, node, depth, &mut value, &mut encoding);
        if node.kind() != Kind::Branch {
            nodes.push(encoding);
            break;
        }
        let end = depth + usize::from(arena.branch(node).head.skip);
        if end > depth {
            let (below, mut extension) = (arena.path_below(node), Vec::new());
            put_extension(&mut extension, &below, depth, end, &Reference::of(&encoding));
            nodes.push(extension);
            if common_nibbles(&below, path) < end {
                break;
            }
        }
        nodes.push(encoding);
        node = arena.child(node, nibble(path, end));
        depth = end + 1;
    }
    nodes.finish()
}

impl StateTrie {
    /// The proof of an account, or that there is none: `accountProof` of `eth_getProof`.
    ///
    /// # Cost
    /// Some microseconds: each branch on the path is encoded, and none is hashed but those below an extension.
    pub fn prove_account(&self, account: &KeyPath) -> Vec<Vec<u8>> {
        prove(self.arena(), self.top(), account)
    }

    /// The proof of a slot of an account, or that there is none: `proof` in the `storageProof` of `eth_getProof`. Without
    /// the account, or where it has no storage, there is nothing to prove and no node.
    pub fn prove_slot(&self, account: &KeyPath, slot: &KeyPath) -> Vec<Vec<u8>> {
        let storage = self.account_leaf(account).map_or(Ptr::NONE, |leaf| leaf.storage.node);
        prove(self.arena(), storage, slot)
    }
}
