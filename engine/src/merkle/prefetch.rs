//! Requests for the pages of ranges, before the first of them is waited for.

use std::ops::Range;

use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::read::read_state::ReadState;
use crate::read::scan_range::Scan;
use crate::segment::live::{LiveSegment, OpenFile};

/// Pages that are requested of a range; a longer one requests the rest as it goes.
const PAGES_MAX: u64 = 1 << 14;

/// Requests the pages of ranges of a domain, those of the indexes first.
pub(crate) fn request(
    version: &ReadState,
    domain: DomainId,
    scans: &[Scan],
    at: BlockNumber,
) -> Result<(), Error> {
    let all = || version.domain(domain).iter().filter(|segment| segment.blocks.0 <= at);
    for segment in all() {
        let mut requested = Requested::default();
        for (first, last) in scans.iter().filter_map(Scan::ends) {
            request_index(segment, first, &mut requested);
            request_index(segment, last, &mut requested);
        }
    }
    for segment in all() {
        let mut requested = Requested::default();
        for (first, last) in scans.iter().filter_map(Scan::ends) {
            request_pages(segment, first, last, &mut requested)?;
        }
    }
    Ok(())
}

/// The run of bytes or pages that was requested last. Ranges that ascend are often on the same page, and a request costs a call of the system.
#[derive(Default)]
struct Requested(Range<u64>);

impl Requested {
    /// The part of a range that was not requested yet.
    fn rest_of(&mut self, range: &Range<u64>) -> Range<u64> {
        let Self(last) = self;
        if last.start <= range.start && range.start <= last.end {
            let rest = last.end..range.end.max(last.end);
            last.end = rest.end;
            return rest;
        }
        *last = range.clone();
        range.clone()
    }
}

fn request_index(segment: &LiveSegment, key: &[u8], requested: &mut Requested) {
    let Ok(index) = segment.bt.get().map(OpenFile::view) else { return };
    let rest = requested.rest_of(&index.leaf_range(index.leaf(key, BlockNumber::MAX)));
    if !rest.is_empty() {
        index.data().will_need(rest);
    }
}

/// Requests the pages between two keys.
fn request_pages(
    segment: &LiveSegment,
    first: &[u8],
    last: &[u8],
    requested: &mut Requested,
) -> Result<(), Error> {
    let from = segment.locate(first, BlockNumber::MAX)?.first;
    let to = segment.locate(last, 0)?.last;
    let last = to.min(from + PAGES_MAX);
    let rest = requested.rest_of(&(from..last.saturating_add(1)));
    if !rest.is_empty() {
        let kv = segment.kv.get()?.view();
        kv.data().will_need(kv.file_range(PageSpan { last: rest.end - 1, ..PageSpan::page(rest.start) }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_requested_twice_in_a_row() {
        let mut requested = Requested::default();
        let mut rest = |range: Range<u64>| requested.rest_of(&range);
        assert_eq!((rest(5..7), rest(5..7), rest(6..9), rest(9..10)), (5..7, 7..7, 7..9, 9..10));
        assert_eq!((rest(20..22), rest(21..21), rest(3..4), rest(3..21)), (20..22, 22..22, 3..4, 4..21));
    }
}
