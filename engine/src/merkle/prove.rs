//! Proofs at any block, in one pass: the paths of all keys are fetched together, then each is completed with the leaves that it
//! shows.
//!
//! Where a path comes from is the one thing that differs: at a snapshot from the [`rows`](crate::merkle::rows) that were kept,
//! at any other block from the tree, [rebuilt](crate::merkle::state_paths) from the state at the block. Both give the same
//! bytes, and both are compared with the recorded root.

use std::sync::Arc;

use icecore_hot::{BatchProof, KeyHash, Parallelism};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::merkle::leaves::{Asked, Paths, ProofCost};
use crate::merkle::rows::Rows;
use crate::merkle::state_paths::StateAt;
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
        let domain = config.name(id);
        Asked { id, domain, key, hash: KeyHash::of(domain, key) }
    });
    let asked: Vec<Asked<'_>> = asked.collect();
    let workers = if keys.len() < PARALLEL_KEYS_MIN { 1 } else { parallelism.threads() };
    let Paths { of_keys: paths, leaves, cost } = match Rows::of(version, config, counters, at, workers)? {
        Some(rows) => rows.paths(&asked)?,
        None => StateAt { version, config, counters, at }.paths(&asked, parallelism)?,
    };
    let proofs = paths.into_iter().zip(&asked).map(|(path, asked)| {
        let proof = path.complete(asked.domain, asked.key, |hash| leaves.get(hash).cloned());
        proof.map_err(|_| Error::SnapshotDamaged { block: at })
    });
    Ok((BatchProof { proofs: proofs.collect::<Result<_, _>>()? }, cost))
}
