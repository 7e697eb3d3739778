//! The tree that a writer begins with: that of the commitment of its archive.

use std::sync::Arc;

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;

use crate::commitment::Commitment;
use crate::error::Error;
use crate::merkle::ethereum_tree::EthereumTree;
use crate::merkle::icecore_tree::IcecoreTree;
use crate::merkle::live_tree::{Applied, LiveTree, Parent};
use crate::open_options::OpenOptions;
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::storage::physical_memory;
use crate::wal::ChangeRef;

/// The share of the memory of the machine that the nodes of the tree may take where nobody says how much.
const MEMORY_SHARE: u64 = 8;

/// Builds the tree of the state at the head.
///
/// # Cost
/// Reads the latest version of every key that the commitment is of; of a tree that is larger than its memory, its
/// [outline](crate::merkle::tree_file) and what changed since that was written.
///
/// # Errors
/// [`Error::RootMismatch`] when the state does not have the root that was recorded for it: writing on would spread
/// the damage.
pub(crate) fn build(
    shared: &Arc<Shared>,
    version: &Arc<ReadState>,
    options: &OpenOptions,
    listener: &dyn ProgressListener,
) -> Result<Box<dyn LiveTree>, Error> {
    let config = &*shared.directory.config;
    let memory = || physical_memory().map_or(u64::MAX, |memory| memory / MEMORY_SHARE);
    let memory = options.tree_memory.unwrap_or_else(memory);
    Ok(match config.commitment {
        Commitment::None => Box::new(NoTree),
        Commitment::Icecore => Box::new(IcecoreTree::build(version, config, options.parallelism, listener)?),
        Commitment::Ethereum => Box::new(EthereumTree::build(shared, version, memory, listener)?),
    })
}

/// The tree of an archive without a commitment.
struct NoTree;

impl LiveTree for NoTree {
    fn apply(
        &mut self,
        _: &Config,
        _: Parent<'_>,
        _: BlockNumber,
        _: &[ChangeRef<'_>],
    ) -> Result<Applied, Error> {
        Ok(Applied { root: Root::EMPTY, nodes: Vec::new() })
    }

    fn root(&self) -> Root {
        Root::EMPTY
    }

    fn rewind(&mut self, _: &ReadState, _: BlockNumber) -> bool {
        true
    }
}
