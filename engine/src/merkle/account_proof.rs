//! What proves an account and its slots to whoever knows the state root.

use icecore_hot::Root;
use icecore_hot::ethereum::{Account, EMPTY_ROOT, NodeProofError, keccak256, verify_account, verify_slot};

/// An address.
pub type Address = [u8; 20];
/// A slot, its value, a balance: 32 bytes, big-endian.
pub type Word = [u8; 32];

/// An account that is to be proven, and slots of it.
pub type AskedAccount<'a> = (Address, &'a [Word]);

/// An account with some of its slots, and what proves them to whoever knows the state root: what `eth_getProof` answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountProof {
    /// The account with its storage root; `None` where there is none.
    pub account: Option<Account>,
    /// The nodes of the trie of accounts from the root on, as RLP.
    pub nodes: Vec<Vec<u8>>,
    /// The slots, in the order asked.
    pub slots: Vec<SlotProof>,
}

/// A slot, and what proves it against the storage root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotProof {
    /// The slot.
    pub slot: Word,
    /// Its value; zero where it has none.
    pub value: Word,
    /// The nodes of the storage trie from its root on, as RLP; none where the storage is empty.
    pub nodes: Vec<Vec<u8>>,
}

/// Why an [`AccountProof`] proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccountProofError {
    /// The nodes of the account are no proof.
    #[error("the proof of the account: {0}")]
    Account(NodeProofError),
    /// The nodes of a slot are no proof.
    #[error("the proof of slot number {slot}: {error}")]
    Slot {
        /// Which of the slots, counted from 0.
        slot: usize,
        /// What is wrong.
        error: NodeProofError,
    },
    /// The nodes prove another account than the one that is told.
    #[error("the proof is of another account than the one that it tells")]
    OtherAccount,
    /// The nodes prove another value of a slot than the one that is told.
    #[error("the proof of slot number {slot} is of another value than the one that it tells")]
    OtherValue {
        /// Which of the slots, counted from 0.
        slot: usize,
    },
}

impl AccountProof {
    /// Checks all of it against a state root that is known from elsewhere, and gives the values of the slots.
    ///
    /// # Errors
    /// Something in it does not follow from the root. Any bytes are safe to check.
    pub fn verify(&self, root: &Root, address: &Address) -> Result<Vec<Word>, AccountProofError> {
        let account =
            verify_account(root, &keccak256(address), &self.nodes).map_err(AccountProofError::Account)?;
        if account != self.account {
            return Err(AccountProofError::OtherAccount);
        }
        let storage_root = account.map_or(EMPTY_ROOT, |account| account.storage_root);
        let check = |(at, proof): (usize, &SlotProof)| {
            let found = verify_slot(&storage_root, &keccak256(&proof.slot), &proof.nodes);
            let found =
                found.map_err(|error| AccountProofError::Slot { slot: at, error })?.unwrap_or_default();
            if found == proof.value { Ok(found) } else { Err(AccountProofError::OtherValue { slot: at }) }
        };
        self.slots.iter().enumerate().map(check).collect()
    }
}
