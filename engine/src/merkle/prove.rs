//! Proofs at any block, in one pass: the paths of all keys are fetched together, then each is completed with the leaves that it
//! shows.
//!
//! Where a path comes from is the one thing that differs. Domains by key: at a snapshot from the [nodes](crate::merkle::rows) that were
//! kept; domains by path: at every block from its [rows](crate::merkle::tree_rows); at any other block from the tree,
//! [rebuilt](crate::merkle::state_paths) from the state. All give the same bytes, and all are compared with the recorded root.

use std::sync::Arc;

use icecore_hot::{BatchProof, KeyHash, Parallelism};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::{Error, ErrorKind};
use crate::merkle::leaves::{Asked, Paths, ProofCost};
use crate::merkle::node_error::is_of_nodes;
use crate::merkle::rows::Rows;
use crate::merkle::state_paths::StateAt;
use crate::merkle::tree_rows::TreeRows;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::stats::Counters;

/// Fewer keys than this are proved by the calling thread: starting others takes longer.
const PARALLEL_KEYS_MIN: usize = 2048;

/// Proves keys, each with its domain, at `at`, in the order asked.
pub(crate) fn prove(
    version: &ReadState,
    config: &Arc<Config>,
    counters: &Counters,
    at: BlockNumber,
    keys: &[(DomainId, &[u8])],
    parallelism: Parallelism,
) -> Result<(BatchProof, ProofCost), Error> {
    let asked = keys.iter().map(|&(id, key)| {
        let declared = &config.domains[id.index()];
        let shown = declared.order.shown(key).ok_or_else(|| declared.damaged_key())?;
        let (domain, hash) = (&*declared.name, KeyHash::of(&declared.name, shown));
        Ok(Asked { id, domain, key: shown, stored: key, hash })
    });
    let asked: Vec<Asked<'_>> = asked.collect::<Result<_, Error>>()?;
    let workers = if keys.len() < PARALLEL_KEYS_MIN { 1 } else { parallelism.threads() };
    let kept = match config.nodes().filter(|_| config.is_by_path()) {
        Some(nodes) => {
            let rows = TreeRows { version, config, nodes, counters, at, workers };
            paths_of_rows(&rows, &asked, parallelism)?
        }
        None => match Rows::of(version, config, counters, at, workers)? {
            Some(rows) => Some(rows.paths(&asked)?),
            None => None,
        },
    };
    let Paths { of_keys: paths, leaves, cost } = match kept {
        Some(paths) => paths,
        None => StateAt { version, config, counters, at }.paths(&asked, parallelism)?,
    };
    let proofs = paths.into_iter().zip(&asked).map(|(path, asked)| {
        let proof = path.complete(asked.domain, asked.key, |hash| leaves.get(hash).cloned());
        proof.map_err(|_| Error::SnapshotDamaged { block: at })
    });
    Ok((BatchProof { proofs: proofs.collect::<Result<_, _>>()? }, cost))
}

/// The paths by way of the rows of the block; `None` where it has none, or their file cannot be read.
fn paths_of_rows(
    rows: &TreeRows<'_>,
    asked: &[Asked<'_>],
    parallelism: Parallelism,
) -> Result<Option<Paths>, Error> {
    match rows.paths_if_kept(asked) {
        // What is told of the file is among the problems of the statistics.
        Err(error) if is_of_nodes(rows.version, rows.nodes, &error) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Corrupt => Err(rows.explain(parallelism).unwrap_or(error)),
        paths => paths,
    }
}
