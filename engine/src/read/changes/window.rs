//! Which pages come next: the block indexes of all domains, merged.

use std::slice;
use std::sync::Arc;

use icecore_index::{BlockCursor, BlockIndex, BlockPage};
use icecore_segments::step::BlockNumber;

use super::Changes;
use crate::domain::DomainId;
use crate::error::Error;
use crate::read::read_state::ReadState;
use crate::segment::live::{LiveSegment, OpenFile};
use crate::storage::Mapping;

/// A place in the order of changes, as exact as a block index says it: the block, the domain, the page.
pub(super) type Place = (BlockNumber, DomainId, u64);

/// The pages of one segment that a window reads.
pub(super) struct Picked {
    pub(super) segment: Arc<LiveSegment>,
    pub(super) pages: Vec<u64>,
    /// How many of their entries are of the window.
    pub(super) entries: u64,
}

/// What to read next.
#[derive(Default)]
pub(super) struct Window {
    /// By domain, then segment.
    pub(super) picked: Vec<(DomainId, Picked)>,
    /// The last place.
    pub(super) upto: Option<Place>,
    entries: u64,
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.upto.is_none()
    }
}

/// Why a window is not there yet.
enum Stop {
    /// The segment has no block index that can be used.
    Needs(Arc<LiveSegment>),
    Failed(Error),
}

/// A position in a block index.
enum Pages<'c> {
    Of(&'c OpenFile<BlockIndex<Mapping>>, BlockCursor<'c, Mapping>),
    Built(BlockCursor<'c, Vec<u8>>),
}

/// The pages of one domain that are still to come.
struct Walk<'c> {
    domain: DomainId,
    segments: slice::Iter<'c, Arc<LiveSegment>>,
    now: Option<(&'c Arc<LiveSegment>, Pages<'c>)>,
    next: Option<BlockPage>,
    picked: Vec<Picked>,
}

impl Changes {
    /// The next pages, as many as have the entries of a window; none when no segment has more.
    pub(super) fn next_window(&mut self, state: &ReadState) -> Result<Window, Error> {
        loop {
            match self.try_window(state) {
                Ok(window) => return Ok(window),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Needs(segment)) => {
                    let reached = self.reached();
                    let step_len = self.shared.directory.config.step_len;
                    self.built.retain(|((_, steps), _)| reached <= step_len.blocks(*steps).1);
                    let name = self.shared.directory.config.name(segment.record.domain);
                    let index = segment.build_block_index(name)?;
                    self.built.push(((segment.record.domain, segment.record.steps), index));
                }
            }
        }
    }

    /// The lowest block that may have changes left.
    fn reached(&self) -> BlockNumber {
        self.last.map_or(self.from, |(block, ..)| block)
    }

    fn try_window(&self, state: &ReadState) -> Result<Window, Stop> {
        let from = self.reached();
        let mut walks = Vec::with_capacity(self.domains.len());
        for domain in &self.domains {
            let segments = state.domain(*domain);
            let first = segments.partition_point(|segment| segment.blocks.1 < from);
            let segments = segments[first..].iter();
            let mut walk = Walk { domain: *domain, segments, now: None, next: None, picked: Vec::new() };
            self.advance(&mut walk)?;
            walks.push(walk);
        }
        let mut window = Window::default();
        while window.entries < self.limit {
            let soonest = walks.iter_mut().filter_map(|walk| Some((walk.next?.block, walk)));
            let Some((_, walk)) = soonest.min_by_key(|(block, walk)| (*block, walk.domain)) else { break };
            let (Some(next), Some((segment, _))) = (walk.next, &walk.now) else { break };
            window.upto = Some((next.block, walk.domain, next.page));
            window.entries = window.entries.saturating_add(next.entries);
            match walk.picked.last_mut() {
                Some(picked) if Arc::ptr_eq(&picked.segment, segment) => {
                    picked.pages.push(next.page);
                    picked.entries = picked.entries.saturating_add(next.entries);
                }
                _ => {
                    let (segment, pages) = (Arc::clone(segment), vec![next.page]);
                    walk.picked.push(Picked { segment, pages, entries: next.entries });
                }
            }
            self.advance(walk)?;
        }
        for walk in walks {
            window.picked.extend(walk.picked.into_iter().map(|picked| (walk.domain, picked)));
        }
        for (_, picked) in &mut window.picked {
            picked.pages.sort_unstable();
            picked.pages.dedup();
        }
        Ok(window)
    }

    /// Goes to the next page of a domain.
    fn advance<'c>(&'c self, walk: &mut Walk<'c>) -> Result<(), Stop> {
        loop {
            if let Some((segment, pages)) = &mut walk.now {
                let next = match pages {
                    Pages::Built(cursor) => {
                        cursor.next().map_err(|e| Stop::Failed(built_wrong(segment, e)))?
                    }
                    Pages::Of(file, cursor) => match cursor.next().map_err(|e| file.error(e)) {
                        Ok(next) => next,
                        Err(error) => return Err(unusable(segment, error)),
                    },
                };
                match next {
                    Some(next) if next.block > self.to => break,
                    Some(next) if Some((next.block, walk.domain, next.page)) <= self.last => continue,
                    Some(next) => {
                        walk.next = Some(next);
                        return Ok(());
                    }
                    None => walk.now = None,
                }
            }
            let Some(segment) = walk.segments.next().filter(|segment| segment.blocks.0 <= self.to) else {
                break;
            };
            walk.now = Some((segment, self.open(segment)?));
        }
        (walk.now, walk.next) = (None, None);
        walk.segments = [].iter();
        Ok(())
    }

    fn open<'c>(&'c self, segment: &'c Arc<LiveSegment>) -> Result<Pages<'c>, Stop> {
        let from = self.reached();
        let name = (segment.record.domain, segment.record.steps);
        if let Some((_, index)) = self.built.iter().find(|(built, _)| *built == name) {
            return Ok(Pages::Built(index.cursor(from)));
        }
        let Some(kvbi) = &segment.kvbi else { return Err(Stop::Needs(Arc::clone(segment))) };
        let file = kvbi.get().map_err(|error| unusable(segment, error))?;
        let index = file.view();
        let mut ahead = index.range_of(from, self.to);
        ahead.end = ahead.end.min(ahead.start + FETCH_LEN);
        index.data().will_need(ahead);
        Ok(Pages::Of(file, index.cursor(from)))
    }
}

/// How much of a block index is fetched at once.
const FETCH_LEN: u64 = 1 << 20;

/// Without a sound block index the segment is gone through, and statistics say so.
fn unusable(segment: &Arc<LiveSegment>, error: Error) -> Stop {
    if !error.is_of_accessor_alone() {
        return Stop::Failed(error);
    }
    segment.kvbi.iter().for_each(|kvbi| kvbi.report(&error));
    Stop::Needs(Arc::clone(segment))
}

/// What was just built is right, unless the memory is not.
fn built_wrong(segment: &LiveSegment, source: icecore_segments::Error) -> Error {
    Error::File { path: segment.kv.path().to_owned(), source }
}
