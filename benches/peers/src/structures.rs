//! `structures`: what it costs that a map commits to what it holds.
//!
//! | group | what is timed |
//! |---|---|
//! | `get` | 1,000 lookups of known keys |
//! | `set` | 1,000 new keys |
//! | `commitment` | the commitment to so many new entries |
//! | `sequential_blocks` | three blocks of so many new entries each, with a commitment after each |
//!
//! The groups are those of the study of authenticated structures of `altuslabsxyz/evidence`: random keys of 32 bytes, one small value.
//! Its sparse trie is not on crates.io. In its place stand [`EthTrie`], a Merkle Patricia trie of keccak that is updated in
//! place, and [`HashBuilder`], which makes the same root from all leaves in order.
//!
//! What is not the same: Icecore's tree holds hashes and no values, and setting and committing are one call. The archive keeps every
//! version, writes a log without waiting for it, and commits in every group but `get`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use alloy_trie::{HashBuilder, Nibbles};
use clap::Args;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, BenchmarkId, Criterion};
use eth_trie::{EthTrie, MemoryDB, Trie};
use foldhash::fast::RandomState;
use icecore::{Archive, Durability, OpenOptions, Options};
use icecore_hot::{Batch, HotTree};
use icecore_tools::machine::Conditions;
use icecore_tools::provenance::Provenance;
use icecore_tools::workload::SplitMix64;
use serde::Serialize;
use tempfile::TempDir;

use crate::Outcome;
use crate::report::{digits, print_table, study};
use crate::timing::{Time, TimingArgs, must};

/// How to compare structures.
#[derive(Args)]
pub(crate) struct StructuresArgs {
    /// Only these groups.
    #[arg(long = "group", value_parser = clap::builder::PossibleValuesParser::new(GROUPS.map(|(group, ..)| group)))]
    groups: Vec<String>,
    #[command(flatten)]
    timing: TimingArgs,
    /// Write JSON to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A group: what to time at which sizes.
type Group =
    (&'static str, &'static [usize], fn(&mut BenchmarkGroup<'_, WallTime>, usize) -> Vec<&'static str>);

const GROUPS: [Group; 4] = [
    ("get", &[1000, 10_000, 100_000], time_get),
    ("set", &[1000, 10_000], time_set),
    ("commitment", &[100, 1000, 10_000, 100_000], time_commitment),
    ("sequential_blocks", &[100, 1000, 10_000, 100_000], time_blocks),
];

/// How many keys are looked up or set.
const OPERATIONS: usize = 1000;

/// A number of one byte, as RLP has it.
const VALUE: [u8; 1] = [42];

const DOMAIN: &str = "state";

type Key = [u8; 32];

/// Random keys, others for each seed.
fn keys(seed: u64, count: usize) -> Vec<Key> {
    let mut random = SplitMix64::new(seed);
    let mut keys = vec![[0; 32]; count];
    keys.iter_mut().for_each(|key| random.fill(key));
    keys
}

/// One series.
#[derive(Serialize)]
struct Row {
    group: &'static str,
    size: usize,
    peer: &'static str,
    #[serde(flatten)]
    time: Time,
}

/// Measures and prints.
pub(crate) fn run(args: &StructuresArgs) -> Outcome {
    let run = Provenance::of_this_run();
    let mut criterion: Criterion = args.timing.criterion()?;
    let mut rows = Vec::new();
    for (name, sizes, time) in GROUPS {
        if !args.groups.is_empty() && !args.groups.iter().any(|group| group == name) {
            continue;
        }
        let mut group = criterion.benchmark_group(name);
        for &size in sizes {
            for peer in time(&mut group, size) {
                let series = PathBuf::from(name).join(peer).join(size.to_string());
                rows.push(Row { group: name, size, peer, time: args.timing.estimate(&series)? });
            }
        }
        group.finish();
    }
    criterion.final_summary();
    if let Some(path) = &args.json {
        let conditions = serde_json::json!({ "machine": Conditions::of(&std::env::temp_dir()) });
        fs::write(path, study(&run, &conditions, &rows))?;
    }
    let line = |row: &Row| {
        vec![
            row.group.to_owned(),
            row.peer.to_owned(),
            row.size.to_string(),
            digits(row.time.median_ns / 1e3),
        ]
    };
    print_table("Structures", 2, &["group", "peer", "size", "us"], rows.iter().map(line).collect());
    Ok(())
}

/// A map with the hasher that the study has.
type Map = HashMap<Key, Vec<u8>, RandomState>;

fn map_of(keys: &[Key]) -> Map {
    keys.iter().map(|key| (*key, VALUE.to_vec())).collect()
}

fn tree_map_of(keys: &[Key]) -> BTreeMap<Key, Vec<u8>> {
    keys.iter().map(|key| (*key, VALUE.to_vec())).collect()
}

/// A trie with the entries, its root not made.
fn trie_of(keys: &[Key]) -> EthTrie<MemoryDB> {
    let mut trie = EthTrie::new(Arc::new(MemoryDB::new(true)));
    insert(&mut trie, keys);
    trie
}

fn insert(trie: &mut EthTrie<MemoryDB>, keys: &[Key]) {
    keys.iter().for_each(|key| must(trie.insert(key, &VALUE).map_err(Into::into)));
}

/// The tree of Icecore with the entries.
fn hot_of(keys: &[Key]) -> HotTree {
    let mut tree = HotTree::new(icecore_hot::Options::default());
    apply(&mut tree, keys);
    tree
}

fn apply(tree: &mut HotTree, keys: &[Key]) {
    let mut batch = Batch::new();
    keys.iter().for_each(|key| batch.put(DOMAIN, key, &VALUE));
    black_box(tree.apply(&batch));
}

/// An archive in a folder of its own, all of it in memory but the log.
struct Kept {
    archive: Archive,
    _folder: TempDir,
}

fn archive_of(keys: &[Key]) -> Outcome<Kept> {
    let folder = tempfile::tempdir()?;
    let open = OpenOptions::new().durability(Durability::Relaxed);
    let archive = Archive::create_with(folder.path().join("a.ice"), Options::new().domain(DOMAIN), open)?;
    commit(&archive, 0, keys)?;
    Ok(Kept { archive, _folder: folder })
}

fn commit(archive: &Archive, height: u64, keys: &[Key]) -> Outcome {
    let mut block = archive.begin(height)?;
    keys.iter().try_for_each(|key| block.put(DOMAIN, key, &VALUE))?;
    black_box(block.commit()?);
    Ok(())
}

/// The root of all leaves, which `keys` give in order.
fn built_root(sorted: &[Key]) -> [u8; 32] {
    let mut builder = HashBuilder::default();
    sorted.iter().for_each(|key| builder.add_leaf(Nibbles::unpack(key), &VALUE));
    builder.root().0
}

fn time_get(group: &mut BenchmarkGroup<'_, WallTime>, size: usize) -> Vec<&'static str> {
    let keys = keys(1, size);
    let wanted: Vec<Key> = (0..OPERATIONS).map(|number| keys[number * size / OPERATIONS]).collect();
    let (map, tree_map, mut trie) = (map_of(&keys), tree_map_of(&keys), trie_of(&keys));
    must(trie.root_hash().map_err(Into::into));
    let kept = must(archive_of(&keys));
    let view = must(kept.archive.reader().latest().map_err(Into::into));
    let mut time = |peer, get: &dyn Fn(&Key) -> bool| {
        assert!(get(&wanted[0]) && !get(&[0; 32]), "{peer} answers wrong");
        let id = BenchmarkId::new(peer, size);
        group.bench_function(id, |bencher| bencher.iter(|| wanted.iter().filter(|key| get(key)).count()));
        peer
    };
    vec![
        time("HashMap", &|key| black_box(map.get(key)).is_some()),
        time("BTreeMap", &|key| black_box(tree_map.get(key)).is_some()),
        time("eth_trie", &|key| must(trie.get(key).map_err(Into::into)).is_some()),
        time("icecore-archive", &|key| must(view.get(DOMAIN, key).map_err(Into::into)).is_some()),
    ]
}

/// Times a call on a state that is made anew for each.
fn time_on<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    peer: &'static str,
    size: usize,
    make: impl Fn() -> T,
    call: impl Fn(&mut T),
) -> &'static str {
    group.bench_function(BenchmarkId::new(peer, size), |bencher| {
        bencher.iter_batched_ref(&make, &call, BatchSize::LargeInput);
    });
    peer
}

fn time_set(group: &mut BenchmarkGroup<'_, WallTime>, size: usize) -> Vec<&'static str> {
    let (old, new) = (keys(1, size), keys(2, OPERATIONS));
    let value = || VALUE.to_vec();
    vec![
        time_on(
            group,
            "HashMap",
            size,
            || map_of(&old),
            |map| map.extend(new.iter().map(|key| (*key, value()))),
        ),
        time_on(
            group,
            "BTreeMap",
            size,
            || tree_map_of(&old),
            |map| map.extend(new.iter().map(|key| (*key, value()))),
        ),
        time_on(group, "eth_trie", size, || trie_of(&old), |trie| insert(trie, &new)),
        time_on(group, "icecore-hot, root included", size, || hot_of(&old), |tree| apply(tree, &new)),
    ]
}

fn time_commitment(group: &mut BenchmarkGroup<'_, WallTime>, size: usize) -> Vec<&'static str> {
    let keys = keys(1, size);
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(built_root(&sorted), must(trie_of(&keys).root_hash().map_err(Into::into)).0, "the same root");
    let rolled = || {
        let mut hasher = blake3::Hasher::new();
        keys.iter().for_each(|key| _ = hasher.update(key).update(&VALUE));
        hasher.finalize()
    };
    group.bench_function(BenchmarkId::new("blake3", size), |bencher| bencher.iter(rolled));
    let build = |bencher: &mut criterion::Bencher<'_, WallTime>| bencher.iter(|| built_root(&sorted));
    group.bench_function(BenchmarkId::new("alloy-trie HashBuilder", size), build);
    vec![
        "blake3",
        "alloy-trie HashBuilder",
        time_on(
            group,
            "eth_trie",
            size,
            || trie_of(&keys),
            |trie| {
                must(trie.root_hash().map(black_box).map(drop).map_err(Into::into));
            },
        ),
        time_on(group, "icecore-hot, set included", size, || hot_of(&[]), |tree| apply(tree, &keys)),
    ]
}

fn time_blocks(group: &mut BenchmarkGroup<'_, WallTime>, size: usize) -> Vec<&'static str> {
    let blocks = [1, 2, 3].map(|seed| keys(seed, size));
    let roll = |map: &mut Map| {
        let mut commitment = [0; 32];
        for block in &blocks {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&commitment);
            for key in block {
                map.insert(*key, VALUE.to_vec());
                hasher.update(key).update(&VALUE);
            }
            commitment = *hasher.finalize().as_bytes();
        }
        black_box(commitment);
    };
    vec![
        time_on(group, "HashMap and rolling blake3", size, Map::default, roll),
        time_on(
            group,
            "eth_trie",
            size,
            || trie_of(&[]),
            |trie| {
                for block in &blocks {
                    insert(trie, block);
                    must(trie.root_hash().map(black_box).map(drop).map_err(Into::into));
                }
            },
        ),
        time_on(
            group,
            "icecore-hot",
            size,
            || hot_of(&[]),
            |tree| blocks.iter().for_each(|block| apply(tree, block)),
        ),
        time_on(
            group,
            "icecore-archive",
            size,
            || must(archive_of(&[])),
            |kept| {
                let numbered = (1..).zip(&blocks);
                numbered.for_each(|(height, block)| must(commit(&kept.archive, height, block)));
            },
        ),
    ]
}
