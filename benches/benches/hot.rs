//! The hot layer: batches over every knob, taking them back, loading, proofs.
//!
//! The figures that bind, and the machine's own roofs, are shown by `cargo run --release -p icecore-tools --bin icecore-figures -- hot`; what
//! stands here is the effect of each knob, and notices when one of them changes.

use std::hint::black_box;
use std::num::NonZeroUsize;

use criterion::{BatchSize, Criterion, Throughput};
use icecore_benches::{DOMAIN, size};
use icecore_hot::measure::{key, value};
use icecore_hot::{
    Batch, BatchProof, HashBackend, HotTree, HugePages, KeyHash, Loader, Options, Parallelism, Prefetch,
    Proof, RadixShape, SubtreeRoots,
};
use icecore_tools::workload::SplitMix64;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let keys = size(1 << 20, 1 << 10);
    batches_and_roots_agree(keys.min(1 << 16));
    update_over_sizes(&mut criterion);
    update_over_knobs(&mut criterion, keys, size(1 << 14, 1 << 6));
    unwind(&mut criterion, keys, size(1 << 14, 1 << 6));
    load(&mut criterion, size(1 << 18, 1 << 10));
    prove(&mut criterion, keys);
    criterion.final_summary();
}

/// One thread, unless a bench is about threads.
fn alone() -> Options {
    let mut options = Options::default();
    options.parallelism = Parallelism::Off;
    options
}

fn tree_of(keys: u64, options: Options) -> HotTree {
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

fn batches_and_roots_agree(keys: u64) {
    let loaded = tree_of(keys, alone()).root();
    let mut grown = HotTree::new(alone());
    for first in (0..keys).step_by(1 << 12) {
        let mut batch = Batch::new();
        (first..keys.min(first + (1 << 12)))
            .for_each(|number| batch.put(DOMAIN, &key(number), &value(number, 0)));
        grown.apply(&batch);
    }
    assert_eq!(grown.root(), loaded, "the root depends on the state alone");
}

/// A batch is applied and taken back, so that every round meets the same tree.
fn update(criterion: &mut Criterion, name: &str, keys: u64, changes: u64, options: Options) {
    let mut tree = tree_of(keys, options);
    let loaded = tree.root();
    let mut group = criterion.benchmark_group("hot_apply_and_undo");
    group.throughput(Throughput::Elements(changes)).sample_size(10);
    let mut version = 0;
    group.bench_function(format!("keys={keys} batch={changes} {name}"), |bencher| {
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
            BatchSize::LargeInput,
        );
    });
    group.finish();
    assert_eq!(tree.root(), loaded, "what was applied was taken back");
}

fn update_over_sizes(criterion: &mut Criterion) {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for keys in [size(1 << 16, 1 << 8), size(1 << 20, 1 << 10), size(1 << 22, 1 << 11)] {
        for changes in [size(1 << 9, 1 << 3), size(1 << 13, 1 << 5), size(1 << 17, 1 << 12)] {
            update(criterion, "threads=1", keys, changes, alone());
        }
    }
    for count in (0..).map(|power| 1 << power).take_while(|count| *count <= threads).skip(1) {
        let mut options = alone();
        options.parallelism = NonZeroUsize::new(count).map_or(Parallelism::Off, Parallelism::Threads);
        let name = format!("threads={count}");
        update(criterion, &name, size(1 << 20, 1 << 10), size(1 << 17, 1 << 12), options);
    }
}

fn update_over_knobs(criterion: &mut Criterion, keys: u64, changes: u64) {
    for bits in [0, 4, 8, 12] {
        let mut options = alone();
        options.subtree_roots = SubtreeRoots::from_bits(bits);
        let name = format!("subtree_roots={}", options.subtree_roots.count());
        update(criterion, &name, keys, changes, options);
    }
    for (name, levels) in [("flat", &[][..]), ("4", &[4; 13]), ("8", &[8; 7]), ("16", &[16; 3])] {
        let mut options = alone();
        options.radix_shape = RadixShape::of_levels(levels);
        update(criterion, &format!("radix_shape={name}"), keys, changes, options);
    }
    for distance in [0, 2, 8, 32] {
        let mut options = alone();
        options.prefetch = NonZeroUsize::new(distance).map_or(Prefetch::Off, Prefetch::Distance);
        update(criterion, &format!("prefetch={distance}"), keys, changes, options);
    }
    for (name, huge_pages) in [("off", HugePages::Off), ("ask", HugePages::Ask)] {
        let mut options = alone();
        options.huge_pages = huge_pages;
        update(criterion, &format!("huge_pages={name}"), keys, changes, options);
    }
    let backends = [
        ("avx512", HashBackend::Avx512),
        ("avx2", HashBackend::Avx2),
        ("neon", HashBackend::Neon),
        ("portable", HashBackend::Portable),
    ];
    // A backend that this machine lacks would measure another one under its name.
    for (name, backend) in backends.into_iter().filter(|(_, backend)| backend.resolve() == *backend) {
        let mut options = alone();
        options.hash_backend = backend;
        update(criterion, &format!("backend={name}"), keys, changes, options);
    }
}

fn unwind(criterion: &mut Criterion, keys: u64, changes: u64) {
    let mut tree = tree_of(keys, alone());
    let loaded = tree.root();
    let batch = batch_of(changes, keys, 1);
    let mut group = criterion.benchmark_group("hot_unwind");
    group.throughput(Throughput::Elements(changes)).sample_size(10);
    group.bench_function(format!("keys={keys} batch={changes}"), |bencher| {
        bencher.iter_custom(|rounds| {
            (0..rounds)
                .map(|_| {
                    let (_, undo) = tree.apply(&batch);
                    let start = std::time::Instant::now();
                    assert_eq!(black_box(tree.undo(undo)), loaded);
                    start.elapsed()
                })
                .sum()
        });
    });
    group.finish();
}

fn load(criterion: &mut Criterion, keys: u64) {
    let state: Vec<_> = (0..keys).map(|number| (key(number), value(number, 0))).collect();
    let root = tree_of(keys, alone()).root();
    let mut group = criterion.benchmark_group("hot_load");
    group.throughput(Throughput::Elements(keys)).sample_size(10);
    group.bench_function(format!("keys={keys} threads=1"), |bencher| {
        bencher.iter(|| {
            let entries = state.iter().map(|(key, value)| (DOMAIN, &key[..], &value[..]));
            assert_eq!(HotTree::load(alone(), entries).root(), root);
        });
    });
    group.finish();
}

fn prove(criterion: &mut Criterion, keys: u64) {
    let tree = tree_of(keys, alone());
    let root = tree.root();
    let count = keys.min(1 << 10);
    let numbers: std::collections::HashMap<KeyHash, u64> =
        (0..keys).map(|number| (KeyHash::of(DOMAIN, &key(number)), number)).collect();
    let source = |hash: &KeyHash| {
        let number = *numbers.get(hash)?;
        Some((DOMAIN.into(), key(number).to_vec(), value(number, 0).to_vec()).into())
    };
    for (hit, first) in [("1.0", 0), ("0.0", keys)] {
        let hashes: Vec<KeyHash> =
            (first..first + count).map(|number| KeyHash::of(DOMAIN, &key(number))).collect();
        let shown = |number: u64| (number < keys).then(|| value(number, 0));
        let complete = |number: u64| {
            let path = tree.prove(&hashes[(number - first) as usize]);
            path.complete(DOMAIN, &key(number), source).expect("the state has all entries")
        };
        let proofs: Vec<Proof> = (first..first + count).map(complete).collect();
        let verify = |number: u64| {
            let value = shown(number);
            let proof = &proofs[(number - first) as usize];
            proof
                .verify(&root, DOMAIN, &key(number), value.as_ref().map(|value| &value[..]))
                .expect("a proof just made holds");
        };
        (first..first + count).for_each(verify);
        let id = format!("keys={keys} hit={hit}");
        let mut next = (0..hashes.len()).cycle();
        criterion.bench_function(&format!("hot_path/{id}"), |bencher| {
            bencher.iter(|| black_box(tree.prove(&hashes[next.next().expect("a cycle goes on")])));
        });
        let mut next = (first..first + count).cycle();
        criterion.bench_function(&format!("proof_verify/{id}"), |bencher| {
            bencher.iter(|| verify(black_box(next.next().expect("a cycle goes on"))));
        });
        let batch = BatchProof { proofs: proofs.iter().take(100).cloned().collect() };
        criterion.bench_function(
            &format!("proof_batch_encode/{id} proofs={}", batch.proofs.len()),
            |bencher| {
                bencher.iter(|| black_box(batch.to_ics23_bytes()));
            },
        );
    }
}
