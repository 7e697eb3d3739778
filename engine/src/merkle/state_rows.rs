//! What is proven of a block by way of the [rows](crate::merkle::trie_rows) of its tries: first that of accounts, then the storages.
//! Called by [`prove_account`](crate::merkle::prove_account), and by [`check_state`](crate::merkle::check_state) for leaves.

use icecore_hot::Root;
use icecore_hot::ethereum::{
    Account, EMPTY_ROOT, KeyPath, PartialTrieBuilder, PartialTrieError, TrieId, keccak256,
};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::DomainId;
use crate::error::Error;
use crate::merkle::account_proof::{AccountProof, Address, SlotProof, Word};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::node_error::node_damaged;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_leaves::StateLeaves;
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
    /// Proves by way of the rows of the block, where it has some.
    pub(crate) fn prove_if_kept(
        &self,
        asked: &[(Address, &[Word])],
    ) -> Result<Option<Vec<AccountProof>>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let (block, _) = version.newest_root(at)?;
        match accounts_depth(version, nodes, at, tally)? {
            Some((of, depth)) if of == block && (version.keeps_rows || depth != RowDepth::NONE) => {
                self.prove(depth, asked).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn prove(&self, depth: RowDepth, asked: &[(Address, &[Word])]) -> Result<Vec<AccountProof>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let paths = paths(asked.iter().map(|(address, _)| &address[..]));
        let trie = KeptTrie { version, nodes, at, account: None, depth };
        let opened = trie.open(&paths, tally)?;
        let accounts = self.accounts(&opened.ranges)?;
        let trie = opened.complete(&accounts, PartialTrieBuilder::push_account);
        let trie = trie.ok_or_else(|| self.wrong(&TrieId::Accounts))?;
        version.check_root(at, trie.root())?;
        let prove = |(address, slots): &(Address, &[Word])| {
            let path = keccak256(address);
            let account = accounts.binary_search_by_key(&path, |(path, _)| *path);
            let account = account.ok().map(|found| accounts[found].1);
            let slots = self.prove_slots(&path, account, slots)?;
            let nodes = trie.prove(&path).map_err(|_| self.wrong(&TrieId::Accounts))?;
            Ok(AccountProof { account, nodes, slots })
        };
        asked.iter().map(prove).collect()
    }

    fn prove_slots(
        &self,
        account: &KeyPath,
        of_account: Option<Account>,
        slots: &[Word],
    ) -> Result<Vec<SlotProof>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let none = |slot: &Word| SlotProof { slot: *slot, value: [0; 32], nodes: Vec::new() };
        let root = of_account.map_or(EMPTY_ROOT, |account| account.storage_root);
        if slots.is_empty() || root == EMPTY_ROOT {
            return Ok(slots.iter().map(none).collect());
        }
        let wrong = || self.wrong(&TrieId::Storage(*account));
        let top = StorageNode::of(version, nodes, account, at, tally)?.ok_or_else(wrong)?;
        let prefix = *account.first_chunk().expect("a path is longer");
        let trie = KeptTrie { version, nodes, at, account: Some(prefix), depth: top.depth };
        let opened = trie.open(&paths(slots.iter().map(|slot| &slot[..])), tally)?;
        let values = self.slots(&prefix, &opened.ranges)?;
        let trie = opened.complete(&values, PartialTrieBuilder::push_slot).ok_or_else(wrong)?;
        if trie.root() != Root(root) {
            return Err(wrong());
        }
        let prove = |slot: &Word| {
            let path = keccak256(slot);
            let found = values.binary_search_by_key(&path, |(path, _)| *path);
            let value = found.map_or([0; 32], |found| values[found].1);
            let nodes = trie.prove(&path).map_err(|_: PartialTrieError| wrong())?;
            Ok(SlotProof { slot: *slot, value, nodes })
        };
        slots.iter().map(prove).collect()
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

    fn leaves(&self) -> StateLeaves<'_> {
        StateLeaves { version: self.version, nodes: self.nodes, at: self.at }
    }
}

/// The paths of plain keys, ascending, each once.
fn paths<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeyPath> {
    let mut paths: Vec<KeyPath> = keys.map(keccak256).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
