//! Makes every checksum of a mutated file hold again, as somebody does who knows the formats.
//!
//! Offsets are those of the `FORMAT.md` of each file. Nothing here is taken from a reader: the code that is tried must not
//! decide what reaches it.

use icecore_segments::checksum::{ContentHasher, crc64};
use icecore_segments::frame::PAGE_SIZE;

const HEADER_SUM_AT: usize = 4088;
const FOOTER_CONTENT_AT: usize = 24;
const FOOTER_PARENT_AT: usize = 56;
/// Where the payload of a footer begins, in its page.
pub(crate) const PAYLOAD_AT: usize = 88;
const PLACE_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// A reference to a large value: offset, stored length, raw length, checksum.
const REFERENCE_LEN: usize = 24;

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..at + 8) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// A `.kv`, `.bt`, `.kvei` or `.kvbi` that is being forged, and what is known of it from when it was sound.
#[derive(Clone)]
pub(crate) struct Framed {
    pub(crate) bytes: Vec<u8>,
    /// The pages with a checksum of their own, the footer not among them.
    pub(crate) sealed: Vec<usize>,
    /// Where references to large values are, in pages that are not compressed.
    references: Vec<usize>,
    kind: u8,
}

impl Framed {
    /// Takes a sound file.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let salt = crc64(&bytes[..HEADER_SUM_AT]);
        let is_sealed = |number: &usize| {
            let page = &bytes[number * PAGE_SIZE..][..PAGE_SIZE];
            u64_at(page, 0) == seal_of(page, *number, salt)
        };
        let sealed: Vec<usize> = (1..bytes.len() / PAGE_SIZE - 1).filter(is_sealed).collect();
        let mut this = Self { kind: bytes[8], bytes, sealed, references: Vec::new() };
        this.references = this.find_references();
        this
    }

    /// The first run of large values in the file: the pages between the data pages, or after them, that have no seal.
    fn run_at(&self) -> usize {
        (1..=self.sealed.len()).find(|number| !self.sealed.contains(number)).unwrap_or(self.sealed.len() + 1)
            * PAGE_SIZE
    }

    fn find_references(&self) -> Vec<usize> {
        if self.kind != 1 {
            return Vec::new();
        }
        let places = self
            .sealed
            .iter()
            .flat_map(|number| number * PAGE_SIZE..(number + 1) * PAGE_SIZE - REFERENCE_LEN);
        places
            .filter(|at| self.value_of(*at).is_some_and(|value| crc64(value) == u64_at(&self.bytes, at + 16)))
            .collect()
    }

    /// The stored bytes that a reference at `at` would name.
    fn value_of(&self, at: usize) -> Option<&[u8]> {
        let (offset, stored, raw) =
            (u64_at(&self.bytes, at), u32_at(&self.bytes, at + 8), u32_at(&self.bytes, at + 12));
        if stored == 0 || stored > raw || raw <= 1024 {
            return None;
        }
        let from = self.run_at().checked_add(usize::try_from(offset).ok()?)?;
        self.bytes.get(from..from.checked_add(stored as usize)?)
    }

    /// Where the footer page begins.
    pub(crate) fn footer_at(&self) -> usize {
        self.bytes.len() - PAGE_SIZE
    }

    /// The tables with a checksum in the footer: where each begins, its length, where its checksum stands.
    pub(crate) fn tables(&self) -> Vec<(usize, usize, usize)> {
        let payload = self.footer_at() + PAYLOAD_AT;
        let number = |at: usize| u64_at(&self.bytes, payload + at);
        let found = match self.kind {
            1 => vec![(number(80), number(88), 96), (number(104), number(112), 120)],
            2 => vec![(number(32), number(40), 48)],
            4 => vec![(number(32), number(24).saturating_mul(8), 40)],
            _ => vec![(number(16), number(8).saturating_mul(4), 24)],
        };
        let in_file = |(at, len, sum_at): (u64, u64, usize)| {
            let end = at.checked_add(len).filter(|end| *end <= self.footer_at() as u64)?;
            Some((at as usize, (end - at) as usize, payload + sum_at))
        };
        found.into_iter().filter_map(in_file).collect()
    }

    /// The content checksum in the footer.
    pub(crate) fn content(&self) -> [u8; 32] {
        self.bytes[self.footer_at() + FOOTER_CONTENT_AT..][..32].try_into().unwrap_or_default()
    }

    /// Names another segment as the one that this accessor describes.
    pub(crate) fn set_parent(&mut self, parent: [u8; 32]) {
        let at = self.footer_at() + FOOTER_PARENT_AT;
        self.bytes[at..at + 32].copy_from_slice(&parent);
    }

    /// Makes all checksums hold: those of large values, header, pages, tables, content, footer.
    pub(crate) fn seal(&mut self) {
        for at in self.references.clone() {
            if let Some(sum) = self.value_of(at).map(crc64) {
                put(&mut self.bytes, at + 16, sum);
            }
        }
        let salt = crc64(&self.bytes[..HEADER_SUM_AT]);
        put(&mut self.bytes, HEADER_SUM_AT, salt);
        for number in self.sealed.clone() {
            self.seal_page(number, salt);
        }
        for (at, len, sum_at) in self.tables() {
            let sum = crc64(&self.bytes[at..at + len]);
            put(&mut self.bytes, sum_at, sum);
        }
        let footer_at = self.footer_at();
        let mut content = ContentHasher::default();
        content.update(&self.bytes[..footer_at]);
        self.bytes[footer_at + FOOTER_CONTENT_AT..][..32].copy_from_slice(&content.finish().0);
        self.seal_page(footer_at / PAGE_SIZE, salt);
    }

    fn seal_page(&mut self, number: usize, salt: u64) {
        let page = &mut self.bytes[number * PAGE_SIZE..][..PAGE_SIZE];
        let sum = seal_of(page, number, salt);
        put(page, 0, sum);
    }
}

fn seal_of(page: &[u8], number: usize, salt: u64) -> u64 {
    crc64(&page[8..]) ^ (number as u64 ^ salt).wrapping_mul(PLACE_FACTOR)
}

/// The length of what stands before the first record of a log file, and before the body of each.
pub(crate) const LOG_HEADER_LEN: usize = 64;
pub(crate) const RECORD_HEADER_LEN: usize = 32;

/// Where each record of a log file begins and ends, as far as lengths lead.
pub(crate) fn log_records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), LOG_HEADER_LEN);
    while at + RECORD_HEADER_LEN <= bytes.len() {
        let end = at + RECORD_HEADER_LEN + u32_at(bytes, at + 16) as usize;
        if end > bytes.len() {
            break;
        }
        found.push((at, end));
        at = end;
    }
    found
}

/// Makes the checksums of a log file and of all its records hold.
pub(crate) fn seal_log(bytes: &mut [u8]) {
    if bytes.len() < LOG_HEADER_LEN {
        return;
    }
    let salt = crc64(&bytes[..56]);
    put(bytes, 56, salt);
    for (at, end) in log_records(bytes) {
        seal_head(&mut bytes[at..end]);
        let body = crc64(&bytes[at + RECORD_HEADER_LEN..end]);
        put(bytes, at + 8, body);
        let sum =
            crc64(&bytes[at + 8..at + RECORD_HEADER_LEN]) ^ (at as u64 ^ salt).wrapping_mul(PLACE_FACTOR);
        put(bytes, at, sum);
    }
}

/// Makes the checksum of what stands before the changes of a block hold: height, root, and as many fingerprints as it says.
fn seal_head(record: &mut [u8]) {
    const BLOCK: u32 = 1;
    const COUNT_AT: usize = RECORD_HEADER_LEN + 40;
    let sum_at = COUNT_AT + 4 + 4 * u32_at(record, COUNT_AT) as usize;
    if u32_at(record, 20) == BLOCK && sum_at + 8 <= record.len() {
        let sum = crc64(&record[RECORD_HEADER_LEN..sum_at]);
        put(record, sum_at, sum);
    }
}

/// Where the body of a manifest begins.
pub(crate) const MANIFEST_BODY_AT: usize = 24;

/// Makes length and checksum of a manifest hold.
pub(crate) fn seal_manifest(bytes: &mut [u8]) {
    let Some(sum_at) = bytes.len().checked_sub(8).filter(|at| *at >= MANIFEST_BODY_AT) else { return };
    put(bytes, 16, (sum_at - MANIFEST_BODY_AT) as u64);
    let sum = crc64(&bytes[..sum_at]);
    put(bytes, sum_at, sum);
}

/// Puts `new` wherever `old` stands: how a manifest gets the content checksum of a forged file.
pub(crate) fn replace(bytes: &mut [u8], old: &[u8; 32], new: &[u8; 32]) {
    let places: Vec<usize> =
        (0..bytes.len().saturating_sub(31)).filter(|at| bytes[*at..at + 32] == old[..]).collect();
    for at in places {
        bytes[at..at + 32].copy_from_slice(new);
    }
}
