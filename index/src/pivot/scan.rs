//! The first of a run of codes that stops a search, without a branch for each: as many codes as a group has, in one go.
//!
//! Written so that the compiler makes vectors of it: eight codes in each operation of the smallest that any 64-bit processor has.

#![allow(clippy::inline_always, reason = "a call for each costs a search 7 % more instructions: callgrind")]

use super::layout::{CODES_LEN, GROUP_MAX};
use super::page::Page;

/// The bit that says that a search passes a code: the sign of its difference to a greater one. Codes have the others.
const PASSES: u16 = 0x8000;

/// The first code from `from` on, of `count`, that is not below `wanted`; `count` where there is none. Code `n` is at `at + 2 n`.
#[inline(always)]
pub(super) fn first_at_least(page: Page<'_>, at: usize, from: usize, count: usize, wanted: u16) -> usize {
    first(page, at, from, count, |code| code.wrapping_sub(wanted))
}

/// The first code from `from` on, of `count`, that is another than `code`; `count` where there is none.
#[inline]
pub(super) fn first_unlike(page: Page<'_>, at: usize, from: usize, count: usize, code: u16) -> usize {
    first(page, at, from, count, |other| !(other ^ code).wrapping_add(!PASSES))
}

#[inline(always)]
fn first(page: Page<'_>, at: usize, from: usize, count: usize, passes: impl Fn(u16) -> u16 + Copy) -> usize {
    let mut index = from;
    while index < count {
        // What is after the last code is looked at too, and means nothing.
        let found = first_of_chunk(page.codes(at + 2 * index), passes);
        if found < GROUP_MAX {
            return (index + found).min(count);
        }
        index += GROUP_MAX;
    }
    count
}

#[inline(always)]
fn first_of_chunk(chunk: &[u8; CODES_LEN], passes: impl Fn(u16) -> u16) -> usize {
    const LANES: usize = 8;
    // Places count down to more than 0, and those that a search passes are below 0: a mask and a maximum for each vector.
    const LAST: usize = 2 * GROUP_MAX - 1;
    let mut greatest = [0i16; LANES];
    let (words, _) = chunk.as_chunks::<{ 2 * LANES }>();
    for (word, codes) in words.iter().enumerate() {
        let (codes, _) = codes.as_chunks();
        for (lane, code) in codes.iter().enumerate() {
            let place = (LAST - LANES * word - lane) as u16;
            let place = passes(u16::from_le_bytes(*code)) & PASSES | place;
            greatest[lane] = greatest[lane].max(place as i16);
        }
    }
    LAST - greatest.into_iter().fold(0, i16::max) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pivot::page;

    #[test]
    fn the_first_that_stops_is_found_from_everywhere() {
        let mut page = [0; page::LEN];
        for (index, pair) in page.chunks_exact_mut(2).enumerate() {
            pair.copy_from_slice(&((index * 7919 % 0x8000) as u16).to_le_bytes());
        }
        let codes: Vec<u16> = page.as_chunks().0.iter().copied().map(u16::from_le_bytes).collect();
        let page = Page::new(&page);
        for wanted in [0, 1, 127, 5000, 0x7EFF, 0x7FFF] {
            for from in (0..40).chain(1980..2048) {
                for count in [from, from + 1, from + 31, 2048].map(|count| count.min(2048)) {
                    let first = |stops: &dyn Fn(u16) -> bool| {
                        (from..count).find(|&i| stops(codes[i])).unwrap_or(count)
                    };
                    assert_eq!(first_at_least(page, 0, from, count, wanted), first(&|code| code >= wanted));
                    assert_eq!(first_unlike(page, 0, from, count, wanted), first(&|code| code != wanted));
                }
            }
        }
    }
}
