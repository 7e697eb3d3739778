//! What can be told about a segment without reading its pages.

use icecore_segments::Encoding;
use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, StepRange};

use crate::live::{Directory, LiveSegment};
use crate::manifest::SegmentRecord;
use crate::options::Config;

/// A live segment, as `ls` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The domain; `_roots` and `_nodes` are the archive's own.
    pub domain: String,
    /// The steps it covers.
    pub steps: StepRange,
    /// The lowest and the highest block that it has a version of.
    pub blocks: (BlockNumber, BlockNumber),
    /// Versions.
    pub entries: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Versions that are deletions.
    pub deletions: u64,
    /// Data pages.
    pub pages: u64,
    /// Bytes of the `.kv`.
    pub kv_bytes: u64,
    /// Bytes of the `.bt`.
    pub bt_bytes: u64,
    /// Bytes of the `.kvei`.
    pub kvei_bytes: u64,
    /// How its pages are encoded.
    pub encoding: Encoding,
    /// Entries per pivot.
    pub m: u32,
    /// Bits of a fingerprint in the filter.
    pub filter_bits: u8,
    /// The names of the three files.
    pub files: [String; 3],
}

impl SegmentInfo {
    pub(crate) fn new(config: &Config, segment: &LiveSegment) -> Self {
        let summary = segment.kv.view().summary();
        let record = &segment.record;
        Self {
            domain: summary.domain.clone(),
            steps: record.steps,
            blocks: (summary.min_block, summary.max_block),
            entries: summary.entries,
            keys: summary.keys,
            deletions: summary.deletions,
            pages: summary.pages,
            kv_bytes: record.kv.summary.len,
            bt_bytes: record.bt.summary.len,
            kvei_bytes: record.kvei.summary.len,
            encoding: summary.encoding,
            m: record.m.get(),
            filter_bits: record.filter_bits.get(),
            files: Kind::ALL.map(|kind| record.file_name(config, kind)),
        }
    }
}

impl LiveSegment {
    /// Bytes of index and filter parts held in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bt.view().summary().top_bytes + self.kvei.view().summary().top_bytes
    }
}

impl Directory {
    /// The name of a segment without extension: `storage.0-64`.
    pub(crate) fn segment_name(&self, record: &SegmentRecord) -> String {
        format!("{}.{}", self.config.domains[record.domain.index()].name, record.steps)
    }
}
