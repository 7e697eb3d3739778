//! The figures and their goals: the numbers of the design, in the order of its tables.

mod commitment;

use std::fmt;

use commitment::COMMITMENT;

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Told for what it explains.
    Free,
}

impl Bound {
    /// Whether a figure reaches the bound; `None` where there is none.
    pub(crate) fn is_met(self, measured: f64) -> Option<bool> {
        match self {
            Self::AtMost(bound) => Some(measured <= bound),
            Self::AtLeast(bound) => Some(measured >= bound),
            Self::Free => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {bound}"),
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::Free => Ok(()),
        }
    }
}

/// A figure: name, unit, goal.
pub(crate) type Goal = (&'static str, &'static str, Bound);

use Bound::{AtLeast, AtMost, Free};

/// What is one as it is printed, with two places.
const ONE: f64 = 1.004;

/// The figures of `files`. How fast a warm lookup is beside an older build, no single run tells.
pub(crate) const FILES: &[Goal] = &[
    ("cold lookup M=16: faults mean", "faults", AtMost(ONE)),
    ("cold lookup M=16: faults p99", "faults", AtMost(1.0)),
    ("cold lookup M=16: pages read mean", "pages", Free),
    ("cold lookup M=16: p50", "us", Free),
    ("cold lookup M=16: p50 / one random touch", "x", AtMost(1.10)),
    ("cold lookup M=64: faults mean", "faults", AtMost(ONE)),
    ("cold lookup M=64: faults p99", "faults", AtMost(1.0)),
    ("cold lookup M=64: pages read mean", "pages", Free),
    ("cold lookup M=64: p50", "us", Free),
    ("cold lookup M=64: p50 / one random touch", "x", AtMost(1.10)),
    ("cold lookup M=256: faults mean", "faults", AtMost(ONE)),
    ("cold lookup M=256: faults p99", "faults", AtMost(1.0)),
    ("cold lookup M=256: pages read mean", "pages", Free),
    ("cold lookup M=256: p50", "us", Free),
    ("cold lookup M=256: p50 / one random touch", "x", AtMost(1.10)),
    ("cold lookup M=16, only what open loads: faults mean", "faults", AtMost(2.1)),
    ("cold lookup M=64, only what open loads: faults mean", "faults", AtMost(2.1)),
    ("cold lookup M=256, only what open loads: faults mean", "faults", AtMost(2.1)),
    ("first lookup after everything was evicted: faults max", "faults", AtMost(2.0)),
    ("first lookup after everything was evicted: p50", "us", Free),
    ("opening after everything was evicted: time", "ms", Free),
    ("opening after everything was evicted: accessors read", "ms", Free),
    ("cold lookup after opening by default: waits mean", "faults", AtMost(ONE)),
    ("cold lookup after opening by default: p50", "us", Free),
    ("the first unknown key after opening: p50", "us", Free),
    ("the first unknown key after opening: faults mean", "faults", Free),
    ("the second unknown key after opening: p50", "us", Free),
    ("the second unknown key after opening: faults mean", "faults", Free),
    ("cold multi_get of 1000 keys: keys per second", "keys/s", Free),
    ("cold multi_get of 1000 keys: share of the disk's rate at depth 32", "x", AtLeast(0.9)),
    ("cold multi_get of 1000 keys, all evicted: pages read per key", "pages", Free),
    ("cold multi_get of 1000 keys, all evicted: share of the disk's rate at depth 32", "x", AtLeast(0.9)),
    ("warm lookup through the engine: p50", "us", Free),
    ("warm lookup through the engine: p99", "us", Free),
    ("warm lookup through the engine: p50 / one dependent 64-byte read", "x", AtMost(2.2)),
    ("warm lookup through the engine, unknown key: p50", "us", Free),
    ("warm stage, filter with the hash: p50", "ns", Free),
    ("warm stage, pivot index M=64: p50", "ns", Free),
    ("warm stage, page and value: p50", "ns", Free),
    ("filter probe, warm: p50", "ns", AtMost(150.0)),
    ("filter probe, cold: pages touched max", "pages", AtMost(1.0)),
    ("filter: bytes per key", "B/key", AtMost(1.40)),
    ("filter: false positives", "%", AtMost(0.4)),
    ("pivot index M=16: bytes per key", "B/key", AtMost(0.70)),
    ("pivot index M=64: bytes per key", "B/key", AtMost(0.20)),
    ("pivot index M=256: bytes per key", "B/key", AtMost(0.06)),
    (".kv plain: bytes per key", "B/key", AtMost(38.5)),
    (".kv zstd: bytes per key", "B/key", AtMost(37.5)),
    (".kv plain, 1024 blocks: bytes per key", "B/key", AtMost(38.5)),
    (".kv zstd, 1024 blocks: bytes per key", "B/key", AtMost(37.5)),
    ("build .kv + .bt + .kvei: rate", "M entries/s", AtLeast(5.0)),
    ("build, synced to the disk: rate", "M entries/s", Free),
    ("build zstd: rate", "M entries/s", Free),
    ("reindex to M=64: rate", "M entries/s", AtLeast(30.0)),
    ("reindex to M=64: memory", "MB", AtMost(512.0)),
    ("merge: rate", "M entries/s", AtLeast(5.0)),
    ("merge: resident memory that no file backs", "MB", AtMost(512.0)),
    ("merge: resident memory, pages of files included", "MB", AtMost(512.0)),
    ("merge: pages of live files kept in memory", "%", AtLeast(100.0)),
    ("shape, 20-byte keys: cold faults mean", "faults", AtMost(1.02)),
    ("shape, 20-byte keys: cold p50 / one random touch", "x", Free),
    ("shape, 20-byte keys: warm p50", "us", Free),
    ("shape, 20-byte keys: .kv", "B/entry", Free),
    ("shape, 20-byte keys: accessors", "B/entry", Free),
    ("shape, 1 to 40-byte keys: cold faults mean", "faults", AtMost(1.02)),
    ("shape, 1 to 40-byte keys: cold p50 / one random touch", "x", Free),
    ("shape, 1 to 40-byte keys: warm p50", "us", Free),
    ("shape, 1 to 40-byte keys: .kv", "B/entry", Free),
    ("shape, 1 to 40-byte keys: accessors", "B/entry", Free),
    ("shape, keys that differ in the last byte: cold faults mean", "faults", AtMost(1.02)),
    ("shape, keys that differ in the last byte: cold p50 / one random touch", "x", Free),
    ("shape, keys that differ in the last byte: warm p50", "us", Free),
    ("shape, keys that differ in the last byte: .kv", "B/entry", Free),
    ("shape, keys that differ in the last byte: accessors", "B/entry", Free),
    ("shape, one key of a million versions: cold faults mean", "faults", AtMost(1.02)),
    ("shape, one key of a million versions: cold p50 / one random touch", "x", Free),
    ("shape, one key of a million versions: warm p50", "us", Free),
    ("shape, one key of a million versions: .kv", "B/entry", Free),
    ("shape, one key of a million versions: accessors", "B/entry", Free),
    ("shape, empty values: cold faults mean", "faults", AtMost(1.02)),
    ("shape, empty values: cold p50 / one random touch", "x", Free),
    ("shape, empty values: warm p50", "us", Free),
    ("shape, empty values: .kv", "B/entry", Free),
    ("shape, empty values: accessors", "B/entry", Free),
    ("shape, values of 24 KB: cold faults mean", "faults", AtMost(2.0)),
    ("shape, values of 24 KB: cold p50 / one random touch", "x", Free),
    ("shape, values of 24 KB: warm p50", "us", Free),
    ("shape, values of 24 KB: .kv", "B/entry", Free),
    ("shape, values of 24 KB: accessors", "B/entry", Free),
    ("shape, values of 1 MB: cold faults mean", "faults", AtMost(2.0)),
    ("shape, values of 1 MB: cold p50 / one random touch", "x", Free),
    ("shape, values of 1 MB: warm p50", "us", Free),
    ("shape, values of 1 MB: .kv", "B/entry", Free),
    ("shape, values of 1 MB: accessors", "B/entry", Free),
];

/// The figures of `scale`.
pub(crate) const SCALE: &[Goal] = &[
    ("scale, build: rate", "M entries/s", Free),
    ("scale, build: processor an entry", "us", Free),
    ("scale, build: memory", "MB", AtMost(512.0)),
    ("scale, .kv: bytes per key", "B/key", AtMost(38.5)),
    ("scale, pivot index M=64: bytes per key", "B/key", AtMost(0.20)),
    ("scale, filter: bytes per key", "B/key", AtMost(1.40)),
    ("scale, opening: time", "ms", Free),
    ("scale, opening: pages read", "pages", Free),
    ("scale, opening: memory that it holds", "MB", Free),
    ("scale, opening: tops of index and filter", "MB", Free),
    ("scale, known key, accessors in memory: waits mean", "waits", AtMost(ONE)),
    ("scale, known key, accessors in memory: waits p99", "waits", AtMost(1.0)),
    ("scale, known key, accessors in memory: p50", "us", Free),
    ("scale, known key, accessors in memory: p50 / one random touch", "x", AtMost(1.10)),
    ("scale, known key, only what open loads: waits mean", "waits", AtMost(2.1)),
    ("scale, known key, all evicted: waits mean", "waits", AtMost(2.1)),
    ("scale, unknown key, 0 % of the filter in memory: waits mean", "waits", Free),
    ("scale, unknown key, 25 % of the filter in memory: waits mean", "waits", Free),
    ("scale, unknown key, 50 % of the filter in memory: waits mean", "waits", Free),
    ("scale, unknown key, 75 % of the filter in memory: waits mean", "waits", Free),
    ("scale, unknown key, 100 % of the filter in memory: waits mean", "waits", Free),
    ("scale, multi_get of 1000 keys: share of the disk's rate at depth 32", "x", AtLeast(0.9)),
    ("scale, reindex to M=64: rate", "M entries/s", AtLeast(30.0)),
    ("scale, reindex to M=64: processor an entry", "us", Free),
    ("scale, reindex to M=64: memory", "MB", AtMost(512.0)),
    ("scale, merge of two halves: rate", "M entries/s", AtLeast(5.0)),
    ("scale, merge of two halves: processor an entry", "us", Free),
    ("scale, merge of two halves: memory", "MB", AtMost(512.0)),
];

/// The figures of `instructions`: counts of a lookup.
pub(crate) const INSTRUCTIONS: &[Goal] = &[
    ("warm get of a known key: instructions", "", AtMost(1500.0)),
    ("warm get of a known key: hash and filter", "", Free),
    ("warm get of a known key: index", "", Free),
    ("warm get of a known key: page", "", Free),
    ("warm get of a known key: all around them", "", Free),
    ("warm get of an unknown key: instructions", "", AtMost(450.0)),
    ("warm get of a known key over 8 unmerged segments: instructions", "", Free),
    ("warm get of an unknown key over 8 unmerged segments: instructions", "", Free),
    ("warm get of a known key over 8 unmerged segments to one: time", "x", AtMost(1.6)),
];

/// The figures of `hot`; rates are of one thread.
pub(crate) const HOT: &[Goal] = &[
    ("64-byte hashes", "M/s", Free),
    ("random lines, addresses known ahead", "M/s", Free),
    ("random lines, each address from the line before", "M/s", Free),
    ("2^20 keys, batch 2^17: load", "M/s", Free),
    ("2^20 keys, batch 2^17: updates", "M/s", Free),
    ("2^20 keys, batch 2^17: updates, wall time", "M/s", Free),
    ("2^20 keys, batch 2^17: updates, mean of all batches", "M/s", Free),
    ("2^20 keys, batch 2^17: updates, the roof", "M/s", Free),
    ("2^20 keys, batch 2^17: updates, share of the roof", "%", AtLeast(60.0)),
    ("2^20 keys, batch 2^17: longest batch / mean", "x", Free),
    ("2^20 keys, batch 2^17: undo", "M/s", Free),
    ("2^20 keys, batch 2^17: memory", "B/key", AtMost(120.0)),
    ("2^20 keys, batch 2^17: memory as the system sees it, with the list of keys", "B/key", Free),
    ("2^20 keys, batch 2^17: huge pages taken", "", Free),
    ("2^20 keys, batch 2^9: load", "M/s", Free),
    ("2^20 keys, batch 2^9: updates", "M/s", Free),
    ("2^20 keys, batch 2^9: updates, wall time", "M/s", Free),
    ("2^20 keys, batch 2^9: updates, mean of all batches", "M/s", Free),
    ("2^20 keys, batch 2^9: updates, the roof", "M/s", Free),
    ("2^20 keys, batch 2^9: updates, share of the roof", "%", AtLeast(60.0)),
    ("2^20 keys, batch 2^9: longest batch / mean", "x", Free),
    ("2^20 keys, batch 2^9: undo", "M/s", Free),
    ("2^20 keys, batch 2^9: memory", "B/key", AtMost(120.0)),
    ("2^20 keys, batch 2^9: memory as the system sees it, with the list of keys", "B/key", Free),
    ("2^20 keys, batch 2^9: huge pages taken", "", Free),
    ("2^24 keys, batch 2^17: load", "M/s", Free),
    ("2^24 keys, batch 2^17: updates", "M/s", Free),
    ("2^24 keys, batch 2^17: updates, wall time", "M/s", Free),
    ("2^24 keys, batch 2^17: updates, mean of all batches", "M/s", Free),
    ("2^24 keys, batch 2^17: updates, the roof", "M/s", Free),
    ("2^24 keys, batch 2^17: updates, share of the roof", "%", AtLeast(60.0)),
    ("2^24 keys, batch 2^17: longest batch / mean", "x", Free),
    ("2^24 keys, batch 2^17: undo", "M/s", Free),
    ("2^24 keys, batch 2^17: memory", "B/key", AtMost(120.0)),
    ("2^24 keys, batch 2^17: memory as the system sees it, with the list of keys", "B/key", Free),
    ("2^24 keys, batch 2^17: huge pages taken", "", Free),
    ("2^20 keys, batch 2^17: two threads / one", "x", AtLeast(1.85)),
    ("2^20 keys, batch 2^17: two threads / one, median pair", "x", Free),
    ("2^20 keys, batch 2^11: two threads / one", "x", Free),
    ("2^20 keys, batch 2^11: two threads / one, median pair", "x", Free),
    ("64-byte hashes: two threads / one", "x", Free),
    ("random lines: two threads / one", "x", Free),
    ("2^20 keys, batch 2^17: four threads / one", "x", Free),
    ("2^20 keys, batch 2^17: four threads / one, median pair", "x", Free),
    ("2^20 keys, batch 2^11: four threads / one", "x", Free),
    ("2^20 keys, batch 2^11: four threads / one, median pair", "x", Free),
    ("64-byte hashes: four threads / one", "x", Free),
    ("random lines: four threads / one", "x", Free),
    ("2^20 keys, batch 2^17: eight threads / one", "x", Free),
    ("2^20 keys, batch 2^17: eight threads / one, median pair", "x", Free),
    ("2^20 keys, batch 2^11: eight threads / one", "x", Free),
    ("2^20 keys, batch 2^11: eight threads / one, median pair", "x", Free),
    ("64-byte hashes: eight threads / one", "x", Free),
    ("random lines: eight threads / one", "x", Free),
    ("2^20 keys, batch 2^17: sixteen threads / one", "x", Free),
    ("2^20 keys, batch 2^17: sixteen threads / one, median pair", "x", Free),
    ("2^20 keys, batch 2^11: sixteen threads / one", "x", Free),
    ("2^20 keys, batch 2^11: sixteen threads / one, median pair", "x", Free),
    ("64-byte hashes: sixteen threads / one", "x", Free),
    ("random lines: sixteen threads / one", "x", Free),
    ("2^20 keys, proof of existence: ICS23, mean", "B", AtMost(1000.0)),
    ("2^20 keys, proof of existence: ICS23, p99", "B", Free),
    ("2^20 keys, proof of existence: compact, mean", "B", Free),
    ("2^20 keys, proof of existence: path made", "us", Free),
    ("2^20 keys, proof of existence: verified", "us", AtMost(10.0)),
    ("2^20 keys, proof of absence: ICS23, mean", "B", AtMost(2000.0)),
    ("2^20 keys, proof of absence: ICS23, p99", "B", Free),
    ("2^20 keys, proof of absence: compact, mean", "B", Free),
    ("2^20 keys, proof of absence: path made", "us", Free),
    ("2^20 keys, proof of absence: verified", "us", AtMost(10.0)),
];

/// The figures of `many`.
pub(crate) const MANY: &[Goal] = &[
    ("many files: files", "files", Free),
    ("many files, open for reading: processor", "s", AtMost(0.2)),
    ("many files, open for reading: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, open for reading: memory", "MB", AtMost(64.0)),
    ("many files, open for reading: mappings for each segment", "", AtMost(2.0)),
    ("many files, open for writing: processor", "s", AtMost(0.2)),
    ("many files, open for writing: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, open for writing: memory", "MB", AtMost(64.0)),
    ("many files, open for writing: mappings for each segment", "", AtMost(2.0)),
    ("many files, ls: processor", "s", AtMost(0.2)),
    ("many files, ls: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, ls: memory", "MB", AtMost(64.0)),
    ("many files, stats: processor", "s", Free),
    ("many files, stats: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, stats: memory", "MB", Free),
    ("many files, get of a present key: processor", "s", AtMost(0.2)),
    ("many files, get of a present key: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, get of a present key: memory", "MB", AtMost(64.0)),
    ("many files, get of an absent key: processor", "s", AtMost(0.2)),
    ("many files, get of an absent key: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, get of an absent key: memory", "MB", AtMost(64.0)),
    ("many files, verify, fast: processor", "s", AtMost(1.0)),
    ("many files, verify, fast: processor, to that of half the files", "x", AtMost(2.5)),
    ("many files, verify, fast: memory", "MB", Free),
    ("a step of one block, two domains: syncs", "", AtMost(6.0)),
    ("a step of one block, two domains: manifests", "", AtMost(1.0)),
    ("steps of one block at full speed: blocks per second", "1/s", Free),
    ("steps of one block at full speed: blocks per second, to those without merging", "x", Free),
    ("steps of one block at full speed: files, most", "files", AtMost(1000.0)),
    ("steps of one block at full speed: files after the last block", "files", Free),
    ("steps of one block at full speed: files in the folder then", "files", Free),
    ("steps of one block at full speed: files when all is merged", "files", Free),
    ("steps of 8 blocks at full speed: blocks per second", "1/s", Free),
    ("steps of 8 blocks at full speed: blocks per second, to those without merging", "x", Free),
    ("steps of 8 blocks at full speed: files, most", "files", AtMost(1000.0)),
    ("steps of 8 blocks at full speed: files after the last block", "files", Free),
    ("steps of 8 blocks at full speed: files in the folder then", "files", Free),
    ("steps of 8 blocks at full speed: files when all is merged", "files", Free),
];

/// The figures of `follow`, for each way to sync.
pub(crate) const FOLLOW: &[Goal] = &[
    ("block, refresh, nothing new: p50", "us", AtMost(5.0)),
    ("block, refresh, nothing new: p99", "us", Free),
    ("block, refresh, nothing new: bytes read", "B", AtMost(4096.0)),
    ("block, refresh after a block: p50", "us", AtMost(1000.0)),
    ("block, refresh after a block: p99", "us", Free),
    ("block, refresh after a block: bytes read, to those of its changes", "x", AtMost(2.0)),
    ("block, refresh after an emission: p50", "us", AtMost(5000.0)),
    ("block, refresh after an emission: p99", "us", Free),
    ("block, refresh after an emission: bytes read", "kB", Free),
    ("block, first lookup after a refresh: p50", "us", Free),
    ("block, first lookup after a refresh: p99", "us", Free),
    ("block, wait: p50 from the commit to waking up", "us", Free),
    ("block, wait: p99 from the commit to waking up", "us", Free),
    ("group, refresh, nothing new: p50", "us", AtMost(5.0)),
    ("group, refresh, nothing new: p99", "us", Free),
    ("group, refresh, nothing new: bytes read", "B", AtMost(4096.0)),
    ("group, refresh after a block: p50", "us", AtMost(1000.0)),
    ("group, refresh after a block: p99", "us", Free),
    ("group, refresh after a block: bytes read, to those of its changes", "x", AtMost(2.0)),
    ("group, refresh after an emission: p50", "us", AtMost(5000.0)),
    ("group, refresh after an emission: p99", "us", Free),
    ("group, refresh after an emission: bytes read", "kB", Free),
    ("group, first lookup after a refresh: p50", "us", Free),
    ("group, first lookup after a refresh: p99", "us", Free),
    ("group, wait: p50 from the commit to waking up", "us", Free),
    ("group, wait: p99 from the commit to waking up", "us", Free),
    ("relaxed, refresh, nothing new: p50", "us", AtMost(5.0)),
    ("relaxed, refresh, nothing new: p99", "us", Free),
    ("relaxed, refresh, nothing new: bytes read", "B", AtMost(4096.0)),
    ("relaxed, refresh after a block: p50", "us", AtMost(1000.0)),
    ("relaxed, refresh after a block: p99", "us", Free),
    ("relaxed, refresh after a block: bytes read, to those of its changes", "x", AtMost(2.0)),
    ("relaxed, refresh after an emission: p50", "us", AtMost(5000.0)),
    ("relaxed, refresh after an emission: p99", "us", Free),
    ("relaxed, refresh after an emission: bytes read", "kB", Free),
    ("relaxed, first lookup after a refresh: p50", "us", Free),
    ("relaxed, first lookup after a refresh: p99", "us", Free),
    ("relaxed, wait: p50 from the commit to waking up", "us", Free),
    ("relaxed, wait: p99 from the commit to waking up", "us", Free),
];

/// The figures of `get`.
pub(crate) const GET: &[Goal] = &[
    ("icecore get, fewer changes in memory: processor", "s", AtMost(0.2)),
    ("icecore get, fewer changes in memory: memory", "MB", AtMost(64.0)),
    ("icecore get, fewer changes in memory: bytes read", "MB", Free),
    ("icecore get, fewer changes in memory: bytes of the log", "MB", Free),
    ("icecore get, more changes in memory: processor", "s", AtMost(0.2)),
    ("icecore get, more changes in memory: memory", "MB", AtMost(64.0)),
    ("icecore get, more changes in memory: bytes read", "MB", Free),
    ("icecore get, more changes in memory: bytes of the log", "MB", Free),
    ("icecore get, more changes in memory: processor, to that of fewer", "x", Free),
];

/// The figures of `ingest`.
pub(crate) const INGEST: &[Goal] = &[
    ("block index: bytes an entry", "B/entry", AtMost(4.0)),
    ("changes of all blocks: rate", "M rows/s", Free),
    ("icecore export, csv: rate", "M rows/s", AtLeast(1.0)),
    ("icecore export, csv: memory", "MB", Free),
    ("icecore export, jsonl: rate", "M rows/s", AtLeast(1.0)),
    ("icecore export, jsonl: memory", "MB", Free),
    ("icecore export, parquet: rate", "M rows/s", AtLeast(1.0)),
    ("icecore export, parquet: memory", "MB", Free),
    ("ingest, changes in order: processor a change", "us", AtMost(0.7)),
    ("ingest, changes shuffled: processor a change", "us", Free),
    ("ingest, nothing emitted: processor a change", "us", Free),
    ("ingest, nothing emitted: memory a change", "B", Free),
];

/// The figures of `remote`; those of refreshing are of [`FOLLOW`].
pub(crate) const REMOTE: &[Goal] = &[
    ("bucket, one segment, accessors resident, 64K: GETs a cold hit", "GETs", AtMost(1.02)),
    ("bucket, one segment, accessors resident, 64K: waits a cold hit", "waits", AtMost(ONE)),
    ("bucket, one segment, accessors resident, 64K: bytes a cold hit", "kB", AtMost(66.0)),
    (
        "bucket, one segment, accessors resident, 64K: p50 / one raw ranged GET, 20 ms injected",
        "x",
        AtMost(1.10),
    ),
    ("bucket, one segment, nothing resident, 64K: GETs a cold hit", "GETs", AtMost(3.0)),
    ("bucket, one segment, nothing resident, 64K: waits a cold hit", "waits", AtMost(2.004)),
    ("bucket, one segment, nothing resident, 64K: bytes a cold hit", "kB", Free),
    (
        "bucket, one segment, nothing resident, 64K: p50 / one raw ranged GET, 20 ms injected",
        "x",
        AtMost(2.2),
    ),
    ("bucket, one segment, accessors resident, 4K: GETs a cold hit", "GETs", AtMost(1.02)),
    ("bucket, one segment, accessors resident, 4K: waits a cold hit", "waits", AtMost(ONE)),
    ("bucket, one segment, accessors resident, 4K: bytes a cold hit", "kB", AtMost(4.2)),
    ("bucket, one segment, nothing resident, 4K: GETs a cold hit", "GETs", AtMost(3.0)),
    ("bucket, one segment, nothing resident, 4K: waits a cold hit", "waits", AtMost(2.004)),
    ("bucket, one segment, nothing resident, 4K: bytes a cold hit", "kB", Free),
    ("bucket, one segment, accessors resident, 64K: GETs an unknown key", "GETs", AtMost(0.01)),
    ("bucket, several segments, accessors resident, 64K: GETs a cold hit", "GETs", AtMost(1.02)),
    ("bucket, several segments, accessors resident, 64K: waits a cold hit", "waits", AtMost(ONE)),
    ("bucket, several segments, accessors resident, 64K: bytes a cold hit", "kB", AtMost(66.0)),
    (
        "bucket, several segments, accessors resident, 64K: p50 / one raw ranged GET, 20 ms injected",
        "x",
        AtMost(1.10),
    ),
    ("bucket, several segments, nothing resident, 64K: GETs a cold hit", "GETs", AtMost(3.0)),
    ("bucket, several segments, nothing resident, 64K: waits a cold hit", "waits", AtMost(2.004)),
    ("bucket, several segments, nothing resident, 64K: bytes a cold hit", "kB", Free),
    (
        "bucket, several segments, nothing resident, 64K: p50 / one raw ranged GET, 20 ms injected",
        "x",
        AtMost(2.2),
    ),
    ("bucket, several segments, accessors resident, 4K: GETs a cold hit", "GETs", AtMost(1.02)),
    ("bucket, several segments, accessors resident, 4K: waits a cold hit", "waits", AtMost(ONE)),
    ("bucket, several segments, accessors resident, 4K: bytes a cold hit", "kB", AtMost(4.2)),
    ("bucket, several segments, nothing resident, 4K: GETs a cold hit", "GETs", AtMost(3.0)),
    ("bucket, several segments, nothing resident, 4K: waits a cold hit", "waits", AtMost(2.004)),
    ("bucket, several segments, nothing resident, 4K: bytes a cold hit", "kB", Free),
    ("bucket, several segments, accessors resident, 64K: GETs an unknown key", "GETs", AtMost(0.01)),
    ("bucket, multi_get of 1000 keys, 20 ms injected: GETs", "GETs", AtMost(1000.0)),
    (
        "bucket, multi_get of 1000 keys, 20 ms injected: rate / as many raw GETs at depth 32",
        "x",
        AtLeast(0.8),
    ),
    ("bucket, multi_get of 1000 keys, nothing injected: GETs", "GETs", AtMost(1000.0)),
    (
        "bucket, multi_get of 1000 keys, nothing injected: rate / as many raw GETs at depth 32",
        "x",
        AtLeast(0.8),
    ),
    ("bucket, a hit in the cache after a restart: GETs", "GETs", AtMost(0.0)),
    ("bucket, a hit in the cache after a restart: p50", "us", Free),
    ("bucket, a hit in the cache after a restart: p50 / one 4 KiB touch", "x", AtMost(1.15)),
    ("bucket, raw GETs into synced files: rate", "MB/s", Free),
    ("bucket, pull, checked and synced: rate", "MB/s", Free),
    ("bucket, pull, checked and synced: rate / raw GETs", "x", AtLeast(0.8)),
    ("bucket, push: rate", "MB/s", Free),
    ("bucket, push: rate / raw GETs", "x", AtLeast(0.8)),
    ("bucket, push of nothing new: requests", "requests", AtMost(3.0)),
    ("versitygw, raw GETs into synced files: rate", "MB/s", Free),
    ("versitygw, pull, checked and synced: rate", "MB/s", Free),
    ("versitygw, pull, checked and synced: rate / raw GETs", "x", AtLeast(0.8)),
    ("versitygw, pull, checked and synced: rate / aws s3 cp", "x", AtLeast(1.5)),
    ("versitygw, push: rate", "MB/s", Free),
    ("versitygw, push: rate / raw GETs", "x", AtLeast(0.8)),
    ("versitygw, push: rate / aws s3 cp", "x", AtLeast(1.5)),
    ("bucket, opening unmerged segments: segments", "segments", Free),
    ("bucket, opening unmerged segments: requests", "requests", AtMost(3.0)),
    ("bucket, opening unmerged segments: bytes", "kB", AtMost(200.0)),
    ("bucket, opening unmerged segments: time, 20 ms injected", "ms", Free),
];

/// All figures, in the order in which they are told. Another subcommand chains its table here.
fn all() -> impl Iterator<Item = &'static Goal> {
    FILES
        .iter()
        .chain(SCALE)
        .chain(INSTRUCTIONS)
        .chain(HOT)
        .chain(MANY)
        .chain(FOLLOW)
        .chain(GET)
        .chain(INGEST)
        .chain(REMOTE)
        .chain(COMMITMENT)
}

/// The figure of that name.
///
/// # Panics
/// If no table has it.
pub(crate) fn goal(name: &str) -> Goal {
    *all().find(|goal| goal.0 == name).unwrap_or_else(|| panic!("no goal for {name:?}"))
}

/// Where a figure stands among all.
pub(crate) fn place(name: &str) -> Option<usize> {
    all().position(|goal| goal.0 == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different_and_bounds_hold_at_their_edge() {
        for (i, goal) in all().enumerate() {
            assert_eq!(place(goal.0), Some(i), "{}", goal.0);
        }
        assert_eq!((AtMost(1.0).is_met(1.0), AtLeast(2.0).is_met(1.9)), (Some(true), Some(false)));
        assert_eq!(goal("filter: false positives").2, AtMost(0.4));
    }
}
