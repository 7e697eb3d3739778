//! A part of a tree that is enough to prove some keys: leaves, and the hashes of the subtrees in between.
//!
//! Where a tree was kept as rows of nodes, whoever proves a key puts together the nodes beside its path, here. The parts
//! must cover the tree: then the root follows from them, and whoever knows the root knows whether they are right.

use crate::hash::{EMPTY, Hash, KeyHash, Root, bit, inner, leaf};
use crate::proof::path::{Neighbour, Path, PathProof};

/// One part: a leaf, or a whole subtree of two leaves at least.
#[derive(Clone, Debug)]
struct Part {
    /// For a subtree, some key whose first bits name its place.
    key: Hash,
    hash: Hash,
    /// For a subtree, how many bits of `key` name its place.
    depth: Option<usize>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PartialTree {
    parts: Vec<Part>,
    /// Whether a part came that is in the one before it or is not after it: there is no such tree.
    is_broken: bool,
}

impl PartialTree {
    /// A tree without parts: the empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a leaf. Parts come in the order of their key hashes, and none is in another.
    pub fn push_leaf(&mut self, key: KeyHash, value_hash: &[u8; 32]) {
        self.push_hashed(key, leaf(&key, value_hash));
    }

    /// Adds a leaf by its leaf hash, as [`LeafHasher::take`](crate::LeafHasher::take) gives it.
    pub fn push_hashed(&mut self, key: KeyHash, hash: [u8; 32]) {
        self.push(Part { key: key.0, hash, depth: None });
    }

    /// Adds a subtree of two leaves at least: those whose key hashes share the first `depth` bits of `key`.
    pub fn push_inner(&mut self, key: KeyHash, depth: usize, hash: [u8; 32]) {
        self.push(Part { key: key.0, hash, depth: Some(depth) });
    }

    fn push(&mut self, part: Part) {
        self.is_broken |= self.parts.last().is_some_and(|last| !last.is_apart_from(&part));
        self.parts.push(part);
    }

    /// The root of the tree that the parts cover, and the path to each key, or to its neighbours where it is absent.
    /// `None` for a key that the parts do not show: it, or what is next to it, is inside a subtree that is only known
    /// by its hash. Of parts that cannot stand side by side in a tree there is neither root nor path: the empty root, and `None`.
    ///
    /// # Cost
    /// A hash per part, all keys together.
    pub fn prove(&self, keys: &[KeyHash]) -> (Root, Vec<Option<PathProof>>) {
        if self.is_broken {
            return (Root::EMPTY, vec![None; keys.len()]);
        }
        let places: Vec<Place> = keys.iter().map(|key| self.place(key)).collect();
        let mut wanted: Vec<usize> = places.iter().flat_map(Place::leaves).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut forks = Vec::new();
        let root = hash_forks(&self.parts, 0, &mut forks);
        let mut walk =
            Walk { forks: forks.into_iter(), wanted: &wanted, siblings: Vec::new(), paths: Vec::new() };
        walk.node(0, self.parts.len());
        let paths = walk.paths;
        let path = |part: usize| {
            let at = wanted.binary_search(&part).expect("every leaf of a place is wanted");
            paths[at].clone()
        };
        let neighbour = |part: usize| Neighbour { key: KeyHash(self.parts[part].key), path: path(part) };
        let proof = |place: &Place| match *place {
            Place::Hidden => None,
            Place::At(part) => Some(PathProof::Present(path(part))),
            Place::Between(left, right) => {
                Some(PathProof::Absent { left: left.map(neighbour), right: right.map(neighbour) })
            }
        };
        (Root(root), places.iter().map(proof).collect())
    }

    /// Where a key is among the parts.
    fn place(&self, key: &KeyHash) -> Place {
        let covers = |part: &Part| {
            part.depth.is_some_and(|depth| crate::hash::common_bits(&part.key, &key.0) >= depth)
        };
        let at = self.parts.partition_point(|part| part.key < key.0 && !covers(part));
        let right = self.parts.get(at);
        if right.is_some_and(|part| part.depth.is_none() && part.key == key.0) {
            return Place::At(at);
        }
        let left = at.checked_sub(1);
        let is_leaf = |part: &Part| part.depth.is_none();
        if right.is_none_or(is_leaf) && left.is_none_or(|left| is_leaf(&self.parts[left])) {
            return Place::Between(left, right.map(|_| at));
        }
        Place::Hidden
    }
}

/// Where a key is among the parts.
enum Place {
    At(usize),
    Between(Option<usize>, Option<usize>),
    Hidden,
}

impl Place {
    /// The leaves whose paths a proof shows.
    fn leaves(&self) -> impl Iterator<Item = usize> + use<> {
        let pair = match *self {
            Self::At(part) => [Some(part), None],
            Self::Between(left, right) => [left, right],
            Self::Hidden => [None, None],
        };
        pair.into_iter().flatten()
    }
}

/// A node above two parts at least.
struct Fork {
    /// How many of the parts are on the left.
    left_len: usize,
    /// The hashes of both sides.
    halves: [Hash; 2],
}

/// The hash of the node at `depth` above these parts; its forks are added from the top down, left before right.
fn hash_forks(parts: &[Part], depth: usize, forks: &mut Vec<Fork>) -> Hash {
    match parts {
        [] => EMPTY,
        [part] => part.hash_at(depth),
        parts => {
            let left_len = parts.partition_point(|part| bit(&part.key, depth) == 0);
            let (left, right) = parts.split_at(left_len);
            let at = forks.len();
            forks.push(Fork { left_len, halves: [EMPTY; 2] });
            let halves = [hash_forks(left, depth + 1, forks), hash_forks(right, depth + 1, forks)];
            forks[at].halves = halves;
            inner(&halves[0], &halves[1])
        }
    }
}

/// A way through all parts in order, which notes the paths of those that are wanted.
struct Walk<'a> {
    /// Those that were not come to yet.
    forks: std::vec::IntoIter<Fork>,
    /// The parts whose paths were not noted yet, ascending.
    wanted: &'a [usize],
    /// Beside the way from the root down to here.
    siblings: Vec<Hash>,
    paths: Vec<Path>,
}

impl Walk<'_> {
    /// Goes through the `len` parts from number `from` on, which are below one node.
    fn node(&mut self, from: usize, len: usize) {
        if len > 1 {
            let Fork { left_len, halves: [left, right] } = self.forks.next().expect("two parts have a fork");
            self.siblings.push(right);
            self.node(from, left_len);
            self.siblings.pop();
            self.siblings.push(left);
            self.node(from + left_len, len - left_len);
            self.siblings.pop();
        } else if let [wanted, rest @ ..] = self.wanted
            && len == 1
            && *wanted == from
        {
            self.wanted = rest;
            self.paths.push(Path { siblings: self.siblings.iter().rev().copied().collect() });
        }
    }
}

impl Part {
    /// Whether `next` is after this part and outside of it, as this one outside of `next`.
    fn is_apart_from(&self, next: &Self) -> bool {
        let depth = self.depth.into_iter().chain(next.depth).min().unwrap_or(256);
        self.key < next.key && crate::hash::common_bits(&self.key, &next.key) < depth.min(256)
    }

    /// The hash of the node at `depth` below which this part is the only one.
    fn hash_at(&self, depth: usize) -> Hash {
        let deepest = self.depth.unwrap_or(depth);
        (depth..deepest).rev().fold(self.hash, |hash, depth| match bit(&self.key, depth) {
            0 => inner(&hash, &EMPTY),
            _ => inner(&EMPTY, &hash),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> KeyHash {
        let mut key = [0; 32];
        key[0] = first;
        KeyHash(key)
    }

    #[test]
    fn parts_that_no_tree_has_side_by_side_prove_nothing() {
        // First byte of the key; for a subtree how many bits name its place.
        let tree = |parts: &[(u8, Option<usize>)]| {
            let mut tree = PartialTree::new();
            for &(first, depth) in parts {
                match depth {
                    Some(depth) => tree.push_inner(key(first), depth, [1; 32]),
                    None => tree.push_leaf(key(first), &[2; 32]),
                }
            }
            tree
        };
        for broken in [
            [(3, None), (3, None)],
            [(4, None), (3, None)],
            [(0x10, Some(4)), (0x10, None)],
            [(0x10, Some(4)), (0x1F, None)],
            [(0x10, Some(8)), (0x18, Some(4))],
        ] {
            assert_eq!(tree(&broken).prove(&[key(3)]), (Root::EMPTY, vec![None]), "{broken:?}");
        }
        let sound = tree(&[(0x10, Some(4)), (0x20, None), (0x30, Some(8))]);
        let (root, paths) = sound.prove(&[key(0x20), key(0x10)]);
        assert!(root != Root::EMPTY && matches!(paths[..], [Some(PathProof::Present(_)), None]));
    }
}
