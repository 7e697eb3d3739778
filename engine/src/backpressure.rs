//! Back-pressure: a commit waits while files do not keep up with it.
//!
//! Two things may lag. Steps that wait for emission take memory; segments that wait for a merge take files, mappings and a
//! filter probe each. A commit waits for the first always, for the second only while merging makes progress.

use std::time::Duration;

use crate::core::{Core, State};
use crate::error::Error;
use crate::failures::MaintenanceTask;
use crate::merge::SURPLUS_MAX;
use crate::options::Maintenance;

/// Complete steps that may wait for emission: so many of any size, and more while they are small together.
const STEPS_MAX: u64 = 4;
const SMALL_STEPS_MAX: u64 = 16;
const SMALL_STEPS_BYTES: u64 = 16 << 20;

/// How often a commit looks again whether whoever changes files is done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Core {
    /// Lets files catch up before the writer runs further ahead.
    ///
    /// # Errors
    /// [`Error::HeldUp`] when emission lags and fails, so that waiting is no use.
    pub(crate) fn wait_for_files(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let attempts = state.emission_attempts;
        loop {
            if state.poison.is_some() || state.closing {
                // The commit says so.
                return Ok(());
            }
            let emission_lags = self.emission_lags(&state);
            if !emission_lags && !self.merging_lags(&state) {
                return Ok(());
            }
            let failure = self.shared.failures.get(MaintenanceTask::Emission);
            if let Some(failure) = failure.filter(|_| emission_lags) {
                if state.emission_attempts != attempts {
                    return Err(failure.refusal());
                }
                state.emission_wanted = true;
                self.changed.notify_all();
            }
            if self.options.maintenance == Maintenance::Background {
                self.changed.wait(&mut state);
            } else {
                drop(state);
                let work = self.try_file_work();
                if let Some(work) = &work {
                    // Recorded, and returned above.
                    let _ = self.attempt_emission(work, &());
                }
                state = self.state.lock();
                if work.is_none() {
                    self.changed.wait_for(&mut state, LOOK_AGAIN);
                }
            }
        }
    }

    fn emission_lags(&self, state: &State) -> bool {
        let (steps, bytes) = self.steps_waiting(state);
        steps > if bytes <= SMALL_STEPS_BYTES { SMALL_STEPS_MAX } else { STEPS_MAX }
    }

    /// Whether so many segments wait for a merge that commits wait too.
    pub(crate) fn merging_lags(&self, state: &State) -> bool {
        self.options.maintenance == Maintenance::Background
            && state.merge_backlog > SURPLUS_MAX
            && [MaintenanceTask::Emission, MaintenanceTask::Merge]
                .into_iter()
                .all(|task| self.shared.failures.get(task).is_none())
    }

    /// Whether this archive merges without being called to.
    pub(crate) fn merges_by_itself(&self) -> bool {
        self.options.maintenance != Maintenance::EmitOnly
    }

    /// Complete steps that wait for emission, and the bytes they take.
    pub(crate) fn steps_waiting(&self, state: &State) -> (u64, u64) {
        let config = &self.shared.directory.config;
        let version = self.version();
        let Some(head) = version.head else { return (0, 0) };
        let border = config.step_len.emission_border(head, config.reorg_window);
        let waiting = |step| step >= state.manifest.emitted_to && step < border;
        let waiting = version.tables.iter().filter(|table| waiting(table.step()));
        waiting.fold((0, 0), |(steps, bytes), table| (steps + 1, bytes + table.bytes()))
    }
}
