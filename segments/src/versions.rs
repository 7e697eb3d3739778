//! The blocks of the versions of one key, a page at a time and without their values.
//!
//! The versions of a key follow each other, newest first. Where they fill a page, the page is one of one key, and its blocks are a
//! column: a million versions are listed by copying some thousand columns. Any other page is walked.

use crate::codec::PageBuf;
use crate::error::{Error, Reason};
use crate::file_bytes::FileBytes;
use crate::key_buf::KeyBuf;
use crate::page::Page;
use crate::page_header::ONE_KEY;
use crate::segment::Segment;
use crate::span::PageSpan;
use crate::step::BlockNumber;
use crate::walk::Walk;

impl<D: FileBytes> Segment<D> {
    /// The page of a span on which the versions of `key` at or below `at` begin: there, or with the first entry of the page after.
    ///
    /// # Errors
    /// Those of [`Segment::get_in`].
    pub fn versions_page(
        &self,
        span: PageSpan,
        key: &[u8],
        at: BlockNumber,
        buf: &mut PageBuf,
    ) -> Result<u64, Error> {
        self.check_span(span)?;
        if span.first == span.last { Ok(span.first) } else { self.page_of(span, key, at, buf) }
    }

    /// Appends the blocks of the versions of `key` at or below `at` that are in a page, newest first. What they wrote is not read.
    ///
    /// Returns the page after where the versions may go on there: pass the last block less one as `at` then.
    ///
    /// # Cost
    /// One page.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged page; what was appended is sound up to the page before.
    pub fn version_blocks(
        &self,
        page: u64,
        key: &[u8],
        at: BlockNumber,
        buf: &mut PageBuf,
        blocks: &mut Vec<BlockNumber>,
    ) -> Result<Option<u64>, Error> {
        let loaded = self.load(page, buf)?;
        let view = loaded.page(buf);
        let goes_on = if view.shape.form.has(ONE_KEY) && view.prefix() == key {
            view.blocks_of_one_key(at, blocks)?;
            true
        } else {
            view.walk_versions(key, at, blocks)?
        };
        let next = page + 1;
        Ok((goes_on && next < self.summary().pages).then_some(next))
    }
}

impl Page<'_> {
    /// Appends the blocks at or below `at` of a page that has the versions of one key only.
    fn blocks_of_one_key(&self, at: BlockNumber, blocks: &mut Vec<BlockNumber>) -> Result<(), Error> {
        let (mut first, mut end) = (0, self.shape.count());
        while first < end {
            let middle = usize::midpoint(first, end);
            if self.block_of(middle) > at { first = middle + 1 } else { end = middle }
        }
        let (cells, width) = self.block_cells();
        let (cells, base, from) = (&cells[first * width..], self.shape.base, blocks.len());
        match width {
            0 => blocks.extend((first < self.shape.count()).then_some(base)),
            1 => append::<1>(cells, base, blocks),
            2 => append::<2>(cells, base, blocks),
            3 => append::<3>(cells, base, blocks),
            4 => append::<4>(cells, base, blocks),
            _ => blocks.extend((first..self.shape.count()).map(|ordinal| self.block_of(ordinal))),
        }
        // Counted, without an early end, so that many are compared at a time.
        let out_of_order = blocks[from..].windows(2).filter(|pair| pair[0] <= pair[1]).count();
        let are_all = blocks.len() - from == self.shape.count() - first;
        if out_of_order == 0 && are_all { Ok(()) } else { Err(self.damaged(Reason::Order)) }
    }

    /// The same of any page. Returns whether the page ends before a key that sorts after.
    fn walk_versions(
        &self,
        key: &[u8],
        at: BlockNumber,
        blocks: &mut Vec<BlockNumber>,
    ) -> Result<bool, Error> {
        let group = match key.strip_prefix(self.prefix()) {
            Some(rest) => self.group_of(0, rest, at)?.unwrap_or(0),
            None if key < self.prefix() => return Ok(false),
            None => return Ok(true),
        };
        let mut found = KeyBuf::default();
        let mut walk = Walk::default();
        walk.start(self, group, &mut found)?;
        loop {
            if *found > *key {
                return Ok(false);
            }
            if *found == *key && walk.entry().block <= at {
                blocks.push(walk.entry().block);
            }
            if !walk.next(self, &mut found)? {
                return Ok(true);
            }
        }
    }
}

/// Appends a column of cells of `W` bytes, to each of which the base is added.
fn append<const W: usize>(cells: &[u8], base: BlockNumber, blocks: &mut Vec<BlockNumber>) {
    blocks.extend(cells.as_chunks::<W>().0.iter().map(|cell| {
        let mut word = [0; 8];
        word[..W].copy_from_slice(cell);
        base.wrapping_add(u64::from_le_bytes(word))
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::EncodingRule;
    use crate::entry::{Entry, Value};
    use crate::step::{Step, StepRange};
    use crate::{Cursor, SegmentBuilder};

    /// Keys of one version to many pages of them, with gaps between blocks that take cells of one byte to eight.
    fn segment(rule: EncodingRule) -> Segment<Vec<u8>> {
        let mut builder = SegmentBuilder::new(Vec::new(), "d", StepRange::single(Step(0)), rule, ()).unwrap();
        for number in 0..60_u32 {
            let key = [&b"key"[..], &number.to_be_bytes()].concat();
            let versions = if number % 6 == 5 { 3000 } else { u64::from(number % 6) + 1 };
            let gap = 1 << (number % 7 * 6);
            for version in (1..=versions).rev() {
                let value = if version % 3 == 0 { Value::Deletion } else { Value::Inline(b"v") };
                builder.push(Entry { key: &key, block: version * gap, value }).unwrap();
            }
        }
        Segment::open(builder.finish().unwrap().1).unwrap()
    }

    /// All blocks from a span of all pages on.
    fn listed(segment: &Segment<Vec<u8>>, key: &[u8], mut at: BlockNumber) -> Vec<BlockNumber> {
        let (mut buf, mut blocks) = (PageBuf::default(), Vec::new());
        let span = PageSpan { first: 0, last: segment.summary().pages - 1, restart: 0 };
        let mut next = Some(segment.versions_page(span, key, at, &mut buf).unwrap());
        while let Some(page) = next {
            next = segment.version_blocks(page, key, at, &mut buf, &mut blocks).unwrap();
            at = blocks.last().map_or(at, |last| last - 1);
        }
        blocks
    }

    /// The same by a cursor.
    fn walked(segment: &Segment<Vec<u8>>, key: &[u8], at: BlockNumber) -> Vec<BlockNumber> {
        let mut cursor: Cursor<'_, _> = segment.cursor();
        let mut blocks = Vec::new();
        cursor.seek(key, at).unwrap();
        while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
            blocks.push(entry.block);
            cursor.next().unwrap();
        }
        blocks
    }

    #[test]
    fn the_blocks_are_those_that_a_cursor_meets() {
        for rule in [EncodingRule::Plain, EncodingRule::Zstd] {
            let segment = segment(rule);
            let mut most = 0;
            for number in 0..62_u32 {
                let key = [&b"key"[..], &number.to_be_bytes()].concat();
                for at in [0, 1, 2, 700, 1 << 20, 1 << 40, u64::MAX] {
                    let blocks = listed(&segment, &key, at);
                    assert_eq!(blocks, walked(&segment, &key, at), "key {number} at {at}");
                    most = most.max(blocks.len());
                }
            }
            assert_eq!(most, 3000);
            assert!(
                listed(&segment, b"", u64::MAX).is_empty() && listed(&segment, b"z", u64::MAX).is_empty()
            );
        }
    }
}
