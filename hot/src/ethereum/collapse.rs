//! Keeping a trie within its memory: groups of leaves give way to their references.
//!
//! Which groups go is the business of a [sweep](crate::ethereum::sweep); they come back when a block
//! [expands](crate::ethereum::expand) them.

use crate::ethereum::sweep::Place;
use crate::ethereum::trie::StateTrie;

impl StateTrie {
    /// Bytes of the rows of nodes that hold something.
    pub fn node_bytes(&self) -> u64 {
        self.arena().node_bytes()
    }

    /// Whether some leaves are collapsed: they have to be [expanded](Self::expand) before they are read, proved or changed.
    pub fn has_collapsed(&self) -> bool {
        self.arena().groups() > 0
    }

    /// Collapses groups of leaves until the nodes take at most `bytes_max`, or all leaves are in groups.
    ///
    /// # Cost
    /// Proportional to the nodes that go, and to the branches that the sweep passes.
    pub fn collapse(&mut self, bytes_max: u64) {
        self.sweep(bytes_max, None);
    }

    /// The same of the leaves before a place alone: the others are still being loaded.
    pub(crate) fn collapse_before(&mut self, bytes_max: u64, limit: Place) {
        self.sweep(bytes_max, Some(limit));
    }
}
