//! Two databases of commonware-storage: an append-only log of operations under a Merkle mountain belt.
//!
//! The configuration is that of the crate's own benchmarks with a page cache that holds everything, so that no batch waits for reads.

use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::Path;

use commonware_cryptography::{Hasher, Sha256, sha256::Digest};
use commonware_parallel::Rayon;
use commonware_runtime::buffer::paged::{CacheRef, page_size};
use commonware_runtime::tokio::{Config, Context, Runner};
use commonware_runtime::{BLOB_PAGE_SIZE, Runner as _, Strategizer, Supervisor};
use commonware_storage::journal::contiguous::fixed::Config as JournalConfig;
use commonware_storage::merkle::full::Config as MerkleConfig;
use commonware_storage::merkle::mmb::Family;
use commonware_storage::qmdb::any::traits::{DbAny, MerkleizedBatch, UnmerkleizedBatch};
use commonware_storage::qmdb::any::{FixedConfig as AnyConfig, unordered::fixed::Db as AnyDb};
use commonware_storage::qmdb::current::{FixedConfig as CurrentConfig, ordered::fixed::Db as CurrentDb};
use commonware_storage::qmdb::floor::Proportional;
use commonware_storage::translator::EightCap;
use commonware_utils::{NZU64, NZUsize};

use super::{Peer, Run};
use crate::Outcome;

/// As in the crate's benchmarks.
const ITEMS_PER_BLOB: NonZeroU64 = NZU64!(10_000_000);
const BUFFER_BYTES: NonZeroUsize = NZUsize!(2 << 20);
const PAGE_BYTES: NonZeroU16 = page_size(BLOB_PAGE_SIZE);
const CHUNK_BYTES: usize = 32;
const INIT_CACHE: NonZeroUsize = NZUsize!(1 << 18);

/// The keys to a page of the cache, 256 bytes each: more than the log of a run. It is allocated at once.
const KEYS_PER_PAGE: u64 = 16;

/// The cache of the benchmarks, the least.
const CACHE_PAGES_MIN: NonZeroUsize = NZUsize!(512);

/// What a database can prove.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proofs {
    /// That a key once had a value.
    AnyValue,
    /// That a key has a value now, or none.
    CurrentValue,
}

/// One of the databases.
pub(super) struct Commonware {
    pub(super) proofs: Proofs,
}

impl Peer for Commonware {
    fn name(&self) -> &'static str {
        match self.proofs {
            Proofs::AnyValue => "commonware-any",
            Proofs::CurrentValue => "commonware-current",
        }
    }

    fn settings(&self) -> &'static str {
        match self.proofs {
            Proofs::AnyValue => {
                "commonware-storage 2026.10, qmdb::any::unordered::fixed over mmb; SHA-256 (as its benchmarks); key = SHA-256 of the key; Rayon strategy with \
                 the threads; 256 bytes of page cache per key; merkleize + apply_batch, no commit: written to the log, not synced; proofs of any value ever, none of absence"
            }
            Proofs::CurrentValue => {
                "commonware-storage 2026.10, qmdb::current::ordered::fixed over mmb; as commonware-any, with proofs of the current value and of absence"
            }
        }
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn run(&self, threads: usize, dir: &Path, run: &mut Run) -> Outcome {
        let config =
            Config::new().with_storage_directory(dir.join("commonware")).with_worker_threads(threads);
        let threads = NonZeroUsize::new(threads).ok_or("a tree needs a thread")?;
        let pages = NonZeroUsize::new((run.keys() / KEYS_PER_PAGE) as usize).unwrap_or(CACHE_PAGES_MIN);
        let page_cache = CacheRef::new(PAGE_BYTES, pages.max(CACHE_PAGES_MIN));
        Runner::new(config).start(async |context| match self.proofs {
            Proofs::AnyValue => {
                let config = any_config(&context, threads, page_cache);
                let db = AnyDb::<Family, Context, Digest, Digest, Sha256, EightCap, Rayon>::init(
                    context.child("storage"),
                    config,
                    None,
                );
                update(db.await?, run).await
            }
            Proofs::CurrentValue => {
                let config = current_config(&context, threads, page_cache);
                let db =
                    CurrentDb::<Family, Context, Digest, Digest, Sha256, EightCap, CHUNK_BYTES, Rayon>::init(
                        context.child("storage"),
                        config,
                        None,
                    );
                update(db.await?, run).await
            }
        })
    }
}

async fn update<D>(mut db: D, run: &mut Run) -> Outcome
where
    D: DbAny<Family, Key = Digest, Value = Digest>,
    D::Merkleized: MerkleizedBatch<Digest = Digest>,
{
    while let Some(changes) = run.next() {
        let mut batch = db.new_batch();
        for change in &changes {
            batch = batch.write(Sha256::hash(&[&change.key]), change.value.map(Digest::from));
        }
        let merkleized = batch.merkleize(&db, None, &mut Proportional).await?;
        let root = merkleized.root();
        db = db.apply_batch(merkleized).await?;
        run.applied(root.0)?;
    }
    Ok(())
}

fn merkle_config(context: &Context, threads: NonZeroUsize, page_cache: CacheRef) -> MerkleConfig<Rayon> {
    MerkleConfig {
        journal_partition: "merkle-journal".into(),
        metadata_partition: "merkle-metadata".into(),
        items_per_blob: ITEMS_PER_BLOB,
        write_buffer: BUFFER_BYTES,
        replay_buffer: BUFFER_BYTES,
        strategy: context.strategy(threads),
        page_cache,
    }
}

fn journal_config(page_cache: CacheRef) -> JournalConfig {
    JournalConfig {
        partition: "log".into(),
        items_per_blob: ITEMS_PER_BLOB,
        page_cache,
        write_buffer: BUFFER_BYTES,
        replay_buffer: BUFFER_BYTES,
    }
}

fn any_config(context: &Context, threads: NonZeroUsize, page_cache: CacheRef) -> AnyConfig<EightCap, Rayon> {
    AnyConfig {
        merkle_config: merkle_config(context, threads, page_cache.clone()),
        journal_config: journal_config(page_cache),
        translator: EightCap,
        init_cache: Some(INIT_CACHE),
        init_buffer: BUFFER_BYTES,
        init_concurrency: (),
    }
}

fn current_config(
    context: &Context,
    threads: NonZeroUsize,
    page_cache: CacheRef,
) -> CurrentConfig<EightCap, Rayon> {
    CurrentConfig {
        merkle_config: merkle_config(context, threads, page_cache.clone()),
        journal_config: journal_config(page_cache),
        grafted_metadata_partition: "grafted-metadata".into(),
        translator: EightCap,
        init_cache: Some(INIT_CACHE),
        init_buffer: BUFFER_BYTES,
        init_concurrency: (),
    }
}
