//! Proofs of ranges of accounts and slots of Ethereum at any block: the leaves are read, and the tries opened around both ends.

use std::collections::BTreeSet;

use icecore_hot::ethereum::{EMPTY_ROOT, KeyPath, StateTrie, TrieId, keccak256};

use crate::error::Error;
use crate::merkle::account_proof::{AccountProof, Address};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::prove_account::ProvenState;
use crate::merkle::range_proof::{AccountRange, SlotRange};
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_leaves::{StateLeaves, prefix_of};
use crate::merkle::state_rows::StateRows;

impl ProvenState<'_> {
    /// Proves the first `count` accounts of a range.
    pub(crate) fn prove_account_range(&self, range: &LeafRange, count: usize) -> Result<AccountRange, Error> {
        let by_rows = |rows: &StateRows<'_>, depth: RowDepth| {
            let accounts = rows.leaves().first_accounts(range, count)?;
            let last = last_of(range, &accounts, count);
            let trie = rows.open_accounts(depth, &ends(&range.first, &last))?;
            let nodes = once([&range.first, &last], |end| rows.nodes_of(&trie, &TrieId::Accounts, end))?;
            Ok(AccountRange { last, accounts, nodes })
        };
        let by_trie = |trie: &StateTrie| {
            let paths = self.leaves().account_paths(range, count)?;
            let with_root = |path| trie.account(&path).map(|account| (path, account));
            let accounts: Vec<_> = paths.into_iter().filter_map(with_root).collect();
            let last = last_of(range, &accounts, count);
            let nodes = once([&range.first, &last], |end| Ok(trie.prove_account(end)))?;
            Ok(AccountRange { last, accounts, nodes })
        };
        self.prove(by_rows, by_trie)
    }

    /// Proves the first `count` slots that an account has in a range.
    pub(crate) fn prove_slot_range(
        &self,
        address: &Address,
        range: &LeafRange,
        count: usize,
    ) -> Result<SlotRange, Error> {
        let path = keccak256(address);
        let by_rows = |rows: &StateRows<'_>, depth: RowDepth| {
            let account = rows.prove(depth, &[(*address, &[])])?.pop().expect("one account was asked for");
            slot_range(account, &path, rows.leaves(), range, count, |root, [first, last]| {
                let trie = rows.open_storage(&path, root, &ends(first, last))?;
                once([first, last], |end| rows.nodes_of(&trie, &TrieId::Storage(path), end))
            })
        };
        let by_trie = |trie: &StateTrie| {
            let (account, nodes) = (trie.account(&path), trie.prove_account(&path));
            let account = AccountProof { account, nodes, slots: Vec::new() };
            slot_range(account, &path, self.leaves(), range, count, |_, ends| {
                once(ends, |end| Ok(trie.prove_slot(&path, end)))
            })
        };
        self.prove(by_rows, by_trie)
    }
}

/// The first `count` slots of an account in a range; `prove` gives the nodes for a storage root and both ends.
fn slot_range(
    account: AccountProof,
    path: &KeyPath,
    leaves: StateLeaves<'_>,
    range: &LeafRange,
    count: usize,
    prove: impl FnOnce(&[u8; 32], [&KeyPath; 2]) -> Result<Vec<Vec<u8>>, Error>,
) -> Result<SlotRange, Error> {
    let root = account.account.map_or(EMPTY_ROOT, |account| account.storage_root);
    if root == EMPTY_ROOT {
        return Ok(SlotRange { account, last: range.last, slots: Vec::new(), nodes: Vec::new() });
    }
    let slots = leaves.first_slots(&prefix_of(path), range, count)?;
    let last = last_of(range, &slots, count);
    let nodes = prove(&root, [&range.first, &last])?;
    Ok(SlotRange { account, last, slots, nodes })
}

/// Where a range ends of which these are the first leaves.
fn last_of<L>(range: &LeafRange, leaves: &[(KeyPath, L)], count: usize) -> KeyPath {
    leaves.last().filter(|_| leaves.len() == count).map_or(range.last, |(path, _)| *path)
}

fn ends(first: &KeyPath, last: &KeyPath) -> Vec<KeyPath> {
    BTreeSet::from([*first, *last]).into_iter().collect()
}

/// The nodes of the proofs of both ends, each once.
fn once(
    ends: [&KeyPath; 2],
    prove: impl Fn(&KeyPath) -> Result<Vec<Vec<u8>>, Error>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut nodes = prove(ends[0])?;
    for node in prove(ends[1])? {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    Ok(nodes)
}
