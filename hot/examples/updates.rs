//! Updates per second of the tree, beside what the machine can do, in one run.
//!
//! ```text
//! cargo run --release -p icecore-hot --features measure --example updates -- [log2 keys] [log2 batch] [threads] [name=value ..]
//! ```
//!
//! 85 % of a batch are new values of random keys, 10 % new keys, 5 % deletions. A key is 52 bytes in the domain
//! `storage`, a value 32. Names: `backend=auto|avx512|avx2|neon|portable`, `roots=<bits>`, `prefetch=<distance, 0 off>`,
//! `huge=on|off`, `batches=<count>`, `grow=on` (also grows a tree from nothing and reports the longest batch). Last comes what a
//! snapshot adds to a block of 300 changes.

mod process;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use icecore_hot::measure::{Keys, Roofs, key, value};
use icecore_hot::{
    Batch, DirtyKeys, HashBackend, HotTree, HugePages, Loader, Options, Parallelism, Prefetch, SubtreeRoots,
};
use process::{Times, rate, resident_bytes};

struct Settings {
    keys: usize,
    batch: usize,
    batches: usize,
    grow: bool,
    options: Options,
}

fn settings() -> Settings {
    let mut options = Options::default();
    let mut numbers = Vec::new();
    let (mut batches, mut grow) = (0, false);
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            None => numbers.push(arg.parse::<usize>().expect("a number")),
            Some(("backend", name)) => {
                options.hash_backend = match name {
                    "avx512" => HashBackend::Avx512,
                    "avx2" => HashBackend::Avx2,
                    "neon" => HashBackend::Neon,
                    "portable" => HashBackend::Portable,
                    _ => HashBackend::Auto,
                }
            }
            Some(("roots", bits)) => {
                options.subtree_roots = SubtreeRoots::from_bits(bits.parse().expect("bits"));
            }
            Some(("prefetch", distance)) => {
                let distance = NonZeroUsize::new(distance.parse().expect("a distance"));
                options.prefetch = distance.map_or(Prefetch::Off, Prefetch::Distance);
            }
            Some(("huge", state)) => {
                options.huge_pages = if state == "off" { HugePages::Off } else { HugePages::Ask };
            }
            Some(("batches", count)) => batches = count.parse().expect("a count"),
            Some(("grow", state)) => grow = state == "on",
            Some((name, _)) => panic!("no setting is called {name}"),
        }
    }
    let at = |i: usize, default: usize| numbers.get(i).copied().unwrap_or(default);
    options.parallelism = match at(2, 1) {
        0 | 1 => Parallelism::Off,
        threads => Parallelism::Threads(NonZeroUsize::new(threads).expect("not zero")),
    };
    let (keys, batch) = (1 << at(0, 20), 1 << at(1, 17));
    if batches == 0 {
        batches = ((4 << 20) / batch).clamp(8, 2000);
    }
    Settings { keys, batch, batches, grow, options }
}

fn roofline(options: &Options) {
    let roofs = Roofs::measure(options, 1 << 30, |work| Times::of(|| std::hint::black_box(work())).0.cpu);
    println!("64-byte hashes:        {:8.1} M per second on the CPU", roofs.hashes);
    println!("random lines of 1 GiB: {:8.1} M per second on the CPU", roofs.lines);
    println!("the same, in a chain:  {:8.1} M per second on the CPU", roofs.chained);
}

fn load(settings: &Settings) -> HotTree {
    let start = Instant::now();
    let mut loader = Loader::new(settings.options);
    for id in 0..settings.keys as u64 {
        loader.push("storage", &key(id), &value(id, 0));
    }
    let pushed = start.elapsed();
    let tree = loader.finish();
    let all = start.elapsed();
    println!(
        "load: {:.2} s ({:.2} s of it push), {:.1} M keys/s",
        all.as_secs_f64(),
        pushed.as_secs_f64(),
        rate(settings.keys, all)
    );
    tree
}

fn grow(settings: &Settings) {
    let mut tree = HotTree::new(settings.options);
    let mut batch = Batch::new();
    let (mut longest, mut total) = (Duration::ZERO, Duration::ZERO);
    for from in (0..settings.keys).step_by(settings.batch) {
        batch.clear();
        for id in from..from + settings.batch {
            batch.put("storage", &key(id as u64), &value(id as u64, 0));
        }
        let start = Instant::now();
        tree.apply(&batch);
        longest = longest.max(start.elapsed());
        total += start.elapsed();
    }
    let mean = total / (settings.keys / settings.batch) as u32;
    println!(
        "grown from nothing: {:.2} M insertions/s, batch mean {:.1} ms, longest {:.1} ms",
        rate(settings.keys, total),
        mean.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3
    );
    report_memory(&tree);
}

/// What a snapshot adds to its block: the rows above what the blocks since the last one changed, beside the block itself.
fn snapshots(tree: &mut HotTree, keys: &mut Keys) {
    const CHANGES: usize = 300;
    let mut batch = Batch::new();
    for blocks in [64, 1024] {
        let (mut rows, mut applied) = (Vec::new(), Vec::new());
        for salt in 0..4 {
            let mut changed = DirtyKeys::new();
            for block in 0..blocks {
                keys.fill(&mut batch, CHANGES, (salt + 10) * blocks + block);
                let start = Instant::now();
                let (_, undo) = tree.apply(&batch);
                applied.push(start.elapsed());
                changed.add(&undo);
            }
            let mut visited = 0;
            let start = Instant::now();
            tree.changed_nodes(&mut changed, 4, |_, _, _| visited += 1);
            rows.push((start.elapsed(), visited));
        }
        applied.sort_unstable();
        rows.sort_unstable();
        println!(
            "a snapshot of {blocks} blocks of {CHANGES} changes: {} rows in {:.2} ms, a block {:.2} ms",
            rows[0].1,
            rows[0].0.as_secs_f64() * 1e3,
            applied[applied.len() / 2].as_secs_f64() * 1e3
        );
    }
}

fn report_memory(tree: &HotTree) {
    let memory = tree.memory();
    let keys = memory.keys as f64;
    println!(
        "memory: {:.1} B/key (leaves {:.1}, nodes {:.1}, spare {:.1}, unused {:.1}), buffers {:.0} MiB, huge pages {}",
        memory.bytes_per_key(),
        memory.leaves as f64 / keys,
        memory.nodes as f64 / keys,
        memory.spare as f64 / keys,
        memory.free as f64 / keys,
        memory.buffers as f64 / f64::from(1 << 20),
        memory.huge_pages,
    );
}

fn main() {
    let settings = settings();
    println!(
        "keys=2^{} batch=2^{} backend={:?} {:?}",
        settings.keys.ilog2(),
        settings.batch.ilog2(),
        settings.options.hash_backend.resolve(),
        settings.options
    );
    roofline(&settings.options);
    if settings.grow {
        grow(&settings);
    }
    let before = resident_bytes();
    let mut tree = load(&settings);
    report_memory(&tree);
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        println!(
            "resident: {:.1} B/key more than before",
            after.saturating_sub(before) as f64 / tree.len() as f64
        );
    }
    let mut keys = Keys::new(settings.keys);
    let mut batch = Batch::new();
    let (mut put, mut applied, mut undone) = (Duration::ZERO, Vec::new(), Duration::ZERO);
    let mut times = Times::default();
    for salt in 0..settings.batches as u64 {
        let start = Instant::now();
        keys.fill(&mut batch, settings.batch, salt + 1);
        put += start.elapsed();
        if salt % 4 == 3 {
            let root = tree.root();
            let (_, undo) = tree.apply(&batch);
            let start = Instant::now();
            assert_eq!(tree.undo(undo), root, "undo gives back the root");
            undone += start.elapsed();
        }
        let (time, _) = Times::of(|| tree.apply(&batch));
        applied.push(time.wall);
        times.add(time);
    }
    applied.sort_unstable();
    let median = applied[applied.len() / 2];
    println!(
        "updates: {:.2} M/s in all, {:.2} M/s in the median batch",
        rate(settings.batch * settings.batches, times.wall),
        rate(settings.batch, median)
    );
    if settings.options.parallelism == Parallelism::Off {
        println!(
            "updates: {:.2} M per second on the CPU",
            rate(settings.batch * settings.batches, times.cpu)
        );
    }
    println!(
        "batch: median {:.3} ms, longest {:.3} ms of {}",
        median.as_secs_f64() * 1e3,
        applied[applied.len() - 1].as_secs_f64() * 1e3,
        applied.len()
    );
    println!(
        "filling the batches: {:.1} ns per change, keys and values made up included",
        put.as_secs_f64() * 1e9 / (settings.batch * settings.batches) as f64
    );
    println!("undo: {:.2} M/s", rate(settings.batch * (settings.batches / 4), undone));
    report_memory(&tree);
    println!("root {}", tree.root());
    snapshots(&mut tree, &mut keys);
}
