//! Reads a log file: checks the whole of it, finds where it really ends, then yields the records.

use std::path::Path;

use icecore_segments::bytes::u64_at;
use icecore_segments::step::BlockNumber;

use super::header::{
    ARCHIVE_AT, BadHeader, FILE_HEADER_LEN, FileHeader, SEQUENCE_AT, VERSION, check_file_header, file_header,
};
use super::record::{BlockHead, Kind, RECORD_HEADER_LEN, Record, RecordHeader, decode_unwind, take_change};
use crate::error::Error;
use crate::options::{ArchiveId, Config, LogFileId};

/// Whether a file may end in an append that a crash interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tail {
    /// The last file: what was never synced may be torn and is cut.
    Open,
    /// A file with a successor that the manifest names: it ends in an end record, and anything wrong is damage.
    Sealed,
}

/// Where a writer goes on in the last file. From [`WalReader::position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The length to which the file is cut: the torn tail and an end record go.
    pub(crate) len: u64,
    /// How far the file says that it was synced.
    pub(super) durable: u64,
    /// The version of its format: what is appended is of the same.
    pub(super) version: u16,
    /// Where the last record ends that is no mark.
    pub(crate) records_end: u64,
    /// Whether the file already says that all its records are durable.
    pub(super) marked: bool,
}

/// A log file that was found sound, up to a torn tail if it may have one.
///
/// Borrows the file's bytes. The records are decoded when they are asked for, one at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalReader<'a> {
    path: &'a Path,
    /// The file without its torn tail.
    bytes: &'a [u8],
    header: FileHeader,
    position: Position,
    /// How far the file says that it was synced.
    durable: usize,
}

impl<'a> WalReader<'a> {
    /// Checks the header and every record of a file.
    ///
    /// # Cost
    /// One checksum pass, and one over what follows the first bad record, if there is one. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the offset of the first record that does not hold; [`Error::Unsupported`] for a version
    /// of the format that this build does not read.
    pub(crate) fn open(path: &'a Path, bytes: &'a [u8], id: LogFileId, tail: Tail) -> Result<Self, Error> {
        let (reader, damage) = Self::open_before_damage(path, bytes, id, tail)?;
        damage.map_or(Ok(reader), Err)
    }

    /// Checks the header and every record of a file. Of a damaged file the reader has the records before the first damage, which
    /// comes with it.
    ///
    /// # Errors
    /// Those of [`WalReader::open`] for the header of the file.
    pub(crate) fn open_before_damage(
        path: &'a Path,
        bytes: &'a [u8],
        id: LogFileId,
        tail: Tail,
    ) -> Result<(Self, Option<Error>), Error> {
        let header = check_file_header(bytes, id).map_err(|bad| bad_header(bad, path))?;
        let walk = Walk::over(bytes, header);
        let damage = match walk.bad {
            Some(bad) => {
                let is_torn = !walk.is_contradicted && !was_durable(bytes, bad.offset, header);
                (tail == Tail::Sealed || !is_torn).then_some(bad)
            }
            None if tail == Tail::Sealed && !walk.ended && !left_out!(SealedEnd) => {
                Some(Bad { offset: bytes.len(), reason: "no end record" })
            }
            None => None,
        };
        let durable = if tail == Tail::Sealed { walk.len } else { walk.durable.min(walk.len) };
        let version = header.version;
        let position = Position {
            len: walk.len as u64,
            durable: durable as u64,
            version,
            records_end: walk.records_end as u64,
            marked: walk.records_end <= durable,
        };
        let reader = Self { path, bytes: &bytes[..walk.len], header, position, durable };
        Ok((reader, damage.map(|damage| damage.in_file(path))))
    }

    /// Where a writer goes on, if this is the last file.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// How many bytes of sound records the file does not say were synced.
    pub(crate) fn unmarked(&self) -> u64 {
        if self.position.marked { 0 } else { (self.bytes.len() - self.durable) as u64 }
    }

    /// All records, in order: what recovery replays. `config` is that of the archive, whose blocks these are.
    pub(crate) fn records(&self, config: &'a Config) -> Records<'a> {
        Records { reader: *self, config, offset: FILE_HEADER_LEN, end: self.bytes.len() }
    }
}

/// What a log file says, read without its archive: part of [`FileInfo`](crate::inspect::FileInfo).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogInfo {
    /// The version of its format.
    pub version: u16,
    /// Its number in the log.
    pub sequence: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Where its sound records end, in bytes. What follows is a record that was not written whole.
    pub sound: u64,
    /// How far it says that it was synced, in bytes.
    pub durable: u64,
    /// Whether it ends in an end record, so that another file follows.
    pub is_sealed: bool,
    /// The number of blocks in it.
    pub blocks: u64,
    /// The lowest and the highest of these blocks.
    pub range: Option<(BlockNumber, BlockNumber)>,
    /// The number of changes in all of these blocks.
    pub changes: u64,
    /// The heights that were unwound to, in order.
    pub unwinds: Vec<BlockNumber>,
}

impl WalReader<'_> {
    /// Reads a file as the last of a log, which may end in a torn record; `sequence` where its number is known.
    ///
    /// # Errors
    /// As [`WalReader::open`]; [`Error::Damaged`] for a body that no writer writes.
    pub(crate) fn inspect(path: &Path, bytes: &[u8], sequence: Option<u64>) -> Result<LogInfo, Error> {
        let sequence = sequence.or_else(|| u64_at(bytes, SEQUENCE_AT)).unwrap_or(0);
        let archive =
            bytes.get(ARCHIVE_AT..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        let id = LogFileId { archive: ArchiveId(archive), sequence };
        let reader = WalReader::open(path, bytes, id, Tail::Open)?;
        let version = reader.header.version;
        let mut info = LogInfo { version, sequence, len: bytes.len() as u64, ..LogInfo::default() };
        let mut offset = FILE_HEADER_LEN;
        while offset < bytes.len() {
            let Ok(frame) = Frame::at(bytes, offset, reader.header) else { break };
            info.add(&frame, version)
                .ok_or_else(|| Bad { offset, reason: "a field of a record" }.in_file(path))?;
            offset = frame.end;
        }
        (info.sound, info.durable) = (offset as u64, reader.durable as u64);
        Ok(info)
    }
}

impl LogInfo {
    /// Counts a record. `None`: no writer wrote its body.
    fn add(&mut self, frame: &Frame<'_>, version: u16) -> Option<()> {
        match frame.header.kind {
            Kind::Block => {
                let head = BlockHead::decode(frame.body, version)?;
                let (lowest, highest) = self.range.unwrap_or((head.height, head.height));
                self.range = Some((lowest.min(head.height), highest.max(head.height)));
                self.blocks += 1;
                let mut offset = head.len;
                while offset < frame.body.len() {
                    take_change(frame.body, &mut offset)?;
                    self.changes += 1;
                }
            }
            Kind::Unwind => self.unwinds.push(decode_unwind(frame.body)?),
            Kind::Mark => {}
            Kind::End => self.is_sealed = true,
        }
        Some(())
    }
}

/// The records of a [`WalReader`], decoded one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    reader: WalReader<'a>,
    config: &'a Config,
    offset: usize,
    end: usize,
}

impl Iterator for Records<'_> {
    type Item = Result<(u64, Record), Error>;

    /// A record and its offset. Yields [`Error::Damaged`] for a record whose checksum holds and whose fields do not, and then nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.end {
            let offset = self.offset;
            match Frame::at(self.reader.bytes, offset, self.reader.header) {
                Ok(frame) if !frame.header.kind.is_record() => self.offset = frame.end,
                frame => {
                    let decoded = frame.and_then(|frame| {
                        let version = self.reader.header.version;
                        let record = frame.header.kind.decode_body(frame.body, version, self.config);
                        Ok((record.map_err(|reason| Bad { offset, reason })?, frame.end))
                    });
                    self.offset = decoded.as_ref().map_or(self.end, |(_, end)| *end);
                    let record = decoded.map(|(record, _)| (offset as u64, record));
                    return Some(record.map_err(|bad| bad.in_file(self.reader.path)));
                }
            }
        }
        None
    }
}

/// The error for a file whose header is not the expected one.
pub(super) fn bad_header(bad: BadHeader, path: &Path) -> Error {
    match bad {
        BadHeader::Damaged { offset, reason } => Bad { offset, reason }.in_file(path),
        BadHeader::Version(found) => {
            Error::Unsupported { path: path.to_owned(), found, supported: u64::from(VERSION) }
        }
    }
}

/// The first place where something does not hold.
#[derive(Clone, Copy, Debug)]
struct Bad {
    offset: usize,
    reason: &'static str,
}

impl Bad {
    fn in_file(self, path: &Path) -> Error {
        Error::Damaged { path: path.to_owned(), offset: self.offset as u64, reason: self.reason }
    }
}

/// A record in its file, checksums compared.
struct Frame<'a> {
    header: RecordHeader,
    body: &'a [u8],
    end: usize,
}

impl<'a> Frame<'a> {
    /// Reads the record at `offset`. A length from the disk is compared with the bytes there are before it is used.
    fn at(bytes: &'a [u8], offset: usize, header: FileHeader) -> Result<Self, Bad> {
        let bad = |reason| Bad { offset, reason };
        let header = RecordHeader::at(bytes, offset, header).ok_or_else(|| bad("record header"))?;
        let start = offset + RECORD_HEADER_LEN;
        let body =
            bytes[start..].get(..header.len as usize).ok_or_else(|| bad("record runs past the end"))?;
        if !header.fits(body) {
            return Err(bad("record checksum"));
        }
        Ok(Self { header, body, end: start + body.len() })
    }
}

/// What one pass over the records found.
struct Walk {
    /// Where the sound records end, an end record left out.
    len: usize,
    /// Where the last record ends that is no mark and no end.
    records_end: usize,
    /// The furthest that any sound record says was synced.
    durable: usize,
    /// Whether the file ends in an end record.
    ended: bool,
    bad: Option<Bad>,
    /// Whether what is bad contradicts the records before it, which no interrupted append explains.
    is_contradicted: bool,
}

impl Walk {
    /// Goes from record to record until the end of the file or the first that is bad.
    fn over(bytes: &[u8], header: FileHeader) -> Self {
        let start = FILE_HEADER_LEN;
        let mut walk = Self {
            len: start,
            records_end: start,
            durable: start,
            ended: false,
            bad: None,
            is_contradicted: false,
        };
        while walk.len < bytes.len() {
            let offset = walk.len;
            let frame = match Frame::at(bytes, offset, header) {
                Ok(frame) => frame,
                Err(bad) => return Self { bad: Some(bad), ..walk },
            };
            let (kind, durable) = (frame.header.kind, frame.header.durable as usize);
            if durable < walk.durable {
                let reason = "a record knows of fewer durable bytes than the one before";
                return walk.contradicted_by(Bad { offset, reason });
            }
            walk.durable = durable;
            if kind == Kind::End {
                walk.ended = true;
                let after = Bad { offset: frame.end, reason: "bytes after the end record" };
                return if frame.end == bytes.len() { walk } else { walk.contradicted_by(after) };
            }
            walk.len = frame.end;
            if kind.is_record() {
                walk.records_end = frame.end;
            }
        }
        walk
    }

    fn contradicted_by(self, bad: Bad) -> Self {
        Self { bad: Some(bad), is_contradicted: true, ..self }
    }
}

/// The heights of all blocks from `offset` of a log file that are whole, whatever is between them.
pub(crate) fn whole_blocks(bytes: &[u8], id: LogFileId, offset: usize) -> Vec<BlockNumber> {
    // Records do not need the header of the file, which may be what is damaged.
    let header = check_file_header(bytes, id).unwrap_or_else(|_| file_header(id, VERSION).1);
    let (mut heights, mut offset) = (Vec::new(), offset.max(FILE_HEADER_LEN));
    while offset < bytes.len() {
        if let Some(record) = RecordHeader::at(bytes, offset, header) {
            let start = offset + RECORD_HEADER_LEN;
            // The length is covered by the checksum of the record's header, so a damaged body is passed over.
            let end = start.saturating_add(record.len as usize);
            let body = bytes.get(start..end).filter(|body| record.fits(body));
            if let (Kind::Block, Some(body)) = (record.kind, body) {
                heights.extend(BlockHead::decode(body, header.version).map(|head| head.height));
            }
            offset = end;
        } else {
            offset += 1;
        }
    }
    heights
}

/// Whether any sound record header after `bad` says that the byte there was synced.
fn was_durable(bytes: &[u8], bad: usize, header: FileHeader) -> bool {
    if left_out!(TornTail) {
        return false;
    }
    let says_so =
        |offset| RecordHeader::at(bytes, offset, header).is_some_and(|header| header.durable > bad as u64);
    (bad + 1..bytes.len()).any(says_so)
}
