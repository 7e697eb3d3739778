//! What proves that accounts, or slots, are all that a state has in a range of paths: for those who take a state from an archive in parts.

use icecore_hot::Root;
use icecore_hot::ethereum::range::{self, Beyond, RangeProofError};
use icecore_hot::ethereum::{Account, EMPTY_ROOT, NodeSet};

use crate::merkle::account_proof::{AccountProof, AccountProofError, Address, Word};

/// Accounts that are all that a state has from one path to another; see [`View::prove_account_range`](crate::View::prove_account_range).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRange {
    /// The last path of the range, inside it: the one asked for, or that of the last account where there are more than were asked for.
    pub last: Word,
    /// The accounts by their paths, ascending, with their storage roots.
    pub accounts: Vec<(Word, Account)>,
    /// The nodes on the ways to both ends, each once, as RLP.
    pub nodes: Vec<Vec<u8>>,
}

impl AccountRange {
    /// Checks all of it against a state root that is known from elsewhere; `first` is the path that was asked from. Gives whether the state
    /// has accounts after the range.
    ///
    /// # Errors
    /// It does not follow from the root. Any bytes are safe to check.
    pub fn verify(&self, root: &Root, first: &Word) -> Result<Beyond, RangeProofError> {
        range::verify_accounts(root, (first, &self.last), &self.accounts, &NodeSet::new(&self.nodes))
    }
}

/// Slots that are all that an account has from one path to another; see [`View::prove_slot_range`](crate::View::prove_slot_range).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// The account, without slots of its own.
    pub account: AccountProof,
    /// The last path of the range, inside it: the one asked for, or that of the last slot where there are more than were asked for.
    pub last: Word,
    /// The values of the slots by their paths, ascending.
    pub slots: Vec<(Word, Word)>,
    /// The nodes of the storage trie on the ways to both ends, each once, as RLP.
    pub nodes: Vec<Vec<u8>>,
}

/// Why a [`SlotRange`] proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotRangeError {
    /// What it says of the account.
    #[error(transparent)]
    Account(#[from] AccountProofError),
    /// What it says of the slots.
    #[error("the slots: {0}")]
    Slots(#[from] RangeProofError),
}

impl SlotRange {
    /// Checks all of it against a state root that is known from elsewhere; `first` is the path that was asked from. Gives whether the
    /// account has slots after the range.
    ///
    /// # Errors
    /// It does not follow from the root. Any bytes are safe to check.
    pub fn verify(&self, root: &Root, address: &Address, first: &Word) -> Result<Beyond, SlotRangeError> {
        self.account.verify(root, address)?;
        let storage_root = self.account.account.map_or(EMPTY_ROOT, |account| account.storage_root);
        let nodes = NodeSet::new(&self.nodes);
        Ok(range::verify_slots(&Root(storage_root), (first, &self.last), &self.slots, &nodes)?)
    }
}
