//! The append-only tree of akd over its database in memory.
//!
//! akd's `Directory` derives labels by a verifiable random function and inserts two leaves per update; what is measured here is its
//! tree alone (`Azks`) with one leaf per update, as its own benchmark does. That flatters it, as a directory.

use std::path::Path;

use akd::append_only_zks::InsertMode;
use akd::storage::StorageManager;
use akd::storage::memory::AsyncInMemoryDatabase;
use akd::storage::types::DbRecord;
use akd::{
    Azks, AzksElement, AzksParallelismConfig, AzksValue, ExampleLabel, ExperimentalConfiguration, NodeLabel,
};
use tokio::runtime::{Builder, Runtime};

use super::workload::Change;
use super::{Peer, Run};
use crate::Outcome;

type Configuration = ExperimentalConfiguration<ExampleLabel>;

/// A deleted key: the tree cannot forget one.
const TOMBSTONE: AzksValue = AzksValue([0; 32]);

/// The tree.
pub(super) struct Akd;

impl Peer for Akd {
    fn name(&self) -> &'static str {
        "akd"
    }

    fn settings(&self) -> &'static str {
        "akd 0.13, ExperimentalConfiguration (BLAKE3); Azks alone, without VRF and stale markers: one new leaf per update, label = BLAKE3(key, batch); \
         AsyncInMemoryDatabase without cache, a transaction per batch; in memory, nothing durable; append-only: the tree grows by every update and deletions are tombstones"
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn run(&self, threads: usize, _: &Path, run: &mut Run) -> Outcome {
        let runtime = runtime(threads)?;
        let parallelism =
            if threads > 1 { AzksParallelismConfig::default() } else { AzksParallelismConfig::disabled() };
        let storage = StorageManager::new_no_cache(AsyncInMemoryDatabase::new());
        let mut azks = runtime.block_on(Azks::new::<Configuration, _>(&storage))?;
        let mut number: u64 = 0;
        while let Some(changes) = run.next() {
            number += 1;
            let elements = changes.iter().map(|change| element(change, number)).collect();
            storage.begin_transaction();
            let insert = azks.batch_insert_nodes::<Configuration, _>(
                &storage,
                elements,
                InsertMode::Directory,
                parallelism,
            );
            runtime.block_on(insert)?;
            runtime.block_on(storage.set(DbRecord::Azks(azks.clone())))?;
            runtime.block_on(storage.commit_transaction())?;
            let root = runtime.block_on(azks.get_root_hash::<Configuration, _>(&storage))?;
            run.applied(root)?;
        }
        Ok(())
    }
}

fn runtime(threads: usize) -> Outcome<Runtime> {
    let mut builder = if threads > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    Ok(builder.build()?)
}

fn element(change: &Change, batch: u64) -> AzksElement {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&change.key).update(&batch.to_le_bytes());
    let label = NodeLabel { label_val: *hasher.finalize().as_bytes(), label_len: 256 };
    let value = change.value.map_or(TOMBSTONE, |value| AzksValue(*blake3::hash(&value).as_bytes()));
    AzksElement { label, value }
}
