//! Walks through a segment that is elsewhere: its pages are requested before the walk gets to them, so that it does not wait for each.
//!
//! The pages between the ends of the walk are known from the index; what is requested at a time grows as the walk goes on, up to a
//! bound. On a disk of this machine there is nothing to plan: a page is one fault.

use icecore_segments::Segment;
use icecore_segments::span::PageSpan;

use crate::error::Error;
use crate::memtable::Direction;
use crate::segment::live::LiveSegment;
use crate::storage::Mapping;

/// Pages that are requested first: as many as one request brings by default.
pub(crate) const WINDOW_MIN: u64 = 16;

/// The most pages that are requested at a time: two megabytes.
pub(crate) const WINDOW_MAX: u64 = 512;

impl LiveSegment {
    /// Whether pages that are not here come over a network.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        // A segment that is elsewhere is opened when it is made.
        self.kv.opened().is_some_and(|kv| kv.data().is_elsewhere())
    }
}

/// What was requested for a walk.
pub(crate) struct WalkWindow {
    direction: Direction,
    /// The pages that the walk may come to, both included.
    pages: (u64, u64),
    window: u64,
    /// How many of them, from where the walk begins, were requested.
    requested: u64,
}

impl WalkWindow {
    /// Requests the first pages of a walk from one of two pages towards the other.
    ///
    /// # Errors
    /// The segment cannot be opened.
    pub(crate) fn begin(
        segment: &LiveSegment,
        pages: (u64, u64),
        direction: Direction,
        window: u64,
    ) -> Result<Self, Error> {
        let mut ahead = Self { direction, pages, window: window.clamp(WINDOW_MIN, WINDOW_MAX), requested: 0 };
        let start = if direction == Direction::Forward { pages.0 } else { pages.1 };
        ahead.reach(segment.kv.get()?.view(), start);
        Ok(ahead)
    }

    /// The walk came to a page. What follows is requested when half of what was requested last is behind.
    pub(crate) fn reach(&mut self, segment: &Segment<Mapping>, page: u64) {
        let (first, last) = self.pages;
        let walked = match self.direction {
            Direction::Forward => page.saturating_sub(first),
            Direction::Backward => last.saturating_sub(page),
        };
        if walked + self.window / 2 < self.requested || last < first {
            return;
        }
        let from = self.requested.max(walked);
        let to = (from + self.window).min(last - first + 1);
        if from >= to {
            return;
        }
        let (from_page, to_page) = match self.direction {
            Direction::Forward => (first + from, first + to - 1),
            Direction::Backward => (last + 1 - to, last - from),
        };
        segment.data().will_need(segment.file_range(PageSpan { last: to_page, ..PageSpan::page(from_page) }));
        self.requested = to;
        self.window = (2 * self.window).min(WINDOW_MAX);
    }
}
