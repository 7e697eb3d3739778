//! The thread that emits, merges and reindexes while the writer goes on.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::core::Core;
use crate::error::{Error, ErrorKind, Poison};
use crate::merge::MergeOptions;
use crate::observer::Observer;
use crate::reindex::ReindexRule;

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

impl Core {
    /// Emits what is ready, then merges, then brings accessors in line with the rule; again for what was emitted meanwhile.
    pub(crate) fn maintain(&self, observer: &dyn Observer) -> Result<(), Error> {
        let merging = MergeOptions { domain: None, span_max: self.options.merge_span_max };
        loop {
            self.emit_ready(observer)?;
            let emitted_to = self.state.lock().manifest.emitted_to;
            self.merge_all(&merging, observer)?;
            self.reindex(ReindexRule::Policy, None, observer)?;
            let state = self.state.lock();
            if state.closing || state.manifest.emitted_to == emitted_to {
                return Ok(());
            }
        }
    }

    fn maintain_until_closed(&self) {
        loop {
            {
                let mut state = self.state.lock();
                while !state.closing && state.poison.is_none() && self.steps_waiting(&state) == 0 {
                    self.changed.wait(&mut state);
                }
                if state.closing || state.poison.is_some() {
                    return;
                }
            }
            if let Err(error) = self.maintain(&()) {
                // Nobody waits for this result: the next write reports it.
                let mut state = self.state.lock();
                let _ = state.poisoned::<()>(Err(error));
                self.changed.notify_all();
                return;
            }
        }
    }
}
