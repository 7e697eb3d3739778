//! What a partial copy does without: the files of such a segment are met as an error, whoever needs them.

use std::path::PathBuf;

use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::manifest::SegmentRecord;
use crate::storage::directory::Directory;

/// A segment that is not held, in the words of the error.
pub(crate) struct Absence {
    path: PathBuf,
    domain: String,
    blocks: (BlockNumber, BlockNumber),
}

impl Absence {
    pub(crate) fn of(directory: &Directory, record: &SegmentRecord) -> Self {
        let (path, domain) = (directory.path.clone(), directory.config.name(record.domain).to_owned());
        Self { path, domain, blocks: directory.config.step_len.blocks(record.steps) }
    }

    /// What a read of the segment gets.
    pub(crate) fn error(&self) -> Error {
        Error::NotHeld { path: self.path.clone(), domain: self.domain.clone(), blocks: self.blocks }
    }
}
