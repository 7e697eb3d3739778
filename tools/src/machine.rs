//! The machine that a measurement ran on, as far as it explains the result.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::measure::system::{field, kilobytes, read};

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
        // Of equal paths the last mount is on top.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_are_known_on_linux() {
        let conditions = Conditions::of(Path::new("."));
        assert!(conditions.cores >= 1 && conditions.memory_bytes > 1 << 20);
        assert!(conditions.kernel != "unknown" && conditions.file_system.contains(" on "));
        assert_eq!(conditions.to_string().lines().count(), 4);
    }
}
