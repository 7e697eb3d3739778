//! Reads a `.bt`: from (key, block) to the pages that can hold the answer.
//!
//! Cost of a lookup: a search by halves in the top, in memory; then one leaf page of the file, of which it scans the directory and one
//! group of pivots: some 800 instructions in all for keys of 52 bytes, 540 for random ones.

use std::ops::Range;

use icecore_segments::FileBytes;
use icecore_segments::bytes::{u32_at, u64_at};
use icecore_segments::checksum::{Checksum, PageChecks, Salt, crc64, is_sealed};
use icecore_segments::error::{Corruption, Error, Part, Reason};
use icecore_segments::frame::{Frame, Kind, PAGE_SIZE};
use icecore_segments::span::{PageSpan, Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::layout::{FLAGS_AT, GROUPED, LAST_PAGE_AT, PIVOTS_AT, SHARED_MAX};
use super::node::Leaf;
use super::page::Page;
use super::top::{Top, ascends};
use super::{M_AT, PAYLOAD_LEN, PivotSummary, decode, old};
use crate::density::Density;

/// Which leaf to search for a position, from [`PivotIndex::leaf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafNumber {
    number: u64,
    /// How many bytes the key has in common with the boundary before the leaf, as far as a code can say.
    known: u8,
}

/// A pivot index over the bytes of its file. Shared by any number of threads.
pub struct PivotIndex<D> {
    data: D,
    salt: Salt,
    top: Top,
    checks: PageChecks,
    summary: PivotSummary,
}

impl<D: FileBytes> PivotIndex<D> {
    /// Opens the index of the segment whose content checksum is `parent`. Reads header, footer and top.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when it describes another segment, [`Error::Corrupt`] and [`Error::Unsupported`] as in `FORMAT.md`.
    pub fn open(data: D, parent: Checksum) -> Result<Self, Error> {
        let bytes = data.as_ref();
        let frame = Frame::parse(bytes, Kind::PivotIndex)?;
        crate::check_parent(frame.parent, parent)?;
        let header = Corruption { part: Part::Header, offset: 0, reason: Reason::Field };
        let m = u32_at(&frame.header.params, M_AT).and_then(Density::new).ok_or(header)?;
        let (salt, file) = (frame.salt, frame.summary);
        let footer = |reason| Corruption { part: Part::Footer, offset: file.len - PAGE_SIZE as u64, reason };
        if frame.payload.len() != PAYLOAD_LEN {
            return Err(footer(Reason::Length).into());
        }
        let field = |number: usize| u64_at(frame.payload, 8 * number).ok_or(footer(Reason::Length));
        let (pivots, entries, pages, leaves) = (field(0)?, field(1)?, field(2)?, field(3)?);
        let (top_offset, top_len, top_sum) = (field(4)?, field(5)?, field(6)?);
        // P1: header, leaves, top, footer, and nothing else.
        let page = PAGE_SIZE as u64;
        let file_pages = file.len / page;
        let fits = leaves < file_pages && top_len < file.len && top_offset == (leaves + 1) * page;
        if !fits || leaves + 2 + top_len.div_ceil(page) != file_pages {
            return Err(footer(Reason::Count).into());
        }
        if pivots < leaves || (pivots == 0) != (pages == 0) || pivots > entries || pages > entries {
            return Err(footer(Reason::Count).into());
        }
        let top = &bytes[top_offset as usize..][..top_len as usize];
        let damaged = |reason| Corruption { part: Part::Top, offset: top_offset, reason };
        if crc64(top) != top_sum {
            return Err(damaged(Reason::Checksum).into());
        }
        let top = Top::parse(top, leaves).map_err(damaged)?;
        let summary = PivotSummary { file, m, pivots, leaves, entries, pages, top_bytes: top.memory() };
        Ok(Self { salt, top, checks: PageChecks::new(leaves), summary, data })
    }

    /// The leaf that [`locate_in`](Self::locate_in) has to search for the version of `key` that a reader at block `at` sees. Found in
    /// memory alone. A segment without pages has no leaf; this answers leaf 0 then.
    #[inline]
    pub fn leaf(&self, key: &[u8], at: BlockNumber) -> LeafNumber {
        let (number, known) = self.top.leaf(key, at);
        LeafNumber { number: number as u64, known: known.min(SHARED_MAX) as u8 }
    }

    /// Where the version of `key` that a reader at block `at` sees is, if the segment has one: its newest version at or
    /// below `at`. `leaf` is what [`leaf`](Self::leaf) said for the same position.
    ///
    /// There is always a span; a key before the first entry is sent to the first page. It is one page when the
    /// index has a pivot at the beginning of every page (P3), also where the versions of the key cross a page boundary. A segment
    /// without pages has no span; this answers page 0 then.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the leaf is damaged, checked when it is touched for the first time after opening.
    #[inline]
    pub fn locate_in(&self, leaf: LeafNumber, key: &[u8], at: BlockNumber) -> Result<PageSpan, Error> {
        if self.summary.leaves == 0 {
            return Ok(PageSpan::page(0));
        }
        let LeafNumber { number, known } = leaf;
        let page = self.page(number).ok_or_else(|| damaged(number, Reason::Length))?;
        if !self.checks.ensure(number, || self.is_sound(number, page)) {
            self.bring(number, page)?;
        }
        let span = if is_grouped(page) {
            Leaf::new(page).locate(key, at, usize::from(known))
        } else {
            old::locate(page.leaf(), key, at)
        };
        span.filter(|span| span.last < self.summary.pages).ok_or_else(|| damaged(number, Reason::Overrun))
    }

    /// Both steps of a lookup at once: see [`locate_in`](Self::locate_in).
    ///
    /// # Errors
    /// As [`locate_in`](Self::locate_in).
    #[inline]
    pub fn locate(&self, key: &[u8], at: BlockNumber) -> Result<PageSpan, Error> {
        self.locate_in(self.leaf(key, at), key, at)
    }

    /// Whether a leaf was read since the file was opened, so that it is most likely in memory.
    #[inline]
    pub fn is_read(&self, leaf: LeafNumber) -> bool {
        self.checks.is_checked(leaf.number)
    }

    /// The bytes of the file that a leaf takes: what to fetch ahead.
    pub fn leaf_range(&self, leaf: LeafNumber) -> Range<u64> {
        if self.summary.leaves == 0 {
            return 0..0;
        }
        let from = (leaf.number + 1) * PAGE_SIZE as u64;
        from..from + PAGE_SIZE as u64
    }

    /// What the file says of itself.
    pub fn summary(&self) -> &PivotSummary {
        &self.summary
    }

    /// What opening reads besides the header: top and footer, to the end of the file.
    pub fn tail(&self) -> Range<u64> {
        (self.summary.leaves + 1) * PAGE_SIZE as u64..self.summary.file.len
    }

    /// The bytes of the file.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Reads the whole file and checks everything that can be checked without the segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the part that is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        let mut walk = Walk::default();
        for number in 0..self.summary.leaves {
            let page = self.page(number).ok_or_else(|| damaged(number, Reason::Length))?;
            if !is_sealed(page.leaf(), number + 1, self.salt) {
                return Err(damaged(number, Reason::Checksum));
            }
            let boundary = self.top.separator(number as usize);
            walk.leaf(page, &boundary).map_err(|reason| damaged(number, reason))?;
        }
        let bytes = self.data.as_ref();
        Frame::parse(bytes, Kind::PivotIndex)?.verify_content(bytes, &mut |_| {})?;
        if (walk.pivots, walk.end) != (self.summary.pivots, self.summary.pages) {
            let offset = self.summary.file.len - PAGE_SIZE as u64;
            return Err(Corruption { part: Part::Footer, offset, reason: Reason::Count }.into());
        }
        Ok(())
    }

    fn is_sound(&self, number: u64, page: Page<'_>) -> bool {
        self.data.has_page(number + 1) && is_sealed(page.leaf(), number + 1, self.salt)
    }

    /// Brings a leaf that is not here, or whose checksum does not hold.
    #[cold]
    #[inline(never)]
    fn bring(&self, number: u64, page: Page<'_>) -> Result<(), Error> {
        self.data.bring_page(number + 1)?;
        let is_sound = self.checks.ensure(number, || self.is_sound(number, page));
        if is_sound { Ok(()) } else { Err(damaged(number, Reason::Checksum)) }
    }

    /// `None` when the data is no longer as long as it was, which nothing but its owner can bring about.
    #[inline]
    fn page(&self, number: u64) -> Option<Page<'_>> {
        self.data.as_ref().get((number as usize + 1) * PAGE_SIZE..)?.first_chunk().map(Page::new)
    }
}

/// What `verify` remembers from one leaf to the next.
#[derive(Default)]
struct Walk {
    pivots: u64,
    key: Vec<u8>,
    before: Option<BlockNumber>,
    page: u64,
    restart: u16,
    /// The page after the last that a span of the leaf before can reach.
    end: u64,
}

impl Walk {
    /// P2: the leaf's pivots ascend, the first of them is what the top says, and the leaf before ended where this one begins.
    fn leaf(&mut self, page: Page<'_>, boundary: &Separator<'_>) -> Result<(), Reason> {
        let (mut in_leaf, mut reason) = (0, Reason::Overrun);
        let each = |pivot: &Pivot<'_>| {
            let separator = Separator { key: &self.key, before: self.before };
            let first = self.pivots == 0;
            let place = (pivot.page, pivot.restart);
            let ordered = if first {
                pivot.separator.key.is_empty() && place == (0, 0)
            } else {
                ascends(&separator, &pivot.separator) && (self.page, self.restart) < place
            };
            let agrees = in_leaf > 0
                || pivot.separator == *boundary
                    && (first || self.end == pivot.page + u64::from(pivot.restart > 0));
            if !ordered || !agrees {
                reason = Reason::Order;
                return None;
            }
            pivot.separator.key.clone_into(&mut self.key);
            self.before = pivot.separator.before;
            (self.page, self.restart) = place;
            self.pivots += 1;
            in_leaf += 1;
            Some(())
        };
        let read = if is_grouped(page) {
            decode::for_each(&Leaf::new(page), each)
        } else {
            old::for_each(page.leaf(), each)
        };
        read.ok_or(reason)?;
        let last_page = page.u64(LAST_PAGE_AT);
        if in_leaf == 0 || in_leaf != page.u16(PIVOTS_AT) || last_page < self.page {
            return Err(Reason::Count);
        }
        self.end = last_page.checked_add(1).ok_or(Reason::Field)?;
        Ok(())
    }
}

/// Whether a leaf is as it is written since version 2.
#[inline]
fn is_grouped(page: Page<'_>) -> bool {
    page.byte(FLAGS_AT) & GROUPED != 0
}

#[cold]
fn damaged(number: u64, reason: Reason) -> Error {
    Corruption { part: Part::Leaf, offset: (number + 1) * PAGE_SIZE as u64, reason }.into()
}
