//! The envelope of every file of the family: a header page in front, a footer page after.
//!
//! The header names the file (kind, format version, domain, step range), so that it can be recognised from its first
//! bytes; the footer holds what only the end knows (counts, checksums) and ends in the magic, so that
//! a file that was cut cannot look finished. Used by the builders and readers of `.kv`, `.bt`, `.kvei` and `.kvbi`.
//!
#![doc = include_str!("../FORMAT.md")]

use std::fmt;
use std::io::Write;
use std::str;

pub use crate::checksum::PAGE_SIZE;

use crate::bytes::{array32_at, u16_at, u32_at, u64_at};
use crate::checksum::{Checksum, ContentHasher, Salt, crc64, is_sealed, seal};
use crate::error::{Corruption, Error, Part, Reason};
use crate::step::{Step, StepRange};

/// The first and the last eight bytes of every file. The first is no ASCII; CR LF, the end-of-file byte and LF show
/// damage by text-mode transfer at once.
pub const MAGIC: [u8; 8] = *b"\x8AICE\r\n\x1A\n";

/// The longest name of a domain, in bytes.
pub const DOMAIN_LEN_MAX: usize = 32;

/// The longest kind-specific part of a header, in bytes.
pub const PARAMS_LEN_MAX: usize = 64;

/// The longest kind-specific part of a footer, in bytes.
pub const PAYLOAD_LEN_MAX: usize = CLOSING_MAGIC_AT - PAYLOAD_AT;

pub(crate) const KIND_AT: usize = 8;
pub(crate) const VERSION_AT: usize = 10;
pub(crate) const PAGE_SIZE_AT: usize = 12;
pub(crate) const STEP_FROM_AT: usize = 16;
pub(crate) const STEP_TO_AT: usize = 24;
pub(crate) const DOMAIN_LEN_AT: usize = 32;
pub(crate) const DOMAIN_AT: usize = 33;
pub(crate) const PARAMS_AT: usize = 96;
pub(crate) const HEADER_SUM_AT: usize = 4088;

pub(crate) const FILE_LEN_AT: usize = 8;
pub(crate) const FOOTER_KIND_AT: usize = 16;
pub(crate) const FOOTER_VERSION_AT: usize = 18;
pub(crate) const PAYLOAD_LEN_AT: usize = 20;
pub(crate) const CONTENT_AT: usize = 24;
pub(crate) const PARENT_AT: usize = 56;
pub(crate) const PAYLOAD_AT: usize = 88;
pub(crate) const CLOSING_MAGIC_AT: usize = 4088;

const _: () = assert!(DOMAIN_AT + DOMAIN_LEN_MAX <= PARAMS_AT && PARAMS_AT + PARAMS_LEN_MAX <= HEADER_SUM_AT);

/// What a file of the family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `.kv`: all versions of a step range.
    Segment,
    /// `.bt`: where in a `.kv` an entry can be.
    PivotIndex,
    /// `.kvei`: whether a `.kv` can have a key.
    ExistenceFilter,
    /// `.kvbi`: which pages of a `.kv` have entries of a block.
    BlockIndex,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Segment, Self::PivotIndex, Self::ExistenceFilter, Self::BlockIndex];

    /// The kinds that a lookup reads: every segment has a file of each.
    pub const LOOKUP: [Self; 3] = [Self::Segment, Self::PivotIndex, Self::ExistenceFilter];

    /// The number that stands in the file.
    pub fn code(self) -> u16 {
        match self {
            Self::Segment => 1,
            Self::PivotIndex => 2,
            Self::ExistenceFilter => 3,
            Self::BlockIndex => 4,
        }
    }

    /// The newest format version, the one that builders write.
    pub fn version(self) -> u16 {
        match self {
            Self::Segment | Self::PivotIndex => 2,
            Self::ExistenceFilter | Self::BlockIndex => 1,
        }
    }

    /// The file name extension, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Segment => "kv",
            Self::PivotIndex => "bt",
            Self::ExistenceFilter => "kvei",
            Self::BlockIndex => "kvbi",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension())
    }
}

/// What a file says of itself in its first page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// The version of its format: 1 to the newest of the kind.
    pub version: u16,
    /// The domain whose versions it holds or describes: 1 to [`DOMAIN_LEN_MAX`] bytes of UTF-8.
    pub domain: String,
    /// The steps it covers.
    pub steps: StepRange,
    /// What its kind adds: at most [`PARAMS_LEN_MAX`] bytes, the rest zero.
    pub params: [u8; PARAMS_LEN_MAX],
}

impl Header {
    /// A header without kind-specific parameters.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the domain's name is empty or longer than [`DOMAIN_LEN_MAX`].
    pub fn new(kind: Kind, domain: &str, steps: StepRange) -> Result<Self, Error> {
        if domain.is_empty() || domain.len() > DOMAIN_LEN_MAX {
            let (len, max) = (domain.len() as u64, DOMAIN_LEN_MAX as u64);
            return Err(Error::TooLarge { what: "domain name", len, max });
        }
        let version = kind.version();
        Ok(Self { kind, version, domain: domain.to_owned(), steps, params: [0; PARAMS_LEN_MAX] })
    }

    /// What this file's page checksums are mixed with.
    pub fn salt(&self) -> Salt {
        Salt(crc64(&self.encode()[..HEADER_SUM_AT]))
    }

    fn encode(&self) -> [u8; PAGE_SIZE] {
        let mut page = [0; PAGE_SIZE];
        page[..MAGIC.len()].copy_from_slice(&MAGIC);
        page[KIND_AT..][..2].copy_from_slice(&self.kind.code().to_le_bytes());
        page[VERSION_AT..][..2].copy_from_slice(&self.version.to_le_bytes());
        page[PAGE_SIZE_AT..][..4].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        page[STEP_FROM_AT..][..8].copy_from_slice(&self.steps.from().0.to_le_bytes());
        page[STEP_TO_AT..][..8].copy_from_slice(&self.steps.to().0.to_le_bytes());
        page[DOMAIN_LEN_AT] = self.domain.len() as u8;
        page[DOMAIN_AT..][..self.domain.len()].copy_from_slice(self.domain.as_bytes());
        page[PARAMS_AT..][..PARAMS_LEN_MAX].copy_from_slice(&self.params);
        let sum = crc64(&page[..HEADER_SUM_AT]);
        page[HEADER_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Reads the header of a file from its first page, whatever its kind.
    ///
    /// # Errors
    /// In the order of `FORMAT.md`: too short, another magic, a damaged page, a newer version, a bad field.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let corrupt = |reason| Error::Corrupt(Corruption { part: Part::Header, offset: 0, reason });
        let page = bytes.get(..PAGE_SIZE).ok_or_else(|| corrupt(Reason::Length))?;
        if page[..MAGIC.len()] != MAGIC {
            return Err(corrupt(Reason::Magic));
        }
        if u64_at(page, HEADER_SUM_AT) != Some(crc64(&page[..HEADER_SUM_AT])) {
            return Err(corrupt(Reason::Checksum));
        }
        let stated = parse_kind(page, KIND_AT, VERSION_AT);
        let (kind, version) = stated.ok_or_else(|| corrupt(Reason::Field))??;
        let field = |at| u64_at(page, at).ok_or_else(|| corrupt(Reason::Field));
        let steps = StepRange::new(Step(field(STEP_FROM_AT)?), Step(field(STEP_TO_AT)?));
        let domain = page[DOMAIN_AT..]
            .get(..page[DOMAIN_LEN_AT] as usize)
            .filter(|name| !name.is_empty() && name.len() <= DOMAIN_LEN_MAX)
            .and_then(|name| str::from_utf8(name).ok());
        let mut params = [0; PARAMS_LEN_MAX];
        params.copy_from_slice(&page[PARAMS_AT..][..PARAMS_LEN_MAX]);
        let (Some(steps), Some(domain)) = (steps, domain) else { return Err(corrupt(Reason::Field)) };
        let header = Self { kind, version, domain: domain.to_owned(), steps, params };
        if header.encode() != page {
            return Err(corrupt(Reason::Field));
        }
        Ok(header)
    }
}

/// `None`: no such kind. `Some(Err)`: a version that this build does not read.
fn parse_kind(page: &[u8], kind_at: usize, version_at: usize) -> Option<Result<(Kind, u16), Error>> {
    let code = u16_at(page, kind_at)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.code() == code)?;
    let found = u16_at(page, version_at)?;
    if found == 0 || found > kind.version() {
        let (found, supported) = (u64::from(found), u64::from(kind.version()));
        return Some(Err(Error::Unsupported { what: "format version", found, supported }));
    }
    Some(Ok((kind, found)))
}

/// A finished file as its manifest needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The length in bytes, header and footer included.
    pub len: u64,
    /// BLAKE3 of everything before the footer.
    pub content: Checksum,
}

/// What is hashed and written at once, in bytes: page by page BLAKE3 takes 2.6 times as long, its lanes half empty.
const BATCH_LEN: usize = 64 << 10;

/// Writes a file of the family from front to back: header, pages and raw bytes, footer.
///
/// Holds what is hashed and written at once, 64 KiB; the caller decides how `W` buffers.
pub struct FrameWriter<W> {
    sink: W,
    /// Bytes that are neither hashed nor written yet.
    pending: Vec<u8>,
    kind: Kind,
    version: u16,
    salt: Salt,
    position: u64,
    hasher: ContentHasher,
}

impl<W: Write> FrameWriter<W> {
    /// Writes the header page.
    pub fn new(sink: W, header: &Header) -> Result<Self, Error> {
        let salt = header.salt();
        let Header { kind, version, .. } = *header;
        let (pending, hasher) = (Vec::with_capacity(BATCH_LEN), ContentHasher::default());
        let mut this = Self { sink, pending, kind, version, salt, position: 0, hasher };
        this.write_raw(&header.encode())?;
        Ok(this)
    }

    /// The offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Seals and writes a page of [`PAGE_SIZE`] bytes; its first eight bytes are the checksum's.
    /// Returns its number: the offset divided by [`PAGE_SIZE`].
    ///
    /// # Panics
    /// If the position is not a multiple of [`PAGE_SIZE`].
    pub fn write_page(&mut self, page: &mut [u8]) -> Result<u64, Error> {
        assert_eq!(self.position % PAGE_SIZE as u64, 0, "pages begin at multiples of the page size");
        let number = self.position / PAGE_SIZE as u64;
        seal(page, number, self.salt);
        self.write_raw(page)?;
        Ok(number)
    }

    /// Writes bytes that carry their own checksum, or none but the file's.
    pub fn write_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.pending.len() + bytes.len() > BATCH_LEN {
            self.write_pending()?;
        }
        self.position += bytes.len() as u64;
        if bytes.len() < BATCH_LEN {
            self.pending.extend_from_slice(bytes);
            return Ok(());
        }
        self.sink.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    fn write_pending(&mut self) -> Result<(), Error> {
        self.sink.write_all(&self.pending)?;
        self.hasher.update(&self.pending);
        self.pending.clear();
        Ok(())
    }

    /// Writes zeros up to the next page.
    pub fn pad(&mut self) -> Result<(), Error> {
        let over = (self.position % PAGE_SIZE as u64) as usize;
        if over > 0 {
            self.write_raw(&[0; PAGE_SIZE][over..])?;
        }
        Ok(())
    }

    /// Pads, writes the footer and hands the writer back. Flushing and syncing are the caller's.
    ///
    /// `parent` is the content checksum of the segment that an accessor describes, zero for a segment.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when `payload` is longer than [`PAYLOAD_LEN_MAX`]; a failed write.
    pub fn finish(mut self, parent: Checksum, payload: &[u8]) -> Result<(FileSummary, W), Error> {
        if payload.len() > PAYLOAD_LEN_MAX {
            let (len, max) = (payload.len() as u64, PAYLOAD_LEN_MAX as u64);
            return Err(Error::TooLarge { what: "footer payload", len, max });
        }
        self.pad()?;
        self.write_pending()?;
        let content = self.hasher.finish();
        let len = self.position + PAGE_SIZE as u64;
        let mut page = [0; PAGE_SIZE];
        page[FILE_LEN_AT..][..8].copy_from_slice(&len.to_le_bytes());
        page[FOOTER_KIND_AT..][..2].copy_from_slice(&self.kind.code().to_le_bytes());
        page[FOOTER_VERSION_AT..][..2].copy_from_slice(&self.version.to_le_bytes());
        page[PAYLOAD_LEN_AT..][..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        page[CONTENT_AT..][..32].copy_from_slice(&content.0);
        page[PARENT_AT..][..32].copy_from_slice(&parent.0);
        page[PAYLOAD_AT..][..payload.len()].copy_from_slice(payload);
        page[CLOSING_MAGIC_AT..].copy_from_slice(&MAGIC);
        seal(&mut page, self.position / PAGE_SIZE as u64, self.salt);
        self.sink.write_all(&page)?;
        Ok((FileSummary { len, content }, self.sink))
    }
}

/// Bytes hashed between two reports of progress.
const HASH_LEN: usize = 1 << 20;

/// A file's envelope, read and found consistent: the first thing every reader makes.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// What the file says of itself.
    pub header: Header,
    /// What its pages' checksums are mixed with.
    pub salt: Salt,
    /// Length and content checksum, as the footer states them.
    pub summary: FileSummary,
    /// The content checksum of the segment that this accessor describes; zero for a segment.
    pub parent: Checksum,
    /// The kind-specific part of the footer.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks header and footer of a whole file that is to be of `kind`. Reads two pages of it.
    ///
    /// Pages between them are checked when they are first read; [`Frame::verify_content`] checks all.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the part that is damaged, [`Error::Unsupported`] for a newer version,
    /// [`Error::Mismatch`] for a file of another kind.
    pub fn parse(bytes: &'a [u8], kind: Kind) -> Result<Self, Error> {
        let header = Header::parse(bytes)?;
        if header.kind != kind {
            let (expected, found) = (kind.to_string(), header.kind.to_string());
            return Err(Error::Mismatch { what: "file kind", expected, found });
        }
        let offset = (bytes.len() as u64).saturating_sub(PAGE_SIZE as u64);
        let corrupt = |reason| Error::Corrupt(Corruption { part: Part::Footer, offset, reason });
        if bytes.len() < 2 * PAGE_SIZE || !bytes.len().is_multiple_of(PAGE_SIZE) {
            return Err(corrupt(Reason::Length));
        }
        let page = &bytes[offset as usize..];
        if page[CLOSING_MAGIC_AT..] != MAGIC {
            return Err(corrupt(Reason::Magic));
        }
        let salt = header.salt();
        if !is_sealed(page, offset / PAGE_SIZE as u64, salt) {
            return Err(corrupt(Reason::Checksum));
        }
        let footer_kind = parse_kind(page, FOOTER_KIND_AT, FOOTER_VERSION_AT);
        if footer_kind.ok_or_else(|| corrupt(Reason::Field))?? != (kind, header.version) {
            return Err(corrupt(Reason::Field));
        }
        if u64_at(page, FILE_LEN_AT) != Some(bytes.len() as u64) {
            return Err(corrupt(Reason::Length));
        }
        let read = || {
            let payload_len = u32_at(page, PAYLOAD_LEN_AT)? as usize;
            let payload = page[PAYLOAD_AT..CLOSING_MAGIC_AT].get(..payload_len)?;
            Some((payload, array32_at(page, CONTENT_AT)?, array32_at(page, PARENT_AT)?))
        };
        let (payload, content, parent) = read().ok_or_else(|| corrupt(Reason::Field))?;
        let summary = FileSummary { len: bytes.len() as u64, content: Checksum(content) };
        Ok(Self { header, salt, summary, parent: Checksum(parent), payload })
    }

    /// Reads the whole file and compares its content checksum. `on_progress` gets the number of bytes read since it was last called.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it differs.
    pub fn verify_content(&self, bytes: &[u8], on_progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let mut hasher = ContentHasher::default();
        for chunk in bytes[..bytes.len() - PAGE_SIZE].chunks(HASH_LEN) {
            hasher.update(chunk);
            on_progress(chunk.len() as u64);
        }
        if hasher.finish() != self.summary.content {
            return Err(Corruption { part: Part::File, offset: 0, reason: Reason::Checksum }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, Vec<u8>) {
        let steps = StepRange::new(Step(4), Step(8)).unwrap();
        let header = Header::new(Kind::PivotIndex, "storage", steps).unwrap();
        let mut writer = FrameWriter::new(Vec::new(), &header).unwrap();
        assert_eq!(writer.write_page(&mut [3; PAGE_SIZE]).unwrap(), 1);
        writer.write_raw(b"tail").unwrap();
        let (summary, bytes) = writer.finish(Checksum([5; 32]), b"payload").unwrap();
        assert_eq!(summary.len, bytes.len() as u64);
        (header, bytes)
    }

    #[test]
    fn a_frame_reads_back() {
        let (header, bytes) = sample();
        let frame = Frame::parse(&bytes, Kind::PivotIndex).unwrap();
        assert_eq!(
            (&frame.header, frame.payload, frame.parent),
            (&header, &b"payload"[..], Checksum([5; 32]))
        );
        assert!(is_sealed(&bytes[PAGE_SIZE..][..PAGE_SIZE], 1, frame.salt));
        frame.verify_content(&bytes, &mut |_| {}).unwrap();
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed() {
        let (_, bytes) = sample();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let result = Frame::parse(&damaged, Kind::PivotIndex)
                .and_then(|f| f.verify_content(&damaged, &mut |_| {}));
            assert!(result.is_err(), "byte {at}");
        }
        for len in 0..bytes.len() {
            assert!(Frame::parse(&bytes[..len], Kind::PivotIndex).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn an_older_version_is_read_and_stated_the_same_in_the_footer() {
        let steps = StepRange::single(Step(4));
        let header = Header { version: 1, ..Header::new(Kind::Segment, "storage", steps).unwrap() };
        let mut writer = FrameWriter::new(Vec::new(), &header).unwrap();
        writer.write_page(&mut [3; PAGE_SIZE]).unwrap();
        let (_, mut bytes) = writer.finish(Checksum::default(), b"payload").unwrap();
        let frame = Frame::parse(&bytes, Kind::Segment).unwrap();
        assert_eq!((frame.header.version, frame.salt), (1, header.salt()));
        let footer = &mut bytes[2 * PAGE_SIZE..];
        footer[FOOTER_VERSION_AT] = 2;
        seal(footer, 2, header.salt());
        let found = Frame::parse(&bytes, Kind::Segment);
        assert!(matches!(found, Err(Error::Corrupt(Corruption { reason: Reason::Field, .. }))));
    }

    #[test]
    fn another_kind_and_a_newer_version_are_named() {
        let (_, mut bytes) = sample();
        assert!(matches!(Frame::parse(&bytes, Kind::Segment), Err(Error::Mismatch { .. })));
        bytes[VERSION_AT] = 9;
        let sum = crc64(&bytes[..HEADER_SUM_AT]);
        bytes[HEADER_SUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Frame::parse(&bytes, Kind::PivotIndex), Err(Error::Unsupported { found: 9, .. })));
    }
}
