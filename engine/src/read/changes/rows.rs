//! The changes of a window: keys and values in one buffer, large values left where they are until they are given.

use std::ops::Range;
use std::sync::Arc;

use icecore_segments::error::{Corruption, Part, Reason};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;
use icecore_segments::{Entry, Value, Version};

use super::window::{Picked, Place};
use super::{SegmentName, StateChange};
use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::step_memtable::StepMemtable;
use crate::read::read_state::ReadState;
use crate::segment::live::LiveSegment;
use crate::stats::{Count, Event, Tally};
use crate::storage::map::ReadaheadBatch;

/// Pages that are asked for together.
const AHEAD_PAGES: usize = 1024;

/// A value, or where it is.
#[derive(Clone, Debug, Default)]
enum Held {
    #[default]
    Absent,
    /// In the buffer.
    Bytes(Range<usize>),
    /// The version of this block in a segment: the value is not in its page.
    Far(usize, BlockNumber),
}

struct Row {
    block: BlockNumber,
    domain: DomainId,
    key: Range<usize>,
    before: Held,
    after: Held,
}

/// See the module.
#[derive(Default)]
pub(super) struct Rows {
    list: Vec<Row>,
    /// In which order they are given, where that is not their own.
    order: Vec<u32>,
    bytes: Vec<u8>,
    segments: Vec<SegmentName>,
}

/// Values that were looked up, for the rows that are to have them.
#[derive(Default)]
pub(super) struct Older {
    found: Vec<(usize, Held)>,
    bytes: Vec<u8>,
    segments: Vec<SegmentName>,
}

impl Older {
    pub(super) fn push(&mut self, row: usize, segment: &Arc<LiveSegment>, version: &Version<'_>) {
        let segment = number_of(&mut self.segments, segment);
        let held = hold(&mut self.bytes, segment, version.block, &version.value);
        self.found.push((row, held));
    }
}

fn number_of(segments: &mut Vec<SegmentName>, segment: &LiveSegment) -> usize {
    let name = (segment.record.domain, segment.record.steps);
    if segments.last() != Some(&name) {
        segments.push(name);
    }
    segments.len() - 1
}

fn hold(bytes: &mut Vec<u8>, segment: usize, block: BlockNumber, value: &Value<'_>) -> Held {
    match value {
        Value::Deletion => Held::Absent,
        Value::Inline(value) => Held::Bytes(copy(bytes, value)),
        Value::Overflow(_) => Held::Far(segment, block),
    }
}

fn copy(bytes: &mut Vec<u8>, value: &[u8]) -> Range<usize> {
    let from = bytes.len();
    bytes.extend_from_slice(value);
    from..bytes.len()
}

impl Rows {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.order.clear();
        self.bytes.clear();
        self.segments.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Bytes of keys and values in the buffer.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn key(&self, row: usize) -> &[u8] {
        &self.bytes[self.list[row].key.clone()]
    }

    /// Puts the rows in order of their blocks. Rows of one block are in order of domain and key already: pages were read so.
    pub(super) fn sort(&mut self) {
        self.order = (0..self.list.len() as u32).collect();
        self.order.sort_by_key(|row| self.list[*row as usize].block);
    }

    /// Reads the entries of a window from the pages of a segment. Returns the rows whose value before is not in the segment.
    ///
    /// # Errors
    /// Damage; a block index that says something else than the pages.
    pub(super) fn read(
        &mut self,
        picked: &Picked,
        domain: DomainId,
        (after, upto): (Option<Place>, Option<Place>),
        tally: &Tally,
    ) -> Result<Vec<usize>, Error> {
        let kv = picked.segment.kv.get()?;
        let segment = number_of(&mut self.segments, &picked.segment);
        let (begun, mut unknown) = (self.list.len(), Vec::new());
        let mut cursor = kv.view().cursor();
        for pages in picked.pages.chunks(AHEAD_PAGES) {
            let mut requests = ReadaheadBatch::new(kv.view().data());
            pages.iter().for_each(|page| requests.add(kv.view().file_range(PageSpan::page(*page))));
            drop(requests);
            for page in pages {
                tally.count(Event::Page);
                // The step from the page before may have led to this one's first entry.
                if cursor.page() != Some(*page) {
                    cursor.seek_page(*page).map_err(|e| kv.error(e))?;
                }
                while let Some(entry) = cursor.entry() {
                    let place = Some((entry.block, domain, *page));
                    let row = (after < place && place <= upto).then(|| self.push(domain, segment, &entry));
                    let mut is_last = !cursor.next_in_page().map_err(|e| kv.error(e))?;
                    if let Some(row) = row {
                        let has_next = !is_last || cursor.next().map_err(|e| kv.error(e))?;
                        is_last |= !has_next;
                        match cursor.entry().filter(|next| has_next && next.key == self.key(row)) {
                            Some(next) => {
                                self.list[row].before =
                                    hold(&mut self.bytes, segment, next.block, &next.value);
                            }
                            None => unknown.push(row),
                        }
                    }
                    if is_last {
                        break;
                    }
                }
            }
        }
        if (self.list.len() - begun) as u64 == picked.entries {
            return Ok(unknown);
        }
        let reason = Corruption { part: Part::BlockLeaf, offset: PAGE_SIZE as u64, reason: Reason::Count };
        let path = picked.segment.kvbi.as_ref().map_or(picked.segment.kv.path(), |kvbi| kvbi.path());
        Err(Error::File { path: path.to_owned(), source: reason.into() })
    }

    fn push(&mut self, domain: DomainId, segment: usize, entry: &Entry<'_>) -> usize {
        let known = self.list.last().map(|row| row.key.clone());
        let key = known.filter(|key| self.bytes[key.clone()] == *entry.key);
        let key = key.unwrap_or_else(|| copy(&mut self.bytes, entry.key));
        let after = hold(&mut self.bytes, segment, entry.block, &entry.value);
        self.list.push(Row { block: entry.block, domain, key, before: Held::Absent, after });
        self.list.len() - 1
    }

    /// Gives rows the values that were looked up for them.
    pub(super) fn take_older(&mut self, older: Older) {
        let (bytes, segments) = (self.bytes.len(), self.segments.len());
        self.bytes.extend_from_slice(&older.bytes);
        self.segments.extend(older.segments);
        for (row, held) in older.found {
            self.list[row].before = match held {
                Held::Bytes(range) => Held::Bytes(range.start + bytes..range.end + bytes),
                Held::Far(segment, block) => Held::Far(segment + segments, block),
                Held::Absent => Held::Absent,
            };
        }
    }

    /// Reads blocks of a step in memory, up to the one with which a window is full, and returns that. `before` are the steps before it in
    /// memory; rows whose value before is in none of them go to `unknown`, by domain.
    pub(super) fn read_table(
        &mut self,
        table: &StepMemtable,
        before: &[Arc<StepMemtable>],
        heights: &[BlockNumber],
        unknown: &mut [(DomainId, Vec<usize>)],
        limit: u64,
    ) -> Option<BlockNumber> {
        let mut reached = None;
        for height in heights {
            reached = Some(*height);
            for (domain, unknown) in &mut *unknown {
                table.keys(*domain).for_each_change(*height, |change| {
                    let key = copy(&mut self.bytes, change.key);
                    let after = self.hold_bytes(change.after);
                    let found = change.before.map(|value| self.hold_bytes(value)).or_else(|| {
                        let older = |table: &Arc<StepMemtable>| table.get(*domain, change.key, *height);
                        let (_, value) = before.iter().rev().find_map(older)?;
                        Some(self.hold_bytes(value.as_deref()))
                    });
                    if found.is_none() {
                        unknown.push(self.list.len());
                    }
                    let before = found.unwrap_or_default();
                    self.list.push(Row { block: *height, domain: *domain, key, before, after });
                });
            }
            if self.list.len() as u64 >= limit {
                break;
            }
        }
        reached
    }

    fn hold_bytes(&mut self, value: Option<&[u8]>) -> Held {
        value.map_or(Held::Absent, |value| Held::Bytes(copy(&mut self.bytes, value)))
    }

    /// The row that is given as the `number`th.
    ///
    /// # Errors
    /// Damage of a large value.
    pub(super) fn get(&self, number: usize, state: &ReadState) -> Result<StateChange, Error> {
        let row = &self.list[self.order.get(number).map_or(number, |row| *row as usize)];
        let key = self.bytes[row.key.clone()].to_vec();
        let (before, after) = (self.load(&key, &row.before, state)?, self.load(&key, &row.after, state)?);
        // The first domain is the archive's own.
        Ok(StateChange { block: row.block, domain: row.domain.index() - 1, key, before, after })
    }

    fn load(&self, key: &[u8], held: &Held, state: &ReadState) -> Result<Option<Vec<u8>>, Error> {
        match held {
            Held::Absent => Ok(None),
            Held::Bytes(range) => Ok(Some(self.bytes[range.clone()].to_vec())),
            Held::Far(segment, block) => {
                let (domain, steps) = self.segments[*segment];
                let of_domain = state.domain(domain);
                let segment = of_domain
                    .binary_search_by_key(&steps, |segment| segment.record.steps)
                    .map(|place| &of_domain[place])
                    .expect("a read state has its segments as long as it is read");
                let span = segment.locate(key, *block)?;
                Ok(segment.get_in(span, key, *block)?.and_then(|(_, value)| value))
            }
        }
    }
}
