//! What has been committed and is in no segment yet, in memory: one table per step, with the nodes of its snapshots beside it.
//!
//! The writer has tables; a reader of another process has the blocks of the log, and tables when it needs them. Emission writes
//! them out.

mod byte_arena;
pub(crate) mod key_order;
pub(crate) mod key_table;
pub(crate) mod log_tail;
#[cfg(test)]
mod model_tests;
pub(crate) mod node_key;
pub(crate) mod node_table;
pub(crate) mod step_memtable;

use icecore_segments::step::BlockNumber;

/// What a version says: its block, and its value or that the key was deleted.
pub(crate) type Found = (BlockNumber, Option<Vec<u8>>);

/// A direction of iteration over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Direction {
    /// Keys ascending.
    #[default]
    Forward,
    /// Keys descending.
    Backward,
}
