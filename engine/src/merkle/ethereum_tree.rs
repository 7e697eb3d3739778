//! The tree of the commitment [`Ethereum`](crate::Commitment::Ethereum), beside the writer: the state trie, which gives each block its
//! state root, and what it keeps among the [nodes](crate::memtable::node_key): storage roots, and [rows](crate::merkle::row_depths)
//! from which [proofs](crate::merkle::prove_account) are made.
//!
//! The trie is that of the state in segments, and the blocks in memory are applied one by one, as they once were: what they write
//! among the nodes is in no log, it is made again. So while there is a tree the tables have the nodes of all their blocks, and while
//! there is none they have no nodes at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use icecore_hot::ethereum::{
    EMPTY_ROOT, KeyPath, Nibbles, NodeRef, StateBatch, StateTrie, TrieError, TrieId, Undo,
};
use icecore_hot::{HashBackend, Root};
use icecore_segments::step::BlockNumber;

use crate::commitment::{ACCOUNT_LEN, Commitment};
use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion};
use crate::merkle::collapsed::{self, GroupState};
use crate::merkle::kept_tree;
use crate::merkle::live_tree::{self, Applied, LiveTree, Parent, UndoWindow};
use crate::merkle::load_trie::{LoadedTrie, load_checked, load_depths};
use crate::merkle::row_depths::{DepthChange, RowDepth, RowDepths};
use crate::merkle::state_batch::gather;
use crate::merkle::state_leaves::{StateLeaves, path_of, prefix_of};
use crate::merkle::tree_file;
use crate::merkle::trie_rows::{StorageNode, row_version};
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::read::shared::Shared;
use crate::storage::directory::Directory;
use crate::wal::ChangeRef;

/// When the tree has no room left, one part in so many of its memory is freed: a short pause, and not one with every block.
const COLLAPSED_SHARE: u64 = 64;

/// Room is left for what a block adds, but no more than one part in so many: with too little for the references themselves groups become larger,
/// and reading them takes more than it saves.
const GROWTH_SHARE: u64 = 8;

/// The outline is written again when one leaf in so many changed: then those are read at opening, if the process is killed just before. To write
/// it costs some 300 bytes for each of them, where a group has 16 leaves.
const CHANGED_SHARE: u64 = 128;

/// The trie of the state at the head, and what takes its newest blocks back.
pub(crate) struct EthereumTree {
    trie: StateTrie,
    depths: RowDepths,
    /// Whether it follows the sizes of tries with their rows.
    keeps_rows: bool,
    /// The changes of the newest block: its memory is used for the next.
    batch: StateBatch,
    window: UndoWindow<BlockUndo>,
    /// The domain of nodes.
    nodes: DomainId,
    /// What the nodes of the trie may take, in bytes.
    memory: u64,
    /// What a block lately added to them, most of it leaves of groups that it met.
    growth: u64,
    /// While blocks in memory are applied again: the accounts whose storages they changed so far, by what keys have of their paths.
    unnoted: BTreeSet<[u8; ACCOUNT_LEN]>,
    /// The block that the file with its outline is of, with its root.
    kept: Option<(BlockNumber, Root)>,
    /// The changes that were applied since, roughly.
    changed: u64,
}

/// What takes a block back.
struct BlockUndo {
    height: BlockNumber,
    trie: Undo,
    depths: Vec<DepthChange>,
}

impl EthereumTree {
    /// The trie of the state at the head. See [`live_build`](crate::merkle::live_build).
    pub(crate) fn build(
        shared: &Arc<Shared>,
        version: &Arc<ReadState>,
        memory: u64,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let (config, base) = (&*shared.directory.config, version.emitted_head);
        let mut live = match base {
            Some(base) => {
                let kept = kept_tree::load(shared, version, base, memory, listener);
                let (of, changed) = kept.as_ref().map_or((None, 0), |kept| (Some(kept.of), kept.changed));
                let loaded = kept
                    .map_or_else(|| load_checked(version, base, memory, listener), |kept| Ok(kept.loaded))?;
                let mut live = if version.keeps_rows {
                    Self::with_rows(version, config, base, loaded)?
                } else {
                    Self::without_rows(config, loaded.trie, Some(base))
                };
                (live.kept, live.changed) = (of, changed);
                live
            }
            None => Self { keeps_rows: version.keeps_rows, ..Self::empty(config) },
        };
        live.memory = memory;
        live_tree::replay(&mut live, version, config, base, listener)?;
        Ok(live)
    }

    /// That of the state at `base`, without rows.
    pub(crate) fn without_rows(config: &Config, trie: StateTrie, base: Option<BlockNumber>) -> Self {
        let (depths, batch, window) = (RowDepths::default(), StateBatch::new(), UndoWindow::new(base));
        let nodes = config.nodes().expect("an archive for Ethereum has nodes");
        let (unnoted, kept) = (BTreeSet::new(), None);
        Self {
            trie,
            depths,
            keeps_rows: false,
            batch,
            window,
            nodes,
            memory: u64::MAX,
            growth: 0,
            unnoted,
            kept,
            changed: 0,
        }
    }

    fn empty(config: &Config) -> Self {
        Self::without_rows(config, StateTrie::new(HashBackend::default()), None)
    }

    /// That of the state at `base`, a block that has rows, which it goes on with.
    pub(crate) fn with_rows(
        version: &ReadState,
        config: &Config,
        base: BlockNumber,
        loaded: LoadedTrie,
    ) -> Result<Self, Error> {
        let depths = load_depths(version, config, base, &loaded.large)?;
        Ok(Self { depths, keeps_rows: true, ..Self::without_rows(config, loaded.trie, Some(base)) })
    }

    /// That of the state at `base`, a block before which none has rows, or before the first block; and what it writes among the nodes
    /// for that block to have rows, ascending.
    pub(crate) fn with_new_rows(
        version: &ReadState,
        config: &Config,
        base: Option<BlockNumber>,
        listener: &dyn ProgressListener,
    ) -> Result<(Self, Vec<NodeVersion>), Error> {
        let Some(base) = base else {
            return Ok((Self { keeps_rows: true, ..Self::empty(config) }, Vec::new()));
        };
        let LoadedTrie { trie, large } = load_checked(version, base, u64::MAX, listener)?;
        let mut tree = Self { keeps_rows: true, ..Self::without_rows(config, trie, Some(base)) };
        let storages = large.into_iter().map(TrieId::Storage);
        let tries: Vec<TrieId> = std::iter::once(TrieId::Accounts).chain(storages).collect();
        for trie in &tries {
            tree.depths.follow(trie, tree.trie.trie_len(trie));
        }
        let mut accounts = Vec::new();
        for account in MergeScan::new(version, DomainId::ACCOUNT, &Scan::all(), base)? {
            let path = path_of(&account?.0);
            let root = tree.trie.account(&path).map(|account| account.storage_root);
            accounts.extend(root.filter(|root| *root != EMPTY_ROOT).map(|root| (path, Some(root))));
        }
        let mut nodes = tree.top_nodes(base, &accounts);
        for trie in &tries {
            let rows = tree.depths.of(trie).rows();
            nodes.extend(rows.flat_map(|row| tree.whole_row(base, trie, row)));
        }
        nodes.retain(|node| node.value != NodeValue::Deleted);
        nodes.sort_unstable_by_key(|node| node.key);
        Ok((tree, nodes))
    }
}

impl LiveTree for EthereumTree {
    fn apply(
        &mut self,
        config: &Config,
        parent: Parent<'_>,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<Applied, Error> {
        if parent.block == parent.with_nodes {
            self.unnoted.clear();
        }
        self.collapse();
        let before = self.trie.node_bytes();
        // What the block needs for as long as it borrows the rest.
        let mut unnoted = std::mem::take(&mut self.unnoted);
        let applied = self.apply_to(config, parent, &unnoted, height, changes);
        self.growth = self.trie.node_bytes().saturating_sub(before).max(self.growth / 2);
        self.changed += changes.len() as u64;
        if let Ok((_, storages)) = &applied
            && self.memory < u64::MAX
        {
            unnoted.extend(storages.iter().map(|(account, _)| prefix_of(account)));
        }
        self.unnoted = unnoted;
        applied.map(|(applied, _)| applied)
    }

    fn root(&self) -> Root {
        self.trie.root()
    }

    fn rewind(&mut self, version: &ReadState, to: BlockNumber) -> bool {
        let Some(blocks) = self.window.rewind(to).map(Iterator::collect::<Vec<_>>) else { return false };
        for BlockUndo { height, trie, depths } in blocks {
            // A block that was refused is in no state, and left its groups as they were.
            let at = version.head.map(|head| head.min(height));
            let unnoted = BTreeSet::new();
            let state = self.state(version, at, &unnoted);
            let expanded = state.map(|state| collapsed::expand_for_undo(&mut self.trie, state, &trie));
            // What is wrong with the leaves is found again when the tree is built again.
            if expanded.is_some_and(|expanded| expanded.is_err()) {
                return false;
            }
            self.take_back(trie, &depths);
        }
        true
    }

    fn keep(&mut self, directory: &Directory, head: BlockNumber, closes: bool) -> Result<(), Error> {
        let is_wanted = closes || self.changed > self.trie.len() / CHANGED_SHARE;
        let fits = self.trie.node_bytes() <= self.memory && !self.trie.has_collapsed();
        if !is_wanted || fits || self.kept == Some((head, self.trie.root())) {
            return Ok(());
        }
        tree_file::write(directory, &self.trie, head)?;
        (self.kept, self.changed) = (Some((head, self.trie.root())), 0);
        Ok(())
    }
}
/// The accounts whose storage root a block changed, ascending by path, with the root; `None` where the account is gone.
type Storages = Vec<(KeyPath, Option<[u8; 32]>)>;

fn storages(changes: &[ChangeRef<'_>], roots: &[(KeyPath, [u8; 32])]) -> Storages {
    let deleted = changes
        .iter()
        .filter(|change| change.domain == DomainId::ACCOUNT.0 && change.value.is_none())
        .map(|change| (path_of(change.key), None));
    let mut storages: Storages =
        deleted.chain(roots.iter().map(|(path, root)| (*path, Some(*root)))).collect();
    storages.sort_unstable();
    storages
}

impl EthereumTree {
    /// Applies a block. `unnoted` are the storages that blocks after the one with nodes changed.
    fn apply_to(
        &mut self,
        config: &Config,
        parent: Parent<'_>,
        unnoted: &BTreeSet<[u8; ACCOUNT_LEN]>,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<(Applied, Storages), Error> {
        let state = self.state(parent.version, parent.block, unnoted);
        if let Some(state) = state.filter(|_| self.trie.has_collapsed()) {
            collapsed::expand_for_block(&mut self.trie, state, changes)?;
        }
        let no_state = |reason| Error::NoState { block: height, commitment: Commitment::Ethereum, reason };
        gather(&self.trie, &mut self.batch, changes).map_err(no_state)?;
        let applied = self.trie.apply(&self.batch).map_err(|error: TrieError| no_state(error.to_string()))?;
        let storages = storages(changes, &applied.storage_roots);
        let depths = if self.keeps_rows { self.follow_depths(&storages) } else { Vec::new() };
        if let Err(error) = state.map_or(Ok(()), |state| self.expand_rows(state, &depths)) {
            self.take_back(applied.undo, &depths);
            return Err(error);
        }
        let mut nodes = self.top_nodes(height, &storages);
        self.push_rows(height, &applied.undo, &depths, &mut nodes);
        nodes.sort_unstable_by_key(|node| node.key);
        self.window.push(height, BlockUndo { height, trie: applied.undo, depths });
        self.window.trim(config.reorg_window).for_each(drop);
        Ok((Applied { root: applied.root, nodes }, storages))
    }

    /// Where the leaves of groups are read.
    fn state<'v>(
        &self,
        version: &'v ReadState,
        at: Option<BlockNumber>,
        unnoted: &'v BTreeSet<[u8; ACCOUNT_LEN]>,
    ) -> Option<GroupState<'v>> {
        at.map(|at| GroupState { leaves: StateLeaves { version, nodes: self.nodes, at }, unnoted })
    }

    /// Makes room in the memory of the tree for what a block adds to it, where there is none.
    fn collapse(&mut self) {
        let room = self.memory - self.growth.min(self.memory / GROWTH_SHARE);
        if self.trie.node_bytes() > room {
            self.trie.collapse(room - room / COLLAPSED_SHARE);
        }
    }

    /// Expands what is above the rows that tries have got. Where paths are hashes nothing is: groups are far smaller.
    fn expand_rows(&mut self, state: GroupState<'_>, depths: &[DepthChange]) -> Result<(), Error> {
        for (trie, _) in depths {
            let deepest = self.depths.of(trie).rows().last().unwrap_or(0);
            collapsed::expand_above(&mut self.trie, state, trie, deepest)?;
        }
        Ok(())
    }

    /// Takes the newest block out of the trie.
    fn take_back(&mut self, trie: Undo, depths: &[DepthChange]) {
        self.trie.undo(trie);
        depths.iter().rev().for_each(|(trie, before)| self.depths.set(trie, *before));
    }

    /// Gives the tries that a block changed the rows that their present sizes ask for.
    fn follow_depths(&mut self, storages: &Storages) -> Vec<DepthChange> {
        let storages = storages.iter().map(|(account, _)| TrieId::Storage(*account));
        let tries = std::iter::once(TrieId::Accounts).chain(storages);
        tries.filter_map(|trie| self.depths.follow(&trie, self.trie.trie_len(&trie))).collect()
    }

    /// What a block at `height` that was just applied writes of the tops of tries.
    fn top_nodes(&self, height: BlockNumber, storages: &Storages) -> Vec<NodeVersion> {
        let node = |key, value| NodeVersion { key, block: height, value };
        let accounts = [self.depths.of(&TrieId::Accounts).encode()];
        let mut nodes = vec![node(NodeKey::ROOT, NodeValue::Row(accounts[..].into()))];
        for (path, root) in storages {
            let depth = self.depths.of(&TrieId::Storage(*path));
            let root = root.filter(|root| *root != EMPTY_ROOT);
            let value = root.map_or(NodeValue::Deleted, |root| StorageNode { root, depth }.encode());
            nodes.push(node(NodeKey::trie_row(Some(&prefix_of(path)), 0, path), value));
        }
        nodes
    }

    /// Adds what it writes of rows: each position below which it changed something, and all of a row that its trie did not have before.
    fn push_rows(
        &self,
        height: BlockNumber,
        undo: &Undo,
        changed: &[DepthChange],
        nodes: &mut Vec<NodeVersion>,
    ) {
        let before = |trie: &TrieId| changed.iter().find(|(of, _)| of == trie).map(|(_, before)| *before);
        let had_row = |before: RowDepth, depth: usize| before.rows().any(|row| row == depth);
        let mut push = |trie: &TrieId, position: &Nibbles, node: Option<NodeRef>| {
            nodes.push(row_version(height, trie, position, node));
        };
        let kept = |trie: &TrieId| {
            let (now, before) = (self.depths.of(trie), before(trie));
            now.rows().filter(move |row| before.is_none_or(|before| had_row(before, *row)))
        };
        self.trie.changed_nodes(undo, kept, &mut push);
        for (trie, before) in changed {
            let new = self.depths.of(trie).rows().filter(|row| !had_row(*before, *row));
            nodes.extend(new.flat_map(|row| self.whole_row(height, trie, row)));
        }
    }

    /// All of the row of a trie at `depth`.
    fn whole_row<'t>(
        &'t self,
        height: BlockNumber,
        trie: &'t TrieId,
        depth: usize,
    ) -> impl Iterator<Item = NodeVersion> + use<'t> {
        let positions = Nibbles::EMPTY.extended_to(depth);
        positions
            .map(move |position| row_version(height, trie, &position, self.trie.node_at(trie, &position)))
    }
}
