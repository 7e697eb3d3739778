//! Icecore through its engine, twice: with its accessors on the disk, and with them in the page cache after opening.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use icecore::{Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options, Reader};

use super::{Block, Key, Lookup, Peer};
use crate::Outcome;

const DOMAIN: &str = "storage";

/// Divides the number of blocks, so that after the last block nothing is left outside segments.
const BLOCKS_PER_STEP: u64 = 256;

/// Where filters and pivot indexes are after opening.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accessors {
    /// On the disk, but for what the engine itself loads.
    OnDisk,
    /// In the page cache: their files are read once. What RocksDB does with its filters and indexes by default.
    InMemory,
}

/// An archive with default options.
pub(super) struct Icecore {
    pub(super) accessors: Accessors,
}

impl Peer for Icecore {
    fn name(&self) -> &'static str {
        match self.accessors {
            Accessors::OnDisk => "icecore",
            Accessors::InMemory => "icecore-accessors-read",
        }
    }

    fn settings(&self) -> String {
        let accessors = match self.accessors {
            Accessors::OnDisk => "accessors stay on the disk at opening",
            Accessors::InMemory => "opening reads the files of filters and pivot indexes into the page cache",
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
        let path = dir.join("state.ice");
        let mut reader = Reader::open(&path)?;
        if self.accessors == Accessors::InMemory {
            let files = reader.segments().into_iter().flat_map(|segment| segment.files);
            for file in files.map(|file| path.join(file)) {
                if file.extension().is_some_and(|kind| kind != "kv") {
                    black_box(fs::read(file)?);
                }
            }
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
