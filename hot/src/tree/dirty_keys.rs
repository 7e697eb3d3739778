//! What a snapshot takes from a tree: the nodes of some rows above the leaves that changed since the one before.
//!
//! A row is a depth, counted in key hash bits from the root. Which nodes a row has follows from the leaves alone and
//! not from how the tree keeps them: a node may be above the subtrees, in a heap, or inside a bucket.
//!
//! The engine gathers a [`DirtyKeys`] from the [`Undo`] of each block and, when a snapshot is due, asks
//! [`HotTree::changed_nodes`] for what to keep. [`PartialTree`](crate::PartialTree) makes proofs of what was kept.

use std::ops::Range;

use crate::hash::Line;
use crate::hash::{EMPTY, Hash, KeyHash, common_bits, leaf, prefix};
use crate::memory::heap::Heap;
use crate::memory::subtree::Subtree;
use crate::proof::path::root_of;
use crate::tree::HotTree;
use crate::tree::batch::Batch;
use crate::tree::undo::Undo;
use crate::update::worker::ENTRIES_PER_LEAF_DISTANCE;

/// What is at one place of the tree: below it are all leaves whose key hashes begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// There is no leaf.
    Empty,
    /// There is one leaf, which stands for the place; its hash.
    Leaf([u8; 32]),
    /// There are two leaves at least; the hash of their subtree.
    Inner([u8; 32]),
}

/// The keys that may have changed since some state, each with the leaf that it had there.
///
/// # Cost
/// 64 bytes for each key of each batch; keys that come again are thrown out now and then.
#[derive(Clone, Debug, Default)]
pub struct DirtyKeys {
    /// Key hash, former leaf hash. Of lines with one key the first counts.
    former: Vec<Line>,
    /// How many were left when keys that came again were last thrown out.
    distinct: usize,
}

/// How many places a thread looks at before it takes more of them.
const PLACES_PER_TURN: usize = 512;

/// Below this many lines it is not worth looking for keys that came again.
const DEDUP_LEN_MIN: usize = 1 << 12;

impl DirtyKeys {
    /// No key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the keys and keeps the memory.
    pub fn clear(&mut self) {
        self.former.clear();
        self.distinct = 0;
    }

    /// Adds what a batch replaced. Batches come in the order they were applied.
    pub fn add(&mut self, undo: &Undo) {
        undo.replaced.iter().for_each(|run| self.former.extend_from_slice(run));
        if self.former.len() > DEDUP_LEN_MIN.max(2 * self.distinct) {
            self.dedup();
        }
    }

    /// Adds a key with the [`value_hash`](crate::value_hash) that it had, `None` where it was absent.
    pub fn add_key(&mut self, key: KeyHash, value_hash: Option<&[u8; 32]>) {
        let former = value_hash.map_or(EMPTY, |value| leaf(&key, value));
        self.former.push(Line { halves: [key.0, former] });
    }

    /// Orders the lines by key and keeps the first of each.
    fn dedup(&mut self) {
        // Stable, and fast on what it is given: a few runs in order.
        self.former.sort_by(|a, b| a.halves[0].cmp(&b.halves[0]));
        self.former.dedup_by(|later, first| later.halves[0] == first.halves[0]);
        self.distinct = self.former.len();
    }
}

impl Undo {
    /// The key hashes whose leaves the batch changed, ascending, and whether each key was there before.
    pub fn keys(&self) -> impl Iterator<Item = (KeyHash, bool)> {
        self.replaced.iter().flatten().map(|line| (KeyHash(line.halves[0]), line.halves[1] != EMPTY))
    }
}

/// A key whose leaf differs from the former one.
struct Change {
    key: Hash,
    was_present: bool,
    /// Empty when it is absent.
    leaf: Hash,
    /// How many first bits the key has in common with that of the change before.
    shared: usize,
}

impl HotTree {
    /// The node at `depth` on the way from the root to `key`.
    ///
    /// # Cost
    /// Two lines; inside a bucket the few hashes of its leaves.
    ///
    /// # Panics
    /// For a depth beyond the 256 bits of a key hash.
    pub fn node(&self, key: &KeyHash, depth: usize) -> Node {
        assert!(depth <= 256, "a key hash has 256 bits");
        let head = prefix(&key.0);
        let root_bits = self.options().subtree_roots.bits() as usize;
        if depth < root_bits {
            return heap_node(self.top(), place(head, 0, depth));
        }
        let subtree = self.subtree(head);
        if depth < subtree.bucket_depth() as usize {
            return heap_node(subtree.heap(), place(head, root_bits, depth - root_bits));
        }
        let bucket = subtree.leaves(subtree.bucket_of(head));
        let is_below = |leaf: &Line| common_bits(&leaf.halves[0], &key.0) >= depth;
        let from = bucket.iter().position(is_below).unwrap_or(bucket.len());
        let len = bucket[from..].iter().take_while(|leaf| is_below(leaf)).count();
        match &bucket[from..from + len] {
            [] => Node::Empty,
            [leaf] => Node::Leaf(leaf.halves[1]),
            leaves => Node::Inner(root_of(leaves, depth)),
        }
    }

    /// The key hashes of the batch that was applied last, in its order: they lie where `apply` put them.
    pub fn key_hashes(&self, batch: &Batch) -> impl Iterator<Item = KeyHash> {
        self.hashed()[..batch.len()].iter().map(|line| KeyHash(line.halves[0]))
    }

    /// The leaf hash of a key, empty when it is absent.
    fn leaf(&self, key: &Hash) -> Hash {
        let head = prefix(key);
        let subtree = self.subtree(head);
        let leaves = subtree.leaves(subtree.bucket_of(head));
        let found = leaves.binary_search_by(|leaf| leaf.halves[0].cmp(key));
        found.map_or(EMPTY, |at| leaves[at].halves[1])
    }

    /// Visits every place at a depth of 0, `spacing`, 2 `spacing` and so on that has an inner node now or had one in
    /// the state that `changed` speaks of, and above leaves that differ between the two: depth, a key below it, and the
    /// hash of the inner node, `None` where there is none now. By depth, then by place; the root is visited in any case.
    ///
    /// What is visited follows from the two states alone.
    ///
    /// # Cost
    /// Proportional to the keys that changed. The threads of the tree look the places up; the caller's alone visits them.
    pub fn changed_nodes(
        &self,
        changed: &mut DirtyKeys,
        spacing: usize,
        mut visit: impl FnMut(usize, &KeyHash, Option<[u8; 32]>),
    ) {
        changed.dedup();
        let changes = self.differing(changed);
        if changes.is_empty() {
            return visit(0, &KeyHash(EMPTY), (self.len() >= 2).then_some(self.root().0));
        }
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut below: Vec<Range<usize>> = std::iter::once(0..changes.len()).collect();
        for depth in (0..256).step_by(spacing) {
            split(&changes, &mut below, depth, &mut groups);
            let mut nodes = vec![Node::Empty; groups.len()];
            let places: Vec<KeyHash> = groups.iter().map(|group| KeyHash(changes[group.start].key)).collect();
            self.find_nodes(depth, &places, &mut nodes);
            for (group, node) in groups.drain(..).zip(nodes) {
                let hash = if let Node::Inner(hash) = node { Some(hash) } else { None };
                if hash.is_some() || depth == 0 || was_inner(&changes[group.clone()], node) {
                    visit(depth, &KeyHash(changes[group.start].key), hash);
                    below.push(group);
                }
            }
            if below.is_empty() {
                return;
            }
        }
    }

    /// Does work for many items, which are split between the threads of the tree.
    fn on_threads<T: Sync, R: Send>(&self, items: &[T], out: &mut [R], work: impl Fn(&[T], &mut [R]) + Sync) {
        let turns = items.chunks(PLACES_PER_TURN).zip(out.chunks_mut(PLACES_PER_TURN));
        let mut threads = vec![(); self.worker_pool.len()];
        self.worker_pool.for_each(&mut threads, turns, |(), (items, out)| work(items, out));
    }

    /// Visits every place at a depth that has a key below it which a batch changed, the batch applied last, that of `undo`: a key hash
    /// below the place, and the hash of the inner node there, `None` where there is none now. Ascending.
    ///
    /// # Cost
    /// Proportional to the keys of the batch. The threads of the tree look the places up; the caller's alone visits them.
    pub fn nodes_above(&self, undo: &Undo, depth: usize, mut visit: impl FnMut(&KeyHash, Option<[u8; 32]>)) {
        let mut places: Vec<KeyHash> = Vec::new();
        for (key, _) in undo.keys() {
            if places.last().is_none_or(|last| common_bits(&last.0, &key.0) < depth) {
                places.push(key);
            }
        }
        let mut nodes = vec![Node::Empty; places.len()];
        self.find_nodes(depth, &places, &mut nodes);
        for (place, node) in places.iter().zip(nodes) {
            visit(place, if let Node::Inner(hash) = node { Some(hash) } else { None });
        }
    }

    /// The node at `depth` on the way to each of some keys, which ascend.
    fn find_nodes(&self, depth: usize, keys: &[KeyHash], nodes: &mut [Node]) {
        self.on_threads(keys, nodes, |keys, nodes| {
            let ahead = self.options().prefetch.distance();
            let head_at = |at: usize| keys.get(at).map(|key| prefix(&key.0));
            for (at, (key, node)) in keys.iter().zip(nodes).enumerate() {
                if ahead > 0 {
                    let far = head_at(at + ENTRIES_PER_LEAF_DISTANCE * ahead);
                    self.prefetch_node(depth, far, head_at(at + ahead));
                }
                *node = self.node(key, depth);
            }
        });
    }

    /// The leaf hashes of keys, as [`Self::leaf`] finds them.
    fn find_leaves(&self, keys: &[Line], leaves: &mut [Hash]) {
        let ahead = self.options().prefetch.distance();
        let head_at = |at: usize| keys.get(at).map(|line| prefix(&line.halves[0]));
        for (at, (line, leaf)) in keys.iter().zip(leaves).enumerate() {
            if ahead > 0 {
                self.prefetch_leaf(head_at(at + ENTRIES_PER_LEAF_DISTANCE * ahead), head_at(at + ahead));
            }
            *leaf = self.leaf(&line.halves[0]);
        }
    }

    /// The keys whose leaf is another one than before.
    fn differing(&self, changed: &DirtyKeys) -> Vec<Change> {
        let mut leaves = vec![EMPTY; changed.former.len()];
        self.on_threads(&changed.former, &mut leaves, |keys, leaves| self.find_leaves(keys, leaves));
        let mut changes: Vec<Change> = Vec::with_capacity(leaves.len());
        for (line, leaf) in changed.former.iter().zip(leaves) {
            let [key, former] = line.halves;
            if leaf != former {
                let shared = changes.last().map_or(0, |last| common_bits(&last.key, &key));
                changes.push(Change { key, was_present: former != EMPTY, leaf, shared });
            }
        }
        changes
    }

    /// Asks for what [`Self::leaf`] will touch for a key that is near, and for one that is far for what says where that is.
    fn prefetch_leaf(&self, far: Option<u64>, near: Option<u64>) {
        if let Some(far) = far {
            self.subtree(far).prefetch_entry(far);
        }
        if let Some(near) = near {
            self.subtree(near).prefetch_leaves(near);
        }
    }

    /// The same for [`Self::node`]. The levels above the subtrees are few lines.
    fn prefetch_node(&self, depth: usize, far: Option<u64>, near: Option<u64>) {
        let root_bits = self.options().subtree_roots.bits() as usize;
        let in_bucket = |head: &u64| depth >= self.subtree(*head).bucket_depth() as usize;
        self.prefetch_leaf(far.filter(in_bucket), near.filter(in_bucket));
        if let Some(head) = near.filter(|head| depth >= root_bits && !in_bucket(head)) {
            let (heap, node) = (self.subtree(head).heap(), place(head, root_bits, depth - root_bits));
            heap.prefetch(node);
            heap.prefetch(node >> 1);
        }
    }

    /// The subtree that the first bits of a key hash lead to.
    fn subtree(&self, head: u64) -> &Subtree {
        let root_bits = self.options().subtree_roots.bits() as usize;
        &self.subtrees()[place(head, 0, root_bits) - (1 << root_bits)]
    }
}

/// Splits groups of changes into those that share `depth` bits, in order.
fn split(changes: &[Change], wider: &mut Vec<Range<usize>>, depth: usize, groups: &mut Vec<Range<usize>>) {
    for group in wider.drain(..) {
        let mut start = group.start;
        for (at, change) in changes.iter().enumerate().take(group.end).skip(start + 1) {
            if change.shared < depth {
                groups.push(start..at);
                start = at;
            }
        }
        groups.push(start..group.end);
    }
}

/// Whether there was an inner node above these changes, which are all that differ below it, where now is `node`.
fn was_inner(changes: &[Change], node: Node) -> bool {
    let present = changes.iter().filter(|change| change.was_present).count();
    let untouched = match node {
        Node::Leaf(leaf) => usize::from(changes.iter().all(|change| change.leaf != leaf)),
        Node::Empty | Node::Inner(_) => 0,
    };
    present + untouched >= 2
}

/// The number in a heap of the node that `len` bits of a key hash lead to, the first `skip` bits left out.
fn place(head: u64, skip: usize, len: usize) -> usize {
    // Two shifts, because a shift by all 64 bits is not one.
    (1 << len) + ((head << skip) >> 1 >> (63 - len)) as usize
}

/// A node of a heap that has its children in the same heap.
fn heap_node(heap: &Heap, node: usize) -> Node {
    let hash = *heap.get(node);
    let [left, right] = &heap.children(node).halves;
    match (*left == EMPTY, *right == EMPTY) {
        (true, true) => Node::Empty,
        // One leaf stands for the place as it does for the child; a subtree would be hashed once more.
        (true, false) if *right == hash => Node::Leaf(hash),
        (false, true) if *left == hash => Node::Leaf(hash),
        _ => Node::Inner(hash),
    }
}
