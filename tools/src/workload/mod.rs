//! The workloads: every byte of them is a function of a size and a seed.
//!
//! * [`storage`]: the reference dataset, storage-like entries in key order; what sizes and faults are measured on.
//! * [`blocks`]: a stream of blocks with many versions per key, deletions, hot and cold keys; what an archive ingests.
//! * [`jsonl`]: both as the lines that `icecore ingest` reads.
//!
//! All of it draws from [`SplitMix64`] alone, so that a program in any language can make the same bytes.

pub mod blocks;
pub mod jsonl;
pub mod repeat;
pub mod storage;

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The generator of every workload: the state grows by a constant, the output is a mix of the state.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Begins at a state. The first output already depends on every bit of it.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number below `bound`, by remainder: exact to reproduce, biased by less than `bound` in 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Fills `buf` with outputs in little-endian order; the last one is cut at the end of `buf`.
    #[inline]
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Brings `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Passes over what a [`fill`](Self::fill) of `len` bytes would draw, in constant time.
    #[inline]
    pub fn skip_fill(&mut self, len: usize) {
        self.0 = self.0.wrapping_add(GAMMA.wrapping_mul(len.div_ceil(8) as u64));
    }
}

/// A bijection of 64 bits that looks random: the output function of [`SplitMix64`].
#[inline]
pub fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_numbers() {
        // From the reference implementation (prng.di.unimi.it/splitmix64.c), seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn skipping_draws_as_much_as_filling() {
        for len in [0, 1, 7, 8, 9, 20, 32] {
            let (mut filled, mut skipped) = (SplitMix64::new(len as u64), SplitMix64::new(len as u64));
            filled.fill(&mut vec![0; len]);
            skipped.skip_fill(len);
            assert_eq!(filled, skipped, "len={len}");
        }
    }
}
