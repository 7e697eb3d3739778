//! Icecore through its engine, twice: with its accessors in memory after opening, as by default, and with them on the disk.

use std::path::Path;
use std::thread;
use std::time::Duration;

use icecore::{Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options, ReadOptions, Reader};

use super::{Block, Key, Lookup, Peer};
use crate::Outcome;

const DOMAIN: &str = "storage";

/// Divides the number of blocks, so that after the last block nothing is left outside segments.
const BLOCKS_PER_STEP: u64 = 256;

/// Where filters and pivot indexes are after opening.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accessors {
    /// In the page cache: opening reads them in the background, and the first question waits for that. What RocksDB does with
    /// its filters and indexes by default.
    InMemory,
    /// On the disk, but for what the engine holds whatever the budget.
    OnDisk,
}

/// An archive with default options.
pub(super) struct Icecore {
    pub(super) accessors: Accessors,
}

impl Peer for Icecore {
    fn name(&self) -> &'static str {
        match self.accessors {
            Accessors::InMemory => "icecore",
            Accessors::OnDisk => "icecore-budget-0",
        }
    }

    fn settings(&self) -> String {
        let accessors = match self.accessors {
            Accessors::InMemory => "opening reads filters and pivot indexes (default)",
            Accessors::OnDisk => "a resident budget of 0: accessors stay on the disk at opening",
        };
        format!(
            "this tree; {BLOCKS_PER_STEP} blocks per step, no reorg window, relaxed durability, background maintenance, \
             M and encoding by recency (default); a Merkle root for every block; compact: merged until nothing is left; {accessors}"
        )
    }

    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome {
        let options = Options::new().domain(DOMAIN).blocks_per_step(BLOCKS_PER_STEP).reorg_window(0);
        let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::Background);
        let storage = std::sync::Arc::new(icecore::storage::os::OsStorage);
        let archive = Archive::create_on(storage, dir.join("state.ice"), options, open)?;
        for Block { height, changes } in blocks {
            let mut block = archive.begin(height)?;
            for change in &changes {
                block.put(DOMAIN, &change.key, change.value.as_ref())?;
            }
            block.commit()?;
        }
        archive.emit()?;
        Ok(archive.close()?)
    }

    fn compact(&self, dir: &Path) -> Outcome {
        let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
        let archive = Archive::open(dir.join("state.ice"), open)?;
        archive.merge(&MergeOptions::default(), &())?;
        Ok(archive.close()?)
    }

    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome {
        let mut options = ReadOptions::new();
        if self.accessors == Accessors::OnDisk {
            options = options.resident_budget(0);
        }
        let mut reader = Reader::open_with(dir.join("state.ice"), options)?;
        while reader.stats().is_loading {
            thread::sleep(Duration::from_micros(100));
        }
        work(&mut reader)
    }
}

impl Lookup for Reader {
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool> {
        let Some(found) = self.at(at)?.get(DOMAIN, key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }
}
