//! Rows of Icecore's tree at every block, which an archive keeps whose domains are by path: what a block writes of them, and proofs from
//! them.
//!
//! Four levels of the tree are a nibble, so that its rows are at the depths of those of [Ethereum's tries](crate::merkle::row_depths), are
//! kept under the same keys and [opened](crate::merkle::trie_rows) alike: around some paths, down to ranges of leaves. What a row has at a
//! place is the hash of the inner node there; where it has none there is a leaf or nothing. The root that follows from both is compared
//! with the recorded one.

use icecore_hot::ethereum::{KeyPath, Nibbles};
use icecore_hot::{HotTree, KeyHash, Node, Parallelism, PartialTree, PathProof, Root, Undo};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::Direction;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion};
use crate::merkle::build::build_tree;
use crate::merkle::leaves::{Asked, Leaves, Paths, ProofCost, ProofSource};
use crate::merkle::node_error::node_damaged;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::tree_leaves::{TreeLeaf, TreeLeaves};
use crate::merkle::trie_rows::{KeptTrie, OpenedTrie, accounts_depth};
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::stats::Counters;

/// The levels of the tree that are one of its rows.
const LEVELS: usize = 4;

/// What a block at `height` that was just applied, that of `undo`, writes of rows, ascending: each place below which it changed something,
/// and all of a row that the tree did not have before.
pub(crate) fn row_nodes(
    tree: &HotTree,
    undo: &Undo,
    height: BlockNumber,
    (before, now): (RowDepth, RowDepth),
) -> Vec<NodeVersion> {
    let mut nodes = vec![NodeVersion { key: NodeKey::ROOT, block: height, value: top_value(now) }];
    for depth in now.rows() {
        if before.rows().any(|row| row == depth) {
            tree.nodes_above(undo, LEVELS * depth, |key, hash| {
                nodes.push(row_version(height, depth, key, hash));
            });
        } else {
            nodes.extend(whole_row(tree, height, depth));
        }
    }
    nodes
}

/// What is kept of the depth of the rows.
fn top_value(depth: RowDepth) -> NodeValue {
    NodeValue::Row([depth.encode()].as_slice().into())
}

fn row_version(height: BlockNumber, depth: usize, path: &KeyHash, hash: Option<[u8; 32]>) -> NodeVersion {
    let value = hash.map_or(NodeValue::Deleted, NodeValue::Inner);
    NodeVersion { key: NodeKey::trie_row(None, depth, &path.0), block: height, value }
}

/// All of the row at `depth`.
fn whole_row(tree: &HotTree, height: BlockNumber, depth: usize) -> impl Iterator<Item = NodeVersion> {
    Nibbles::EMPTY.extended_to(depth).map(move |position| {
        let path = KeyHash(position.paths().0);
        let hash = match tree.node(&path, LEVELS * depth) {
            Node::Inner(hash) => Some(hash),
            Node::Empty | Node::Leaf(_) => None,
        };
        row_version(height, depth, &path, hash)
    })
}

/// The rows at a block of an archive whose domains are by path.
#[derive(Clone, Copy)]
pub(crate) struct TreeRows<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) config: &'v Config,
    pub(crate) nodes: DomainId,
    pub(crate) counters: &'v Counters,
    pub(crate) at: BlockNumber,
    pub(crate) workers: usize,
}

/// The tree opened around some paths.
struct OpenedTree {
    parts: PartialTree,
    /// The leaves that were read, ascending.
    leaves: Vec<TreeLeaf>,
    /// The nodes beside the ways that were read.
    nodes: u64,
}

impl TreeRows<'_> {
    /// The depth of the rows of the block whose state is that at `at`; `None` where it has none.
    fn depth(&self) -> Result<Option<RowDepth>, Error> {
        let (block, _) = self.version.newest_root(self.at)?;
        let kept = accounts_depth(self.version, self.nodes, self.at, self.counters.mine())?;
        let of_block =
            kept.filter(|(of, depth)| *of == block && (self.version.keeps_rows || *depth != RowDepth::NONE));
        Ok(of_block.map(|(_, depth)| depth))
    }

    /// The paths of keys that are there and of keys that are not, by way of the rows of the block, where it has some.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when rows and leaves do not have the recorded root.
    pub(crate) fn paths_if_kept(&self, asked: &[Asked<'_>]) -> Result<Option<Paths>, Error> {
        self.depth()?.map(|depth| self.paths(depth, asked)).transpose()
    }

    fn paths(&self, depth: RowDepth, asked: &[Asked<'_>]) -> Result<Paths, Error> {
        let hashes: Vec<KeyHash> = asked.iter().map(|asked| asked.hash).collect();
        let mut cost = ProofCost { source: ProofSource::Rows, reads: 1, entries: 1 };
        let (mut opened, mut paths) = self.open_and_prove(depth, &hashes, &[], &mut cost)?;
        let hidden = hashes.iter().zip(&paths).filter(|(_, path)| path.is_none()).map(|(hash, _)| *hash);
        let hidden: Vec<KeyHash> = hidden.collect();
        if !hidden.is_empty() {
            // The neighbours of these are below other places of the deepest row.
            let mut beside = Vec::new();
            for path in &hidden {
                for side in [Direction::Backward, Direction::Forward] {
                    beside.extend(self.leaves().neighbour(path, side)?);
                    cost.reads += 1;
                }
            }
            (opened, paths) = self.open_and_prove(depth, &hashes, &beside, &mut cost)?;
        }
        let paths: Option<Vec<PathProof>> = paths.into_iter().collect();
        let paths = paths.ok_or_else(|| self.wrong(NodeKey::ROOT))?;
        let present = hashes.iter().zip(&paths).filter(|(_, path)| matches!(path, PathProof::Present(_)));
        let mut wanted: Vec<&KeyHash> =
            present.map(|(hash, _)| hash).chain(paths.iter().flat_map(PathProof::neighbours)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        cost.reads += wanted.len() as u64;
        cost.entries += wanted.len() as u64;
        let leaves = self.entries(&wanted, &opened.leaves)?;
        Ok(Paths { of_keys: paths, leaves, cost })
    }

    /// Opens the tree around keys and what is beside them, and proves the keys as far as what is next to them was opened.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when rows and leaves do not have the recorded root.
    fn open_and_prove(
        &self,
        depth: RowDepth,
        keys: &[KeyHash],
        beside: &[KeyHash],
        cost: &mut ProofCost,
    ) -> Result<(OpenedTree, Vec<Option<PathProof>>), Error> {
        let mut targets: Vec<KeyPath> = keys.iter().chain(beside).map(|key| key.0).collect();
        targets.sort_unstable();
        targets.dedup();
        let opened = self.open(depth, &targets)?;
        cost.reads += opened.nodes;
        cost.entries += opened.nodes + opened.leaves.len() as u64;
        let (root, paths) = opened.parts.prove(keys);
        self.version.check_root(self.at, root)?;
        Ok((opened, paths))
    }

    /// Opens the tree down to the leaves around paths, which ascend.
    fn open(&self, depth: RowDepth, paths: &[KeyPath]) -> Result<OpenedTree, Error> {
        let &Self { version, nodes, at, .. } = self;
        let trie = KeptTrie { version, nodes, at, account: None, depth };
        let OpenedTrie { known, ranges } = trie.open(paths, self.counters.mine())?;
        let leaves = self.leaves().read(&ranges, self.workers)?;
        let (mut parts, mut rest) = (PartialTree::new(), leaves.iter().peekable());
        for (position, node) in &known {
            let (first, _) = position.paths();
            while let Some(leaf) = rest.next_if(|leaf| leaf.path.0 < first) {
                parts.push_hashed(leaf.path, leaf.hash);
            }
            // Nothing is skipped in this tree, and no node is named by its encoding.
            let hash = node.reference.bytes().try_into().ok().filter(|_| node.skipped.is_empty());
            let hash = hash.ok_or_else(|| self.wrong(NodeKey::trie_row(None, position.len(), &first)))?;
            parts.push_inner(KeyHash(first), LEVELS * position.len(), hash);
        }
        rest.for_each(|leaf| parts.push_hashed(leaf.path, leaf.hash));
        Ok(OpenedTree { parts, nodes: known.len() as u64, leaves })
    }

    /// What the leaves at some paths, all of which were read, stand for.
    fn entries(&self, paths: &[&KeyHash], leaves: &[TreeLeaf]) -> Result<Leaves, Error> {
        let of_path = |path: &&KeyHash| leaves.binary_search_by_key(*path, |leaf| leaf.path).ok();
        let wanted: Vec<&TreeLeaf> = paths.iter().filter_map(of_path).map(|at| &leaves[at]).collect();
        let keys: Vec<(DomainId, &[u8])> = wanted.iter().map(|leaf| (leaf.domain, &leaf.key[..])).collect();
        let values = self.version.multi_get_across(&keys, self.at, self.counters.mine())?;
        let mut entries = Leaves::default();
        for (leaf, value) in wanted.into_iter().zip(values) {
            let domain = &self.config.domains[leaf.domain.index()];
            let value = value.ok_or_else(|| domain.damaged_key())?;
            let (name, key) = (domain.name.clone(), domain.shown(leaf.key.clone())?);
            entries.push(leaf.path, icecore_hot::Entry { domain: name, key, value });
        }
        entries.order();
        Ok(entries)
    }

    /// The root that follows from the first row alone; `None` of a block that has no rows to put together.
    ///
    /// # Errors
    /// [`Error::NodeDamaged`] where the block has no node of its own.
    pub(crate) fn root_of_first_row(&self) -> Result<Option<Root>, Error> {
        let depth = self.depth()?.ok_or_else(|| self.wrong(NodeKey::ROOT))?;
        let Some(top) = depth.top() else { return Ok(None) };
        Ok(Some(self.open(top, &[])?.parts.prove(&[]).0))
    }

    /// Compares the rows with a tree, that of the state.
    ///
    /// # Errors
    /// [`Error::NodeDamaged`] with the first node that is not the tree's.
    pub(crate) fn compare(&self, tree: &HotTree) -> Result<(), Error> {
        let depth = self.depth()?.ok_or_else(|| self.wrong(NodeKey::ROOT))?;
        if depth.follow(tree.len()) != depth {
            return Err(self.wrong(NodeKey::ROOT));
        }
        for row in depth.rows() {
            let due: Vec<NodeVersion> = whole_row(tree, self.at, row).collect();
            let keys: Vec<&[u8]> = due.iter().map(|node| node.key.as_bytes()).collect();
            let kept = self.version.multi_get(self.nodes, &keys, self.at, self.counters.mine())?;
            if let Some((node, _)) =
                due.iter().zip(kept).find(|(node, kept)| node.value.as_bytes() != kept.as_deref())
            {
                return Err(self.wrong(node.key));
            }
        }
        Ok(())
    }

    /// Says of rows and a state from which no proof could be made which of them is wrong; `None` where neither is.
    ///
    /// # Cost
    /// Builds the tree.
    pub(crate) fn explain(&self, parallelism: Parallelism) -> Option<Error> {
        let mut options = icecore_hot::Options::default();
        options.parallelism = parallelism;
        let built = build_tree(self.version, self.config, self.at, None, options, &());
        let checked = built.and_then(|built| {
            self.version.check_root(self.at, built.tree.root())?;
            self.compare(&built.tree)
        });
        checked.err()
    }

    fn leaves(&self) -> TreeLeaves<'_> {
        TreeLeaves { version: self.version, config: self.config, at: self.at }
    }

    fn wrong(&self, key: NodeKey) -> Error {
        node_damaged(self.version, self.nodes, key.as_bytes(), self.at)
    }
}
