//! One proof of many accounts, slots and blocks of Ethereum, in which each node stands once.

use std::collections::HashMap;

use icecore_hot::Root;
use icecore_hot::ethereum::{Account, EMPTY_ROOT, NodeProofError, NodeSet, keccak256};
use icecore_segments::step::BlockNumber;

use crate::merkle::account_proof::{AccountProof, Address, AskedAccount, Word};

/// What states have of accounts and slots, and the nodes that prove it; see [`Reader::prove_many`](crate::Reader::prove_many).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultiProof {
    /// What each block that was asked for has, in the order asked.
    pub blocks: Vec<ProvenBlock>,
    /// The nodes of all proofs, each once, as RLP.
    pub nodes: Vec<Vec<u8>>,
}

/// What the state at a block has of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenBlock {
    /// The block.
    pub block: BlockNumber,
    /// The accounts, in the order asked.
    pub accounts: Vec<ProvenAccount>,
}

/// What the state at a block has of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenAccount {
    /// Its address.
    pub address: Address,
    /// The account with its storage root; `None` where there is none.
    pub account: Option<Account>,
    /// The slots with their values, zero where they have none, in the order asked.
    pub slots: Vec<(Word, Word)>,
}

/// Why a [`MultiProof`] proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block}, account number {account}{}: {reason}", slot.map_or(String::new(), |slot| format!(", slot number {slot}")))]
pub struct MultiProofError {
    /// The block of which it says something wrong.
    pub block: BlockNumber,
    /// Which of its accounts, counted from 0.
    pub account: usize,
    /// Which slot of that, counted from 0; `None` for the account itself.
    pub slot: Option<usize>,
    /// What is wrong.
    pub reason: MultiProofReason,
}

/// What is wrong with a [`MultiProof`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MultiProofReason {
    /// The nodes lead nowhere.
    #[error(transparent)]
    Nodes(#[from] NodeProofError),
    /// The nodes prove something else than what is told.
    #[error("the nodes prove another value than the one that is told")]
    OtherValue,
    /// Nobody knows the root of the block.
    #[error("the root of the block is not known")]
    UnknownRoot,
}

/// Puts proofs together, and leaves out the nodes that were there before.
#[derive(Default)]
pub(crate) struct MultiProofBuilder {
    blocks: Vec<ProvenBlock>,
    /// Each with its number.
    nodes: HashMap<Vec<u8>, usize>,
}

impl MultiProofBuilder {
    /// Adds the proofs of accounts at a block.
    pub(crate) fn add(&mut self, block: BlockNumber, asked: &[AskedAccount<'_>], proofs: Vec<AccountProof>) {
        let add = |nodes: &mut HashMap<_, _>, more: Vec<Vec<u8>>| {
            for node in more {
                let next = nodes.len();
                nodes.entry(node).or_insert(next);
            }
        };
        let mut accounts = Vec::with_capacity(proofs.len());
        for ((address, _), proof) in asked.iter().zip(proofs) {
            add(&mut self.nodes, proof.nodes);
            let mut slots = Vec::with_capacity(proof.slots.len());
            for slot in proof.slots {
                add(&mut self.nodes, slot.nodes);
                slots.push((slot.slot, slot.value));
            }
            accounts.push(ProvenAccount { address: *address, account: proof.account, slots });
        }
        self.blocks.push(ProvenBlock { block, accounts });
    }

    pub(crate) fn finish(self) -> MultiProof {
        let mut nodes: Vec<(Vec<u8>, usize)> = self.nodes.into_iter().collect();
        nodes.sort_unstable_by_key(|(_, number)| *number);
        MultiProof { blocks: self.blocks, nodes: nodes.into_iter().map(|(node, _)| node).collect() }
    }
}

impl MultiProof {
    /// Checks all of it against the state roots of its blocks, which `root_of` knows from elsewhere.
    ///
    /// # Errors
    /// The first of what it says that does not follow from the roots. Any bytes are safe to check.
    ///
    /// # Cost
    /// Each node is hashed once.
    pub fn verify(&self, root_of: impl Fn(BlockNumber) -> Option<Root>) -> Result<(), MultiProofError> {
        let nodes = NodeSet::new(&self.nodes);
        for ProvenBlock { block, accounts } in &self.blocks {
            let root = root_of(*block);
            for (number, told) in accounts.iter().enumerate() {
                let wrong =
                    |slot| move |reason| MultiProofError { block: *block, account: number, slot, reason };
                let root = root.ok_or(MultiProofReason::UnknownRoot).map_err(wrong(None))?;
                let account = nodes.account(&root, &keccak256(&told.address));
                let account = account.map_err(MultiProofReason::Nodes).map_err(wrong(None))?;
                if account != told.account {
                    return Err(wrong(None)(MultiProofReason::OtherValue));
                }
                let storage_root = account.map_or(EMPTY_ROOT, |account| account.storage_root);
                for (slot, (key, value)) in told.slots.iter().enumerate() {
                    let found = nodes.slot(&storage_root, &keccak256(key));
                    let found = found.map_err(MultiProofReason::Nodes).map_err(wrong(Some(slot)))?;
                    if found.unwrap_or_default() != *value {
                        return Err(wrong(Some(slot))(MultiProofReason::OtherValue));
                    }
                }
            }
        }
        Ok(())
    }
}
