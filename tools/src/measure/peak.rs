//! How much memory a process or a piece of work holds. The peak of a piece of work is sampled beside it, because the system remembers a peak only for all kinds of memory
//! together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};

use crate::measure::system::{kilobytes, usage};

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

/// The most memory that this process ever had resident, in bytes. File pages that it maps count too, and so does what the
/// process that started it had: the system keeps the peak over `exec`. For a child's own peak see [`crate::measure::peak`].
pub fn peak_resident_bytes() -> u64 {
    usage(UsageWho::RUSAGE_SELF).max_rss() as u64 * 1024
}

/// The most memory that was resident since the system was told to forget its peak, in bytes; else since the program was started.
pub fn peak_bytes_since_reset() -> u64 {
    kilobytes("/proc/self/status", "VmHWM:").unwrap_or_else(peak_resident_bytes)
}

/// The memory of this process that is resident now and backed by no file, in bytes; `None` where the system does not say.
pub fn anonymous_resident_bytes() -> Option<u64> {
    kilobytes("/proc/self/status", "RssAnon:")
}

/// The most memory that one child of this process that was waited for ever had resident, in bytes. See [`peak_resident_bytes`].
pub fn children_peak_resident_bytes() -> u64 {
    usage(UsageWho::RUSAGE_CHILDREN).max_rss() as u64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_held_is_counted() {
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(peak_resident_bytes() >= memory.len() as u64);
        assert!(anonymous_resident_bytes().is_none_or(|bytes| bytes >= memory.len() as u64));
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(children_peak_resident_bytes() > 100_000);
    }
}
