//! A tree from the outline that an earlier writer [kept](crate::merkle::tree_file), taken to the block that the next one begins at.
//!
//! ```text
//!  segments ......................| log .................|
//!            kept at 900          | the tree begins at 1000
//!                                 |           kept at 1100
//! ```
//!
//! The groups that blocks in between changed are read as they are at the block of the outline, so that each is compared with its
//! reference, and what changed is applied to them: forth, or back where the outline is of a block that is still in the log. The
//! root that this leads to is compared with the recorded one. Whatever does not fit, the state is read as if nothing had been kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_hot::Root;
use icecore_hot::ethereum::{KeyPath, StateBatch, StateTrie};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::key_table::KeyNumber;
use crate::merkle::collapsed::{self, GroupState};
use crate::merkle::load_trie::LoadedTrie;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_batch::gather;
use crate::merkle::state_leaves::StateLeaves;
use crate::merkle::tree_file::{OutlinedTrie, TreeFile, TreeHead, Unfit};
use crate::progress::ProgressListener;
use crate::read::changes::{Changes, StateChange};
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::storage::layout;
use crate::wal::ChangeRef;

/// What a leaf takes at least in a tree that has all of them: where so many fit, the state is read.
const LEAF_BYTES: u64 = 100;

/// Changes that are applied together, whole blocks.
const WINDOW: usize = 1 << 16;

/// Where more than one leaf in so many changed, and more than a window, reading the state is faster.
const CHANGED_SHARE: u64 = 16;

/// A tree that was kept.
pub(crate) struct KeptTree {
    pub(crate) loaded: LoadedTrie,
    /// The block that the file is of, with its root.
    pub(crate) of: (BlockNumber, Root),
    /// The changes that were applied to it.
    pub(crate) changed: u64,
}

/// The trie of the state at `at`, a block in segments, if there is a file from which it follows and it does not fit the memory whole.
///
/// # Cost
/// One pass over the file, and of each group that a block in between changed its leaves.
pub(crate) fn load(
    shared: &Arc<Shared>,
    version: &Arc<ReadState>,
    at: BlockNumber,
    memory: u64,
    listener: &dyn ProgressListener,
) -> Option<KeptTree> {
    let loaded = TreeFile::open(&shared.directory).and_then(|file| {
        let Some(file) = file else { return Ok(None) };
        let head = file.head;
        if head.accounts.saturating_add(head.slots).saturating_mul(LEAF_BYTES) <= memory {
            return Ok(None);
        }
        check_block(version, &head)?;
        let outlined = file.load(listener)?;
        Move::new(shared, version, outlined, head, memory).run(at, listener).map(Some)
    });
    loaded.unwrap_or_else(|reason| {
        listener.begin(&format!("leave {} aside: {reason}", layout::TREE), None);
        listener.end();
        None
    })
}

/// Checks that the outline is of a block that is there and can be read.
fn check_block(version: &ReadState, head: &TreeHead) -> Result<(), Unfit> {
    let found = version.check(head.block).and_then(|()| version.newest_root(head.block));
    let found = found.map_err(|error| error.to_string())?;
    if found == (head.block, head.root) { Ok(()) } else { Err("its block was taken back".to_owned()) }
}

/// A trie on its way from one block to another.
struct Move<'v> {
    shared: &'v Arc<Shared>,
    version: &'v Arc<ReadState>,
    nodes: DomainId,
    head: TreeHead,
    memory: u64,
    trie: StateTrie,
    large: BTreeSet<KeyPath>,
    batch: StateBatch,
    /// Changes that were applied so far.
    changed: u64,
}

/// What keys are to become.
type Values = BTreeMap<(DomainId, Vec<u8>), Option<Vec<u8>>>;

impl<'v> Move<'v> {
    fn new(
        shared: &'v Arc<Shared>,
        version: &'v Arc<ReadState>,
        outlined: OutlinedTrie,
        head: TreeHead,
        memory: u64,
    ) -> Self {
        let nodes = shared.directory.config.nodes().expect("an archive for Ethereum has nodes");
        let (trie, large, batch) = (outlined.trie, outlined.large.into_iter().collect(), StateBatch::new());
        Self { shared, version, nodes, head, memory, trie, large, batch, changed: 0 }
    }

    fn run(mut self, at: BlockNumber, listener: &dyn ProgressListener) -> Result<KeptTree, Unfit> {
        let of = self.head.block;
        self.trie.collapse(self.memory);
        listener.begin(&format!("apply the blocks between {of} and {at}, changes"), None);
        let moved = if of <= at { self.forth(at, listener) } else { self.back(at, listener) };
        listener.end();
        moved?;
        let checked = self.version.check_root(at, self.trie.root());
        checked.map_err(|error| error.to_string())?;
        let loaded = LoadedTrie { trie: self.trie, large: self.large.into_iter().collect() };
        Ok(KeptTree { loaded, of: (of, self.head.root), changed: self.changed })
    }

    /// Applies the blocks up to `to`, which are in segments.
    fn forth(&mut self, to: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Unfit> {
        let (mut values, mut at, unnoted) = (Values::new(), self.head.block, BTreeSet::new());
        let mut last = at;
        for change in self.changes(at, to, false) {
            let change = change.map_err(|error| error.to_string())?;
            if change.block > last && values.len() >= WINDOW {
                self.apply(at, &unnoted, &std::mem::take(&mut values), listener)?;
                at = last;
            }
            last = change.block;
            values.insert(key_of(&change), change.after);
        }
        self.apply(at, &unnoted, &values, listener)
    }

    /// Takes the blocks above `to` back: all of them are in memory.
    fn back(&mut self, to: BlockNumber, listener: &dyn ProgressListener) -> Result<(), Unfit> {
        let unnoted = storages_in_memory(self.version);
        let tables = self.version.tables.iter();
        let heights: Vec<BlockNumber> =
            tables.flat_map(|table| table.heights(to.saturating_add(1), self.head.block)).collect();
        let (mut left, mut blocks) = (heights.len(), 1);
        while left > 0 {
            let first = left.saturating_sub(blocks);
            let before = first.checked_sub(1).map_or(to, |before| heights[before]);
            let mut values = Values::new();
            for change in self.changes(before, heights[left - 1], true) {
                let change = change.map_err(|error| error.to_string())?;
                values.entry(key_of(&change)).or_insert(change.before);
            }
            self.apply(heights[left - 1], &unnoted, &values, listener)?;
            left = first;
            blocks = if values.len() < WINDOW / 2 { 2 * blocks } else { (blocks / 2).max(1) };
        }
        Ok(())
    }

    /// What the blocks above one and up to another changed.
    fn changes(&self, from: BlockNumber, to: BlockNumber, with_before: bool) -> Changes {
        let range = from.checked_add(1).filter(|first| *first <= to).map(|first| (first, to));
        let pinned = Pinned::Here(Arc::clone(self.version));
        let changes = Changes::of_blocks(Arc::clone(self.shared), pinned, range);
        let changes = changes.of_domains(&[DomainId::ACCOUNT, DomainId::STORAGE]);
        if with_before { changes } else { changes.without_before() }
    }

    /// Gives keys other values than they have at `at`, the block whose state the trie is of.
    fn apply(
        &mut self,
        at: BlockNumber,
        unnoted: &BTreeSet<[u8; ACCOUNT_LEN]>,
        values: &Values,
        listener: &dyn ProgressListener,
    ) -> Result<(), Unfit> {
        self.changed += values.len() as u64;
        if self.changed > (self.trie.len() / CHANGED_SHARE).max(WINDOW as u64) {
            return Err("too much changed since".to_owned());
        }
        let changes = values.iter().map(|((domain, key), value)| ChangeRef {
            domain: domain.0,
            key,
            value: value.as_deref(),
        });
        let changes: Vec<ChangeRef<'_>> = changes.collect();
        let leaves = StateLeaves { version: self.version, nodes: self.nodes, at };
        let state = GroupState { leaves, unnoted };
        let of_error = |error: Error| error.to_string();
        collapsed::expand_for_block(&mut self.trie, state, &changes).map_err(of_error)?;
        gather(&self.trie, &mut self.batch, &changes)?;
        self.trie.apply(&self.batch).map_err(|error| error.to_string())?;
        for change in changes.iter().filter(|change| change.domain == DomainId::STORAGE.0) {
            let account = self.trie.account_with_prefix(&change.key[..ACCOUNT_LEN]);
            let is_large =
                |path: &KeyPath| self.trie.storage_len(path).is_some_and(|len| len >= RowDepth::LEAVES_MIN);
            self.large.extend(account.filter(is_large));
        }
        self.trie.collapse(self.memory);
        listener.advance(values.len() as u64);
        Ok(())
    }
}

fn key_of(change: &StateChange) -> (DomainId, Vec<u8>) {
    // The first domain is the archive's own.
    (DomainId(change.domain as u16 + 1), change.key.clone())
}

/// The accounts whose storages blocks in memory changed, by what keys have of their paths.
fn storages_in_memory(version: &ReadState) -> BTreeSet<[u8; ACCOUNT_LEN]> {
    let mut storages = BTreeSet::new();
    for table in &version.tables {
        let keys = table.keys(DomainId::STORAGE);
        let numbers = 0..keys.len() as KeyNumber;
        storages.extend(numbers.filter_map(|number| keys.key(number).first_chunk().copied()));
    }
    storages
}
