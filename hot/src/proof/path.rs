//! Paths from leaves to the root: hashes only.

use crate::hash::Line;
use crate::hash::{EMPTY, Hash, KeyHash, bit, inner};

/// The siblings on the way from a leaf to the root, the leaf's own first, as ICS23 orders them.
///
/// On which side each sibling stands follows from the key hash: the last one belongs to its first bit.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Path {
    /// The sibling hashes; 32 zeros where a sibling is empty. As many as the leaf is deep.
    pub siblings: Vec<[u8; 32]>,
}

/// A leaf next to a key that is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Whose leaf it is.
    pub key: KeyHash,
    /// Its way to the root.
    pub path: Path,
}

/// What the tree knows of a key: all of a proof but keys and values. See [`PathProof::complete`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathProof {
    /// The key is in the tree.
    Present(Path),
    /// The key is not in the tree: no leaf is between these two, nor beyond one that is missing.
    Absent {
        /// The leaf with the greatest key hash below the key's.
        left: Option<Neighbour>,
        /// The leaf with the least key hash above the key's.
        right: Option<Neighbour>,
    },
}

impl PathProof {
    /// The key hashes of the neighbours, whose keys and values a proof of absence shows.
    pub fn neighbours(&self) -> impl Iterator<Item = &KeyHash> {
        let pair = match self {
            Self::Present(_) => [None, None],
            Self::Absent { left, right } => [left.as_ref(), right.as_ref()],
        };
        pair.into_iter().flatten().map(|neighbour| &neighbour.key)
    }
}

/// Splits ascending leaves that share `depth` bits by the next bit.
pub(crate) fn halves(leaves: &[Line], depth: usize) -> (&[Line], &[Line]) {
    leaves.split_at(leaves.partition_point(|leaf| bit(&leaf.halves[0], depth) == 0))
}

/// The canonical hash of ascending leaves that share `depth` bits.
pub(crate) fn root_of(leaves: &[Line], depth: usize) -> Hash {
    match leaves {
        [] => EMPTY,
        [leaf] => leaf.halves[1],
        _ => {
            let (left, right) = halves(leaves, depth);
            inner(&root_of(left, depth + 1), &root_of(right, depth + 1))
        }
    }
}
