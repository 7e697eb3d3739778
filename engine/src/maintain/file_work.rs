//! Work on the set of files: one at a time, and never in the way of commits.
//!
//! A merge, prune or deep unwind may take an hour, and commits wait for emission. So whoever does long work calls
//! [`FileWork::emit_pending`] every few milliseconds, which emits the steps that became ready and merges, in wide steps, what
//! was emitted since the long work began. That touches no file the long work reads or replaces.

use icecore_segments::step::Step;

use crate::domain::DomainId;
use crate::error::{Error, ErrorKind};
use crate::maintain::backpressure;
use crate::maintain::emission;
use crate::maintain::merge::{Merge, MergeOptions, SURPLUS_MAX};
use crate::progress::ProgressListener;
use crate::stats::MaintenanceTask;
use crate::write::writer::{MaintenanceGuard, Writer};

/// The right to change the set of files.
pub(crate) struct FileWork<'w> {
    writer: &'w Writer,
    lock: MaintenanceGuard<'w>,
}

/// While it lives, merging in between leaves alone what had been emitted when it was made.
pub(crate) struct LongWork<'w> {
    writer: &'w Writer,
    outer: Step,
}

impl Drop for LongWork<'_> {
    fn drop(&mut self) {
        self.writer.lock().merge_only_from(self.outer);
    }
}

impl<'w> FileWork<'w> {
    /// Waits until no other maintenance changes the set of files.
    pub(crate) fn begin(writer: &'w Writer) -> Self {
        Self { writer, lock: writer.lock_maintenance() }
    }

    /// Begins a long pass over files that exist now.
    pub(crate) fn begin_long(&self) -> LongWork<'w> {
        let mut guard = self.writer.lock();
        let emitted_to = guard.manifest().emitted_to;
        LongWork { writer: self.writer, outer: guard.merge_only_from(emitted_to) }
    }

    /// Emits what became ready and keeps the number of fresh segments small. An emission that fails is recorded and does not
    /// stop the work in hand, which may be what frees the space for it.
    ///
    /// # Errors
    /// Those of a poisoned archive.
    pub(crate) fn emit_pending(&self) -> Result<Pending, Error> {
        let writer = self.writer;
        let (closing, due, merge_due) = {
            let guard = writer.lock_unpoisoned()?;
            let due = backpressure::emission_is_due(writer, &guard);
            (guard.is_closing(), due, guard.merge_backlog() >= SURPLUS_MAX / 2)
        };
        if due && !closing {
            // Recorded.
            let _ = emission::emit_ready(writer, &self.lock, &());
        }
        if merge_due && !closing && backpressure::merges_by_itself(writer) {
            // Recorded.
            let merged = self.merge_next(None, writer.options.merge_span_max, &());
            let _ = writer.recorded(MaintenanceTask::Merge, merged);
        }
        writer.lock().check_poison()?;
        let failure = writer.shared.failures.get(MaintenanceTask::Emission);
        Ok(Pending {
            closing,
            out_of_space: failure.is_some_and(|failure| failure.kind == ErrorKind::NoSpace),
        })
    }

    /// Does the next merge; `false` when there is none to do, or something more urgent.
    ///
    /// # Errors
    /// As [`Merge::next`].
    pub(crate) fn merge_next(
        &self,
        only: Option<DomainId>,
        span_max: u64,
        listener: &dyn ProgressListener,
    ) -> Result<bool, Error> {
        let Some(merge) = Merge::next(self.writer, only, span_max)? else { return Ok(false) };
        let _long = self.begin_long();
        merge.run(self.writer, listener, || Ok(self.emit_pending()?.may_go_on()))
    }

    /// The progress callback of work that nothing may interrupt.
    pub(crate) fn on_progress<'o>(
        &'o self,
        listener: &'o dyn ProgressListener,
    ) -> impl FnMut(u64) -> Result<bool, Error> + 'o {
        move |entries| {
            listener.advance(entries);
            self.emit_pending().map(|_| true)
        }
    }
}

/// Merges until nothing is left to merge. Returns the number of merges.
///
/// # Errors
/// [`Error::NoRoom`] when a merge was left out because the file system has no room for it; those with room were done.
pub(crate) fn merge_all(
    writer: &Writer,
    options: &MergeOptions,
    listener: &dyn ProgressListener,
) -> Result<u64, Error> {
    let config = &writer.shared.directory.config;
    let only = options.domain.as_deref().map(|name| config.domain(name)).transpose()?;
    let mut merges = 0;
    loop {
        let work = FileWork::begin(writer);
        if !work.emit_pending()?.may_go_on() || !work.merge_next(only, options.span_max, listener)? {
            return Ok(merges);
        }
        merges += 1;
    }
}

/// Does work that a caller asked for and that stops where emission, which commits wait for, finds no space. One that found none is tried
/// again first.
///
/// # Errors
/// Those of the work; [`Error::HeldUp`] when emission finds no space now.
pub(crate) fn unless_held_up<T>(
    writer: &Writer,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let no_space = || {
        let failure = writer.shared.failures.get(MaintenanceTask::Emission);
        failure.filter(|failure| failure.kind == ErrorKind::NoSpace)
    };
    if no_space().is_some() {
        // Recorded.
        let _ = emission::emit_ready(writer, &writer.lock_maintenance(), &());
    }
    let done = work()?;
    no_space().map_or(Ok(done), |failure| Err(failure.refusal()))
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
