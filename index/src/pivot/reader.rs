//! Reads a `.bt`: from (key, block) to the pages that can hold the answer.
//!
//! Cost of a lookup: a search by halves in the top, in memory; then one leaf page of the file, of which it scans the codes and reads
//! two or three bodies of about 400.

use std::ops::Range;

use icecore_segments::bytes::{u32_at, u64_at};
use icecore_segments::checksum::{Checksum, PageChecks, Salt, crc64, is_sealed};
use icecore_segments::error::{Corruption, Error, Part, Reason};
use icecore_segments::frame::{Frame, Kind, PAGE_SIZE};
use icecore_segments::span::{PageSpan, Separator};
use icecore_segments::step::BlockNumber;

use super::node::Leaf;
use super::top::{Top, ascends};
use super::{M_AT, PAYLOAD_LEN, PivotSummary};
use crate::density::Density;
use crate::prefetch::PrefetchHint;

/// The lines of a leaf that are asked for ahead: its header, and the codes that a search goes through.
const LINES_PREFETCHED: usize = 8;

/// The number of a leaf, from [`PivotIndex::leaf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafNumber(u64);

/// A pivot index over the bytes of its file. Shared by any number of threads.
pub struct PivotIndex<D> {
    data: D,
    salt: Salt,
    top: Top,
    checks: PageChecks,
    summary: PivotSummary,
}

impl<D: AsRef<[u8]>> PivotIndex<D> {
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
        LeafNumber(self.top.leaf(key, at) as u64)
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
        let LeafNumber(number) = leaf;
        let page = self.page(number);
        if !self.checks.ensure(number, || is_sealed(page, number + 1, self.salt)) {
            return Err(damaged(number, Reason::Checksum));
        }
        let span = Leaf::read(page).and_then(|leaf| leaf.locate(key, at));
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

    /// What to ask for before [`locate_in`](Self::locate_in) is called: the first lines of the leaf, which every search scans.
    #[inline]
    pub fn prefetch_hint(&self, leaf: LeafNumber) -> PrefetchHint<LINES_PREFETCHED> {
        let page = self.leaf_range(leaf);
        if self.checks.is_checked(leaf.0) {
            PrefetchHint::Lines(std::array::from_fn(|line| page.start + 64 * line as u64))
        } else {
            PrefetchHint::Page(page)
        }
    }

    /// The bytes of the file that a leaf takes: what to fetch ahead.
    pub fn leaf_range(&self, leaf: LeafNumber) -> Range<u64> {
        if self.summary.leaves == 0 {
            return 0..0;
        }
        let from = (leaf.0 + 1) * PAGE_SIZE as u64;
        from..from + PAGE_SIZE as u64
    }

    /// What the file says of itself.
    pub fn summary(&self) -> &PivotSummary {
        &self.summary
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
            let page = self.page(number);
            if !is_sealed(page, number + 1, self.salt) {
                return Err(damaged(number, Reason::Checksum));
            }
            let leaf = Leaf::read(page).ok_or_else(|| damaged(number, Reason::Overrun))?;
            let boundary = self.top.separator(number as usize);
            walk.leaf(&leaf, &boundary).map_err(|reason| damaged(number, reason))?;
        }
        let bytes = self.data.as_ref();
        Frame::parse(bytes, Kind::PivotIndex)?.verify_content(bytes, &mut |_| {})?;
        if (walk.pivots, walk.end) != (self.summary.pivots, self.summary.pages) {
            let offset = self.summary.file.len - PAGE_SIZE as u64;
            return Err(Corruption { part: Part::Footer, offset, reason: Reason::Count }.into());
        }
        Ok(())
    }

    /// Empty when the data is no longer as long as it was, which nothing but its owner can bring about.
    #[inline]
    fn page(&self, number: u64) -> &[u8] {
        let from = (number as usize + 1) * PAGE_SIZE;
        self.data.as_ref().get(from..from + PAGE_SIZE).unwrap_or_default()
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
    fn leaf(&mut self, leaf: &Leaf<'_>, boundary: &Separator<'_>) -> Result<(), Reason> {
        let (mut in_leaf, mut reason) = (0, Reason::Overrun);
        let read = leaf.for_each(|pivot| {
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
        });
        read.ok_or(reason)?;
        if in_leaf == 0 || in_leaf != leaf.pivots() || leaf.last_page() < self.page {
            return Err(Reason::Count);
        }
        self.end = leaf.last_page().checked_add(1).ok_or(Reason::Field)?;
        Ok(())
    }
}

#[cold]
fn damaged(number: u64, reason: Reason) -> Error {
    Corruption { part: Part::Leaf, offset: (number + 1) * PAGE_SIZE as u64, reason }.into()
}
