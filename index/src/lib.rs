//! The accessors of a segment: *filter says maybe, index says where, segment says what.*
//!
//! ```text
//!              .kvei                         .bt                             .kv
//! key -hash-> ExistenceFilter -maybe-> PivotIndex::locate(key, block) -> pages of the segment
//!              one page                 top in memory, one leaf page      one page
//! ```
//!
//! For who asks by block instead of key there is the [`BlockIndex`], `.kvbi`: from a block to the pages that have its entries.
//!
//! An accessor is derived from a `.kv`, names it by its content checksum and can always be rebuilt. All kinds are built
//! in one pass while the segment is written ([`PivotBuilder`] takes what a segment builder offers, [`FilterBuilder`] takes hashes of
//! keys in any order, [`BlockIndexBuilder`] the block and the page of each entry) and read over bytes wherever they are (`D: FileBytes`): this crate opens no file and
//! knows nothing of pages of keys and values. [`density`] chooses how much an accessor may cost. The bytes are described in
//! [`mod@format`].
//!
//! ```
//! use icecore_index::{Density, ExistenceFilter, FilterBits, FilterBuilder, FilterHash, MemorySpool};
//! use icecore_index::{BuildParallelism, PivotBuilder, PivotIndex};
//! use icecore_segments::checksum::Checksum;
//! use icecore_segments::span::{PageSpan, Pivot, PivotSink, Separator};
//! use icecore_segments::step::{Step, StepRange};
//!
//! # fn main() -> Result<(), icecore_index::Error> {
//! let (steps, parent) = (StepRange::single(Step(0)), Checksum([7; 32])); // of a .kv of two pages
//! let mut pivots = PivotBuilder::new(Vec::new(), "accounts", steps, Density::DENSE)?;
//! for (page, key) in [(0, &b"alice"[..]), (1, b"m")] {
//!     let separator = Separator { key, before: None };
//!     pivots.pivot(&Pivot { separator, page, restart: 0, ordinal: 100 * page })?;
//! }
//! let index = PivotIndex::open(pivots.finish(parent, 2, 200)?.1, parent)?;
//! assert_eq!(index.locate(b"nora", 9)?, PageSpan::page(1));
//!
//! let mut hashes = FilterBuilder::new(FilterBits::Eight, 200, MemorySpool::default(), BuildParallelism::Off);
//! hashes.push(FilterHash::of(b"alice"))?;
//! let filter = ExistenceFilter::open(hashes.finish(Vec::new(), "accounts", steps, parent)?.1, parent)?;
//! assert!(filter.may_contain(FilterHash::of(b"alice"))?); // maybe: ask the index
//! assert!(!filter.may_contain(FilterHash::of(b"zoe"))?); // certain: a miss is not an error
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod blocks;
pub mod density;
pub mod filter;
mod prefetch;
#[doc = include_str!("../FORMAT.md")]
pub mod format {
    /// The document, for the tests that compare it with the code.
    #[cfg(test)]
    pub(crate) const DOC: icecore_segments::format_doc::FormatDoc =
        icecore_segments::format_doc::FormatDoc::new(include_str!("../FORMAT.md"));
}
mod hash;
pub mod pivot;

pub use blocks::{
    BlockCursor, BlockIndex, BlockIndexBuilder, BlockIndexSummary, BlockPage, block_index_spool_max,
};
pub use density::{Choice, Density, DensityPolicy, EncodingHint, SegmentFacts};
pub use filter::{
    BuildParallelism, ExistenceFilter, FILTER_MEMORY_KEYS, FilterBits, FilterBuilder, FilterProbe,
    FilterSummary, MemorySpool, Spool, UsualShard,
};
pub use hash::FilterHash;
pub use icecore_segments::Error;
pub use pivot::{LeafNumber, PivotBuilder, PivotIndex, PivotSummary};
pub use prefetch::PrefetchHint;

use icecore_segments::checksum::Checksum;

/// Refuses an accessor of another segment.
fn check_parent(found: Checksum, expected: Checksum) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(Error::Mismatch { what: "segment checksum", expected, found })
}

/// Compares offsets with those of a table of `FORMAT.md`, which begins with the page checksum.
#[cfg(test)]
fn check_table(title: &str, fields: &[(usize, &str)]) {
    let text = include_str!("../FORMAT.md");
    let table = text.split(title).nth(1).expect("the document has the table");
    let rows = table.lines().skip(2).skip_while(|line| !line.starts_with("| 0 |")).skip(1);
    let rows: Vec<(usize, &str)> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .map(|cells| (cells[1].parse().expect("an offset"), cells[4]))
        .collect();
    assert_eq!(rows, fields);
}
