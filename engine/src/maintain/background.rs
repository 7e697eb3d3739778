//! The thread that emits, merges and reindexes while the writer goes on, and what follows when one of these fails.
//!
//! A failure is recorded ([`Failures`](crate::stats::Failures)), shown in the statistics and retried: after a delay that
//! doubles, and at once after an emission or when a held-up commit requests it. Only what leaves the disk in doubt, a
//! failed log write or manifest, refuses further writes.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Poison};
use crate::maintain::file_work::FileWork;
use crate::maintain::merge::MergeOptions;
use crate::maintain::reindex::ReindexRule;
use crate::options::Maintenance;
use crate::progress::Observer;
use crate::stats::MaintenanceTask;
use crate::write::writer::{Core, State};

/// The delay before the first retry, and the longest.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The maintenance thread of an archive; joined when dropped.
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let worker = Arc::clone(core);
        let thread = thread::Builder::new()
            .name("icecore-maintain".to_owned())
            .spawn(move || {
                let _watch = Watch(&worker);
                worker.maintain_until_closed();
            })
            .expect("the system gives a thread");
        Self { core: Arc::clone(core), thread: Some(thread) }
    }
}

/// Tells the writer when the thread ends in a panic: nobody would emit for whoever waits.
struct Watch<'c>(&'c Core);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.state.lock();
            let since = "the maintenance thread panicked".to_owned();
            state.poison.get_or_insert(Poison { since, cause: ErrorKind::Closed });
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.state.lock().closing = true;
        self.core.changed.notify_all();
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

impl Core {
    /// Emits what is ready, then merges, then brings accessors in line with the rule; again for what was emitted meanwhile.
    ///
    /// # Errors
    /// The first failure. What failed is recorded, and the rest is done all the same.
    pub(crate) fn maintain(&self, observer: &dyn Observer) -> Result<(), Error> {
        let merging = MergeOptions { domain: None, span_max: self.options.merge_span_max };
        loop {
            let emitted = self.attempt_emission(&self.begin_file_work(), observer);
            self.state.lock().check_poison()?;
            let emitted_to = self.state.lock().manifest.emitted_to;
            let merged = self.attempt(MaintenanceTask::Merge, || self.merge_all(&merging, observer));
            let reindexed =
                self.attempt(MaintenanceTask::Reindex, || self.reindex(ReindexRule::Policy, None, observer));
            emitted.and(merged.map(drop)).and(reindexed.map(drop))?;
            let state = self.state.lock();
            if state.closing || state.manifest.emitted_to == emitted_to {
                return Ok(());
            }
        }
    }

    /// Emits every step that is ready and records how that went.
    pub(crate) fn attempt_emission(&self, work: &FileWork<'_>, observer: &dyn Observer) -> Result<(), Error> {
        let emitted = self.attempt(MaintenanceTask::Emission, || self.emit_ready(work, observer));
        let mut state = self.state.lock();
        state.emission_attempts += 1;
        state.emission_wanted = false;
        self.changed.notify_all();
        emitted
    }

    /// Does maintenance and records how that went.
    pub(crate) fn attempt<T>(
        &self,
        task: MaintenanceTask,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outcome = work();
        self.shared.failures.record(task, self.version().head, &outcome);
        outcome
    }

    /// What follows a commit when there are steps to emit: emission, and merging where the options leave it to the writer. What
    /// fails is recorded: the block is committed. An emission is tried again at the next commit, the rest after the next
    /// emission.
    pub(crate) fn maintain_inline(&self) {
        if self.options.maintenance == Maintenance::Background || !self.has_steps_to_emit(&self.state.lock())
        {
            return;
        }
        if self.options.maintenance == Maintenance::Inline {
            let _ = self.maintain(&());
        } else if let Some(work) = self.try_file_work() {
            // Whoever else changes files emits in between.
            let _ = self.attempt_emission(&work, &());
        }
    }

    /// Whether emission should be tried now: there is something to emit, and it did not just fail.
    pub(crate) fn emission_is_due(&self, state: &State) -> bool {
        let failing = self.shared.failures.get(MaintenanceTask::Emission).is_some();
        (state.emission_wanted || !failing) && self.has_steps_to_emit(state)
    }

    fn work_is_due(&self, state: &State) -> bool {
        self.emission_is_due(state) || self.merging_lags(state)
    }

    fn maintain_until_closed(&self) {
        let mut retry = Retry { delay: RETRY_AFTER.0, at: None };
        loop {
            {
                let mut state = self.state.lock();
                while !state.closing && state.poison.is_none() && !self.work_is_due(&state) {
                    match retry.at {
                        Some(at) if self.changed.wait_until(&mut state, at).timed_out() => break,
                        Some(_) => {}
                        None => self.changed.wait(&mut state),
                    }
                }
                if state.closing || state.poison.is_some() {
                    return;
                }
            }
            // Recorded; what poisons ends the loop.
            retry.after(&self.maintain(&()));
        }
    }
}
