//! The existence filter, `.kvei`: says *no* or *maybe* for a key, never a false *no*.
//!
//! ```text
//! hashes of all keys, sorted:  |---- shard 0 ----|---- shard 1 ----|- ... -|-- last --|
//!                                      |                 |
//! file:  header | page: fuse filter | page: fuse filter | ... | boundary table | footer
//! ```
//!
//! One page holds one binary fuse filter over consecutive hashes, with its seed and its sizes. The boundary table, four bytes a
//! shard, is loaded when the file is opened; from the hash of a key it gives the shard, so a probe touches one page of the
//! file. A *maybe* is wrong for one absent key in 256 (8 bits) or 65,536 (16 bits).
//!
//! Invariants: `FORMAT.md`, F1 to F5.
//!
//! Source: T. M. Graf, D. Lemire, *Binary Fuse Filters: Fast and Smaller Than Xor Filters*, 2022; the filters
//! are built by the crate `xorf`, and asked in place over the bytes of the page by the same arithmetic.

mod builder;
mod probe;
mod reader;
mod shard;
mod spool;

pub use builder::{FilterBuilder, MEMORY_KEYS as FILTER_MEMORY_KEYS};
pub use probe::{FilterProbe, UsualShard};
pub use reader::ExistenceFilter;
pub use spool::{MemorySpool, Spool};

use icecore_segments::frame::FileSummary;

/// The length of a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterBits {
    /// One false *maybe* in 256, 1.40 bytes a key.
    Eight,
    /// One false *maybe* in 65,536, 3.1 bytes a key.
    Sixteen,
}

impl FilterBits {
    /// The number of bits.
    pub const fn get(self) -> u8 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
        }
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        [Self::Eight, Self::Sixteen].into_iter().find(|known| known.get() == bits)
    }

    pub(crate) const fn width(self) -> usize {
        self.get() as usize / 8
    }
}

/// Whether a builder may use other threads. The bytes do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BuildParallelism {
    /// Everything on the caller's thread.
    Off,
    /// Shards are built on the current `rayon` pool.
    Rayon,
}

/// What a finished filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterSummary {
    /// Length and content checksum of the file.
    pub file: FileSummary,
    /// The length of a fingerprint.
    pub bits: FilterBits,
    /// How many different hashes it holds.
    pub keys: u64,
    /// How many pages of fingerprints it has.
    pub shards: u64,
    /// The bytes of memory that the reader keeps.
    pub top_bytes: u64,
}

/// The header's parameters: the length of a fingerprint in bits, one byte.
const BITS_AT: usize = 0;

/// The footer's payload: four numbers of eight bytes.
const PAYLOAD_LEN: usize = 32;
