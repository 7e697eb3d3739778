//! The leaves of the tries of Ethereum at a block, read by ranges of their paths: for [proofs](crate::merkle::prove_account), and for
//! [groups](crate::merkle::collapsed) that come back into the tree.

use icecore_hot::ethereum::{Account, KeyPath};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{ACCOUNT, DomainId, STORAGE};
use crate::error::Error;
use crate::memtable::node_key::NodeKey;
use crate::merkle::account_proof::Word;
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::node_error::node_damaged;
use crate::merkle::prefetch;
use crate::merkle::trie_rows::StorageNode;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;

/// The state at a block that has its nodes.
#[derive(Clone, Copy)]
pub(crate) struct StateLeaves<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) nodes: DomainId,
    pub(crate) at: BlockNumber,
}

impl StateLeaves<'_> {
    /// Requests the pages of accounts in ranges.
    pub(crate) fn request_accounts(&self, ranges: &[LeafRange]) -> Result<(), Error> {
        let records: Vec<Scan> = ranges.iter().map(accounts_in).collect();
        let tops: Vec<Scan> = ranges.iter().map(tops_in).collect();
        prefetch::request(self.version, DomainId::ACCOUNT, &records, self.at)?;
        prefetch::request(self.version, self.nodes, &tops, self.at)
    }

    /// The accounts of a range, ascending, with their storage roots.
    pub(crate) fn accounts(&self, range: &LeafRange) -> Result<Vec<(KeyPath, Account)>, Error> {
        self.first_accounts(range, usize::MAX)
    }

    /// The first `count` of them.
    pub(crate) fn first_accounts(
        &self,
        range: &LeafRange,
        count: usize,
    ) -> Result<Vec<(KeyPath, Account)>, Error> {
        let &Self { version, nodes, at } = self;
        let mut tops = MergeScan::new(version, nodes, &tops_in(range), at)?;
        let mut top = tops.next().transpose()?;
        let mut accounts = Vec::new();
        for record in MergeScan::new(version, DomainId::ACCOUNT, &accounts_in(range), at)?.take(count) {
            let (key, record) = record?;
            let path: KeyPath = key.try_into().expect("the domain fixes the length of keys");
            let mut account = decode_account(&record, at)?;
            while let Some((key, node)) = top.take_if(|(key, _)| key[1..] <= path[..ACCOUNT_LEN]) {
                if key[1..] == path[..ACCOUNT_LEN] {
                    let node =
                        StorageNode::decode(&node).ok_or_else(|| node_damaged(version, nodes, &key, at))?;
                    account.storage_root = node.root;
                }
                top = tops.next().transpose()?;
            }
            accounts.push((path, account));
        }
        Ok(accounts)
    }

    /// The paths of the first `count` accounts of a range, ascending.
    pub(crate) fn account_paths(&self, range: &LeafRange, count: usize) -> Result<Vec<KeyPath>, Error> {
        let accounts = MergeScan::new(self.version, DomainId::ACCOUNT, &accounts_in(range), self.at)?;
        accounts.take(count).map(|account| Ok(path_of(&account?.0))).collect()
    }

    /// Requests the pages of slots in ranges, each with the first bytes of the path of its account.
    pub(crate) fn request_slots(&self, ranges: &[([u8; ACCOUNT_LEN], LeafRange)]) -> Result<(), Error> {
        let scans: Vec<Scan> = ranges.iter().map(|(account, range)| slots_in(account, range)).collect();
        prefetch::request(self.version, DomainId::STORAGE, &scans, self.at)
    }

    /// The slots of an account in a range, ascending.
    pub(crate) fn slots(
        &self,
        account: &[u8; ACCOUNT_LEN],
        range: &LeafRange,
    ) -> Result<Vec<(KeyPath, Word)>, Error> {
        self.first_slots(account, range, usize::MAX)
    }

    /// The first `count` of them.
    pub(crate) fn first_slots(
        &self,
        account: &[u8; ACCOUNT_LEN],
        range: &LeafRange,
        count: usize,
    ) -> Result<Vec<(KeyPath, Word)>, Error> {
        let slots = MergeScan::new(self.version, DomainId::STORAGE, &slots_in(account, range), self.at)?;
        let slot = |slot: Result<(Vec<u8>, Vec<u8>), Error>| {
            let (key, value) = slot?;
            let path = *key.last_chunk().expect("the domain fixes the length of keys");
            Ok((path, slot_value(&value, self.at)?))
        };
        slots.take(count).map(slot).collect()
    }
}

fn accounts_in(range: &LeafRange) -> Scan {
    Scan::all().from(&range.first).to_included(&range.last)
}

/// The tops of the storages of accounts.
fn tops_in(range: &LeafRange) -> Scan {
    let top = |path: &KeyPath| NodeKey::trie_row(path.first_chunk(), 0, path);
    Scan::all().from(top(&range.first).as_bytes()).to_included(top(&range.last).as_bytes())
}

fn slots_in(account: &[u8; ACCOUNT_LEN], range: &LeafRange) -> Scan {
    let key = |path: &KeyPath| [&account[..], path].concat();
    Scan::all().from(&key(&range.first)).to_included(&key(&range.last))
}

/// Reads a record of an account, of the state at `at`.
pub(crate) fn decode_account(record: &[u8], at: BlockNumber) -> Result<Account, Error> {
    Account::decode(record).map_err(|_| Error::RecordDamaged { domain: ACCOUNT, block: at })
}

/// The number that a slot's record is.
fn slot_value(record: &[u8], at: BlockNumber) -> Result<Word, Error> {
    let mut value = [0; 32];
    let start = value.len().checked_sub(record.len());
    let start = start.ok_or(Error::RecordDamaged { domain: STORAGE, block: at })?;
    value[start..].copy_from_slice(record);
    Ok(value)
}

/// A whole path from the key that is stored.
pub(crate) fn path_of(key: &[u8]) -> KeyPath {
    key.try_into().expect("the domain fixes the length of keys")
}

/// The first bytes of an account's path, which a stored slot begins with.
pub(crate) fn prefix_of(path: &KeyPath) -> [u8; ACCOUNT_LEN] {
    *path.first_chunk().expect("a path is longer")
}
