//! The hot layer: a batch and its root, taking it back, proofs.
//!
//! Its knobs and the machine's own roofs are shown by `cargo run --release -p icecore-hot --example updates`; what stands here is
//! to notice when one of them changes.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use icecore_benches::{DOMAIN, size};
use icecore_hot::{Batch, HotTree, KeyHash, Loader, Options, Parallelism};
use icecore_tools::workload::SplitMix64;

const KEY_LEN: usize = 52;
const VALUE_LEN: usize = 32;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let keys = size(1 << 20, 1 << 10);
    apply_and_undo(&mut criterion, keys, size(1 << 14, 1 << 6));
    prove(&mut criterion, keys);
    criterion.final_summary();
}

fn key(number: u64) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    SplitMix64::new(number).fill(&mut key);
    key
}

fn value(number: u64, version: u64) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    SplitMix64::new(number ^ version.rotate_left(32)).fill(&mut value);
    value
}

fn tree_of(keys: u64, parallelism: Parallelism) -> HotTree {
    let mut options = Options::default();
    options.parallelism = parallelism;
    let mut loader = Loader::new(options);
    for number in 0..keys {
        loader.push(DOMAIN, &key(number), &value(number, 0));
    }
    loader.finish()
}

fn batch_of(changes: u64, keys: u64, version: u64) -> Batch {
    let mut random = SplitMix64::new(version);
    let mut batch = Batch::new();
    for _ in 0..changes {
        let number = random.below(keys);
        batch.put(DOMAIN, &key(number), &value(number, version));
    }
    batch
}

fn apply_and_undo(criterion: &mut Criterion, keys: u64, changes: u64) {
    let mut tree = tree_of(keys, Parallelism::Off);
    let loaded = tree.root();
    let mut one_by_one = HotTree::new(Options::default());
    for first in (0..keys).step_by(1 << 16) {
        let mut batch = Batch::new();
        (first..keys.min(first + (1 << 16)))
            .for_each(|number| batch.put(DOMAIN, &key(number), &value(number, 0)));
        one_by_one.apply(&batch);
    }
    assert_eq!(one_by_one.root(), loaded, "the root depends on the state alone");
    drop(one_by_one);

    let mut group = criterion.benchmark_group("hot_apply_and_undo");
    group.throughput(Throughput::Elements(changes)).sample_size(20);
    let mut version = 0;
    group.bench_function(format!("keys={keys} batch={changes} threads=1"), |bencher| {
        bencher.iter_batched_ref(
            || {
                version += 1;
                batch_of(changes, keys, version)
            },
            |batch| {
                let (root, undo) = tree.apply(batch);
                assert_ne!(root, loaded);
                black_box(tree.undo(undo))
            },
            criterion::BatchSize::LargeInput,
        );
    });
    group.finish();
    assert_eq!(tree.root(), loaded, "what was applied was taken back");
}

fn prove(criterion: &mut Criterion, keys: u64) {
    let tree = tree_of(keys, Parallelism::Off);
    let root = tree.root();
    let hashes: Vec<KeyHash> =
        (0..keys.min(1 << 12)).map(|number| KeyHash::of(DOMAIN, &key(number))).collect();
    let proof = |number: u64| {
        let source =
            |_: &KeyHash| Some((DOMAIN.into(), key(number).to_vec(), value(number, 0).to_vec()).into());
        tree.prove(&hashes[number as usize])
            .complete(DOMAIN, &key(number), source)
            .expect("the key is present")
    };
    let proofs: Vec<_> = (0..hashes.len() as u64).map(proof).collect();
    for (number, proof) in (0u64..).zip(&proofs) {
        proof.verify(&root, DOMAIN, &key(number), Some(&value(number, 0))).expect("a proof just made holds");
    }

    let mut next = (0..hashes.len()).cycle();
    criterion.bench_function(&format!("hot_path/keys={keys}"), |bencher| {
        bencher.iter(|| black_box(tree.prove(&hashes[next.next().expect("a cycle goes on")])));
    });
    let mut next = (0..hashes.len()).cycle();
    criterion.bench_function(&format!("proof_verify/keys={keys} hit=1.0"), |bencher| {
        bencher.iter(|| {
            let i = next.next().expect("a cycle goes on");
            let (key, value) = (key(i as u64), value(i as u64, 0));
            black_box(proofs[i].verify(&root, DOMAIN, &key, Some(&value))).expect("a proof just made holds");
        });
    });
}
