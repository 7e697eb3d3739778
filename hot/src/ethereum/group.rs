//! What is kept of a collapsed group of leaves.

use crate::ethereum::nibbles::{KeyPath, Nibbles};

/// A group of leaves that is collapsed: its reference is with the parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// The first nibbles of its position, and zeros.
    position: u64,
    /// The number of leaves, those of storages not counted.
    pub(crate) leaves: u32,
}

impl Group {
    /// No group is deeper than this.
    pub(crate) const DEPTH_MAX: usize = 16;

    pub(crate) fn new(position: &Nibbles, leaves: u32) -> Self {
        debug_assert!(position.len() <= Self::DEPTH_MAX, "deeper nodes do not collapse");
        let first = position.padded().first_chunk().expect("a path is longer");
        Self { position: u64::from_be_bytes(*first), leaves }
    }

    /// The first path that is below it, if there were one.
    pub(crate) fn path(self) -> KeyPath {
        let mut path = [0; 32];
        path[..8].copy_from_slice(&self.position.to_be_bytes());
        path
    }
}
