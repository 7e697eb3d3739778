//! The state trie: batches in, roots out.

use std::sync::Arc;

use crate::ethereum::account::{Account, EMPTY_ROOT};
use crate::ethereum::arena::{AccountLeaf, Arena, Storage};
use crate::ethereum::batch::{StateBatch, TrieError};
use crate::ethereum::descent;
use crate::ethereum::dirty::DirtyNodes;
use crate::ethereum::edit::{Edit, Start, plan};
use crate::ethereum::nibbles::KeyPath;
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::sweep::{Place, Sweep};
use crate::ethereum::undo::{AccountUndo, Detached, Garbage, Undo};
use crate::ethereum::update::{Change, Update};
use crate::hash::simd::HashBackend;
use crate::hash::{Hash, Root};

/// Each batch frees this many nodes of wiped storages, and some for each of its changes.
const FREED: (usize, usize) = (256, 4);
/// A change makes two branches at most, for a moment three rows, and a leaf.
const NODES_PER_CHANGE: usize = 8;

/// What became of a batch.
#[derive(Debug)]
pub struct Applied {
    /// The root after it.
    pub root: Root,
    /// What takes it back.
    pub undo: Undo,
    /// The accounts that are there after it and whose storage root changed, ascending, with the new storage root.
    pub storage_roots: Vec<(KeyPath, [u8; 32])>,
}

/// What a state trie occupies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateMemory {
    /// Leaves: paths and values.
    pub leaves: u64,
    /// Branches: pointers to the children, and their references.
    pub nodes: u64,
    /// Rows that hold nothing at present.
    pub spare: u64,
    /// Buffers kept for the next batch.
    pub buffers: u64,
    /// Accounts and slots.
    pub keys: u64,
}

impl StateMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.leaves + self.nodes + self.spare + self.buffers
    }

    /// Bytes per key, buffers left out: they follow the size of the batches and not that of the state.
    pub fn bytes_per_key(&self) -> f64 {
        (self.total() - self.buffers) as f64 / self.keys.max(1) as f64
    }
}

/// The secure Merkle-Patricia trie of accounts and the tries of their storage, in memory.
///
/// `Send` and `Sync`: many may read or prove, one may write.
#[derive(Debug)]
pub struct StateTrie {
    arena: Arena,
    node: Ptr,
    root: Hash,
    accounts: u64,
    slots: u64,
    dirty: DirtyNodes,
    garbage: Arc<Garbage>,
    /// Tries that are being freed.
    freed: Vec<Ptr>,
    sweep: Sweep,
    backend: HashBackend,
}

impl StateTrie {
    /// The trie of a state without accounts.
    pub fn new(backend: HashBackend) -> Self {
        Self {
            arena: Arena::new(),
            node: Ptr::NONE,
            root: EMPTY_ROOT,
            accounts: 0,
            slots: 0,
            dirty: DirtyNodes::new(backend),
            garbage: Arc::default(),
            freed: Vec::new(),
            sweep: Sweep::default(),
            backend: backend.resolve(),
        }
    }

    /// The state root.
    pub fn root(&self) -> Root {
        Root(self.root)
    }

    /// The number of accounts.
    pub fn accounts(&self) -> u64 {
        self.accounts
    }

    /// The number of slots of all accounts.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The number of accounts and slots.
    pub fn len(&self) -> u64 {
        self.accounts + self.slots
    }

    /// Whether there is no account.
    pub fn is_empty(&self) -> bool {
        self.accounts == 0
    }

    /// The instructions that hash on this CPU.
    pub fn hash_backend(&self) -> HashBackend {
        self.backend
    }

    /// How many Keccak permutations the messages hashed so far took.
    pub fn permutations(&self) -> u64 {
        self.dirty.permutations
    }

    /// What the trie occupies.
    pub fn memory(&self) -> StateMemory {
        let (leaves, nodes, all) = self.arena.bytes();
        StateMemory {
            leaves: leaves as u64,
            nodes: nodes as u64,
            spare: (all - leaves - nodes) as u64,
            buffers: self.dirty.bytes() as u64,
            keys: self.len(),
        }
    }

    /// The account of a path.
    pub fn account(&self, account: &KeyPath) -> Option<Account> {
        self.account_leaf(account).map(|leaf| leaf.account())
    }

    /// The path of the account whose path begins with these bytes; where there are several, one of them.
    pub fn account_with_prefix(&self, prefix: &[u8]) -> Option<KeyPath> {
        let mut path = [0; 32];
        path.get_mut(..prefix.len())?.copy_from_slice(prefix);
        let found = descent::find_near(&self.arena, self.node, &path, 2 * prefix.len())?;
        found.starts_with(prefix).then_some(found)
    }

    /// The value of a slot of an account, a big-endian number.
    pub fn slot(&self, account: &KeyPath, slot: &KeyPath) -> Option<[u8; 32]> {
        let storage = self.account_leaf(account)?.storage;
        descent::find(&self.arena, storage.node, slot).map(|leaf| self.arena.slot_value(leaf))
    }

    /// The number of slots of an account; none where there is no such account.
    pub fn storage_len(&self, account: &KeyPath) -> Option<u64> {
        self.account_leaf(account).map(|leaf| leaf.storage.len)
    }

    /// Applies the changes of a block.
    ///
    /// # Errors
    /// The batch puts slots of an account that is not there after it, or the trie is full; nothing is changed then.
    ///
    /// # Cost
    /// Proportional to the changes: each costs its leaf and the branches above it, as far as the batch does not share
    /// them, and no more is hashed. Wiping a storage costs nothing by the slot.
    pub fn apply(&mut self, batch: &StateBatch) -> Result<Applied, TrieError> {
        if !self.arena.has_room(NODES_PER_CHANGE * batch.len()) {
            return Err(TrieError::Full);
        }
        let edits = plan(batch, |paths| self.account_leaves(paths))?;
        self.free(batch.len());
        Ok(self.run(edits))
    }

    /// Takes back the last batch that was applied and not yet undone, and returns the root before it.
    ///
    /// # Cost
    /// Proportional to what the batch changed; a storage that it wiped costs nothing by the slot.
    ///
    /// # Panics
    /// When the undo is of another trie. One of another state of this trie is not detected: its keys get the values they
    /// had before its batch.
    pub fn undo(&mut self, undo: Undo) -> Root {
        assert!(Arc::ptr_eq(&undo.garbage, &self.garbage), "an undo fits the trie that gave it");
        self.free(undo.len());
        let paths: Vec<KeyPath> = undo.accounts.iter().map(|account| account.path).collect();
        let present = self.account_leaves(&paths);
        let edits = undo.accounts.into_iter().zip(present).map(|(account, present)| {
            let start = account.wiped.map_or(Start::Keep, |wiped| Start::Attach(wiped.attach()));
            // A storage that comes back whole needs no slot of its own.
            let slots = if matches!(start, Start::Attach(_)) { Vec::new() } else { account.slots };
            Edit { path: account.path, present, body: account.body, start, slots }
        });
        let edits: Vec<Edit> = edits.collect();
        self.run(edits).root
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// See [`Sweep::run`].
    pub(crate) fn sweep(&mut self, bytes_max: u64, limit: Option<Place>) {
        self.sweep.run(&mut self.arena, self.node, bytes_max, limit);
    }

    pub(crate) fn parts_mut(&mut self) -> (&mut Arena, &mut DirtyNodes) {
        (&mut self.arena, &mut self.dirty)
    }

    /// Makes a node the top of the trie of accounts, which has what is counted below it, where there was none.
    pub(crate) fn set_top(&mut self, node: Ptr, root: Hash, accounts: u64, slots: u64) {
        (self.node, self.root, self.accounts, self.slots) = (node, root, accounts, slots);
    }

    /// The top of the trie of accounts.
    pub(crate) fn top(&self) -> Ptr {
        self.node
    }

    pub(crate) fn account_leaf(&self, account: &KeyPath) -> Option<AccountLeaf> {
        descent::find(&self.arena, self.node, account).map(|leaf| self.arena.account(leaf))
    }

    fn account_leaves(&self, accounts: &[KeyPath]) -> Vec<Option<AccountLeaf>> {
        let found = descent::find_all(&self.arena, self.node, accounts);
        found.into_iter().map(|leaf| leaf.map(|leaf| self.arena.account(leaf))).collect()
    }

    /// Makes edits, ascending by path: storages first, then accounts.
    fn run(&mut self, edits: Vec<Edit>) -> Applied {
        let mut undo = Undo { accounts: Vec::with_capacity(edits.len()), garbage: Arc::clone(&self.garbage) };
        let mut storages: Vec<(Storage, Option<usize>)> = Vec::with_capacity(edits.len());
        for edit in &edits {
            let (storage, index, account) = self.edit_storage(edit);
            storages.push((storage, index));
            undo.accounts.push(account);
        }
        let roots = self.dirty.rehash(&mut self.arena);
        let (mut changes, mut storage_roots) = (Vec::with_capacity(edits.len()), Vec::new());
        for (edit, (mut storage, index)) in edits.iter().zip(storages) {
            if let Some(index) = index {
                storage.root = roots[index];
            }
            let leaf = edit.body.map(|body| AccountLeaf { body, storage });
            if leaf.is_some() && edit.present.map_or(EMPTY_ROOT, |leaf| leaf.storage.root) != storage.root {
                storage_roots.push((edit.path, storage.root));
            }
            let leaf = leaf.map_or(Ptr::NONE, |leaf| self.arena.add_account(&edit.path, &leaf));
            changes.push(Change::new(edit.path, leaf));
        }
        let (node, is_dirty) = self.change(self.node, &mut changes);
        self.accounts = count(self.accounts, &changes);
        self.free_replaced(&changes);
        self.node = node;
        if is_dirty {
            self.root = EMPTY_ROOT;
            if node != Ptr::NONE {
                self.dirty.mark_root(&self.arena, node);
                self.root = self.dirty.rehash(&mut self.arena)[0];
            }
        }
        Applied { root: self.root(), undo, storage_roots }
    }

    /// Makes the part of an edit that concerns the storage, and notes what is to be hashed; gives the storage, the number
    /// of its root if that is to come, and what takes the edit back.
    fn edit_storage(&mut self, edit: &Edit) -> (Storage, Option<usize>, AccountUndo) {
        let present = edit.present.map_or(Storage::EMPTY, |leaf| leaf.storage);
        let mut account = AccountUndo {
            path: edit.path,
            body: edit.present.map(|leaf| leaf.body),
            wiped: None,
            slots: Vec::with_capacity(edit.slots.len()),
        };
        let mut storage = match &edit.start {
            Start::Keep => present,
            Start::Empty => Storage::EMPTY,
            Start::Attach(storage) => *storage,
        };
        if !matches!(edit.start, Start::Keep) && present.node != Ptr::NONE {
            account.wiped = Some(Detached::new(present, &self.garbage));
            self.slots -= present.len;
        }
        if let Start::Attach(storage) = &edit.start {
            self.slots += storage.len;
        }
        if edit.slots.is_empty() {
            return (storage, None, account);
        }
        let changes = edit.slots.iter().map(|(path, value)| {
            let is_put = *value != [0; 32];
            Change::new(*path, if is_put { self.arena.add_slot(path, value) } else { Ptr::NONE })
        });
        let mut changes: Vec<Change> = changes.collect();
        let (node, is_dirty) = self.change(storage.node, &mut changes);
        let len = count(storage.len, &changes);
        self.slots = self.slots - storage.len + len;
        account.slots.extend(changes.iter().filter(|change| change.is_effective()).map(|change| {
            let value = if change.old == Ptr::NONE { [0; 32] } else { self.arena.slot_value(change.old) };
            (change.path, value)
        }));
        self.free_replaced(&changes);
        (storage.node, storage.len) = (node, len);
        let mut index = None;
        if node == Ptr::NONE {
            storage.root = EMPTY_ROOT;
        } else if is_dirty {
            index = Some(self.dirty.mark_root(&self.arena, node));
        }
        (storage, index, account)
    }

    /// Changes one trie and gives its top, and whether that is to be hashed.
    fn change(&mut self, node: Ptr, changes: &mut [Change]) -> (Ptr, bool) {
        let placed = Update { arena: &mut self.arena, dirty: &mut self.dirty }.run(node, changes);
        (placed.node, placed.is_dirty)
    }

    fn free_replaced(&mut self, changes: &[Change]) {
        let replaced = changes.iter().filter(|change| change.is_effective());
        replaced.for_each(|change| self.arena.free_node(change.old));
    }

    /// Frees some of what was wiped for good.
    fn free(&mut self, changes: usize) {
        self.garbage.take(&mut self.freed);
        for _ in 0..FREED.0 + FREED.1 * changes {
            let Some(node) = self.freed.pop() else { break };
            if node.kind() == Kind::Branch {
                self.freed.extend_from_slice(self.arena.branch(node).children);
            }
            self.arena.free_node(node);
        }
    }
}

/// The number of leaves after changes.
fn count(before: u64, changes: &[Change]) -> u64 {
    let added = changes.iter().filter(|change| change.leaf != Ptr::NONE).count() as u64;
    let removed = changes.iter().filter(|change| change.old != Ptr::NONE).count() as u64;
    before + added - removed
}
