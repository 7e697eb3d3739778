//! One run of a tree: gives it batches, stops the time of each, and sums up.

use std::time::{Duration, Instant};

use icecore_tools::measure::cpu::process_cpu_time;
use icecore_tools::measure::peak::anonymous_resident_bytes;
use serde::{Deserialize, Serialize};

use super::workload::{Change, Keys, insertions};
use crate::Outcome;

/// What a run came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Updated {
    /// The keys at the end.
    pub(crate) keys: u64,
    /// Seconds that the first keys took, in batches of the same size.
    pub(crate) load_s: f64,
    /// The batches done, which a budget may have made fewer than were asked for.
    pub(crate) batches: usize,
    pub(crate) updates: u64,
    pub(crate) updates_per_s: f64,
    /// Processor seconds of all threads during the batches.
    pub(crate) cpu_s: f64,
    /// The memory that no file backs at the end, above that before the tree was made.
    pub(crate) memory_bytes: u64,
}

/// Hands out batches: first those that make the keys, then those that are timed.
pub(super) struct Run {
    keys: Keys,
    count: u64,
    batch: u64,
    batches: usize,
    budget: Duration,
    memory_before: u64,
    memory_bytes: u64,
    is_over: bool,
    loaded: u64,
    load_time: Duration,
    time: Duration,
    cpu: Duration,
    done: usize,
    updates: u64,
    current: Option<Current>,
    root: [u8; 32],
}

/// The batch that a tree works on.
struct Current {
    start: Instant,
    cpu: Duration,
    changes: u64,
    is_load: bool,
}

impl Run {
    pub(super) fn new(count: u64, batch: u64, batches: usize, budget_s: u64) -> Self {
        Self {
            keys: Keys::new(count),
            count,
            batch,
            batches,
            budget: Duration::from_secs(budget_s),
            memory_before: memory(),
            memory_bytes: 0,
            is_over: false,
            loaded: 0,
            load_time: Duration::ZERO,
            time: Duration::ZERO,
            cpu: Duration::ZERO,
            done: 0,
            updates: 0,
            current: None,
            root: [0; 32],
        }
    }

    /// How many keys the tree will have before the first timed batch.
    pub(super) fn keys(&self) -> u64 {
        self.count
    }

    /// The next batch; `None` when the run is over. The time runs from here to [`applied`](Self::applied).
    pub(super) fn next(&mut self) -> Option<Vec<Change>> {
        let is_load = self.loaded < self.count;
        let changes = if is_load {
            let end = (self.loaded + self.batch).min(self.count);
            let changes = insertions(self.loaded..end);
            self.loaded = end;
            changes
        } else if self.done < self.batches && (self.done == 0 || self.time < self.budget) {
            self.done += 1;
            self.keys.batch(self.batch, self.done as u64)
        } else {
            // The tree is still there: what it holds is what counts.
            self.memory_bytes = memory().saturating_sub(self.memory_before);
            self.is_over = true;
            return None;
        };
        let count = changes.len() as u64;
        self.current =
            Some(Current { start: Instant::now(), cpu: process_cpu_time(), changes: count, is_load });
        Some(changes)
    }

    /// The batch is in the tree, which has this root now.
    pub(super) fn applied(&mut self, root: [u8; 32]) -> Outcome {
        let Some(current) = self.current.take() else { return Err("no batch was handed out".into()) };
        let time = current.start.elapsed();
        if root == self.root {
            return Err("the root did not change with the batch".into());
        }
        self.root = root;
        if current.is_load {
            self.load_time += time;
        } else {
            self.time += time;
            self.cpu += process_cpu_time().saturating_sub(current.cpu);
            self.updates += current.changes;
        }
        Ok(())
    }

    /// What the run came to.
    pub(super) fn finish(&self) -> Outcome<Updated> {
        if self.is_over && self.current.is_none() {
            return Ok(Updated {
                keys: self.keys.len() as u64,
                load_s: self.load_time.as_secs_f64(),
                batches: self.done,
                updates: self.updates,
                updates_per_s: self.updates as f64 / self.time.as_secs_f64(),
                cpu_s: self.cpu.as_secs_f64(),
                memory_bytes: self.memory_bytes,
            });
        }
        Err("the tree did not take all batches".into())
    }
}

fn memory() -> u64 {
    anonymous_resident_bytes().unwrap_or(0)
}
