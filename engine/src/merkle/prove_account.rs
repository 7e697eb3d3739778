//! Proofs of accounts and slots of Ethereum at any block, all that are asked for together.
//!
//! Of a block that has its nodes the tries are opened around what is asked by way of their [rows](crate::merkle::trie_rows): first that
//! of accounts, then the storages. A block that is in no segment has its nodes beside a writer only, and where rows are not kept a block has
//! them only where a [build](crate::maintain::rows) that is not at its end yet has come by: elsewhere the tries are rebuilt. Either way the
//! root is compared with the recorded one.

use icecore_hot::Root;
use icecore_hot::ethereum::{Account, EMPTY_ROOT, KeyPath, PartialTrieBuilder, PartialTrieError, keccak256};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{DomainId, STORAGE};
use crate::error::Error;
use crate::memtable::node_key::NodeKey;
use crate::merkle::account_proof::{AccountProof, Address, SlotProof, Word};
use crate::merkle::ethereum_tree::{decode_account, load_trie};
use crate::merkle::prefetch;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::trie_rows::{KeptTrie, LeafRange, StorageNode, accounts_depth, damaged};
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
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
    let trie = load_trie(version, at, &())?.trie;
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
        let accounts = self.accounts(&opened.ranges)?;
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
        let values = self.slots(&prefix, &opened.ranges)?;
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

    /// The accounts of ranges, ascending, with their storage roots.
    fn accounts(&self, ranges: &[LeafRange]) -> Result<Vec<(KeyPath, Account)>, Error> {
        let &Self { version, nodes, at, .. } = self;
        let top = |path: &KeyPath| NodeKey::trie_row(path.first_chunk(), 0, path);
        let records: Vec<Scan> =
            ranges.iter().map(|range| Scan::all().from(&range.first).to_included(&range.last)).collect();
        let tops = ranges.iter().map(|range| {
            Scan::all().from(top(&range.first).as_bytes()).to_included(top(&range.last).as_bytes())
        });
        let tops: Vec<Scan> = tops.collect();
        prefetch::request(version, DomainId::ACCOUNT, &records, at)?;
        prefetch::request(version, nodes, &tops, at)?;
        let mut accounts = Vec::new();
        for (records, tops) in records.iter().zip(&tops) {
            let mut tops = MergeScan::new(version, nodes, tops, at)?;
            let mut top = tops.next().transpose()?;
            for record in MergeScan::new(version, DomainId::ACCOUNT, records, at)? {
                let (key, record) = record?;
                let path: KeyPath = key.try_into().expect("the domain fixes the length of keys");
                let mut account = decode_account(&record, at)?;
                while let Some((key, node)) = top.take_if(|(key, _)| key[1..] <= path[..ACCOUNT_LEN]) {
                    if key[1..] == path[..ACCOUNT_LEN] {
                        account.storage_root = StorageNode::decode(&node).ok_or_else(|| damaged(at))?.root;
                    }
                    top = tops.next().transpose()?;
                }
                accounts.push((path, account));
            }
        }
        Ok(accounts)
    }

    /// The slots of an account in ranges, ascending.
    fn slots(
        &self,
        account: &[u8; ACCOUNT_LEN],
        ranges: &[LeafRange],
    ) -> Result<Vec<(KeyPath, Word)>, Error> {
        let &Self { version, at, .. } = self;
        let key = |path: &KeyPath| [&account[..], path].concat();
        let scans: Vec<Scan> = ranges
            .iter()
            .map(|range| Scan::all().from(&key(&range.first)).to_included(&key(&range.last)))
            .collect();
        prefetch::request(version, DomainId::STORAGE, &scans, at)?;
        let mut slots = Vec::new();
        for scan in &scans {
            for slot in MergeScan::new(version, DomainId::STORAGE, scan, at)? {
                let (key, value) = slot?;
                let path = *key.last_chunk().expect("the domain fixes the length of keys");
                slots.push((path, slot_value(&value, at)?));
            }
        }
        Ok(slots)
    }
}

/// The paths of plain keys, ascending, each once.
fn paths<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<KeyPath> {
    let mut paths: Vec<KeyPath> = keys.map(keccak256).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The number that a slot's record is.
fn slot_value(record: &[u8], at: BlockNumber) -> Result<Word, Error> {
    let mut value = [0; 32];
    let start = value.len().checked_sub(record.len());
    let start = start.ok_or(Error::RecordDamaged { domain: STORAGE, block: at })?;
    value[start..].copy_from_slice(record);
    Ok(value)
}
