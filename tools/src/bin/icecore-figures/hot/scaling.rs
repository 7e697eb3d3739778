//! What more threads give: the same batches with one thread and with several, and what the machine itself gives then of
//! hashing and of random reads.

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use icecore_hot::measure::{Keys, RandomLines, hash_blocks};
use icecore_hot::{Batch, Options};

use super::{Bench, load, options};

/// The numbers of threads, as their figures call them. Those above two are measured where there are as many processors.
const THREADS: [(usize, &str); 4] = [(2, "two"), (4, "four"), (8, "eight"), (16, "sixteen")];

/// A size of batch as its figures call it, and how many batches one thread and several apply in turn.
const BATCHES: [(u32, u64); 2] = [(17, 200), (11, 2000)];

/// What one thread and several took.
struct Pairs {
    /// Wall times of the same batch, of one thread and of several.
    times: Vec<[Duration; 2]>,
}

impl Pairs {
    /// The best of one thread over the best of several: other programs only make a batch longer.
    fn best(&self) -> f64 {
        let best = |of: usize| self.times.iter().map(|pair| pair[of]).min().unwrap_or_default().as_secs_f64();
        best(0) / best(1)
    }

    /// The ratio in the median pair: what a user of this machine sees.
    fn median(&self) -> f64 {
        let mut ratios: Vec<f64> =
            self.times.iter().map(|[one, several]| one.as_secs_f64() / several.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Measures so many times, and keeps the lowest ratio of each.
pub(super) fn measure(bench: &mut Bench, runs: u32) {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for (threads, name) in THREADS.into_iter().filter(|(threads, _)| *threads <= processors.max(2)) {
        let roofs = machine(&options(threads), 1 << (30 - bench.cut), threads);
        bench.figures.add(&format!("64-byte hashes: {name} threads / one"), roofs[0].best());
        bench.figures.add(&format!("random lines: {name} threads / one"), roofs[1].best());
        for (batch_bits, count) in BATCHES {
            let run = |_| batches(20 - bench.cut, batch_bits.min(17 - bench.cut), count, threads);
            let runs: Vec<Pairs> = (0..runs).map(run).collect();
            let lowest = |ratio: fn(&Pairs) -> f64| runs.iter().map(ratio).fold(f64::INFINITY, f64::min);
            let what = format!("2^20 keys, batch 2^{batch_bits}: {name} threads / one");
            bench.figures.add(&what, lowest(Pairs::best));
            bench.figures.add(&format!("{what}, median pair"), lowest(Pairs::median));
        }
    }
}

/// The same batches in two trees, of one thread and of several, in turn.
fn batches(bits: u32, batch_bits: u32, count: u64, threads: usize) -> Pairs {
    let (keys, batch) = (1usize << bits, 1usize << batch_bits);
    let mut trees = [load(options(1), keys), load(options(threads), keys)];
    let mut live = [Keys::new(keys), Keys::new(keys)];
    let mut changes = Batch::new();
    let mut times = Vec::new();
    for salt in 1..=count {
        let mut pair = [Duration::ZERO; 2];
        for ((tree, live), time) in trees.iter_mut().zip(&mut live).zip(&mut pair) {
            live.fill(&mut changes, batch, salt);
            let start = Instant::now();
            tree.apply(&changes);
            *time = start.elapsed();
        }
        assert_eq!(trees[0].root(), trees[1].root(), "the root does not depend on threads");
        times.push(pair);
    }
    Pairs { times }
}

/// Hashing, and random reads in this many bytes: a thread's worth of it alone, and as much for each of several threads.
/// The second time counts as that of one thread's worth.
fn machine(options: &Options, bytes: usize, threads: usize) -> [Pairs; 2] {
    const COUNT: usize = 1 << 21;
    let lines = RandomLines::new(options, bytes);
    let hashing: &(dyn Fn() -> u64 + Sync) = &|| hash_blocks(options, COUNT);
    let reading: &(dyn Fn() -> u64 + Sync) = &|| lines.read(COUNT);
    [hashing, reading].map(|work| {
        let time = |threads: usize| {
            let start = Instant::now();
            thread::scope(|scope| {
                (0..threads).for_each(|_| {
                    scope.spawn(|| black_box(work()));
                });
            });
            start.elapsed() / threads as u32
        };
        Pairs { times: (0..10).map(|_| [time(1), time(threads)]).collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_times_and_the_median_pair_are_told_apart() {
        let pair = |one, several| [Duration::from_millis(one), Duration::from_millis(several)];
        let pairs = Pairs { times: vec![pair(10, 9), pair(30, 10), pair(12, 6)] };
        assert!((pairs.best() - 10.0 / 6.0).abs() < 1e-9);
        assert!((pairs.median() - 2.0).abs() < 1e-9);
    }
}
