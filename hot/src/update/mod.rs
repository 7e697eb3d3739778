//! How a batch changes a tree: the workers that place its leaves, and the hashing of buckets and of the nodes above them, level
//! by level, many at once.

pub(crate) mod bucket_hasher;
pub(crate) mod dirty_nodes;
pub(crate) mod pool;
pub(crate) mod worker;
