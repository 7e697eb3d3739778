//! Merge: adjacent segments become one over an aligned power-of-two step range; no answer changes.
//!
//! A range `[k * 2^j, (k + 1) * 2^j)` is merged when all its steps were emitted and at least two segments lie in it.
//! The widest such range goes first, so that a version is rewritten about once per doubling of its segment.

use std::sync::Arc;

use icecore_segments::step::{Step, StepRange};

use crate::core::{Core, FileChange};
use crate::domain::DomainId;
use crate::error::Error;
use crate::live::{LiveSegment, entries_of};
use crate::observer::Observer;
use crate::rewrite::rewrite;

/// What to merge on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    /// Only this domain.
    pub domain: Option<String>,
    /// No segment longer than so many steps.
    pub span_max: u64,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self { domain: None, span_max: u64::MAX }
    }
}

/// The widest range that can be merged next, if there is one. `segments` are the step ranges of one domain, ascending.
pub(crate) fn plan(segments: &[StepRange], emitted_to: Step, span_max: u64) -> Option<StepRange> {
    let widest = emitted_to.0.min(span_max);
    let mut span = if widest < 2 { return None } else { 1u64 << widest.ilog2() };
    while span >= 2 {
        let found = segments.iter().find_map(|first| {
            let from = first.from().0 / span * span;
            let to = from.checked_add(span).filter(|to| *to <= emitted_to.0)?;
            let range = StepRange::new(Step(from), Step(to))?;
            let inside = segments.iter().filter(|s| range.covers(**s)).count();
            let touching = segments.iter().filter(|s| range.overlaps(**s)).count();
            (inside >= 2 && inside == touching).then_some(range)
        });
        if found.is_some() {
            return found;
        }
        span /= 2;
    }
    None
}

impl Core {
    /// Merges until nothing is left to merge. Returns the number of merges.
    pub(crate) fn merge_all(&self, options: &MergeOptions, observer: &dyn Observer) -> Result<u64, Error> {
        let directory = &self.shared.directory;
        let only = options.domain.as_deref().map(|name| directory.domain(name)).transpose()?;
        let mut merges = 0;
        for domain in (0..directory.config.domains.len()).map(|index| DomainId(index as u16)) {
            if only.is_none_or(|only| only == domain) {
                while self.merge_next(domain, options.span_max, observer)? {
                    merges += 1;
                }
            }
        }
        Ok(merges)
    }

    /// Does the next merge of a domain; `false` when there is none to do, or the archive is closed meanwhile.
    pub(crate) fn merge_next(
        &self,
        domain: DomainId,
        span_max: u64,
        observer: &dyn Observer,
    ) -> Result<bool, Error> {
        let structure = self.structure.lock();
        if !self.goes_on(&structure)? {
            return Ok(false);
        }
        let directory = &self.shared.directory;
        let version = self.version();
        let (emitted_to, rule) = {
            let state = self.state.lock();
            (state.manifest.emitted_to, state.manifest.rule)
        };
        let ranges: Vec<_> = version.domain(domain).iter().map(|segment| segment.record.steps).collect();
        let Some(range) = plan(&ranges, emitted_to, span_max) else { return Ok(false) };
        let inputs: Vec<Arc<LiveSegment>> =
            version.domain(domain).iter().filter(|s| range.covers(s.record.steps)).cloned().collect();
        let entries = entries_of(&inputs)?;
        let name = &directory.config.domains[domain.index()].name;
        observer.begin(&format!("merge {name}.{range}"), Some(entries));
        let shape = self.shape_of_new(rule, domain, range, entries)?;
        let inputs_view = inputs.iter().map(|input| &**input);
        let mut goes_on = true;
        let pace = |entries| {
            observer.advance(entries);
            goes_on = self.goes_on(&structure)?;
            Ok(goes_on)
        };
        let record = rewrite(directory, domain, inputs_view, range, shape, pace, |_| true)?;
        observer.end();
        if !goes_on {
            return Ok(false);
        }
        let added = record.map(|record| LiveSegment::open_new(directory, record)).transpose()?;
        let change = FileChange { removed: inputs, added: added.into_iter().map(Arc::new).collect() };
        self.publish(&mut self.state.lock(), change, |_, _| {})?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Vec<StepRange> {
        pairs.iter().map(|(from, to)| StepRange::new(Step(*from), Step(*to)).unwrap()).collect()
    }

    #[test]
    fn the_widest_complete_aligned_range_goes_first() {
        let planned = |pairs: &[(u64, u64)], emitted: u64, max: u64| {
            plan(&ranges(pairs), Step(emitted), max).map(|range| (range.from().0, range.to().0))
        };
        assert_eq!(planned(&[(0, 1), (1, 2)], 2, u64::MAX), Some((0, 2)));
        assert_eq!(planned(&[(0, 2), (2, 3), (3, 4)], 4, u64::MAX), Some((0, 4)));
        assert_eq!(planned(&[(0, 2), (2, 3), (3, 4)], 4, 2), Some((2, 4)));
        assert_eq!(planned(&[(0, 2), (2, 3)], 3, u64::MAX), None, "the range to 4 is not complete");
        assert_eq!(
            planned(&[(0, 1), (3, 4)], 4, u64::MAX),
            Some((0, 4)),
            "steps without a segment do not hinder"
        );
        assert_eq!(planned(&[(1, 2), (2, 3)], 3, u64::MAX), None, "not aligned");
        assert_eq!(planned(&[(0, 3), (3, 4)], 4, u64::MAX), Some((0, 4)), "after a prune");
        assert_eq!(planned(&[(0, 5), (5, 6), (6, 7), (7, 8)], 8, 4), Some((6, 8)), "no range cuts a segment");
        assert_eq!(planned(&[], 8, u64::MAX), None);
    }
}
