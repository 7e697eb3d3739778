//! The part of a trie of Ethereum that proves some paths, as it was at a block, put together of what was kept of it.
//!
//! Of each [row](crate::merkle::row_depths) the positions are looked up that are below a position on the way to a path: those beside
//! the ways are known by their references, those on the ways are opened by the next row, and below the last row the leaves are read.
//! Where a row has nothing there is a leaf or none, so that the leaves are read there too. The parts cover the trie; its root follows
//! from them, and whoever proves compares it with the one that was recorded.

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    KeyPath, Nibbles, NodeRef, PartialTrie, PartialTrieBuilder, PartialTrieError, TrieId,
};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{DomainId, root_height, root_key};
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::node_error::node_damaged;
use crate::merkle::row_depths::RowDepth;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::stats::Tally;

/// What the nodes have of the top of a storage trie that has slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StorageNode {
    pub(crate) root: [u8; 32],
    pub(crate) depth: RowDepth,
}

impl StorageNode {
    /// The root, and after it the depth of the deepest row where there are rows.
    pub(crate) fn encode(self) -> NodeValue {
        match self.depth {
            RowDepth::NONE => NodeValue::Inner(self.root),
            depth => NodeValue::Row([&self.root[..], &[depth.encode()]].concat().into()),
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (root, depth) = bytes.split_first_chunk()?;
        let depth = match depth {
            [] => RowDepth::NONE,
            [depth] => RowDepth::decode(*depth).filter(|depth| *depth != RowDepth::NONE)?,
            _ => return None,
        };
        Some(Self { root: *root, depth })
    }

    /// That of an account at `at`, given by its path; `None` where it has no slots.
    pub(crate) fn of(
        version: &ReadState,
        nodes: DomainId,
        account: &KeyPath,
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Option<Self>, Error> {
        let key = NodeKey::trie_row(account.first_chunk(), 0, account);
        let Some(((_, Some(value)), _)) = version.find(nodes, key.as_bytes(), at, tally)? else {
            return Ok(None);
        };
        Self::decode(&value).map(Some).ok_or_else(|| node_damaged(version, nodes, key.as_bytes(), at))
    }
}

/// The block at or below `at` of which the nodes are the newest, and the depth of the rows that accounts, or Icecore's tree, have there; `None` where no
/// nodes are kept so far.
pub(crate) fn accounts_depth(
    version: &ReadState,
    nodes: DomainId,
    at: BlockNumber,
    tally: &Tally,
) -> Result<Option<(BlockNumber, RowDepth)>, Error> {
    let Some(((block, value), _)) = version.find(nodes, NodeKey::ROOT.as_bytes(), at, tally)? else {
        return Ok(None);
    };
    let wrong = || node_damaged(version, nodes, NodeKey::ROOT.as_bytes(), at);
    match value.as_deref() {
        Some(&[depth]) => RowDepth::decode(depth).map(|depth| Some((block, depth))).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// The first block in segments that can be read, or that is `from` or after it, and has no nodes.
///
/// # Cost
/// A lookup for each block.
pub(crate) fn first_without_nodes(
    version: &ReadState,
    config: &Config,
    from: Option<BlockNumber>,
) -> Result<Option<BlockNumber>, Error> {
    let (Some(nodes), Some(last)) = (config.nodes(), version.emitted_head) else { return Ok(None) };
    let from = from.or(version.first).unwrap_or(0);
    let (scan, tally) = (Scan::all().from(&root_key(from)).to_included(&root_key(last)), Tally::default());
    for row in MergeScan::new(version, DomainId::ROOTS, &scan, last)? {
        let block = root_height(&row?.0).ok_or(Error::RootMissing { block: last })?;
        let newest = version.find(nodes, NodeKey::ROOT.as_bytes(), block, &tally)?;
        if newest.is_none_or(|((of, _), _)| of != block) {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// What a block writes of a row.
pub(crate) fn row_version(
    height: BlockNumber,
    trie: &TrieId,
    position: &Nibbles,
    node: Option<NodeRef>,
) -> NodeVersion {
    let account = match trie {
        TrieId::Accounts => None,
        TrieId::Storage(account) => account.first_chunk(),
    };
    let key = NodeKey::trie_row(account, position.len(), &position.paths().0);
    NodeVersion { key, block: height, value: node.map_or(NodeValue::Deleted, row_value) }
}

/// What a row has at a position.
fn row_value(node: NodeRef) -> NodeValue {
    match <[u8; 32]>::try_from(node.reference.bytes()) {
        Ok(hash) if node.skipped.is_empty() => NodeValue::Inner(hash),
        _ => NodeValue::Row(node.encode().into()),
    }
}

/// The key of what is kept of the top of a trie.
pub(crate) fn top_key(trie: &TrieId) -> NodeKey {
    match trie {
        TrieId::Accounts => NodeKey::ROOT,
        TrieId::Storage(account) => NodeKey::trie_row(account.first_chunk(), 0, account),
    }
}

/// One trie of the state at a block.
pub(crate) struct KeptTrie<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) nodes: DomainId,
    pub(crate) at: BlockNumber,
    /// Whose storage it is; `None` for the accounts.
    pub(crate) account: Option<[u8; ACCOUNT_LEN]>,
    pub(crate) depth: RowDepth,
}

/// A trie opened around some paths.
pub(crate) struct OpenedTrie {
    /// The branches beside the ways, ascending.
    pub(crate) known: Vec<(Nibbles, NodeRef)>,
    /// Where the leaves are to be read, ascending.
    pub(crate) ranges: Vec<LeafRange>,
}

impl KeptTrie<'_> {
    /// Opens it around paths, which ascend.
    ///
    /// # Cost
    /// For each row the positions below those that are open, all looked up together.
    pub(crate) fn open(&self, paths: &[KeyPath], tally: &Tally) -> Result<OpenedTrie, Error> {
        let (mut open, mut known, mut gaps) = (vec![Nibbles::EMPTY], Vec::new(), Vec::new());
        for depth in self.depth.rows() {
            let positions: Vec<Nibbles> =
                open.iter().flat_map(|position| position.extended_to(depth)).collect();
            open.clear();
            for (position, node) in positions.iter().zip(self.nodes_at(&positions, tally)?) {
                if is_on_way(position, paths) {
                    open.push(*position);
                } else if let Some(node) = node {
                    let node = NodeRef::decode(&node).ok_or_else(|| {
                        node_damaged(self.version, self.nodes, self.key(position).as_bytes(), self.at)
                    })?;
                    known.push((*position, node));
                } else {
                    gaps.push(LeafRange::below(position));
                }
            }
        }
        gaps.extend(open.iter().map(LeafRange::below));
        gaps.sort_unstable_by_key(|gap| gap.first);
        let mut ranges: Vec<LeafRange> = Vec::new();
        for gap in gaps {
            match ranges.last_mut() {
                Some(last) if last.touches(&gap) => last.last = gap.last,
                _ => ranges.push(gap),
            }
        }
        known.sort_unstable_by_key(|(position, _)| position.paths().0);
        Ok(OpenedTrie { known, ranges })
    }

    fn key(&self, position: &Nibbles) -> NodeKey {
        NodeKey::trie_row(self.account.as_ref(), position.len(), &position.paths().0)
    }

    fn nodes_at(&self, positions: &[Nibbles], tally: &Tally) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys: Vec<NodeKey> = positions.iter().map(|position| self.key(position)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(NodeKey::as_bytes).collect();
        self.version.multi_get(self.nodes, &keys, self.at, tally)
    }
}

impl OpenedTrie {
    /// Puts what is known and the leaves of the ranges, which ascend and which `push` adds, together; `None` where they are no trie.
    pub(crate) fn complete<L>(
        self,
        leaves: &[(KeyPath, L)],
        push: impl Fn(&mut PartialTrieBuilder, &KeyPath, &L) -> Result<(), PartialTrieError>,
    ) -> Option<PartialTrie> {
        let (mut builder, mut rest) = (PartialTrieBuilder::new(), leaves);
        for (position, node) in &self.known {
            let (first, _) = position.paths();
            let (before, after) = rest.split_at(rest.partition_point(|(path, _)| *path < first));
            before.iter().try_for_each(|(path, leaf)| push(&mut builder, path, leaf)).ok()?;
            builder.push_node(position, node).ok()?;
            rest = after;
        }
        rest.iter().try_for_each(|(path, leaf)| push(&mut builder, path, leaf)).ok()?;
        Some(builder.finish(HashBackend::default()))
    }
}

/// Whether one of the paths, which ascend, begins with a position.
fn is_on_way(position: &Nibbles, paths: &[KeyPath]) -> bool {
    let (first, _) = position.paths();
    paths.get(paths.partition_point(|path| *path < first)).is_some_and(|path| position.is_prefix_of(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_a_storage_reads_back() {
        for depth in [RowDepth::NONE, RowDepth::NONE.follow(1 << 20)] {
            let node = StorageNode { root: [7; 32], depth };
            let bytes = node.encode().as_bytes().unwrap().to_vec();
            assert_eq!(StorageNode::decode(&bytes), Some(node));
            assert_eq!(StorageNode::decode(&bytes[..31]), None);
            assert_eq!(StorageNode::decode(&[&bytes[..], &[0, 0]].concat()), None);
        }
        assert_eq!(StorageNode::decode(&[&[7; 32][..], &[0]].concat()), None);
    }
}
