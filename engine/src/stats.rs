//! What an archive tells about itself: what reads touched, which maintenance failed, what the files hold.
//!
//! Reads are counted without cost to them: each thread has a tally of its own, and counting is an addition to
//! a cache line that no other thread writes, without the locked instruction that would make a lookup's next load wait.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use thread_local::ThreadLocal;

use crate::error::{Error, ErrorKind, Poison};
use crate::options::DensityRule;

/// What a read did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A key was looked up at a height.
    Lookup,
    /// A lookup was answered by the versions in memory.
    Memory,
    /// An existence filter was asked.
    FilterProbe,
    /// A filter said maybe and the segment had no version to give.
    FalsePositive,
    /// A pivot index was asked.
    IndexProbe,
    /// A data page was searched.
    Page,
}

const EVENTS: usize = 6;

/// What one thread counted. Read by all, written by one.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tally([AtomicU64; EVENTS]);

/// Takes note of what a lookup does when it does it.
pub(crate) trait Count {
    /// The event happens now.
    fn count(&self, event: Event);
}

impl Count for Tally {
    /// Adds one. The caller is the thread whose tally this is.
    #[inline]
    fn count(&self, event: Event) {
        let counter = &self.0[event as usize];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The counters of one archive.
#[derive(Default)]
pub(crate) struct Counters(ThreadLocal<Tally>);

impl Counters {
    /// The tally of the calling thread. One that ended leaves its tally, with what it counted, to a later one.
    #[inline]
    pub(crate) fn mine(&self) -> &Tally {
        self.0.get_or_default()
    }

    fn sum(&self, event: Event) -> u64 {
        self.0.iter().map(|tally| tally.0[event as usize].load(Ordering::Relaxed)).sum()
    }

    /// The sums now. Not a consistent cut while readers go on.
    pub(crate) fn reads(&self) -> ReadStats {
        ReadStats {
            lookups: self.sum(Event::Lookup),
            memory_hits: self.sum(Event::Memory),
            filter_probes: self.sum(Event::FilterProbe),
            filter_false_positives: self.sum(Event::FalsePositive),
            index_probes: self.sum(Event::IndexProbe),
            pages_searched: self.sum(Event::Page),
        }
    }
}

/// What the reads of this process touched since the archive was opened: part of [`Stats`]. Counting costs reads nothing, so the
/// counts are no consistent cut while reads go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadStats {
    /// Keys looked up.
    pub lookups: u64,
    /// Lookups answered from memory.
    pub memory_hits: u64,
    /// Probes of existence filters, one page each.
    pub filter_probes: u64,
    /// Filters that said *maybe* for a key of which the segment had no version.
    pub filter_false_positives: u64,
    /// Probes of pivot indexes, one page each.
    pub index_probes: u64,
    /// Searches of a span of pages in a `.kv`, one page each unless the index is sparse.
    pub pages_searched: u64,
}

/// A kind of automatic maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaintenanceTask {
    /// Writes complete steps as segments. While it fails and steps pile up, commits fail with [`Error::HeldUp`].
    Emission,
    /// Merges adjacent segments. Commits do not depend on it.
    Merge,
    /// Rebuilds accessors that do not match the density rule. Commits do not depend on it.
    Reindex,
}

/// Automatic maintenance that failed at its last attempt: part of [`Stats`].
///
/// Nothing committed is lost and the archive stays writable. The background thread retries with a growing delay and after every
/// emission. Without one, emission is retried by the next commit, and the rest after the next emission or by
/// [`Archive::maintain`](crate::Archive::maintain).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceFailure {
    /// What failed.
    pub task: MaintenanceTask,
    /// The last error and its causes, in one line.
    pub reason: String,
    /// What to do about it.
    pub kind: ErrorKind,
    /// How many attempts in a row failed.
    pub attempts: u64,
    /// The newest block when the first of them failed.
    pub since_block: Option<u64>,
}

/// At most one failure for each task.
#[derive(Default)]
pub(crate) struct Failures(Mutex<Vec<MaintenanceFailure>>);

impl Failures {
    pub(crate) fn all(&self) -> Vec<MaintenanceFailure> {
        self.0.lock().clone()
    }

    pub(crate) fn get(&self, task: MaintenanceTask) -> Option<MaintenanceFailure> {
        self.0.lock().iter().find(|failure| failure.task == task).cloned()
    }

    /// Records the outcome of an attempt.
    pub(crate) fn record<T>(&self, task: MaintenanceTask, head: Option<u64>, outcome: &Result<T, Error>) {
        let mut failures = self.0.lock();
        let Err(error) = outcome else { return failures.retain(|failure| failure.task != task) };
        let Poison { since: reason, cause: kind } = Poison::of(error);
        match failures.iter_mut().find(|failure| failure.task == task) {
            Some(failure) => {
                (failure.reason, failure.kind) = (reason, kind);
                failure.attempts += 1;
            }
            None => {
                failures.push(MaintenanceFailure { task, reason, kind, attempts: 1, since_block: head });
            }
        }
    }
}

impl MaintenanceFailure {
    /// What a commit returns that cannot wait for this to succeed.
    pub(crate) fn refusal(self) -> Error {
        Error::HeldUp { since: self.reason, cause: self.kind }
    }
}

/// What an archive holds, what reads touched and what is wrong: the answer of [`Reader::stats`](crate::Reader::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The newest block; see [`Reader::head`](crate::Reader::head).
    pub head: Option<u64>,
    /// The lowest height that can be read.
    pub first: Option<u64>,
    /// Live segments that are here, those of the archive's own domains included. What follows is of these.
    pub segments: u64,
    /// Segments that a partial copy does not hold; 0 in every other archive.
    pub segments_not_held: u64,
    /// Versions in segments, those of the archive's own domains left out.
    pub entries: u64,
    /// Bytes of `.kv` files.
    pub kv_bytes: u64,
    /// Bytes of `.bt` files.
    pub bt_bytes: u64,
    /// Bytes of `.kvei` files.
    pub kvei_bytes: u64,
    /// Bytes of `.kvbi` files.
    pub kvbi_bytes: u64,
    /// Bytes of the files that hold the nodes that proofs are made from, which the sums above include.
    pub node_bytes: u64,
    /// Bytes of the write-ahead log; `None` where the manifest cannot be read, and `problems` says why.
    pub log_bytes: Option<u64>,
    /// The density rule in force; `None` where the manifest cannot be read.
    pub rule: Option<DensityRule>,
    /// Bytes of indexes and filters held in memory.
    pub resident_bytes: u64,
    /// The most bytes that filters and indexes together may have to be read at opening; see
    /// [`ReadOptions::resident_budget`](crate::ReadOptions::resident_budget).
    pub resident_budget: u64,
    /// How many bytes of them were read since this process opened the archive: all but those of small segments when it is
    /// done, 0 where they exceed the budget.
    pub loaded_bytes: u64,
    /// Whether they are still being read.
    pub is_loading: bool,
    /// Steps in memory, not emitted yet.
    pub steps_in_memory: u64,
    /// Bytes of keys and values in memory.
    pub memory_bytes: u64,
    /// What the reads of this process touched.
    pub reads: ReadStats,
    /// The files that could not be used when they were last tried, each with the reason in one line. Lookups that need such a
    /// `.kv` or log fail; without an accessor they go on, slower.
    pub problems: Vec<String>,
    /// How many reads did without a missing or damaged accessor.
    pub degraded_reads: u64,
    /// Automatic maintenance that failed and is retried. Known in the process of the writer; empty in others.
    pub failures: Vec<MaintenanceFailure>,
}
