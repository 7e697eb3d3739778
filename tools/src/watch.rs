//! How much memory a piece of work holds: sampled beside it, because the system remembers a peak only for all kinds of memory
//! together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::usage::{anonymous_resident_bytes, peak_bytes_since_reset};

/// How often the memory is looked at. What lives shorter than this is missed.
const PERIOD: Duration = Duration::from_millis(2);

/// The most memory that was resident, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Peak {
    /// Memory that no file backs: what the work itself holds. Sampled.
    pub anonymous: u64,
    /// The same right before the work began.
    pub anonymous_before: u64,
    /// All memory, mapped pages of files included. Exact where the system lets its peak be forgotten before the work, else
    /// since the process began.
    pub resident: u64,
}

/// Runs `work` and watches the memory of this process meanwhile. Costs about 1 % of a core.
pub fn watch<T>(work: impl FnOnce() -> T) -> (T, Peak) {
    let anonymous = || anonymous_resident_bytes().unwrap_or(0);
    // proc_pid_clear_refs(5): writing 5 resets "the peak resident set size to the process's current resident set size". Where that is
    // refused, the peak is that of the whole process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (done, before) = (AtomicBool::new(false), anonymous());
    let (result, sampled) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = before;
            while !done.load(Ordering::Acquire) {
                peak = peak.max(anonymous());
                thread::sleep(PERIOD);
            }
            peak
        });
        let result = work();
        done.store(true, Ordering::Release);
        (result, watcher.join().expect("the watcher does not panic"))
    });
    let peak = Peak {
        anonymous: sampled.max(anonymous()),
        anonymous_before: before,
        resident: peak_bytes_since_reset(),
    };
    (result, peak)
}
