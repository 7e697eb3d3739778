//! What the tree is measured with: a workload, and the two things the tree is made of, alone.
//!
//! Those are hashing 64-byte blocks, and reading lines at random; what a machine can do of each is the roof that
//! the tree is measured against. Nothing here reads a clock: the caller times the calls, in the same run as the
//! tree. Used by the examples of this crate and by `icecore-figures hot`.

mod workload;

use std::hint::black_box;
use std::time::Duration;

pub use workload::{DOMAIN, Keys, key, mix, value};

use crate::hash::Line;
use crate::hash::simd::{LANES, Lanes};
use crate::memory::arena::{Lines, Pool, prefetch};
use crate::options::{HugePages, Options, Prefetch};

/// As many lines on their way as it takes to keep the memory busy; twice as many gave no more.
const LINES_PREFETCHED: usize = 64;

/// Hashes `count` blocks of 64 bytes, 16 at a time, and returns a checksum of the hashes.
pub fn hash_blocks(options: &Options, count: usize) -> u64 {
    let lanes = Lanes::new(options.hash_backend);
    let mut lines = [Line::ZERO; LANES];
    let mut out = [[0; 32]; LANES];
    for round in 0..count.div_ceil(LANES) {
        // Each round depends on the one before, as a level depends on the one below it.
        lines[round % LANES].halves[round & 1] = out[round % LANES];
        lanes.pairs(&lines, &mut out);
    }
    out.iter().fold(0, |sum, hash| sum ^ crate::hash::prefix(hash))
}

/// Lines to read at random, in memory like that of the tree.
#[derive(Debug)]
pub struct RandomLines {
    lines: Lines,
    ahead: usize,
}

impl RandomLines {
    /// `bytes` of memory, each page of it touched.
    pub fn new(options: &Options, bytes: usize) -> Self {
        let pool = Pool::new(options.huge_pages);
        let ahead = if options.prefetch == Prefetch::Off { 0 } else { LINES_PREFETCHED };
        Self { lines: pool.zeroed(bytes / size_of::<Line>()), ahead }
    }

    /// Ordinary or 2 MiB pages, as the system gave them.
    pub fn with_pages(huge: HugePages, bytes: usize) -> Self {
        Self::new(&Options { huge_pages: huge, ..Options::default() }, bytes)
    }

    /// Reads `count` lines at addresses that are known ahead, and returns a checksum.
    pub fn read(&self, count: usize) -> u64 {
        let mut places = Places::new(self.lines.len());
        let mut ahead = Places::new(self.lines.len());
        for _ in 0..self.ahead {
            ahead.next();
        }
        let mut sum = 0u64;
        for _ in 0..count {
            prefetch(&self.lines, ahead.next());
            sum = sum.wrapping_add(u64::from(black_box(self.lines[places.next()].halves[0][7])));
        }
        sum
    }

    /// Reads `count` lines, each at an address that follows from the line before, and returns a checksum.
    pub fn chase(&self, count: usize) -> u64 {
        let mut places = Places::new(self.lines.len());
        let mut last = 0;
        for _ in 0..count {
            let at = places.next() ^ usize::from(last);
            last = black_box(self.lines[at % self.lines.len()].halves[0][7]);
        }
        u64::from(last)
    }
}

/// What a machine can do of the two things, in millions per second.
#[derive(Clone, Copy, Debug)]
pub struct Roofs {
    /// 64-byte blocks hashed, 16 at a time.
    pub hashes: f64,
    /// Lines read at random addresses that are known ahead.
    pub lines: f64,
    /// Lines read at random, each at an address that follows from the one before.
    pub chained: f64,
}

impl Roofs {
    /// Measures them in this many bytes, with the clock of the caller. The best of several rounds counts, because
    /// other work on the machine only makes them worse.
    pub fn measure(options: &Options, bytes: usize, time: impl Fn(&dyn Fn() -> u64) -> Duration) -> Self {
        let best = |count: usize, work: &dyn Fn() -> u64| {
            let fastest = (0..5).map(|_| time(work)).min().unwrap_or_default();
            count as f64 / fastest.max(Duration::from_nanos(1)).as_secs_f64() / 1e6
        };
        let lines = RandomLines::new(options, bytes);
        Self {
            hashes: best(1 << 21, &|| hash_blocks(options, 1 << 21)),
            lines: best(1 << 21, &|| lines.read(1 << 21)),
            chained: best(1 << 17, &|| lines.chase(1 << 17)),
        }
    }

    /// Millions of updates per second at most, of batches in a tree of `2^bits` keys.
    ///
    /// It is what the tree itself asks for, whatever its layout: key, value and leaf hashed, and one hash and one
    /// random line for each node above the changed leaves, read and hashed once for each batch.
    pub fn updates(&self, bits: u32, batch: f64) -> f64 {
        let distinct = |level: u32| {
            let nodes = f64::from(level).exp2();
            nodes * -(batch * (-1.0 / nodes).ln_1p()).exp_m1()
        };
        let above =
            (0..bits).map(|level| if level == 0 { 1.0 } else { distinct(level) }).sum::<f64>() / batch;
        1.0 / ((3.0 + above) / self.hashes + (1.0 + above) / self.lines)
    }
}

/// Pseudo-random places.
struct Places {
    state: u64,
    lines: usize,
}

impl Places {
    fn new(lines: usize) -> Self {
        Self { state: 7, lines }
    }

    fn next(&mut self) -> usize {
        let z = mix(self.state);
        self.state = self.state.wrapping_add(workload::GAMMA);
        // The upper half of the product maps the whole range onto the lines without a division.
        ((u128::from(z) * self.lines as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::simd::HashBackend;

    #[test]
    fn the_work_is_done_and_the_same_on_every_backend() {
        let mut options = Options::default();
        let widest = hash_blocks(&options, 1000);
        options.hash_backend = HashBackend::Portable;
        assert_eq!(hash_blocks(&options, 1000), widest);
        let lines = RandomLines::with_pages(HugePages::Off, 1 << 20);
        assert_eq!((lines.read(1000), lines.chase(1000)), (0, 0));
    }

    #[test]
    fn the_roof_of_updates_falls_with_the_tree_and_rises_with_the_batch() {
        let roofs = Roofs::measure(&Options::default(), 1 << 20, |work| {
            black_box(work());
            Duration::from_millis(1)
        });
        assert!(
            (roofs.hashes - 2097.152).abs() < 1e-6 && (roofs.chained - 131.072).abs() < 1e-6,
            "{roofs:?}"
        );
        // A batch of one in a tree of 2^10 keys: 13 hashes and 11 lines.
        let one = 1.0 / (13.0 / roofs.hashes + 11.0 / roofs.lines);
        assert!((roofs.updates(10, 1.0) / one - 1.0).abs() < 1e-9);
        assert!(roofs.updates(20, 1e5) < roofs.updates(10, 1e5));
        assert!(roofs.updates(20, 1e5) < roofs.updates(20, 1e6));
    }
}
