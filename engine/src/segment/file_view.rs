//! The readers of the kinds of files, as a live segment opens them: each bound to what the manifest says of its file.

use icecore_index::{BlockIndex, ExistenceFilter, PivotIndex};
use icecore_segments::Segment;
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::{FileSummary, Frame, Kind};
use icecore_segments::step::StepRange;

use crate::storage::Mapping;

/// What the manifest says of a file.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(super) domain: String,
    pub(super) steps: StepRange,
    /// The content of the `.kv` that the file belongs to, or is.
    pub(super) segment: Checksum,
    pub(super) summary: FileSummary,
}

impl Identity {
    /// The segment that an accessor with these bytes must belong to.
    fn parent(&self, bytes: &[u8], kind: Kind) -> Result<Checksum, icecore_segments::Error> {
        if left_out!(AccessorBinding) {
            return Ok(Frame::parse(bytes, kind)?.parent);
        }
        Ok(self.segment)
    }
}

/// A reader over the bytes of a kind of file.
pub(crate) trait FileView: Sized {
    const KIND: Kind;

    /// Parses what opening reads. `expected` binds an accessor to its `.kv`.
    fn parse(data: Mapping, expected: &Identity) -> Result<Self, icecore_segments::Error>;

    /// Domain, steps and content as the file states them; an accessor does not repeat the first two.
    fn stated(&self) -> (Option<(&str, StepRange)>, FileSummary);
}

impl FileView for Segment<Mapping> {
    const KIND: Kind = Kind::Segment;

    fn parse(data: Mapping, _: &Identity) -> Result<Self, icecore_segments::Error> {
        Segment::open(data)
    }

    fn stated(&self) -> (Option<(&str, StepRange)>, FileSummary) {
        let summary = self.summary();
        (Some((&summary.domain, summary.steps)), summary.file)
    }
}

impl FileView for PivotIndex<Mapping> {
    const KIND: Kind = Kind::PivotIndex;

    fn parse(data: Mapping, expected: &Identity) -> Result<Self, icecore_segments::Error> {
        let parent = expected.parent(data.as_ref(), Self::KIND)?;
        PivotIndex::open(data, parent)
    }

    fn stated(&self) -> (Option<(&str, StepRange)>, FileSummary) {
        (None, self.summary().file)
    }
}

impl FileView for ExistenceFilter<Mapping> {
    const KIND: Kind = Kind::ExistenceFilter;

    fn parse(data: Mapping, expected: &Identity) -> Result<Self, icecore_segments::Error> {
        let parent = expected.parent(data.as_ref(), Self::KIND)?;
        ExistenceFilter::open(data, parent)
    }

    fn stated(&self) -> (Option<(&str, StepRange)>, FileSummary) {
        (None, self.summary().file)
    }
}

impl FileView for BlockIndex<Mapping> {
    const KIND: Kind = Kind::BlockIndex;

    fn parse(data: Mapping, expected: &Identity) -> Result<Self, icecore_segments::Error> {
        let parent = expected.parent(data.as_ref(), Self::KIND)?;
        BlockIndex::open(data, parent)
    }

    fn stated(&self) -> (Option<(&str, StepRange)>, FileSummary) {
        (None, self.summary().file)
    }
}
