//! What a step of one block costs in syncs and manifests: its log record, its segments, and what names them.
//!
//! Steps that small are emitted several at a time, so this is the mean over many.

use std::error::Error;
use std::sync::Arc;

use icecore::{Durability, Maintenance, OpenOptions};

use super::counting::CountingStorage;
use super::{Bench, commit, create};

/// The first blocks find a log without files to spare; they are left out.
const WARM_UP: u64 = 32;

const STEPS: u64 = 128;

/// Commits blocks that are each a step, emitted by the commit itself, and every block synced.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Box<dyn Error>> {
    let storage = Arc::new(CountingStorage::default());
    let open = OpenOptions::new().durability(Durability::Block).maintenance(Maintenance::EmitOnly);
    let archive = create(storage.clone(), &bench.dir.join("emission"), 1, open)?;
    (0..WARM_UP).try_for_each(|height| commit(&archive, height))?;
    let before = storage.counts();
    (WARM_UP..WARM_UP + STEPS).try_for_each(|height| commit(&archive, height))?;
    let after = storage.counts();
    archive.close()?;
    let mean = |before: u64, after: u64| (after - before) as f64 / STEPS as f64;
    bench.figures.add("a step of one block, two domains: syncs", mean(before.0, after.0));
    bench.figures.add("a step of one block, two domains: manifests", mean(before.1, after.1));
    Ok(())
}
