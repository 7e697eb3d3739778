//! The tree of the commitment [`Icecore`](crate::Commitment::Icecore), beside the writer: it gives each block its root, and with snapshots or
//! [rows](crate::merkle::tree_rows) the changes of the domain of [`nodes`](crate::memtable::node_key).
//!
//! The tree is built from the state when the first block is begun, and the root it gives must be the one recorded. With
//! snapshots or rows it is built from the state in segments, and the blocks in memory are applied one by one, as they once were:
//! what they change among the nodes is in no log, it is made again. So while there is a tree the tables have the nodes of
//! all their blocks, and while there is none they have no nodes at all.

use icecore_hot::{Batch, DirtyKeys, HotTree, KeyHash, Parallelism, Root, Undo, value_hash};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion, ROW_SPACING, encode_preimage};
use crate::merkle::build::{Built, build_tree};
use crate::merkle::live_tree::{self, Applied, LiveTree, Parent, UndoWindow};
use crate::merkle::row_depths::RowDepth;
use crate::merkle::tree_rows::row_nodes;
use crate::merkle::trie_rows::accounts_depth;
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::stats::{Counters, Tally};
use crate::wal::ChangeRef;

/// Keys whose former values are looked up together.
const LOOKUPS: usize = 1 << 14;

/// The memory of a larger block is given back.
const BATCH_BYTES_KEPT: usize = 1 << 20;

/// The tree of the state at the head, and what takes its newest blocks back.
pub(crate) struct IcecoreTree {
    tree: HotTree,
    /// The changes of the newest block: its memory is used for the next.
    batch: Batch,
    /// Of keys and values in the batch.
    batch_bytes: usize,
    window: UndoWindow<BlockUndo>,
    /// With snapshots: what the blocks before the window changed since the last snapshot among them.
    older: DirtyKeys,
    /// The depth of its rows; `None` where it keeps none.
    depth: Option<RowDepth>,
}

/// What takes a block back.
struct BlockUndo {
    undo: Undo,
    is_snapshot: bool,
    /// The depth of the rows before it.
    depth: Option<RowDepth>,
}

impl IcecoreTree {
    /// The tree of the state at block `base`.
    fn new(tree: HotTree, base: Option<BlockNumber>) -> Self {
        let (batch, window, older) = (Batch::new(), UndoWindow::new(base), DirtyKeys::new());
        Self { tree, batch, batch_bytes: 0, window, older, depth: None }
    }

    /// Fills the batch with the changes of a block.
    fn gather(&mut self, config: &Config, changes: &[ChangeRef<'_>]) {
        if self.batch_bytes > BATCH_BYTES_KEPT {
            self.batch = Batch::new();
        }
        self.batch.clear();
        self.batch_bytes = 0;
        for change in changes {
            let domain = &config.domains[usize::from(change.domain)];
            self.batch_bytes += change.key.len() + change.value.map_or(0, <[u8]>::len);
            let key = domain.order.shown(change.key).expect("the log and a block have whole keys");
            match change.value {
                Some(value) => self.batch.put(&domain.name, key, value),
                None => self.batch.delete(&domain.name, key),
            }
        }
    }

    /// The keys that the newest block inserted and deleted, ascending by key hash.
    fn leaves(&self, changes: &[ChangeRef<'_>], undo: &Undo) -> Vec<(NodeKey, NodeValue)> {
        if changes.iter().all(|change| change.value.is_some())
            && undo.keys().all(|(_, was_present)| was_present)
        {
            return Vec::new();
        }
        let hashes: Vec<KeyHash> = self.tree.key_hashes(&self.batch).collect();
        // First bytes and numbers are cheaper to move about than hashes.
        let numbered = (0..).zip(&hashes).map(|(at, key)| (NodeKey::leaf(key).head(), at));
        let mut order: Vec<(u64, usize)> = numbered.collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| hashes[a.1].cmp(&hashes[b.1])));
        let mut order = order.into_iter();
        let mut leaves = Vec::new();
        for (key, was_present) in undo.keys() {
            let found = order.find(|(_, at)| hashes[*at] == key);
            let change = changes[found.expect("a block changes its own keys alone").1];
            let value = match change.value {
                Some(_) if was_present => continue,
                Some(_) => NodeValue::Preimage(encode_preimage(DomainId(change.domain), change.key)),
                None => NodeValue::Deleted,
            };
            leaves.push((NodeKey::leaf(&key), value));
        }
        leaves
    }

    /// The nodes that changed since the last snapshot before the newest block, ascending.
    fn for_each_row(&self, mut visit: impl FnMut(NodeKey, NodeValue)) {
        let blocks = self.window.iter();
        let newest = blocks.len() - 1;
        let last = blocks.take(newest).rposition(|block| block.is_snapshot);
        let mut changed = if last.is_some() { DirtyKeys::new() } else { self.older.clone() };
        for block in self.window.iter().skip(last.map_or(0, |last| last + 1)) {
            changed.add(&block.undo);
        }
        self.tree.changed_nodes(&mut changed, ROW_SPACING, |depth, key, hash| {
            visit(NodeKey::row(depth, key), hash.map_or(NodeValue::Deleted, NodeValue::Inner));
        });
    }

    /// Forgets how to take back the blocks that have left the reorg window.
    fn trim_undo_window(&mut self, config: &Config) {
        for block in self.window.trim(config.reorg_window) {
            if block.is_snapshot {
                self.older.clear();
            } else if config.snapshots.is_some() {
                self.older.add(&block.undo);
            }
        }
    }
}

impl LiveTree for IcecoreTree {
    fn apply(
        &mut self,
        config: &Config,
        parent: Parent<'_>,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<Applied, Error> {
        self.gather(config, changes);
        let (root, undo) = self.tree.apply(&self.batch);
        let depth = self.depth;
        let Some(snapshots) = config.snapshots else {
            let nodes = depth.map_or(Vec::new(), |before| {
                let now = before.follow(self.tree.len());
                self.depth = Some(now);
                row_nodes(&self.tree, &undo, height, (before, now))
            });
            self.window.push(height, BlockUndo { undo, is_snapshot: false, depth });
            self.trim_undo_window(config);
            return Ok(Applied { root, nodes });
        };
        let leaves = self.leaves(changes, &undo);
        let is_snapshot = snapshots.is_due(height, parent.block);
        self.window.push(height, BlockUndo { undo, is_snapshot, depth });
        let mut nodes = Vec::new();
        let mut add = |key, value| nodes.push(NodeVersion { key, block: height, value });
        if is_snapshot {
            self.for_each_row(&mut add);
        }
        leaves.into_iter().for_each(|(key, value)| add(key, value));
        self.trim_undo_window(config);
        Ok(Applied { root, nodes })
    }

    fn root(&self) -> Root {
        self.tree.root()
    }

    fn rewind(&mut self, _: &ReadState, to: BlockNumber) -> bool {
        let Some(blocks) = self.window.rewind(to) else { return false };
        let depth = &mut self.depth;
        self.tree.undo_all(blocks.map(|block| {
            *depth = block.depth;
            block.undo
        }));
        true
    }
}

/// The depth of the rows at a block in segments.
fn depth_at(version: &ReadState, config: &Config, base: Option<BlockNumber>) -> Result<RowDepth, Error> {
    let (Some(nodes), Some(base)) = (config.nodes(), base) else { return Ok(RowDepth::NONE) };
    let kept = accounts_depth(version, nodes, base, &Tally::default())?;
    Ok(kept.map_or(RowDepth::NONE, |(_, depth)| depth))
}

impl IcecoreTree {
    /// That of the state at `base` without rows, the state's own tree.
    pub(crate) fn without_rows(tree: HotTree, base: BlockNumber) -> Self {
        Self::new(tree, Some(base))
    }

    /// The tree of the state at the head.
    pub(crate) fn build(
        version: &ReadState,
        config: &Config,
        parallelism: Parallelism,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let mut options = icecore_hot::Options::default();
        options.parallelism = parallelism;
        let has_nodes = config.snapshots.is_some() || version.keeps_rows;
        let base = if has_nodes { version.emitted_head } else { version.head };
        let mut live = match base {
            Some(base) => Self::of_state(version, config, base, options, listener)?,
            None => Self::new(HotTree::new(options), None),
        };
        if version.keeps_rows {
            live.depth = Some(depth_at(version, config, base)?);
        }
        if has_nodes {
            live_tree::replay(&mut live, version, config, base, listener)?;
        }
        Ok(live)
    }

    fn of_state(
        version: &ReadState,
        config: &Config,
        base: BlockNumber,
        options: icecore_hot::Options,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let last = version.last_snapshot(config, base)?;
        let Built { tree, written } = build_tree(version, config, base, last, options, listener)?;
        version.check_root(base, tree.root())?;
        let mut live = Self::new(tree, Some(base));
        for written in written.chunk_by(|a, b| a.0 == b.0).flat_map(|domain| domain.chunks(LOOKUPS)) {
            let (domain, keys) = (written[0].0, written.iter().map(|(_, key)| &key[..]).collect::<Vec<_>>());
            let values =
                version.multi_get(domain, &keys, last.unwrap_or(base), Counters::default().mine())?;
            let name = config.name(domain);
            for (key, value) in keys.iter().zip(values) {
                let former = value.map(|value| value_hash(&value));
                live.older.add_key(KeyHash::of(name, key), former.as_ref());
            }
        }
        Ok(live)
    }
}
