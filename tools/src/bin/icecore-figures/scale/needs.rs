//! What a run will need of disk and memory, told before it begins.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use icecore::storage::Storage;
use icecore::storage::os::OsStorage;
use icecore_tools::measure::system::available_memory;

/// The bytes of an entry in the three files of a segment, as they were measured at 5 million entries and more, and those of its hash
/// while the filter is built.
const SEGMENT_BYTES: f64 = 38.1 + 0.2 + 1.4;
const HASH_BYTES: u64 = 8;

/// What stays free, in bytes: other programs write too.
const SPARE_DISK: u64 = 1 << 30;

/// What building takes of memory, with the generator, in bytes.
const MEMORY: u64 = 512 << 20;

/// What a run needs and what there is. See the module.
pub(super) struct Needs {
    entries: u64,
    /// How many entries two halves can have together so that they and the result fit the disk.
    pub(super) merged_entries: u64,
    disk: Room,
    /// The directory of the hashes, where it is another.
    spool: Option<Room>,
    available_memory: Option<u64>,
}

/// A directory and the free bytes of its disk, where the system tells.
struct Room {
    dir: PathBuf,
    free: Option<u64>,
}

impl Room {
    fn of(dir: &Path) -> Result<Self, icecore::Error> {
        Ok(Self { dir: dir.to_owned(), free: OsStorage.free_space(dir)? })
    }

    fn check(&self, needed: u64) -> Result<(), Box<dyn Error>> {
        match self.free {
            Some(free) if free < needed => {
                let (dir, free, needed) = (self.dir.display(), gigabytes(free), gigabytes(needed));
                Err(format!("{dir} has {free:.1} GB free, the run needs {needed:.1} GB there").into())
            }
            _ => Ok(()),
        }
    }
}

impl Needs {
    /// Asks the system what there is.
    pub(super) fn of(entries: u64, dir: &Path, spool: Option<&Path>) -> Result<Self, icecore::Error> {
        let disk = Room::of(dir)?;
        let spool = spool.map(Room::of).transpose()?;
        let available_memory = available_memory();
        let mut needs = Self { entries, merged_entries: entries, disk, spool, available_memory };
        while needs.merged_entries > 1000 && needs.disk.free.is_some_and(|free| needs.merging() > free) {
            needs.merged_entries /= 2;
        }
        Ok(needs)
    }

    /// An error that says what is missing, where something is.
    pub(super) fn check(&self) -> Result<(), Box<dyn Error>> {
        self.disk.check(self.building())?;
        if let Some(spool) = &self.spool {
            spool.check(hashes(self.entries) + SPARE_DISK)?;
        }
        if let Some(available) = self.available_memory.filter(|available| *available < MEMORY) {
            let (memory, available) = (gigabytes(MEMORY), gigabytes(available));
            return Err(
                format!("{available:.1} GB of memory are available, building needs {memory:.1} GB").into()
            );
        }
        Ok(())
    }

    /// The segment, and the hashes that its filter is built from.
    fn building(&self) -> u64 {
        segment(self.entries) + self.hashes_beside(self.entries) + SPARE_DISK
    }

    /// Two halves, the result, and its hashes.
    fn merging(&self) -> u64 {
        2 * segment(self.merged_entries) + self.hashes_beside(self.merged_entries) + SPARE_DISK
    }

    fn hashes_beside(&self, entries: u64) -> u64 {
        if self.spool.is_some() { 0 } else { hashes(entries) }
    }
}

fn segment(entries: u64) -> u64 {
    (entries as f64 * SEGMENT_BYTES) as u64
}

fn hashes(entries: u64) -> u64 {
    entries * HASH_BYTES
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = |bytes: Option<u64>| {
            bytes.map_or("unknown".to_owned(), |bytes| format!("{:.1} GB", gigabytes(bytes)))
        };
        let mut needs = |needed: u64, room: &Room| {
            let (needed, dir, free) = (gigabytes(needed), room.dir.display(), free(room.free));
            writeln!(f, "needs {needed:.1} GB of {dir} ({free} free)")
        };
        needs(self.building().max(self.merging()), &self.disk)?;
        if let Some(spool) = &self.spool {
            needs(hashes(self.entries) + SPARE_DISK, spool)?;
        }
        writeln!(
            f,
            "needs {:.1} GB of memory ({} available)",
            gigabytes(MEMORY),
            free(self.available_memory)
        )?;
        write!(
            f,
            "builds a segment of {} entries, merges two halves of {}",
            self.entries, self.merged_entries
        )?;
        if self.merged_entries < self.entries {
            write!(f, ", because halves of all and the result do not fit the disk")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(entries: u64, free: u64, spool: Option<u64>, available_memory: u64) -> Needs {
        let room = |dir: &str, free| Room { dir: PathBuf::from(dir), free: Some(free) };
        Needs {
            entries,
            merged_entries: entries / 2,
            disk: room("disk", free),
            spool: spool.map(|free| room("other", free)),
            available_memory: Some(available_memory),
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_missing() {
        const BILLION: u64 = 1_000_000_000;
        let refused = |needs: Needs| needs.check().unwrap_err().to_string();
        needs(BILLION, 50 * BILLION, None, BILLION).check().unwrap();
        needs(BILLION, 41 * BILLION, Some(10 * BILLION), BILLION).check().unwrap();
        let little = needs(BILLION, 45 * BILLION, None, BILLION);
        assert_eq!(refused(little), "disk has 45.0 GB free, the run needs 48.8 GB there");
        let little = needs(BILLION, 45 * BILLION, Some(BILLION), BILLION);
        assert_eq!(refused(little), "other has 1.0 GB free, the run needs 9.1 GB there");
        let little = needs(1000, 50 * BILLION, None, BILLION / 4);
        assert_eq!(refused(little), "0.2 GB of memory are available, building needs 0.5 GB");
    }

    #[test]
    fn the_halves_that_are_merged_fit_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let free = OsStorage.free_space(dir.path()).unwrap().unwrap();
        let needs = Needs::of(free / 40, dir.path(), None).unwrap();
        assert!(needs.merged_entries <= needs.entries / 2 && needs.merging() <= free);
        assert!(needs.to_string().ends_with("because halves of all and the result do not fit the disk"));
        assert_eq!(Needs::of(1000, dir.path(), None).unwrap().merged_entries, 1000);
    }
}
