//! Proofs of accounts and slots of Ethereum at any block, all that are asked for together.
//!
//! Of a block that has its nodes the tries are opened around what is asked by way of their [rows](crate::merkle::trie_rows): first that
//! of accounts, then the storages. A block that is in no segment has its nodes beside a writer only, and where rows are not kept a block has
//! them only where a [build](crate::maintain::rows) that is not at its end yet has come by: elsewhere the tries are rebuilt. Either way the
//! root is compared with the recorded one.

use icecore_hot::ethereum::{StateTrie, keccak256};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::{Error, ErrorKind};
use crate::merkle::account_proof::{AccountProof, AskedAccount, SlotProof};
use crate::merkle::check_state::explain;
use crate::merkle::load_trie::load_checked;
use crate::merkle::node_error::is_of_nodes;
use crate::merkle::row_depths::RowDepth;
use crate::merkle::state_leaves::StateLeaves;
use crate::merkle::state_rows::StateRows;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::stats::Tally;

/// The state of which something is to be proven.
#[derive(Clone, Copy)]
pub(crate) struct ProvenState<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) config: &'v Config,
    pub(crate) nodes: DomainId,
    pub(crate) tally: &'v Tally,
    pub(crate) at: BlockNumber,
}

impl ProvenState<'_> {
    /// What `by_rows` proves where the block has its nodes, and what `by_trie` proves of the whole trie elsewhere.
    pub(crate) fn prove<T>(
        &self,
        by_rows: impl FnOnce(&StateRows<'_>, RowDepth) -> Result<T, Error>,
        by_trie: impl FnOnce(&StateTrie) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let &Self { version, config, nodes, tally, at } = self;
        let rows = StateRows { version, nodes, tally, at };
        match rows.kept_depth().and_then(|depth| depth.map(|depth| by_rows(&rows, depth)).transpose()) {
            Ok(Some(proven)) => return Ok(proven),
            Ok(None) => {}
            // What is told of the file is among the problems of the statistics.
            Err(error) if is_of_nodes(version, nodes, &error) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return Err(explain(version, config, nodes, at).unwrap_or(error));
            }
            Err(error) => return Err(error),
        }
        by_trie(&load_checked(version, at, u64::MAX, &())?.trie)
    }

    /// The leaves of the state.
    pub(crate) fn leaves(&self) -> StateLeaves<'_> {
        StateLeaves { version: self.version, nodes: self.nodes, at: self.at }
    }

    /// Proves accounts and slots of each, in the order asked.
    ///
    /// # Cost
    /// With rows some hundred lookups of nodes and some thousand leaves for each account and each storage; without, the newest version of
    /// every account and slot.
    pub(crate) fn prove_accounts(&self, asked: &[AskedAccount<'_>]) -> Result<Vec<AccountProof>, Error> {
        let of_trie = |trie: &StateTrie| {
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
        };
        self.prove(|rows, depth| rows.prove(depth, asked), of_trie)
    }
}
