//! What a block changed.

use crate::ethereum::account::SlotValueError;
use crate::ethereum::arena::Body;
use crate::ethereum::nibbles::{KeyPath, Nibbles};
use crate::ethereum::rlp;
use crate::hash::Hash;

/// Why a batch was not applied; the trie is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrieError {
    /// Slots of an account that is not there after the batch.
    #[error("the batch puts slots of account {}, which is not there after it", Nibbles::prefix(account, 64))]
    NoAccount {
        /// The path of the account.
        account: KeyPath,
    },
    /// The trie has no names for more nodes: 2^26 branches of one number of children, or 2^29 leaves of one size.
    #[error("the state has too many keys to be kept in memory")]
    Full,
}

/// The changes of a block, by path. Of several changes of an account or of a slot the last counts.
#[derive(Clone, Debug, Default)]
pub struct StateBatch {
    /// `None`: deleted.
    pub(crate) accounts: Vec<(KeyPath, Option<Body>)>,
    pub(crate) wiped: Vec<KeyPath>,
    pub(crate) slots: Vec<SlotChange>,
}

/// A slot and its value after the block; zero: it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotChange {
    pub(crate) account: KeyPath,
    pub(crate) slot: KeyPath,
    pub(crate) value: Hash,
}

impl StateBatch {
    /// A block that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts an account; its storage is what it was, and what the batch says of its slots.
    pub fn put_account(&mut self, account: &KeyPath, nonce: u64, balance: [u8; 32], code_hash: [u8; 32]) {
        self.accounts.push((*account, Some(Body { balance, code_hash, nonce })));
    }

    /// Deletes an account and all of its storage. An account that is put afterwards starts with none.
    pub fn delete_account(&mut self, account: &KeyPath) {
        self.accounts.push((*account, None));
        self.wiped.push(*account);
    }

    /// Deletes all slots that the account has before the block. What the batch puts into its storage, before or after this
    /// call, stays.
    pub fn wipe(&mut self, account: &KeyPath) {
        self.wiped.push(*account);
    }

    /// Puts the value of a slot, a big-endian number with leading zeros or without; zero deletes it.
    ///
    /// # Errors
    /// The value has more than 32 bytes.
    pub fn put_slot(
        &mut self,
        account: &KeyPath,
        slot: &KeyPath,
        value: &[u8],
    ) -> Result<(), SlotValueError> {
        let value = rlp::number(rlp::trimmed(value)).ok_or(SlotValueError)?;
        self.slots.push(SlotChange { account: *account, slot: *slot, value });
        Ok(())
    }

    /// Deletes a slot.
    pub fn delete_slot(&mut self, account: &KeyPath, slot: &KeyPath) {
        self.slots.push(SlotChange { account: *account, slot: *slot, value: [0; 32] });
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.accounts.clear();
        self.wiped.clear();
        self.slots.clear();
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.accounts.len() + self.wiped.len() + self.slots.len()
    }

    /// Whether the block changes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Account changes, ascending, each account once.
    pub(crate) fn sorted_accounts(&self) -> Vec<(KeyPath, Option<Body>)> {
        let mut accounts = self.accounts.clone();
        accounts.sort_by_key(|(path, _)| *path);
        keep_last(&mut accounts, |a, b| a.0 == b.0);
        accounts
    }

    pub(crate) fn sorted_wiped(&self) -> Vec<KeyPath> {
        let mut wiped = self.wiped.clone();
        wiped.sort_unstable();
        wiped.dedup();
        wiped
    }

    /// Slot changes, ascending, each slot once.
    pub(crate) fn sorted_slots(&self) -> Vec<SlotChange> {
        let mut slots = self.slots.clone();
        slots.sort_by(|a, b| (&a.account, &a.slot).cmp(&(&b.account, &b.slot)));
        keep_last(&mut slots, |a, b| a.account == b.account && a.slot == b.slot);
        slots
    }
}

/// Of each run of equal items keeps the last.
fn keep_last<T: Copy>(items: &mut Vec<T>, is_equal: impl Fn(&T, &T) -> bool) {
    // `dedup_by` keeps the first of a run, so each later one takes its place.
    items.dedup_by(|later, kept| {
        let equal = is_equal(later, kept);
        if equal {
            *kept = *later;
        }
        equal
    });
}
