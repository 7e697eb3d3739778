//! What a batch replaced, so that it can be taken back.

use crate::arena::Line;

/// What one batch replaced: the former leaf of every key that it changed.
///
/// Undoing the batches in reverse order gives back their roots byte for byte. An undo fits only the state that
/// its own batch left; see [`HotTree::undo`](crate::HotTree::undo).
///
/// # Cost
/// 64 bytes per changed key; keys that were written with the value they had are not kept.
#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// Ascending by key hash: key hash, former leaf hash (empty: the key was new).
    pub(crate) replaced: Vec<Line>,
}

impl Undo {
    /// The number of keys that the batch changed.
    pub fn len(&self) -> usize {
        self.replaced.len()
    }

    /// Whether the batch changed nothing.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }
}
