//! The thread that emits, merges and reindexes while the writer goes on, and what follows when one of these fails.
//!
//! A failure is recorded ([`Failures`](crate::stats::Failures)), shown in the statistics and retried: after a delay that
//! doubles, and at once after an emission or when a held-up commit requests it. Only what leaves the disk in doubt, a
//! failed log write or manifest, refuses further writes.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Poison};
use crate::maintain::backpressure::{emission_is_due, has_steps_to_emit, merging_lags};
use crate::maintain::emission;
use crate::maintain::file_work::merge_all;
use crate::maintain::merge::MergeOptions;
use crate::maintain::reindex::{ReindexRule, reindex};
use crate::open_options::Maintenance;
use crate::progress::ProgressListener;
use crate::stats::MaintenanceTask;
use crate::write::writer::{Writer, WriterGuard};

/// The delay before the first retry, and the longest.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The maintenance thread of an archive; joined when dropped.
pub(crate) struct Background {
    writer: Arc<Writer>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(writer: &Arc<Writer>) -> Self {
        let worker = Arc::clone(writer);
        let thread = thread::Builder::new()
            .name("icecore-maintain".to_owned())
            .spawn(move || {
                let _watch = Watch(&worker);
                maintain_until_closed(&worker);
            })
            .expect("the system gives a thread");
        Self { writer: Arc::clone(writer), thread: Some(thread) }
    }
}

/// Poisons the archive when the thread ends in a panic: a commit would wait for an emission that never comes.
struct Watch<'w>(&'w Writer);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let since = "the maintenance thread panicked".to_owned();
            self.0.poison(Poison { since, cause: ErrorKind::Closed });
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.writer.begin_closing();
        if let Some(thread) = self.thread.take() {
            // A panic there has refused further writes; the message is already on standard error.
            let _ = thread.join();
        }
    }
}

/// When to try again what failed.
struct Retry {
    delay: Duration,
    at: Option<Instant>,
}

impl Retry {
    fn after<T>(&mut self, outcome: &Result<T, Error>) {
        if outcome.is_ok() {
            *self = Self { delay: RETRY_AFTER.0, at: None };
        } else {
            self.at = Some(Instant::now() + self.delay);
            self.delay = (self.delay * 2).min(RETRY_AFTER.1);
        }
    }
}

/// Emits what is ready, then merges, then reindexes what does not match the rule; again for what was emitted meanwhile.
///
/// # Errors
/// The first failure. What failed is recorded, and the rest is done all the same.
pub(crate) fn maintain(writer: &Writer, listener: &dyn ProgressListener) -> Result<(), Error> {
    let merging = MergeOptions { domain: None, span_max: writer.options.merge_span_max };
    loop {
        let emitted = emission::emit_ready(writer, &writer.lock_maintenance(), listener);
        let emitted_to = writer.lock_unpoisoned()?.manifest().emitted_to;
        let merged = merge_all(writer, &merging, listener);
        let merged = writer.recorded(MaintenanceTask::Merge, merged);
        let reindexed = reindex(writer, ReindexRule::Current, None, listener);
        let reindexed = writer.recorded(MaintenanceTask::Reindex, reindexed);
        emitted.and(merged.map(drop)).and(reindexed.map(drop))?;
        let guard = writer.lock();
        if guard.is_closing() || guard.manifest().emitted_to == emitted_to {
            return Ok(());
        }
    }
}

/// What follows a commit when there are steps to emit: emission, and merging where the options leave it to the writer. What
/// fails is recorded: the block is committed. An emission is tried again at the next commit, the rest after the next
/// emission.
pub(crate) fn maintain_inline(writer: &Writer) {
    if writer.options.maintenance == Maintenance::Background || !has_steps_to_emit(writer, &writer.lock()) {
        return;
    }
    if writer.options.maintenance == Maintenance::Inline {
        let _ = maintain(writer, &());
    } else if let Some(lock) = writer.try_lock_maintenance() {
        // Whoever else changes files emits in between.
        let _ = emission::emit_ready(writer, &lock, &());
    }
}

fn work_is_due(writer: &Writer, guard: &WriterGuard<'_>) -> bool {
    emission_is_due(writer, guard) || merging_lags(writer, guard)
}

fn maintain_until_closed(writer: &Writer) {
    let mut retry = Retry { delay: RETRY_AFTER.0, at: None };
    loop {
        {
            let mut guard = writer.lock();
            while !guard.is_closing() && !guard.is_poisoned() && !work_is_due(writer, &guard) {
                match retry.at {
                    Some(at) if !guard.wait_until(at) => break,
                    Some(_) => {}
                    None => guard.wait(),
                }
            }
            if guard.is_closing() || guard.is_poisoned() {
                return;
            }
        }
        // Recorded; what poisons ends the loop.
        retry.after(&maintain(writer, &()));
    }
}
