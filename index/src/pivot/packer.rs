//! Packs pivots into leaves of a `.bt`.

use icecore_segments::bytes::{put_varint, shared_len, varint_len, zigzag};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::{Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::fence::{FENCE_LEN, FENCES_MAX, fence};
use super::node::{
    BEGINS, BLOCK_BASE_AT, COARSE, CODES_AT, END_AT, EXTRA_BEFORE, EXTRA_EMPTY, EXTRA_ZEROS, EXTRAS,
    FENCES_COUNT_AT, FIRST_PAGE_AT, FLAGS_AT, LAST_PAGE_AT, MARK_EVERY, NARROW_LEN_MAX, PIVOTS_AT,
    SHARED_MAX, WIDE, bodies_at, code,
};

/// A run of zeros shorter than this is stored: leaving it out costs three bytes.
const ZEROS_MIN: usize = 5;

/// The longest separator that is certain to fit an empty leaf.
pub(super) const SEPARATOR_LEN_MAX: usize = PAGE_SIZE - CODES_AT - 64;

/// Collects the pivots of one leaf.
#[derive(Default)]
pub(super) struct LeafBuilder {
    pivots: Vec<Packed>,
    /// What follows the pages in the bodies.
    bodies: Vec<u8>,
    newest: Vec<u8>,
    /// The fences of the spans that are complete, and whether none of these spans is without.
    fences: Vec<u16>,
    fences_end: bool,
    /// The fences after the newest pivot, and the newest boundary, be it of a pivot or of a fence.
    pending_fences: Vec<u16>,
    boundary: Vec<u8>,
    first_page: u64,
    block_base: Option<BlockNumber>,
    /// Bytes of the pages in the bodies, should the leaf turn out coarse.
    pages_len: usize,
    extras_len: usize,
    coarse: bool,
    wide: bool,
}

struct Packed {
    code: u16,
    flags: u8,
    extras: u8,
    body_len: usize,
    page: u64,
}

impl LeafBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.pivots.is_empty()
    }

    /// Whether the newest pivot is its first.
    pub(super) fn is_single(&self) -> bool {
        self.pivots.len() == 1
    }

    /// Takes the boundary before a page that begins after the newest pivot and before the next.
    pub(super) fn fence(&mut self, separator: &Separator<'_>) {
        let Separator { key, before } = *separator;
        let shared = shared_len(key, &self.boundary).min(SHARED_MAX);
        self.pending_fences.push(fence(key, shared, before.is_none()));
        key.clone_into(&mut self.boundary);
    }

    /// How many fences the span of the newest pivot gets when `next` ends it.
    fn fences_before(&self, next: &Pivot<'_>) -> usize {
        let Some(last) = self.pivots.last() else { return 0 };
        let inner = next.page - u64::from(next.restart == 0) - last.page;
        // A page whose boundary was too long to be offered leaves the span without fences, and all spans after it in the leaf.
        let all = self.pending_fences.len() as u64 == inner && inner <= FENCES_MAX as u64;
        if all && !self.fences_end { inner as usize } else { 0 }
    }

    /// Takes the next pivot, or returns `false` and changes nothing when the leaf is full.
    pub(super) fn push(&mut self, pivot: &Pivot<'_>) -> bool {
        let Separator { key, before } = pivot.separator;
        let shared = shared_len(key, &self.newest).min(SHARED_MAX);
        let first_page = if self.pivots.is_empty() { pivot.page } else { self.first_page };
        let begins = pivot.restart == 0;
        let regular = self.pivots.last().is_none_or(|last| pivot.page == last.page + u64::from(begins));
        let block_base = if before.is_some() { self.block_base.or(before) } else { self.block_base };
        let bodies_len = self.bodies.len();
        let extras = put_body(&mut self.bodies, pivot, shared, block_base.unwrap_or(0));
        let body_len = self.bodies.len() - bodies_len;
        let page_len = varint_len(pivot.page - first_page);
        let coarse = self.coarse || !regular;
        // The page is counted whether the leaf is coarse or not, so that becoming coarse never makes it wide.
        let wide = self.wide || body_len + 1 + page_len > NARROW_LEN_MAX;
        let (count, pages_len) = (self.pivots.len() + 1, self.pages_len + page_len);
        let extras_len = self.extras_len + usize::from(extras != 0);
        let fences = self.fences_before(pivot);
        let len = bodies_at(count, wide)
            + self.bodies.len()
            + extras_len
            + if coarse { pages_len } else { 0 }
            + FENCE_LEN * (self.fences.len() + fences);
        if len > PAGE_SIZE {
            self.bodies.truncate(bodies_len);
            return false;
        }
        let flags = if begins { BEGINS } else { 0 } | if extras == 0 { 0 } else { EXTRAS };
        let code = code(shared, key.get(shared).copied().unwrap_or(0));
        if fences > 0 {
            self.fences.append(&mut self.pending_fences);
        } else {
            self.fences_end |= !regular;
        }
        self.pending_fences.clear();
        self.pivots.push(Packed { code, flags, extras, body_len, page: pivot.page });
        (self.first_page, self.block_base, self.pages_len) = (first_page, block_base, pages_len);
        (self.coarse, self.wide, self.extras_len) = (coarse, wide, extras_len);
        key.clone_into(&mut self.newest);
        key.clone_into(&mut self.boundary);
        true
    }

    /// Writes the leaf into `page`, which is all zeros, and starts an empty one. `last_page` is the last page that the span of the last
    /// pivot reaches.
    pub(super) fn finish(&mut self, page: &mut [u8; PAGE_SIZE], last_page: u64) {
        let (mut lens, mut marks, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut from, mut begins) = (0, 0u16);
        for (index, pivot) in self.pivots.iter().enumerate() {
            let body_from = bodies.len();
            if index > 0 && index % MARK_EVERY == 0 {
                marks.extend_from_slice(&(body_from as u16).to_le_bytes());
                marks.extend_from_slice(&begins.to_le_bytes());
            }
            begins += u16::from(pivot.flags & BEGINS != 0);
            if pivot.extras != 0 {
                bodies.push(pivot.extras);
            }
            if self.coarse {
                put_varint(&mut bodies, pivot.page - self.first_page);
            }
            bodies.extend_from_slice(&self.bodies[from..from + pivot.body_len]);
            from += pivot.body_len;
            let len = bodies.len() - body_from;
            if self.wide {
                let flags = u16::from(pivot.flags) << 8;
                lens.extend_from_slice(&(len as u16 | flags).to_le_bytes());
            } else {
                lens.push(len as u8 | pivot.flags);
            }
        }
        let flags = if self.coarse { COARSE } else { 0 } | if self.wide { WIDE } else { 0 };
        let codes: Vec<u8> = self.pivots.iter().flat_map(|pivot| pivot.code.to_le_bytes()).collect();
        let end = CODES_AT + codes.len() + lens.len() + marks.len() + bodies.len();
        let fences: Vec<u8> = self.fences.iter().flat_map(|fence| fence.to_le_bytes()).collect();
        let items = [codes, lens, marks, bodies, fences].concat();
        page[FLAGS_AT..][..2].copy_from_slice(&flags.to_le_bytes());
        page[PIVOTS_AT..][..2].copy_from_slice(&(self.pivots.len() as u16).to_le_bytes());
        page[END_AT..][..2].copy_from_slice(&(end as u16).to_le_bytes());
        page[FIRST_PAGE_AT..][..8].copy_from_slice(&self.first_page.to_le_bytes());
        page[LAST_PAGE_AT..][..8].copy_from_slice(&last_page.to_le_bytes());
        page[BLOCK_BASE_AT..][..8].copy_from_slice(&self.block_base.unwrap_or(0).to_le_bytes());
        page[FENCES_COUNT_AT..][..2].copy_from_slice(&(self.fences.len() as u16).to_le_bytes());
        page[CODES_AT..][..items.len()].copy_from_slice(&items);
        *self = Self::default();
    }
}

/// Appends what follows extras byte and page in a body, and returns the extras.
fn put_body(out: &mut Vec<u8>, pivot: &Pivot<'_>, shared: usize, block_base: BlockNumber) -> u8 {
    let suffix = &pivot.separator.key[shared..];
    let tail = suffix.get(1..).unwrap_or_default();
    let (zeros_at, zeros) = longest_zeros(tail);
    let mut extras = if suffix.is_empty() { EXTRA_EMPTY } else { 0 };
    if pivot.restart > 0 {
        put_varint(out, u64::from(pivot.restart));
    }
    if let Some(before) = pivot.separator.before {
        extras |= EXTRA_BEFORE;
        put_varint(out, zigzag(before.wrapping_sub(block_base) as i64));
    }
    if zeros < ZEROS_MIN {
        out.extend_from_slice(tail);
        return extras;
    }
    put_varint(out, zeros_at as u64);
    put_varint(out, zeros as u64);
    out.extend_from_slice(&tail[..zeros_at]);
    out.extend_from_slice(&tail[zeros_at + zeros..]);
    extras | EXTRA_ZEROS
}

/// Where the longest run of zeros begins, the first of equal ones, and its length.
fn longest_zeros(bytes: &[u8]) -> (usize, usize) {
    let (mut best, mut from) = ((0, 0), 0);
    for (at, &byte) in bytes.iter().enumerate() {
        if byte != 0 {
            from = at + 1;
        } else if at + 1 - from > best.1 {
            best = (from, at + 1 - from);
        }
    }
    best
}
