//! Icecore index: the accessors of a segment.
#![forbid(unsafe_code)]

pub mod density;
pub mod filter;
mod hash;
pub mod pivot;

pub use density::{Choice, Density, DensityRule, EncodingHint, SegmentFacts};
pub use filter::{
    ExistenceFilter, FilterBits, FilterBuilder, FilterSummary, MemorySpool, Parallelism, Spool,
};
pub use hash::KeyHash;
pub use icecore_segments::Error;
pub use pivot::{PivotBuilder, PivotIndex, PivotSummary};

use icecore_segments::checksum::Checksum;

/// Refuses an accessor of another segment.
fn check_parent(found: Checksum, expected: Checksum) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(Error::Mismatch { what: "segment checksum", expected, found })
}
