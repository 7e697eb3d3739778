//! Work on the set of files: one at a time, and never in the way of commits.
//!
//! A merge, prune or deep unwind may take an hour, and commits wait for emission. So whoever does long work calls
//! [`FileWork::emit_pending`] every few milliseconds, which emits the steps that became ready and merges, in wide steps, what
//! was emitted since the long work began. That touches no file the long work reads or replaces.

use icecore_segments::step::Step;
use parking_lot::MutexGuard;

use crate::domain::DomainId;
use crate::error::{Error, ErrorKind};
use crate::maintain::merge::{MergeOptions, SURPLUS_MAX};
use crate::progress::Observer;
use crate::stats::MaintenanceTask;
use crate::write::writer::{Core, State};

/// The right to change the set of files.
pub(crate) struct FileWork<'c> {
    core: &'c Core,
    _lock: MutexGuard<'c, ()>,
}

/// While it lives, merging in between leaves alone what had been emitted when it was made.
pub(crate) struct LongWork<'c> {
    core: &'c Core,
    outer: Step,
}

impl Drop for LongWork<'_> {
    fn drop(&mut self) {
        self.core.merge_only_from(&mut self.core.state.lock(), self.outer);
    }
}

impl Core {
    /// Waits until nobody else changes the set of files.
    pub(crate) fn begin_file_work(&self) -> FileWork<'_> {
        FileWork { core: self, _lock: self.structure.lock() }
    }

    /// The same, unless somebody else is at it. They emit in between.
    pub(crate) fn try_file_work(&self) -> Option<FileWork<'_>> {
        Some(FileWork { core: self, _lock: self.structure.try_lock()? })
    }
}

impl Core {
    /// Merges until nothing is left to merge. Returns the number of merges.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when a merge was left out because the file system has no room for it; those with room were done.
    pub(crate) fn merge_all(&self, options: &MergeOptions, observer: &dyn Observer) -> Result<u64, Error> {
        let config = &self.shared.directory.config;
        let only = options.domain.as_deref().map(|name| config.domain(name)).transpose()?;
        let mut merges = 0;
        loop {
            let work = self.begin_file_work();
            if !work.emit_pending()?.may_go_on() || !work.merge_next(only, options.span_max, observer)? {
                return Ok(merges);
            }
            merges += 1;
        }
    }

    /// Commits wait for merges only as far as merging can go on.
    fn merge_only_from(&self, state: &mut State, step: Step) {
        state.merging_from = step;
        state.count_backlog(&self.version(), self.options.merge_span_max);
        self.changed.notify_all();
    }
}

impl<'c> FileWork<'c> {
    /// Begins a long pass over files that exist now.
    pub(crate) fn begin_long(&self) -> LongWork<'c> {
        let mut state = self.core.state.lock();
        let emitted_to = state.manifest.emitted_to;
        let outer = state.merging_from;
        self.core.merge_only_from(&mut state, emitted_to);
        LongWork { core: self.core, outer }
    }

    /// Emits what became ready and keeps the number of fresh segments small. An emission that fails is recorded and does not
    /// stop the work in hand, which may be what frees the space for it.
    ///
    /// # Errors
    /// Those of a poisoned archive.
    pub(crate) fn emit_pending(&self) -> Result<Pending, Error> {
        let core = self.core;
        let (closing, due, merge_due) = {
            let state = core.state.lock();
            state.check_poison()?;
            (state.closing, core.emission_is_due(&state), state.merge_backlog >= SURPLUS_MAX / 2)
        };
        if due && !closing {
            // Recorded.
            let _ = core.attempt_emission(self, &());
        }
        if merge_due && !closing && core.merges_by_itself() {
            // Recorded.
            let _ = core
                .attempt(MaintenanceTask::Merge, || self.merge_next(None, core.options.merge_span_max, &()));
        }
        core.state.lock().check_poison()?;
        let failure = core.shared.failures.get(MaintenanceTask::Emission);
        Ok(Pending {
            closing,
            out_of_space: failure.is_some_and(|failure| failure.kind == ErrorKind::NoSpace),
        })
    }

    /// Does the next merge; `false` when there is none to do, or something more urgent.
    ///
    /// # Errors
    /// As [`Core::next_merge`].
    pub(crate) fn merge_next(
        &self,
        only: Option<DomainId>,
        span_max: u64,
        observer: &dyn Observer,
    ) -> Result<bool, Error> {
        let Some(merge) = self.core.next_merge(only, span_max)? else { return Ok(false) };
        let _long = self.begin_long();
        self.core.merge(merge, observer, || Ok(self.emit_pending()?.may_go_on()))
    }

    /// The progress callback of work that nothing may interrupt.
    pub(crate) fn on_progress<'o>(
        &'o self,
        observer: &'o dyn Observer,
    ) -> impl FnMut(u64) -> Result<bool, Error> + 'o {
        move |entries| {
            observer.advance(entries);
            self.emit_pending().map(|_| true)
        }
    }
}

/// What work that can be done again later should know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The archive is being closed.
    pub(crate) closing: bool,
    /// Emission, which commits wait for, finds no space: what this work has written so far may be that space.
    pub(crate) out_of_space: bool,
}

impl Pending {
    /// Whether work that can be done again later should go on.
    pub(crate) fn may_go_on(self) -> bool {
        !self.closing && !self.out_of_space
    }
}
