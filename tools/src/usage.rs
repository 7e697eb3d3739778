//! What a measurement cost and where it ran: page faults, memory, and the machine's conditions for the report.
//!
//! Faults come from `getrusage`: they count exactly, cost under a microsecond to ask for, and do not depend on how noisy
//! the machine is. A *major* fault waited for the disk; a *minor* one found its page in memory and only mapped it.

use std::fmt;
use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

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

/// The faults of the calling thread so far. Subtract two of them.
pub fn thread_faults() -> Faults {
    faults(&usage(UsageWho::RUSAGE_THREAD))
}

/// The faults of all threads of this process so far.
pub fn process_faults() -> Faults {
    faults(&usage(UsageWho::RUSAGE_SELF))
}

/// The time that all threads of this process together had a processor so far.
pub fn process_cpu_time() -> Duration {
    cpu_time(&usage(UsageWho::RUSAGE_SELF))
}

/// The time that the children of this process that were waited for had a processor.
pub fn children_cpu_time() -> Duration {
    cpu_time(&usage(UsageWho::RUSAGE_CHILDREN))
}

/// The most memory that one child of this process that was waited for ever had resident, in bytes. See [`peak_resident_bytes`].
pub fn children_peak_resident_bytes() -> u64 {
    usage(UsageWho::RUSAGE_CHILDREN).max_rss() as u64 * 1024
}

fn cpu_time(usage: &Usage) -> Duration {
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}

/// The bytes that this process and the children that it waited for read by calls, from files or pipes, whether or not they were in
/// memory; not those of mappings. `None` where the system does not say.
pub fn bytes_read() -> Option<u64> {
    field("/proc/self/io", "rchar:")?.parse().ok()
}

/// How many mappings this process has: what `vm.max_map_count` limits. `None` where the system does not say.
pub fn mappings() -> Option<usize> {
    Some(read("/proc/self/maps")?.lines().count())
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

/// The most memory that this process ever had resident, in bytes. File pages that it maps count too, and so does what the
/// process that started it had: the system keeps the peak over `exec`. For a child's own peak see [`crate::watch`].
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

fn usage(who: UsageWho) -> Usage {
    getrusage(who).expect("getrusage fails only for an unknown argument")
}

fn faults(usage: &Usage) -> Faults {
    // The system counts blocks of 512 bytes.
    Faults {
        major: usage.major_page_faults() as u64,
        minor: usage.minor_page_faults() as u64,
        pages_read: usage.block_reads() as u64 / 8,
    }
}

/// How many tasks wanted a processor in the last minute, on average; `None` where the system does not say. Above the number of
/// cores, figures of processor time are those of a busy machine.
pub fn load_average() -> Option<f64> {
    read("/proc/loadavg")?.split(' ').next()?.parse().ok()
}

/// The machine as far as it explains a figure. What the system does not tell is `unknown`.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The model of the processor.
    pub cpu: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// The memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Type and device of the file system that holds the measured files, as `ext4 on /dev/sda1`.
    pub file_system: String,
    /// How much the device reads ahead by default, in KiB; `None` where there is no device behind the file system.
    pub read_ahead_kib: Option<u64>,
    /// When anonymous memory gets huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
}

impl Conditions {
    /// Reads the conditions of this machine for files at `path`, which must exist.
    pub fn of(path: &Path) -> Self {
        let mount = Mount::of(path);
        Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes("/proc/meminfo", "MemTotal:").unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            file_system: mount
                .as_ref()
                .map_or_else(unknown, |mount| format!("{} on {}", mount.kind, mount.source)),
            read_ahead_kib: mount.as_ref().and_then(Mount::read_ahead_kib),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()))
                .unwrap_or_else(unknown),
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory_bytes as f64 / f64::from(1 << 30);
        writeln!(f, "cpu          {} ({} cores)", self.cpu, self.cores)?;
        writeln!(f, "memory       {memory:.1} GiB, huge pages {}", self.huge_pages)?;
        writeln!(f, "kernel       {}", self.kernel)?;
        write!(f, "file system  {}", self.file_system)?;
        self.read_ahead_kib.map_or(Ok(()), |kib| write!(f, ", read-ahead {kib} KiB"))
    }
}

/// One line of `/proc/self/mountinfo`.
struct Mount {
    /// Major and minor number, as `8:1`.
    device: String,
    kind: String,
    source: String,
}

impl Mount {
    /// The mount with the longest path that leads to `path`.
    fn of(path: &Path) -> Option<Self> {
        let whole = path.canonicalize().ok()?;
        let table = read("/proc/self/mountinfo")?;
        let mounts = table.lines().filter_map(|line| {
            // "36 35 98:0 /mnt1 /mnt2 options ... - kind source options", proc_pid_mountinfo(5).
            let (front, back) = line.split_once(" - ")?;
            let front: Vec<&str> = front.split(' ').collect();
            let (point, mut back) = (Path::new(*front.get(4)?), back.split(' '));
            let mount =
                Self { device: front[2].into(), kind: back.next()?.into(), source: back.next()?.into() };
            whole.starts_with(point).then(|| (point.components().count(), mount))
        });
        // Of equal paths the last mount lies on top.
        mounts.max_by_key(|(depth, _)| *depth).map(|(_, mount)| mount)
    }

    /// A partition has no queue of its own: it is asked of the disk one folder up.
    fn read_ahead_kib(&self) -> Option<u64> {
        let folder = format!("/sys/dev/block/{}", self.device);
        ["queue/read_ahead_kb", "../queue/read_ahead_kb"]
            .iter()
            .find_map(|file| read(&format!("{folder}/{file}"))?.parse().ok())
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

/// The text behind `name` and a colon in the first line that begins so.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = field(path, name)?;
    Some(text.split(' ').next()?.parse::<u64>().ok()? * 1024)
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
        assert!(peak_resident_bytes() >= memory.len() as u64);
        assert!(anonymous_resident_bytes().is_none_or(|bytes| bytes >= memory.len() as u64));
    }

    #[test]
    fn what_is_read_by_a_call_is_counted_and_what_is_mapped_too() {
        let (read_before, mapped_before) = (bytes_read().unwrap(), mappings().unwrap());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
        fs::read(file.path()).unwrap();
        assert!(bytes_read().unwrap() - read_before >= 1 << 20);
        let mapped: Vec<_> = (0..100).map(|_| crate::evict::Mapping::open(file.path()).unwrap()).collect();
        assert!(
            mappings().unwrap() >= mapped_before + 90,
            "100 mappings, and other tests that give some back"
        );
        drop(mapped);
    }

    #[test]
    fn a_child_is_counted_when_it_was_waited_for() {
        let before = children_cpu_time();
        let loops = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", loops]).status().unwrap().success());
        assert!(children_cpu_time() > before && children_peak_resident_bytes() > 100_000);
    }

    #[test]
    fn a_thread_that_sleeps_has_no_processor() {
        let (slept, ()) = Times::of(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(slept.wall >= Duration::from_millis(20) && slept.cpu < slept.wall, "{slept:?}");
        let (worked, _) = Times::of(|| (0..1_000_000u64).fold(0, |sum, i| std::hint::black_box(sum ^ i)));
        assert!(worked.cpu > Duration::from_micros(50), "{worked:?}");
    }

    #[test]
    fn the_conditions_are_known_on_linux() {
        let conditions = Conditions::of(Path::new("."));
        assert!(conditions.cores >= 1 && conditions.memory_bytes > 1 << 20);
        assert!(conditions.kernel != "unknown" && conditions.file_system.contains(" on "));
        assert_eq!(conditions.to_string().lines().count(), 4);
    }
}
