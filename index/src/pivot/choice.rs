//! Chooses, of all the places that a segment builder offers, those that become pivots.
//!
//! M is a density, not a ruler. Two regimes, told apart by the pages seen so far:
//! * **fine**, while M is less than one and a half page's worth of entries: the beginning of every page, so that
//!   every lookup is in one page, and restarts inside the page until there is a pivot for every M entries;
//! * **coarse**: one page beginning out of each window of M entries. The others become fences: what tells the pages of a span
//!   apart.
//!
//! Within its window a pivot slides to where it costs fewer bytes: a third of the entries of the reference dataset
//! differ from their neighbour in the last byte only, and a separator there is a whole key.
//!
//! Cost: holds the restarts of one page, and the page beginnings of about one window.
//!
//! A page has at most [`PAGE_ENTRIES_MAX`](icecore_segments::span::PAGE_ENTRIES_MAX) entries: the builder sees to it, and the sums
//! here stay far below 64 bits.

use std::cmp::Ordering;

use icecore_segments::bytes::shared_len;
use icecore_segments::error::Error;
use icecore_segments::span::{Pivot, Separator};
use icecore_segments::step::BlockNumber;

use crate::density::Density;

/// How much displacement, in 32nds of the window, one byte of a separator is worth.
const BYTE_WEIGHT: u64 = 32;

/// Places with their separators, in one buffer.
#[derive(Default)]
struct Places {
    keys: Vec<u8>,
    items: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    key_from: usize,
    key_to: usize,
    before: Option<BlockNumber>,
    page: u64,
    restart: u16,
    ordinal: u64,
}

impl Places {
    fn push(&mut self, pivot: &Pivot<'_>) {
        let key_from = self.keys.len();
        self.keys.extend_from_slice(pivot.separator.key);
        let (before, key_to) = (pivot.separator.before, self.keys.len());
        let Pivot { page, restart, ordinal, .. } = *pivot;
        self.items.push(Place { key_from, key_to, before, page, restart, ordinal });
    }

    fn get(&self, index: usize) -> Option<Pivot<'_>> {
        let place = self.items.get(index)?;
        let separator = Separator { key: &self.keys[place.key_from..place.key_to], before: place.before };
        let Place { page, restart, ordinal, .. } = *place;
        Some(Pivot { separator, page, restart, ordinal })
    }

    fn iter(&self) -> impl Iterator<Item = Pivot<'_>> {
        (0..).map_while(|index| self.get(index))
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.items.clear();
    }
}

/// What becomes of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Lookups start here.
    Pivot,
    /// The beginning of a page inside a span.
    Fence,
}

/// Where places go whose role is certain, in their order.
pub(super) type Out<'o> = dyn FnMut(Role, &Pivot<'_>) -> Result<(), Error> + 'o;

/// Takes all places, gives the pivots and fences.
pub(super) struct Chooser {
    m: u64,
    /// The places of the page that is not complete yet.
    page: Places,
    /// Complete pages and their entries.
    pages: u64,
    entries: u64,
    /// Entries not yet paid for by a pivot; negative when pivots were given in advance.
    credit: i64,
    /// Coarse: the page beginnings after the newest pivot.
    waiting: Places,
    /// The number of the window, the best of those that wait and are in it, and its penalty.
    window: u64,
    best: Option<usize>,
    penalty: u64,
    /// The separator of the newest pivot: what the next one shares bytes with.
    newest: Vec<u8>,
}

impl Chooser {
    pub(super) fn new(m: Density) -> Self {
        Self {
            m: u64::from(m.get()),
            page: Places::default(),
            pages: 0,
            entries: 0,
            credit: 0,
            waiting: Places::default(),
            window: 0,
            best: None,
            penalty: 0,
            newest: Vec::new(),
        }
    }

    /// Takes the next place and hands the pivots that are certain to `out`.
    pub(super) fn offer(&mut self, pivot: &Pivot<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if self.page.get(0).is_some_and(|first| first.page != pivot.page) {
            self.complete_page(pivot.ordinal, out)?;
        }
        self.page.push(pivot);
        Ok(())
    }

    /// Hands the rest to `out`; the segment has `entries` entries.
    pub(super) fn finish(&mut self, entries: u64, out: &mut Out<'_>) -> Result<(), Error> {
        self.complete_page(entries, out)?;
        self.take_waiting(out)
    }

    /// Decides over the page in hand, which ends before the entry `end`.
    fn complete_page(&mut self, end: u64, out: &mut Out<'_>) -> Result<(), Error> {
        let page = std::mem::take(&mut self.page);
        let Some(first) = page.get(0) else { return Ok(()) };
        let entries = end.saturating_sub(first.ordinal);
        self.pages += 1;
        self.entries += entries;
        if self.pages == 1 || 2 * self.m * self.pages < 3 * self.entries {
            self.take_waiting(out)?;
            self.take(&first, out)?;
            self.take_inner(&page, entries, out)?;
        } else {
            self.consider(&first, out)?;
        }
        self.page = page;
        self.page.clear();
        Ok(())
    }

    /// Fine: takes restarts inside the page, as many as M asks for besides its beginning.
    fn take_inner(&mut self, page: &Places, entries: u64, out: &mut Out<'_>) -> Result<(), Error> {
        let m = self.m as i64;
        self.credit += entries as i64;
        let pivots = ((self.credit + m / 2) / m).max(1);
        self.credit = (self.credit - pivots * m).max(-m);
        let pivots = pivots as u64;
        let base = page.items[0].ordinal;
        let mut next = 1;
        for number in 1..pivots {
            let middle = base + number * entries / pivots;
            let end = base + (2 * number + 1) * entries / (2 * pivots);
            let mut best: Option<(u64, usize)> = None;
            while let Some(place) = page.get(next).filter(|place| place.ordinal < end) {
                let penalty = self.penalty(&place, middle, entries / pivots);
                if best.is_none_or(|(least, _)| penalty < least) {
                    best = Some((penalty, next));
                }
                next += 1;
            }
            if let Some(pivot) = best.and_then(|(_, index)| page.get(index)) {
                self.take(&pivot, out)?;
            }
        }
        Ok(())
    }

    /// Coarse: keeps the beginning of a page if it is the best of its window so far.
    fn consider(&mut self, first: &Pivot<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        // The beginning of the segment is the pivot of the first window.
        let window = (first.ordinal + self.m / 2) / self.m;
        if window != self.window {
            self.take_best(out)?;
            self.window = window;
        }
        let penalty = self.penalty(first, window * self.m, self.m);
        if window > 0 && (self.best.is_none() || penalty < self.penalty) {
            self.penalty = penalty;
            self.best = Some(self.waiting.items.len());
        }
        self.waiting.push(first);
        Ok(())
    }

    /// Makes the best place a pivot and those before it fences.
    fn take_best(&mut self, out: &mut Out<'_>) -> Result<(), Error> {
        let Some(best) = self.best.take() else { return Ok(()) };
        let waiting = std::mem::take(&mut self.waiting);
        for (index, place) in waiting.iter().enumerate() {
            match index.cmp(&best) {
                Ordering::Less => out(Role::Fence, &place)?,
                Ordering::Equal => self.take(&place, out)?,
                Ordering::Greater => self.waiting.push(&place),
            }
        }
        Ok(())
    }

    /// The same, and what is after the best become fences too.
    fn take_waiting(&mut self, out: &mut Out<'_>) -> Result<(), Error> {
        self.take_best(out)?;
        for place in self.waiting.iter() {
            out(Role::Fence, &place)?;
        }
        self.waiting.clear();
        Ok(())
    }

    fn take(&mut self, pivot: &Pivot<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        out(Role::Pivot, pivot)?;
        self.newest.clear();
        self.newest.extend_from_slice(pivot.separator.key);
        Ok(())
    }

    /// What speaks against `place` as the pivot of a window of `width` entries around `middle`.
    fn penalty(&self, place: &Pivot<'_>, middle: u64, width: u64) -> u64 {
        let key = place.separator.key;
        let cost =
            key.len() - shared_len(key, &self.newest) + 4 * usize::from(place.separator.before.is_some());
        BYTE_WEIGHT * place.ordinal.abs_diff(middle) + width * cost as u64
    }
}
