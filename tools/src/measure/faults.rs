//! Page faults of a measurement.
//!
//! They come from `getrusage`: they count exactly, cost under a microsecond to read, and do not depend on how noisy the machine
//! is. A *major* fault waited for the disk; a *minor* one found its page in memory and only mapped it.

use std::ops::{Add, Sub};

use nix::sys::resource::{Usage, UsageWho};
use serde::Serialize;

use crate::measure::system::usage;

/// Page faults since the thread or process began, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Faults that waited for the disk.
    pub major: u64,
    /// Faults that found their page in memory.
    pub minor: u64,
    /// Pages that were read from a device, by a fault or because the kernel was asked to fetch them.
    ///
    /// A page that was asked for ahead is no major fault when it is touched, although the toucher waits for it. Where this
    /// number is above `major`, pages were fetched so.
    pub pages_read: u64,
}

impl Faults {
    /// How often the disk was waited for: each major fault, and one time for pages that were fetched ahead together.
    pub fn waits(self) -> u64 {
        self.major + u64::from(self.pages_read > self.major)
    }
}

impl Sub for Faults {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            major: self.major - earlier.major,
            minor: self.minor - earlier.minor,
            pages_read: self.pages_read - earlier.pages_read,
        }
    }
}

impl Add for Faults {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            major: self.major + more.major,
            minor: self.minor + more.minor,
            pages_read: self.pages_read + more.pages_read,
        }
    }
}

/// The faults of the calling thread so far. Subtract two of them.
pub fn thread_faults() -> Faults {
    faults(&usage(UsageWho::RUSAGE_THREAD))
}

/// The faults of all threads of this process so far.
pub fn process_faults() -> Faults {
    faults(&usage(UsageWho::RUSAGE_SELF))
}

fn faults(usage: &Usage) -> Faults {
    // The system counts blocks of 512 bytes.
    Faults {
        major: usage.major_page_faults() as u64,
        minor: usage.minor_page_faults() as u64,
        pages_read: usage.block_reads() as u64 / 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_new_memory_costs_minor_faults() {
        let before = thread_faults();
        // More than an allocator keeps for later: always new from the system.
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let faults = thread_faults() - before;
        assert!(faults.minor >= 4, "{faults:?}");
        assert!(process_faults().minor >= faults.minor);
        drop(memory);
    }
}
