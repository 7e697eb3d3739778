//! What a lookup will touch, said before it does: for a reader that asks for it and goes on with something else meanwhile.

use std::ops::Range;

/// Part of the next page of a filter, or the whole of it: from [`ExistenceFilter::prefetch_hint`](crate::ExistenceFilter::prefetch_hint).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefetchHint {
    /// The page was read before, so it is most likely in memory: the place of the cache line that will be needed.
    Line(u64),
    /// The page was not read since the file was opened, so it is most likely on the disk: all of it.
    Page(Range<u64>),
}
