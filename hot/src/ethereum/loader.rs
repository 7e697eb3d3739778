//! Building a state trie from all of its leaves, in the order of their paths.

use crate::ethereum::account::{Account, EMPTY_ROOT, SlotValueError};
use crate::ethereum::batch::{StateBatch, TrieError};
use crate::ethereum::nibbles::{KeyPath, Nibbles};
use crate::ethereum::trie::StateTrie;
use crate::hash::Hash;
use crate::hash::simd::HashBackend;

/// Leaves are put into the trie this many at a time: what is made stale is hashed while it is in the caches.
const RUN: usize = 1 << 14;

/// Why leaves are no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// An account is not above the one before it.
    #[error("account {} comes after one with a higher path", Nibbles::prefix(account, 64))]
    AccountOrder {
        /// The path of the account.
        account: KeyPath,
    },
    /// A slot comes before any account, or is not above the slot before it.
    #[error("slot {} comes after one with a higher path, or before its account", Nibbles::prefix(slot, 64))]
    SlotOrder {
        /// The path of the slot.
        slot: KeyPath,
    },
    /// The slots of an account have another root than its record says.
    #[error(
        "the slots of account {} have the root {}, and its record says {}",
        Nibbles::prefix(account, 64),
        Nibbles::prefix(found, 64),
        Nibbles::prefix(recorded, 64)
    )]
    StorageRoot {
        /// The path of the account.
        account: KeyPath,
        /// The root of the slots that were given.
        found: [u8; 32],
        /// The root in the account that was given.
        recorded: [u8; 32],
    },
    /// A slot of value zero, which no state has.
    #[error("slot {} has the value zero, which is not kept", Nibbles::prefix(slot, 64))]
    Zero {
        /// The path of the slot.
        slot: KeyPath,
    },
    /// The value of a slot is too long.
    #[error("slot {}: {error}", Nibbles::prefix(slot, 64))]
    Value {
        /// The path of the slot.
        slot: KeyPath,
        /// What is wrong with its value.
        error: SlotValueError,
    },
    /// The trie is full.
    #[error(transparent)]
    Trie(#[from] TrieError),
}

/// Takes the leaves of a state: accounts ascending by path, after each its slots, ascending.
///
/// # Cost
/// Linear: each node is hashed once, by lanes, but for those at the boundaries of the runs of leaves that are taken in
/// together. Memory is that of the trie and of one run.
#[derive(Debug)]
pub struct StateLoader {
    trie: StateTrie,
    batch: StateBatch,
    /// The accounts of the run, and the storage roots that they must have, where those are known.
    roots: Vec<(KeyPath, Option<Hash>)>,
    /// The last slot of the last account.
    slot: Option<KeyPath>,
    /// What the nodes may take; leaves that were taken in collapse where it is more.
    bytes_max: u64,
}

impl StateLoader {
    /// A state without accounts so far.
    pub fn new(backend: HashBackend) -> Self {
        Self::within(backend, u64::MAX)
    }

    /// The same of a trie whose leaves [collapse](StateTrie::collapse) where its nodes would take more than `bytes_max`.
    pub fn within(backend: HashBackend, bytes_max: u64) -> Self {
        let (trie, batch) = (StateTrie::new(backend), StateBatch::new());
        Self { trie, batch, roots: Vec::new(), slot: None, bytes_max }
    }

    /// Takes the next account. Its storage root is compared with that of the slots that follow.
    ///
    /// # Errors
    /// It is not above the account before; a storage that was taken in by now has another root than its account says.
    pub fn push_account(&mut self, path: &KeyPath, account: &Account) -> Result<(), LoadError> {
        self.push(path, account, Some(account.storage_root))
    }

    /// Takes the next account, whose storage root is that of the slots that follow, whatever `account` says.
    ///
    /// # Errors
    /// It is not above the account before.
    pub fn push_account_without_root(&mut self, path: &KeyPath, account: &Account) -> Result<(), LoadError> {
        self.push(path, account, None)
    }

    fn push(&mut self, path: &KeyPath, account: &Account, root: Option<Hash>) -> Result<(), LoadError> {
        if self.roots.last().is_some_and(|(last, _)| last >= path) {
            return Err(LoadError::AccountOrder { account: *path });
        }
        if self.batch.len() >= RUN {
            self.flush()?;
            self.check_all_but(0)?;
            // The last of them stays known for its order.
            let last = self.roots.last().map(|(last, _)| *last);
            if let Some(last) = last {
                self.trie.collapse_before(self.bytes_max, (last, [0xFF; 32]));
            }
        }
        self.batch.put_account(path, account.nonce, account.balance, account.code_hash);
        self.roots.push((*path, root));
        self.slot = None;
        Ok(())
    }

    /// Takes the next slot of the last account.
    ///
    /// # Errors
    /// It is not above the slot before, there is no account yet, or the value is zero or over 32 bytes.
    pub fn push_slot(&mut self, slot: &KeyPath, value: &[u8]) -> Result<(), LoadError> {
        let account = self.roots.last().map(|(account, _)| *account);
        let account = account.filter(|_| self.slot.is_none_or(|last| last < *slot));
        let account = account.ok_or(LoadError::SlotOrder { slot: *slot })?;
        if value.iter().all(|byte| *byte == 0) {
            return Err(LoadError::Zero { slot: *slot });
        }
        if self.batch.len() >= RUN {
            self.flush()?;
            self.check_all_but(1)?;
            // Neither the slots that follow nor the account may be in a group.
            self.trie.collapse_before(self.bytes_max, (account, self.slot.unwrap_or_default()));
        }
        let put = self.batch.put_slot(&account, slot, value);
        put.map_err(|error| LoadError::Value { slot: *slot, error })?;
        self.slot = Some(*slot);
        Ok(())
    }

    /// The trie of the leaves.
    ///
    /// # Errors
    /// A storage has another root than its account says.
    pub fn finish(mut self) -> Result<StateTrie, LoadError> {
        self.flush()?;
        self.check_all_but(0)?;
        self.trie.collapse(self.bytes_max);
        Ok(self.trie)
    }

    fn flush(&mut self) -> Result<(), LoadError> {
        self.trie.apply(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    /// Compares the storage roots of the accounts of this run but for the last `open`, whose slots may go on. The last
    /// account stays known for its order.
    fn check_all_but(&mut self, open: usize) -> Result<(), LoadError> {
        let done = self.roots.len().saturating_sub(open);
        for (account, recorded) in &self.roots[..done] {
            let Some(recorded) = *recorded else { continue };
            let found = self.trie.account(account).map_or(EMPTY_ROOT, |account| account.storage_root);
            if found != recorded {
                return Err(LoadError::StorageRoot { account: *account, found, recorded });
            }
        }
        self.roots.drain(..self.roots.len().saturating_sub(1));
        Ok(())
    }
}
