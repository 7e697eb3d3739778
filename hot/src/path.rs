//! Paths from leaves to the root, read off the tree; hashes only.

use crate::arena::Line;
use crate::hash::{EMPTY, Hash, KeyHash, inner, prefix};
use crate::heap::Heap;
use crate::subtree::Subtree;
use crate::tree::HotTree;

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
    /// The key is not in the tree: no leaf lies between these two, nor beyond one that is missing.
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

/// Where a leaf lies.
#[derive(Clone, Copy)]
struct Place {
    subtree: usize,
    bucket: usize,
    at: usize,
}

pub(crate) fn prove(tree: &HotTree, key: &KeyHash) -> PathProof {
    let head = prefix(&key.0);
    let subtree = (head >> 1 >> (63 - tree.options().subtree_roots.bits())) as usize;
    let bucket = tree.subtrees()[subtree].bucket_of(head);
    let leaves = tree.subtrees()[subtree].leaves(bucket);
    match leaves.binary_search_by(|leaf| leaf.halves[0].cmp(&key.0)) {
        Ok(at) => PathProof::Present(path(tree, Place { subtree, bucket, at })),
        Err(at) => {
            let place = Place { subtree, bucket, at };
            let neighbour = |place: Place| Neighbour {
                key: KeyHash(leaf(tree.subtrees(), place).halves[0]),
                path: path(tree, place),
            };
            PathProof::Absent {
                left: before(tree.subtrees(), place).map(neighbour),
                right: after(tree.subtrees(), place).map(neighbour),
            }
        }
    }
}

fn leaf(subtrees: &[Subtree], place: Place) -> &Line {
    &subtrees[place.subtree].leaves(place.bucket)[place.at]
}

/// The last leaf before a place.
fn before(subtrees: &[Subtree], place: Place) -> Option<Place> {
    if place.at > 0 {
        return Some(Place { at: place.at - 1, ..place });
    }
    let last_of = |subtree: usize, buckets: std::ops::Range<usize>| {
        let bucket = buckets.rev().find(|&bucket| !subtrees[subtree].leaves(bucket).is_empty())?;
        Some(Place { subtree, bucket, at: subtrees[subtree].leaves(bucket).len() - 1 })
    };
    last_of(place.subtree, 0..place.bucket).or_else(|| {
        let subtree = (0..place.subtree).rev().find(|&subtree| subtrees[subtree].len() > 0)?;
        last_of(subtree, 0..subtrees[subtree].bucket_count())
    })
}

/// The first leaf at or after a place.
fn after(subtrees: &[Subtree], place: Place) -> Option<Place> {
    if place.at < subtrees[place.subtree].leaves(place.bucket).len() {
        return Some(place);
    }
    let first_of = |subtree: usize, mut buckets: std::ops::Range<usize>| {
        let bucket = buckets.find(|&bucket| !subtrees[subtree].leaves(bucket).is_empty())?;
        Some(Place { subtree, bucket, at: 0 })
    };
    first_of(place.subtree, place.bucket + 1..subtrees[place.subtree].bucket_count()).or_else(|| {
        let subtree = (place.subtree + 1..subtrees.len()).find(|&subtree| subtrees[subtree].len() > 0)?;
        first_of(subtree, 0..subtrees[subtree].bucket_count())
    })
}

fn path(tree: &HotTree, place: Place) -> Path {
    let subtree = &tree.subtrees()[place.subtree];
    let mut siblings = Vec::with_capacity(40);
    let leaves = subtree.leaves(place.bucket);
    climb_bucket(leaves, place.at, subtree.bucket_depth() as usize, &mut siblings);
    climb_heap(subtree.heap(), subtree.node_of(place.bucket), &mut siblings);
    climb_heap(tree.top(), tree.subtrees().len() + place.subtree, &mut siblings);
    Path { siblings }
}

/// Adds the siblings inside a bucket, from leaf number `at` up.
fn climb_bucket(leaves: &[Line], at: usize, depth: usize, siblings: &mut Vec<Hash>) {
    if leaves.len() < 2 {
        return;
    }
    let (left, right) = halves(leaves, depth);
    let (mine, at, other) = if at < left.len() { (left, at, right) } else { (right, at - left.len(), left) };
    climb_bucket(mine, at, depth + 1, siblings);
    siblings.push(root_of(other, depth + 1));
}

fn climb_heap(heap: &Heap, mut node: usize, siblings: &mut Vec<Hash>) {
    while node > 1 {
        let sibling = *heap.get(node ^ 1);
        // A leaf alone in a subtree stands for that subtree: its path begins where it meets another.
        if !siblings.is_empty() || sibling != EMPTY {
            siblings.push(sibling);
        }
        node >>= 1;
    }
}

/// Splits ascending leaves that share `depth` bits by the next bit.
fn halves(leaves: &[Line], depth: usize) -> (&[Line], &[Line]) {
    leaves.split_at(leaves.partition_point(|leaf| crate::hash::bit(&leaf.halves[0], depth) == 0))
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
