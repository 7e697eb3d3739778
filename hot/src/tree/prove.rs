//! Paths read off the tree.

use crate::hash::{EMPTY, Hash, KeyHash, Line, prefix};
use crate::memory::heap::Heap;
use crate::memory::subtree::Subtree;
use crate::proof::path::{Neighbour, Path, PathProof, halves, root_of};
use crate::tree::HotTree;

/// Where a leaf is.
#[derive(Clone, Copy)]
struct Place {
    subtree: usize,
    bucket: usize,
    at: usize,
}

impl HotTree {
    /// The path to a key, or, where it is absent, the paths to its neighbours.
    ///
    /// # Cost
    /// One line per level, and the few hashes of one bucket. No lock, no other thread.
    pub fn prove(&self, key: &KeyHash) -> PathProof {
        let head = prefix(&key.0);
        let subtree = (head >> 1 >> (63 - self.options().subtree_roots.bits())) as usize;
        let bucket = self.subtrees()[subtree].bucket_of(head);
        let leaves = self.subtrees()[subtree].leaves(bucket);
        match leaves.binary_search_by(|leaf| leaf.halves[0].cmp(&key.0)) {
            Ok(at) => PathProof::Present(path(self, Place { subtree, bucket, at })),
            Err(at) => {
                let place = Place { subtree, bucket, at };
                let neighbour = |place: Place| Neighbour {
                    key: KeyHash(leaf(self.subtrees(), place).halves[0]),
                    path: path(self, place),
                };
                PathProof::Absent {
                    left: before(self.subtrees(), place).map(neighbour),
                    right: after(self.subtrees(), place).map(neighbour),
                }
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
