//! The Merkle tree of the state: kept up to date for the writer, built from segments, and proved from.
//!
//! The tree itself is that of `icecore-hot`; this folder feeds it with what the archive holds.

pub(crate) mod build;
pub(crate) mod leaves;
pub(crate) mod live_tree;
pub(crate) mod parallel;
pub(crate) mod prove;
pub(crate) mod rows;
pub(crate) mod span;
pub(crate) mod state_paths;
