//! Ordered reads: all keys of a range at one height, in either direction.
//!
//! Every table and every segment of the version yields its keys in order, each with the newest version it can give;
//! the scan merges them by key and lets the newest block win. Memory is a page per segment and a chunk per table.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::step::BlockNumber;
use icecore_segments::{Cursor, Value};

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::step_memtable::StepMemtable;
use crate::memtable::{Direction, Found};
use crate::read::ahead::{WINDOW_MIN, WalkWindow};
use crate::read::read_state::ReadState;
use crate::read::scan_range::Scan;
use crate::segment::live::{KvFile, LiveSegment};
use crate::storage::Mapping;

/// Keys fetched from a table at a time: long enough to make the lock cheap, short enough not to hold up the writer.
const CHUNK: usize = 128;

/// Versions of one key that a cursor steps over before it looks the place up instead.
const STEPS_MAX: usize = 16;

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The keys of a [`Scan`] with their values, absent and deleted keys left out; for the archive's own reads.
pub(crate) struct MergeScan<'v> {
    sources: Vec<Source<'v>>,
    direction: Direction,
    failed: bool,
    /// Keys passed in all sources.
    passed: u64,
}

impl<'v> MergeScan<'v> {
    pub(crate) fn new(
        version: &'v ReadState,
        domain: DomainId,
        scan: &Scan,
        at: BlockNumber,
    ) -> Result<Self, Error> {
        Self::with_window(version, domain, scan, at, WINDOW_MIN)
    }

    /// The same where so many pages of each segment will surely be read.
    pub(crate) fn with_window(
        version: &'v ReadState,
        domain: DomainId,
        scan: &Scan,
        at: BlockNumber,
        window: u64,
    ) -> Result<Self, Error> {
        let (lower, upper) = scan.bounds();
        let range = Range { domain, lower, upper, at, direction: scan.direction };
        let of_domain = version.domain(domain).iter().map(Arc::as_ref);
        let segments: Vec<&LiveSegment> =
            of_domain.filter(|segment| segment.blocks.0 <= at && range.touches(segment)).collect();
        segments.iter().for_each(|segment| range.request_leaves(segment));
        let mut aheads = Vec::with_capacity(segments.len());
        for segment in &segments {
            aheads.push(range.plan(segment, window)?);
        }
        let mut sources = Vec::with_capacity(segments.len());
        for (segment, ahead) in segments.into_iter().zip(aheads) {
            sources.push(Source::segment(segment, range.clone(), ahead)?);
        }
        sources.extend(version.memory_up_to(at)?.iter().map(|table| Source::table(table, range.clone())));
        for source in &mut sources {
            source.advance()?;
        }
        Ok(Self { sources, direction: scan.direction, failed: false, passed: 0 })
    }

    /// The next key of the merge with its winning version, deletions included.
    pub(crate) fn next_version(&mut self) -> Result<Option<(Vec<u8>, Found)>, Error> {
        let mut best: Option<usize> = None;
        for (i, source) in self.sources.iter().enumerate() {
            let Some((key, (block, _))) = &source.current else { continue };
            let wins = best.is_none_or(|best| {
                let (best_key, (best_block, _)) =
                    self.sources[best].current.as_ref().expect("best has a current entry");
                match key.cmp(best_key) {
                    Ordering::Equal => block > best_block,
                    order => (order == Ordering::Less) == (self.direction == Direction::Forward),
                }
            });
            if wins {
                best = Some(i);
            }
        }
        let Some(best) = best else { return Ok(None) };
        let taken = self.sources[best].current.take().expect("best has a current entry");
        self.passed += 1;
        for source in &mut self.sources {
            if source.current.as_ref().is_none_or(|(key, _)| *key == taken.0) {
                self.passed += u64::from(source.current.is_some());
                source.advance()?;
            }
        }
        Ok(Some(taken))
    }

    /// How many keys were passed so far, those of several tables and segments counted as often.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }
}

impl Iterator for MergeScan<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            match self.next_version() {
                Ok(Some((key, (_, Some(value))))) => return Some(Ok((key, value))),
                Ok(Some((_, (_, None)))) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// The part of a domain that a scan wants, at its height.
#[derive(Clone)]
struct Range {
    domain: DomainId,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    at: BlockNumber,
    direction: Direction,
}

impl Range {
    fn touches(&self, segment: &LiveSegment) -> bool {
        // One that cannot say is read, and says then what is wrong.
        segment
            .summary()
            .map_or(true, |summary| !self.is_below(&summary.last_key) && !self.is_above(&summary.first_key))
    }

    /// Requests what [`Range::plan`] reads of an index that is elsewhere, to be waited for together with others.
    fn request_leaves(&self, segment: &LiveSegment) {
        if segment.is_elsewhere() {
            if let Bound::Included(key) | Bound::Excluded(key) = &self.lower {
                segment.request_leaf(key, BlockNumber::MAX);
            }
            if let Bound::Included(key) | Bound::Excluded(key) = &self.upper {
                segment.request_leaf(key, 0);
            }
        }
    }

    /// Requests the first pages of a segment that is elsewhere.
    fn plan(&self, segment: &LiveSegment, window: u64) -> Result<Option<WalkWindow>, Error> {
        if !segment.is_elsewhere() {
            return Ok(None);
        }
        let last_page = segment.summary()?.pages.saturating_sub(1);
        let first = match &self.lower {
            Bound::Included(key) | Bound::Excluded(key) => segment.locate(key, BlockNumber::MAX)?.first,
            Bound::Unbounded => 0,
        };
        let last = match &self.upper {
            Bound::Included(key) | Bound::Excluded(key) => segment.locate(key, 0)?.last.min(last_page),
            Bound::Unbounded => last_page,
        };
        WalkWindow::begin(segment, (first, last), self.direction, window).map(Some)
    }

    /// Whether `key` is before the range.
    fn is_below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(lower) => key < lower.as_slice(),
            Bound::Excluded(lower) => key <= lower.as_slice(),
        }
    }

    /// Whether `key` is after the range.
    fn is_above(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(upper) => key > upper.as_slice(),
            Bound::Excluded(upper) => key >= upper.as_slice(),
        }
    }
}

/// One table or segment, its keys resolved to the height of the scan.
struct Source<'v> {
    range: Range,
    current: Option<(Vec<u8>, Found)>,
    place: Place<'v>,
}

enum Place<'v> {
    Table { table: &'v StepMemtable, chunk: VecDeque<(Vec<u8>, Found)>, done: bool },
    Segment(Box<Walk<'v>>),
}

impl<'v> Source<'v> {
    fn table(table: &'v StepMemtable, range: Range) -> Self {
        Self { range, current: None, place: Place::Table { table, chunk: VecDeque::new(), done: false } }
    }

    fn segment(segment: &'v LiveSegment, range: Range, ahead: Option<WalkWindow>) -> Result<Self, Error> {
        let kv = segment.kv.get()?;
        let mut walk = Walk { segment, kv, cursor: kv.view().cursor(), ahead };
        match range.direction {
            Direction::Forward => walk.start_forward(&range.lower)?,
            Direction::Backward => walk.start_backward(&range)?,
        }
        Ok(Self { range, current: None, place: Place::Segment(Box::new(walk)) })
    }

    /// Moves to the next key that has a version at or below the height.
    fn advance(&mut self) -> Result<(), Error> {
        let Self { range, current, place } = self;
        *current = match place {
            Place::Table { table, chunk, done } => {
                if chunk.is_empty() && !*done {
                    fetch_chunk(table, range, chunk, done);
                }
                chunk.pop_front()
            }
            Place::Segment(walk) => match range.direction {
                Direction::Forward => walk.next_key(range)?,
                Direction::Backward => walk.previous_key(range)?,
            },
        };
        Ok(())
    }
}

/// Fills `chunk` and narrows the range to what is after it.
fn fetch_chunk(
    table: &StepMemtable,
    range: &mut Range,
    chunk: &mut VecDeque<(Vec<u8>, Found)>,
    done: &mut bool,
) {
    let bounds = (borrowed(&range.lower), borrowed(&range.upper));
    chunk.extend(table.range(range.domain, bounds, range.at, range.direction, CHUNK));
    *done = chunk.len() < CHUNK;
    if let Some((last, _)) = chunk.back() {
        match range.direction {
            Direction::Forward => range.lower = Bound::Excluded(last.clone()),
            Direction::Backward => range.upper = Bound::Excluded(last.clone()),
        }
    }
}

/// A cursor over a segment that goes from key to key.
struct Walk<'v> {
    segment: &'v LiveSegment,
    kv: &'v KvFile,
    cursor: Cursor<'v, Mapping>,
    /// Where the segment is elsewhere.
    ahead: Option<WalkWindow>,
}

impl Walk<'_> {
    /// Forward start: at the first entry of the first key inside the bound.
    fn start_forward(&mut self, lower: &Bound<Vec<u8>>) -> Result<(), Error> {
        match lower {
            Bound::Unbounded => self.cursor.seek_first().map(drop).map_err(|e| self.kv.error(e)),
            Bound::Included(key) => self.seek(key, BlockNumber::MAX),
            Bound::Excluded(key) => self.seek_behind(key),
        }
    }

    /// Backward start: at the last entry of the last key inside the bound.
    fn start_backward(&mut self, range: &Range) -> Result<(), Error> {
        match &range.upper {
            Bound::Unbounded => {
                return self.cursor.seek_last().map(drop).map_err(|e| self.kv.error(e));
            }
            Bound::Included(key) => self.seek_behind(key)?,
            Bound::Excluded(key) => self.seek(key, BlockNumber::MAX)?,
        }
        self.step_back()?;
        if self.cursor.entry().is_some_and(|entry| range.is_above(entry.key)) {
            return Err(self.misled());
        }
        Ok(())
    }

    /// Resolves the key under the cursor or the next one that has a version at the height, and moves after it.
    fn next_key(&mut self, range: &Range) -> Result<Option<(Vec<u8>, Found)>, Error> {
        loop {
            let Some(entry) = self.cursor.entry() else { return Ok(None) };
            if range.is_above(entry.key) {
                return Ok(None);
            }
            let key = entry.key.to_vec();
            let found = self.resolve(&key, range.at)?;
            self.skip_versions(&key)?;
            if let Some(found) = found {
                return Ok(Some((key, found)));
            }
        }
    }

    /// The mirror image of [`Walk::next_key`]: the cursor is at the last entry of a key and ends at that of the one before.
    fn previous_key(&mut self, range: &Range) -> Result<Option<(Vec<u8>, Found)>, Error> {
        loop {
            let Some(entry) = self.cursor.entry() else { return Ok(None) };
            if range.is_below(entry.key) {
                return Ok(None);
            }
            let key = entry.key.to_vec();
            if let Some(found) = self.resolve_backward(&key, range.at)? {
                return Ok(Some((key, found)));
            }
        }
    }

    /// From the last version of `key`, the oldest: the newest one at or below `at`. Goes to the entry before all of its versions.
    fn resolve_backward(&mut self, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        let mut found = None;
        for _ in 0..STEPS_MAX {
            let Some(entry) = self.cursor.entry().filter(|entry| entry.key == key) else { return Ok(found) };
            if entry.block <= at {
                // A large value is decoded only where it is the answer.
                if matches!(entry.value, Value::Overflow(_)) {
                    break;
                }
                found = Some((entry.block, LiveSegment::load(self.kv, &entry.value)?));
            }
            self.step_back()?;
        }
        self.seek(key, BlockNumber::MAX)?;
        let found = self.resolve(key, at)?;
        self.seek(key, BlockNumber::MAX)?;
        self.step_back()?;
        if self.cursor.entry().is_some_and(|entry| key <= entry.key) {
            return Err(self.misled());
        }
        Ok(found)
    }

    /// From the first version of `key`: the newest one at or below `at`.
    fn resolve(&mut self, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        for steps in 0.. {
            let Some(entry) = self.cursor.entry().filter(|entry| entry.key == key) else { return Ok(None) };
            if entry.block <= at {
                return Ok(Some((entry.block, LiveSegment::load(self.kv, &entry.value)?)));
            }
            if steps == STEPS_MAX {
                self.seek(key, at)?;
            } else {
                self.step()?;
            }
        }
        unreachable!("the loop ends with the versions of one key")
    }

    /// Moves to the first entry of the next key.
    fn skip_versions(&mut self, key: &[u8]) -> Result<(), Error> {
        for _ in 0..STEPS_MAX {
            if self.cursor.entry().is_none_or(|entry| entry.key != key) {
                return Ok(());
            }
            self.step()?;
        }
        self.seek_behind(key)
    }

    /// Moves to the first entry after all versions of `key`.
    fn seek_behind(&mut self, key: &[u8]) -> Result<(), Error> {
        self.seek(key, 0)?;
        // Block 0 is the last that a key can have.
        if self.cursor.entry().is_some_and(|entry| entry.key == key) {
            self.step()?;
        }
        Ok(())
    }

    /// Moves to the first entry at or after (key, at), found by the pivot index. Never to one before: see [`Cursor`].
    fn seek(&mut self, key: &[u8], at: BlockNumber) -> Result<(), Error> {
        let span = self.segment.locate(key, at)?;
        match self.cursor.seek_in(span, key, at) {
            Ok(_) => Ok(()),
            Err(error @ icecore_segments::Error::Mismatch { .. }) => Err(self.of_index(error)),
            Err(error) => Err(self.kv.error(error)),
        }
    }

    /// The index led past the position, which a step back then shows.
    #[cold]
    fn misled(&self) -> Error {
        self.of_index(Corruption { part: Part::Leaf, offset: 0, reason: Reason::Order }.into())
    }

    fn of_index(&self, error: icecore_segments::Error) -> Error {
        self.segment.bt.get().map_or_else(|error| error, |bt| bt.error(error))
    }

    fn step(&mut self) -> Result<(), Error> {
        self.cursor.next().map_err(|e| self.kv.error(e))?;
        self.look_ahead();
        Ok(())
    }

    #[inline]
    fn look_ahead(&mut self) {
        if let Some(ahead) = &mut self.ahead
            && let Some(page) = self.cursor.page()
        {
            ahead.reach(self.kv.view(), page);
        }
    }

    /// One entry back; from after the last entry, to the last.
    fn step_back(&mut self) -> Result<(), Error> {
        let moved = match self.cursor.entry() {
            Some(_) => self.cursor.prev().map(drop),
            None => self.cursor.seek_last().map(drop),
        };
        moved.map_err(|e| self.kv.error(e))?;
        self.look_ahead();
        Ok(())
    }
}
