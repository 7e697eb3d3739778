//! Many keys at one height: every page that will be needed is asked for before the first is waited for.
//!
//! Segment by segment from the newest, the keys not yet answered go through the three rungs of the ladder together, in a few chunks:
//! all filter pages of a chunk are requested, then all index leaves of the keys that may be there, then all data pages, and these are read
//! while the next chunk, twice as long, is asked for. A cold call of a thousand keys waits some ten times per segment instead of three
//! times per key; where the accessors are in memory the disk is busy from the first chunk to the last page.

use std::sync::Arc;

use icecore_index::{FilterHash, LeafNumber};
use icecore_segments::Version;
use icecore_segments::bytes::key_head;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::read::get::{FETCH_PAGES_MAX, PAGE};
use crate::read::read_state::ReadState;
use crate::segment::live::{LiveSegment, OpenFile};
use crate::stats::{Count, Event, Tally};
use crate::storage::map::ReadaheadBatch;

/// A key on its way down the ladder.
#[derive(Clone, Copy)]
struct Pending<'k> {
    /// Its place in the caller's list.
    place: usize,
    key: &'k [u8],
    hash: FilterHash,
}

/// How many keys go down the ladder first, about as many as a disk reads at once, so that it begins at once; each further chunk is twice as
/// long, and the disk is busy with the one before while filter and index are asked for it.
const CHUNK_MIN: usize = 32;

/// Keys in chunks of growing length.
struct Chunks<'a, 'k> {
    rest: &'a [Pending<'k>],
    len: usize,
}

impl<'a, 'k> Iterator for Chunks<'a, 'k> {
    type Item = &'a [Pending<'k>];

    fn next(&mut self) -> Option<Self::Item> {
        let (chunk, rest) = self.rest.split_at(self.len.min(self.rest.len()));
        (self.rest, self.len) = (rest, 2 * self.len);
        (!chunk.is_empty()).then_some(chunk)
    }
}

impl ReadState {
    /// The values of `keys` at `at`, in the order asked.
    pub(crate) fn multi_get(
        &self,
        domain: DomainId,
        keys: &[&[u8]],
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut answers = vec![None; keys.len()];
        let mut pending = Vec::with_capacity(keys.len());
        for (place, key) in keys.iter().enumerate() {
            tally.count(Event::Lookup);
            match self.find_in_memory(domain, key, at)? {
                Some((_, value)) => answers[place] = value,
                None => pending.push(Pending { place, key, hash: FilterHash::of(key) }),
            }
        }
        for segment in self.domain(domain).iter().rev().filter(|segment| segment.blocks.0 <= at) {
            if pending.is_empty() {
                break;
            }
            segment.answer(&mut pending, at, &mut answers, tally)?;
        }
        Ok(answers)
    }
}

impl ReadState {
    /// Shows the newest version at or below `at` of each key that segments have one of: its place in the list, the segment, and the
    /// version, its value not loaded.
    pub(crate) fn find_all_in_segments(
        &self,
        domain: DomainId,
        keys: &[&[u8]],
        at: BlockNumber,
        tally: &Tally,
        mut show: impl FnMut(usize, &Arc<LiveSegment>, &Version<'_>),
    ) -> Result<(), Error> {
        let pending = keys.iter().enumerate();
        let mut pending: Vec<_> =
            pending.map(|(place, key)| Pending { place, key, hash: FilterHash::of(key) }).collect();
        for segment in self.domain(domain).iter().rev().filter(|segment| segment.blocks.0 <= at) {
            if pending.is_empty() {
                break;
            }
            let kv = segment.kv.get()?;
            let mut answered = Vec::new();
            for (p, span) in segment.locate_all(&pending, at, tally)? {
                tally.count(Event::Page);
                PAGE.with_borrow_mut(|buf| {
                    let version = kv.view().get_in(span, p.key, at, buf).map_err(|e| kv.error(e))?;
                    if let Some(version) = version {
                        show(p.place, segment, &version);
                        answered.push(p.place);
                    }
                    Ok::<_, Error>(())
                })?;
            }
            answered.sort_unstable();
            pending.retain(|p| answered.binary_search(&p.place).is_err());
        }
        Ok(())
    }

    /// The values of keys of several domains at `at`, in the order asked, one domain after the other.
    pub(crate) fn multi_get_across(
        &self,
        keys: &[(DomainId, &[u8])],
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&place| keys[place].0);
        let mut answers = vec![None; keys.len()];
        for places in order.chunk_by(|&a, &b| keys[a].0 == keys[b].0) {
            let of_domain: Vec<&[u8]> = places.iter().map(|&place| keys[place].1).collect();
            let found = self.multi_get(keys[places[0]].0, &of_domain, at, tally)?;
            places.iter().zip(found).for_each(|(&place, value)| answers[place] = value);
        }
        Ok(answers)
    }
}

impl LiveSegment {
    /// Answers the pending keys that this segment has a version of, and leaves the others pending.
    fn answer(
        &self,
        pending: &mut Vec<Pending<'_>>,
        at: BlockNumber,
        answers: &mut [Option<Vec<u8>>],
        tally: &Tally,
    ) -> Result<(), Error> {
        let located = self.locate_all(pending, at, tally)?;
        let mut answered = Vec::new();
        for (p, span) in located {
            tally.count(Event::Page);
            if let Some((_, value)) = self.get_in(span, p.key, at)? {
                answers[p.place] = value;
                answered.push(p.place);
            }
        }
        answered.sort_unstable();
        pending.retain(|p| answered.binary_search(&p.place).is_err());
        Ok(())
    }

    /// Where the keys can be that may be here; their pages are asked for.
    fn locate_all<'k>(
        &self,
        pending: &[Pending<'k>],
        at: BlockNumber,
        tally: &Tally,
    ) -> Result<Vec<(Pending<'k>, PageSpan)>, Error> {
        let mut asked: Vec<_> = pending.iter().filter(|p| self.spans_key(key_head(p.key))).copied().collect();
        // Neighbours share pages, and requests in order of offset suit every disk: in the filter that is the order of the
        // hashes, in the other two files that of the keys.
        asked.sort_unstable_by_key(|p| p.hash);
        let mut located = Vec::with_capacity(asked.len());
        let mut chunks = Chunks { rest: &asked, len: CHUNK_MIN };
        let mut chunk = chunks.next().unwrap_or_default();
        self.fetch_filters(chunk);
        while !chunk.is_empty() {
            let next = chunks.next().unwrap_or_default();
            self.fetch_filters(next);
            self.request(chunk, at, &mut located, tally)?;
            chunk = next;
        }
        Ok(located)
    }

    /// Asks for the data pages of those keys that may be here, and says which they are.
    fn request<'k>(
        &self,
        keys: &[Pending<'k>],
        at: BlockNumber,
        located: &mut Vec<(Pending<'k>, PageSpan)>,
        tally: &Tally,
    ) -> Result<(), Error> {
        let mut maybe = Vec::with_capacity(keys.len());
        for p in keys {
            if self.may_hold(p.hash, tally)? {
                maybe.push(*p);
            }
        }
        if maybe.is_empty() {
            return Ok(());
        }
        maybe.sort_unstable_by_key(|p| p.key);
        let leaves = self.fetch_leaves(&maybe, at);
        let segment = self.kv.get()?.view();
        let mut requests = ReadaheadBatch::new(segment.data());
        for (p, leaf) in maybe.into_iter().zip(leaves) {
            let span = self.locate_in(leaf, p.key, at, tally)?;
            if span.len() <= FETCH_PAGES_MAX {
                requests.add(segment.file_range(span));
            }
            located.push((p, span));
        }
        Ok(())
    }

    /// Asks for the filter pages of all keys. A filter that cannot be opened is met again when it is asked.
    fn fetch_filters(&self, keys: &[Pending<'_>]) {
        if let Ok(filter) = self.kvei.get().map(OpenFile::view) {
            let mut requests = ReadaheadBatch::new(filter.data());
            keys.iter().for_each(|p| requests.add(filter.page_range(p.hash)));
        }
    }

    /// Asks for the index leaves of all keys, and says which they are; `None` where there is no index.
    fn fetch_leaves(&self, keys: &[Pending<'_>], at: BlockNumber) -> Vec<Option<LeafNumber>> {
        let Ok(index) = self.bt.get().map(OpenFile::view) else { return vec![None; keys.len()] };
        let leaves: Vec<_> = keys.iter().map(|p| index.leaf(p.key, at)).collect();
        let mut requests = ReadaheadBatch::new(index.data());
        leaves.iter().for_each(|leaf| requests.add(index.leaf_range(*leaf)));
        leaves.into_iter().map(Some).collect()
    }
}
