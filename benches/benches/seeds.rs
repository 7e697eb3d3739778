//! What a state costs with and without a root: the maps of the standard library beside the tree, and the hash functions.
//!
//! The questions are those of the study `altuslabsxyz/evidence` (crates `bench-authenticated-struct` and
//! `bench-hash-commitment`), asked of this tree with this code. The baseline of a commitment is theirs too: BLAKE3 over the
//! changed entries, chained from block to block, which commits to a history but proves no key.
//!
//! A map gives the value of a key, the tree the path that proves it; so `seed_get` says what a proof costs beside a lookup.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use icecore_benches::{DOMAIN, fold, size};
use icecore_hot::{Batch, HotTree, KeyHash, Loader, Options, Parallelism, PathProof, Root};
use icecore_tools::workload::SplitMix64;
use sha2::{Digest, Sha256};
use sha3::Keccak256;

type Key = [u8; 32];
type Entries = Vec<(Key, Key)>;
type Hash = fn(&[u8]) -> Key;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let keys = size(1 << 17, 1 << 10);
    let state = entries(0..keys, 0);
    let mut tree = load(&state);
    get(&mut criterion, &state, &tree);
    set(&mut criterion, &state, &mut tree);
    commit(&mut criterion, keys, &mut tree);
    blocks(&mut criterion);
    hash(&mut criterion);
    criterion.final_summary();
}

/// Entries of numbered keys, in no order, with the values of a version.
fn entries(numbers: impl Iterator<Item = u64>, version: u64) -> Entries {
    let bytes = |seed: u64| {
        let mut bytes = [0; 32];
        SplitMix64::new(seed).fill(&mut bytes);
        bytes
    };
    numbers.map(|number| (bytes(number), bytes(number ^ (version + 1) << 48))).collect()
}

/// One thread, as the maps have.
fn alone() -> Options {
    let mut options = Options::default();
    options.parallelism = Parallelism::Off;
    options
}

fn load(state: &Entries) -> HotTree {
    let mut loader = Loader::new(alone());
    state.iter().for_each(|(key, value)| loader.push(DOMAIN, key, value));
    loader.finish()
}

fn put_all(batch: &mut Batch, entries: &Entries) {
    batch.clear();
    entries.iter().for_each(|(key, value)| batch.put(DOMAIN, key, value));
}

/// Dirty entries of a state, each once.
fn dirty(keys: u64, count: u64, version: u64) -> Entries {
    let mut numbers: Vec<u64> = (0..keys).collect();
    SplitMix64::new(version).shuffle(&mut numbers);
    entries(numbers.into_iter().take(count as usize), version)
}

fn get(criterion: &mut Criterion, state: &Entries, tree: &HotTree) {
    let mut asked: Vec<Key> = state.iter().map(|(key, _)| *key).collect();
    SplitMix64::new(1).shuffle(&mut asked);
    let hash: HashMap<Key, Key> = state.iter().copied().collect();
    let btree: BTreeMap<Key, Key> = state.iter().copied().collect();
    let sum = |get: &dyn Fn(&Key) -> Option<Key>| {
        asked.iter().fold(0, |sum, key| fold(sum, get(key).as_ref().map(|value| &value[..])))
    };
    assert_eq!(sum(&|key| hash.get(key).copied()), sum(&|key| btree.get(key).copied()), "maps agree");
    let prove = |key: &Key| tree.prove(&KeyHash::of(DOMAIN, key));
    assert!(asked.iter().all(|key| matches!(prove(key), PathProof::Present(_))));
    let mut group = criterion.benchmark_group("seed_get");
    let keys = state.len();
    let mut next = asked.iter().cycle();
    let mut key = || next.next().expect("a cycle goes on");
    group.bench_function(format!("keys={keys} map=hash"), |bencher| {
        bencher.iter(|| black_box(hash.get(key())));
    });
    group.bench_function(format!("keys={keys} map=btree"), |bencher| {
        bencher.iter(|| black_box(btree.get(key())));
    });
    group.bench_function(format!("keys={keys} map=tree"), |bencher| {
        bencher.iter(|| black_box(prove(key())));
    });
    group.finish();
}

/// New values of a thousand keys; the tree has its new root then too.
fn set(criterion: &mut Criterion, state: &Entries, tree: &mut HotTree) {
    let keys = state.len() as u64;
    let changes = dirty(keys, size(1000, 100), 1);
    let mut hash: HashMap<Key, Key> = state.iter().copied().collect();
    let mut btree: BTreeMap<Key, Key> = state.iter().copied().collect();
    let mut group = criterion.benchmark_group("seed_set");
    group.throughput(Throughput::Elements(changes.len() as u64));
    let id = |map: &str| format!("keys={keys} changes={} map={map}", changes.len());
    group.bench_function(id("hash"), |bencher| {
        bencher.iter(|| {
            changes.iter().for_each(|(key, value)| {
                black_box(hash.insert(*key, *value));
            });
        });
    });
    group.bench_function(id("btree"), |bencher| {
        bencher.iter(|| {
            changes.iter().for_each(|(key, value)| {
                black_box(btree.insert(*key, *value));
            });
        });
    });
    let mut batch = Batch::new();
    group.bench_function(id("tree"), |bencher| {
        bencher.iter_custom(|rounds| {
            let rounds = (0..rounds).map(|_| {
                timed_and_undone(tree, |tree| {
                    put_all(&mut batch, &changes);
                    tree.apply(&batch)
                })
            });
            rounds.sum()
        });
    });
    group.finish();
}

/// The time of `apply` alone; what it did is taken back, so that every round meets the same tree.
fn timed_and_undone(
    tree: &mut HotTree,
    apply: impl FnOnce(&mut HotTree) -> (Root, icecore_hot::Undo),
) -> Duration {
    let loaded = tree.root();
    let start = Instant::now();
    let (root, undo) = apply(tree);
    let time = start.elapsed();
    assert_ne!(root, loaded);
    assert_eq!(tree.undo(undo), loaded);
    time
}

fn commit(criterion: &mut Criterion, keys: u64, tree: &mut HotTree) {
    let mut group = criterion.benchmark_group("seed_commit");
    group.sample_size(10);
    for count in [100, 1000, 10_000, 100_000].map(|count| size(count, count / 100)) {
        let changes = dirty(keys, count, 2);
        let mut batch = Batch::new();
        put_all(&mut batch, &changes);
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("keys={keys} dirty={count} root=tree"), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds).map(|_| timed_and_undone(tree, |tree| tree.apply(&batch))).sum()
            });
        });
        group.bench_function(format!("keys={keys} dirty={count} root=blake3"), |bencher| {
            bencher.iter(|| black_box(chained(&[0; 32], &changes)));
        });
    }
    group.finish();
}

/// BLAKE3 over the commitment before and the changed entries.
fn chained(before: &Key, changes: &Entries) -> Key {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before);
    for (key, value) in changes {
        hasher.update(key).update(value);
    }
    *hasher.finalize().as_bytes()
}

/// Three blocks of new keys in a row, from an empty state, each committed to.
fn blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("seed_blocks");
    group.sample_size(10);
    for count in [100, 1000, 10_000, 100_000].map(|count| size(count, count / 100)) {
        let blocks = [0, 1, 2].map(|block| entries(block * count..(block + 1) * count, block));
        let mut all = Batch::new();
        put_all(&mut all, &blocks.concat());
        let expected = HotTree::new(alone()).apply(&all).0;
        group.throughput(Throughput::Elements(3 * count));
        group.bench_function(format!("blocks=3 entries={count} map=tree"), |bencher| {
            bencher.iter_batched_ref(
                || (HotTree::new(alone()), Batch::new()),
                |(tree, batch)| {
                    for block in &blocks {
                        put_all(batch, block);
                        black_box(tree.apply(batch));
                    }
                    assert_eq!(tree.root(), expected);
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("blocks=3 entries={count} map=hash root=blake3"), |bencher| {
            bencher.iter_batched_ref(
                HashMap::new,
                |map| {
                    blocks.iter().fold([0; 32], |before, block| {
                        map.extend(block.iter().copied());
                        black_box(chained(&before, block))
                    })
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn hash(criterion: &mut Criterion) {
    let hashes: [(&str, Hash); 3] = [
        ("keccak256", |bytes| Keccak256::digest(bytes).into()),
        ("sha256", |bytes| Sha256::digest(bytes).into()),
        ("blake3", |bytes| *blake3::hash(bytes).as_bytes()),
    ];
    // The first bytes of what each gives for nothing, from their specifications.
    let empty = [[0xc5, 0xd2, 0x46, 0x01], [0xe3, 0xb0, 0xc4, 0x42], [0xaf, 0x13, 0x49, 0xb9]];
    let mut group = criterion.benchmark_group("seed_hash");
    let input: Vec<u8> =
        entries(0..64, 0).into_iter().flat_map(|(key, value)| [key, value]).flatten().collect();
    for ((name, hash), empty) in hashes.into_iter().zip(empty) {
        assert_eq!(hash(b"")[..4], empty, "{name}");
        for bytes in [32, 64, 256, 1024, 4096] {
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(format!("hash={name} bytes={bytes}"), |bencher| {
                bencher.iter(|| hash(black_box(&input[..bytes])));
            });
        }
    }
    group.finish();
}
