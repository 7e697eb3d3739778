//! Where a tree stands in memory: maps cut into runs of cache lines, and in them the nodes of heaps and the leaves of subtrees.

pub(crate) mod arena;
pub(crate) mod heap;
pub(crate) mod stage;
pub(crate) mod subtree;
