//! Six operations over the radix shapes of the arena: the table by which the default shape was chosen.
//!
//! ```text
//! cargo run --release -p icecore-hot --features measure --example shapes -- [log2 keys] [passes]
//! ```
//!
//! Nanoseconds per key in one thread, the lowest of all passes; the shapes take turns in each pass, so that other
//! work on the machine falls on all of them. `read`: the path of a present key, at random or in the order
//! of key hashes. `write`: batches of 1024 new values of random keys, or of keys that are neighbours. `sparse`,
//! `dense`: one batch of a thousandth, or a quarter, of all keys. `proof`: a path completed and encoded. `root`: a
//! batch of one change.

mod process;

use std::hint::black_box;

use icecore_hot::measure::{DOMAIN, key, mix, value};
use icecore_hot::{Batch, Entry, HotTree, KeyHash, Loader, Options, Parallelism, RadixShape};
use process::Times;

/// Breadth first, the seven of Asterisc's study, and two of the same bits everywhere.
const SHAPES: [&[u8]; 10] = [
    &[],
    &[4, 4, 4, 4, 4, 4, 4, 8, 8, 8],
    &[8, 8, 8, 8, 8, 8, 4],
    &[4; 13],
    &[8, 8, 8, 8, 8, 4, 4, 4],
    &[16, 16, 6, 6, 4, 4],
    &[16, 16, 6, 6, 4, 2, 2],
    &[10, 10, 10, 10, 12],
    &[2; 16],
    &[1; 16],
];
const COLUMNS: [&str; 8] =
    ["read rnd", "read seq", "write rnd", "write seq", "sparse", "dense", "proof", "root"];
/// Keys that are read in one pass, and changes of one batch of the writes.
const READS: usize = 1 << 14;
const WRITES: usize = 1 << 10;

/// A tree of one shape with what it was measured at so far.
struct Case {
    levels: &'static [u8],
    tree: HotTree,
    best: [f64; COLUMNS.len()],
}

/// The keys by number, in the order of their hashes.
struct Order(Vec<(KeyHash, u64)>);

impl Order {
    fn random(&self, count: usize, salt: u64) -> impl Iterator<Item = &(KeyHash, u64)> {
        (0..count as u64).map(move |i| &self.0[(mix(salt << 32 | i) % self.0.len() as u64) as usize])
    }

    fn neighbours(&self, count: usize, salt: u64) -> impl Iterator<Item = &(KeyHash, u64)> {
        let from = (mix(salt) % self.0.len() as u64) as usize;
        self.0.iter().cycle().skip(from).take(count)
    }
}

fn batch<'a>(keys: impl Iterator<Item = &'a (KeyHash, u64)>, salt: u64) -> Batch {
    let mut batch = Batch::new();
    keys.for_each(|&(_, id)| batch.put(DOMAIN, &key(id), &value(id, salt)));
    batch
}

impl Case {
    fn new(levels: &'static [u8], keys: u64) -> Self {
        let mut options = Options::default();
        options.parallelism = Parallelism::Off;
        options.radix_shape = RadixShape::of_levels(levels);
        let mut loader = Loader::new(options);
        (0..keys).for_each(|id| loader.push(DOMAIN, &key(id), &value(id, 0)));
        Self { levels, tree: loader.finish(), best: [f64::INFINITY; COLUMNS.len()] }
    }

    /// Notes the time of `work` on `count` keys.
    fn time(&mut self, column: usize, count: usize, work: impl FnOnce(&mut HotTree)) {
        let (time, ()) = Times::of(|| work(&mut self.tree));
        self.best[column] = self.best[column].min(time.wall.as_nanos() as f64 / count as f64);
    }

    fn pass(&mut self, order: &Order, salt: u64) {
        let keys = order.0.len();
        let read: [Vec<_>; 2] =
            [order.random(READS, salt).collect(), order.neighbours(READS, salt).collect()];
        for (column, keys) in read.iter().enumerate() {
            self.time(column, READS, |tree| {
                for (hash, _) in keys {
                    black_box(tree.prove(hash));
                }
            });
        }
        let batches = |salt: u64| (salt * 32..).take(READS / WRITES);
        let random: Vec<_> = batches(salt).map(|n| batch(order.random(WRITES, n), n)).collect();
        let neighbours: Vec<_> = batches(salt).map(|n| batch(order.neighbours(WRITES, n), n)).collect();
        let sparse = batch(order.random(keys >> 10, salt), salt);
        let dense = batch(order.random(keys >> 2, salt), salt);
        let single: Vec<_> = (0..256).map(|n| batch(order.random(1, salt << 8 | n), salt)).collect();
        let writes = [(2, random), (3, neighbours), (4, vec![sparse]), (5, vec![dense]), (7, single)];
        for (column, batches) in writes {
            let changes = batches.iter().map(Batch::len).sum();
            self.time(column, changes, |tree| {
                for batch in &batches {
                    black_box(tree.apply(batch));
                }
            });
        }
        let proven: Vec<_> = order.random(READS / 16, salt + 1).collect();
        self.time(6, proven.len(), |tree| {
            for (hash, id) in proven {
                let entry = Entry::from((DOMAIN.to_owned(), key(*id).to_vec(), value(*id, 0).to_vec()));
                let proof = tree.prove(hash).complete(DOMAIN, &key(*id), |_| Some(entry.clone()));
                black_box(proof.expect("a key that is there").to_ics23_bytes());
            }
        });
    }
}

fn main() {
    let numbers: Vec<u32> =
        std::env::args().skip(1).map(|arg| arg.parse().expect("a number: [log2 keys] [passes]")).collect();
    let at = |i: usize, default: u32| numbers.get(i).copied().unwrap_or(default);
    let (keys, passes) = (1u64 << at(0, 20), u64::from(at(1, 12)));
    let mut order: Vec<_> = (0..keys).map(|id| (KeyHash::of(DOMAIN, &key(id)), id)).collect();
    order.sort_unstable();
    let order = Order(order);
    let mut cases: Vec<Case> = SHAPES.iter().map(|levels| Case::new(levels, keys)).collect();
    for salt in 1..=passes {
        cases.iter_mut().for_each(|case| case.pass(&order, salt));
        let root = cases[0].tree.root();
        assert!(cases.iter().all(|case| case.tree.root() == root), "the root does not depend on the shape");
    }
    println!("2^{} keys, {passes} passes, ns per key", at(0, 20));
    print!("{:<32}", "shape");
    COLUMNS.iter().for_each(|column| print!("{column:>10}"));
    println!();
    for case in &cases {
        let name =
            if case.levels.is_empty() { "breadth first".to_owned() } else { format!("{:?}", case.levels) };
        print!("{:<32}", name.replace(' ', ""));
        case.best.iter().for_each(|best| print!("{best:>10.0}"));
        println!();
    }
}
