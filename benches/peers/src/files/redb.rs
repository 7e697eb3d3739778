//! redb: one entry per version in a table with keys of fixed length, the newest version found by the first entry of a range.

use std::path::Path;

use redb::{Builder, Database, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Block, GROUP_CHANGES, Key, Lookup, Peer, VERSIONED_LEN, in_sorted_groups, versioned};
use crate::Outcome;

type VersionedKey = [u8; VERSIONED_LEN];

const TABLE: TableDefinition<&VersionedKey, &[u8]> = TableDefinition::new("storage");

const FILE: &str = "state.redb";

/// A database with a cache of its own.
pub(super) struct Redb {
    pub(super) cache: usize,
}

impl Redb {
    fn builder(&self) -> Builder {
        let mut builder = Database::builder();
        builder.set_cache_size(self.cache);
        builder
    }
}

impl Peer for Redb {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn settings(&self) -> String {
        format!(
            "redb 4.4; key + inverted block as a key of fixed length, the first entry of range(); {} MiB cache; transactions of {GROUP_CHANGES} or more \
             sorted changes, durability immediate; opened read-only; compact: Database::compact until it finds nothing",
            self.cache >> 20
        )
    }

    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome {
        let db = self.builder().create(dir.join(FILE))?;
        in_sorted_groups(blocks, GROUP_CHANGES, |group| {
            let txn = db.begin_write()?;
            let mut table = txn.open_table(TABLE)?;
            for (key, block, value) in group {
                table.insert(&versioned(key, *block), value.as_ref())?;
            }
            drop(table);
            Ok(txn.commit()?)
        })
    }

    fn compact(&self, dir: &Path) -> Outcome {
        let mut db = self.builder().open(dir.join(FILE))?;
        while db.compact()? {}
        Ok(())
    }

    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome {
        let db: ReadOnlyDatabase = self.builder().open_read_only(dir.join(FILE))?;
        let mut table = db.begin_read()?.open_table(TABLE)?;
        work(&mut table)
    }
}

impl Lookup for ReadOnlyTable<&'static VersionedKey, &'static [u8]> {
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool> {
        let mut newest = self.range::<&VersionedKey>(&versioned(key, at)..=&versioned(key, 0))?;
        let Some(entry) = newest.next() else { return Ok(false) };
        value.extend_from_slice(entry?.1.value());
        Ok(true)
    }
}
