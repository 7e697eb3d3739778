//! One live segment: its files as readers hold them, how they are written and rewritten, and how their options are chosen.
//!
//! The formats are those of `icecore-segments` and `icecore-index`; this folder binds their bytes to files of the directory.
//! The manifest says which segments there are; reading and maintenance use them.

pub(crate) mod absence;
pub(crate) mod block_tap;
pub(crate) mod file_view;
pub(crate) mod info;
pub(crate) mod live;
pub(crate) mod merge_plan;
pub(crate) mod new_file;
pub(crate) mod policy;
pub(crate) mod retire;
pub(crate) mod rewrite;
pub(crate) mod writer;
