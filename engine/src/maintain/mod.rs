//! Work on files that are there already: emission, merge, reindex, prune, unwind, verify, checkpoint, and the thread that does
//! them by itself.
//!
//! All of it builds new files beside the old, publishes them by one manifest, and lets emission go on in between.

pub(crate) mod background;
pub(crate) mod backpressure;
pub(crate) mod checkpoint;
pub(crate) mod digests;
pub(crate) mod emission;
pub(crate) mod file_work;
pub(crate) mod merge;
pub(crate) mod new_segment;
#[cfg(test)]
mod node_tests;
pub(crate) mod plan;
pub(crate) mod prune;
pub(crate) mod reindex;
pub(crate) mod rows;
pub(crate) mod unwind;
pub(crate) mod verify;
