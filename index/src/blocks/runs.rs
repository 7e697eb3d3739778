//! Entries as a segment has them, by key, into entries by block: sorted in memory run by run, and the runs merged.
//!
//! A run takes the next [`RUN_ENTRIES`] entries. Where there is one only, nothing goes to the spool.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use icecore_segments::bytes::{put_varint, take_varint, varint_len};
use icecore_segments::error::Error;
use icecore_segments::step::BlockNumber;

use crate::filter::Spool;

/// Entries of a run: 16 MiB, and as much again while they are sorted.
pub(super) const RUN_ENTRIES: usize = 1 << 20;

/// What is read of a run at once, in bytes.
const READ_LEN: usize = 16 << 10;

/// The longest entry in the spool: two varints.
const ENTRY_LEN_MAX: usize = 20;

/// Bits of a block that one pass of the sort looks at.
const DIGIT_BITS: u32 = 11;

/// An entry: who wrote it, and where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) block: BlockNumber,
    pub(super) page: u64,
}

/// Sorts by block, and leaves those of one block in their order.
pub(super) fn sort_by_block(places: &mut Vec<Place>, scratch: &mut Vec<Place>) {
    let blocks = || places.iter().map(|place| place.block);
    let (Some(lowest), Some(highest)) = (blocks().min(), blocks().max()) else { return };
    scratch.clear();
    scratch.resize(places.len(), Place::default());
    let bits = BlockNumber::BITS - (highest - lowest).leading_zeros();
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
        let digit = |place: &Place| ((place.block - lowest) >> shift) as usize & ((1 << DIGIT_BITS) - 1);
        let mut starts = [0usize; 1 << DIGIT_BITS];
        places.iter().for_each(|place| starts[digit(place)] += 1);
        let mut sum = 0;
        for start in &mut starts {
            (*start, sum) = (sum, sum + *start);
        }
        for place in places.iter() {
            let start = &mut starts[digit(place)];
            scratch[*start] = *place;
            *start += 1;
        }
        std::mem::swap(places, scratch);
    }
}

/// What a run takes beside its entries: a varint of its first block, and a byte more for each of the 2^13 places at most where blocks
/// of fewer than 2^27 are 2^14 or more apart.
const RUN_SPARE: u64 = 16 << 10;

/// The most bytes that building the index of so many entries leaves in the spool; they are of a segment of so many data pages.
pub fn spool_max(entries: u64, pages: u64) -> u64 {
    let runs = entries.div_ceil(RUN_ENTRIES as u64);
    // From one entry to the next two bytes of blocks suffice, and a page has no higher number than the last.
    let entry_max = 2 + varint_len(pages) as u64;
    if runs > 1 { entries.saturating_mul(entry_max).saturating_add(runs * RUN_SPARE) } else { 0 }
}

/// A sorted run in the spool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    offset: u64,
    len: u64,
}

impl Run {
    /// Writes sorted entries.
    pub(super) fn write(places: &[Place], spool: &mut impl Spool) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(4 * places.len());
        let mut before = Place::default();
        for place in places {
            put_varint(&mut bytes, place.block - before.block);
            // Pages ascend within a block; another block begins anew.
            let base = if place.block == before.block { before.page } else { 0 };
            put_varint(&mut bytes, place.page - base);
            before = *place;
        }
        let offset = spool.append(&bytes)?;
        Ok(Self { offset, len: bytes.len() as u64 })
    }
}

/// Reads a run from front to back.
struct RunReader {
    run: Run,
    bytes: Vec<u8>,
    at: usize,
    last: Place,
}

impl RunReader {
    fn next(&mut self, spool: &mut impl Spool) -> Result<Option<Place>, Error> {
        if self.bytes.len() - self.at < ENTRY_LEN_MAX && self.run.len > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
            let (held, more) = (self.bytes.len(), self.run.len.min(READ_LEN as u64));
            self.bytes.resize(held + more as usize, 0);
            spool.read_at(self.run.offset, &mut self.bytes[held..])?;
            (self.run.offset, self.run.len) = (self.run.offset + more, self.run.len - more);
        }
        let mut read = || take_varint(&self.bytes, &mut self.at);
        let (Some(blocks), Some(pages)) = (read(), read()) else { return Ok(None) };
        let base = if blocks == 0 { self.last.page } else { 0 };
        self.last = Place { block: self.last.block + blocks, page: base + pages };
        Ok(Some(self.last))
    }
}

/// Passes the entries of all runs by block. Of one block those of an earlier run come first: their pages are lower.
pub(super) fn merge(
    runs: &[Run],
    spool: &mut impl Spool,
    mut visit: impl FnMut(Place) -> Result<(), Error>,
) -> Result<(), Error> {
    let begin = |run: &Run| RunReader { run: *run, bytes: Vec::new(), at: 0, last: Place::default() };
    let mut readers: Vec<RunReader> = runs.iter().map(begin).collect();
    let mut next = BinaryHeap::with_capacity(readers.len());
    for (number, reader) in readers.iter_mut().enumerate() {
        next.extend(reader.next(spool)?.map(|place| Reverse((place.block, number, place.page))));
    }
    while let Some(Reverse((block, number, page))) = next.pop() {
        visit(Place { block, page })?;
        next.extend(readers[number].next(spool)?.map(|place| Reverse((place.block, number, place.page))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::MemorySpool;

    #[test]
    fn runs_come_back_by_block_and_page() {
        for span in [1u64, 7, 5000, u64::MAX] {
            let places: Vec<Place> = (0..30_000u64)
                .map(|i| Place { block: i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % span, page: i / 9 })
                .collect();
            let mut expected = places.clone();
            expected.sort_by_key(|place| place.block);
            let (mut spool, mut scratch) = (MemorySpool::default(), Vec::new());
            let mut write = |some: &[Place]| {
                let mut run = some.to_vec();
                sort_by_block(&mut run, &mut scratch);
                Run::write(&run, &mut spool).unwrap()
            };
            let runs: Vec<Run> = places.chunks(7001).map(&mut write).collect();
            let mut found = Vec::new();
            merge(&runs, &mut spool, |place| {
                found.push(place);
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected, "{span}");
        }
    }

    /// Of the worst kinds of segments that there are: every entry in a page of its own, blocks as far apart as they can be.
    #[test]
    fn no_run_is_longer_than_what_is_reckoned_for_it() {
        let entries = RUN_ENTRIES as u64;
        for (pages, span) in [(1, 1), (entries / 40, 613), (entries / 40, entries), (entries, 1 << 27)] {
            let place = |i: u64| Place {
                block: i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % span,
                page: (i * pages / entries),
            };
            let mut run: Vec<Place> = (0..entries).map(place).collect();
            sort_by_block(&mut run, &mut Vec::new());
            let mut spool = MemorySpool::default();
            let len = Run::write(&run, &mut spool).unwrap().len;
            let most = spool_max(2 * entries, pages) / 2;
            println!("{pages} pages, {span} blocks: {len} bytes of {most}");
            assert!(len <= most && most <= 4 * len, "{pages} {span}: {len} of {most}");
        }
        assert_eq!(spool_max(entries, 7), 0, "one run stays in memory");
    }
}
