//! Proofs that leaves are all that a trie has from one path to another: for those who take a state from an archive in parts.
//!
//! Such a proof has the nodes on the ways to both ends. Whoever checks it takes of these nodes what is outside the range, puts the leaves in
//! between, and compares the root.

use crate::ethereum::account::Account;
use crate::ethereum::nibbles::{KeyPath, Nibbles, PATH_LEN};
use crate::ethereum::node::{Child, Node, Reference, read};
use crate::ethereum::node_set::NodeSet;
use crate::ethereum::partial::{PartialTrieBuilder, PartialTrieError};
use crate::hash::Root;
use crate::hash::simd::HashBackend;

/// Why a proof of a range proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeProofError {
    /// A leaf is outside the range, or not after the one before it.
    #[error("leaf {leaf} is outside the range or not after the one before it")]
    Order {
        /// Which leaf, counted from 0.
        leaf: usize,
    },
    /// A node on the way to an end of the range is missing.
    #[error("the node at {position}, on the way to an end of the range, is not among those of the proof")]
    Incomplete {
        /// Where it is.
        position: Nibbles,
    },
    /// Bytes are no node of a trie.
    #[error("the node at {position} is not encoded as a node of the state is")]
    Malformed {
        /// Where it is.
        position: Nibbles,
    },
    /// With these leaves the trie has another root.
    #[error("with these leaves the trie has another root: some are missing, or other ones")]
    OtherRoot,
}

/// What follows a range that was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The trie has leaves after it.
    More,
    /// It was the last.
    End,
}

/// Checks that `accounts`, ascending, are all that the trie of accounts has from `first` to `last`, both inside.
///
/// Without nodes they must be all that the trie has at all.
///
/// # Errors
/// That does not follow from the root. Any nodes are safe to check.
///
/// # Cost
/// Each leaf and node is hashed once, by lanes.
pub fn verify_accounts(
    root: &Root,
    (first, last): (&KeyPath, &KeyPath),
    accounts: &[(KeyPath, Account)],
    nodes: &NodeSet<'_>,
) -> Result<Beyond, RangeProofError> {
    verify(root, (first, last), accounts, nodes, PartialTrieBuilder::push_account)
}

/// Checks that `slots`, ascending, are all that a storage trie has from `first` to `last`, both inside.
///
/// Without nodes they must be all that the trie has at all.
///
/// # Errors
/// That does not follow from the storage root. Any nodes are safe to check.
///
/// # Cost
/// Each leaf and node is hashed once, by lanes.
pub fn verify_slots(
    storage_root: &Root,
    (first, last): (&KeyPath, &KeyPath),
    slots: &[(KeyPath, [u8; 32])],
    nodes: &NodeSet<'_>,
) -> Result<Beyond, RangeProofError> {
    verify(storage_root, (first, last), slots, nodes, PartialTrieBuilder::push_slot)
}

fn verify<L>(
    root: &Root,
    (first, last): (&KeyPath, &KeyPath),
    leaves: &[(KeyPath, L)],
    nodes: &NodeSet<'_>,
    push: impl Fn(&mut PartialTrieBuilder, &KeyPath, &L) -> Result<(), PartialTrieError>,
) -> Result<Beyond, RangeProofError> {
    let mut outside = Outside { first, last, nodes, builder: PartialTrieBuilder::new(), after: Vec::new() };
    if let Some(top) = nodes.node(&root.0) {
        outside.take(Nibbles::EMPTY, top)?;
    }
    let Outside { mut builder, after, .. } = outside;
    let mut previous = None;
    for (number, (path, leaf)) in leaves.iter().enumerate() {
        let wrong = RangeProofError::Order { leaf: number };
        if path < first || path > last || previous.is_some_and(|previous| previous >= path) {
            return Err(wrong);
        }
        previous = Some(path);
        push(&mut builder, path, leaf).map_err(|_| wrong)?;
    }
    let beyond = if after.is_empty() { Beyond::End } else { Beyond::More };
    for part in after {
        part.push(&mut builder)?;
    }
    let trie = builder.finish(HashBackend::default());
    if trie.root() == *root { Ok(beyond) } else { Err(RangeProofError::OtherRoot) }
}

/// What a trie has beside a range.
enum Part<'n> {
    Leaf(KeyPath, &'n [u8]),
    /// A node as its parent has it.
    Known(Nibbles, Reference),
}

impl Part<'_> {
    fn push(self, builder: &mut PartialTrieBuilder) -> Result<(), RangeProofError> {
        match self {
            Self::Leaf(path, value) => builder
                .push_encoded_leaf(&path, value)
                .map_err(|_| RangeProofError::Malformed { position: Nibbles::prefix(&path, PATH_LEN) }),
            Self::Known(position, reference) => {
                builder.push_child(&position, reference).map_err(|_| RangeProofError::Malformed { position })
            }
        }
    }
}

/// Collects what the nodes on the ways to the ends of a range have beside it.
struct Outside<'r, 'n> {
    first: &'r KeyPath,
    last: &'r KeyPath,
    nodes: &'r NodeSet<'n>,
    /// Gets what is before the range.
    builder: PartialTrieBuilder,
    /// What is after it, ascending.
    after: Vec<Part<'n>>,
}

impl<'n> Outside<'_, 'n> {
    /// Takes what a node at a position has outside the range.
    ///
    /// The recursion is as deep as paths are long.
    fn take(&mut self, position: Nibbles, encoding: &'n [u8]) -> Result<(), RangeProofError> {
        let malformed = RangeProofError::Malformed { position };
        match read(encoding).ok_or(malformed)? {
            Node::Leaf { rest, value } => {
                let whole = position.join(&rest).filter(|whole| whole.len() == PATH_LEN).ok_or(malformed)?;
                self.add_outside(whole, Part::Leaf(*whole.padded(), value)).map(|_| ())
            }
            Node::Extension { skipped, branch } => {
                let below = position.join(&skipped).filter(|below| below.len() < PATH_LEN);
                self.take_child(below.ok_or(malformed)?, branch)
            }
            Node::Branch(children) => {
                if position.len() == PATH_LEN {
                    return Err(malformed);
                }
                (0..16).zip(*children).try_for_each(|(nibble, child)| {
                    let mut below = position;
                    below.push(nibble);
                    self.take_child(below, child)
                })
            }
        }
    }

    fn take_child(&mut self, position: Nibbles, child: Child<'n>) -> Result<(), RangeProofError> {
        let reference = match child {
            Child::None => return Ok(()),
            Child::Hash(hash) => Reference::hash(*hash),
            Child::Inline(encoding) => {
                Reference::inline(encoding).ok_or(RangeProofError::Malformed { position })?
            }
        };
        if self.add_outside(position, Part::Known(position, reference))? {
            return Ok(());
        }
        let (lowest, highest) = position.paths();
        if *self.first <= lowest && highest <= *self.last {
            // The leaves say what is there.
            return Ok(());
        }
        let encoding = match child {
            Child::Inline(encoding) => Some(encoding),
            Child::Hash(hash) => self.nodes.node(hash),
            Child::None => None,
        };
        self.take(position, encoding.ok_or(RangeProofError::Incomplete { position })?)
    }

    /// Adds a part that is wholly outside; `false` where it is not.
    fn add_outside(&mut self, position: Nibbles, part: Part<'n>) -> Result<bool, RangeProofError> {
        let (lowest, highest) = position.paths();
        if highest < *self.first {
            part.push(&mut self.builder)?;
        } else if lowest > *self.last {
            self.after.push(part);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}
