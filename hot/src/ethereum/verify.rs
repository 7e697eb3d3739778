//! Checking a proof without a trie.

use crate::ethereum::account::{Account, EMPTY_ROOT, slot_from_rlp};
use crate::ethereum::nibbles::{KeyPath, PATH_LEN, nibble};
use crate::ethereum::node::{Child, INLINE_BELOW, Node, read};
use crate::hash::keccak::keccak256;
use crate::hash::{Hash, Root};

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeProofError {
    /// The hash of a node is not what its parent, or the root, says.
    #[error("node {node} of the proof is not the one that the hash above it names")]
    OtherHash {
        /// Which node of the proof, counted from 0.
        node: usize,
    },
    /// The bytes are no node of a trie, or no account or slot.
    #[error("node {node} of the proof is not encoded as a node of the state is")]
    Malformed {
        /// Which node of the proof, counted from 0.
        node: usize,
    },
    /// The proof ends before the path does.
    #[error("the proof ends after {nodes} nodes and before the path does")]
    Incomplete {
        /// How many nodes it has.
        nodes: usize,
    },
    /// There are nodes that the path does not lead to.
    #[error("the proof ends with node {node}, and more nodes follow")]
    Trailing {
        /// The last node that the path leads to, counted from 0.
        node: usize,
    },
}

/// Checks the proof of an account against a state root: the account, or that there is none.
///
/// # Errors
/// The proof is not of this path under this root. Any bytes are safe to check.
///
/// # Cost
/// Each node is hashed once: some microseconds.
pub fn verify_account(
    root: &Root,
    account: &KeyPath,
    proof: &[impl AsRef<[u8]>],
) -> Result<Option<Account>, NodeProofError> {
    verify(&root.0, account, proof, Account::from_rlp)
}

/// Checks the proof of a slot against the storage root of its account: the value, or that there is none.
///
/// # Errors
/// The proof is not of this path under this root. Any bytes are safe to check.
///
/// # Cost
/// Each node is hashed once: some microseconds.
pub fn verify_slot(
    storage_root: &[u8; 32],
    slot: &KeyPath,
    proof: &[impl AsRef<[u8]>],
) -> Result<Option<[u8; 32]>, NodeProofError> {
    verify(storage_root, slot, proof, slot_from_rlp)
}

fn verify<T>(
    root: &Hash,
    path: &KeyPath,
    proof: &[impl AsRef<[u8]>],
    value_of: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, NodeProofError> {
    if proof.is_empty() && *root == EMPTY_ROOT {
        return Ok(None);
    }
    let (value, nodes) = follow(root, path, value_of, |node, expected| {
        let encoding = proof.get(node).ok_or(NodeProofError::Incomplete { nodes: proof.len() })?.as_ref();
        if keccak256(encoding) == *expected { Ok(encoding) } else { Err(NodeProofError::OtherHash { node }) }
    })?;
    if nodes < proof.len() { Err(NodeProofError::Trailing { node: nodes - 1 }) } else { Ok(value) }
}

/// Follows a path from a root to a value, or to nothing, by way of the nodes that `node_of` has for numbers, counted from the root on, and hashes.
/// Gives how many nodes that were as well.
pub(crate) fn follow<'n, T>(
    root: &Hash,
    path: &KeyPath,
    value_of: impl Fn(&[u8]) -> Option<T>,
    mut node_of: impl FnMut(usize, &Hash) -> Result<&'n [u8], NodeProofError>,
) -> Result<(Option<T>, usize), NodeProofError> {
    let (mut depth, mut expected) = (0, *root);
    for node in 0.. {
        let encoding = node_of(node, &expected)?;
        let malformed = NodeProofError::Malformed { node };
        // Below the root a node that is this short stands in its parent.
        if node > 0 && encoding.len() < INLINE_BELOW {
            return Err(malformed);
        }
        match walk(encoding, path, &mut depth, &value_of).ok_or(malformed)? {
            Step::Below(hash) => expected = hash,
            Step::End(value) => return Ok((value, node + 1)),
        }
    }
    unreachable!("each node is deeper than the one before it, and a path has 64 nibbles")
}

/// Where a path leads to from a node.
enum Step<T> {
    /// To a node with this hash.
    Below(Hash),
    /// To a value, or to nothing.
    End(Option<T>),
}

/// Follows a path through a node and those inlined in it; `None` where one of them is malformed.
fn walk<T>(
    mut encoding: &[u8],
    path: &KeyPath,
    depth: &mut usize,
    value_of: impl Fn(&[u8]) -> Option<T>,
) -> Option<Step<T>> {
    let mut is_below_extension = false;
    loop {
        let node = read(encoding)?;
        let child = match node {
            Node::Branch(children) => {
                if *depth >= PATH_LEN {
                    return None;
                }
                let child = children[nibble(path, *depth)];
                *depth += 1;
                is_below_extension = false;
                child
            }
            _ if is_below_extension => return None,
            Node::Leaf { rest, value } => {
                if rest.len() != PATH_LEN - *depth {
                    return None;
                }
                let value = value_of(value)?;
                let is_of_path =
                    rest.iter().enumerate().all(|(i, n)| usize::from(n) == nibble(path, *depth + i));
                return Some(Step::End(is_of_path.then_some(value)));
            }
            Node::Extension { skipped, branch } => {
                if *depth + skipped.len() >= PATH_LEN {
                    return None;
                }
                if skipped.iter().enumerate().any(|(i, n)| usize::from(n) != nibble(path, *depth + i)) {
                    return Some(Step::End(None));
                }
                *depth += skipped.len();
                is_below_extension = true;
                branch
            }
        };
        match child {
            Child::None => return Some(Step::End(None)),
            Child::Hash(hash) => return Some(Step::Below(*hash)),
            Child::Inline(inlined) => encoding = inlined,
        }
    }
}
