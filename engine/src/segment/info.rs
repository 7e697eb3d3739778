//! What is known of a segment without reading its pages.

use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, StepRange};
use icecore_segments::{Encoding, SegmentSummary};

use crate::options::Config;
use crate::segment::live::LiveSegment;

/// A live segment: its range, counts, sizes and files. [`Reader::segments`](crate::Reader::segments) lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The name of its domain; `_roots` and `_nodes` are the archive's own.
    pub domain: String,
    /// The steps it covers.
    pub steps: StepRange,
    /// Whether its files are here; a partial copy names segments that it does not hold. Of one that is not, the counts are zero, `blocks` is all that
    /// the steps cover, and the bytes and names are those that its files have where they are.
    pub is_held: bool,
    /// The lowest and the highest block that wrote one of its versions.
    pub blocks: (BlockNumber, BlockNumber),
    /// The number of versions.
    pub entries: u64,
    /// The number of distinct keys.
    pub keys: u64,
    /// The number of versions that are deletions.
    pub deletions: u64,
    /// The number of data pages, 4096 bytes each.
    pub pages: u64,
    /// Bytes of the `.kv`.
    pub kv_bytes: u64,
    /// Bytes of the `.bt`.
    pub bt_bytes: u64,
    /// Bytes of the `.kvei`.
    pub kvei_bytes: u64,
    /// Bytes of the `.kvbi`; 0 where there is none.
    pub kvbi_bytes: u64,
    /// How its pages are encoded.
    pub encoding: Encoding,
    /// Entries per pivot.
    pub m: u32,
    /// Bits of a fingerprint in the filter.
    pub filter_bits: u8,
    /// The names of the `.kv`, the `.bt` and the `.kvei`.
    pub files: [String; 3],
    /// The name of the `.kvbi`, which segments of declared domains have, unless they are from before there were any: then
    /// [`Archive::reindex`](crate::Archive::reindex) builds it.
    pub block_index: Option<String>,
    /// Why a file of this segment is unusable, if one is. Where that is the `.kv`, the counts are zero and `blocks` is all that
    /// the steps cover.
    pub problem: Option<String>,
}

impl SegmentInfo {
    pub(crate) fn new(config: &Config, segment: &LiveSegment, is_stale: bool) -> Self {
        let record = &segment.record;
        let summary = segment.summary();
        let damage = segment.problems().filter(|problem| !(is_stale && problem.is_missing));
        let problems: Vec<String> = damage.map(|problem| problem.line).collect();
        let count = |of: fn(&SegmentSummary) -> u64| summary.as_ref().map_or(0, |summary| of(summary));
        Self {
            domain: config.name(record.domain).to_owned(),
            steps: record.steps,
            is_held: record.is_held,
            blocks: summary.as_ref().map_or(segment.blocks, |summary| (summary.min_block, summary.max_block)),
            entries: count(|summary| summary.entries),
            keys: count(|summary| summary.keys),
            deletions: count(|summary| summary.deletions),
            pages: count(|summary| summary.pages),
            kv_bytes: record.kv.summary.len,
            bt_bytes: record.bt.summary.len,
            kvei_bytes: record.kvei.summary.len,
            kvbi_bytes: record.kvbi.map_or(0, |kvbi| kvbi.summary.len),
            encoding: summary.map_or(Encoding::Plain, |summary| summary.encoding),
            m: record.m.get(),
            filter_bits: record.filter_bits.get(),
            files: Kind::LOOKUP.map(|kind| record.file_name(config, kind)),
            block_index: record.kvbi.map(|_| record.file_name(config, Kind::BlockIndex)),
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }
}

impl LiveSegment {
    /// Bytes of index and filter parts held in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let index = self.bt.opened().map_or(0, |index| index.summary().top_bytes);
        index + self.kvei.opened().map_or(0, |filter| filter.summary().top_bytes)
    }
}
