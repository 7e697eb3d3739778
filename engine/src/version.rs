//! The immutable set of tables and segments that a reader pins: what the archive is at one moment.
//!
//! Every commit and every published change of files makes a new version; the old one lives as long as somebody
//! reads from it. Tables cover the steps that were not emitted, segments those that were; no step is in both.

use std::sync::Arc;

use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::{Available, Error};
use crate::live::LiveSegment;
use crate::table::StepTable;

/// The live segments of every domain, by step ascending.
pub(crate) type SegmentSet = Vec<Vec<Arc<LiveSegment>>>;

/// See the module.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) segments: Arc<SegmentSet>,
    /// By step ascending.
    pub(crate) tables: Vec<Arc<StepTable>>,
    /// The lowest height that is answered.
    pub(crate) first: Option<BlockNumber>,
    /// The newest block.
    pub(crate) head: Option<BlockNumber>,
    /// The newest block that is in segments.
    pub(crate) emitted_head: Option<BlockNumber>,
}

impl Version {
    /// The heights that can be read, both inside; `None` before the first block.
    pub(crate) fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        let head = self.head?;
        // Pruning may have named a height above a block whose state it kept, and unwinding may have gone back to that block.
        Some((self.first?.min(head), head))
    }

    /// Checks that a height can be read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the heights that can.
    pub(crate) fn check(&self, asked: BlockNumber) -> Result<(), Error> {
        match self.range() {
            Some((first, head)) if first <= asked && asked <= head => Ok(()),
            Some((first, head)) => {
                Err(Error::OutOfRange { asked, available: Available::Blocks(first, head) })
            }
            None => Err(Error::OutOfRange { asked, available: Available::Nothing }),
        }
    }

    /// Forgets the blocks above `to` that are in tables, and unless told otherwise what they have of nodes. Tables are copied,
    /// never changed: readers may hold them.
    pub(crate) fn unwind_tables(&mut self, to: BlockNumber, with_nodes: bool) {
        let unwound = self.tables.iter().map(|table| Arc::new(table.unwound(to, with_nodes)));
        self.tables = unwound.filter(|table| table.last_height().is_some()).collect();
        self.head = self.tables.last().and_then(|table| table.last_height()).or(self.emitted_head);
    }

    /// The segments of a domain.
    pub(crate) fn domain(&self, domain: DomainId) -> &[Arc<LiveSegment>] {
        &self.segments[domain.index()]
    }

    /// All segments, by domain and step.
    pub(crate) fn all_segments(&self) -> impl Iterator<Item = &Arc<LiveSegment>> {
        self.segments.iter().flatten()
    }
}

/// Sorts segments into the lists of a version.
pub(crate) fn by_domain(domains: usize, segments: impl IntoIterator<Item = Arc<LiveSegment>>) -> SegmentSet {
    let mut set: SegmentSet = vec![Vec::new(); domains];
    for segment in segments {
        set[segment.record.domain.index()].push(segment);
    }
    for list in &mut set {
        list.sort_by_key(|segment| segment.record.steps);
    }
    set
}
