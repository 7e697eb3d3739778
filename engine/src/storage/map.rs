//! A file as bytes: a mapping of the operating system, or of memory where a simulated disk stands in.
//!
//! The only unsafe code of this crate. [`OsStorage`](super::os::OsStorage) makes the mappings; segments and accessors
//! are views over them and outlive the file's name, never its bytes.
//!
//! Cost: mapping reads nothing. A page is read by the first touch, at one fault; an I/O error of the disk arrives then,
//! as a signal that ends the process, not as an error value.

#![expect(
    unsafe_code,
    reason = "mapping a file is unsafe: the argument why this one is sound stands at the call"
)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use icecore_index::PrefetchHint;
use icecore_segments::{Blob, Error as FileError, FileBytes};
use memmap2::{Advice, Mmap, UncheckedAdvice};

#[cfg(feature = "object-store")]
use {crate::remote_error::RemoteError, icecore_segments::checksum::PAGE_SIZE};

const CACHE_LINE: usize = 64;

/// How a mapping will be read, which decides the read-ahead of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// One page here, one there: no read-ahead, so that a lookup costs the pages it touches and no others.
    Random,
    /// From front to back, once: far read-ahead. For merges and verify.
    Sequential,
}

/// The bytes of an immutable file.
///
/// A clone is a second handle to the same mapping; the last one to go unmaps it. Stays valid when the
/// file is renamed, replaced or removed.
#[derive(Clone)]
pub struct Mapping {
    source: Source,
    /// Where pages come from that are not here yet.
    #[cfg(feature = "object-store")]
    origin: Option<Arc<dyn Origin>>,
}

/// Fills a sparse file that is mapped, a page when it is first needed.
#[cfg(feature = "object-store")]
pub(crate) trait Origin: Send + Sync {
    /// Whether a page is here. It is not written again then, unless it turns out to be damaged.
    fn has_page(&self, number: u64) -> bool;

    /// Begins to bring what is not here of a byte range, and returns at once.
    fn begin(&self, range: Range<u64>);

    /// Brings a page that is not here or damaged, and waits for it.
    fn bring_page(&self, number: u64) -> Result<(), RemoteError>;

    /// An empty file of the same bytes, mapped.
    fn renewed(&self) -> Result<Mapping, crate::error::Error>;

    /// Brings bytes that are no pages with checksums of their own, and waits for them: they are known by a CRC-64/NVME.
    fn bring_bytes(&self, range: Range<u64>, checksum: u64) -> Result<(), RemoteError>;
}

#[derive(Clone)]
enum Source {
    File(Arc<Mmap>),
    Memory(Arc<[u8]>),
}

impl Mapping {
    /// Maps a whole file that was opened for reading.
    ///
    /// # Errors
    /// Whatever the system says to reading the length or to the mapping. A refused read-ahead hint is no error.
    pub(super) fn of_file(file: &File, access: Access) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            // POSIX: "If len is zero, mmap() shall fail and no mapping shall be established."
            return Ok(Self::from(Arc::from([])));
        }
        // SAFETY: memmap2 asks of the caller that "the underlying file is [not] subsequently modified, in or out of
        // process". What this project does to a file that it maps:
        // - it is written under a name that `create_new` made, so no second writer of ours can have it open, and it is
        //   mapped only after its writer was synced and dropped; nothing in the crate opens it for writing again
        //   (`Storage::append`, the one way to, is for logs, and logs are read by `Storage::read`, never mapped);
        // - `Storage::lock` keeps a second engine from writing to the directory at all;
        // - a file that is no longer needed is unlinked, never cut; an unlinked file keeps its bytes for as long as a
        //   mapping lives. A rename over it does the same.
        // What another program may do is accepted and stated: if it truncates the file, touching a page that is gone
        // raises SIGBUS ("attempted access to a page of the buffer that lies beyond the end of the mapped file",
        // mmap(2)) and the process dies; if it writes into the file, readers may see the new bytes. The files' owner
        // is the archive's owner; against accidents there are the page checksums, which are compared before a page is
        // believed.
        // A sparse file that caches an object (`Origin`) is written while it is mapped, but no page of it that is read:
        // a page is not touched before it was written whole, and is written again only where its checksum does not hold,
        // so that nobody has taken anything from it. Its length never changes.
        let mmap = unsafe { Mmap::map(file) }?;
        let advice = match access {
            Access::Random => Advice::Random,
            Access::Sequential => Advice::Sequential,
        };
        // A hint: without it every answer is the same, only the read-ahead is the default one. Some file systems
        // refuse it, and that must not make an archive unreadable.
        let _ = mmap.advise(advice);
        Ok(Self::of(Source::File(Arc::new(mmap))))
    }

    /// Maps a sparse file of full length that `origin` fills.
    ///
    /// # Errors
    /// As [`Mapping::of_file`].
    #[cfg(feature = "object-store")]
    pub(super) fn of_sparse_file(file: &File, origin: Arc<dyn Origin>) -> io::Result<Self> {
        Ok(Self { origin: Some(origin), ..Self::of_file(file, Access::Random)? })
    }

    /// The same bytes in an empty file; the mapping itself where they are on a disk of this machine.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) of the cache.
    #[cfg(feature = "object-store")]
    pub(crate) fn renewed(&self) -> Result<Self, crate::error::Error> {
        self.origin.as_ref().map_or_else(|| Ok(self.clone()), |origin| origin.renewed())
    }

    /// Brings every page that is not here.
    ///
    /// # Errors
    /// That of the first which cannot be brought.
    #[cfg(feature = "object-store")]
    pub(crate) fn bring_all(&self) -> Result<(), RemoteError> {
        let Some(origin) = &self.origin else { return Ok(()) };
        let pages = 0..(self.as_ref().len() / PAGE_SIZE) as u64;
        pages.filter(|page| !origin.has_page(*page)).try_for_each(|page| origin.bring_page(page))
    }

    /// Whether pages that are not here come over a network: then those that will be needed are worth planning.
    #[inline]
    #[cfg_attr(
        not(feature = "object-store"),
        expect(clippy::unused_self, reason = "without the feature all is here")
    )]
    pub(crate) fn is_elsewhere(&self) -> bool {
        #[cfg(feature = "object-store")]
        return self.origin.is_some();
        #[cfg(not(feature = "object-store"))]
        false
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            #[cfg(feature = "object-store")]
            origin: None,
        }
    }

    /// Has a value that is outside its page read, all of it: page by page each would be waited for.
    ///
    /// # Errors
    /// [`FileError::Absent`] where it is elsewhere and cannot be brought.
    #[cfg_attr(
        not(feature = "object-store"),
        expect(clippy::unnecessary_wraps, reason = "only what is elsewhere can be out of reach")
    )]
    pub(crate) fn fetch_value(&self, blob: &Blob<'_>) -> Result<(), FileError> {
        #[cfg(feature = "object-store")]
        if let Some(origin) = &self.origin {
            let brought = origin.bring_bytes(blob.file_range(), blob.checksum());
            return brought.map_err(|error| FileError::Absent(error.into()));
        }
        self.will_need(blob.file_range());
        Ok(())
    }

    /// Has the kernel read the pages of a byte range, all at once, and returns without waiting for them. For a reader that is
    /// about to touch several pages: their reads overlap. What is outside the file is left out.
    pub fn will_need(&self, range: Range<u64>) {
        #[cfg(feature = "object-store")]
        if let Some(origin) = &self.origin {
            return origin.begin(range);
        }
        let Source::File(mmap) = &self.source else { return };
        let len = mmap.len() as u64;
        let (start, end) = (range.start.min(len), range.end.min(len));
        if start < end {
            // memmap2 widens the range to whole pages. A hint: where it fails, the touch that follows reads the
            // page all the same, or reports what is wrong with it.
            let _ = mmap.advise_range(Advice::WillNeed, start as usize, (end - start) as usize);
        }
    }
}

impl Mapping {
    /// Has what `touch` touches of the file read and mapped in huge pages, where the file system has them: for a file that is read as a
    /// whole. What was read before stays as it is. Afterwards what is mapped stays mapped so, but a touch of what was evicted meanwhile
    /// reads a page of 4096 bytes again and not two megabytes.
    pub(crate) fn in_huge_pages(&self, touch: impl FnOnce()) {
        // Hints: a kernel that is built without them refuses, and pages stay small.
        #[cfg(target_os = "linux")]
        let advise = |advice| {
            if let Source::File(mmap) = &self.source {
                let _ = mmap.advise(advice);
            }
        };
        #[cfg(target_os = "linux")]
        advise(Advice::HugePage);
        touch();
        #[cfg(target_os = "linux")]
        advise(Advice::NoHugePage);
    }
}

/// Asks for many ranges of one file, in the order of their places: no page twice, and neighbours in one request.
///
/// A request costs a system call, whether or not its pages are in memory: half a microsecond for each key of a batch
/// would be a tenth of its time. What was asked for last is requested when it turns out to be no neighbour of the next,
/// or at the end.
#[derive(Debug)]
pub(crate) struct ReadaheadBatch<'m> {
    mapping: &'m Mapping,
    last: Range<u64>,
}

impl<'m> ReadaheadBatch<'m> {
    pub(crate) fn new(mapping: &'m Mapping) -> Self {
        Self { mapping, last: 0..0 }
    }

    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.start >= self.last.start && range.start <= self.last.end {
            self.last.end = self.last.end.max(range.end);
        } else {
            self.mapping.will_need(std::mem::replace(&mut self.last, range));
        }
    }
}

impl Drop for ReadaheadBatch<'_> {
    fn drop(&mut self) {
        self.mapping.will_need(self.last.clone());
    }
}

impl Mapping {
    /// Asks for what an accessor says it will touch: from memory or from the disk.
    #[inline]
    pub fn prefetch(&self, hint: PrefetchHint) {
        match hint {
            PrefetchHint::Line(at) => self.as_ref().get(at as usize).into_iter().for_each(prefetch_line),
            PrefetchHint::Page(page) => self.will_need(page),
        }
    }

    /// Asks for the cache lines of a byte range from memory. What is outside the file is left out.
    #[inline]
    pub(crate) fn prefetch_lines(&self, range: Range<u64>) {
        let bytes = self.as_ref().get(range.start as usize..).unwrap_or_default();
        let len = bytes.len().min(range.end.saturating_sub(range.start) as usize);
        // Four at a time: a step costs two instructions, a line one.
        let (fours, rest) = bytes[..len].as_chunks::<{ 4 * CACHE_LINE }>();
        for four in fours {
            for line in 0..4 {
                prefetch_line(&four[line * CACHE_LINE]);
            }
        }
        rest.iter().step_by(CACHE_LINE).for_each(prefetch_line);
    }

    /// Releases the pages that were read, so that they no longer count as memory of this process; the next touch brings them back,
    /// from the page cache if they are still there. For passes over whole files, whose memory would grow with the file.
    pub fn advise_dont_need(&self) {
        let Source::File(mmap) = &self.source else { return };
        // SAFETY: what makes `DontNeed` unchecked is that it "may discard" bytes written to a mapping. This one is a
        // read-only mapping of a file: "subsequent accesses of pages in the range will succeed, but will result in ...
        // repopulating the memory contents from the up-to-date contents of the underlying mapped file" (madvise(2)),
        // so every reference keeps reading the same bytes.
        let released = unsafe { mmap.unchecked_advise(UncheckedAdvice::DontNeed) };
        // A hint: where it fails, the pages stay counted until the mapping goes.
        let _ = released;
    }
}

/// Asks the CPU to fetch the cache line of a byte and returns at once. For a reader that knows where it will look next: the line
/// comes while it does something else.
///
/// Nothing is read from the disk for it: where the page is not mapped the wish is dropped.
#[inline]
pub(crate) fn prefetch_line(byte: &u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint: it reads nothing into the program and cannot fault, whatever the address; this one is of
        // a byte that is borrowed. SSE, which it belongs to, is part of every x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}

/// Bytes in memory that behave as a mapped file: what a simulated disk hands out.
impl From<Arc<[u8]>> for Mapping {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::of(Source::Memory(bytes))
    }
}

impl FileBytes for Mapping {
    #[cfg(feature = "object-store")]
    #[inline]
    fn has_page(&self, number: u64) -> bool {
        self.origin.as_ref().is_none_or(|origin| origin.has_page(number))
    }

    #[cfg(feature = "object-store")]
    fn bring_page(&self, number: u64) -> Result<(), FileError> {
        let brought = self.origin.as_ref().map_or(Ok(()), |origin| origin.bring_page(number));
        brought.map_err(|error| FileError::Absent(error.into()))
    }
}

impl AsRef<[u8]> for Mapping {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.source {
            Source::File(mmap) => mmap,
            Source::Memory(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.as_ref().len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn mapped(bytes: &[u8], access: Access) -> Mapping {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Mapping::of_file(&file, access).unwrap()
    }

    #[test]
    fn a_mapping_has_the_bytes_of_the_file_at_every_length() {
        for len in [0, 1, 4095, 4096, 4097, 3 * 4096] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            for access in [Access::Random, Access::Sequential] {
                let mapping = mapped(&bytes, access);
                assert_eq!(mapping.as_ref(), bytes);
                assert_eq!(
                    mapping.clone().as_ref().as_ptr(),
                    mapping.as_ref().as_ptr(),
                    "a clone is a handle"
                );
            }
            assert_eq!(Mapping::from(Arc::from(bytes.as_slice())).as_ref(), bytes);
        }
    }

    #[test]
    fn fetching_any_range_is_harmless() {
        let bytes = [7; 2 * 4096 + 5];
        for mapping in
            [mapped(&bytes, Access::Random), mapped(&[], Access::Random), Mapping::from(Arc::from([1]))]
        {
            let before = mapping.as_ref().to_vec();
            for (start, end) in
                [(0, 1), (4000, 5000), (8192, 8197), (0, u64::MAX), (u64::MAX, 3), (8197, 9000)]
            {
                mapping.will_need(start..end);
                mapping.prefetch(PrefetchHint::Line(start));
                mapping.prefetch_lines(start..end);
                mapping.in_huge_pages(|| ());
            }
            assert_eq!(mapping.as_ref(), before);
        }
    }
}
