//! The part of a trie of Ethereum that proves some paths, as it was at a block, put together of what was kept of it.
//!
//! Of each [row](crate::merkle::row_depths) the positions are looked up that are below a position on the way to a path: those beside
//! the ways are known by their references, those on the ways are opened by the next row, and below the last row the leaves are read.
//! Where a row has nothing there is a leaf or none, so that the leaves are read there too. The parts cover the trie; its root follows
//! from them, and whoever proves compares it with the one that was recorded.

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{KeyPath, Nibbles, NodeRef, PartialTrie, PartialTrieBuilder, PartialTrieError};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{DomainId, NODES_NAME};
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::row_depths::RowDepth;
use crate::read::read_state::ReadState;
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
        Self::decode(&value).map(Some).ok_or_else(|| damaged(at))
    }
}

/// The block at or below `at` of which the nodes are the newest, and the depth of the rows that accounts have there; `None` where no
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
    match value.as_deref() {
        Some(&[depth]) => {
            RowDepth::decode(depth).map(|depth| Some((block, depth))).ok_or_else(|| damaged(at))
        }
        _ => Err(damaged(at)),
    }
}

/// What was kept among the nodes does not fit.
pub(crate) fn damaged(at: BlockNumber) -> Error {
    Error::RecordDamaged { domain: NODES_NAME, block: at }
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
    known: Vec<(Nibbles, NodeRef)>,
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
                    known.push((*position, NodeRef::decode(&node).ok_or_else(|| damaged(self.at))?));
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

    fn nodes_at(&self, positions: &[Nibbles], tally: &Tally) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let key = |position: &Nibbles| {
            NodeKey::trie_row(self.account.as_ref(), position.len(), &position.paths().0)
        };
        let keys: Vec<NodeKey> = positions.iter().map(key).collect();
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
