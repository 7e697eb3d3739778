//! Back-pressure: a commit waits while files do not keep up with it.
//!
//! Two things may lag. Steps that wait for emission take memory; segments that wait for a merge take files, mappings and a
//! filter probe each. A commit waits for the first always, for the second only while merging makes progress.

use std::time::Duration;

use icecore_segments::step::Step;

use crate::error::Error;
use crate::maintain::emission;
use crate::maintain::merge::SURPLUS_MAX;
use crate::open_options::Maintenance;
use crate::stats::MaintenanceTask;
use crate::write::writer::{Writer, WriterGuard};

/// Complete steps that may wait for emission: this many of any size, and more while they are small together, still more where heights
/// have gaps.
const STEPS_MAX: u64 = 4;
const SMALL_STEPS_MAX: u64 = 64;
const SPARSE_STEPS_MAX: u64 = 2 * SPARSE_BLOCKS_MIN;
const SMALL_STEPS_BYTES: u64 = 16 << 20;

/// Complete steps wait until they have this many blocks or bytes together, so that steps of a block or two share the syncs and
/// the manifest of an emission.
const EMISSION_BLOCKS_MIN: u64 = 16;
const EMISSION_BYTES_MIN: u64 = 1 << 20;

/// The same where steps between them have no block, because heights have gaps: they become several segments of each domain,
/// about twice as many as the number of steps has bits.
const SPARSE_BLOCKS_MIN: u64 = 256;

/// Complete steps that have left the reorg window and are in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// The first and the last, both inside.
    range: Option<(Step, Step)>,
    steps: u64,
    blocks: u64,
    bytes: u64,
}

impl Waiting {
    /// Whether they are worth an emission of their own.
    fn is_worth_emitting(self) -> bool {
        let blocks_min = if self.is_sparse() { SPARSE_BLOCKS_MIN } else { EMISSION_BLOCKS_MIN };
        self.blocks >= blocks_min || self.bytes >= EMISSION_BYTES_MIN
    }

    /// Whether steps between them have no block.
    fn is_sparse(self) -> bool {
        self.range.is_some_and(|(first, last)| last.0 - first.0 >= self.steps)
    }

    /// Whether they take too much memory.
    fn is_too_much(self) -> bool {
        let steps_max = match (self.bytes <= SMALL_STEPS_BYTES, self.is_sparse()) {
            (true, true) => SPARSE_STEPS_MAX,
            (true, false) => SMALL_STEPS_MAX,
            (false, _) => STEPS_MAX,
        };
        self.steps > steps_max
    }
}

/// Segments of all domains together that may wait for a merge, also while a long one is under way: with hundreds of domains the
/// system runs out of mappings before any of them has many.
const TOTAL_SURPLUS_MAX: usize = 4096;

/// How often a commit looks again whether whoever changes files is done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Lets files catch up before the writer runs further ahead.
///
/// # Errors
/// [`Error::HeldUp`] when emission lags and fails, so that waiting is no use.
pub(crate) fn wait_for_files(writer: &Writer) -> Result<(), Error> {
    let mut guard = writer.lock();
    let attempts = guard.emission_attempts();
    loop {
        if guard.is_poisoned() || guard.is_closing() {
            // The commit says so.
            return Ok(());
        }
        let emission_lags = waiting(writer, &guard).is_too_much();
        if !emission_lags && !merging_lags(writer, &guard) {
            return Ok(());
        }
        let failure = writer.shared.failures.get(MaintenanceTask::Emission);
        if let Some(failure) = failure.filter(|_| emission_lags) {
            if guard.emission_attempts() != attempts {
                return Err(failure.refusal());
            }
            guard.request_emission();
        }
        if writer.options.maintenance == Maintenance::Background {
            guard.wait();
        } else {
            drop(guard);
            let lock = writer.try_lock_maintenance();
            if let Some(lock) = &lock {
                // Recorded, and returned above.
                let _ = emission::emit_ready(writer, lock, &());
            }
            guard = writer.lock();
            if lock.is_none() {
                guard.wait_for(LOOK_AGAIN);
            }
        }
    }
}

/// Whether emission should be tried now: there is something to emit, and it did not just fail.
pub(crate) fn emission_is_due(writer: &Writer, guard: &WriterGuard<'_>) -> bool {
    let failing = writer.shared.failures.get(MaintenanceTask::Emission).is_some();
    (guard.is_emission_wanted() || !failing) && has_steps_to_emit(writer, guard)
}

/// Whether the steps that wait are worth an emission of their own.
pub(crate) fn has_steps_to_emit(writer: &Writer, guard: &WriterGuard<'_>) -> bool {
    waiting(writer, guard).is_worth_emitting()
}

/// Whether enough segments wait for a merge that commits wait too.
pub(crate) fn merging_lags(writer: &Writer, guard: &WriterGuard<'_>) -> bool {
    writer.options.maintenance == Maintenance::Background
        && (guard.merge_backlog() > SURPLUS_MAX || guard.total_backlog() > TOTAL_SURPLUS_MAX)
        && [MaintenanceTask::Emission, MaintenanceTask::Merge]
            .into_iter()
            .all(|task| writer.shared.failures.get(task).is_none())
}

/// Whether this archive merges without being called to.
pub(crate) fn merges_by_itself(writer: &Writer) -> bool {
    writer.options.maintenance != Maintenance::EmitOnly
}

fn waiting(writer: &Writer, guard: &WriterGuard<'_>) -> Waiting {
    let config = &writer.shared.directory.config;
    let version = writer.read_state();
    let Some(head) = version.head else { return Waiting::default() };
    let boundary = config.step_len.emission_boundary(head, config.reorg_window);
    let waiting = |step| step >= guard.manifest().emitted_to && step < boundary;
    let waiting = version.tables.iter().filter(|table| waiting(table.step()));
    waiting.fold(Waiting::default(), |sum, table| Waiting {
        range: Some((sum.range.map_or(table.step(), |(first, _)| first), table.step())),
        steps: sum.steps + 1,
        blocks: sum.blocks + table.blocks(),
        bytes: sum.bytes + table.bytes(),
    })
}
