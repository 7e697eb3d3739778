//! The read ladder: memory, then segments from the newest; in a segment *filter says maybe, index says where, segment
//! says what*.
//!
//! Expected I/O of a cold hit: one page of the filter, one leaf of the index, one page (or one span, fetched at once) of
//! the `.kv`. A segment without the key costs its filter page.
//!
//! Nobody waits twice where waiting once will do: the filters of several segments are prefetched together, from the disk when this
//! process never read their pages and from memory otherwise; so is the leaf of each where its filter has to come from the disk, and that of a
//! segment that is alone. Where its filter said *maybe* to the key before, the leaf is searched, and the page prefetched, before the filter
//! is looked at.
//!
//! An accessor only speeds a lookup up. Where one is missing or damaged, or cannot be read, the answer comes from the `.kv` alone, by a binary
//! search of its pages, and the statistics say so. A `.kv` that is missing or damaged fails the lookups that need it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use icecore_index::{FilterHash, FilterProbe, LeafNumber, PivotIndex, PrefetchHint, UsualShard};
use icecore_segments::PageBuf;
use icecore_segments::bytes::key_head;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::Found;
use crate::read::read_state::ReadState;
use crate::segment::live::{LiveSegment, OpenFile};
use crate::stats::{Count, Event};
use crate::storage::Mapping;
use crate::storage::map::prefetch_line;

thread_local! {
    // Decoding a page needs a buffer; one per thread, so that a lookup allocates nothing but its answer.
    pub(super) static PAGE: RefCell<PageBuf> = RefCell::default();
}

/// Segments whose filters are asked for at once. A memory serves about 40 lines at a time, and a filter takes four.
const GROUP: usize = 8;

/// The longest span whose pages are asked for at once, in pages: a megabyte.
pub(crate) const FETCH_PAGES_MAX: u64 = 256;

/// Where an answer came from.
pub(crate) enum Origin<'v> {
    Memory,
    Segment(&'v LiveSegment),
}

impl ReadState {
    /// The newest version of `key` at or below `at`, and where it was found.
    pub(crate) fn find(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
        tally: &impl Count,
    ) -> Result<Option<(Found, Origin<'_>)>, Error> {
        tally.count(Event::Lookup);
        if let Some(found) = self.find_in_memory(domain, key, at)? {
            tally.count(Event::Memory);
            return Ok(Some((found, Origin::Memory)));
        }
        let (head, probe) = (key_head(key), FilterProbe::new(FilterHash::of(key)));
        let spans = |segment: &&Arc<LiveSegment>| segment.blocks.0 <= at && segment.spans_key(head);
        let mut candidates = self.domain(domain).iter().rev().filter(spans).map(Arc::as_ref);
        let Some(first) = candidates.next() else { return Ok(None) };
        let Some(second) = candidates.next() else {
            let found = first.find_alone(&probe, key, at, tally)?;
            return Ok(found.map(|found| (found, Origin::Segment(first))));
        };
        let mut group = [None; GROUP];
        (group[0], group[1]) = (Some(first), Some(second));
        let mut taken = 2;
        loop {
            group[taken..].fill_with(|| candidates.next());
            if let Some((found, segment)) = find_in_group(&group, &probe, key, at, tally)? {
                return Ok(Some((found, Origin::Segment(segment))));
            }
            if group[GROUP - 1].is_none() {
                return Ok(None);
            }
            taken = 0;
        }
    }
}

/// The ladder in several segments that span the key, from the newest. Their filters answer first, and nobody looks at an answer until all were
/// asked: so they are waited for together.
fn find_in_group<'v>(
    group: &[Option<&'v LiveSegment>; GROUP],
    probe: &FilterProbe,
    key: &[u8],
    at: BlockNumber,
    tally: &impl Count,
) -> Result<Option<(Found, &'v LiveSegment)>, Error> {
    let mut answers = [None; GROUP];
    for (answer, segment) in answers.iter_mut().zip(group.iter().map_while(|segment| *segment)) {
        *answer = segment.usual_shard(probe).map(|shard| shard.may_contain(probe));
        // Where the filter has to come first, so has the leaf: they are waited for together, whichever segment has the key.
        if answer.is_none() && segment.request_filter(probe.hash()) {
            segment.request_leaf(key, at);
        }
    }
    for (answer, segment) in answers.into_iter().zip(group.iter().map_while(|segment| *segment)) {
        if segment.may_hold_by(answer, probe.hash(), tally)? {
            let span = segment.locate_now(key, at, tally)?;
            if let Some(found) = segment.search(span, key, at, tally)? {
                return Ok(Some((found, segment)));
            }
        }
    }
    Ok(None)
}

/// Asks memory for the whole of a leaf: its directory says which lines, and to wait for that and then for them takes longer than 64 lines
/// at once.
#[inline]
fn prefetch_leaf(index: &PivotIndex<Mapping>, leaf: LeafNumber) {
    index.data().prefetch_lines(index.leaf_range(leaf));
}

impl LiveSegment {
    /// The ladder in a segment that alone spans the key.
    ///
    /// Filter and leaf are asked for together: waiting for one after the other, for the disk or for memory, would take twice as long. A
    /// key that the filter is expected to know is located while the filter comes.
    #[inline]
    fn find_alone(
        &self,
        probe: &FilterProbe,
        key: &[u8],
        at: BlockNumber,
        tally: &impl Count,
    ) -> Result<Option<Found>, Error> {
        let is_expected = self.expects_key.load(Ordering::Relaxed);
        let shard = self.usual_shard(probe);
        let ahead = match shard {
            // The cells are the next that is read: nothing is won by asking for them.
            Some(_) if !is_expected => None,
            Some(shard) => {
                shard.touched(probe).into_iter().for_each(prefetch_line);
                self.locate_ahead(key, at, tally)
            }
            None => self.locate_beside_filter(probe.hash(), key, at, tally),
        };
        let answer = shard.map(|shard| shard.may_contain(probe));
        let may_hold = self.may_hold_by(answer, probe.hash(), tally)?;
        if is_expected != may_hold {
            // Written when it changes only: threads that look up share the line.
            self.expects_key.store(may_hold, Ordering::Relaxed);
        }
        if !may_hold {
            return Ok(None);
        }
        let span = match ahead {
            Some(span) => span,
            None => self.locate_now(key, at, tally)?,
        };
        self.search(span, key, at, tally)
    }

    /// Where a key is that the filter knows; its page is asked for.
    #[inline]
    fn locate_now(&self, key: &[u8], at: BlockNumber, tally: &impl Count) -> Result<PageSpan, Error> {
        let leaf = self.bt.opened().map(|index| {
            let leaf = index.leaf(key, at);
            if index.is_read(leaf) {
                prefetch_leaf(index, leaf);
            }
            leaf
        });
        let span = self.locate_in(leaf, key, at, tally)?;
        self.prefetch_page(span);
        Ok(span)
    }

    /// Where a key is, if that costs no wait for the disk; its page is asked for.
    #[inline]
    fn locate_ahead(&self, key: &[u8], at: BlockNumber, tally: &impl Count) -> Option<PageSpan> {
        let index = self.bt.get().ok()?.view();
        let leaf = self.request_leaf(key, at)?;
        tally.count(Event::IndexProbe);
        let span = index.locate_in(leaf, key, at).ok()?;
        self.prefetch_page(span);
        Some(span)
    }

    /// The same where more of the filter than three cells is needed: asked for first. Where that comes from the disk, so may the leaf,
    /// whether the key is expected or not.
    #[cold]
    fn locate_beside_filter(
        &self,
        hash: FilterHash,
        key: &[u8],
        at: BlockNumber,
        tally: &impl Count,
    ) -> Option<PageSpan> {
        let comes_from_disk = self.request_filter(hash);
        if self.expects_key.load(Ordering::Relaxed) {
            return self.locate_ahead(key, at, tally);
        }
        if comes_from_disk {
            self.request_leaf(key, at);
        }
        None
    }

    /// Asks for the leaf of a key. `None` where that has to come from the disk, or cannot.
    #[inline]
    pub(crate) fn request_leaf(&self, key: &[u8], at: BlockNumber) -> Option<LeafNumber> {
        let index = self.bt.get().ok()?.view();
        let leaf = index.leaf(key, at);
        if !index.is_read(leaf) {
            index.data().will_need(index.leaf_range(leaf));
            return None;
        }
        prefetch_leaf(index, leaf);
        Some(leaf)
    }

    /// Asks for what a probe of the filter touches first, and says whether it has to come from the disk. A filter that cannot be opened is
    /// met again, and reported, when it is probed.
    #[cold]
    pub(crate) fn request_filter(&self, hash: FilterHash) -> bool {
        let Ok(filter) = self.kvei.get().map(OpenFile::view) else { return false };
        let hint = filter.prefetch_hint(hash);
        let comes_from_disk = matches!(hint, PrefetchHint::Page(_));
        filter.data().prefetch(hint);
        comes_from_disk
    }

    #[inline]
    fn usual_shard(&self, probe: &FilterProbe) -> Option<UsualShard<'_>> {
        self.kvei.opened()?.usual_shard(probe)
    }

    /// Asks for what a lookup most likely touches of a page, all at once: the columns say where in the page the entry is, and to wait for
    /// them and then for it takes 450 ns where these lines together take 330.
    #[inline]
    fn prefetch_page(&self, span: PageSpan) {
        let Some(segment) = self.kv.opened() else { return };
        let lines = segment.likely_lines(span, self.record.m.get());
        lines.into_iter().for_each(|range| segment.data().prefetch_lines(range));
    }

    /// The ladder below the index.
    #[inline]
    fn search(
        &self,
        span: PageSpan,
        key: &[u8],
        at: BlockNumber,
        tally: &impl Count,
    ) -> Result<Option<Found>, Error> {
        tally.count(Event::Page);
        if 1 < span.len() && span.len() <= FETCH_PAGES_MAX {
            let segment = self.kv.get()?.view();
            segment.data().will_need(segment.file_range(span));
        }
        let found = self.get_in(span, key, at)?;
        if found.is_none() {
            tally.count(Event::FalsePositive);
        }
        Ok(found)
    }

    /// Probes the filter, unless three cells of it gave the answer, and counts it.
    #[inline]
    fn may_hold_by(&self, answer: Option<bool>, hash: FilterHash, tally: &impl Count) -> Result<bool, Error> {
        tally.count(Event::FilterProbe);
        answer.map_or_else(|| self.probe_filter(hash), Ok)
    }

    /// Probes the filter, and counts it. Touches one page.
    pub(crate) fn may_hold(&self, hash: FilterHash, tally: &impl Count) -> Result<bool, Error> {
        self.may_hold_by(None, hash, tally)
    }

    /// Probes the filter. Without a sound one every key may be there.
    pub(crate) fn probe_filter(&self, hash: FilterHash) -> Result<bool, Error> {
        let answer =
            self.kvei.get().and_then(|file| file.view().may_contain(hash).map_err(|e| file.error(e)));
        match answer {
            Err(error) if error.is_of_accessor_alone() => {
                self.kvei.report(&error);
                Ok(true)
            }
            answer => answer,
        }
    }

    /// Asks the index for a lookup. Touches one page. `leaf` is that of the position, where it is known.
    #[inline]
    pub(crate) fn locate_in(
        &self,
        leaf: Option<LeafNumber>,
        key: &[u8],
        at: BlockNumber,
        tally: &impl Count,
    ) -> Result<PageSpan, Error> {
        tally.count(Event::IndexProbe);
        let located = self.bt.get().and_then(|file| {
            let index = file.view();
            let leaf = leaf.unwrap_or_else(|| index.leaf(key, at));
            index.locate_in(leaf, key, at).map_err(|e| file.error(e))
        });
        self.or_all_pages(located)
    }

    /// Where the first entry at or after (key, at) can be.
    pub(crate) fn locate(&self, key: &[u8], at: BlockNumber) -> Result<PageSpan, Error> {
        let located = self.bt.get().and_then(|file| file.view().locate(key, at).map_err(|e| file.error(e)));
        self.or_all_pages(located)
    }

    /// Without a sound index an entry can be in any page: a search of the `.kv` finds it in about log2(pages) of them.
    #[inline]
    fn or_all_pages(&self, located: Result<PageSpan, Error>) -> Result<PageSpan, Error> {
        match located {
            Err(error) if error.is_of_accessor_alone() => {
                self.bt.report(&error);
                Ok(PageSpan { last: self.summary()?.pages.saturating_sub(1), ..PageSpan::page(0) })
            }
            located => located,
        }
    }

    /// Searches a span. Touches its pages, one after the other: the caller has several asked for at once.
    #[inline]
    pub(crate) fn get_in(&self, span: PageSpan, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        match self.kv.get()?.view().get_plain(span, key, at) {
            Some(found) => Ok(found.map(|(block, value)| (block, value.map(<[u8]>::to_vec)))),
            None => self.get_decoded(span, key, at),
        }
    }

    /// The same for what is not at hand in one plain page.
    #[inline(never)]
    fn get_decoded(&self, span: PageSpan, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        let kv = self.kv.get()?;
        PAGE.with_borrow_mut(|buf| {
            let version = kv.view().get_in(span, key, at, buf);
            let version = version.map_err(|e| kv.error(e)).inspect_err(|error| self.kv.report(error))?;
            let Some(version) = version else { return Ok(None) };
            Ok(Some((version.block, Self::load(kv, &version.value)?)))
        })
    }
}
