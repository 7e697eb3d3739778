//! The two things the tree is made of, alone: hashing 64-byte blocks, and reading lines at random.
//!
//! What a machine can do of each is the roof that the tree is measured against. Nothing here reads a clock:
//! the caller times the calls, in the same run as the tree.

use std::hint::black_box;

use crate::arena::{Line, Lines, Pool, prefetch};
use crate::options::{HugePages, Options, Prefetch};
use crate::simd::{LANES, Lanes};

/// As many lines on their way as it takes to keep the memory busy; twice as many gave no more.
const LINES_AHEAD: usize = 64;

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
        let ahead = if options.prefetch == Prefetch::Off { 0 } else { LINES_AHEAD };
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

/// Pseudo-random places (`SplitMix64`).
struct Places {
    state: u64,
    lines: usize,
}

impl Places {
    fn new(lines: usize) -> Self {
        Self { state: 7, lines }
    }

    fn next(&mut self) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The upper half of the product maps the whole range onto the lines without a division.
        ((u128::from(z ^ (z >> 31)) * self.lines as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::HashBackend;

    #[test]
    fn the_work_is_done_and_the_same_on_every_backend() {
        let mut options = Options::default();
        let widest = hash_blocks(&options, 1000);
        options.hash_backend = HashBackend::Portable;
        assert_eq!(hash_blocks(&options, 1000), widest);
        let lines = RandomLines::with_pages(HugePages::Off, 1 << 20);
        assert_eq!((lines.read(1000), lines.chase(1000)), (0, 0));
    }
}
