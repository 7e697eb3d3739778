//! Calls that Ctrl-C ends, and handles that stay in the process that made them.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;

use crate::failure::Failure;

/// How long Ctrl-C may go unnoticed in a call that can take long.
const SIGNAL_PAUSE: Duration = Duration::from_millis(50);

/// How many `fork`s are between this process and the one that imported the module.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Called in every child of `os.fork`.
#[pyfunction]
pub(crate) fn entered_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A handle on an archive that is of use only in the process that made it. A child of a fork has the memory of its parent but none
/// of its threads, so a lock that one of them held stays locked and a request that one of them served has no answer: there the
/// handle refuses, and leaves what it holds alone when it is dropped.
pub(crate) struct OfProcess<T> {
    /// Taken only in `drop`.
    handle: Option<T>,
    forks: u64,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(handle: T) -> Self {
        Self { handle: Some(handle), forks: FORKS.load(Ordering::Relaxed) }
    }

    fn is_at_home(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// The handle.
    ///
    /// # Errors
    /// [`Failure::Closed`] in a child.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        self.handle
            .as_ref()
            .filter(|_| self.is_at_home())
            .ok_or(Failure::Closed("the archive was opened before a fork: open it again in the child"))
    }

    /// As [`OfProcess::get`], to change it.
    ///
    /// # Errors
    /// [`Failure::Closed`] in a child.
    pub(crate) fn get_mut(&mut self) -> Result<&mut T, Failure> {
        self.get()?;
        self.handle.as_mut().ok_or(Failure::Closed("the archive was closed"))
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_at_home() {
            mem::forget(self.handle.take());
        }
    }
}

/// Runs what may take seconds on a thread of its own, so that Ctrl-C ends the call at once. The work that was begun ends by itself
/// later, and what it found is dropped.
///
/// # Errors
/// Those of the work; the exception of a signal.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = sync_channel(1);
    let run = move || {
        // Nobody waits any more where this fails.
        let _ = sender.send(on_own_threads(work));
    };
    let spawned = thread::Builder::new().name("icecore-call".to_owned()).spawn(run);
    spawned.map_err(|error| Failure::System(format!("cannot start a thread: {error}")))?;
    let mut receiver = receiver;
    loop {
        let (answer, waiting) = py.detach(move || (receiver.recv_timeout(SIGNAL_PAUSE), receiver));
        receiver = waiting;
        match answer {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Panicked);
            }
        }
    }
}

/// In a child, gives the work threads to share itself among: those of the pool that the parent started are not there, and waiting for
/// them would never end.
fn on_own_threads<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    if FORKS.load(Ordering::Relaxed) == 0 {
        return work();
    }
    let pool = ThreadPoolBuilder::new().build();
    pool.map_err(|error| Failure::System(error.to_string()))?.install(work)
}
