//! Icecore: each change is a version with an empty value, in a domain whose pages are searched in place.

use std::fs;
use std::path::{Path, PathBuf};

use icecore::{Archive, Domain, DomainHandle, Durability, EncodingRule, MergeOptions, OpenOptions, Options};

use super::workload::KEY;
use super::{History, Peer, Storage};
use crate::Outcome;

const DOMAIN: &str = "accounts";

/// Heights whose blocks stay in memory: what is unwound is among them.
const REORG_WINDOW: u64 = 4096;

/// Heights of a step: some hundred changes.
const BLOCKS_PER_STEP: u64 = 4096;

const PAGE_SIZE: u64 = 4096;

/// An archive with default options but for steps, window and encoding.
pub(super) struct Icecore {
    pub(super) unsynced: bool,
}

impl Peer for Icecore {
    fn name(&self) -> String {
        "icecore".to_owned()
    }

    fn fill(&self, dir: &Path, blocks: &[u64]) -> Outcome<Box<dyn History>> {
        let path = dir.join("history.ice");
        let domain = Domain::new(DOMAIN).key_len(KEY.len()).encoding(EncodingRule::Plain);
        let options =
            Options::new().declare(domain).blocks_per_step(BLOCKS_PER_STEP).reorg_window(REORG_WINDOW);
        let relaxed = OpenOptions::new().durability(Durability::Relaxed);
        let archive = Archive::create_with(&path, options, relaxed)?;
        for block in blocks {
            append(&archive, DOMAIN, *block)?;
        }
        archive.emit()?;
        archive.merge(&MergeOptions::default(), &())?;
        archive.close()?;
        let durability = if self.unsynced { Durability::Relaxed } else { Durability::Block };
        let archive = Archive::open(&path, OpenOptions::new().durability(durability))?;
        let domain = archive.domain(DOMAIN)?;
        Ok(Box::new(Filled { path, archive, domain }))
    }
}

fn append<D: icecore::AsDomain + ?Sized>(archive: &Archive, domain: &D, height: u64) -> Outcome {
    let mut block = archive.begin(height)?;
    block.put(domain, &KEY, &[])?;
    block.commit()?;
    Ok(())
}

struct Filled {
    path: PathBuf,
    archive: Archive,
    domain: DomainHandle,
}

impl History for Filled {
    fn append(&mut self, block: u64) -> Outcome {
        append(&self.archive, &self.domain, block)
    }

    fn was_changed(&mut self, block: u64) -> Outcome<bool> {
        Ok(self.archive.at(block)?.last_change(&self.domain, &KEY)? == Some(block))
    }

    fn list(&mut self) -> Outcome<Vec<u64>> {
        let mut blocks = Vec::new();
        self.archive.reader().latest()?.change_blocks(&self.domain, &KEY)?.read_to_end(&mut blocks)?;
        Ok(blocks)
    }

    fn unwind(&mut self, last_kept: u64, _: u64) -> Outcome {
        Ok(self.archive.unwind(last_kept, &())?)
    }

    fn storage(&mut self) -> Outcome<Storage> {
        let mut storage = Storage::default();
        for segment in self.archive.reader().segments().iter().filter(|segment| segment.domain == DOMAIN) {
            storage.bytes += segment.kv_bytes + segment.bt_bytes + segment.kvei_bytes;
            // An index of a few pages has one level of leaves below what is loaded.
            storage.depth = storage.depth.max(2);
            storage.branch_pages += segment.bt_bytes / PAGE_SIZE;
            storage.leaf_pages += segment.kv_bytes / PAGE_SIZE;
            storage.other_pages += segment.kvei_bytes / PAGE_SIZE;
            storage.entries += segment.entries;
        }
        // The newest blocks are in the log alone.
        for file in fs::read_dir(self.path.join("wal"))? {
            storage.bytes += file?.metadata()?.len();
        }
        Ok(storage)
    }
}
