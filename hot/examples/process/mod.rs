//! What the system tells of this process, for the examples: time on the CPU, and memory.
#![allow(dead_code, reason = "each example uses its part")]

use std::time::{Duration, Instant};

/// The time this thread was on a CPU, where the system tells: a shared machine makes the clock run on.
pub(crate) fn on_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Wall time and time on the CPU, of one piece of work or summed up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Times {
    /// Times some work of this thread. Where the system does not tell the time on the CPU, it is the wall time.
    pub(crate) fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        let (start, cpu_start) = (Instant::now(), on_cpu());
        let result = work();
        let wall = start.elapsed();
        let cpu = on_cpu().zip(cpu_start).map_or(wall, |(end, start)| end.saturating_sub(start));
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
