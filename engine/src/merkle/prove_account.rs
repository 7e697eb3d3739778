//! Proofs of accounts and slots of Ethereum at any block, all that are asked for together.
//!
//! Of a block that has its nodes the tries are opened around what is asked by way of their [rows](crate::merkle::trie_rows): first that
//! of accounts, then the storages. A block that is in no segment has its nodes beside a writer only, and where rows are not kept a block has
//! them only where a [build](crate::maintain::rows) that is not at its end yet has come by: elsewhere the tries are rebuilt. Either way the
//! root is compared with the recorded one.

use icecore_hot::ethereum::keccak256;
use icecore_segments::step::BlockNumber;

use crate::error::{Error, ErrorKind};
use crate::merkle::account_proof::{AccountProof, Address, SlotProof, Word};
use crate::merkle::check_state::explain;
use crate::merkle::load_trie::load_trie;
use crate::merkle::node_error::is_of_nodes;
use crate::merkle::state_rows::StateRows;
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
    if let Some(nodes) = config.nodes() {
        let rows = StateRows { version, nodes, tally, at };
        match rows.prove_if_kept(asked) {
            Ok(Some(proofs)) => return Ok(proofs),
            Ok(None) => {}
            // What is told of the file is among the problems of the statistics.
            Err(error) if is_of_nodes(version, nodes, &error) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return Err(explain(version, config, nodes, at).unwrap_or(error));
            }
            Err(error) => return Err(error),
        }
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
