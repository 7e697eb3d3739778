//! Proofs of accounts and slots of Ethereum at any block.

use icecore_hot::ethereum::keccak256;
use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::merkle::account_proof::{AccountProof, Address, SlotProof, Word};
use crate::merkle::ethereum_tree::load_trie;
use crate::read::read_state::ReadState;

/// Proves an account and some of its slots in the state at `at`.
///
/// # Cost
/// Reads the newest version of every account and slot.
pub(crate) fn prove_account(
    version: &ReadState,
    at: BlockNumber,
    address: &Address,
    slots: &[Word],
) -> Result<AccountProof, Error> {
    let trie = load_trie(version, at, &())?;
    version.check_root(at, trie.root())?;
    let path = keccak256(address);
    let slots = slots.iter().map(|slot| {
        let of_slot = keccak256(slot);
        SlotProof {
            slot: *slot,
            value: trie.slot(&path, &of_slot).unwrap_or_default(),
            nodes: trie.prove_slot(&path, &of_slot),
        }
    });
    let slots = slots.collect();
    Ok(AccountProof { account: trie.account(&path), nodes: trie.prove_account(&path), slots })
}
