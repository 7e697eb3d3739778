//! Builds a `.kvbi` from the entries of a segment in its order, in bounded memory.

use std::io::Write;

use icecore_segments::bytes::{put_varint, varint_len};
use icecore_segments::checksum::{Checksum, crc64};
use icecore_segments::error::Error;
use icecore_segments::frame::{FrameWriter, Header, Kind, PAGE_SIZE};
use icecore_segments::step::{BlockNumber, StepRange};

use super::runs::{Place, RUN_ENTRIES, Run, merge, sort_by_block};
use super::{BODY_AT, BlockIndexSummary, BlockPage, END_AT, FIRST_BLOCK_AT, PAYLOAD_LEN, RECORDS_AT};
use crate::filter::Spool;

/// Collects which page each block wrote to, and writes the index. Holds 32 MiB at most, and 16 KiB for each run of 2^20 entries.
pub struct BlockIndexBuilder<S: Spool> {
    run: Vec<Place>,
    scratch: Vec<Place>,
    run_entries: usize,
    runs: Vec<Run>,
    spool: S,
    entries: u64,
}

impl<S: Spool> BlockIndexBuilder<S> {
    /// A builder that leaves in `spool` what does not fit its memory.
    pub fn new(spool: S) -> Self {
        Self::with_run(spool, RUN_ENTRIES)
    }

    /// The same, with runs of a length of one's own: how tests reach the spool with few entries.
    pub(crate) fn with_run(spool: S, run_entries: usize) -> Self {
        let (run, scratch, runs) = (Vec::new(), Vec::new(), Vec::new());
        Self { run, scratch, run_entries, runs, spool, entries: 0 }
    }

    /// Takes the next entry of the segment: the block that wrote it, and the data page that it is in.
    ///
    /// # Errors
    /// A failed spool.
    #[inline]
    pub fn push(&mut self, block: BlockNumber, page: u64) -> Result<(), Error> {
        if self.run.len() == self.run_entries {
            sort_by_block(&mut self.run, &mut self.scratch);
            self.runs.push(Run::write(&self.run, &mut self.spool)?);
            self.run.clear();
        }
        self.entries += 1;
        self.run.push(Place { block, page });
        Ok(())
    }

    /// Writes the file: header, leaves, table of first blocks, footer.
    ///
    /// `parent` is the content checksum of the `.kv` with these entries, and `pages` the number of its data pages.
    ///
    /// # Errors
    /// A failed spool or writer; [`Error::TooLarge`] for a domain name that does not fit.
    pub fn finish<W: Write>(
        mut self,
        sink: W,
        domain: &str,
        steps: StepRange,
        parent: Checksum,
        pages: u64,
    ) -> Result<(BlockIndexSummary, W), Error> {
        let mut leaves =
            LeafWriter::new(FrameWriter::new(sink, &Header::new(Kind::BlockIndex, domain, steps)?)?);
        sort_by_block(&mut self.run, &mut self.scratch);
        if self.runs.is_empty() {
            drop(self.scratch);
            self.run.iter().try_for_each(|place| leaves.add(*place))?;
        } else {
            self.runs.push(Run::write(&self.run, &mut self.spool)?);
            drop((self.run, self.scratch));
            merge(&self.runs, &mut self.spool, |place| leaves.add(place))?;
        }
        leaves.finish(self.entries, parent, pages)
    }
}

/// Writes entries by block and page as leaves.
struct LeafWriter<W> {
    frame: FrameWriter<W>,
    /// Entries of one block and page, until another comes.
    pending: Option<BlockPage>,
    page: Box<[u8; PAGE_SIZE]>,
    /// Where the closed records of the leaf end.
    end: usize,
    records: u16,
    /// The block of the last closed record.
    last_block: BlockNumber,
    /// The record that grows: its block, its references, how many, and the page of the last.
    block: BlockNumber,
    references: Vec<u8>,
    count: u64,
    last_page: u64,
    first_blocks: Vec<u8>,
    blocks: u64,
}

impl<W: Write> LeafWriter<W> {
    fn new(frame: FrameWriter<W>) -> Self {
        Self {
            frame,
            pending: None,
            page: Box::new([0; PAGE_SIZE]),
            end: BODY_AT,
            records: 0,
            last_block: 0,
            block: 0,
            references: Vec::with_capacity(PAGE_SIZE),
            count: 0,
            last_page: 0,
            first_blocks: Vec::new(),
            blocks: 0,
        }
    }

    /// Takes the next entry by block and page.
    #[inline]
    fn add(&mut self, place: Place) -> Result<(), Error> {
        if let Some(pending) = &mut self.pending
            && (pending.block, pending.page) == (place.block, place.page)
        {
            pending.entries += 1;
            return Ok(());
        }
        let next = BlockPage { block: place.block, page: place.page, entries: 1 };
        self.pending.replace(next).map_or(Ok(()), |done| self.refer(done))
    }

    fn refer(&mut self, to: BlockPage) -> Result<(), Error> {
        if self.blocks == 0 || self.block != to.block {
            self.close_record();
            self.blocks += 1;
            self.block = to.block;
        }
        let whole = self.references.len();
        self.append(to);
        let head = varint_len(self.blocks_after()) + varint_len(self.count);
        if self.end + head + self.references.len() > PAGE_SIZE {
            self.references.truncate(whole);
            self.count -= 1;
            self.close_record();
            self.write_leaf()?;
            self.append(to);
        }
        self.last_page = to.page;
        Ok(())
    }

    fn append(&mut self, to: BlockPage) {
        let pages = if self.count == 0 { to.page } else { to.page - self.last_page - 1 };
        put_varint(&mut self.references, pages << 1 | u64::from(to.entries > 1));
        if to.entries > 1 {
            put_varint(&mut self.references, to.entries - 2);
        }
        self.count += 1;
    }

    /// How far the block of the record that grows is above that of the last one in the leaf; the first begins at its own.
    fn blocks_after(&self) -> u64 {
        if self.records == 0 { 0 } else { self.block - self.last_block }
    }

    fn close_record(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut head = Vec::with_capacity(20);
        put_varint(&mut head, self.blocks_after());
        put_varint(&mut head, self.count);
        if self.records == 0 {
            self.page[FIRST_BLOCK_AT..][..8].copy_from_slice(&self.block.to_le_bytes());
            self.first_blocks.extend_from_slice(&self.block.to_le_bytes());
        }
        for bytes in [&head, &self.references] {
            self.page[self.end..][..bytes.len()].copy_from_slice(bytes);
            self.end += bytes.len();
        }
        self.records += 1;
        self.last_block = self.block;
        self.references.clear();
        self.count = 0;
    }

    fn write_leaf(&mut self) -> Result<(), Error> {
        if self.records == 0 {
            return Ok(());
        }
        self.page[RECORDS_AT..][..2].copy_from_slice(&self.records.to_le_bytes());
        self.page[END_AT..][..2].copy_from_slice(&(self.end as u16).to_le_bytes());
        self.frame.write_page(&mut self.page[..])?;
        self.page.fill(0);
        (self.end, self.records) = (BODY_AT, 0);
        Ok(())
    }

    fn finish(mut self, entries: u64, parent: Checksum, pages: u64) -> Result<(BlockIndexSummary, W), Error> {
        self.pending.take().map_or(Ok(()), |done| self.refer(done))?;
        self.close_record();
        self.write_leaf()?;
        let (blocks, leaves) = (self.blocks, self.first_blocks.len() as u64 / 8);
        let table_offset = self.frame.position();
        self.frame.write_raw(&self.first_blocks)?;
        let mut payload = [0; PAYLOAD_LEN];
        let fields = [entries, blocks, pages, leaves, table_offset, crc64(&self.first_blocks)];
        for (field, value) in fields.into_iter().enumerate() {
            payload[8 * field..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let (file, sink) = self.frame.finish(parent, &payload)?;
        Ok((BlockIndexSummary { file, entries, blocks, pages, leaves, top_bytes: 8 * leaves }, sink))
    }
}

#[cfg(test)]
mod tests {
    use icecore_segments::step::Step;

    use super::*;
    use crate::filter::MemorySpool;

    fn build(places: &[(u64, u64)], run: usize) -> Vec<u8> {
        let mut builder = BlockIndexBuilder::with_run(MemorySpool::default(), run);
        places.iter().try_for_each(|(block, page)| builder.push(*block, *page)).unwrap();
        let steps = StepRange::single(Step(0));
        builder.finish(Vec::new(), "storage", steps, Checksum([1; 32]), 9000).unwrap().1
    }

    #[test]
    fn spooled_and_unspooled_bytes_are_the_same() {
        let places: Vec<_> = (0..60_000u64).map(|i| (i.wrapping_mul(7919) % 613, i / 7)).collect();
        let bytes = build(&places, RUN_ENTRIES);
        for run in [1000, 7777, 59_999, 60_000] {
            assert!(build(&places, run) == bytes, "{run}");
        }
    }
}
