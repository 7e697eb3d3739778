//! The block index, `.kvbi`: which pages of a segment have entries of a block, and how many.
//!
//! ```text
//! entries of the .kv, in its order:   (page 0: blocks 7 9 7) (page 1: blocks 8 7) ...
//!
//! file:  header | leaf: block 7: pages 0 x2, 1; block 8: page 1; ... | leaf | ... | first blocks of the leaves | footer
//! ```
//!
//! A segment is ordered by key, so without it the changes of one block are found by a pass over all pages. The table of first blocks,
//! eight bytes a leaf, is loaded when the file is opened; from a block it gives the leaf, and from there the blocks follow each other.
//!
//! Invariants: `FORMAT.md`, B1 to B4.

mod builder;
mod reader;
mod runs;

pub use builder::BlockIndexBuilder;
pub use reader::{BlockCursor, BlockIndex};
pub use runs::spool_max as block_index_spool_max;

use icecore_segments::frame::FileSummary;
use icecore_segments::step::BlockNumber;

/// A page of a segment that has entries of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPage {
    /// The block.
    pub block: BlockNumber,
    /// The data page.
    pub page: u64,
    /// How many entries of the block the page has: at least one.
    pub entries: u64,
}

/// What a finished block index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIndexSummary {
    /// Length and content checksum of the file.
    pub file: FileSummary,
    /// The entries of the segment.
    pub entries: u64,
    /// How many different blocks wrote them.
    pub blocks: u64,
    /// The data pages of the segment.
    pub pages: u64,
    /// How many pages of the file list blocks.
    pub leaves: u64,
    /// The bytes of memory that the reader keeps.
    pub top_bytes: u64,
}

/// The footer's payload: six numbers of eight bytes.
const PAYLOAD_LEN: usize = 48;

// Offsets in a leaf, after its checksum.
const FIRST_BLOCK_AT: usize = 8;
const RECORDS_AT: usize = 16;
const END_AT: usize = 18;
const BODY_AT: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_offsets() {
        let fields = [
            (FIRST_BLOCK_AT, "block of the first record"),
            (RECORDS_AT, "records"),
            (END_AT, "end of the records"),
            (BODY_AT, "records, zeros to the end"),
        ];
        crate::check_table("### Leaf of a `.kvbi`\n", &fields);
        assert_eq!(
            crate::format::DOC.table("### Footer payload of a `.kvbi`", "offset").len() * 8,
            PAYLOAD_LEN
        );
    }
}
