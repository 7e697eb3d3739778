//! All versions of one key, newest first: memory, then segment by segment those that have the key.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use icecore_index::FilterHash;
use icecore_segments::bytes::key_head;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::Found;
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::segment::live::LiveSegment;
use crate::stats::Tally;

/// Versions of a segment that are read at a time.
const CHUNK_LEN: usize = 256;

/// Segments that are planned at a time, where they are elsewhere.
const PLANNED: usize = 16;

/// One version of a key: a block and what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block that wrote it.
    pub block: BlockNumber,
    /// The value, or `None` for a deletion.
    pub value: Option<Vec<u8>>,
}

/// The versions of a key, newest first: the iterator of [`View::history`](crate::View::history) and
/// [`Reader::history`](crate::Reader::history).
///
/// It is `Send` and owns the state it reads from, which it pins as a [`View`](crate::View) does.
///
/// # Cost
/// Nothing is read before the first `next`. Then memory, and segment by segment as far as it is consumed: one filter page each,
/// plus one index page and the data pages of the versions, 256 versions at a time, for a segment that has the key.
///
/// # Errors
/// An item is an error where a file that is needed is damaged, or [not held](Error::NotHeld). It is the last.
pub struct History {
    shared: Arc<Shared>,
    version: Pinned,
    domain: DomainId,
    key: Vec<u8>,
    /// Versions above are not wanted, or were given already; `None` at the end.
    at: Option<BlockNumber>,
    /// Whether memory was read.
    memory_is_read: bool,
    /// Segments that were not read to their end, oldest first.
    segments: usize,
    /// The lowest height that is answered.
    first: Option<BlockNumber>,
    /// Of these so many were not planned.
    planned: usize,
    chunk: VecDeque<Found>,
}

impl History {
    pub(crate) fn new(
        shared: Arc<Shared>,
        version: Pinned,
        domain: DomainId,
        key: &[u8],
        at: Option<BlockNumber>,
    ) -> Self {
        let state = version.state();
        let (segments, first) = (state.domain(domain).len(), state.first);
        let (key, chunk) = (key.to_vec(), VecDeque::new());
        Self {
            shared,
            version,
            domain,
            key,
            at,
            memory_is_read: false,
            segments,
            first,
            planned: segments,
            chunk,
        }
    }

    /// Requests what the next segments will be asked for, where they are elsewhere: filters and leaves together, then pages together.
    fn plan(&mut self, state: &ReadState, hash: FilterHash, at: BlockNumber) -> Result<(), Error> {
        self.planned = self.segments.saturating_sub(PLANNED);
        let next = state.domain(self.domain)[self.planned..self.segments].iter();
        let spans = |segment: &&Arc<LiveSegment>| {
            segment.is_elsewhere() && segment.blocks.0 <= at && segment.spans_key(key_head(&self.key))
        };
        let next: Vec<&Arc<LiveSegment>> = next.filter(spans).collect();
        for segment in &next {
            segment.request_filter(hash);
            segment.request_leaf(&self.key, at);
        }
        for segment in &next {
            if segment.probe_filter(hash)? {
                let (span, kv) = (segment.locate(&self.key, at)?, segment.kv.get()?.view());
                kv.data().will_need(kv.file_range(PageSpan::page(span.first)));
            }
        }
        Ok(())
    }

    /// Reads on until there is a version to give; none is left where there is none then.
    fn fill(&mut self, at: BlockNumber) -> Result<(), Error> {
        let version = self.version.clone();
        let mut begins_anew = false;
        version.read(|state| {
            if std::mem::replace(&mut begins_anew, true) {
                self.chunk.clear();
                self.planned = self.segments;
            }
            self.fill_from(state, at)
        })
    }

    fn fill_from(&mut self, state: &ReadState, at: BlockNumber) -> Result<(), Error> {
        if !self.memory_is_read {
            self.memory_is_read = true;
            self.chunk = state.history_in_memory(self.domain, &self.key, at)?.into();
        }
        let hash = FilterHash::of(&self.key);
        while self.chunk.is_empty() && self.segments > 0 {
            if self.segments == self.planned {
                self.plan(state, hash, at)?;
            }
            let tally = self.shared.counters.mine();
            let segment = &state.domain(self.domain)[self.segments - 1];
            if segment.blocks.0 <= at
                && segment.spans_key(key_head(&self.key))
                && segment.may_hold(hash, tally)?
            {
                versions_of(segment, &self.key, at, tally, &mut self.chunk)?;
            }
            if self.chunk.len() < CHUNK_LEN {
                self.segments -= 1;
            }
        }
        Ok(())
    }
}

impl Iterator for History {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at?;
        if self.chunk.is_empty()
            && let Err(error) = self.fill(at)
        {
            self.at = None;
            return Some(Err(error));
        }
        let found = self.chunk.pop_front();
        self.at = found.as_ref().and_then(|(block, _)| block.checked_sub(1));
        let (block, value) = found?;
        // History ends where reading ends: what a prune has not reached yet, in memory or in a segment, is not shown, and of
        // what the lowest block only inherits, a deletion is nothing.
        if let Some(first) = self.first.filter(|first| block <= *first) {
            self.at = None;
            if block < first && value.is_none() {
                return None;
            }
        }
        Some(Ok(Change { block, value }))
    }
}

impl std::iter::FusedIterator for History {}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("key", &self.key).field("at", &self.at).finish_non_exhaustive()
    }
}

impl ReadState {
    /// The versions of `key` at or below `at` among the blocks that are in no segment, newest first.
    fn history_in_memory(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Result<Vec<Found>, Error> {
        match &self.log {
            Some(log) => log.history(domain, key, at),
            None => Ok(self.tables.iter().rev().flat_map(|table| table.history(domain, key, at)).collect()),
        }
    }
}

/// Appends versions of `key` at or below `at`, newest first, at most [`CHUNK_LEN`].
fn versions_of(
    segment: &LiveSegment,
    key: &[u8],
    at: BlockNumber,
    tally: &Tally,
    found: &mut VecDeque<Found>,
) -> Result<(), Error> {
    let span = segment.locate_in(None, key, at, tally)?;
    let kv = segment.kv.get()?;
    let mut cursor = kv.view().cursor();
    cursor.seek_in(span, key, at).map_err(|e| kv.error(e))?;
    while let Some(entry) = cursor.entry().filter(|entry| entry.key == key && found.len() < CHUNK_LEN) {
        found.push_back((entry.block, LiveSegment::load(kv, &entry.value)?));
        cursor.next().map_err(|e| kv.error(e))?;
    }
    Ok(())
}
