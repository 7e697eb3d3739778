//! The pivot index, `.bt`: says where in a `.kv` the answer for (key, block) can be.
//!
//! ```text
//!                  +------------- top, in memory -------------+     one separator for each leaf
//!                  |            |             |               |
//! file:  header | leaf 0     | leaf 1      | leaf 2 ...       | top | footer
//!                 |  |  |  |
//! .kv pages:      0  0  1  2  ...                                   one pivot for about M entries
//! ```
//!
//! A pivot is a place in the segment (a data page, and a restart inside it) with the boundary just before it, cut to the
//! shortest key that still separates. A lookup finds the last pivot whose boundary is not after the position it looks for and
//! returns the pages from there to the next pivot. Where every page has a pivot at its beginning, that is one page (P3).
//!
//! Invariants: `FORMAT.md`, P1 to P6.

mod builder;
mod choice;
mod decode;
mod fence;
mod layout;
mod node;
mod old;
mod packer;
mod page;
mod reader;
mod scan;
mod search;
mod top;

pub use builder::PivotBuilder;
pub use reader::{LeafNumber, PivotIndex};

use icecore_segments::frame::FileSummary;

use crate::density::Density;

/// What a finished pivot index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PivotSummary {
    /// Length and content checksum of the file.
    pub file: FileSummary,
    /// The density asked for.
    pub m: Density,
    /// How many pivots it holds.
    pub pivots: u64,
    /// How many leaf pages hold them.
    pub leaves: u64,
    /// How many entries the segment has.
    pub entries: u64,
    /// How many data pages the segment has.
    pub pages: u64,
    /// The bytes of memory that the reader keeps.
    pub top_bytes: u64,
}

/// The header's parameters: M, four bytes.
const M_AT: usize = 0;

/// The footer's payload: seven numbers of eight bytes.
const PAYLOAD_LEN: usize = 56;
