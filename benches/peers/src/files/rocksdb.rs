//! RocksDB: one entry per version under the key and the inverted block, found by one seek inside the prefix that is the key.
//!
//! Source of the options: the RocksDB wiki, pages "Setup Options and Basic Tuning", "Prefix Seek", "Partitioned Index Filters",
//! "RocksDB Bloom Filter", "Dictionary Compression". Two forms, because these pages give two answers to *where shall filters and indexes be*.

use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions,
    DBCompressionType, DBRawIterator, FlushOptions, Options, ReadOptions, SliceTransform,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::{Block, Key, Lookup, Peer, versioned};
use crate::Outcome;

/// Bits per key of a Bloom filter as good as the Ribbon filter here: the wiki's number.
const FILTER_BITS: f64 = 10.0;

/// The wiki's numbers for dictionaries: 16 KiB, trained on a hundred times as much.
const DICTIONARY_BYTES: i32 = 16 << 10;
const TRAINING_BYTES: i32 = 100 * DICTIONARY_BYTES;

/// The window bits and the level that mean "the default" to RocksDB, and a strategy that zstd does not look at.
const DEFAULT_WINDOW: i32 = -14;
const DEFAULT_LEVEL: i32 = 32767;
const NO_STRATEGY: i32 = 0;

/// Where filters and indexes are, and how large the blocks of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// RocksDB's default: loaded into memory when the database is opened, and kept. Blocks of 4 KiB, the default.
    Pinned,
    /// For filters and indexes larger than memory: partitioned, in the block cache. Blocks of 16 KiB with a dictionary: the smaller files.
    Partitioned,
}

/// A database with a block cache.
pub(super) struct RocksDb {
    pub(super) cache: usize,
    pub(super) tables: Tables,
}

impl RocksDb {
    fn block_based(&self) -> BlockBasedOptions {
        let mut options = BlockBasedOptions::default();
        options.set_block_cache(&Cache::new_hyper_clock_cache(self.cache, 0));
        options.set_ribbon_filter(FILTER_BITS);
        // All lookups seek in a prefix, so a filter entry for each whole key would never be asked for.
        options.set_whole_key_filtering(false);
        if self.tables == Tables::Partitioned {
            options.set_block_size(16 << 10);
            options.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            options.set_partition_filters(true);
            options.set_metadata_block_size(4096);
            options.set_cache_index_and_filter_blocks(true);
            options.set_cache_index_and_filter_blocks_with_high_priority(true);
            options.set_pin_top_level_index_and_filter(true);
            options.set_pin_l0_filter_and_index_blocks_in_cache(true);
        }
        options
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&self.block_based());
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(size_of::<Key>()));
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        if self.tables == Tables::Partitioned {
            let dictionary = DICTIONARY_BYTES;
            options.set_bottommost_compression_options(
                DEFAULT_WINDOW,
                DEFAULT_LEVEL,
                NO_STRATEGY,
                dictionary,
                true,
            );
            options.set_bottommost_zstd_max_train_bytes(TRAINING_BYTES, true);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        options.increase_parallelism(cores.max(2) as i32);
        options.set_max_subcompactions(cores as u32);
        options.set_bytes_per_sync(1 << 20);
        options
    }
}

impl Peer for RocksDb {
    fn name(&self) -> &'static str {
        match self.tables {
            Tables::Pinned => "rocksdb",
            Tables::Partitioned => "rocksdb-partitioned",
        }
    }

    fn settings(&self) -> String {
        let tables = match self.tables {
            Tables::Pinned => "4 KiB blocks, filters and indexes held in memory from opening on (default)",
            Tables::Partitioned => {
                "16 KiB blocks with a 16 KiB zstd dictionary, two-level index and filters partitioned by 4 KiB in the block cache, top level pinned"
            }
        };
        format!(
            "rocksdb 0.25 (RocksDB 11.8); key + inverted block, prefix extractor of the key, one iterator with prefix_same_as_start; \
             Ribbon filter {FILTER_BITS} bits per key, no whole-key filtering; LZ4, zstd at the bottom; {tables}; {} MiB HyperClockCache; \
             a WriteBatch per block without WAL, flushed at the end; compact: compact_range, bottommost forced",
            self.cache >> 20
        )
    }

    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome {
        let db = rocksdb::DB::open(&self.options(), dir)?;
        let mut write = WriteOptions::default();
        // Nothing has to be durable before the flush at the end.
        write.disable_wal(true);
        for Block { height, changes } in blocks {
            let mut batch = WriteBatch::default();
            for change in &changes {
                batch.put(versioned(&change.key, height), change.value);
            }
            db.write_opt(batch, &write)?;
        }
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        Ok(db.flush_opt(&flush)?)
    }

    fn compact(&self, dir: &Path) -> Outcome {
        let db = rocksdb::DB::open(&self.options(), dir)?;
        let mut compact = CompactOptions::default();
        compact.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &compact);
        Ok(db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome {
        let db = rocksdb::DB::open_for_read_only(&self.options(), dir, false)?;
        let mut read = ReadOptions::default();
        read.set_prefix_same_as_start(true);
        work(&mut db.raw_iterator_opt(read))
    }
}

impl Lookup for DBRawIterator<'_> {
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool> {
        self.seek(versioned(key, at));
        let Some((found, bytes)) = self.item() else {
            self.status()?;
            return Ok(false);
        };
        // The prefix filter may let a neighbour pass.
        if !found.starts_with(key) {
            return Ok(false);
        }
        value.extend_from_slice(bytes);
        Ok(true)
    }
}
