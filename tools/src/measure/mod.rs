//! Measuring: lookups in a segment, what the machine takes without any of our code, and what a piece of work costs.
//!
//! | module | what it answers |
//! |---|---|
//! | [`lookup`] | what does a lookup in one segment touch and take, stage by stage, cold and warm |
//! | [`build`] | how long does it take to build a segment and its accessors, and how large are they |
//! | `bucket` (with the feature `remote`) | what does this store take for a ranged GET, or for many |
//! | [`baseline`] | what does this disk, or this memory, take for one random read |
//! | [`evict`] | is this file really out of memory |
//! | [`histogram`] | how are the measured values distributed |
//! | [`faults`] | how many page faults did that cost |
//! | [`peak`] | how much memory did that hold at its peak |
//! | [`cpu`] | how long did that have a processor |
//! | [`system`] | what else does the system count for this process |

pub mod baseline;
#[cfg(feature = "remote")]
pub mod bucket;
pub mod build;
pub mod cpu;
pub mod evict;
pub mod faults;
pub mod histogram;
pub mod lookup;
pub mod peak;
pub mod system;
