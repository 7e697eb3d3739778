//! What the system counts for a process: `getrusage`, and the fields of files in `/proc`.

use std::fs;

use nix::sys::resource::{Usage, UsageWho, getrusage};

/// The resources that threads or processes have used so far.
pub(crate) fn usage(who: UsageWho) -> Usage {
    getrusage(who).expect("getrusage fails only for an unknown argument")
}

/// The bytes that this process and the children that it waited for read by calls, from files or pipes, whether or not they were in
/// memory; not those of mappings. `None` where the system does not say.
pub fn bytes_read() -> Option<u64> {
    field("/proc/self/io", "rchar:")?.parse().ok()
}

/// The memory that programs can have without another one giving some back, in bytes; `None` where the system does not say.
pub fn available_memory() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemAvailable:")
}

/// How many mappings this process has: what `vm.max_map_count` limits. `None` where the system does not say.
pub fn mappings() -> Option<usize> {
    Some(read("/proc/self/maps")?.lines().count())
}

/// A file of one line or a few, without the line end; `None` where the system does not have it.
pub(crate) fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

/// The text after `name` and a colon in the first line that begins so.
pub(crate) fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The value of a field in kilobytes, in bytes.
pub(crate) fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = field(path, name)?;
    Some(text.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_by_a_call_is_counted_and_what_is_mapped_too() {
        let (read_before, mapped_before) = (bytes_read().unwrap(), mappings().unwrap());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
        fs::read(file.path()).unwrap();
        assert!(bytes_read().unwrap() - read_before >= 1 << 20);
        let mapped: Vec<_> =
            (0..100).map(|_| crate::measure::evict::Mapping::open(file.path()).unwrap()).collect();
        assert!(
            mappings().unwrap() >= mapped_before + 90,
            "100 mappings, and other tests that give some back"
        );
        drop(mapped);
    }
}
