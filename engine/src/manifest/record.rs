//! What a manifest says of a live segment.

use std::path::PathBuf;

use icecore_index::{Density, FilterBits};
use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::step::StepRange;

use crate::domain::DomainId;
use crate::options::Config;
use crate::storage::directory::Directory;
use crate::storage::layout;

/// One file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    /// Tells files for the same range apart; part of the name.
    pub(crate) revision: u32,
    /// Length and content checksum: kept here too, so that a swapped or stale file is noticed.
    pub(crate) summary: FileSummary,
}

/// A live segment: the files of one domain over one step range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRecord {
    pub(crate) domain: DomainId,
    pub(crate) steps: StepRange,
    pub(crate) kv: FileRecord,
    pub(crate) bt: FileRecord,
    pub(crate) kvei: FileRecord,
    /// Segments of the archive's own domains have none, and neither have those from before there were any.
    pub(crate) kvbi: Option<FileRecord>,
    pub(crate) m: Density,
    pub(crate) filter_bits: FilterBits,
    /// Whether its files are here. A partial copy names every segment of its archive, and has the files of some.
    pub(crate) is_held: bool,
}

impl SegmentRecord {
    /// The record of its file of a kind, if it has one.
    pub(crate) fn get(&self, kind: Kind) -> Option<FileRecord> {
        match kind {
            Kind::Segment => Some(self.kv),
            Kind::PivotIndex => Some(self.bt),
            Kind::ExistenceFilter => Some(self.kvei),
            Kind::BlockIndex => self.kvbi,
        }
    }

    /// The kinds of its files that are here: none of a segment that is not held.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| self.is_held && self.get(*kind).is_some())
    }

    /// The record of a file that it has.
    pub(crate) fn file(&self, kind: Kind) -> FileRecord {
        self.get(kind).expect("one of the files that the segment has")
    }

    /// The bytes of all its files that are here.
    pub(crate) fn bytes(&self) -> u64 {
        self.kinds().map(|kind| self.file(kind).summary.len).sum()
    }

    /// The bytes of its pivot index and its filter, where they are here.
    pub(crate) fn accessors_len(&self) -> u64 {
        let len = self.bt.summary.len.saturating_add(self.kvei.summary.len);
        if self.is_held { len } else { 0 }
    }

    /// The name of one of its files.
    pub(crate) fn file_name(&self, config: &Config, kind: Kind) -> String {
        let domain = config.name(self.domain);
        layout::segment_file(domain, self.steps, self.file(kind).revision, kind)
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, directory: &Directory, kind: Kind) -> PathBuf {
        directory.path.join(self.file_name(&directory.config, kind))
    }

    /// The name of the segment without extension: `storage.0-64`.
    pub(crate) fn stem(&self, config: &Config) -> String {
        layout::segment_stem(config.name(self.domain), self.steps)
    }
}
