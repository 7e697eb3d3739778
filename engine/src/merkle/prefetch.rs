//! Requests for the pages of ranges, before the first of them is waited for.

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
        for (first, last) in scans.iter().filter_map(Scan::ends) {
            request_index(segment, first);
            request_index(segment, last);
        }
    }
    for segment in all() {
        for (first, last) in scans.iter().filter_map(Scan::ends) {
            request_pages(segment, first, last)?;
        }
    }
    Ok(())
}

fn request_index(segment: &LiveSegment, key: &[u8]) {
    let Ok(index) = segment.bt.get().map(OpenFile::view) else { return };
    index.data().will_need(index.leaf_range(index.leaf(key, BlockNumber::MAX)));
}

/// Requests the pages between two keys.
fn request_pages(segment: &LiveSegment, first: &[u8], last: &[u8]) -> Result<(), Error> {
    let from = segment.locate(first, BlockNumber::MAX)?.first;
    let to = segment.locate(last, 0)?.last;
    let last = to.min(from + PAGES_MAX);
    let kv = segment.kv.get()?.view();
    kv.data().will_need(kv.file_range(PageSpan { last, ..PageSpan::page(from) }));
    Ok(())
}
