//! What opening reads of all files of a generation, in one object: of each file its header page and its tail.
//!
//! Opened one by one, 260 segments would be 1,560 requests; opened from here they are one. The bytes are described in `FORMAT.md`
//! beside this file.

use std::io::Read;
use std::ops::Range;

use icecore_segments::bytes::{VARINT_LEN_MAX, put_varint, take_varint, u32_at};
use icecore_segments::frame::PAGE_SIZE;

use crate::remote::names::Hash;

pub(crate) const MAGIC: [u8; 8] = *b"\x8AICB\r\n\x1A\n";
/// The format version that is written.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEAD_LEN: usize = 16;

/// The longest bundle that is read, as stored.
pub(crate) const LEN_MAX: u64 = 1 << 32;

/// What a bundle is read to, decompressed, besides what each of its bytes and each of its files may come to.
const RAW_LEN_FREE: u64 = 64 << 20;

/// The most that a stored byte may come to: tables of blocks that are all the same become as small as that.
const RAW_PER_BYTE: u64 = 1 << 10;

/// The same of a file: header, footer, a dictionary of 16 KiB and two lengths.
const RAW_PER_FILE: u64 = 28 << 10;

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
    /// Bytes that they take of a cache.
    pub(crate) fn kept(&self) -> u64 {
        (self.header.len() + self.tail.len()) as u64
    }

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

/// What a generation says of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) len: u64,
    /// The hash of its footer page.
    pub(crate) id: Hash,
}

/// Reads the bytes of a bundle of these files, in their order.
///
/// No more of it is decompressed than they can have, and none beyond the first that is not what the generation says: a few bytes of zstd
/// may stand for any number.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(bytes: &[u8], files: &[Named]) -> Result<Vec<Ends>, &'static str> {
    if bytes.len() < HEAD_LEN || bytes[..8] != MAGIC {
        return Err("it is no bundle");
    }
    if u32_at(bytes, 8) != Some(VERSION) || u32_at(bytes, 12) != Some(0) {
        return Err("it has another format version");
    }
    let packed = &bytes[HEAD_LEN..];
    let raw = zstd::stream::Decoder::with_buffer(packed).map_err(|_| "it does not decompress")?;
    let mut raw = raw.take(raw_len_max(packed.len() as u64, files).saturating_add(1));
    let ends = files.iter().map(|named| decode_file(&mut raw, named)).collect::<Result<Vec<_>, _>>()?;
    match raw.read(&mut [0]) {
        Ok(0) => Ok(ends),
        Ok(_) => Err(OTHER_FILES),
        Err(_) => Err("it does not decompress"),
    }
}

const OTHER_FILES: &str = "it is of other files than the generation names";

/// The most bytes that a bundle of these files has decompressed, as far as what it takes shows it and what they say of themselves.
fn raw_len_max(packed: u64, files: &[Named]) -> u64 {
    let of_files =
        files.iter().fold(0u64, |sum, file| sum.saturating_add(file.len).saturating_add(RAW_PER_FILE));
    let of_bytes = packed.saturating_mul(RAW_PER_BYTE).saturating_add(RAW_LEN_FREE);
    of_files.min(of_bytes.saturating_add(files.len() as u64 * RAW_PER_FILE))
}

/// Reads what there is of the next file.
fn decode_file(raw: &mut impl Read, named: &Named) -> Result<Ends, &'static str> {
    let len = read_varint(raw)?;
    let tail_len = read_varint(raw)?;
    if len != named.len {
        return Err(OTHER_FILES);
    }
    let page = PAGE_SIZE as u64;
    if tail_len < page || tail_len > len.saturating_sub(page) {
        return Err("the length of a tail is wrong");
    }
    let header = read_bytes(raw, page)?;
    let ends = Ends { len, header, tail: read_bytes(raw, tail_len)? };
    let is_named = *blake3::hash(ends.footer()).as_bytes() == named.id;
    if is_named { Ok(ends) } else { Err(OTHER_FILES) }
}

/// Takes no more memory than there are bytes, whatever length is said.
fn read_bytes(raw: &mut impl Read, len: u64) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::new();
    raw.take(len).read_to_end(&mut bytes).map_err(|_| "it does not decompress")?;
    if bytes.len() as u64 == len {
        Ok(bytes)
    } else {
        Err("it ends early, or is longer than its files can be")
    }
}

fn read_varint(raw: &mut impl Read) -> Result<u64, &'static str> {
    let mut bytes = Vec::with_capacity(VARINT_LEN_MAX);
    while bytes.len() < VARINT_LEN_MAX && bytes.last().is_none_or(|last| last & 0x80 != 0) {
        bytes.extend(read_bytes(raw, 1)?);
    }
    take_varint(&bytes, &mut 0).ok_or("a length is wrong")
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

    fn named(files: &[Ends]) -> Vec<Named> {
        let of = |file: &Ends| Named { len: file.len, id: *blake3::hash(file.footer()).as_bytes() };
        files.iter().map(of).collect()
    }

    #[test]
    fn a_bundle_of_other_files_is_refused() {
        let (files, bytes) = (sample(), encode(&sample()));
        let right = named(&files);
        for (what, other) in [
            ("fewer", right[..1].to_vec()),
            ("more", [&right[..], &right[..1]].concat()),
            ("another order", vec![right[1], right[0]]),
            ("another length", vec![Named { len: right[0].len + 4096, ..right[0] }, right[1]]),
            ("another footer", vec![Named { id: [7; 32], ..right[0] }, right[1]]),
        ] {
            assert!(decode(&bytes, &other).is_err(), "{what}");
        }
    }

    /// What decompresses to `len` zeros after some bytes.
    fn bomb(begin: &[u8], len: u64) -> Vec<u8> {
        let mut packed = zstd::stream::Encoder::new(encode(&[])[..HEAD_LEN].to_vec(), 1).unwrap();
        std::io::copy(&mut begin.chain(std::io::repeat(0).take(len)), &mut packed).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn a_bundle_is_decompressed_as_far_as_its_files_can_need() {
        let mut begin = Vec::new();
        for number in [1 << 40, (1 << 40) - PAGE_SIZE as u64] {
            put_varint(&mut begin, number);
        }
        let bytes = bomb(&begin, 1 << 28);
        assert!(bytes.len() < 64 << 10, "{}", bytes.len());
        // A length that the generation does not name, one that it does, and no file at all.
        for (files, max) in [
            (vec![Named { len: 8192, id: [0; 32] }], 8192 + RAW_PER_FILE),
            (
                vec![Named { len: 1 << 40, id: [0; 32] }],
                RAW_LEN_FREE + 64 * RAW_PER_BYTE * 1024 + RAW_PER_FILE,
            ),
            (vec![], 0),
        ] {
            assert!(raw_len_max(bytes.len() as u64, &files) <= max, "{files:?}");
            assert!(decode(&bytes, &files).is_err(), "{files:?}");
        }
        assert!(raw_len_max(1 << 20, &[Named { len: u64::MAX, id: [0; 32] }; 3]) < 1200 << 20);
        // What is packed as small as anything that is sound comes out.
        let same = vec![sample().remove(0); 2_000];
        assert_eq!(decode(&encode(&same), &named(&same)).unwrap(), same);
    }

    #[test]
    fn a_bundle_reads_back() {
        for files in [Vec::new(), sample()] {
            assert_eq!(decode(&encode(&files), &named(&files)).unwrap(), files);
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
        let (bytes, named) = (encode(&sample()), named(&sample()));
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], &named).is_err(), "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x15;
            // The hash in the name of a bundle says whether its bytes are right.
            let _ = decode(&damaged, &named);
        }
    }
}
