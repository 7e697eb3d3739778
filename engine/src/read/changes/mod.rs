//! The changes of a range of blocks, in the order of the blocks: segments first, by their block indexes, then memory.
//!
//! ```text
//! block indexes --> a window: the next pages, by (block, domain, page) --> each page once --> rows --> sorted by block --> given
//!                   some ten thousand entries                              |
//!                                                                          `- without an older version in its segment:
//!                                                                             looked up in older ones, all together
//! ```
//!
//! A segment is ordered by key, so a page has entries of many blocks: the longer the window, the more of them are of use when a page is
//! read. Windows begin short and double, so that the first change comes at once and a long range at the price of a few passes.

mod rows;
mod window;

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use icecore_index::BlockIndex;
use icecore_segments::step::{BlockNumber, StepRange};

use crate::domain::DomainId;
use crate::error::{Available, Error};
use crate::handle::{AsDomain, id_of};
use crate::read::changes::rows::{Older, Rows};
use crate::read::changes::window::Place;
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;

/// The entries of the first window, and of the longest.
const WINDOW_MIN: u64 = 1 << 10;
const WINDOW_MAX: u64 = 1 << 17;

/// A window that a cache cannot hold is read again with so many times fewer entries.
const LESS: u64 = 4;

/// What keys and values of a window should take, in bytes, large values left out. One that takes more makes the next one shorter.
const WINDOW_BYTES: u64 = 32 << 20;

/// Which segment of a read state one is, whatever file it is read from.
type SegmentName = (DomainId, StepRange);

/// What one block did to one key: an item of [`Changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The block.
    pub block: BlockNumber,
    /// The place of the domain among [`Reader::domains`](crate::Reader::domains).
    pub domain: usize,
    /// The key.
    pub key: Vec<u8>,
    /// The value before the block; `None` where the key had none.
    pub before: Option<Vec<u8>>,
    /// The value that the block wrote; `None` where it deleted the key.
    pub after: Option<Vec<u8>>,
}

/// What the blocks of a range changed, by block, then domain, then key in the [order](crate::Domain::order) of the domain: the iterator of [`Reader::changes`](crate::Reader::changes).
///
/// Each write and each deletion of a block is one item, also one that wrote the value that was there already or deleted a key that was
/// not. It is `Send` and owns the state it reads from, which it pins as a [`View`](crate::View) does.
///
/// # Cost
/// Nothing is read before the first `next`. Then by windows of up to 131,072 changes, each page that has one of them once, and one lookup
/// for each key that the window is the first of its segment to change. Memory for one window: some 32 MiB, and one large value at a time.
/// Blocks that are in no segment yet are gone through a step at a time.
///
/// A segment without a sound block index is gone through once, from front to back, and its index kept in memory until the iterator
/// leaves it: two bytes for each of its versions.
///
/// Of a bucket a window is what must fit the cache at once. One that does not is read again, and those after it are shorter.
///
/// # Errors
/// An item is an error where a file that is needed is damaged, or [not held](Error::NotHeld). It is the last.
pub struct Changes {
    shared: Arc<Shared>,
    version: Pinned,
    /// Those that are read, ascending.
    domains: Vec<DomainId>,
    range: Option<(BlockNumber, BlockNumber)>,
    from: BlockNumber,
    to: BlockNumber,
    /// All up to here was read.
    last: Option<Place>,
    is_in_memory: bool,
    is_done: bool,
    /// How many entries the next window takes, and any at most: less where a cache cannot hold what a longer one reads.
    limit: u64,
    limit_max: u64,
    /// Block indexes of segments that have none.
    built: Vec<(SegmentName, BlockIndex<Vec<u8>>)>,
    rows: Rows,
    /// How many of the rows were given.
    given: usize,
    /// Whether the values before are wanted that only older segments have.
    has_before: bool,
    keys: KeyForm,
}

/// In which form keys are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyForm {
    /// As they are stored.
    Stored,
    /// As callers know them.
    Shown,
}

/// The blocks that a range asks for, both inside; `None` for none.
fn bounds(
    state: &ReadState,
    range: &impl RangeBounds<BlockNumber>,
) -> Result<Option<(BlockNumber, BlockNumber)>, Error> {
    let known = state.range().map(|(first, head)| (first.saturating_add(state.is_pruned.into()), head));
    let lowest = known.map_or(0, |(lowest, _)| lowest);
    let from = match range.start_bound() {
        Bound::Included(from) => Some(*from),
        Bound::Excluded(below) => below.checked_add(1),
        Bound::Unbounded => Some(lowest),
    };
    let to = match range.end_bound() {
        Bound::Included(to) => Some(*to),
        Bound::Excluded(0) => return Ok(None),
        Bound::Excluded(above) => Some(above - 1),
        Bound::Unbounded => {
            state.check_head()?;
            known.map(|(_, head)| head)
        }
    };
    let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
    let head = known.map_or(0, |(_, head)| head);
    let ends = !matches!(range.end_bound(), Bound::Unbounded);
    if ends && from > to {
        return Ok(None);
    }
    if ends {
        state.check(to)?;
    }
    if from < lowest || (!ends && from > head.saturating_add(1)) {
        let available = if lowest <= head { Available::Blocks(lowest, head) } else { Available::Nothing };
        return Err(Error::OutOfRange { asked: from, available });
    }
    Ok((from <= to).then_some((from, to)))
}

impl Changes {
    /// # Errors
    /// Those of [`Reader::changes`](crate::Reader::changes).
    pub(crate) fn new(
        shared: Arc<Shared>,
        version: Pinned,
        range: &impl RangeBounds<BlockNumber>,
    ) -> Result<Self, Error> {
        let range = bounds(&version.state(), range)?;
        Ok(Self::of_blocks(shared, version, range))
    }

    /// What the blocks of a range, both ends inside, wrote, for one who knows that nothing of it was pruned.
    pub(crate) fn of_blocks(
        shared: Arc<Shared>,
        version: Pinned,
        range: Option<(BlockNumber, BlockNumber)>,
    ) -> Self {
        let domains = shared.directory.config.declared_ids().map(|(domain, _)| domain).collect();
        let (from, to) = range.unwrap_or_default();
        Self {
            shared,
            version,
            domains,
            range,
            from,
            to,
            last: None,
            is_in_memory: false,
            is_done: range.is_none(),
            limit: WINDOW_MIN,
            limit_max: WINDOW_MAX,
            built: Vec::new(),
            rows: Rows::default(),
            given: 0,
            has_before: true,
            keys: KeyForm::Shown,
        }
    }

    /// The same of one domain only. The others are not read.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`].
    pub fn of_domain<D: AsDomain + ?Sized>(mut self, domain: &D) -> Result<Self, Error> {
        let domain = id_of(&self.shared.directory.config, domain)?;
        self.domains.retain(|one| *one == domain);
        Ok(self)
    }

    /// The same of some domains only.
    pub(crate) fn of_domains(mut self, domains: &[DomainId]) -> Self {
        self.domains.retain(|one| domains.contains(one));
        self
    }

    /// The same for one to whom the values before are nothing: they are not looked up.
    pub(crate) fn without_before(self) -> Self {
        Self { has_before: false, ..self }
    }

    /// The same with keys in the form in which they are stored.
    pub(crate) fn stored(self) -> Self {
        Self { keys: KeyForm::Stored, ..self }
    }

    /// The blocks that it is of, both inside; `None` for none.
    pub fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        self.range
    }

    /// Reads the next window; no rows are left where there are no more.
    fn fill(&mut self) -> Result<(), Error> {
        let (version, mut is_again) = (self.version.clone(), false);
        version.read(|state| {
            if std::mem::replace(&mut is_again, true) {
                self.limit_max = (self.limit / LESS).max(1);
                self.limit = self.limit_max;
            }
            self.read_window(state)
        })?;
        let bytes = self.rows.bytes().max(1);
        let fitting = (self.rows.len() as u64).saturating_mul(WINDOW_BYTES) / bytes;
        self.limit = (2 * self.limit).min(fitting).clamp(WINDOW_MIN.min(self.limit_max), self.limit_max);
        Ok(())
    }

    fn read_window(&mut self, state: &Arc<ReadState>) -> Result<(), Error> {
        self.rows.clear();
        self.given = 0;
        while !self.is_done && self.rows.is_empty() {
            if self.is_in_memory {
                self.read_memory(state)?;
            } else {
                self.read_segments(state)?;
            }
        }
        Ok(())
    }

    fn read_segments(&mut self, state: &Arc<ReadState>) -> Result<(), Error> {
        let window = self.next_window(state)?;
        if window.is_empty() {
            self.is_in_memory = true;
            self.built.clear();
            return Ok(());
        }
        // An entry of a page may be of a block before the range.
        let before = self.from.checked_sub(1).map(|block| (block, DomainId(u16::MAX), u64::MAX));
        let (after, upto) = (self.last.or(before), window.upto);
        for (domain, picked) in &window.picked {
            let tally = self.shared.counters.mine();
            let unknown = self.rows.read(picked, *domain, (after, upto), tally)?;
            if let Some(below) = picked.segment.blocks.0.checked_sub(1) {
                self.look_up(state, *domain, unknown, below)?;
            }
        }
        self.rows.sort();
        self.last = upto;
        Ok(())
    }

    /// Finds the values before of rows that have no older version where they were read, in what is at or below `below`.
    fn look_up(
        &mut self,
        state: &ReadState,
        domain: DomainId,
        rows: Vec<usize>,
        below: BlockNumber,
    ) -> Result<(), Error> {
        if rows.is_empty() || !self.has_before {
            return Ok(());
        }
        let tally = self.shared.counters.mine();
        let mut older = Older::default();
        let keys: Vec<&[u8]> = rows.iter().map(|row| self.rows.key(*row)).collect();
        state.find_all_in_segments(domain, &keys, below, tally, |place, segment, version| {
            older.push(rows[place], segment, version);
        })?;
        self.rows.take_older(older);
        Ok(())
    }

    /// Reads blocks of the next step that is in memory, as many as a window takes.
    fn read_memory(&mut self, state: &ReadState) -> Result<(), Error> {
        let from = self.last.map_or(Some(self.from), |(block, ..)| block.checked_add(1));
        let from = from.filter(|from| *from <= self.to);
        let tables = state.memory_up_to(self.to)?;
        let next = from.and_then(|from| {
            let at = tables.iter().position(|table| table.last_height().is_some_and(|last| from <= last))?;
            Some((from, at))
        });
        let Some((from, at)) = next else {
            self.is_done = true;
            return Ok(());
        };
        let (table, before) = (&tables[at], &tables[..at]);
        let mut unknown: Vec<(DomainId, Vec<usize>)> =
            self.domains.iter().map(|domain| (*domain, Vec::new())).collect();
        let heights = table.heights(from, self.to);
        let Some(reached) = self.rows.read_table(table, before, &heights, &mut unknown, self.limit) else {
            self.is_done = true;
            return Ok(());
        };
        for (domain, rows) in unknown {
            self.look_up(state, domain, rows, reached)?;
        }
        self.last = Some((reached, DomainId(u16::MAX), u64::MAX));
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<StateChange>, Error> {
        if self.given == self.rows.len() {
            self.fill()?;
        }
        if self.given == self.rows.len() {
            return Ok(None);
        }
        let mut row = self.version.read(|state| self.rows.get(self.given, state))?;
        self.given += 1;
        if self.keys == KeyForm::Shown {
            row.key = self.shared.directory.config.declared()[row.domain].shown(row.key)?;
        }
        Ok(Some(row))
    }
}

impl Iterator for Changes {
    type Item = Result<StateChange, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_row();
        if next.is_err() {
            self.is_done = true;
            self.rows.clear();
            self.given = 0;
        }
        next.transpose()
    }
}

impl std::iter::FusedIterator for Changes {}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
