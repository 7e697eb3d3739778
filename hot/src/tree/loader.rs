//! Building a tree from a whole state at once.

use crate::hash::Line;
use crate::hash::simd::Lanes;
use crate::hash::{EMPTY, leaf};
use crate::hash::{KeyHash, prefix};
use crate::memory::stage::Stage;
use crate::options::Options;
use crate::tree::HotTree;
use crate::tree::batch::Batch;

/// Changes that are hashed together: enough for the lanes, few enough for the first cache.
const CHUNK: usize = 256;

/// Collects a state in any order of keys and builds its tree in one pass over each subtree.
///
/// # Cost
/// Three hashes per key as it is pushed and some three when it is finished. While it loads, a leaf takes 64
/// bytes; a subtree's are given back as soon as it is built.
#[derive(Debug)]
pub struct Loader {
    tree: HotTree,
    hasher: LeafHasher,
    leaves: Vec<Stage>,
}

/// Hashes keys and values to leaves, which a [`Loader`] takes: one for each thread that reads a part of a state.
#[derive(Debug)]
pub struct LeafHasher {
    lanes: Lanes,
    waiting: Batch,
    leaves: Vec<Line>,
}

impl LeafHasher {
    /// A hasher for a tree with these options.
    pub fn new(options: &Options) -> Self {
        Self { lanes: Lanes::new(options.hash_backend), waiting: Batch::new(), leaves: Vec::new() }
    }

    /// Adds a key with its value.
    ///
    /// # Panics
    /// When the domain name is longer than [`DOMAIN_LEN_MAX`](crate::DOMAIN_LEN_MAX).
    pub fn push(&mut self, domain: &str, key: &[u8], value: &[u8]) {
        self.waiting.put(domain, key, value);
        if self.waiting.len() == CHUNK {
            self.hash();
        }
    }

    /// The number of leaves that no loader has taken yet.
    pub fn len(&self) -> usize {
        self.leaves.len() + self.waiting.len()
    }

    /// Whether a loader has taken all of them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the key hashes and the leaf hashes of all leaves out, in the order in which they came.
    pub fn take(&mut self) -> impl Iterator<Item = (KeyHash, [u8; 32])> {
        self.hash();
        self.leaves.drain(..).map(|line| (KeyHash(line.halves[0]), line.halves[1]))
    }

    fn hash(&mut self) {
        let from = self.leaves.len();
        self.leaves.resize(from + self.waiting.len(), Line { halves: [EMPTY; 2] });
        self.waiting.hash(self.lanes, 0, &mut self.leaves[from..]);
        self.waiting.clear();
    }
}

impl Loader {
    /// A loader of a tree with these options.
    pub fn new(options: Options) -> Self {
        let tree = HotTree::new(options);
        let leaves = std::iter::repeat_with(Stage::default).take(options.subtree_roots.count()).collect();
        Self { tree, hasher: LeafHasher::new(&options), leaves }
    }

    /// Adds a key with its value. Of a key that is given twice the last value counts.
    ///
    /// # Panics
    /// When the domain name is longer than [`DOMAIN_LEN_MAX`](crate::DOMAIN_LEN_MAX).
    pub fn push(&mut self, domain: &str, key: &[u8], value: &[u8]) {
        self.hasher.push(domain, key, value);
        if self.hasher.len() == CHUNK {
            self.flush();
        }
    }

    /// Takes what a hasher has hashed.
    pub fn take(&mut self, hasher: &mut LeafHasher) {
        hasher.hash();
        for leaf in &hasher.leaves {
            self.add(*leaf);
        }
        hasher.leaves.clear();
    }

    /// Adds a leaf whose hashes are known: of the tree key ([`tree_key`](crate::tree_key)), and of the value
    /// ([`value_hash`](crate::value_hash)).
    pub fn push_hashed(&mut self, key: KeyHash, value_hash: &[u8; 32]) {
        self.flush();
        self.add(Line { halves: [key.0, leaf(&key, value_hash)] });
    }

    /// Builds the tree.
    pub fn finish(mut self) -> HotTree {
        self.flush();
        self.tree.fill(self.leaves);
        self.tree
    }

    fn flush(&mut self) {
        let mut hasher = std::mem::replace(&mut self.hasher, LeafHasher::new(self.tree.options()));
        self.take(&mut hasher);
        self.hasher = hasher;
    }

    fn add(&mut self, leaf: Line) {
        let subtree = prefix(&leaf.halves[0]) >> 1 >> (63 - self.tree.options().subtree_roots.bits());
        self.leaves[subtree as usize].push(self.tree.pool(), leaf);
    }
}

impl HotTree {
    /// Builds the tree of the given state: domain, key, value, in any order; see [`Loader`].
    pub fn load<'a>(
        options: Options,
        state: impl IntoIterator<Item = (&'a str, &'a [u8], &'a [u8])>,
    ) -> Self {
        let mut loader = Loader::new(options);
        state.into_iter().for_each(|(domain, key, value)| loader.push(domain, key, value));
        loader.finish()
    }
}
