//! The tree of the commitment [`Ethereum`](crate::Commitment::Ethereum), beside the writer: the state trie, which gives each block its
//! state root, and what it keeps among the [nodes](crate::memtable::node_key): storage roots, and [rows](crate::merkle::row_depths)
//! from which [proofs](crate::merkle::prove_account) are made.
//!
//! The trie is that of the state in segments, and the blocks in memory are applied one by one, as they once were: what they write
//! among the nodes is in no log, it is made again. So while there is a tree the tables have the nodes of all their blocks, and while
//! there is none they have no nodes at all.

use icecore_hot::ethereum::{
    Account, EMPTY_ROOT, KeyPath, Nibbles, NodeRef, StateBatch, StateTrie, TrieError, TrieId, Undo, keccak256,
};
use icecore_hot::{HashBackend, Root};
use icecore_segments::step::BlockNumber;

use crate::commitment::{ACCOUNT_LEN, Commitment};
use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion};
use crate::merkle::collapsed;
use crate::merkle::live_tree::{self, Applied, LiveTree, Parent, UndoWindow};
use crate::merkle::load_trie::{LoadedTrie, load_checked, load_depths};
use crate::merkle::row_depths::{DepthChange, RowDepth, RowDepths};
use crate::merkle::state_leaves::{StateLeaves, path_of, prefix_of};
use crate::merkle::trie_rows::{StorageNode, row_version};
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::wal::ChangeRef;

/// When the tree has no room left, one part in so many of its memory is freed: a short pause, and not one with every block.
const COLLAPSED_SHARE: u64 = 64;

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
        version: &ReadState,
        config: &Config,
        memory: u64,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let base = version.emitted_head;
        let mut live = match base {
            Some(base) if version.keeps_rows => Self::with_rows(version, config, base, memory, listener)?,
            Some(base) => Self {
                memory,
                ..Self::without_rows(config, load_checked(version, base, memory, listener)?.trie, Some(base))
            },
            None => Self { keeps_rows: version.keeps_rows, memory, ..Self::empty(config) },
        };
        live_tree::replay(&mut live, version, config, base, listener)?;
        Ok(live)
    }

    /// That of the state at `base`, without rows.
    pub(crate) fn without_rows(config: &Config, trie: StateTrie, base: Option<BlockNumber>) -> Self {
        let (depths, batch, window) = (RowDepths::default(), StateBatch::new(), UndoWindow::new(base));
        let nodes = config.nodes().expect("an archive for Ethereum has nodes");
        Self { trie, depths, keeps_rows: false, batch, window, nodes, memory: u64::MAX }
    }

    fn empty(config: &Config) -> Self {
        Self::without_rows(config, StateTrie::new(HashBackend::default()), None)
    }

    /// That of the state at `base`, a block that has rows, which it goes on with.
    pub(crate) fn with_rows(
        version: &ReadState,
        config: &Config,
        base: BlockNumber,
        memory: u64,
        listener: &dyn ProgressListener,
    ) -> Result<Self, Error> {
        let LoadedTrie { trie, large } = load_checked(version, base, memory, listener)?;
        let depths = load_depths(version, config, base, &large)?;
        Ok(Self { depths, keeps_rows: true, memory, ..Self::without_rows(config, trie, Some(base)) })
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

    /// Fills the batch with the changes of a block.
    ///
    /// # Errors
    /// What keeps them from being changes of a state.
    fn gather(&mut self, changes: &[ChangeRef<'_>]) -> Result<(), String> {
        self.batch.clear();
        let of = |id: DomainId| {
            let from = changes.partition_point(|change| change.domain < id.0);
            let to = changes.partition_point(|change| change.domain <= id.0);
            &changes[from..to]
        };
        let (accounts, slots) = (of(DomainId::ACCOUNT), of(DomainId::STORAGE));
        for change in of(DomainId::CODE) {
            if change.value.is_some_and(|code| keccak256(code) != change.key) {
                return Err(format!("the key of code {} is not its hash", shown(change.key)));
            }
        }
        for change in accounts {
            let path = path_of(change.key);
            match change.value.map(Account::decode).transpose().map_err(|error| error.to_string())? {
                Some(account) => {
                    self.batch.put_account(&path, account.nonce, account.balance, account.code_hash);
                }
                None => {
                    self.check_emptied(&path, slots)?;
                    self.batch.delete_account(&path);
                }
            }
        }
        for of_account in slots.chunk_by(|a, b| a.key[..ACCOUNT_LEN] == b.key[..ACCOUNT_LEN]) {
            self.gather_slots(accounts, of_account)?;
        }
        Ok(())
    }

    /// Adds the slots of one account.
    fn gather_slots(&mut self, accounts: &[ChangeRef<'_>], slots: &[ChangeRef<'_>]) -> Result<(), String> {
        let prefix = &slots[0].key[..ACCOUNT_LEN];
        let at = accounts.partition_point(|account| &account.key[..ACCOUNT_LEN] < prefix);
        let changed = accounts.get(at).filter(|account| account.key.starts_with(prefix));
        let account = match changed {
            Some(account) => Some(path_of(account.key)).filter(|_| account.value.is_some()),
            None => self.trie.account_with_prefix(prefix),
        };
        for slot in slots {
            let path = path_of(&slot.key[ACCOUNT_LEN..]);
            match (account, slot.value) {
                // Deleting what is not there changes nothing; an account that goes was found to lose all its slots.
                (None, None) => {}
                (None, Some(_)) => {
                    return Err(format!(
                        "a slot is written of the account with the path {}.., which is not there",
                        shown(prefix)
                    ));
                }
                (Some(account), None) => self.batch.delete_slot(&account, &path),
                (Some(_), Some(value)) if value.iter().all(|byte| *byte == 0) => {
                    return Err("a slot is set to zero: delete it".to_owned());
                }
                (Some(account), Some(value)) => {
                    self.batch.put_slot(&account, &path, value).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Refuses to delete an account whose slots stay in the domain of slots.
    fn check_emptied(&self, path: &KeyPath, slots: &[ChangeRef<'_>]) -> Result<(), String> {
        let len = self.trie.storage_len(path).unwrap_or(0);
        let from = slots.partition_point(|slot| slot.key[..ACCOUNT_LEN] < path[..ACCOUNT_LEN]);
        let own = slots[from..].iter().take_while(|slot| slot.key.starts_with(&path[..ACCOUNT_LEN]));
        let deleted = own.filter(|slot| {
            slot.value.is_none() && self.trie.slot(path, &path_of(&slot.key[ACCOUNT_LEN..])).is_some()
        });
        let left = len - deleted.count() as u64;
        if left == 0 {
            return Ok(());
        }
        Err(format!(
            "the account with the path {} is deleted and keeps {left} slots: delete them in the same block",
            Nibbles::prefix(path, 64)
        ))
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
        let leaves = self.leaves(parent.version, parent.with_nodes);
        if parent.block == parent.with_nodes {
            self.collapse();
        }
        if let Some(leaves) = leaves.filter(|_| self.trie.has_collapsed()) {
            collapsed::expand_for_block(&mut self.trie, leaves, changes)?;
        }
        let no_state = |reason| Error::NoState { block: height, commitment: Commitment::Ethereum, reason };
        self.gather(changes).map_err(no_state)?;
        let applied = self.trie.apply(&self.batch).map_err(|error: TrieError| no_state(error.to_string()))?;
        let storages = storages(changes, &applied.storage_roots);
        let depths = if self.keeps_rows { self.follow_depths(&storages) } else { Vec::new() };
        if let Err(error) = leaves.map_or(Ok(()), |leaves| self.expand_rows(leaves, &depths)) {
            self.take_back(applied.undo, &depths);
            return Err(error);
        }
        let mut nodes = self.top_nodes(height, &storages);
        self.push_rows(height, &applied.undo, &depths, &mut nodes);
        nodes.sort_unstable_by_key(|node| node.key);
        self.window.push(height, BlockUndo { height, trie: applied.undo, depths });
        self.window.trim(config.reorg_window).for_each(drop);
        Ok(Applied { root: applied.root, nodes })
    }

    fn root(&self) -> Root {
        self.trie.root()
    }

    fn rewind(&mut self, version: &ReadState, to: BlockNumber) -> bool {
        let Some(blocks) = self.window.rewind(to).map(Iterator::collect::<Vec<_>>) else { return false };
        for BlockUndo { height, trie, depths } in blocks {
            // A block that was refused is in no state, and left its groups as they were.
            let at = version.head.map(|head| head.min(height));
            let leaves = at.map(|at| StateLeaves { version, nodes: self.nodes, at });
            let expanded = leaves.map(|leaves| collapsed::expand_for_undo(&mut self.trie, leaves, &trie));
            // What is wrong with the leaves is found again when the tree is built again.
            if expanded.is_some_and(|expanded| expanded.is_err()) {
                return false;
            }
            self.take_back(trie, &depths);
        }
        true
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
    /// Where the leaves of groups are read.
    fn leaves<'v>(&self, version: &'v ReadState, at: Option<BlockNumber>) -> Option<StateLeaves<'v>> {
        at.map(|at| StateLeaves { version, nodes: self.nodes, at })
    }

    /// Makes room in the memory of the tree where there is none.
    fn collapse(&mut self) {
        if self.trie.node_bytes() > self.memory {
            self.trie.collapse(self.memory - self.memory / COLLAPSED_SHARE);
        }
    }

    /// Expands what is above the rows that tries have got. Where paths are hashes nothing is: groups are far smaller.
    fn expand_rows(&mut self, leaves: StateLeaves<'_>, depths: &[DepthChange]) -> Result<(), Error> {
        for (trie, _) in depths {
            let deepest = self.depths.of(trie).rows().last().unwrap_or(0);
            collapsed::expand_above(&mut self.trie, leaves, trie, deepest)?;
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

/// A part of a path, to show it.
fn shown(bytes: &[u8]) -> Nibbles {
    let mut path = [0; 32];
    path[..bytes.len()].copy_from_slice(bytes);
    Nibbles::prefix(&path, 2 * bytes.len())
}
