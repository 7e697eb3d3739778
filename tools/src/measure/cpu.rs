//! The clocks of a measurement: time on a processor beside time on the wall, and a clock that processes can compare.

use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use crate::measure::system::usage;

/// The time that all threads of this process together had a processor so far.
pub fn process_cpu_time() -> Duration {
    cpu_time(&usage(UsageWho::RUSAGE_SELF))
}

/// The time that the children of this process that were waited for had a processor.
pub fn children_cpu_time() -> Duration {
    cpu_time(&usage(UsageWho::RUSAGE_CHILDREN))
}

fn cpu_time(usage: &Usage) -> Duration {
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}

/// Wall time, and the time that the calling thread had a processor: on a shared machine only the second is of the work alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// By the clock on the wall.
    pub wall: Duration,
    /// On a processor.
    pub cpu: Duration,
}

impl Times {
    /// Times work of the calling thread. Neither time is zero, so that a rate can be made of it.
    pub fn of<R>(work: impl FnOnce() -> R) -> (Self, R) {
        let (start, cpu_start) = (Instant::now(), thread_cpu_time());
        let result = work();
        let (cpu, wall) = (thread_cpu_time().saturating_sub(cpu_start), start.elapsed());
        let least = Duration::from_nanos(1);
        (Self { wall: wall.max(least), cpu: cpu.max(least) }, result)
    }
}

/// To the nanosecond, where `getrusage` may be a tick of the scheduler behind.
fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock").into()
}

/// The time since some moment that is the same for all processes of the machine: what one noted another can compare.
pub fn monotonic_time() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_child_counts_when_it_has_ended() {
        let before = children_cpu_time();
        let loops = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu_time() > before);
    }

    #[test]
    fn a_thread_that_sleeps_has_no_processor() {
        let (slept, ()) = Times::of(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(slept.wall >= Duration::from_millis(20) && slept.cpu < slept.wall, "{slept:?}");
        let (worked, _) = Times::of(|| (0..1_000_000u64).fold(0, |sum, i| std::hint::black_box(sum ^ i)));
        assert!(worked.cpu > Duration::from_micros(50), "{worked:?}");
    }
}
