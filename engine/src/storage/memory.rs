//! How much memory there is.

/// The bytes of memory that this process may use: the machine's, or its control group's where that is less. `None` where
/// the system does not say.
#[cfg(target_os = "linux")]
pub(crate) fn physical_memory() -> Option<u64> {
    let total = total_of(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|max| max.trim().parse().ok());
    Some(limit.map_or(total, |limit: u64| limit.min(total)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn physical_memory() -> Option<u64> {
    None
}

/// The total that `/proc/meminfo` tells, in bytes.
#[cfg(target_os = "linux")]
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(total_of("MemTotal:       24683116 kB\nMemFree: 1 kB\n"), Some(24_683_116 << 10));
        for text in ["", "MemTotal: 5\n", "MemTotal: x kB", "MemFree: 1 kB"] {
            assert_eq!(total_of(text), None, "{text}");
        }
        assert!(physical_memory().is_some_and(|bytes| 64 << 20 < bytes));
    }
}
