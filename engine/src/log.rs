//! The live files of the write-ahead log: which there are, which are still needed, where the next record goes.
//!
//! One file per step, so that a file can go as soon as its step was emitted; files go from the front only, because a
//! later file may unwind what an earlier one says.

use std::collections::VecDeque;

use icecore_segments::step::Step;

use crate::error::Error;
use crate::layout;
use crate::live::Directory;
use crate::wal::{Position, RecordRef, WalWriter};

/// See the module.
pub(crate) struct Log {
    directory: Directory,
    writer: WalWriter,
    /// From the first that may be needed to the one being written.
    files: VecDeque<LogFile>,
    unsynced: u32,
}

/// A file of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFile {
    pub(crate) sequence: u64,
    /// The highest step that it has a block of; `None` without a block.
    pub(crate) last_step: Option<Step>,
}

impl Log {
    /// Goes on with the last of `files`, where replaying found its end.
    pub(crate) fn resume(
        directory: &Directory,
        files: VecDeque<LogFile>,
        end: Position,
    ) -> Result<Self, Error> {
        let sequence = files.back().expect("an archive has a log file").sequence;
        let path = layout::wal_file(&directory.path, sequence);
        let writer = WalWriter::resume(&*directory.storage, &path, sequence, end)?;
        Ok(Self { directory: directory.clone(), writer, files, unsynced: 0 })
    }

    /// The sequence number of the file being written.
    pub(crate) fn last(&self) -> u64 {
        self.files.back().expect("an archive has a log file").sequence
    }

    /// Whether a block of `step` should not join the blocks in the present file.
    pub(crate) fn needs_new_file(&self, step: Step) -> bool {
        let present = self.files.back().expect("an archive has a log file");
        present.last_step.is_some_and(|last| last != step)
    }

    /// Begins the next file and seals the present one, durably. The next comes first: a full disk is noticed while the
    /// present one can still go on.
    pub(crate) fn start_file(&mut self) -> Result<(), Error> {
        let sequence = self.last() + 1;
        let next = create_file(&self.directory, sequence)?;
        std::mem::replace(&mut self.writer, next).seal()?;
        self.unsynced = 0;
        self.files.push_back(LogFile { sequence, last_step: None });
        Ok(())
    }

    /// Appends a record and hands it to the system. `step` is that of a block.
    pub(crate) fn append(&mut self, record: &RecordRef<'_>, step: Option<Step>) -> Result<(), Error> {
        self.writer.append(record)?;
        self.unsynced += 1;
        let present = self.files.back_mut().expect("an archive has a log file");
        present.last_step = present.last_step.max(step);
        Ok(())
    }

    /// Records appended since the last sync.
    pub(crate) fn unsynced(&self) -> u32 {
        self.unsynced
    }

    /// Makes every record durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        if self.unsynced > 0 {
            self.writer.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Makes every record durable, and that the file says so: after a power loss, too, a reader knows of all of them.
    ///
    /// After [`Log::sync`] alone it may not know of the last one, until a writer has opened the archive.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.writer.settle()
    }

    /// The first file that has a block at or after `emitted_to`, or the one being written.
    pub(crate) fn first_needed(&self, emitted_to: Step) -> u64 {
        let needed = |file: &&LogFile| file.last_step.is_some_and(|last| last >= emitted_to);
        self.files.iter().find(needed).map_or(self.last(), |file| file.sequence)
    }

    /// Removes the files before `first`, which no manifest names any more.
    pub(crate) fn trim(&mut self, first: u64) -> Result<(), Error> {
        while let Some(file) = self.files.front().filter(|file| file.sequence < first) {
            self.directory.storage.remove(&layout::wal_file(&self.directory.path, file.sequence))?;
            self.files.pop_front();
        }
        Ok(())
    }
}

/// Creates an empty file of the log; its name is durable when this returns.
pub(crate) fn create_file(directory: &Directory, sequence: u64) -> Result<WalWriter, Error> {
    WalWriter::create(&*directory.storage, &layout::wal_file(&directory.path, sequence), sequence)
}
