//! Accessors that are read when an archive is opened, so that a lookup then waits for its data page alone.
//!
//! A thread reads them from front to back beside the first lookups, if all of them together fit the budget; where they do not,
//! every page of them is read when a lookup needs it. What is read stays in the page cache as long as the system leaves it there:
//! nothing is pinned.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use icecore_segments::frame::PAGE_SIZE;

use crate::read::read_state::ReadState;
use crate::storage::{Mapping, physical_memory};

/// The share of the memory that accessors may take by default.
const MEMORY_SHARE: u64 = 8;

/// The budget of [`ReadOptions::resident_budget`](crate::ReadOptions::resident_budget) where none is set: an eighth of the memory that
/// this process may use, in bytes; 0 where the system does not tell how much that is.
pub fn default_resident_budget() -> u64 {
    physical_memory().map_or(0, |memory| memory / MEMORY_SHARE)
}

/// What is asked of the disk at once: long enough for its full rate, short enough to stop soon.
const CHUNK: usize = 4 << 20;

/// The reading of the accessors of an archive. Dropping it ends it.
pub(crate) struct ResidentLoad {
    /// The bytes that are to be read.
    pub(crate) total: u64,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    loaded: AtomicU64,
    is_stopped: AtomicBool,
}

impl ResidentLoad {
    /// Starts to read the accessors of `state` that are mapped, if all fit `budget` bytes and there is one.
    pub(crate) fn start(state: &ReadState, budget: u64) -> Option<Self> {
        let accessors = state.all_segments().map(|segment| segment.record.accessors_len());
        if accessors.fold(0, u64::saturating_add) > budget {
            return None;
        }
        let mappings: Vec<Mapping> =
            state.all_segments().flat_map(|segment| segment.mapped_accessors()).collect();
        if mappings.is_empty() {
            return None;
        }
        let total = mappings.iter().map(|mapping| mapping.as_ref().len() as u64).sum();
        let progress = Arc::<Progress>::default();
        let of_thread = Arc::clone(&progress);
        // Lookups go to all of an accessor without order, and each wait for the tables of addresses counts.
        let read = move || {
            mappings.iter().for_each(|mapping| mapping.in_huge_pages(|| of_thread.read(mapping)));
        };
        // Without the thread lookups read what they need, as with too small a budget.
        thread::Builder::new().name("icecore-load".to_owned()).spawn(read).ok()?;
        Some(Self { total, progress })
    }

    /// The bytes read so far.
    pub(crate) fn loaded(&self) -> u64 {
        self.progress.loaded.load(Ordering::Relaxed)
    }
}

impl Drop for ResidentLoad {
    fn drop(&mut self) {
        self.progress.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Progress {
    fn read(&self, mapping: &Mapping) {
        let mut offset = 0;
        mapping.will_need(0..CHUNK as u64);
        for chunk in mapping.as_ref().chunks(CHUNK) {
            if self.is_stopped.load(Ordering::Relaxed) {
                return;
            }
            // The next chunk comes from the disk while the pages of this one are mapped.
            let next = offset + chunk.len() as u64;
            mapping.will_need(next..next + CHUNK as u64);
            chunk.iter().step_by(PAGE_SIZE).for_each(|byte| _ = black_box(*byte));
            offset = next;
            self.loaded.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    }
}
