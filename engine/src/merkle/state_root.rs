//! The root of a state that was read whole: what verification and recovery compare with the one that was recorded.

use icecore_hot::{Options, Root};
use icecore_segments::step::BlockNumber;

use crate::commitment::Commitment;
use crate::error::Error;
use crate::merkle::build::build_tree;
use crate::merkle::load_trie::load_trie;
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;

/// What the trie of Ethereum takes while its root is computed: what is complete collapses.
const MEMORY: u64 = 1 << 26;

/// The root of the state at `at`; `None` in an archive without a commitment.
///
/// # Cost
/// Reads the newest version of every key.
pub(crate) fn state_root(
    version: &ReadState,
    config: &Config,
    at: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<Option<Root>, Error> {
    Ok(match config.commitment {
        Commitment::None => None,
        Commitment::Icecore => {
            Some(build_tree(version, config, at, None, Options::default(), listener)?.tree.root())
        }
        Commitment::Ethereum => Some(load_trie(version, at, MEMORY, listener)?.trie.root()),
    })
}
