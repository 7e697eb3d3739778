//! The header of a log file: what tells it from every other file. Described in `FORMAT.md`.

use icecore_segments::bytes::{u16_at, u64_at};
use icecore_segments::checksum::crc64;

use crate::options::{ArchiveId, LogFileId};

/// The first eight bytes of a log file: of the family of all files of the project, and of its own kind.
pub(crate) const MAGIC: [u8; 8] = *b"\x8AICW\r\n\x1A\n";

/// The newest format version, the one that new files get.
pub(crate) const VERSION: u16 = 3;
/// The header does not name the archive. A file that was begun so is ended so.
const VERSION_WITHOUT_ARCHIVE: u16 = 2;
/// Blocks have neither fingerprints nor a checksum of their head. A file that was begun so is ended so.
pub(super) const VERSION_WITHOUT_FINGERPRINTS: u16 = 1;

/// The length of the file header, in bytes.
pub(crate) const FILE_HEADER_LEN: usize = 64;

pub(super) const VERSION_AT: usize = 8;
pub(super) const SEQUENCE_AT: usize = 16;
pub(super) const ARCHIVE_AT: usize = 24;
pub(super) const FILE_SUM_AT: usize = 56;

const _: () = assert!(FILE_SUM_AT + 8 == FILE_HEADER_LEN);

/// What the records of one file have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// What their checksums are mixed with: the checksum of the header.
    pub(super) salt: u64,
    /// The version of the format.
    pub(super) version: u16,
}

/// The header of a file of this version. Everything in it follows from these.
pub(super) fn file_header(id: LogFileId, version: u16) -> ([u8; FILE_HEADER_LEN], FileHeader) {
    let mut header = [0; FILE_HEADER_LEN];
    header[..MAGIC.len()].copy_from_slice(&MAGIC);
    header[VERSION_AT..][..2].copy_from_slice(&version.to_le_bytes());
    header[SEQUENCE_AT..][..8].copy_from_slice(&id.sequence.to_le_bytes());
    if version > VERSION_WITHOUT_ARCHIVE {
        header[ARCHIVE_AT..][..id.archive.0.len()].copy_from_slice(&id.archive.0);
    }
    let salt = crc64(&header[..FILE_SUM_AT]);
    header[FILE_SUM_AT..].copy_from_slice(&salt.to_le_bytes());
    (header, FileHeader { salt, version })
}

/// Why the first bytes of a file are not the header that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// A field does not hold; the text says which.
    Damaged {
        /// Where the field is.
        offset: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A version that this build does not read.
    Version(u64),
}

/// Compares the first bytes of a file with the header that it should have.
pub(super) fn check_file_header(bytes: &[u8], id: LogFileId) -> Result<FileHeader, BadHeader> {
    let bad = |offset, reason| Err(BadHeader::Damaged { offset, reason });
    let Some(header) = bytes.get(..FILE_HEADER_LEN) else {
        return bad(bytes.len(), "file is shorter than its header");
    };
    if header[..MAGIC.len()] != MAGIC {
        return bad(0, "not a log file");
    }
    if u64_at(header, FILE_SUM_AT) != Some(crc64(&header[..FILE_SUM_AT])) {
        return bad(0, "header checksum");
    }
    let version = u16_at(header, VERSION_AT).unwrap_or(0);
    if !(VERSION_WITHOUT_FINGERPRINTS..=VERSION).contains(&version) {
        return Err(BadHeader::Version(u64::from(version)));
    }
    let sequence = u64_at(header, SEQUENCE_AT).unwrap_or(0);
    if sequence != id.sequence && !left_out!(LogSequence) {
        return bad(SEQUENCE_AT, "another file's sequence number");
    }
    let archive = if version > VERSION_WITHOUT_ARCHIVE {
        header[ARCHIVE_AT..][..id.archive.0.len()].try_into().map(ArchiveId).unwrap_or_default()
    } else {
        ArchiveId::default()
    };
    if archive != id.archive && !left_out!(ArchiveId) {
        return bad(ARCHIVE_AT, "a file of another archive's log");
    }
    let (expected, tag) = file_header(LogFileId { archive, sequence }, version);
    if *header == expected { Ok(tag) } else { bad(VERSION_AT, "unknown header field") }
}
