//! The block index of a segment: built while the `.kv` is written, or from a `.kv` that is there.
//!
//! A segment builder says which entry a page begins with when it finishes the page, so the blocks of the entries since wait until then:
//! those of a page, and as long as the encoding is not chosen those of the head.

use std::collections::VecDeque;

use icecore_index::{BlockIndex, BlockIndexBuilder, MemorySpool, Spool};
use icecore_segments::Segment;
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::Kind;
use icecore_segments::span::{PageSpan, Pivot, PivotSink};
use icecore_segments::step::{BlockNumber, StepRange};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::{FileRecord, SegmentRecord};
use crate::segment::live::{KvFile, LiveSegment};
use crate::segment::new_file::{EngineSpool, NewFile, Progress, RELEASE_EVERY, SyncedFile};
use crate::storage::Mapping;
use crate::storage::directory::Directory;

/// A builder whose entries go to a temporary file where they are many.
pub(crate) fn block_index_builder(directory: &Directory) -> Result<BlockIndexBuilder<EngineSpool>, Error> {
    Ok(BlockIndexBuilder::new(EngineSpool::create(directory)?))
}

/// Passes pivots on, and learns from them which page each entry went to.
pub(super) struct BlockTap<P> {
    pivots: P,
    index: Option<BlockIndexBuilder<EngineSpool>>,
    /// The blocks of the entries from `placed` on.
    waiting: VecDeque<BlockNumber>,
    /// How many entries went to a page that is known.
    placed: u64,
    page: u64,
}

impl<P> BlockTap<P> {
    pub(super) fn new(pivots: P, index: Option<BlockIndexBuilder<EngineSpool>>) -> Self {
        Self { pivots, index, waiting: VecDeque::new(), placed: 0, page: 0 }
    }

    /// Takes the block of the next entry, before the segment builder takes the entry.
    #[inline]
    pub(super) fn expect(&mut self, block: BlockNumber) {
        if self.index.is_some() {
            self.waiting.push_back(block);
        }
    }

    /// The entries before `ordinal` that wait are in the page that began last.
    fn place(&mut self, ordinal: u64) -> Result<(), icecore_segments::Error> {
        let Some(index) = &mut self.index else { return Ok(()) };
        let count = (ordinal - self.placed) as usize;
        self.placed = ordinal;
        self.waiting.drain(..count).try_for_each(|block| index.push(block, self.page))
    }

    /// What is left is in the last page.
    pub(super) fn finish(
        mut self,
    ) -> Result<(P, Option<BlockIndexBuilder<EngineSpool>>), icecore_segments::Error> {
        self.place(self.placed + self.waiting.len() as u64)?;
        Ok((self.pivots, self.index))
    }
}

impl<P: PivotSink> PivotSink for BlockTap<P> {
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), icecore_segments::Error> {
        if pivot.restart == 0 {
            self.place(pivot.ordinal)?;
            self.page = pivot.page;
        }
        self.pivots.pivot(pivot)
    }
}

/// Writes and syncs the index of a `.kv` with content `parent` and `pages` data pages.
pub(super) fn write_block_index(
    directory: &Directory,
    (domain, steps, named): (DomainId, StepRange, Option<FileRecord>),
    builder: BlockIndexBuilder<EngineSpool>,
    parent: Checksum,
    pages: u64,
) -> Result<SyncedFile, Error> {
    let (file, sink) = NewFile::create(directory, domain, steps, Kind::BlockIndex, named)?;
    let built = builder.finish(sink, directory.config.name(domain), steps, parent, pages);
    let (summary, sink) = built.map_err(|e| file.error(e))?;
    file.sync(sink, summary.file)
}

/// Builds a block index for an unchanged `.kv`: a new file beside the old one, if there is one.
pub(crate) fn rebuild_block_index(
    directory: &Directory,
    record: &SegmentRecord,
    progress: &mut Progress<'_>,
) -> Result<FileRecord, Error> {
    let kv = KvFile::open_for_pass(directory, record)?;
    let (segment, mut builder) = (kv.view(), block_index_builder(directory)?);
    let mut held = 0;
    feed(&kv, &mut builder, &mut |_, entries| {
        held += entries;
        if held >= RELEASE_EVERY {
            held = 0;
            segment.data().advise_dont_need();
        }
        progress(entries)
    })?;
    let summary = segment.summary();
    let of = (record.domain, record.steps, record.kvbi);
    Ok(write_block_index(directory, of, builder, summary.file.content, summary.pages)?.keep())
}

/// How much of a `.kv` is fetched at once by a pass through a mapping for random reading: a megabyte.
const AHEAD_PAGES: u64 = 256;

impl LiveSegment {
    /// Its block index, made in memory from a pass over the `.kv`.
    pub(crate) fn build_block_index(&self, domain: &str) -> Result<BlockIndex<Vec<u8>>, Error> {
        let kv = self.kv.get()?;
        let (segment, mut builder) = (kv.view(), BlockIndexBuilder::new(MemorySpool::default()));
        feed(kv, &mut builder, &mut |page, _| {
            let last = page + AHEAD_PAGES - 1;
            segment.data().will_need(segment.file_range(PageSpan { first: page, last, restart: 0 }));
            Ok(())
        })?;
        let (steps, parent) = (self.record.steps, self.record.kv.summary.content);
        let built = builder.finish(Vec::new(), domain, steps, parent, segment.summary().pages);
        built.and_then(|(_, bytes)| BlockIndex::open(bytes, parent)).map_err(|e| kv.error(e))
    }
}

/// Gives a builder all entries of a `.kv`. `on_page` is called now and then, with a page before it is read and the entries passed since
/// the last call.
fn feed(
    kv: &KvFile,
    builder: &mut BlockIndexBuilder<impl Spool>,
    on_page: &mut dyn FnMut(u64, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let segment: &Segment<Mapping> = kv.view();
    let (mut cursor, mut last, mut passed) = (segment.cursor(), 0, 0);
    on_page(0, 0)?;
    cursor.seek_first().map_err(|e| kv.error(e))?;
    while let (Some(entry), Some(page)) = (cursor.entry(), cursor.page()) {
        if page >= last + AHEAD_PAGES {
            on_page(page, passed)?;
            (last, passed) = (page, 0);
        }
        passed += 1;
        builder.push(entry.block, page).map_err(|e| kv.error(e))?;
        cursor.next().map_err(|e| kv.error(e))?;
    }
    Ok(())
}
