//! fjall: one entry per version under the key and the inverted block, the newest version found by the first entry of a range.
//!
//! fjall has no filter over prefixes: its Bloom filters answer for whole keys, and no lookup at a past block knows the whole key. So
//! an unknown key costs a read here too.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Block, GROUP_CHANGES, Key, Lookup, Peer, in_sorted_groups, versioned};
use crate::Outcome;

const KEYSPACE: &str = "storage";

/// A database with a block cache.
pub(super) struct Fjall {
    pub(super) cache: usize,
}

impl Fjall {
    fn database(&self, dir: &Path) -> Outcome<(Database, Keyspace)> {
        let db = Database::builder(dir).cache_size(self.cache as u64).open()?;
        let keyspace = db.keyspace(KEYSPACE, KeyspaceCreateOptions::default)?;
        Ok((db, keyspace))
    }
}

impl Peer for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn settings(&self) -> String {
        format!(
            "fjall 3.1; key + inverted block, the first entry of range(); default keyspace (4 KiB blocks, LZ4 from level 2 on, leveled); \
             {} MiB block cache; ingestions of {GROUP_CHANGES} or more sorted changes, its means for bulk loads; compact: major_compact",
            self.cache >> 20
        )
    }

    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome {
        let (db, keyspace) = self.database(dir)?;
        in_sorted_groups(blocks, GROUP_CHANGES, |group| {
            let mut ingestion = keyspace.start_ingestion()?;
            for (key, block, value) in group {
                ingestion.write(versioned(key, *block), value.as_ref())?;
            }
            Ok(ingestion.finish()?)
        })?;
        Ok(db.persist(PersistMode::SyncAll)?)
    }

    fn compact(&self, dir: &Path) -> Outcome {
        let (_db, keyspace) = self.database(dir)?;
        Ok(keyspace.major_compact()?)
    }

    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome {
        let (_db, mut keyspace) = self.database(dir)?;
        work(&mut keyspace)
    }
}

impl Lookup for Keyspace {
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool> {
        let Some(entry) = self.range(versioned(key, at)..=versioned(key, 0)).next() else { return Ok(false) };
        value.extend_from_slice(&entry.value()?);
        Ok(true)
    }
}
