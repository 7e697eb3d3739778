//! MDBX as reth keeps a history index: the key is the address and the highest block of a shard, the value a [`RoaringTreemap`] of blocks.
//!
//! The last shard of a key has the highest block `u64::MAX`, so that an append finds it, and is closed under its true highest
//! block when it is full. Without shards it is the only one.

use std::borrow::Cow;
use std::path::Path;

use roaring::RoaringTreemap;
use signet_libmdbx::sys::PageSize;
use signet_libmdbx::{
    Database, DatabaseFlags, Environment, EnvironmentFlags, Geometry, Mode, SyncMode, WriteFlags,
};

use super::workload::KEY;
use super::{History, Peer, Storage};
use crate::Outcome;

/// Lists of blocks in shards.
pub(super) struct Shards {
    /// The most blocks of a shard; `None`: one list.
    pub(super) shard: Option<usize>,
    pub(super) unsynced: bool,
}

impl Peer for Shards {
    fn name(&self) -> String {
        self.shard.map_or_else(|| "noshard".to_owned(), |blocks| format!("s={blocks}"))
    }

    fn fill(&self, dir: &Path, blocks: &[u64]) -> Outcome<Box<dyn History>> {
        let sync_mode = if self.unsynced { SyncMode::SafeNoSync } else { SyncMode::Durable };
        let env = open(dir, Mode::ReadWrite { sync_mode })?;
        let shard = self.shard.unwrap_or(usize::MAX);
        let txn = env.begin_rw_unsync()?;
        let db = txn.create_db(None, DatabaseFlags::empty())?;
        let last = blocks.chunks(shard).count() - 1;
        for (number, chunk) in blocks.chunks(shard).enumerate() {
            let highest = if number == last { u64::MAX } else { chunk[chunk.len() - 1] };
            txn.put(db, shard_key(highest), encode(&bitmap(chunk)?)?, WriteFlags::empty())?;
        }
        txn.commit()?;
        env.sync(true)?;
        Ok(Box::new(Filled { env, db, shard }))
    }
}

fn open(dir: &Path, mode: Mode) -> Outcome<Environment> {
    let mut builder = Environment::builder();
    builder.write_map().set_geometry(Geometry {
        size: Some(0..8 << 30),
        growth_step: Some(128 << 20),
        shrink_threshold: None,
        page_size: Some(PageSize::Set(4096)),
    });
    let flags =
        EnvironmentFlags { no_rdahead: true, coalesce: true, exclusive: true, mode, ..Default::default() };
    Ok(builder.set_flags(flags).open(dir)?)
}

const KEY_LEN: usize = KEY.len() + size_of::<u64>();

/// The address, then the highest block.
fn shard_key(highest: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let (address, block) = key.split_at_mut(KEY.len());
    address.copy_from_slice(&KEY);
    block.copy_from_slice(&highest.to_be_bytes());
    key
}

fn bitmap(blocks: &[u64]) -> Outcome<RoaringTreemap> {
    RoaringTreemap::from_sorted_iter(blocks.iter().copied()).map_err(|_| "blocks that do not ascend".into())
}

fn encode(blocks: &RoaringTreemap) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::with_capacity(blocks.serialized_size());
    blocks.serialize_into(&mut bytes)?;
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Outcome<RoaringTreemap> {
    Ok(RoaringTreemap::deserialize_from(bytes)?)
}

struct Filled {
    env: Environment,
    db: Database,
    shard: usize,
}

/// A value where it is in the map.
type Bytes<'t> = Cow<'t, [u8]>;

impl History for Filled {
    /// As reth's `append_history_index`: the last shard is read, extended and written, and cut where it is too long.
    fn append(&mut self, block: u64) -> Outcome {
        let txn = self.env.begin_rw_unsync()?;
        let last = txn.get::<Bytes<'_>>(self.db.dbi(), &shard_key(u64::MAX))?;
        let mut blocks = last.map_or_else(|| Ok(RoaringTreemap::new()), |bytes| decode(&bytes))?;
        blocks.append([block]).map_err(|_| "a block that is not above the others")?;
        if blocks.len() > self.shard as u64 {
            let full: Vec<u64> = blocks.iter().take(self.shard).collect();
            let highest = full[full.len() - 1];
            txn.put(self.db, shard_key(highest), encode(&bitmap(&full)?)?, WriteFlags::empty())?;
            blocks.remove_range(..=highest);
        }
        txn.put(self.db, shard_key(u64::MAX), encode(&blocks)?, WriteFlags::empty())?;
        Ok(txn.commit()?)
    }

    fn was_changed(&mut self, block: u64) -> Outcome<bool> {
        let txn = self.env.begin_ro_unsync()?;
        let found = txn.cursor(self.db)?.set_range::<[u8; KEY_LEN], Bytes<'_>>(&shard_key(block))?;
        let Some((key, bytes)) = found else { return Ok(false) };
        Ok(key.starts_with(&KEY) && decode(&bytes)?.contains(block))
    }

    fn list(&mut self) -> Outcome<Vec<u64>> {
        let txn = self.env.begin_ro_unsync()?;
        let mut cursor = txn.cursor(self.db)?;
        let mut blocks = Vec::new();
        let mut next = cursor.set_range::<[u8; KEY_LEN], Bytes<'_>>(&shard_key(0))?;
        while let Some((_, bytes)) = next.filter(|(key, _)| key.starts_with(&KEY)) {
            blocks.extend(decode(&bytes)?);
            next = cursor.next()?;
        }
        Ok(blocks)
    }

    /// As reth's `unwind_history_shards`: from the last shard back, all are removed that have nothing below `first`, and what remains of the
    /// one that has becomes the last.
    fn unwind(&mut self, _: u64, first: u64) -> Outcome {
        let txn = self.env.begin_rw_unsync()?;
        let mut kept = None;
        let mut cursor = txn.cursor(self.db)?;
        let mut item = cursor.set_key::<[u8; KEY_LEN], Vec<u8>>(&shard_key(u64::MAX))?;
        while let Some((_, bytes)) = item.filter(|(key, _)| key.starts_with(&KEY)) {
            cursor.del()?;
            let mut blocks = decode(&bytes)?;
            blocks.remove_range(first..);
            if !blocks.is_empty() {
                kept = Some(blocks);
                break;
            }
            item = cursor.prev()?;
        }
        drop(cursor);
        if let Some(blocks) = kept {
            txn.put(self.db, shard_key(u64::MAX), encode(&blocks)?, WriteFlags::empty())?;
        }
        Ok(txn.commit()?)
    }

    fn storage(&mut self) -> Outcome<Storage> {
        let stat = self.env.begin_ro_unsync()?.db_stat(&self.db)?;
        let pages = [stat.branch_pages(), stat.leaf_pages(), stat.overflow_pages()].map(|pages| pages as u64);
        Ok(Storage {
            bytes: pages.iter().sum::<u64>() * u64::from(stat.page_size()),
            depth: stat.depth(),
            branch_pages: pages[0],
            leaf_pages: pages[1],
            other_pages: pages[2],
            entries: stat.entries() as u64,
        })
    }
}
