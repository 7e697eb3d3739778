//! Which adjacent segments become one: the plan of merges, a pure function of what segments there are.
//!
//! A range `[k * 2^j, (k + 1) * 2^j)` is merged when all its steps were emitted and at least two segments are in it. The
//! range with the most segments goes first, of any domain, and of equals the widest: a backlog goes in a few wide steps,
//! and otherwise a version is rewritten about once per doubling of its segment.

use std::ops::Range;
use std::sync::Arc;

use icecore_index::{FILTER_MEMORY_KEYS, block_index_spool_max};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::step::{Step, StepRange};

use crate::options::Config;
use crate::segment::live::LiveSegment;

/// What the files of a merge need beside the bytes of its inputs: pages that are not full, headers, the manifest.
const ROOM_SPARE: u64 = 64 << 10;

/// The length in bytes of a key's hash in the temporary file of a filter.
const HASH_LEN: u64 = 8;

/// A segment as planning sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) steps: StepRange,
    /// Of its files.
    pub(crate) bytes: u64,
    /// At least as many keys as it has.
    pub(crate) keys_max: u64,
    /// How many versions it has that go into an index of blocks: 0 where its domain has none.
    pub(crate) indexed: u64,
}

impl Piece {
    pub(crate) fn of(segment: &LiveSegment, config: &Config) -> Self {
        let record = &segment.record;
        let bytes = record.bytes();
        // A filter has at least one fingerprint for each key.
        let keys_max = record.kvei.summary.len * 8 / u64::from(record.filter_bits.get());
        // A segment that cannot be opened fails its merge, and says why.
        let entries = || segment.summary().map_or(0, |summary| summary.entries);
        let indexed = if config.has_block_index(record.domain) { entries() } else { 0 };
        Self { steps: record.steps, bytes, keys_max, indexed }
    }

    /// What several become together.
    pub(crate) fn merged(pieces: &[Self], steps: StepRange) -> Self {
        let sum = |of: fn(&Self) -> u64| pieces.iter().map(of).sum();
        let (bytes, keys_max) = (sum(|piece| piece.bytes), sum(|piece| piece.keys_max));
        Self { steps, bytes, keys_max, indexed: sum(|piece| piece.indexed) }
    }

    /// What may be written before the inputs go: the files, and the temporary files through which the hashes of many keys go on their
    /// way to the filter, and the blocks of many versions to their index.
    pub(crate) fn room(self) -> u64 {
        let hashes = if self.keys_max > FILTER_MEMORY_KEYS { self.keys_max * HASH_LEN } else { 0 };
        self.bytes + hashes + block_index_spool_max(self.indexed, self.bytes.div_ceil(PAGE_SIZE as u64))
    }
}

/// A merge to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) range: StepRange,
    /// How many segments become one.
    pub(crate) inputs: usize,
    /// What it may write before it frees any.
    pub(crate) bytes: u64,
}

/// What bounds a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Only steps from here ...
    pub(crate) from: Step,
    /// ... to here.
    pub(crate) emitted_to: Step,
    pub(crate) span_max: u64,
    /// No merge that may write more.
    pub(crate) room: u64,
}

/// The merge to do next in a domain, if there is one. `segments` ascend.
pub(crate) fn plan(segments: &[Piece], bounds: Bounds) -> Option<Planned> {
    let mut best: Option<Planned> = None;
    let steps: Vec<StepRange> = segments.iter().map(|piece| piece.steps).collect();
    for_each_group(&steps, bounds, |group, range| {
        let (inputs, bytes) = (group.len(), Piece::merged(&segments[group], range).room() + ROOM_SPARE);
        if bytes <= bounds.room && best.is_none_or(|best| inputs > best.inputs) {
            best = Some(Planned { range, inputs, bytes });
        }
    });
    best
}

/// How many segments fewer there are after all merges.
pub(crate) fn surplus(segments: &[StepRange], bounds: Bounds) -> usize {
    let (mut surplus, mut merged): (usize, Vec<StepRange>) = (0, Vec::new());
    for_each_group(segments, bounds, |group, range| {
        // Wider ranges come first, so one that was merged covers it or does not touch it.
        if !merged.iter().any(|wider| wider.covers(range)) {
            merged.push(range);
            surplus += group.len() - 1;
        }
    });
    surplus
}

/// Visits what can be merged, the widest ranges first: at least two segments each, and no range cuts a segment.
fn for_each_group(segments: &[StepRange], bounds: Bounds, mut visit: impl FnMut(Range<usize>, StepRange)) {
    let widest = bounds.emitted_to.0.min(bounds.span_max);
    let powers = widest.checked_ilog2().unwrap_or(0);
    for span in (1..=powers).rev().map(|power| 1u64 << power) {
        let mut at = 0;
        while at < segments.len() {
            let start = segments[at].from().0 / span * span;
            let inside = |steps: &&StepRange| steps.from().0 - start < span;
            let group = at..at + segments[at..].iter().take_while(inside).count();
            // A segment that began before the range may reach into it.
            let is_cut = at > 0 && segments[at - 1].to().0 > start;
            at = group.end;
            let Some(to) = start.checked_add(span).filter(|to| *to <= bounds.emitted_to.0) else { continue };
            let Some(range) = StepRange::new(Step(start), Step(to)) else { continue };
            let is_whole = !is_cut && segments[group.clone()].iter().all(|steps| range.covers(*steps));
            if group.len() >= 2 && is_whole && start >= bounds.from.0 {
                visit(group, range);
            }
        }
    }
}

pub(crate) fn pieces(segments: &[Arc<LiveSegment>], config: &Config) -> Vec<Piece> {
    segments.iter().map(|segment| Piece::of(segment, config)).collect()
}

pub(crate) fn step_ranges(segments: &[Arc<LiveSegment>]) -> Vec<StepRange> {
    segments.iter().map(|segment| segment.record.steps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(pairs: &[(u64, u64)], emitted_to: u64, span_max: u64, room: u64) -> Option<(u64, u64)> {
        let piece = |(from, to): &(u64, u64)| Piece {
            steps: StepRange::new(Step(*from), Step(*to)).unwrap(),
            bytes: (to - from) * 1000,
            keys_max: to - from,
            indexed: to - from,
        };
        let pieces: Vec<_> = pairs.iter().map(piece).collect();
        let bounds = Bounds { from: Step(0), emitted_to: Step(emitted_to), span_max, room };
        plan(&pieces, bounds).map(|planned| (planned.range.from().0, planned.range.to().0))
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn of_equals_the_widest_complete_aligned_range_goes_first() {
        assert_eq!(planned(&[(0, 1), (1, 2)], 2, ALL, ALL), Some((0, 2)));
        assert_eq!(planned(&[(0, 2), (2, 3), (3, 4)], 4, ALL, ALL), Some((0, 4)));
        assert_eq!(planned(&[(0, 2), (2, 3), (3, 4)], 4, 2, ALL), Some((2, 4)));
        assert_eq!(planned(&[(0, 2), (2, 3)], 3, ALL, ALL), None, "the range to 4 is not complete");
        assert_eq!(
            planned(&[(0, 1), (3, 4)], 4, ALL, ALL),
            Some((0, 4)),
            "steps without a segment do not hinder"
        );
        assert_eq!(planned(&[(1, 2), (2, 3)], 3, ALL, ALL), None, "not aligned");
        assert_eq!(planned(&[(0, 3), (3, 4)], 4, ALL, ALL), Some((0, 4)), "after a prune");
        assert_eq!(
            planned(&[(0, 5), (5, 6), (6, 7), (7, 8)], 8, 4, ALL),
            Some((6, 8)),
            "no range cuts a segment"
        );
        assert_eq!(planned(&[(0, 4), (4, 8), (8, 9), (9, 10)], 10, ALL, ALL), Some((0, 8)));
        assert_eq!(planned(&[], 8, ALL, ALL), None);
    }

    #[test]
    fn a_backlog_goes_before_a_wider_range_of_fewer_segments() {
        let fresh: Vec<_> = (8..12).map(|step| (step, step + 1)).collect();
        let pairs = [&[(0, 4), (4, 8)], &fresh[..]].concat();
        assert_eq!(planned(&pairs, 12, ALL, ALL), Some((8, 12)));
        assert_eq!(planned(&pairs, 16, ALL, ALL), Some((0, 16)), "one pass for all where all are complete");
    }

    #[test]
    fn the_surplus_is_what_merging_does_away_with() {
        let bounds = Bounds { from: Step(0), emitted_to: Step(14), span_max: ALL, room: ALL };
        let single: Vec<_> = (0..14).map(|from| StepRange::single(Step(from))).collect();
        assert_eq!(surplus(&single, bounds), 14 - 3, "[0, 8), [8, 12), [12, 14)");
        assert_eq!(surplus(&single, Bounds { from: Step(8), ..bounds }), 6 - 2);
        assert_eq!(surplus(&single, Bounds { span_max: 2, ..bounds }), 7);
        assert_eq!(surplus(&single[..1], bounds), 0);
    }

    #[test]
    fn only_the_hashes_of_many_keys_and_the_blocks_of_many_versions_take_room_of_their_own() {
        let steps = StepRange::new(Step(0), Step(2)).unwrap();
        let piece = |keys_max| Piece { steps, bytes: 1000, keys_max, indexed: 0 };
        let half = FILTER_MEMORY_KEYS / 2;
        assert_eq!(Piece::merged(&[piece(half), piece(half)], steps).room(), 2000);
        let spooled = 8 * (2 * half + 1);
        assert_eq!(Piece::merged(&[piece(half), piece(half + 1)], steps).room(), 2000 + spooled);
        let versions = |indexed| Piece { steps, bytes: 1000, keys_max: 1, indexed };
        assert_eq!(Piece::merged(&[versions(1 << 19), versions(1 << 19)], steps).room(), 2000);
        let many = Piece::merged(&[versions(1 << 19), versions(1 << 20)], steps).room();
        assert_eq!(many, 2000 + block_index_spool_max(3 << 19, 1));
    }

    #[test]
    fn what_does_not_fit_is_left_out_for_what_does() {
        let pairs = [(0, 4), (4, 8), (8, 9), (9, 10)];
        assert_eq!(planned(&pairs, 10, ALL, 8000 + ROOM_SPARE), Some((0, 8)));
        assert_eq!(planned(&pairs, 10, ALL, 7999 + ROOM_SPARE), Some((8, 10)));
        assert_eq!(planned(&pairs, 10, ALL, 1999 + ROOM_SPARE), None);
    }
}
