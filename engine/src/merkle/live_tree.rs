//! The Merkle tree of the latest state, beside the writer: it gives each block its root, and with snapshots the changes of
//! the domain of [`nodes`](crate::memtable::node_key).
//!
//! The tree is built from the state when the first block is begun, and the root it gives must be the one recorded. With
//! snapshots it is built from the state in segments, and the blocks in memory are applied one by one, as they once were:
//! what they change among the nodes is in no log, it is made again. So while there is a tree the tables have the nodes of
//! all their blocks, and while there is none they have no nodes at all.

use std::collections::VecDeque;

use icecore_hot::{Batch, DirtyKeys, HotTree, KeyHash, Parallelism, Root, Undo, value_hash};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion, ROW_SPACING, encode_preimage};
use crate::memtable::step_memtable::StepMemtable;
use crate::merkle::build::{Built, build_tree};
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::stats::Counters;
use crate::wal::ChangeRef;

/// Keys whose former values are looked up together.
const LOOKUPS: usize = 1 << 14;

/// The memory of a larger block is given back.
const BATCH_BYTES_KEPT: usize = 1 << 20;

/// The tree of the state at the head, and what takes its newest blocks back.
pub(crate) struct LiveTree {
    tree: HotTree,
    /// The changes of the newest block: its memory is used for the next.
    batch: Batch,
    /// Of keys and values in the batch.
    batch_bytes: usize,
    /// The newest blocks, oldest first, at most a reorg window of them.
    window: VecDeque<Applied>,
    /// The newest block before the window: the lowest that the tree can go back to. `None`: the state before any block.
    base: Option<BlockNumber>,
    /// With snapshots: what the blocks before the window changed since the last snapshot among them.
    older: DirtyKeys,
}

/// A block in the tree.
struct Applied {
    height: BlockNumber,
    undo: Undo,
    is_snapshot: bool,
}

impl LiveTree {
    /// The tree of the state at block `base`.
    fn new(tree: HotTree, base: Option<BlockNumber>) -> Self {
        let (batch, window, older) = (Batch::new(), VecDeque::new(), DirtyKeys::new());
        Self { tree, batch, batch_bytes: 0, window, base, older }
    }

    /// Applies a block that follows `previous`, its changes ordered by domain and key. Returns what it writes among the
    /// nodes, ascending.
    pub(crate) fn apply(
        &mut self,
        config: &Config,
        previous: Option<BlockNumber>,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> (Root, Vec<NodeVersion>) {
        self.gather(config, changes);
        let (root, undo) = self.tree.apply(&self.batch);
        let Some(snapshots) = config.snapshots else {
            self.window.push_back(Applied { height, undo, is_snapshot: false });
            self.trim_undo_window(config);
            return (root, Vec::new());
        };
        let leaves = self.leaves(changes, &undo);
        let is_snapshot = snapshots.is_due(height, previous);
        self.window.push_back(Applied { height, undo, is_snapshot });
        let mut nodes = Vec::new();
        let mut add = |key, value| nodes.push(NodeVersion { key, block: height, value });
        if is_snapshot {
            self.for_each_row(&mut add);
        }
        leaves.into_iter().for_each(|(key, value)| add(key, value));
        self.trim_undo_window(config);
        (root, nodes)
    }

    /// Fills the batch with the changes of a block.
    fn gather(&mut self, config: &Config, changes: &[ChangeRef<'_>]) {
        if self.batch_bytes > BATCH_BYTES_KEPT {
            self.batch = Batch::new();
        }
        self.batch.clear();
        self.batch_bytes = 0;
        for change in changes {
            let domain = &config.domains[usize::from(change.domain)].name;
            self.batch_bytes += change.key.len() + change.value.map_or(0, <[u8]>::len);
            match change.value {
                Some(value) => self.batch.put(domain, change.key, value),
                None => self.batch.delete(domain, change.key),
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
        let newest = self.window.len() - 1;
        let last = self.window.iter().take(newest).rposition(|applied| applied.is_snapshot);
        let mut changed = if last.is_some() { DirtyKeys::new() } else { self.older.clone() };
        for applied in self.window.iter().skip(last.map_or(0, |last| last + 1)) {
            changed.add(&applied.undo);
        }
        self.tree.changed_nodes(&mut changed, ROW_SPACING, |depth, key, hash| {
            visit(NodeKey::row(depth, key), hash.map_or(NodeValue::Deleted, NodeValue::Inner));
        });
    }

    /// Forgets how to take back the blocks that have left the reorg window.
    fn trim_undo_window(&mut self, config: &Config) {
        while self.window.len() as u64 > config.reorg_window {
            let Some(applied) = self.window.pop_front() else { return };
            self.base = Some(applied.height);
            if applied.is_snapshot {
                self.older.clear();
            } else if config.snapshots.is_some() {
                self.older.add(&applied.undo);
            }
        }
    }

    /// Takes the blocks above `to`, the height of a block, back; `false` when it no longer knows how.
    pub(crate) fn rewind(&mut self, to: BlockNumber) -> bool {
        if self.base.is_some_and(|base| to < base) {
            return false;
        }
        let kept = self.window.partition_point(|applied| applied.height <= to);
        self.tree.undo_all(self.window.drain(kept..).rev().map(|applied| applied.undo));
        true
    }
}

impl LiveTree {
    /// The tree of the state at the head.
    ///
    /// # Cost
    /// Reads the latest version of every key.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when the state does not have the root that was recorded for it: writing on would spread
    /// the damage.
    pub(crate) fn build(
        version: &ReadState,
        config: &Config,
        parallelism: Parallelism,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let mut options = icecore_hot::Options::default();
        options.parallelism = parallelism;
        let base = if config.snapshots.is_some() { version.emitted_head } else { version.head };
        let mut live = match base {
            Some(base) => Self::of_state(version, config, base, options, listener)?,
            None => Self::new(HotTree::new(options), None),
        };
        if config.snapshots.is_some() {
            live.replay(version, config, base, listener)?;
        }
        Ok(live)
    }

    fn of_state(
        version: &ReadState,
        config: &Config,
        base: BlockNumber,
        options: icecore_hot::Options,
        listener: &dyn ProgressListener,
    ) -> Result<LiveTree, Error> {
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

    /// Applies the blocks in memory, all above `base`, to the tree, that of `base`, and gives the tables their nodes.
    fn replay(
        &mut self,
        version: &ReadState,
        config: &Config,
        base: Option<BlockNumber>,
        listener: &dyn ProgressListener,
    ) -> Result<(), Error> {
        let mut previous = base;
        let mut made: Vec<(&StepMemtable, Vec<NodeVersion>)> = Vec::new();
        listener.begin("apply the blocks in memory", None);
        for table in &version.tables {
            table.for_each_block(config, |height, recorded, changes| {
                let (root, nodes) = self.apply(config, previous, height, changes);
                made.push((table, nodes));
                previous = Some(height);
                listener.advance(1);
                if root == recorded {
                    return Ok(());
                }
                let (expected, found) = (recorded.to_string(), root.to_string());
                Err(Error::RootMismatch { block: height, expected, found })
            })?;
        }
        listener.end();
        // Only now, so that an error leaves the tables as they were.
        for (table, nodes) in made {
            table.add_nodes(nodes);
        }
        Ok(())
    }
}
