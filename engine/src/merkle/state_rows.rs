//! What is proven of a block by way of the [rows](crate::merkle::trie_rows) of its tries: first that of accounts, then the storages.
//! Called by [`prove_account`](crate::merkle::prove_account) and [`prove_range`](crate::merkle::prove_range), and by
//! [`check_state`](crate::merkle::check_state) for leaves.

use icecore_hot::Root;
use icecore_hot::ethereum::{
    Account, EMPTY_ROOT, KeyPath, PartialTrie, PartialTrieBuilder, PartialTrieError, TrieId, keccak256,
};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::DomainId;
use crate::error::Error;
use crate::merkle::account_proof::{AccountProof, AskedAccount, SlotProof, Word};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::node_error::node_damaged;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_leaves::{StateLeaves, prefix_of};
use crate::merkle::trie_rows::{KeptTrie, StorageNode, accounts_depth, top_key};
use crate::read::read_state::ReadState;
use crate::stats::Tally;

/// The state of a block that has its nodes.
pub(crate) struct StateRows<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) nodes: DomainId,
    pub(crate) tally: &'v Tally,
    pub(crate) at: BlockNumber,
}

impl StateRows<'_> {
    /// How deep the rows of accounts are, where the block has its nodes.
    pub(crate) fn kept_depth(&self) -> Result<Option<RowDepth>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let (block, _) = version.newest_root(at)?;
        let kept = accounts_depth(version, nodes, at, tally)?;
        let is_of_block = |(of, depth): &(BlockNumber, RowDepth)| {
            *of == block && (version.keeps_rows || *depth != RowDepth::NONE)
        };
        Ok(kept.filter(is_of_block).map(|(_, depth)| depth))
    }

    /// Proves accounts, and slots of each.
    pub(crate) fn prove(
        &self,
        depth: RowDepth,
        asked: &[AskedAccount<'_>],
    ) -> Result<Vec<AccountProof>, Error> {
        let accounts = self.open_accounts(depth, &paths(asked.iter().map(|(address, _)| &address[..])))?;
        let prove = |(address, slots): &AskedAccount<'_>| {
            let path = keccak256(address);
            let account = accounts.leaf(&path);
            let slots = self.prove_slots(&path, account, slots)?;
            Ok(AccountProof { account, nodes: self.nodes_of(&accounts, &TrieId::Accounts, &path)?, slots })
        };
        asked.iter().map(prove).collect()
    }

    fn prove_slots(
        &self,
        account: &KeyPath,
        of_account: Option<Account>,
        slots: &[Word],
    ) -> Result<Vec<SlotProof>, Error> {
        let none = |slot: &Word| SlotProof { slot: *slot, value: [0; 32], nodes: Vec::new() };
        let root = of_account.map_or(EMPTY_ROOT, |account| account.storage_root);
        if slots.is_empty() || root == EMPTY_ROOT {
            return Ok(slots.iter().map(none).collect());
        }
        let storage = self.open_storage(account, &root, &paths(slots.iter().map(|slot| &slot[..])))?;
        let prove = |slot: &Word| {
            let path = keccak256(slot);
            let value = storage.leaf(&path).unwrap_or_default();
            let nodes = self.nodes_of(&storage, &TrieId::Storage(*account), &path)?;
            Ok(SlotProof { slot: *slot, value, nodes })
        };
        slots.iter().map(prove).collect()
    }

    /// The trie of accounts around paths, which ascend; its root is the recorded one.
    pub(crate) fn open_accounts(
        &self,
        depth: RowDepth,
        paths: &[KeyPath],
    ) -> Result<AroundPaths<Account>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let opened = KeptTrie { version, nodes, at, account: None, depth }.open(paths, tally)?;
        let leaves = self.accounts(&opened.ranges)?;
        let trie = opened.complete(&leaves, PartialTrieBuilder::push_account);
        let trie = trie.ok_or_else(|| self.wrong(&TrieId::Accounts))?;
        version.check_root(at, trie.root())?;
        Ok(AroundPaths { trie, leaves })
    }

    /// The trie of a storage that has slots around paths, which ascend; its root is the one that is given.
    pub(crate) fn open_storage(
        &self,
        account: &KeyPath,
        root: &[u8; 32],
        paths: &[KeyPath],
    ) -> Result<AroundPaths<Word>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let wrong = || self.wrong(&TrieId::Storage(*account));
        let top = StorageNode::of(version, nodes, account, at, tally)?.ok_or_else(wrong)?;
        let prefix = prefix_of(account);
        let opened =
            KeptTrie { version, nodes, at, account: Some(prefix), depth: top.depth }.open(paths, tally)?;
        let leaves = self.slots(&prefix, &opened.ranges)?;
        let trie = opened.complete(&leaves, PartialTrieBuilder::push_slot).ok_or_else(wrong)?;
        if trie.root() == Root(*root) { Ok(AroundPaths { trie, leaves }) } else { Err(wrong()) }
    }

    /// The nodes that prove a path in a trie that was opened around it.
    pub(crate) fn nodes_of<L>(
        &self,
        around: &AroundPaths<L>,
        trie: &TrieId,
        path: &KeyPath,
    ) -> Result<Vec<Vec<u8>>, Error> {
        around.trie.prove(path).map_err(|_: PartialTrieError| self.wrong(trie))
    }

    /// What is wrong where the parts of a trie are none: all that is known is that something of it is.
    fn wrong(&self, trie: &TrieId) -> Error {
        node_damaged(self.version, self.nodes, top_key(trie).as_bytes(), self.at)
    }

    /// The accounts of ranges, ascending, with their storage roots.
    pub(crate) fn accounts(&self, ranges: &[LeafRange]) -> Result<Vec<(KeyPath, Account)>, Error> {
        let leaves = self.leaves();
        leaves.request_accounts(ranges)?;
        let mut accounts = Vec::new();
        for range in ranges {
            accounts.extend(leaves.accounts(range)?);
        }
        Ok(accounts)
    }

    /// The slots of an account in ranges, ascending.
    fn slots(
        &self,
        account: &[u8; ACCOUNT_LEN],
        ranges: &[LeafRange],
    ) -> Result<Vec<(KeyPath, Word)>, Error> {
        let leaves = self.leaves();
        leaves.request_slots(&ranges.iter().map(|range| (*account, *range)).collect::<Vec<_>>())?;
        let mut slots = Vec::new();
        for range in ranges {
            slots.extend(leaves.slots(account, range)?);
        }
        Ok(slots)
    }

    pub(crate) fn leaves(&self) -> StateLeaves<'_> {
        StateLeaves { version: self.version, nodes: self.nodes, at: self.at }
    }
}

/// A trie that was opened around some paths.
pub(crate) struct AroundPaths<L> {
    trie: PartialTrie,
    /// The leaves that it was put together of, ascending: those of the paths are among them.
    leaves: Vec<(KeyPath, L)>,
}

impl<L: Copy> AroundPaths<L> {
    /// The leaf of one of the paths, if there is one.
    fn leaf(&self, path: &KeyPath) -> Option<L> {
        let found = self.leaves.binary_search_by_key(path, |(path, _)| *path);
        found.ok().map(|found| self.leaves[found].1)
    }
}

/// The paths of plain keys, ascending, each once.
fn paths<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeyPath> {
    let mut paths: Vec<KeyPath> = keys.map(keccak256).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
