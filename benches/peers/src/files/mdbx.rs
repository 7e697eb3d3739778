//! MDBX as reth opens and fills it: a DUPSORT table, the versions of a key as its sorted duplicates.
//!
//! A duplicate is the inverted block and the value, so the first duplicate at or after an inverted block is the newest version at or
//! below that block: one `MDBX_GET_BOTH_RANGE`. Changes are gathered and sorted before they are written, which reth calls ETL.
//!
//! libmdbx has no compaction in place. What its documentation offers for a packed file is `mdbx_dump | mdbx_load -a`: all entries in
//! order into a new environment by appending. [`Mdbx::compact`](Peer::compact) does that in one process.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use signet_libmdbx::sys::PageSize;
use signet_libmdbx::tx::aliases::RoCursorUnsync;
use signet_libmdbx::{DatabaseFlags, Environment, EnvironmentFlags, Geometry, Mode, SyncMode, WriteFlags};

use super::{Block, GROUP_CHANGES, Key, Lookup, Peer, in_sorted_groups};
use crate::Outcome;

const FILE: &str = "mdbx.dat";

/// The most that a file may grow to: address space, not disk.
const SIZE_MAX: usize = 1 << 40;

/// How much a file grows at a time.
const GROWTH_BYTES: isize = 64 << 20;

/// An environment with one table.
pub(super) struct Mdbx;

fn open(dir: &Path, mode: Mode) -> Outcome<Environment> {
    let mut builder = Environment::builder();
    builder.write_map().set_geometry(Geometry {
        size: Some(0..SIZE_MAX),
        growth_step: Some(GROWTH_BYTES),
        shrink_threshold: Some(GROWTH_BYTES),
        page_size: Some(PageSize::Set(4096)),
    });
    let flags =
        EnvironmentFlags { no_rdahead: true, coalesce: true, exclusive: true, mode, ..Default::default() };
    Ok(builder.set_flags(flags).open(dir)?)
}

const READ_WRITE: Mode = Mode::ReadWrite { sync_mode: SyncMode::Durable };

impl Peer for Mdbx {
    fn name(&self) -> &'static str {
        "mdbx"
    }

    fn settings(&self) -> String {
        format!(
            "signet-libmdbx 0.8 (libmdbx 0.13, reth's binding renamed); DUPSORT, duplicate = inverted block + value, GET_BOTH_RANGE by one cursor \
             in one read transaction; 4 KiB pages, WRITEMAP, NORDAHEAD, EXCLUSIVE, COALESCE; transactions of {GROUP_CHANGES} or more sorted changes, \
             each synced; compact: copied in order into a new environment by appending, as mdbx_dump | mdbx_load -a"
        )
    }

    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome {
        let env = open(dir, READ_WRITE)?;
        in_sorted_groups(blocks, GROUP_CHANGES, |group| {
            let txn = env.begin_rw_unsync()?;
            let db = txn.create_db(None, DatabaseFlags::DUP_SORT)?;
            let mut cursor = txn.cursor(db)?;
            let mut duplicate = Vec::new();
            for (key, block, value) in group {
                duplicate.clear();
                duplicate.extend_from_slice(&(!block).to_be_bytes());
                duplicate.extend_from_slice(value.as_ref());
                cursor.put(key, &duplicate, WriteFlags::empty())?;
            }
            drop(cursor);
            Ok(txn.commit()?)
        })
    }

    fn compact(&self, dir: &Path) -> Outcome {
        let packed = dir.join("packed");
        {
            let (from, to) = (open(dir, READ_WRITE)?, open(&packed, READ_WRITE)?);
            let (source, target) = (from.begin_ro_unsync()?, to.begin_rw_unsync()?);
            let mut read = source.cursor(source.open_db(None)?)?;
            let mut write = target.cursor(target.create_db(None, DatabaseFlags::DUP_SORT)?)?;
            let mut before: Option<Key> = None;
            let mut next = read.first::<Key, Cow<'_, [u8]>>()?;
            while let Some((key, duplicate)) = next {
                if before == Some(key) {
                    write.append_dup(&key, &duplicate)?;
                } else {
                    write.append(&key, &duplicate)?;
                }
                before = Some(key);
                next = read.next()?;
            }
            drop(write);
            target.commit()?;
        }
        fs::rename(packed.join(FILE), dir.join(FILE))?;
        Ok(fs::remove_dir_all(packed)?)
    }

    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome {
        let env = open(dir, Mode::ReadOnly)?;
        let txn = env.begin_ro_unsync()?;
        work(&mut txn.cursor(txn.open_db(None)?)?)
    }
}

impl Lookup for RoCursorUnsync<'_> {
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool> {
        let inverted = (!at).to_be_bytes();
        let Some(duplicate) = self.get_both_range::<Cow<'_, [u8]>>(key, &inverted)? else { return Ok(false) };
        value.extend_from_slice(&duplicate[inverted.len()..]);
        Ok(true)
    }
}
