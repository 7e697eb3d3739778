//! Maintenance that failed and will be retried: what `Stats` reports and what a held-up commit returns.

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Poison};

/// What maintenance does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaintenanceTask {
    /// Complete steps become segments. Commits are held up while this fails and steps pile up.
    Emission,
    /// Adjacent segments become one. Nothing waits for it.
    Merge,
    /// Accessors are brought in line with the density rule. Nothing waits for it.
    Reindex,
}

/// Maintenance that failed at its last attempt and has not succeeded since.
///
/// Nothing committed is lost and the archive stays writable. Maintenance retries: in the background with a growing delay
/// and after every emission, without a background thread emission at the next commit, the rest after the next emission or by `maintain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceFailure {
    /// What failed.
    pub task: MaintenanceTask,
    /// The last error with its causes, in one line.
    pub reason: String,
    /// What to do about it.
    pub kind: ErrorKind,
    /// Failed attempts in a row.
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
