//! The blocks that changed one key, newest first and without what they wrote: memory, then segment by segment those that have the key.

use std::fmt;
use std::sync::Arc;

use icecore_index::FilterHash;
use icecore_segments::bytes::key_head;
use icecore_segments::step::BlockNumber;
use icecore_segments::{Value, Version};

use crate::domain::DomainId;
use crate::error::Error;
use crate::read::get::PAGE;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::segment::live::LiveSegment;
use crate::stats::{Count, Event, Tally};

/// The blocks that wrote or deleted a key, newest first: the iterator of [`View::change_blocks`](crate::View::change_blocks).
///
/// It is `Send` and owns the state it reads from, which it pins as a [`View`](crate::View) does. Values are not read, whatever their
/// size; [`History`](crate::History) reads them.
///
/// # Cost
/// Nothing is read before the first `next`. Then memory, and segment by segment as far as it is consumed: one filter page each, plus
/// one index page and the data pages of the versions, a page at a time, for a segment that has the key.
///
/// # Errors
/// An item is an error where a file that is needed is damaged, or [not held](Error::NotHeld). It is the last.
pub struct ChangeBlocks {
    shared: Arc<Shared>,
    version: Arc<ReadState>,
    domain: DomainId,
    key: Vec<u8>,
    /// Blocks above are not wanted, or were read already; `None` when no more are to be read.
    at: Option<BlockNumber>,
    /// Whether memory was read.
    memory_is_read: bool,
    /// Segments that were not read to their end, oldest first.
    segments: usize,
    /// The page of the last of them where its versions go on, once they began.
    page: Option<u64>,
    /// What was read last.
    blocks: Vec<BlockNumber>,
    /// How many of those were given.
    given: usize,
}

impl ChangeBlocks {
    pub(crate) fn new(
        shared: Arc<Shared>,
        version: Arc<ReadState>,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
    ) -> Self {
        let segments = version.domain(domain).len();
        let (key, at, memory_is_read, page) = (key.to_vec(), Some(at), false, None);
        let (blocks, given) = (Vec::new(), 0);
        Self { shared, version, domain, key, at, memory_is_read, segments, page, blocks, given }
    }

    /// Appends all blocks that are left, newest first, and returns how many there were. A million take less than two milliseconds.
    ///
    /// # Errors
    /// Damage of a file that is read. The blocks before it were appended, and no more come.
    pub fn read_to_end(&mut self, blocks: &mut Vec<BlockNumber>) -> Result<usize, Error> {
        let before = blocks.len();
        loop {
            blocks.extend_from_slice(&self.blocks[self.given..]);
            self.fill()?;
            if self.blocks.is_empty() {
                return Ok(blocks.len() - before);
            }
        }
    }

    /// Reads on; no blocks are left where there are none then.
    fn fill(&mut self) -> Result<(), Error> {
        self.blocks.clear();
        self.given = 0;
        let Some(at) = self.at else { return Ok(()) };
        let read = self.read(at).and_then(|()| self.end_at_floor());
        if read.is_err() {
            self.at = None;
            self.blocks.clear();
        }
        read
    }

    fn read(&mut self, at: BlockNumber) -> Result<(), Error> {
        if !self.memory_is_read {
            self.memory_is_read = true;
            self.blocks = self.version.change_blocks_in_memory(self.domain, &self.key, at)?;
        }
        let (tally, hash) = (self.shared.counters.mine(), FilterHash::of(&self.key));
        while self.blocks.is_empty() && self.segments > 0 {
            let segment = &self.version.domain(self.domain)[self.segments - 1];
            let page = match self.page {
                Some(page) => Some(page),
                None => segment.first_version_page(&self.key, hash, at, tally)?,
            };
            self.page = match page {
                Some(page) => segment.change_blocks(page, &self.key, at, tally, &mut self.blocks)?,
                None => None,
            };
            if self.page.is_none() {
                self.segments -= 1;
            }
        }
        // Below block 0 there is nothing.
        self.at = self.blocks.last().and_then(|last| last.checked_sub(1));
        Ok(())
    }

    /// Ends where reading ends, as [`History`](crate::History) does: with what the lowest block sees, unless that is a deletion it inherits.
    fn end_at_floor(&mut self) -> Result<(), Error> {
        let Some(first) = self.version.first else { return Ok(()) };
        let above = self.blocks.partition_point(|block| *block > first);
        let Some(&seen) = self.blocks.get(above) else { return Ok(()) };
        let tally = self.shared.counters.mine();
        let is_shown = seen == first
            || self
                .version
                .newest_change(self.domain, &self.key, seen, tally)?
                .is_some_and(|c| !c.is_deletion);
        self.blocks.truncate(above + usize::from(is_shown));
        self.at = None;
        Ok(())
    }
}

impl Iterator for ChangeBlocks {
    type Item = Result<BlockNumber, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.given == self.blocks.len()
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        let block = self.blocks.get(self.given)?;
        self.given += 1;
        Some(Ok(*block))
    }
}

impl std::iter::FusedIterator for ChangeBlocks {}

impl fmt::Debug for ChangeBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeBlocks").field("key", &self.key).field("at", &self.at).finish_non_exhaustive()
    }
}

/// A version without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) block: BlockNumber,
    pub(crate) is_deletion: bool,
}

impl ReadState {
    /// The newest version of `key` at or below `at`; its value is not read.
    pub(crate) fn newest_change(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Option<Written>, Error> {
        tally.count(Event::Lookup);
        if let Some((block, value)) = self.find_in_memory(domain, key, at)? {
            tally.count(Event::Memory);
            return Ok(Some(Written { block, is_deletion: value.is_none() }));
        }
        let hash = FilterHash::of(key);
        for segment in self.domain(domain).iter().rev() {
            if !segment.may_have_version(key, hash, at, tally)? {
                continue;
            }
            if let Some(found) = segment.newest_change(key, at, tally)? {
                return Ok(Some(found));
            }
            tally.count(Event::FalsePositive);
        }
        Ok(None)
    }

    /// The blocks at or below `at` that changed `key`, among those that are in no segment, newest first.
    fn change_blocks_in_memory(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
    ) -> Result<Vec<BlockNumber>, Error> {
        match &self.log {
            Some(log) => Ok(log.history(domain, key, at)?.into_iter().map(|(block, _)| block).collect()),
            None => {
                let mut blocks = Vec::new();
                self.tables.iter().rev().for_each(|table| table.change_blocks(domain, key, at, &mut blocks));
                Ok(blocks)
            }
        }
    }
}

impl LiveSegment {
    /// Whether there may be a version at or below `at`, by what is known without a look at index and pages.
    fn may_have_version(
        &self,
        key: &[u8],
        hash: FilterHash,
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<bool, Error> {
        Ok(self.blocks.0 <= at && self.spans_key(key_head(key)) && self.may_hold(hash, tally)?)
    }

    fn newest_change(&self, key: &[u8], at: BlockNumber, tally: &Tally) -> Result<Option<Written>, Error> {
        let span = self.locate_in(None, key, at, tally)?;
        tally.count(Event::Page);
        let kv = self.kv.get()?;
        PAGE.with_borrow_mut(|buf| {
            let found = kv.view().get_in(span, key, at, buf).map_err(|e| kv.error(e))?;
            Ok(found.map(|Version { block, value }| Written { block, is_deletion: value == Value::Deletion }))
        })
    }

    /// The page on which the versions of a key at or below `at` begin; `None` where there are none.
    fn first_version_page(
        &self,
        key: &[u8],
        hash: FilterHash,
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Option<u64>, Error> {
        if !self.may_have_version(key, hash, at, tally)? {
            return Ok(None);
        }
        let span = self.locate_in(None, key, at, tally)?;
        let kv = self.kv.get()?;
        let page = PAGE.with_borrow_mut(|buf| kv.view().versions_page(span, key, at, buf));
        page.map(Some).map_err(|e| kv.error(e))
    }

    /// Appends the blocks of a page, and returns the page where they go on.
    fn change_blocks(
        &self,
        page: u64,
        key: &[u8],
        at: BlockNumber,
        tally: &Tally,
        blocks: &mut Vec<BlockNumber>,
    ) -> Result<Option<u64>, Error> {
        tally.count(Event::Page);
        let kv = self.kv.get()?;
        let next = PAGE.with_borrow_mut(|buf| kv.view().version_blocks(page, key, at, buf, blocks));
        next.map_err(|e| kv.error(e))
    }
}
