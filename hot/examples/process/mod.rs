//! What the system tells of this process, for the examples: time on the CPU, and memory.
#![allow(dead_code, reason = "each example uses its part")]

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The time this thread was on a CPU: a shared machine makes the clock on the wall run on.
///
/// To the nanosecond; `schedstat` may be a tick of the scheduler behind, 4 ms where the shortest work takes some 10.
fn on_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a thread is on a CPU for no negative time")
}

/// Wall time and time on the CPU, of one piece of work or summed up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Times {
    /// Times some work of this thread.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        let (start, cpu_start) = (Instant::now(), on_cpu());
        let result = work();
        let (cpu, wall) = (on_cpu().saturating_sub(cpu_start), start.elapsed());
        (Self { wall, cpu }, result)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// Millions per second.
pub(crate) fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

/// Resident memory of this process, where the system tells it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
