//! What opening reads of all files of a generation, in one object: of each file its header page and its tail.
//!
//! Opened one by one, 260 segments would be 1,560 requests; opened from here they are one. The bytes are described in `FORMAT.md`
//! beside this file.

use std::io::Read;
use std::ops::Range;

use icecore_segments::bytes::{put_varint, take_varint, u32_at};
use icecore_segments::frame::PAGE_SIZE;

pub(crate) const MAGIC: [u8; 8] = *b"\x8AICB\r\n\x1A\n";
/// The format version that is written.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEAD_LEN: usize = 16;

/// The longest bundle that is read, as stored.
pub(crate) const LEN_MAX: u64 = 1 << 32;

/// The longest bundle that is read, decompressed: pages of a few million files.
const RAW_LEN_MAX: u64 = 1 << 34;

/// Much smaller than the default level makes it, at a rate that writing segments does not notice.
const LEVEL: i32 = 12;

/// What opening reads of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The length of the whole file.
    pub(crate) len: u64,
    /// The header page.
    pub(crate) header: Vec<u8>,
    /// The last bytes, the footer page last.
    pub(crate) tail: Vec<u8>,
}

impl Ends {
    /// Takes them from a whole file.
    pub(crate) fn of(bytes: &[u8], tail: Range<u64>) -> Self {
        let tail = bytes[tail.start as usize..tail.end as usize].to_vec();
        Self { len: bytes.len() as u64, header: bytes[..PAGE_SIZE].to_vec(), tail }
    }

    /// The footer page.
    pub(crate) fn footer(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(PAGE_SIZE)..]
    }
}

/// The bytes of a bundle.
pub(crate) fn encode(files: &[Ends]) -> Vec<u8> {
    let mut raw = Vec::new();
    for file in files {
        put_varint(&mut raw, file.len);
        put_varint(&mut raw, file.tail.len() as u64);
        raw.extend_from_slice(&file.header);
        raw.extend_from_slice(&file.tail);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    let packed = zstd::bulk::compress(&raw, LEVEL).expect("a buffer of the right size is enough for zstd");
    bytes.extend_from_slice(&packed);
    bytes
}

/// Reads the bytes of a bundle.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Ends>, &'static str> {
    if bytes.len() < HEAD_LEN || bytes[..8] != MAGIC {
        return Err("it is no bundle");
    }
    if u32_at(bytes, 8) != Some(VERSION) || u32_at(bytes, 12) != Some(0) {
        return Err("it has another format version");
    }
    let mut raw = Vec::new();
    let packed =
        zstd::stream::Decoder::with_buffer(&bytes[HEAD_LEN..]).map_err(|_| "it does not decompress")?;
    packed.take(RAW_LEN_MAX).read_to_end(&mut raw).map_err(|_| "it does not decompress")?;
    let (mut files, mut at) = (Vec::new(), 0);
    while at < raw.len() {
        files.push(decode_file(&raw, &mut at).ok_or("a field is wrong")?);
    }
    Ok(files)
}

fn decode_file(raw: &[u8], at: &mut usize) -> Option<Ends> {
    let len = take_varint(raw, at)?;
    let tail_len = usize::try_from(take_varint(raw, at)?).ok()?;
    let mut take = |len: usize| {
        let taken = raw.get(*at..at.checked_add(len)?)?.to_vec();
        *at += len;
        Some(taken)
    };
    let (header, tail) = (take(PAGE_SIZE)?, take(tail_len)?);
    (tail_len >= PAGE_SIZE && (PAGE_SIZE + tail_len) as u64 <= len).then_some(Ends { len, header, tail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::DOC;

    fn sample() -> Vec<Ends> {
        let file = |pages: usize, tail: u64| {
            let bytes: Vec<u8> = (0..pages * PAGE_SIZE).map(|i| (i / PAGE_SIZE) as u8).collect();
            Ends::of(&bytes, tail * PAGE_SIZE as u64..bytes.len() as u64)
        };
        vec![file(4, 2), file(2, 1)]
    }

    #[test]
    fn a_bundle_reads_back() {
        for files in [Vec::new(), sample()] {
            assert_eq!(decode(&encode(&files)).unwrap(), files);
        }
        assert_eq!(sample()[0].footer(), [3; PAGE_SIZE]);
    }

    #[test]
    fn the_document_has_the_layout() {
        DOC.check_layout(
            "## A bundle: `b/<hash>`",
            &[(0, "magic"), (8, "format version"), (12, "reserved"), (HEAD_LEN, "files")],
            None,
        );
        DOC.check_versions("### Versions", &[(VERSION, "the first")]);
        let rows = DOC.table("## A bundle: `b/<hash>`", "offset");
        let magic = MAGIC.map(|byte| format!("{byte:02X}")).join(" ");
        assert!(rows[0][4].starts_with(&format!("`{magic}`")));
        assert_eq!(rows[1][4], VERSION.to_string());
    }

    #[test]
    fn damage_is_an_error_or_other_bytes_and_never_a_panic() {
        let bytes = encode(&sample());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err() || at == HEAD_LEN, "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x15;
            // The hash in the name of a bundle says whether its bytes are right.
            let _ = decode(&damaged);
        }
    }
}
