//! Reads a segment from its bytes, wherever they are: mapped, in memory, or fetched.

use std::hint::black_box;
use std::ops::Range;

use zstd::zstd_safe::DDict;

use crate::checksum::{PageChecks, Salt, crc64, is_sealed};
use crate::codec::{DICTIONARY_LEN_MAX, PageBuf};
use crate::entry::{Value, Version};
use crate::error::{Corruption, Error, Part, Reason};
use crate::file_bytes::FileBytes;
use crate::find::{Found, find};
use crate::frame::{Frame, Kind, PAGE_SIZE};
use crate::overflow::{Blob, OverflowRef, RUN_ENTRY_LEN, RunTable, blob_at};
use crate::page::{Lookup, Page, Shape, Stored, damaged};
use crate::page_builder::GROUP_IDEAL;
use crate::page_header::{PAGE_HEADER_LEN, PageHeader};
use crate::span::PageSpan;
use crate::step::BlockNumber;
use crate::summary::{Located, SegmentSummary, Tables};

const CACHE_LINE: usize = 64;

/// How many cache lines of a page are asked for at once: those of the columns.
const LINES_ASKED: usize = 8;

/// How far, in bytes, an entry is mostly at most from where it would be if all were as long as the mean.
const GUESS_SLACK: u64 = 128;

/// A segment, open for reading. Shared by any number of threads where `D` can be.
///
/// Holds the summary, the run table, the dictionary, and one bit per page; everything else stays in `data`.
pub struct Segment<D> {
    data: D,
    salt: Salt,
    summary: SegmentSummary,
    runs: RunTable,
    dictionary: Option<DDict<'static>>,
    checks: PageChecks,
    /// The mean of the bytes that an entry takes in a page, its columns left out.
    entry_len: u64,
}

/// The block of a version in a page, and its value, unless that is a deletion.
pub type PlainVersion<'a> = (BlockNumber, Option<&'a [u8]>);

/// A page whose checksum held. Its body is in the segment, or in the [`PageBuf`] that it was loaded with.
#[derive(Clone, Copy)]
pub(crate) struct Loaded<'s> {
    pub(crate) shape: Shape,
    pub(crate) plain: Option<&'s [u8]>,
}

impl<'s> Loaded<'s> {
    #[inline]
    pub(crate) fn page<'a>(&self, buf: &'a PageBuf) -> Page<'a>
    where
        's: 'a,
    {
        Page::with_shape(self.shape, self.plain.unwrap_or_else(|| buf.body()))
    }
}

impl<D: FileBytes> Segment<D> {
    /// Opens a segment: reads header, footer, run table and dictionary, and no data page.
    ///
    /// # Cost
    /// Two pages, and the tables where there are any: 16 bytes per 8 MiB of large values, a dictionary of at most 16 KiB.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the part that is damaged, [`Error::Unsupported`] for a newer version,
    /// [`Error::Mismatch`] for a file of another kind.
    pub fn open(data: D) -> Result<Self, Error> {
        let bytes = data.as_ref();
        let frame = Frame::parse(bytes, Kind::Segment)?;
        let footer_at = frame.summary.len - PAGE_SIZE as u64;
        let footer = |reason| Error::from(Corruption { part: Part::Footer, offset: footer_at, reason });
        let (domain, steps) = (&frame.header.domain, frame.header.steps);
        let (summary, tables) = SegmentSummary::parse(frame.payload, frame.summary, domain, steps)
            .ok_or_else(|| footer(Reason::Field))?;
        let Tables { runs, dictionary } = tables;
        // Header, data pages, runs, run table, dictionary, footer, each on its own pages, nothing between.
        let run_bytes = located(bytes, &runs, Part::RunTable)?;
        if !run_bytes.len().is_multiple_of(RUN_ENTRY_LEN) || summary.pages > footer_at / PAGE_SIZE as u64 {
            return Err(footer(Reason::Field));
        }
        let run_table = RunTable::parse(run_bytes, summary.pages).ok_or_else(|| {
            Error::from(Corruption { part: Part::RunTable, offset: runs.offset, reason: Reason::Field })
        })?;
        let dictionary_bytes = located(bytes, &dictionary, Part::Dictionary)?;
        if dictionary_bytes.len() > DICTIONARY_LEN_MAX {
            return Err(footer(Reason::Field));
        }
        let page = PAGE_SIZE as u64;
        let runs_at = (1 + summary.pages + run_table.pages()) * page;
        let dictionary_at = runs_at + runs.len.next_multiple_of(page);
        let in_place = runs.offset == runs_at
            && dictionary.offset == dictionary_at
            && dictionary_at + dictionary.len.next_multiple_of(page) == footer_at
            && summary.overflow_bytes == run_table.len();
        if !in_place {
            return Err(footer(Reason::Length));
        }
        let salt = frame.salt;
        let dictionary = load_dictionary(dictionary_bytes, &dictionary)?;
        let checks = PageChecks::new(summary.pages);
        let blobs_len = (PAGE_SIZE - LINES_ASKED * CACHE_LINE) as u64;
        let entry_len = (blobs_len * summary.pages / summary.entries.max(1)).min(blobs_len);
        Ok(Self { data, salt, summary, runs: run_table, dictionary, checks, entry_len })
    }

    /// What the footer says.
    pub fn summary(&self) -> &SegmentSummary {
        &self.summary
    }

    /// What opening reads besides the header: run table, dictionary and footer, to the end of the file.
    pub fn tail(&self) -> Range<u64> {
        let pages = 1 + self.summary.pages + self.runs.pages();
        pages * PAGE_SIZE as u64..self.summary.file.len
    }

    /// The bytes of the file.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Finds the newest version of `key` at or below block `at` among the pages of `span`.
    ///
    /// `None`: the key has no such version there. The span comes from the pivot index of this segment, which
    /// answers for it being the right one.
    ///
    /// # Cost
    /// One page for a span of one. For n pages, the first bytes of about log2(n) of them besides, and one more
    /// where the answer is the first entry of the page after. Allocates nothing but `buf`, and that only
    /// for the first compressed page.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged page, [`Error::Mismatch`] for a span that this segment does not have.
    #[inline]
    pub fn get_in<'a>(
        &'a self,
        span: PageSpan,
        key: &[u8],
        at: BlockNumber,
        buf: &'a mut PageBuf,
    ) -> Result<Option<Version<'a>>, Error> {
        self.check_span(span)?;
        let mut page = span.first;
        if span.first != span.last {
            page = self.page_of(span, key, at, buf)?;
        }
        match self.find(span, page, key, at) {
            Found::Entry(block, Some(bytes)) => Ok(Some(Version { block, value: Value::Inline(bytes) })),
            Found::Entry(block, None) => Ok(Some(Version { block, value: Value::Deletion })),
            Found::Absent if page == span.last => Ok(None),
            Found::Absent | Found::Unsure => self.get_ordered(span, page, key, at, buf),
        }
    }

    /// What [`get_in`](Self::get_in) answers, where the one page of a span says it by its fingerprints and holds the value, as a plain
    /// page nearly always does: the block, and the value or that it is a deletion. `None`: ask `get_in`.
    ///
    /// # Cost
    /// One page.
    #[inline]
    pub fn get_plain(&self, span: PageSpan, key: &[u8], at: BlockNumber) -> Option<Option<PlainVersion<'_>>> {
        if span.first != span.last || span.last >= self.summary.pages {
            return None;
        }
        match self.find(span, span.first, key, at) {
            Found::Entry(block, value) => Some(Some((block, value))),
            Found::Absent => Some(None),
            Found::Unsure => None,
        }
    }

    /// Looks into a page of a span by its fingerprints.
    #[inline]
    fn find(&self, span: PageSpan, page: u64, key: &[u8], at: BlockNumber) -> Found<'_> {
        let hint = if page == span.first { span.restart.into() } else { 0 };
        self.sound(page).map_or(Found::Unsure, |bytes| find(bytes, hint, key, at))
    }

    /// The same by the order of the entries, from the page on that the span begins with or [`Segment::page_of`] gave.
    #[inline(never)]
    fn get_ordered<'a>(
        &'a self,
        span: PageSpan,
        page: u64,
        key: &[u8],
        at: BlockNumber,
        buf: &'a mut PageBuf,
    ) -> Result<Option<Version<'a>>, Error> {
        let mut loaded = self.load(page, buf)?;
        let hint = self.hint_in(span, page, &loaded)?;
        let entry = match loaded.page(buf).lookup(hint, key, at)? {
            Lookup::Hit(entry) => entry,
            Lookup::Past if page < span.last => {
                loaded = self.load(page + 1, buf)?;
                let Some(entry) = loaded.page(buf).first_if(key)? else { return Ok(None) };
                entry
            }
            Lookup::Miss | Lookup::Past => return Ok(None),
        };
        let view = loaded.page(buf);
        let value = match view.value(&entry)? {
            Stored::Deletion => Value::Deletion,
            Stored::Inline(bytes) => Value::Inline(bytes),
            Stored::Overflow(reference) => Value::Overflow(self.blob(&reference, &view)?),
        };
        Ok(Some(Version { block: entry.block, value }))
    }

    /// The bytes of the file that hold the pages of a span: what to have fetched before a lookup.
    ///
    /// Pages that the segment does not have are left out.
    pub fn file_range(&self, span: PageSpan) -> Range<u64> {
        let Some(last_page) = self.summary.pages.checked_sub(1) else { return 0..0 };
        let (first, last) = (span.first.min(last_page), span.last.min(last_page));
        let page = PAGE_SIZE as u64;
        self.runs.file_page(first) * page..(self.runs.file_page(last) + 1) * page
    }

    /// The bytes of the file that a lookup in the first page of a span most likely touches: the columns, and where the pivot that the
    /// span comes from and `entries` entries after it are, were all entries as long as the mean. A guess, for asking memory ahead.
    #[inline]
    pub fn likely_lines(&self, span: PageSpan, entries: u32) -> [Range<u64>; 2] {
        let page = self.file_range(PageSpan::page(span.first));
        let columns = page.start..page.start + (LINES_ASKED * CACHE_LINE) as u64;
        let entry_len = self.entry_len;
        let before = GROUP_IDEAL as u64 * u64::from(span.restart) * entry_len;
        let from = columns.end + before.saturating_sub(GUESS_SLACK);
        let to = columns.end + before + GUESS_SLACK + u64::from(entries) * entry_len;
        [columns, from.min(page.end)..to.min(page.end)]
    }

    /// Loads a page: checks it the first time, decodes it where it is compressed.
    #[inline]
    pub(crate) fn load(&self, page: u64, buf: &mut PageBuf) -> Result<Loaded<'_>, Error> {
        let offset = self.runs.file_page(page) * PAGE_SIZE as u64;
        let bytes = match self.sound(page) {
            Some(bytes) => bytes,
            None => self.bring(page)?,
        };
        self.view(bytes, offset, buf)
    }

    /// The bytes of a page that is not here, or whose checksum does not hold.
    #[cold]
    #[inline(never)]
    fn bring(&self, page: u64) -> Result<&[u8; PAGE_SIZE], Error> {
        let number = self.runs.file_page(page);
        let offset = number * PAGE_SIZE as u64;
        if offset + PAGE_SIZE as u64 > self.data.as_ref().len() as u64 {
            return Err(damaged(offset, Reason::Length));
        }
        self.data.bring_page(number)?;
        self.sound(page).ok_or_else(|| damaged(offset, Reason::Checksum))
    }

    /// The bytes of a page: checks it the first time. `None`: its checksum does not hold, or it is not here.
    #[expect(clippy::inline_always, reason = "a few instructions, on the way of every lookup")]
    #[inline(always)]
    fn sound(&self, page: u64) -> Option<&[u8; PAGE_SIZE]> {
        let number = self.runs.file_page(page);
        let bytes = self.data.as_ref().get((number * PAGE_SIZE as u64) as usize..)?;
        let bytes = bytes.first_chunk::<PAGE_SIZE>()?;
        let check = || self.data.has_page(number) && is_sealed(bytes, number, self.salt);
        if !self.checks.ensure(page, check) {
            return None;
        }
        // What a lookup asks of every entry is in the first lines: asked for now, they come together.
        black_box((1..LINES_ASKED).fold(0, |sum, line| sum ^ bytes[line * CACHE_LINE]));
        Some(bytes)
    }

    /// Takes a page apart whose checksum was looked at.
    #[inline]
    pub(crate) fn view<'s>(
        &self,
        bytes: &'s [u8],
        offset: u64,
        buf: &mut PageBuf,
    ) -> Result<Loaded<'s>, Error> {
        let header = PageHeader::parse(bytes).ok_or_else(|| damaged(offset, Reason::Field))?;
        let stored = bytes.get(PAGE_HEADER_LEN..PAGE_HEADER_LEN + header.stored_len);
        let stored = stored.ok_or_else(|| damaged(offset, Reason::Overrun))?;
        if header.is_compressed() {
            buf.decode(stored, header.raw_len, self.dictionary.as_ref(), offset)?;
            let shape = Page::parse(&header, buf.body(), offset)?.shape;
            return Ok(Loaded { shape, plain: None });
        }
        let shape = Page::parse(&header, stored, offset)?.shape;
        Ok(Loaded { shape, plain: Some(stored) })
    }

    /// The last page of a span that begins at or before the position, or its first.
    pub(crate) fn page_of(
        &self,
        span: PageSpan,
        key: &[u8],
        at: BlockNumber,
        buf: &mut PageBuf,
    ) -> Result<u64, Error> {
        let (mut low, mut high) = (span.first, span.last + 1);
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if self.load(middle, buf)?.page(buf).begins_after(key, at)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(low)
    }

    /// The restart at which to start in a page of a span.
    #[inline]
    pub(crate) fn hint_in(&self, span: PageSpan, page: u64, loaded: &Loaded<'_>) -> Result<usize, Error> {
        let hint = if page == span.first { span.restart as usize } else { 0 };
        if hint < loaded.shape.restarts() { Ok(hint) } else { Err(self.no_such_span(span)) }
    }

    #[inline]
    pub(crate) fn check_span(&self, span: PageSpan) -> Result<(), Error> {
        if span.first <= span.last && span.last < self.summary.pages {
            return Ok(());
        }
        Err(self.no_such_span(span))
    }

    #[cold]
    fn no_such_span(&self, span: PageSpan) -> Error {
        let expected = format!("a span of {} pages", self.summary.pages);
        Error::Mismatch { what: "page span", expected, found: describe_span(span) }
    }

    pub(crate) fn blob(&self, reference: &OverflowRef, page: &Page<'_>) -> Result<Blob<'_>, Error> {
        blob_at(self.data.as_ref(), &self.runs, reference).ok_or_else(|| page.damaged(Reason::Field))
    }

    pub(crate) fn runs(&self) -> &RunTable {
        &self.runs
    }

    pub(crate) fn salt(&self) -> Salt {
        self.salt
    }
}

/// The error of a span that does not reach the position it was given for.
#[cold]
pub(crate) fn span_misses(span: PageSpan) -> Error {
    let expected = "a span that reaches the position".to_owned();
    Error::Mismatch { what: "page span", expected, found: describe_span(span) }
}

fn describe_span(span: PageSpan) -> String {
    format!("{}:{}-{}", span.first, span.restart, span.last)
}

/// The dictionary for decoding, where there is one. Bytes that zstd does not take for a dictionary are damage.
fn load_dictionary(bytes: &[u8], place: &Located) -> Result<Option<DDict<'static>>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let broken = Corruption { part: Part::Dictionary, offset: place.offset, reason: Reason::Decode };
    Ok(Some(DDict::try_create(bytes).ok_or(broken)?))
}

/// The bytes of a structure that the footer names, their checksum checked.
fn located<'a>(bytes: &'a [u8], place: &Located, part: Part) -> Result<&'a [u8], Error> {
    let corrupt = |reason| Error::from(Corruption { part, offset: place.offset, reason });
    let end = place.offset.checked_add(place.len).ok_or_else(|| corrupt(Reason::Length))?;
    let found = bytes.get(place.offset as usize..end as usize).ok_or_else(|| corrupt(Reason::Length))?;
    if crc64(found) == place.checksum { Ok(found) } else { Err(corrupt(Reason::Checksum)) }
}
