//! One page of a filter: its layout, built and asked.
//!
//! The filter is built by `xorf` and asked here, over the bytes of the page, because `xorf` either owns its fingerprints (a copy
//! of the page) or trusts the descriptor it is given (a panic or a false *no* when it is damaged).

use icecore_segments::bytes::{u16_at, u32_at, u64_at};
use icecore_segments::frame::PAGE_SIZE;
use xorf::{BinaryFuse8, BinaryFuse16};

use super::FilterBits;

const SEED_AT: usize = 8;
const SEGMENT_LEN_AT: usize = 16;
const SPREAD_AT: usize = 20;
const KEYS_AT: usize = 24;
const TWIST_AT: usize = 26;
const CELLS_AT: usize = 32;
const CELLS_LEN_MAX: usize = PAGE_SIZE - CELLS_AT;

/// The most keys of which the filter fits a page, whatever they are: the sizes that `xorf` chooses depend on the number alone.
/// 3840 fingerprints of 8 bits in 15 segments of 256; 1792 of 16 bits in 7. One key more takes another segment.
pub(crate) fn keys_max(bits: FilterBits) -> usize {
    match bits {
        FilterBits::Eight => 2937,
        FilterBits::Sixteen => 1322,
    }
}

/// How often the keys are changed after `xorf` gave up. It tries 1000 seeds for each; none was ever seen to need a second.
const TWISTS: u16 = 64;

/// Builds the page of a shard; the checksum is the caller's.
///
/// `hashes` are distinct, at least one and at most [`keys_max`]. The bytes depend on the set alone.
///
/// # Panics
/// If no filter is found after 64,000 seeds (F5).
pub(crate) fn build(hashes: &[u64], bits: FilterBits) -> Box<[u8; PAGE_SIZE]> {
    assert!(!hashes.is_empty() && hashes.len() <= keys_max(bits), "F2: a shard holds 1 to keys_max keys");
    let mut page = Box::new([0; PAGE_SIZE]);
    let found = (0..TWISTS).find_map(|number| {
        let keys = Twisted { hashes: hashes.iter(), twist: twist(number) };
        let descriptor = match bits {
            FilterBits::Eight => {
                let filter = BinaryFuse8::try_from_iterator(keys).ok()?;
                page[CELLS_AT..][..filter.fingerprints.len()].copy_from_slice(&filter.fingerprints);
                filter.descriptor
            }
            FilterBits::Sixteen => {
                let filter = BinaryFuse16::try_from_iterator(keys).ok()?;
                for (cell, fingerprint) in page[CELLS_AT..].chunks_exact_mut(2).zip(&filter.fingerprints) {
                    cell.copy_from_slice(&fingerprint.to_le_bytes());
                }
                filter.descriptor
            }
        };
        Some((number, descriptor))
    });
    let (number, descriptor) = found.expect("F5: one of 64,000 seeds gives a filter");
    page[SEED_AT..][..8].copy_from_slice(&descriptor.seed.to_le_bytes());
    page[SEGMENT_LEN_AT..][..4].copy_from_slice(&descriptor.segment_length.to_le_bytes());
    page[SPREAD_AT..][..4].copy_from_slice(&descriptor.segment_count_length.to_le_bytes());
    page[KEYS_AT..][..2].copy_from_slice(&(hashes.len() as u16).to_le_bytes());
    page[TWIST_AT..][..2].copy_from_slice(&number.to_le_bytes());
    page
}

/// The seed that `xorf` tries first, and with which nearly every shard is found.
const FIRST_SEED: u64 = 0x910A_2DEC_8902_5CC1;

/// The sizes of a usual shard: one that is full and was found with the first seed, as most are.
const fn usual(bits: FilterBits) -> Sizes {
    let segment_len = 256;
    let segments = (CELLS_LEN_MAX / bits.width()) as u32 / segment_len;
    Sizes { seed: FIRST_SEED, segment_len, spread: segment_len * (segments - 2) }
}

/// The fingerprint of a hash in a usual shard, and where in the page its three cells are: a probe then needs nothing else of the
/// page, so the three are read at once.
#[inline]
pub(crate) fn usual_probe(hash: u64, bits: FilterBits) -> (u16, [usize; 3]) {
    let (fingerprint, [first, second, third]) = usual(bits).probe(hash);
    let at = |cell: usize| CELLS_AT + cell * bits.width();
    (fingerprint_of(fingerprint, bits), [at(first), at(second), at(third)])
}

/// The bits of a fingerprint that a cell has.
#[inline]
const fn fingerprint_of(fingerprint: u64, bits: FilterBits) -> u16 {
    match bits {
        FilterBits::Eight => fingerprint as u8 as u16,
        FilterBits::Sixteen => fingerprint as u16,
    }
}

/// The fingerprint in the cell at `at`; `None` outside of `bytes`.
#[inline]
pub(crate) fn cell(bytes: &[u8], at: usize, bits: FilterBits) -> Option<u16> {
    match bits {
        FilterBits::Eight => bytes.get(at).copied().map(u16::from),
        FilterBits::Sixteen => u16_at(bytes, at),
    }
}

/// What the hashes are combined with on the `number`-th try; nothing on the first.
fn twist(number: u16) -> u64 {
    u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[derive(Clone)]
struct Twisted<'a> {
    hashes: std::slice::Iter<'a, u64>,
    twist: u64,
}

impl Iterator for Twisted<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.hashes.next().map(|hash| hash ^ self.twist)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.hashes.size_hint()
    }
}

impl ExactSizeIterator for Twisted<'_> {}

/// What decides where the fingerprints of a hash are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sizes {
    seed: u64,
    segment_len: u32,
    /// The number of positions that the first of the three cells can have.
    spread: u32,
}

impl Sizes {
    /// The fingerprint of a hash, and the three cells that it is spread over.
    #[inline]
    fn probe(self, hash: u64) -> (u64, [usize; 3]) {
        let hash = mix(hash, self.seed);
        let mask = self.segment_len.wrapping_sub(1);
        let first = ((u128::from(hash) * u128::from(self.spread)) >> 64) as u32;
        let second = first.wrapping_add(self.segment_len) ^ ((hash >> 18) as u32 & mask);
        let third = first.wrapping_add(self.segment_len.wrapping_mul(2)) ^ (hash as u32 & mask);
        (hash ^ (hash >> 32), [first as usize, second as usize, third as usize])
    }
}

/// A filter, read from its page.
#[derive(Clone, Copy)]
pub(crate) struct Shard<'a> {
    cells: &'a [u8],
    sizes: Sizes,
    keys: u16,
    twist: u16,
}

impl<'a> Shard<'a> {
    /// Reads the sizes without judging them; `None` when the page is not one.
    #[inline]
    pub(crate) fn read(page: &'a [u8]) -> Option<Self> {
        Some(Self {
            cells: page.get(CELLS_AT..PAGE_SIZE)?,
            sizes: Sizes {
                seed: u64_at(page, SEED_AT)?,
                segment_len: u32_at(page, SEGMENT_LEN_AT)?,
                spread: u32_at(page, SPREAD_AT)?,
            },
            keys: u16_at(page, KEYS_AT)?,
            twist: u16_at(page, TWIST_AT)?,
        })
    }

    /// Whether the sizes are such that every cell is inside the page (F3).
    pub(crate) fn is_valid(&self, bits: FilterBits) -> bool {
        let (segment, spread) = (u64::from(self.sizes.segment_len), u64::from(self.sizes.spread));
        let cells = spread + 2 * segment;
        segment.is_power_of_two()
            && spread >= segment
            && spread.is_multiple_of(segment)
            && cells * bits.width() as u64 <= CELLS_LEN_MAX as u64
            && (1..=keys_max(bits)).contains(&usize::from(self.keys))
            && self.twist < TWISTS
    }

    /// Whether [`usual_probe`] answers for it.
    pub(crate) fn is_usual(&self, bits: FilterBits) -> bool {
        self.sizes == usual(bits) && self.twist == 0
    }

    /// The number of keys it was built from.
    pub(crate) fn keys(&self) -> u64 {
        u64::from(self.keys)
    }

    /// Whether the filter may hold `hash`. `None` when a cell is outside the page, which no valid shard has.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64, bits: FilterBits) -> Option<bool> {
        let (fingerprint, [first, second, third]) = self.sizes.probe(hash ^ twist(self.twist));
        let cell = |number: usize| cell(self.cells, number * bits.width(), bits);
        Some(fingerprint_of(fingerprint, bits) == cell(first)? ^ cell(second)? ^ cell(third)?)
    }
}

/// The finalizer of Murmur3, as `xorf` uses it: a bijection, so distinct hashes stay distinct.
#[inline]
fn mix(hash: u64, seed: u64) -> u64 {
    let mut h = hash.wrapping_add(seed);
    h ^= h >> 33;
    h = h.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    h ^= h >> 33;
    h = h.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use xorf::Filter;

    use super::*;
    use crate::format::DOC;

    #[test]
    fn the_table_of_the_document_is_the_constants() {
        let shard = [
            (0, "page checksum"),
            (SEED_AT, "seed"),
            (SEGMENT_LEN_AT, "length of a segment"),
            (SPREAD_AT, "positions of the first cell"),
            (KEYS_AT, "keys"),
            (TWIST_AT, "twist"),
            (CELLS_AT, "fingerprints"),
        ];
        DOC.check_layout("### Shard of a `.kvei`", &shard, Some(PAGE_SIZE));
        let [narrow, wide] = [FilterBits::Eight, FilterBits::Sixteen].map(keys_max);
        let keys = format!("1 to {narrow} (8 bits), {wide} (16 bits)");
        assert_eq!(DOC.table("### Shard of a `.kvei`", "offset")[4][4], keys);
    }

    fn hashes(count: usize) -> Vec<u64> {
        (0..count as u64).map(|i| mix(i, 77)).collect()
    }

    #[test]
    fn the_page_answers_as_xorf_does() {
        for count in [1, 2, 3, 5, 100, 1000, 1322, 2937] {
            let keys = hashes(count);
            let page = build(&keys, FilterBits::Eight);
            let (shard, filter) = (Shard::read(&page[..]).unwrap(), BinaryFuse8::try_from(&keys).unwrap());
            assert!(shard.is_valid(FilterBits::Eight));
            for probe in (0..20_000).map(|i| mix(i, 77)) {
                assert_eq!(shard.may_contain(probe, FilterBits::Eight), Some(filter.contains(&probe)));
            }
            if count <= keys_max(FilterBits::Sixteen) {
                let page = build(&keys, FilterBits::Sixteen);
                let (shard, filter) =
                    (Shard::read(&page[..]).unwrap(), BinaryFuse16::try_from(&keys).unwrap());
                assert!(shard.is_valid(FilterBits::Sixteen));
                for probe in (0..20_000).map(|i| mix(i, 77)) {
                    assert_eq!(shard.may_contain(probe, FilterBits::Sixteen), Some(filter.contains(&probe)));
                }
            }
        }
    }

    #[test]
    fn most_full_shards_are_usual_and_those_answer_by_their_cells_alone() {
        for bits in [FilterBits::Eight, FilterBits::Sixteen] {
            let count = keys_max(bits);
            let usual = (0..100).filter(|i| {
                let keys: Vec<u64> = (0..count as u64).map(|key| mix(key, 1000 * i)).collect();
                let page = build(&keys, bits);
                let shard = Shard::read(&page[..]).unwrap();
                for hash in (0..5000).map(|key| mix(key, 1000 * i)).filter(|_| shard.is_usual(bits)) {
                    let (fingerprint, cells) = usual_probe(hash, bits);
                    let [a, b, c] = cells.map(|at| cell(&page[..], at, bits).unwrap());
                    assert_eq!(Some(fingerprint == a ^ b ^ c), shard.may_contain(hash, bits));
                }
                shard.is_usual(bits)
            });
            assert!(usual.count() > 80, "{bits:?}");
        }
    }

    #[test]
    fn every_number_of_keys_up_to_the_most_fits_and_one_more_does_not() {
        for bits in [FilterBits::Eight, FilterBits::Sixteen] {
            let keys = hashes(keys_max(bits) + 1);
            let cells = |count: usize| match bits {
                FilterBits::Eight => BinaryFuse8::try_from(&keys[..count]).unwrap().len(),
                FilterBits::Sixteen => BinaryFuse16::try_from(&keys[..count]).unwrap().len(),
            };
            for count in (1..=keys_max(bits)).step_by(13).chain(keys_max(bits) - 5..=keys_max(bits)) {
                assert!(cells(count) * bits.width() <= CELLS_LEN_MAX, "{bits:?} {count}");
            }
            assert!(cells(keys_max(bits) + 1) * bits.width() > CELLS_LEN_MAX, "{bits:?}");
        }
    }

    #[test]
    fn the_offsets_are_those_of_the_format_document() {
        let fields = [
            (SEED_AT, "seed"),
            (SEGMENT_LEN_AT, "length of a segment `s`"),
            (SPREAD_AT, "positions of the first cell `p`"),
            (KEYS_AT, "keys"),
            (TWIST_AT, "twist"),
            (CELLS_AT, "fingerprints of 8 or 16 bits"),
        ];
        crate::check_table("### Shard of a `.kvei`", &fields);
    }

    #[test]
    fn damaged_sizes_are_refused_and_never_panic() {
        let page = build(&hashes(2937), FilterBits::Eight);
        for at in SEED_AT..CELLS_AT {
            for bit in 0..8 {
                let mut damaged = page.clone();
                damaged[at] ^= 1 << bit;
                let shard = Shard::read(&damaged[..]).unwrap();
                for probe in hashes(10) {
                    let answer = shard.may_contain(probe, FilterBits::Eight);
                    assert!(answer.is_some() || !shard.is_valid(FilterBits::Eight), "byte {at} bit {bit}");
                }
            }
        }
    }
}
