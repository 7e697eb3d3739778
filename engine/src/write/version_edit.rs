//! The delta of a publication: which segments come, which go, where the log goes on.

use std::sync::Arc;

use crate::segment::live::LiveSegment;
use crate::wal::log::NextFile;

/// A change of the set of live segments. What it would add and was not published is removed again.
#[derive(Default)]
pub(crate) struct VersionEdit {
    pub(crate) removed: Vec<Arc<LiveSegment>>,
    pub(crate) added: Vec<Arc<LiveSegment>>,
    /// The file that the log goes on in.
    pub(crate) log: Option<NextFile>,
}

impl Drop for VersionEdit {
    fn drop(&mut self) {
        self.added.iter().for_each(|segment| segment.retire_unless_shared());
    }
}
