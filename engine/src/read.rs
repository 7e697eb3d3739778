//! The read ladder: memory, then segments from the newest; in a segment *filter says maybe, index says where, segment
//! says what*.
//!
//! Expected I/O of a cold hit: one page of the filter, one leaf of the index, one page (or one span, fetched at once) of
//! the `.kv`. A segment without the key costs its filter page.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use icecore_index::KeyHash;
use icecore_segments::PageBuf;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::live::LiveSegment;
use crate::stats::{Counters, Event};
use crate::table::Found;
use crate::version::Version;

thread_local! {
    // Decoding a page needs a buffer; one per thread, so that a lookup allocates nothing but its answer.
    static PAGE: RefCell<PageBuf> = RefCell::default();
}

/// Where an answer came from.
#[derive(Clone)]
pub(crate) enum Origin {
    Memory,
    Segment(Arc<LiveSegment>),
}

impl Version {
    /// The newest version of `key` at or below `at`, and where it was found.
    pub(crate) fn find(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
        counters: &Counters,
    ) -> Result<Option<(Found, Origin)>, Error> {
        counters.count(Event::Lookup);
        if let Some(found) = self.find_in_memory(domain, key, at) {
            counters.count(Event::Memory);
            return Ok(Some((found, Origin::Memory)));
        }
        let segments = self.domain(domain);
        if segments.is_empty() {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        for segment in segments.iter().rev().filter(|segment| segment.blocks.0 <= at) {
            if let Some(found) = segment.find(key, hash, at, counters)? {
                return Ok(Some((found, Origin::Segment(Arc::clone(segment)))));
            }
        }
        Ok(None)
    }

    /// The same in the tables alone.
    pub(crate) fn find_in_memory(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Option<Found> {
        self.tables.iter().rev().find_map(|table| table.get(domain, key, at))
    }
}

impl LiveSegment {
    /// The ladder inside one segment.
    fn find(
        &self,
        key: &[u8],
        hash: KeyHash,
        at: BlockNumber,
        counters: &Counters,
    ) -> Result<Option<Found>, Error> {
        if !self.spans_key(key) || !self.may_hold(hash, counters)? {
            return Ok(None);
        }
        let span = self.locate(key, at, counters)?;
        let found = self.get_in(span, key, at, counters)?;
        if found.is_none() {
            counters.count(Event::FalsePositive);
        }
        Ok(found)
    }

    /// Asks the filter. Touches one page.
    pub(crate) fn may_hold(&self, hash: KeyHash, counters: &Counters) -> Result<bool, Error> {
        counters.count(Event::FilterProbe);
        self.kvei.view().may_contain(hash).map_err(|e| self.kvei.error(e))
    }

    /// Asks the index. Touches one page.
    pub(crate) fn locate(&self, key: &[u8], at: BlockNumber, counters: &Counters) -> Result<PageSpan, Error> {
        counters.count(Event::IndexProbe);
        self.bt.view().locate(key, at).map_err(|e| self.bt.error(e))
    }

    /// Searches a span. Touches its pages, which are asked for at once where there are several.
    pub(crate) fn get_in(
        &self,
        span: PageSpan,
        key: &[u8],
        at: BlockNumber,
        counters: &Counters,
    ) -> Result<Option<Found>, Error> {
        counters.count(Event::Page);
        let segment = self.kv.view();
        if span.len() > 1 {
            segment.data().advise_fetch(segment.file_range(span));
        }
        PAGE.with_borrow_mut(|buf| {
            let version = segment.get_in(span, key, at, buf).map_err(|e| self.kv.error(e))?;
            let Some(version) = version else { return Ok(None) };
            let value = version.value.load().map_err(|e| self.kv.error(e))?;
            Ok(Some((version.block, value.map(Cow::into_owned))))
        })
    }
}
