//! Reads a `.kvbi`: from a block to the pages that have its entries, and on to the next blocks.
//!
//! Cost: a search by halves in the table of first blocks, in memory; then one leaf after the other from front to back.

use std::ops::Range;

use icecore_segments::FileBytes;
use icecore_segments::bytes::{take_varint, u16_at, u64_at};
use icecore_segments::checksum::{Checksum, PageChecks, Salt, crc64, is_sealed};
use icecore_segments::error::{Corruption, Error, Part, Reason};
use icecore_segments::frame::{Frame, Kind, PAGE_SIZE};
use icecore_segments::step::BlockNumber;

use super::{BODY_AT, BlockIndexSummary, BlockPage, END_AT, FIRST_BLOCK_AT, PAYLOAD_LEN, RECORDS_AT};

/// A block index over the bytes of its file. Shared by any number of threads.
pub struct BlockIndex<D> {
    data: D,
    salt: Salt,
    /// The block of the first record of each leaf; ascending, and equal where a block goes on in the next leaf.
    first_blocks: Box<[BlockNumber]>,
    checks: PageChecks,
    summary: BlockIndexSummary,
}

impl<D: FileBytes> BlockIndex<D> {
    /// Opens the index of the segment whose content checksum is `parent`. Reads header, footer and table of first blocks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when it describes another segment, [`Error::Corrupt`] and [`Error::Unsupported`] as in `FORMAT.md`.
    pub fn open(data: D, parent: Checksum) -> Result<Self, Error> {
        let bytes = data.as_ref();
        let frame = Frame::parse(bytes, Kind::BlockIndex)?;
        crate::check_parent(frame.parent, parent)?;
        let (salt, file) = (frame.salt, frame.summary);
        let footer = |reason| Corruption { part: Part::Footer, offset: file.len - PAGE_SIZE as u64, reason };
        if frame.payload.len() != PAYLOAD_LEN {
            return Err(footer(Reason::Length).into());
        }
        let field = |number: usize| u64_at(frame.payload, 8 * number).ok_or(footer(Reason::Length));
        let (entries, blocks, pages, leaves) = (field(0)?, field(1)?, field(2)?, field(3)?);
        let (table_offset, table_sum) = (field(4)?, field(5)?);
        // B1: header, leaves, table, footer, and nothing else.
        let file_pages = file.len / PAGE_SIZE as u64;
        let fits = leaves < file_pages && table_offset == (leaves + 1) * PAGE_SIZE as u64;
        if !fits || leaves + 2 + (8 * leaves).div_ceil(PAGE_SIZE as u64) != file_pages {
            return Err(footer(Reason::Count).into());
        }
        if blocks > entries || pages > entries || (entries == 0) != (leaves == 0) {
            return Err(footer(Reason::Count).into());
        }
        let table = &bytes[table_offset as usize..][..8 * leaves as usize];
        let damaged = |reason| Corruption { part: Part::BlockTable, offset: table_offset, reason };
        if crc64(table) != table_sum {
            return Err(damaged(Reason::Checksum).into());
        }
        let first_blocks: Box<[u64]> = (0..leaves as usize).filter_map(|i| u64_at(table, 8 * i)).collect();
        if !first_blocks.is_sorted() {
            return Err(damaged(Reason::Order).into());
        }
        let summary = BlockIndexSummary { file, entries, blocks, pages, leaves, top_bytes: 8 * leaves };
        Ok(Self { data, salt, first_blocks, checks: PageChecks::new(leaves), summary })
    }

    /// Goes through the pages of the blocks from `from` on, by block, then page.
    ///
    /// # Cost
    /// As far as it is consumed, a page of the file for some 2,500 entries of blocks that write many.
    pub fn cursor(&self, from: BlockNumber) -> BlockCursor<'_, D> {
        let leaf = self.leaf_of(from);
        BlockCursor {
            index: self,
            from,
            leaf,
            page: &[],
            at: 0,
            records: 0,
            block: 0,
            references: 0,
            last: None,
        }
    }

    /// The bytes of the file that list the blocks of a range, both ends inside: what to fetch ahead.
    pub fn range_of(&self, from: BlockNumber, to: BlockNumber) -> Range<u64> {
        let last = self.first_blocks.partition_point(|first| *first <= to) as u64;
        let first = self.leaf_of(from);
        (first + 1) * PAGE_SIZE as u64..(last.max(first) + 1) * PAGE_SIZE as u64
    }

    /// What the file says of itself.
    pub fn summary(&self) -> &BlockIndexSummary {
        &self.summary
    }

    /// What opening reads besides the header: table and footer, to the end of the file.
    pub fn tail(&self) -> Range<u64> {
        (self.summary.leaves + 1) * PAGE_SIZE as u64..self.summary.file.len
    }

    /// The bytes of the file.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Reads the whole file and checks everything that can be checked without the segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the part that is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        let (mut entries, mut blocks, mut last) = (0u64, 0, None);
        let mut cursor = self.cursor(0);
        while let Some(found) = cursor.next()? {
            entries = entries.saturating_add(found.entries);
            blocks += u64::from(last.replace(found.block) != Some(found.block));
        }
        let bytes = self.data.as_ref();
        (0..self.summary.leaves).try_for_each(|leaf| self.read_leaf(leaf).map(drop))?;
        Frame::parse(bytes, Kind::BlockIndex)?.verify_content(bytes, &mut |_| {})?;
        if (entries, blocks) != (self.summary.entries, self.summary.blocks) {
            let offset = self.summary.file.len - PAGE_SIZE as u64;
            return Err(Corruption { part: Part::Footer, offset, reason: Reason::Count }.into());
        }
        Ok(())
    }

    /// The first leaf that can have a block.
    fn leaf_of(&self, block: BlockNumber) -> u64 {
        self.first_blocks.partition_point(|first| *first < block).saturating_sub(1) as u64
    }

    /// A leaf, its page checked if nobody did so before.
    fn leaf(&self, number: u64) -> Result<&[u8], Error> {
        if !self.checks.ensure(number, || self.data.has_page(number + 1) && self.read_leaf(number).is_ok()) {
            self.data.bring_page(number + 1)?;
            return self.read_leaf(number);
        }
        Ok(self.page(number))
    }

    /// A leaf, its page checked now.
    fn read_leaf(&self, number: u64) -> Result<&[u8], Error> {
        let page = self.page(number);
        if !is_sealed(page, number + 1, self.salt) {
            return Err(damaged(number, Reason::Checksum));
        }
        let end = u16_at(page, END_AT).unwrap_or(0) as usize;
        let first = self.first_blocks.get(number as usize).copied();
        let is_sound = first.is_some() && u64_at(page, FIRST_BLOCK_AT) == first;
        if !is_sound || !(BODY_AT..=PAGE_SIZE).contains(&end) || u16_at(page, RECORDS_AT) == Some(0) {
            return Err(damaged(number, Reason::Field));
        }
        Ok(page)
    }

    /// Empty when the data is no longer as long as it was, which nothing but its owner can bring about.
    fn page(&self, number: u64) -> &[u8] {
        let from = (number as usize + 1) * PAGE_SIZE;
        self.data.as_ref().get(from..from + PAGE_SIZE).unwrap_or_default()
    }
}

/// A position in a block index, from [`BlockIndex::cursor`]. Whatever the bytes are, a loop over it ends.
pub struct BlockCursor<'i, D> {
    index: &'i BlockIndex<D>,
    /// Blocks below are passed over.
    from: BlockNumber,
    /// The leaf after the one that is read.
    leaf: u64,
    /// The records of the leaf that is read.
    page: &'i [u8],
    at: usize,
    /// Records that were not begun.
    records: u16,
    block: BlockNumber,
    /// References of the record that were not read.
    references: u64,
    last: Option<(BlockNumber, u64)>,
}

impl<D: FileBytes> BlockCursor<'_, D> {
    /// The next page that has entries of a block; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged leaf. Another call goes on in the leaf after it.
    #[expect(clippy::should_implement_trait, reason = "an error does not end it: it is no iterator")]
    pub fn next(&mut self) -> Result<Option<BlockPage>, Error> {
        loop {
            if self.references == 0 && self.records == 0 && !self.enter_leaf()? {
                return Ok(None);
            }
            let found = self.read().ok_or_else(|| {
                (self.references, self.records) = (0, 0);
                damaged(self.leaf - 1, Reason::Order)
            })?;
            if found.block >= self.from {
                return Ok(Some(found));
            }
        }
    }

    fn enter_leaf(&mut self) -> Result<bool, Error> {
        if self.leaf == self.index.summary.leaves {
            return Ok(false);
        }
        self.leaf += 1;
        let page = self.index.leaf(self.leaf - 1)?;
        let end = u16_at(page, END_AT).unwrap_or(0).into();
        self.records = u16_at(page, RECORDS_AT).unwrap_or(0);
        self.block = u64_at(page, FIRST_BLOCK_AT).unwrap_or(0);
        (self.page, self.at) = (page.get(..end).unwrap_or_default(), BODY_AT);
        Ok(true)
    }

    /// `None`: the leaf is not one that a builder writes.
    #[inline]
    fn read(&mut self) -> Option<BlockPage> {
        let mut base = self.last.map_or(0, |(_, page)| page.wrapping_add(1));
        if self.references == 0 {
            let (is_first, blocks) = (self.at == BODY_AT, take_varint(self.page, &mut self.at)?);
            if is_first != (blocks == 0) {
                return None;
            }
            self.block = self.block.checked_add(blocks)?;
            self.references = take_varint(self.page, &mut self.at).filter(|references| *references > 0)?;
            self.records -= 1;
            base = 0;
        }
        self.references -= 1;
        let code = take_varint(self.page, &mut self.at)?;
        let more = if code & 1 == 0 { 0 } else { take_varint(self.page, &mut self.at)?.checked_add(1)? };
        let page = base.checked_add(code >> 1).filter(|page| *page < self.index.summary.pages)?;
        let is_end = self.references == 0 && self.records == 0;
        let place = Some((self.block, page));
        if self.last >= place || is_end != (self.at == self.page.len()) {
            return None;
        }
        self.last = place;
        Some(BlockPage { block: self.block, page, entries: more.checked_add(1)? })
    }
}

#[cold]
fn damaged(number: u64, reason: Reason) -> Error {
    Corruption { part: Part::BlockLeaf, offset: (number + 1) * PAGE_SIZE as u64, reason }.into()
}
