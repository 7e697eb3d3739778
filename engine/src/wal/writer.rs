//! Appends to the last file of the log.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::digest_of_encoded;
use super::header::{FILE_HEADER_LEN, FileHeader, VERSION, file_header};
use super::reader::Position;
use super::record::{BODY_LEN_MAX, Kind, RECORD_HEADER_LEN, RecordRef, finish_record};
use icecore_segments::checksum::Checksum;

use crate::error::{Error, ErrorKind, Operation, Poison};
use crate::options::LogFileId;
use crate::storage::{Storage, WriteFile};

/// What is kept of the encoding buffer between records. A larger block gives its memory back.
const BUFFER_KEPT: usize = 1 << 20;

/// A log file that is being appended to.
///
/// After a failed append or sync it refuses everything: what the file then holds is for recovery to find out.
pub(crate) struct WalWriter {
    path: PathBuf,
    file: Box<dyn WriteFile>,
    header: FileHeader,
    len: u64,
    durable: u64,
    /// Where the last record ends that is no mark.
    recorded: u64,
    /// The same of those that were synced.
    reached: u64,
    /// Whether records were appended since the last sync.
    unsynced: bool,
    failure: Option<Poison>,
    buffer: Vec<u8>,
}

impl WalWriter {
    /// Creates the file.
    ///
    /// A file that is already there and holds no record was left by a crash before the manifest named it; it is
    /// replaced.
    ///
    /// # Durability
    /// File, header and name survive a power loss when this returns; only then may the manifest name the file.
    ///
    /// # Errors
    /// [`Error::Exists`] if the file there holds records.
    pub(crate) fn create(storage: &dyn Storage, path: &Path, id: LogFileId) -> Result<Self, Error> {
        match storage.len(path)? {
            Some(len) if len > FILE_HEADER_LEN as u64 => return Err(Error::Exists { path: path.to_owned() }),
            Some(_) => storage.remove(path)?,
            None => {}
        }
        let (bytes, header) = file_header(id, VERSION);
        let file = storage.create(path)?;
        let mut this = Self::over(path, file, header, FILE_HEADER_LEN as u64);
        this.file.write_all(&bytes).map_err(|source| this.write_error(source))?;
        this.file.sync()?;
        storage.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        Ok(this)
    }

    /// Cuts the file to where its sound records end and goes on there.
    ///
    /// # Durability
    /// All records that replay saw survive a power loss when this returns: after `kill -9` they may have
    /// been in the memory of the system only.
    pub(crate) fn resume(
        storage: &dyn Storage,
        path: &Path,
        id: LogFileId,
        position: Position,
    ) -> Result<Self, Error> {
        let header = file_header(id, position.version).1;
        let open = || -> Result<Self, Error> {
            let file = storage.append(path, position.durable..position.len)?;
            let mut this = Self::over(path, file, header, position.len);
            (this.recorded, this.reached) = (position.records_end, position.records_end);
            this.file.sync()?;
            Ok(this)
        };
        let mut this = open()?;
        if position.marked {
            return Ok(this);
        }
        match this.put(Kind::Mark, |_| {}) {
            // A full disk must not keep out who comes to free space. The next record tells what the mark would have.
            Err(error) if error.kind() == ErrorKind::NoSpace => open(),
            put => put.map(|()| this),
        }
    }

    /// A writer of a file that is durable up to its end, `len`.
    fn over(path: &Path, file: Box<dyn WriteFile>, header: FileHeader, len: u64) -> Self {
        let (path, buffer) = (path.to_owned(), Vec::new());
        let (durable, recorded, reached) = (len, len, len);
        Self { path, file, header, len, durable, recorded, reached, unsynced: false, failure: None, buffer }
    }

    /// Appends a record and hands it to the system.
    ///
    /// # Durability
    /// The record survives the end of this process, in whatever way, when this returns; a power loss only after
    /// [`WalWriter::sync`].
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a body longer than [`BODY_LEN_MAX`], and nothing was written; [`Error::Io`] if the
    /// write failed, and [`Error::Poisoned`] ever after.
    pub(crate) fn append(&mut self, record: &RecordRef<'_>) -> Result<(), Error> {
        self.append_and_show(record, |_| {})
    }

    /// The same. Returns the digest of the changes of a block, made of the bytes at hand: see [`digest`](super::digest).
    pub(crate) fn append_digested(&mut self, record: &RecordRef<'_>) -> Result<Checksum, Error> {
        let mut digest = Checksum::default();
        self.append_and_show(record, |changes| digest = digest_of_encoded(changes))?;
        Ok(digest)
    }

    /// The same; `show` sees the encoded changes of a block.
    fn append_and_show(&mut self, record: &RecordRef<'_>, show: impl FnOnce(&[u8])) -> Result<(), Error> {
        let version = self.header.version;
        self.put(record.kind(), |body| {
            let head = body.len();
            let changes_at = record.encode_body(body, version);
            show(&body[changes_at..]);
            debug_assert!(
                (body.len() - head) as u64 <= record.body_len(),
                "no more is written than was measured"
            );
        })?;
        self.recorded = self.len;
        self.unsynced = true;
        Ok(())
    }

    /// Makes all appended records durable, and marks in the file that they are.
    ///
    /// Does nothing when there is nothing new.
    ///
    /// # Errors
    /// [`Error::Io`] when the sync failed or the mark could not be written, and [`Error::Poisoned`] ever after: the
    /// sync is not tried again, because the system may have dropped the bytes and would report success
    /// (Rebello et al., ATC '20).
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        if !self.unsynced {
            return Ok(());
        }
        self.sync_file()?;
        // Written now and not with the next record, so that the last block of a log is protected too.
        self.put(Kind::Mark, |_| {})
    }

    /// Makes durable what stands after the last sync: the mark that tells of it.
    ///
    /// # Errors
    /// As those of [`WalWriter::sync`].
    pub(crate) fn sync_marker(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        if self.durable == self.len { Ok(()) } else { self.sync_file() }
    }

    /// Ends the file and makes it durable: the last step before the manifest names the next one.
    ///
    /// Create the next file first. Then a full disk is noticed while this one can still go on.
    pub(crate) fn seal(mut self) -> Result<(), Error> {
        self.put(Kind::End, |_| {})?;
        self.sync_file()?;
        assert_eq!(self.durable, self.len, "W1: a sealed file is durable up to its end");
        Ok(())
    }

    /// Whether no record waits for a sync.
    pub(crate) fn is_synced(&self) -> bool {
        !self.unsynced
    }

    /// The length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where the last record ends that was synced and is no mark: what the manifest can hold the file to.
    pub(crate) fn reached(&self) -> u64 {
        self.reached
    }

    fn sync_file(&mut self) -> Result<(), Error> {
        let result = self.file.sync();
        self.remember(&result);
        result?;
        self.durable = self.len;
        self.reached = self.recorded;
        self.unsynced = false;
        Ok(())
    }

    fn put(&mut self, kind: Kind, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.refuse_after_failure()?;
        debug_assert!(self.durable <= self.len, "W3: a record tells of bytes before it");
        self.buffer.clear();
        self.buffer.resize(RECORD_HEADER_LEN, 0);
        encode(&mut self.buffer);
        let body_len = (self.buffer.len() - RECORD_HEADER_LEN) as u64;
        if body_len > BODY_LEN_MAX {
            self.buffer = Vec::new();
            return Err(Error::TooLarge { what: "block", len: body_len, max: BODY_LEN_MAX });
        }
        finish_record(&mut self.buffer, kind, self.len, self.durable, self.header);
        let written = self.file.write_all(&self.buffer).and_then(|()| self.file.flush());
        let written = written.map_err(|source| self.write_error(source));
        self.remember(&written);
        written?;
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        Ok(())
    }

    fn write_error(&self, source: std::io::Error) -> Error {
        Error::Io { operation: Operation::Write, path: self.path.clone(), source }
    }

    fn remember(&mut self, result: &Result<(), Error>) {
        if let Err(error) = result
            && !left_out!(Poison)
        {
            self.failure = Some(Poison::of(error));
        }
    }

    fn refuse_after_failure(&self) -> Result<(), Error> {
        self.failure.as_ref().map_or(Ok(()), |poison| Err(poison.refusal()))
    }
}
