//! `files`: the same versions and the same questions at past blocks for Icecore and for four stores.
//!
//! | part | what it does |
//! |---|---|
//! | [`workload`] | the blocks, the questions and their only right answers |
//! | [`measure`] | loading; lookups cold, each from nothing, and warm; what they read |
//! | [`table`] | the tables for people |
//! | `icecore`, `rocksdb`, `mdbx`, `redb`, `fjall` | one [`Peer`] each, or two with different options |
//!
//! What is the same for all: the blocks come one after the other, as a chain makes them; a peer may gather several for one
//! transaction. Nothing has to be durable before the last block, then all of it. Compaction, where a store has one, is
//! timed apart from loading. A question is *key K at block N*; an answer is compared with the generator's before it counts.
//!
//! What is not the same: Icecore computes a Merkle root for each block and writes a log; the others have no root. The blocks
//! end with a step, so that Icecore holds nothing outside segments. redb's compaction moves pages and does not fill them, while MDBX is copied
//! in order; RocksDB is loaded by ordinary batches, not by ready-made tables. LMDB is left out: MDBX descends from it, and
//! opening it is `unsafe` in its binding heed.

mod fjall;
mod icecore;
mod mdbx;
mod measure;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod table;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::provenance::Provenance;
use icecore_tools::workload::SplitMix64;
use serde::{Deserialize, Serialize};

use crate::child::{Work, spawn};
use crate::{Outcome, report};
use measure::{Cold, Loaded, Row, Warm};
pub(crate) use measure::{ask_cold, ask_warm, load};
use workload::{BLOCKS, Block, Key, Value, Workload};

/// How to compare stores.
#[derive(Args)]
pub(crate) struct FilesArgs {
    /// How many keys the dataset has; 1.44 versions each.
    #[arg(short = 'n', long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(20_000..))]
    entries: u64,
    /// Where the stores are built and removed again: on the disk that is to be measured. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many keys are looked up warm, for each kind of question.
    #[arg(long, default_value_t = 100_000)]
    lookups: usize,
    /// How many keys are looked up in a cold store, for each kind of question.
    #[arg(long, default_value_t = 1000)]
    cold_lookups: usize,
    /// How many keys are looked up each with everything evicted again, for each kind of question.
    #[arg(long, default_value_t = 40)]
    each_lookups: usize,
    /// The cache of those stores that have one of their own, in MiB.
    #[arg(long, default_value_t = 2048)]
    cache_mib: usize,
    /// Only these peers.
    #[arg(long = "peer", value_parser = clap::builder::PossibleValuesParser::new(names()))]
    peers: Vec<String>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// A store with fixed options.
trait Peer {
    /// Its name on the command line and in the report.
    fn name(&self) -> &'static str;

    /// Versions and options, and why these.
    fn settings(&self) -> String;

    /// Makes a store in an empty folder and fills it. When this returns, everything is durable and the store is closed.
    fn load(&self, dir: &Path, blocks: &mut dyn Iterator<Item = Block>) -> Outcome;

    /// Brings the store into the form that its authors recommend for data that is only read from now on, and closes it.
    fn compact(&self, dir: &Path) -> Outcome;

    /// Opens the store for reading, has it asked and closes it. Nothing of it stays mapped.
    fn open(&self, dir: &Path, work: &mut dyn FnMut(&mut dyn Lookup) -> Outcome) -> Outcome;
}

/// A store that is open for reading.
trait Lookup {
    /// Finds the newest version of a key at or below a block and puts it into `value`, which is empty before.
    fn get(&mut self, key: &Key, at: u64, value: &mut Vec<u8>) -> Outcome<bool>;
}

/// All peers, `cache` bytes for those with a cache of their own.
fn peers(cache: usize) -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(icecore::Icecore { accessors: icecore::Accessors::InMemory }),
        Box::new(icecore::Icecore { accessors: icecore::Accessors::OnDisk }),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::RocksDb { cache, tables: rocksdb::Tables::Pinned }),
        #[cfg(feature = "rocksdb")]
        Box::new(rocksdb::RocksDb { cache, tables: rocksdb::Tables::Partitioned }),
        Box::new(mdbx::Mdbx),
        Box::new(redb::Redb { cache }),
        Box::new(fjall::Fjall { cache }),
    ]
}

fn names() -> Vec<&'static str> {
    peers(0).iter().map(|peer| peer.name()).collect()
}

/// What a child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    peer: String,
    dir: PathBuf,
    /// A file on the same disk, for touches of its pages.
    reference: PathBuf,
    entries: u64,
    lookups: usize,
    cold_lookups: usize,
    each_lookups: usize,
    cache: usize,
}

impl Task {
    fn peer(&self) -> Outcome<Box<dyn Peer>> {
        let found = peers(self.cache).into_iter().find(|peer| peer.name() == self.peer);
        found.ok_or_else(|| format!("no peer is called {}", self.peer).into())
    }
}

/// One figure of the JSON: what belongs to a peer as a whole, or one series of it.
#[derive(Serialize)]
struct FlatRow<'r> {
    peer: &'static str,
    #[serde(flatten)]
    part: Part<'r>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Part<'r> {
    Store {
        settings: &'r str,
        #[serde(flatten)]
        loaded: &'r Loaded,
        #[serde(flatten)]
        cold: &'r Cold,
        #[serde(flatten)]
        warm: &'r Warm,
    },
    Lookups(&'r Row),
}

fn flat_rows(reports: &[PeerReport]) -> Vec<FlatRow<'_>> {
    let mut flat = Vec::new();
    for PeerReport { name: peer, settings, loaded, cold, warm, rows } in reports {
        flat.push(FlatRow { peer, part: Part::Store { settings, loaded, cold, warm } });
        flat.extend(rows.iter().map(|row| FlatRow { peer, part: Part::Lookups(row) }));
    }
    flat
}

/// What was measured of one peer.
struct PeerReport {
    name: &'static str,
    settings: String,
    loaded: Loaded,
    cold: Cold,
    warm: Warm,
    rows: Vec<Row>,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct FilesConditions {
    entries: u64,
    versions: u64,
    blocks: u64,
    machine: Conditions,
    cache_bytes: usize,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

/// Many times as many pages as are touched.
const REFERENCE_BYTES: usize = 256 << 20;

const CLOCK: &str = "each lookup timed alone; warm: lowest p50 of 3 passes, the p50 of the clock's cost subtracted; cold: one pass";

/// Measures and prints.
pub(crate) fn run(args: &FilesArgs) -> Outcome {
    let (run, load_before) = (Provenance::of_this_run(), load_average());
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-peers").tempdir_in(&parent)?;
    let cache = args.cache_mib << 20;
    let reference = folder.path().join("reference");
    write_reference(&reference)?;
    let mut reports = Vec::new();
    for peer in peers(cache).iter().filter(|peer| is_asked_for(&args.peers, peer.name())) {
        eprintln!("{}", peer.name());
        let dir = folder.path().join(peer.name());
        fs::create_dir(&dir)?;
        let task = Task {
            peer: peer.name().to_owned(),
            dir: dir.clone(),
            reference: reference.clone(),
            entries: args.entries,
            lookups: args.lookups,
            cold_lookups: args.cold_lookups,
            each_lookups: args.each_lookups,
            cache,
        };
        let loaded = spawn(&Work::Load(task.clone()))?;
        let (cold, mut rows): (Cold, Vec<Row>) = spawn(&Work::AskCold(task.clone()))?;
        let (warm, more): (Warm, Vec<Row>) = spawn(&Work::AskWarm(task))?;
        rows.extend(more);
        reports.push(PeerReport { name: peer.name(), settings: peer.settings(), loaded, cold, warm, rows });
        fs::remove_dir_all(&dir)?;
    }
    let conditions = FilesConditions {
        entries: args.entries,
        versions: Workload::new(args.entries).versions(),
        blocks: BLOCKS,
        machine: Conditions::of(folder.path()),
        cache_bytes: cache,
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    if args.json {
        print!("{}", report::study(&run, &conditions, &flat_rows(&reports)));
        return Ok(());
    }
    table::print(&conditions, &reports);
    Ok(())
}

/// Writes the file whose pages are touched: of random bytes, so that no file system makes holes of them.
fn write_reference(path: &Path) -> Outcome {
    let mut bytes = vec![0; REFERENCE_BYTES];
    SplitMix64::new(1).fill(&mut bytes);
    Ok(fs::write(path, bytes)?)
}

fn is_asked_for(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

/// The length of a key with the inverted block after it.
const VERSIONED_LEN: usize = size_of::<Key>() + size_of::<u64>();

/// A key and the inverted block, so that the newest version at or below a block is the first at or after its key.
fn versioned(key: &Key, block: u64) -> [u8; VERSIONED_LEN] {
    let mut versioned = [0; VERSIONED_LEN];
    let (front, back) = versioned.split_at_mut(key.len());
    front.copy_from_slice(key);
    back.copy_from_slice(&(!block).to_be_bytes());
    versioned
}

/// Gathers blocks until they have this many changes, then hands them on in the order of [`versioned`]: what a B-tree takes best.
fn in_sorted_groups(
    blocks: &mut dyn Iterator<Item = Block>,
    changes_min: usize,
    mut write: impl FnMut(&[(Key, u64, Value)]) -> Outcome,
) -> Outcome {
    let mut group = Vec::new();
    let mut flush = |group: &mut Vec<(Key, u64, Value)>| {
        group.sort_unstable_by_key(|(key, block, _)| (*key, !block));
        write(group)?;
        group.clear();
        Outcome::Ok(())
    };
    for block in blocks {
        group.extend(block.changes.iter().map(|change| (change.key, block.height, change.value)));
        if group.len() >= changes_min {
            flush(&mut group)?;
        }
    }
    flush(&mut group)
}

/// How many changes go into one transaction of a B-tree.
const GROUP_CHANGES: usize = 1 << 19;
