//! Merge: adjacent segments become one over an aligned power-of-two step range; no answer changes.
//!
//! [`merge_plan`](crate::segment::merge_plan) says which.

use std::sync::Arc;

use icecore_segments::step::StepRange;

use crate::domain::DomainId;
use crate::error::Error;
use crate::maintain::new_segment::options_of_new;
use crate::progress::ProgressListener;
use crate::segment::live::{LiveSegment, entries_of};
use crate::segment::merge_plan::{Bounds, Piece, Planned, pieces, plan};
use crate::segment::rewrite::rewrite;
use crate::write::version_edit::VersionEdit;
use crate::write::writer::Writer;

/// Segments of one domain that merging would remove, before commits wait for it.
pub(crate) const SURPLUS_MAX: usize = 24;

/// What [`Archive::merge`](crate::Archive::merge) merges: by default all domains, to segments of any span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    pub(crate) domain: Option<String>,
    pub(crate) span_max: u64,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self { domain: None, span_max: u64::MAX }
    }
}

impl MergeOptions {
    /// The defaults: all domains, segments of any span.
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges only this domain, or with `None` all of them.
    pub fn domain(mut self, name: Option<&str>) -> Self {
        self.domain = name.map(str::to_owned);
        self
    }

    /// Makes no segment longer than this many steps. With 0 or 1 nothing merges.
    pub fn span_max(mut self, steps: u64) -> Self {
        self.span_max = steps;
        self
    }
}

/// Whether merging makes segments of such a range.
fn is_aligned(range: StepRange) -> bool {
    range.span().is_power_of_two() && range.from().0.is_multiple_of(range.span())
}

/// A merge to do: the live segments of a domain that become one.
pub(crate) struct Merge {
    domain: DomainId,
    range: StepRange,
    inputs: Vec<Arc<LiveSegment>>,
}

impl Merge {
    /// The next merge, if there is one to do.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when nothing but merges is left that the file system has no room for.
    pub(crate) fn next(
        writer: &Writer,
        only: Option<DomainId>,
        span_max: u64,
    ) -> Result<Option<Self>, Error> {
        let directory = &writer.shared.directory;
        let free = directory.storage.free_space(&directory.path)?;
        let version = writer.read_state();
        let bounds = writer.lock().merge_bounds(span_max);
        let mut next: Option<(DomainId, Planned)> = None;
        let mut left_out = None;
        for (domain, segments) in (0..).map(DomainId).zip(version.segments.iter()) {
            if only.is_some_and(|only| only != domain) {
                continue;
            }
            let pieces = pieces(segments, &directory.config);
            let wanted = plan(&pieces, bounds);
            let fitting = plan(&pieces, Bounds { room: free.unwrap_or(u64::MAX), ..bounds });
            if wanted != fitting {
                left_out = left_out.or(wanted.map(|planned| (domain, planned)));
            }
            if let Some(planned) = fitting.filter(|p| next.is_none_or(|(_, best)| p.inputs > best.inputs)) {
                next = Some((domain, planned));
            }
        }
        match (next, left_out) {
            (Some((domain, Planned { range, .. })), _) => {
                let inside = |segment: &&Arc<LiveSegment>| range.covers(segment.record.steps);
                let inputs = version.domain(domain).iter().filter(inside).cloned().collect();
                Ok(Some(Self { domain, range, inputs }))
            }
            (None, Some((domain, planned))) => Err(Error::NoRoom {
                task: format!("merge {}.{}", directory.config.name(domain), planned.range),
                path: directory.path.clone(),
                needed: planned.bytes,
                free: free.unwrap_or(u64::MAX),
            }),
            (None, None) => Ok(None),
        }
    }

    /// The merge of the segments inside `range`, where there are several and no other reaches into it, merging makes such ranges, and
    /// there is room.
    pub(crate) fn of(writer: &Writer, domain: DomainId, range: StepRange) -> Result<Option<Self>, Error> {
        let (directory, version) = (&writer.shared.directory, writer.read_state());
        let overlapping =
            version.domain(domain).iter().filter(|segment| range.overlaps(segment.record.steps));
        let inputs: Vec<_> = overlapping.cloned().collect();
        let are_inside = inputs.iter().all(|segment| range.covers(segment.record.steps));
        let needed = Piece::merged(&pieces(&inputs, &directory.config), range).room();
        let free = directory.storage.free_space(&directory.path)?;
        let is_wanted = inputs.len() > 1 && are_inside && is_aligned(range);
        Ok((is_wanted && free.is_none_or(|free| needed <= free)).then_some(Self { domain, range, inputs }))
    }

    /// Does it and publishes the result; `false` when `emit_pending`, which is called every few milliseconds, said that
    /// something is more urgent.
    pub(crate) fn run(
        self,
        writer: &Writer,
        listener: &dyn ProgressListener,
        mut emit_pending: impl FnMut() -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let Self { domain, range, inputs } = self;
        assert!(is_aligned(range), "E5: a merge covers an aligned power-of-two range");
        let directory = &writer.shared.directory;
        let entries = entries_of(&inputs)?;
        let name = directory.config.name(domain);
        listener.begin(&format!("merge {name}.{range}"), Some(entries));
        let options = options_of_new(writer, domain, range, entries)?;
        let mut is_stopped = false;
        let on_progress = |entries| {
            listener.advance(entries);
            is_stopped = !emit_pending()?;
            Ok(!is_stopped)
        };
        let views = inputs.iter().map(|input| &**input);
        let record = rewrite(directory, domain, views, range, options, on_progress, |_| true)?;
        listener.end();
        if is_stopped {
            return Ok(false);
        }
        let added = record.map(|record| LiveSegment::open_new(directory, record)).transpose()?;
        let edit =
            VersionEdit { removed: inputs, added: added.into_iter().map(Arc::new).collect(), log: None };
        writer.lock().publish(edit, |_, _| {})?;
        Ok(true)
    }
}
