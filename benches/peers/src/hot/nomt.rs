//! NOMT: a binary Merkle trie on disk, committed and synced with every batch.

use std::path::Path;

use nomt::hasher::Blake3Hasher;
use nomt::{KeyReadWrite, Options, SessionParams};

use super::{Peer, Run};
use crate::Outcome;

/// Both caches, in MiB: more than the tree needs at 2^24 keys, so that no batch waits for reads.
const CACHE_MIB: usize = 2048;

/// The keys to a bucket of the hash table. A page holds a subtree of six levels; this leaves the table less than half full.
const KEYS_PER_BUCKET: u64 = 8;

/// NOMT's own default, the least number of buckets.
const BUCKETS_MIN: u64 = 64_000;

/// A database with large caches.
pub(super) struct Nomt;

impl Peer for Nomt {
    fn name(&self) -> &'static str {
        "nomt"
    }

    fn settings(&self) -> &'static str {
        "nomt 1.0; Blake3Hasher; key path = BLAKE3 of the key; commit_concurrency = threads; page and leaf cache 2 GiB each; no rollback log, no witness; \
         on disk: each batch is synced when it is done; only the latest state"
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn run(&self, threads: usize, dir: &Path, run: &mut Run) -> Outcome {
        let mut options = Options::new();
        options.path(dir.join("nomt"));
        options.bitbox_seed([7; 16]);
        options.commit_concurrency(threads);
        options.page_cache_size(CACHE_MIB);
        options.leaf_cache_size(CACHE_MIB);
        options.hashtable_buckets((run.keys() / KEYS_PER_BUCKET).max(BUCKETS_MIN) as u32);
        let nomt = nomt::Nomt::<Blake3Hasher>::open(options)?;
        while let Some(changes) = run.next() {
            let mut writes: Vec<_> = changes
                .iter()
                .map(|change| {
                    let path = *blake3::hash(&change.key).as_bytes();
                    (path, KeyReadWrite::Write(change.value.map(Vec::from)))
                })
                .collect();
            writes.sort_unstable_by_key(|(path, _)| *path);
            let finished = nomt.begin_session(SessionParams::default()).finish(writes)?;
            let root = finished.root();
            finished.commit(&nomt)?;
            run.applied(root.into_inner())?;
        }
        Ok(())
    }
}
