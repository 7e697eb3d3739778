//! What a manifest alone shows of an archive: whether its parts agree, and whether it holds all of its segments.

use std::path::Path;

use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, Step};

use super::Manifest;
use crate::domain::DomainId;
use crate::error::Error;

/// The highest number of a manifest and of a log file. Nobody counts as far; a number near the end of `u64` was made to end there.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// No manifest names files of more bytes together: eight times as many still fit 64 bits, and no disk is as large.
const BYTES_MAX: u64 = 1 << 60;

impl Manifest {
    /// Whether every segment is held.
    pub(crate) fn is_whole(&self) -> bool {
        self.segments.iter().all(|segment| segment.is_held)
    }

    /// The names of the segments that are not held.
    pub(crate) fn not_held(&self) -> Vec<String> {
        let elsewhere = self.segments.iter().filter(|segment| !segment.is_held);
        elsewhere.map(|segment| segment.stem(&self.config)).collect()
    }

    /// Refuses a partial copy of the archive at `path`.
    ///
    /// # Errors
    /// [`Error::Partial`].
    pub(crate) fn check_whole(&self, path: &Path) -> Result<(), Error> {
        if self.is_whole() { Ok(()) } else { Err(Error::Partial { path: path.to_owned() }) }
    }

    /// Whether its parts agree, as far as the manifest alone shows it, and what is counted up or added up from here has room:
    /// the next manifest, the next log file, all bytes several times over.
    pub(super) fn is_sound(&self) -> bool {
        let mut files = self
            .segments
            .iter()
            .flat_map(|segment| Kind::ALL.into_iter().filter_map(|kind| segment.get(kind)));
        let bytes = files.try_fold(0u64, |sum, file| sum.checked_add(file.summary.len));
        let roots = self.segments.iter().take_while(|segment| segment.domain == DomainId::ROOTS);
        let roots_are_held = roots.into_iter().all(|segment| segment.is_held);
        self.is_countable()
            && bytes.is_some_and(|bytes| bytes <= BYTES_MAX)
            && roots_are_held
            && self.names_what_was_emitted()
            && self.has_roots_of_changes()
    }

    /// Whether the steps of each segment have roots: a block that changed something has one, so without them a segment of roots was left
    /// out, and a block before it would be answered in its place. Pruning takes roots before it takes versions.
    fn has_roots_of_changes(&self) -> bool {
        let of_roots = self.segments.partition_point(|segment| segment.domain == DomainId::ROOTS);
        let (roots, others) = self.segments.split_at(of_roots);
        let floor = match self.pruned_before {
            0 => None,
            floor => Some(self.config.step_len.step_of(floor)),
        };
        let mut kept = others.iter().filter(|segment| floor < Some(segment.steps.from()));
        kept.all(|segment| {
            let at = roots.partition_point(|roots| roots.steps.to() <= segment.steps.from());
            roots.get(at).is_some_and(|roots| roots.steps.overlaps(segment.steps))
        })
    }

    /// Whether there are numbers for the manifests and the log files that come after this one.
    pub(crate) fn is_countable(&self) -> bool {
        self.generation <= NUMBER_MAX && self.wal_first <= self.wal_last && self.wal_last <= NUMBER_MAX
    }

    /// E4, E5 and E6, as far as the manifest alone shows them.
    pub(super) fn names_what_was_emitted(&self) -> bool {
        let ordered = self.segments.windows(2).all(|pair| {
            (pair[0].domain, pair[0].steps.to()) <= (pair[1].domain, pair[1].steps.from())
                || pair[0].domain < pair[1].domain
        });
        let are_emitted = self.segments.iter().all(|segment| segment.steps.to() <= self.emitted_to);
        ordered && are_emitted && self.accounts_for_emitted()
    }

    /// E6: what was emitted is in segments. A block that is in neither segments nor log would be gone without a word.
    fn accounts_for_emitted(&self) -> bool {
        let step_of = |height| self.config.step_len.step_of(height);
        let has_blocks =
            self.emitted_to == Step(0) || Step(self.emitted_to.0 - 1) <= step_of(BlockNumber::MAX);
        let roots = self.segments.iter().take_while(|segment| segment.domain == DomainId::ROOTS).last();
        has_blocks
            && match (self.emitted_head, roots) {
                (None, roots) => roots.is_none(),
                (Some(head), Some(roots)) => {
                    self.first_block.is_some() && roots.steps.contains(step_of(head))
                }
                // Pruning to a height above takes the roots of all that was emitted.
                (Some(head), None) => head < self.pruned_before && step_of(head) < self.emitted_to,
            }
    }
}
