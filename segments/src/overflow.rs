//! Values too large for a page: each compressed on its own, gathered into runs between data pages.
//!
//! A reference in a page names an offset in the *logical* overflow space: all runs one after the other,
//! without the padding between them. The run table, read at open, maps it to the file. So a reference is final
//! before its run is written, and a merge copies stored bytes as they are.

use std::io::{self, Read, Write};

use zstd::zstd_safe::{CCtx, CParameter, compress_bound};

use std::ops::Range;

use crate::bytes::{u32_at, u64_at};
use crate::checksum::crc64;
use crate::error::{Corruption, Error, Part, Reason};
use crate::frame::{FrameWriter, PAGE_SIZE};

/// The longest value that is kept inside its page, in bytes. A longer one goes to the overflow space.
///
/// A quarter of a page: entries of this size still fill pages to three quarters.
pub const VALUE_INLINE_MAX: usize = 1024;

/// The longest value, in bytes.
pub const VALUE_LEN_MAX: u64 = 1 << 30;

/// A run is written once it has this many bytes: what a builder holds of large values, besides the largest one.
pub const RUN_LEN: usize = 8 << 20;

/// The level at which overflow values are compressed.
///
/// Contract code (18 values of `eth-mainnet-bal` of 1 to 24 KB, each on its own): level 3 leaves 69 %, level 9
/// leaves 68 % at a fifth of the speed, level 19 leaves 67 % at a fortieth.
const LEVEL: i32 = 3;

/// The largest window that a stored value may ask of its reader, as a power of two: 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// A decoded length up to which memory is set aside at once; beyond, it grows with what really decodes.
const TRUSTED_LEN: usize = 1 << 20;

/// The bytes of one run in the run table.
pub(crate) const RUN_ENTRY_LEN: usize = 16;

/// A value that is outside its page, as it is stored. Borrows from the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob<'a> {
    stored: &'a [u8],
    raw_len: u32,
    checksum: u64,
    offset: u64,
}

impl<'a> Blob<'a> {
    /// The bytes as they are in the file.
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// The bytes of the file that it takes: what to have fetched before it is loaded.
    pub fn file_range(&self) -> Range<u64> {
        self.offset..self.offset + self.stored.len() as u64
    }

    /// CRC-64/NVME of the stored bytes, as the entry gives it.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// The length of the value in bytes.
    pub fn raw_len(&self) -> u64 {
        u64::from(self.raw_len)
    }

    /// Whether the stored bytes are a zstd frame. Stored as they are otherwise.
    pub fn is_compressed(&self) -> bool {
        self.stored.len() < self.raw_len as usize
    }

    /// Whether the stored bytes have the checksum that their entry gives.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when they do not.
    pub fn check(&self) -> Result<(), Error> {
        if crc64(self.stored) == self.checksum { Ok(()) } else { Err(self.damaged(Reason::Checksum)) }
    }

    /// Checks and decodes the value.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the checksum does not hold or the bytes do not decode to the stated length.
    pub fn load(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        if !self.is_compressed() {
            return Ok(self.stored.to_vec());
        }
        let value = self.decode().map_err(|_| self.damaged(Reason::Decode))?;
        if value.len() == self.raw_len as usize { Ok(value) } else { Err(self.damaged(Reason::Length)) }
    }

    fn decode(&self) -> io::Result<Vec<u8>> {
        let raw_len = self.raw_len as usize;
        if raw_len <= TRUSTED_LEN {
            return zstd::bulk::decompress(self.stored, raw_len);
        }
        let mut decoder = zstd::Decoder::with_buffer(self.stored)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        let mut value = Vec::with_capacity(TRUSTED_LEN);
        decoder.take(self.raw_len() + 1).read_to_end(&mut value)?;
        Ok(value)
    }

    fn damaged(&self, reason: Reason) -> Error {
        Corruption { part: Part::Overflow, offset: self.offset, reason }.into()
    }
}

/// The bytes of a reference to an overflow value.
pub(crate) const OVERFLOW_REF_LEN: usize = 24;

/// Where an overflow value is, as its entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverflowRef {
    /// The offset in the logical overflow space: all runs, one after the other, without padding.
    pub(crate) offset: u64,
    pub(crate) stored_len: u32,
    pub(crate) raw_len: u32,
    /// CRC-64/NVME of the stored bytes.
    pub(crate) checksum: u64,
}

impl OverflowRef {
    pub(crate) fn encode(&self) -> [u8; OVERFLOW_REF_LEN] {
        let mut bytes = [0; OVERFLOW_REF_LEN];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (stored_len, raw_len) = (u32_at(bytes, 8)?, u32_at(bytes, 12)?);
        let sound = raw_len as usize > VALUE_INLINE_MAX
            && u64::from(raw_len) <= VALUE_LEN_MAX
            && (1..=raw_len).contains(&stored_len);
        sound.then_some(Self { offset: u64_at(bytes, 0)?, stored_len, raw_len, checksum: u64_at(bytes, 16)? })
    }
}

/// One run: where among the data pages, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The data pages in front of it.
    pub(crate) pages_before: u64,
    /// The bytes of its values, without padding.
    pub(crate) len: u64,
}

impl Run {
    fn pages(&self) -> u64 {
        self.len.div_ceil(PAGE_SIZE as u64)
    }
}

/// Gathers overflow values while a segment is built.
pub(crate) struct OverflowBuilder {
    pending: Vec<u8>,
    /// The logical length of the space, pending bytes included.
    len: u64,
    runs: Vec<Run>,
    context: CCtx<'static>,
}

impl OverflowBuilder {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(zstd_error)?;
        Ok(Self { pending: Vec::new(), len: 0, runs: Vec::new(), context })
    }

    /// Stores a value, compressed where that makes it smaller.
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<OverflowRef, Error> {
        let start = self.pending.len();
        self.pending.resize(start + compress_bound(value.len()), 0);
        let compressed = self.context.compress2(&mut self.pending[start..], value);
        let stored_len = compressed.map_err(zstd_error)?;
        self.pending.truncate(start + stored_len);
        if stored_len >= value.len() {
            self.pending.truncate(start);
            self.pending.extend_from_slice(value);
        }
        Ok(self.reference(start, value.len() as u32))
    }

    /// Stores a value of another segment as it is.
    pub(crate) fn push_blob(&mut self, blob: &Blob<'_>) -> Result<OverflowRef, Error> {
        blob.check()?;
        let start = self.pending.len();
        self.pending.extend_from_slice(blob.stored);
        Ok(self.reference(start, blob.raw_len))
    }

    fn reference(&mut self, start: usize, raw_len: u32) -> OverflowRef {
        let stored = &self.pending[start..];
        let (stored_len, offset) = (stored.len() as u32, self.len);
        self.len += u64::from(stored_len);
        OverflowRef { offset, stored_len, raw_len, checksum: crc64(stored) }
    }

    /// The stored bytes of all values so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_run_full(&self) -> bool {
        self.pending.len() >= RUN_LEN
    }

    /// Writes what is pending as a run after `pages` data pages.
    pub(crate) fn write_run<W: Write>(
        &mut self,
        writer: &mut FrameWriter<W>,
        pages: u64,
    ) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        writer.write_raw(&self.pending)?;
        writer.pad()?;
        self.runs.push(Run { pages_before: pages, len: self.pending.len() as u64 });
        self.pending.clear();
        self.pending.shrink_to(2 * RUN_LEN);
        Ok(())
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }
}

/// What the run table of a finished segment looks like in the file.
pub(crate) fn encode_runs(runs: &[Run]) -> Vec<u8> {
    runs.iter().flat_map(|run| [run.pages_before, run.len]).flat_map(u64::to_le_bytes).collect()
}

/// The run table of an open segment.
#[derive(Debug, Default)]
pub(crate) struct RunTable {
    runs: Vec<PlacedRun>,
}

#[derive(Clone, Copy, Debug)]
struct PlacedRun {
    pages_before: u64,
    /// The pages of this run and all before it.
    run_pages: u64,
    /// Where it begins in the logical space, in the file, and how long it is.
    logical: u64,
    offset: u64,
    len: u64,
}

impl RunTable {
    /// Reads the table of a segment with `pages` data pages. `None`: not what a builder writes.
    pub(crate) fn parse(bytes: &[u8], pages: u64) -> Option<Self> {
        let mut runs: Vec<PlacedRun> = Vec::with_capacity(bytes.len() / RUN_ENTRY_LEN);
        let (mut run_pages, mut logical, mut least) = (0u64, 0u64, 0);
        for entry in bytes.chunks(RUN_ENTRY_LEN) {
            let run = Run { pages_before: u64_at(entry, 0)?, len: u64_at(entry, 8)? };
            // A value of the greatest length after a run that is almost full is the most a builder writes.
            let len_max = RUN_LEN as u64 + VALUE_LEN_MAX;
            if run.pages_before < least || run.pages_before > pages || run.len == 0 || run.len > len_max {
                return None;
            }
            let offset = (1 + run.pages_before + run_pages).checked_mul(PAGE_SIZE as u64)?;
            run_pages += run.pages();
            let (pages_before, len) = (run.pages_before, run.len);
            runs.push(PlacedRun { pages_before, run_pages, logical, offset, len });
            logical += run.len;
            least = run.pages_before;
        }
        Some(Self { runs })
    }

    /// The file page of a data page.
    #[inline]
    pub(crate) fn file_page(&self, page: u64) -> u64 {
        if self.runs.is_empty() {
            return page + 1;
        }
        let before = self.runs.partition_point(|run| run.pages_before <= page);
        page + 1 + before.checked_sub(1).map_or(0, |last| self.runs[last].run_pages)
    }

    /// The pages of all runs.
    pub(crate) fn pages(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.run_pages)
    }

    /// The bytes of the logical space.
    pub(crate) fn len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.logical + run.len)
    }

    /// The offset in the file of a stored value; `None` where it is in no run.
    pub(crate) fn locate(&self, value: &OverflowRef) -> Option<u64> {
        let index = self.runs.partition_point(|run| run.logical <= value.offset).checked_sub(1)?;
        let run = &self.runs[index];
        let inside = value.offset - run.logical;
        let end = inside.checked_add(u64::from(value.stored_len))?;
        (end <= run.len).then_some(run.offset + inside)
    }

    /// The padding after each run, as a range of the file.
    pub(crate) fn paddings(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|run| {
            let end = run.offset + run.len;
            (end, end.next_multiple_of(PAGE_SIZE as u64))
        })
    }
}

/// Gives the value that a reference names in the bytes of a whole file.
pub(crate) fn blob_at<'a>(data: &'a [u8], table: &RunTable, value: &OverflowRef) -> Option<Blob<'a>> {
    let offset = table.locate(value)?;
    let stored = data.get(offset as usize..)?.get(..value.stored_len as usize)?;
    Some(Blob { stored, raw_len: value.raw_len, checksum: value.checksum, offset })
}

/// A compressor that refuses is out of memory or out of its limits: an error of the environment.
pub(crate) fn zstd_error(code: usize) -> Error {
    io::Error::other(zstd::zstd_safe::get_error_name(code)).into()
}
