//! The usual probe: three cells of one page, whose places the hash alone says. For lookups, which mostly need nothing else of a filter.

#![allow(
    clippy::inline_always,
    reason = "a call for each costs a probe a fifth more instructions: callgrind"
)]

use icecore_segments::frame::PAGE_SIZE;

use super::FilterBits;
use super::shard::usual_probe;
use crate::hash::FilterHash;

/// What a probe of any filter looks for. Computed once for a key and valid for the filters of all segments.
#[derive(Clone, Copy, Debug)]
pub struct FilterProbe {
    hash: FilterHash,
    /// In a usual shard of eight bits, as all are that are written by default.
    eight: Cells,
}

/// A fingerprint, and the offsets in the page of the three cells that it is spread over.
#[derive(Clone, Copy, Debug)]
struct Cells {
    fingerprint: u16,
    at: [usize; 3],
}

impl Cells {
    #[inline(always)]
    fn of(hash: FilterHash, bits: FilterBits) -> Self {
        let (fingerprint, at) = usual_probe(hash.to_u64(), bits);
        Self { fingerprint, at }
    }
}

impl FilterProbe {
    /// The probe for a key.
    #[inline(always)]
    pub fn new(hash: FilterHash) -> Self {
        Self { hash, eight: Cells::of(hash, FilterBits::Eight) }
    }

    /// The hash of the key.
    #[inline(always)]
    pub fn hash(&self) -> FilterHash {
        self.hash
    }

    #[inline(always)]
    fn cells(&self, bits: FilterBits) -> Cells {
        match bits {
            FilterBits::Eight => self.eight,
            FilterBits::Sixteen => Cells::of(self.hash, bits),
        }
    }
}

/// The page of a filter that alone can know a key, read before and found usual: three of its cells are the answer.
#[derive(Clone, Copy)]
pub struct UsualShard<'a> {
    page: &'a [u8; PAGE_SIZE],
    bits: FilterBits,
}

impl<'a> UsualShard<'a> {
    #[inline(always)]
    pub(super) fn new(page: &'a [u8; PAGE_SIZE], bits: FilterBits) -> Self {
        Self { page, bits }
    }

    /// The bytes that the probe reads, one in each cache line: what to prefetch.
    #[inline(always)]
    pub fn touched(self, probe: &FilterProbe) -> [&'a u8; 3] {
        let [first, second, third] = probe.cells(self.bits).at;
        [self.byte(first), self.byte(second), self.byte(third)]
    }

    /// Whether the segment may have the key. `false` is certain.
    #[inline(always)]
    pub fn may_contain(self, probe: &FilterProbe) -> bool {
        let Cells { fingerprint, at: [first, second, third] } = probe.cells(self.bits);
        fingerprint == self.cell(first) ^ self.cell(second) ^ self.cell(third)
    }

    /// The cell at an offset, which is always one in the page.
    #[inline(always)]
    fn cell(self, at: usize) -> u16 {
        let low = u16::from(*self.byte(at));
        match self.bits {
            FilterBits::Eight => low,
            FilterBits::Sixteen => low | u16::from(*self.byte(at + 1)) << 8,
        }
    }

    #[inline(always)]
    fn byte(self, at: usize) -> &'a u8 {
        &self.page[at % PAGE_SIZE]
    }
}
