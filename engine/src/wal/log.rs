//! The live files of the write-ahead log: which there are, which are still needed, where the next record goes.
//!
//! A file ends with a step, so that it can go as soon as its steps were emitted, and small steps share one, so that a new
//! file and its syncs are paid for once in a while. Files go from the front only, because a later file may unwind what an
//! earlier one says.

use std::collections::VecDeque;

use icecore_segments::checksum::Checksum;
use icecore_segments::step::{BlockNumber, Step};

use crate::error::Error;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::wal::{Position, RecordRef, WalWriter};

/// A file with fewer blocks takes the next step too, so that steps of a block or two do not pay for a file each ...
const FILE_BLOCKS_MIN: u64 = 4;

/// ... which with gaps in heights every block is, and then more of them wait for an emission ...
const SPARSE_FILE_BLOCKS_MIN: u64 = 64;

/// ... unless it is this long. Opening reads this much of emitted blocks at most, and a block.
const FILE_LEN_MIN: u64 = 1 << 20;

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
    /// The step of its newest block: a lower one after an unwind.
    newest_step: Option<Step>,
    /// How many blocks it has.
    pub(crate) blocks: u64,
}

impl LogFile {
    /// A file without a block.
    pub(crate) fn new(sequence: u64) -> Self {
        Self { sequence, last_step: None, newest_step: None, blocks: 0 }
    }

    /// Takes a block of a step.
    pub(crate) fn add_block(&mut self, step: Step) {
        self.newest_step = Some(step);
        self.last_step = self.last_step.max(self.newest_step);
        self.blocks += 1;
    }
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
        let writer = WalWriter::resume(&*directory.storage, &path, directory.config.log_file(sequence), end)?;
        Ok(Self { directory: directory.clone(), writer, files, unsynced: 0 })
    }

    /// The sequence number of the file being written.
    pub(crate) fn last(&self) -> u64 {
        self.files.back().expect("an archive has a log file").sequence
    }

    /// Whether a block of `step` is of another step than the one before it in the present file.
    pub(crate) fn begins_step(&self, step: Step) -> bool {
        let present = self.files.back().expect("an archive has a log file");
        present.newest_step.is_some_and(|newest| newest != step)
    }

    /// Whether the present file has enough for `step`, which a block begins, to have one of its own.
    pub(crate) fn is_full(&self, step: Step) -> bool {
        let present = self.files.back().expect("an archive has a log file");
        let is_sparse = present.newest_step.is_some_and(|newest| step.0.saturating_sub(newest.0) > 1);
        let blocks_min = if is_sparse { SPARSE_FILE_BLOCKS_MIN } else { FILE_BLOCKS_MIN };
        present.blocks >= blocks_min || self.writer.len() >= FILE_LEN_MIN
    }

    /// Creates the file after the present one, which can still go on.
    ///
    /// # Errors
    /// Nothing is left of the file.
    pub(crate) fn create_next(&self) -> Result<NextFile, Error> {
        let file = LogFile::new(self.last() + 1);
        let mut next = NextFile { directory: self.directory.clone(), file, writer: None, is_unused: true };
        next.writer = Some(create_file(&self.directory, file.sequence)?);
        Ok(next)
    }

    /// Seals the present file, durably, and goes on in the next.
    pub(crate) fn go_on_in(&mut self, mut next: NextFile) -> Result<(), Error> {
        let writer = next.writer.take().expect("a next file is complete and used once");
        assert!(writer.is_synced(), "W2: what a log file has is durable before the manifest names it");
        assert_eq!(next.file.sequence, self.last() + 1, "W2: log files are numbered without a gap");
        next.is_unused = false;
        self.files.push_back(next.file);
        self.unsynced = 0;
        std::mem::replace(&mut self.writer, writer).seal()
    }

    /// Appends a block of `step` and hands it to the system. Returns the digest of its changes.
    pub(crate) fn append_block(&mut self, record: &RecordRef<'_>, step: Step) -> Result<Checksum, Error> {
        let digest = self.writer.append_digested(record)?;
        self.unsynced += 1;
        self.files.back_mut().expect("an archive has a log file").add_block(step);
        Ok(digest)
    }

    /// Appends an unwinding and hands it to the system.
    pub(crate) fn append_unwind(&mut self, to: BlockNumber) -> Result<(), Error> {
        self.writer.append(&RecordRef::Unwind { to })?;
        self.unsynced += 1;
        Ok(())
    }

    /// See [`WalWriter::reached`].
    pub(crate) fn reached(&self) -> u64 {
        self.writer.reached()
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
    pub(crate) fn sync_marker(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.writer.sync_marker()
    }

    /// The first file that has a block at or after `emitted_to`, or the one being written.
    pub(crate) fn first_needed(&self, emitted_to: Step) -> u64 {
        let needed = |file: &&LogFile| file.last_step.is_some_and(|last| last >= emitted_to);
        self.files.iter().find(needed).map_or(self.last(), |file| file.sequence)
    }

    /// Removes the files before `first`, which no manifest names any more.
    pub(crate) fn trim(&mut self, first: u64) -> Result<(), Error> {
        assert!(first <= self.last(), "E3: the file that is appended to is needed");
        while let Some(file) = self.files.front().filter(|file| file.sequence < first) {
            self.directory.storage.remove(&layout::wal_file(&self.directory.path, file.sequence))?;
            self.files.pop_front();
        }
        Ok(())
    }
}

/// A log file that no manifest names yet; removed when it is dropped before the log goes on in it.
pub(crate) struct NextFile {
    directory: Directory,
    file: LogFile,
    /// `None` while it is being created, and when the log has it.
    writer: Option<WalWriter>,
    is_unused: bool,
}

impl NextFile {
    pub(crate) fn sequence(&self) -> u64 {
        self.file.sequence
    }

    /// See [`WalWriter::reached`].
    pub(crate) fn reached(&self) -> u64 {
        self.writer.as_ref().map_or(0, WalWriter::reached)
    }

    /// Appends a block.
    pub(crate) fn append(&mut self, record: &RecordRef<'_>, step: Step) -> Result<(), Error> {
        self.file.add_block(step);
        self.writer().append(record)
    }

    /// Makes everything in it durable.
    pub(crate) fn sync_marker(&mut self) -> Result<(), Error> {
        self.writer().sync()?;
        self.writer().sync_marker()
    }

    fn writer(&mut self) -> &mut WalWriter {
        self.writer.as_mut().expect("a next file is complete and used once")
    }
}

impl Drop for NextFile {
    fn drop(&mut self) {
        if self.is_unused {
            // What cannot be removed now is garbage that the next opening removes.
            let path = layout::wal_file(&self.directory.path, self.file.sequence);
            let _ = self.directory.storage.remove(&path);
        }
    }
}

/// Creates an empty file of the log; its name is durable when this returns.
pub(crate) fn create_file(directory: &Directory, sequence: u64) -> Result<WalWriter, Error> {
    let path = layout::wal_file(&directory.path, sequence);
    WalWriter::create(&*directory.storage, &path, directory.config.log_file(sequence))
}
