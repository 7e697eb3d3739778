//! Proofs of accounts and slots of Ethereum at any block, all that are asked for together.
//!
//! Of a block that has its nodes the tries are opened around what is asked by way of their [rows](crate::merkle::trie_rows): first that
//! of accounts, then the storages. A block that is in no segment has its nodes beside a writer only, and where rows are not kept a block has
//! them only where a [build](crate::maintain::rows) that is not at its end yet has come by: elsewhere the tries are rebuilt. Either way the
//! root is compared with the recorded one.

use icecore_hot::Root;
use icecore_hot::ethereum::{Account, EMPTY_ROOT, KeyPath, PartialTrieBuilder, PartialTrieError, keccak256};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::merkle::account_proof::{AccountProof, Address, SlotProof, Word};
use crate::merkle::ethereum_tree::load_trie;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_leaves::StateLeaves;
use crate::merkle::trie_rows::{KeptTrie, StorageNode, accounts_depth, damaged};
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::stats::Tally;

/// Proves accounts and slots of each in the state at `at`, in the order asked.
///
/// # Cost
/// With rows some hundred lookups of nodes and some thousand leaves for each account and each storage; without, the newest version of
/// every account and slot.
pub(crate) fn prove_accounts(
    version: &ReadState,
    config: &Config,
    tally: &Tally,
    at: BlockNumber,
    asked: &[(Address, &[Word])],
) -> Result<Vec<AccountProof>, Error> {
    let (block, _) = version.newest_root(at)?;
    if let Some(nodes) = config.nodes()
        && let Some((of, depth)) = accounts_depth(version, nodes, at, tally)?
        && of == block
        && (version.keeps_rows || depth != RowDepth::NONE)
    {
        return StateRows { version, nodes, tally, at }.prove(depth, asked);
    }
    let trie = load_trie(version, at, u64::MAX, &())?.trie;
    version.check_root(at, trie.root())?;
    let proofs = asked.iter().map(|(address, slots)| {
        let path = keccak256(address);
        let slots = slots.iter().map(|slot| {
            let of_slot = keccak256(slot);
            let value = trie.slot(&path, &of_slot).unwrap_or_default();
            SlotProof { slot: *slot, value, nodes: trie.prove_slot(&path, &of_slot) }
        });
        let slots = slots.collect();
        AccountProof { account: trie.account(&path), nodes: trie.prove_account(&path), slots }
    });
    Ok(proofs.collect())
}

/// The state of a block that has its nodes.
struct StateRows<'v> {
    version: &'v ReadState,
    nodes: DomainId,
    tally: &'v Tally,
    at: BlockNumber,
}

impl StateRows<'_> {
    fn prove(&self, depth: RowDepth, asked: &[(Address, &[Word])]) -> Result<Vec<AccountProof>, Error> {
        let &Self { version, nodes, tally, at } = self;
        let paths = paths(asked.iter().map(|(address, _)| &address[..]));
        let trie = KeptTrie { version, nodes, at, account: None, depth };
        let opened = trie.open(&paths, tally)?;
        let leaves = StateLeaves { version, nodes, at };
        leaves.request_accounts(&opened.ranges)?;
        let mut accounts = Vec::new();
        for range in &opened.ranges {
            accounts.extend(leaves.accounts(range)?);
        }
        let trie = opened.complete(&accounts, PartialTrieBuilder::push_account).ok_or_else(|| damaged(at))?;
        version.check_root(at, trie.root())?;
        let prove = |(address, slots): &(Address, &[Word])| {
            let path = keccak256(address);
            let account = accounts.binary_search_by_key(&path, |(path, _)| *path);
            let account = account.ok().map(|found| accounts[found].1);
            let slots = self.prove_slots(&path, account, slots)?;
            Ok(AccountProof { account, nodes: trie.prove(&path).map_err(|_| damaged(at))?, slots })
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
        let top = StorageNode::of(version, nodes, account, at, tally)?.ok_or_else(|| damaged(at))?;
        let prefix = *account.first_chunk().expect("a path is longer");
        let trie = KeptTrie { version, nodes, at, account: Some(prefix), depth: top.depth };
        let opened = trie.open(&paths(slots.iter().map(|slot| &slot[..])), tally)?;
        let leaves = StateLeaves { version, nodes, at };
        leaves.request_slots(&opened.ranges.iter().map(|range| (prefix, *range)).collect::<Vec<_>>())?;
        let mut values = Vec::new();
        for range in &opened.ranges {
            values.extend(leaves.slots(&prefix, range)?);
        }
        let trie = opened.complete(&values, PartialTrieBuilder::push_slot).ok_or_else(|| damaged(at))?;
        if trie.root() != Root(root) {
            return Err(damaged(at));
        }
        let prove = |slot: &Word| {
            let path = keccak256(slot);
            let found = values.binary_search_by_key(&path, |(path, _)| *path);
            let value = found.map_or([0; 32], |found| values[found].1);
            let nodes = trie.prove(&path).map_err(|_: PartialTrieError| damaged(at))?;
            Ok(SlotProof { slot: *slot, value, nodes })
        };
        slots.iter().map(prove).collect()
    }
}

/// The paths of plain keys, ascending, each once.
fn paths<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeyPath> {
    let mut paths: Vec<KeyPath> = keys.map(keccak256).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}
