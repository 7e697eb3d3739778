//! The words that an index and a segment exchange: where an entry can be, and what separates two places.

use std::cmp::Ordering;

use crate::error::Error;
use crate::page_header::PAGE_RAW_LEN_MAX;
use crate::step::BlockNumber;

/// The most entries of a page: its body decodes to at most 32768 bytes, and the shortest entry takes two.
pub const PAGE_ENTRIES_MAX: u64 = PAGE_RAW_LEN_MAX as u64 / 2;

/// A run of data pages, both ends inside. Page numbers count data pages from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSpan {
    /// The first page that can hold the entry.
    pub first: u64,
    /// The last page that can hold it.
    pub last: u64,
    /// Where the entry is at the earliest in the first page: the number of a restart.
    pub restart: u16,
}

impl PageSpan {
    /// The span of one page.
    pub fn page(page: u64) -> Self {
        Self { first: page, last: page, restart: 0 }
    }

    /// How many pages it has.
    pub fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// Never: a span has at least one page.
    pub fn is_empty(self) -> bool {
        false
    }
}

/// A boundary between two neighbouring entries `before < after` in the order of a segment
/// (key ascending, block descending), cut to what still separates them.
///
/// A position `(key, at)` is at or after the boundary when `key > self.key`, or when the keys are equal and
/// either the boundary separates two keys (`before` is `None`) or `at < before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Separator<'a> {
    /// The shortest prefix of the key after the boundary that is greater than the key before it; the whole
    /// key where the boundary is between two versions of one key.
    pub key: &'a [u8],
    /// Between two versions of one key: the block of the version before the boundary.
    pub before: Option<BlockNumber>,
}

impl Separator<'_> {
    /// Whether the position `(key, at)` is before or after this boundary. Never `Equal`.
    #[inline]
    pub fn side(&self, key: &[u8], at: BlockNumber) -> Ordering {
        match key.cmp(self.key) {
            Ordering::Equal => match self.before {
                Some(before) if before <= at => Ordering::Less,
                _ => Ordering::Greater,
            },
            other => other,
        }
    }
}

/// A place in a segment where a lookup may start: the beginning of a page, or a restart inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pivot<'a> {
    /// The boundary just before the place.
    pub separator: Separator<'a>,
    /// The data page.
    pub page: u64,
    /// The restart inside the page; 0 is the page's beginning.
    pub restart: u16,
    /// The ordinal of the entry in the segment.
    pub ordinal: u64,
}

/// Takes the pivots of a segment in order, as its pages are finished.
///
/// A segment builder offers the beginning of every page and every restart inside it; what is kept is the sink's
/// decision. The index builder is one; `()` keeps nothing.
pub trait PivotSink {
    /// Takes the next pivot.
    ///
    /// # Errors
    /// Whatever stops the sink; it stops the builder too.
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), Error>;
}

impl PivotSink for () {
    fn pivot(&mut self, _: &Pivot<'_>) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_between_versions_sends_a_height_to_the_side_that_can_answer() {
        // Versions at 9 | 5: heights 9 and above are answered before the boundary, 8 and below after it.
        let boundary = Separator { key: b"k", before: Some(9) };
        assert_eq!(boundary.side(b"k", 9), Ordering::Less);
        assert_eq!(boundary.side(b"k", 8), Ordering::Greater);
        assert_eq!(boundary.side(b"j", 0), Ordering::Less);
        assert_eq!(boundary.side(b"ka", 100), Ordering::Greater);
    }

    #[test]
    fn a_boundary_between_keys_ignores_heights() {
        let boundary = Separator { key: b"k", before: None };
        assert_eq!(boundary.side(b"k", 0), Ordering::Greater);
        assert_eq!(boundary.side(b"jzzz", u64::MAX), Ordering::Less);
    }
}
