//! One leaf of a `.bt`: its layout, and how it is searched. `packer` writes it.
//!
//! ```text
//! header | code of each pivot | length of each body | a mark for every 16th pivot | bodies | fences
//! ```
//!
//! The separators of a leaf are front-coded: each stores how many bytes it shares with the one before it, and the
//! rest. The *code* of a separator is that number, inverted, and the first byte that differs. While a search walks along the
//! codes it knows how many bytes of the key agree with the separator it stands on, and the key's own code at that
//! point: a separator with a smaller code is before the key, one with a greater code after it, and only for an equal one is
//! the body looked at. So a search is a scan of two-byte numbers for the first that is not smaller, which processors do
//! sixteen at a time without a wrong guess, and of the hundreds of bodies it reads two or three.
//!
//! Where a pivot has a span of several pages, the boundaries between them are there with their codes alone, the [fences](super::fence).
//!
//! Source: front coding after Bayer and Unterauer, *Prefix B-Trees*, 1977; searching by the shared lengths alone after
//! Ferguson, *Bit-Tree*, 1992, and Lomet, *The evolution of effective B-tree*, 2001.

use std::cmp::Ordering;
use std::hint::black_box;

use icecore_segments::bytes::{shared_len, take_varint, u16_at, u64_at, unzigzag};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::{PageSpan, Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::fence::{self, FENCE_LEN, FENCES_MAX};

pub(super) const FLAGS_AT: usize = 8;
pub(super) const PIVOTS_AT: usize = 10;
pub(super) const END_AT: usize = 12;
pub(super) const FENCES_COUNT_AT: usize = 14;
pub(super) const FIRST_PAGE_AT: usize = 16;
pub(super) const LAST_PAGE_AT: usize = 24;
pub(super) const BLOCK_BASE_AT: usize = 32;
pub(super) const CODES_AT: usize = 40;

/// Leaf flag: bodies begin with the page of their pivot. Without it a pivot begins the page after the one before, or is inside it.
pub(super) const COARSE: u16 = 1;
/// Leaf flag: lengths of bodies take two bytes each.
pub(super) const WIDE: u16 = 2;

/// What a length says beside the length: the pivot begins a page, the body has an extras byte.
pub(super) const BEGINS: u8 = 0x80;
pub(super) const EXTRAS: u8 = 0x40;
pub(super) const NARROW_LEN_MAX: usize = 0x3F;

/// The extras byte: the boundary is between two versions, and the block follows.
pub(super) const EXTRA_BEFORE: u8 = 1;
/// The extras byte: a run of zeros was left out of the separator; where it was and its length follow.
pub(super) const EXTRA_ZEROS: u8 = 2;
/// The extras byte: the separator has no byte more than it shares.
pub(super) const EXTRA_EMPTY: u8 = 4;

/// What a run of zeros is compared with.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// The most shared bytes that a code can say. Separators that share more store the rest again.
///
/// So a code has 15 bits, and four are compared at once.
pub(super) const SHARED_MAX: usize = 126;

/// How many pivots are between two marks: what a search adds up to find a body.
pub(super) const MARK_EVERY: usize = 16;
pub(super) const MARK_LEN: usize = 4;

/// The code of a separator or key that shares `shared` bytes with its predecessor and goes on with `byte`: smaller for
/// what comes first, among all that follow one predecessor.
#[inline]
pub(super) fn code(shared: usize, byte: u8) -> u16 {
    (((127 - shared.min(SHARED_MAX)) as u16) << 8) | u16::from(byte)
}

/// Where the bodies of `pivots` pivots begin.
pub(super) fn bodies_at(pivots: usize, wide: bool) -> usize {
    let marks = pivots.saturating_sub(1) / MARK_EVERY;
    CODES_AT + pivots * if wide { 4 } else { 3 } + marks * MARK_LEN
}

/// A leaf, its parts found.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    page: &'a [u8],
    /// One or two bytes for each pivot.
    lens_at: usize,
    marks_at: usize,
    bodies_at: usize,
    end: usize,
    fences: usize,
    coarse: bool,
    wide: bool,
    pivots: usize,
    first_page: u64,
    last_page: u64,
    block_base: BlockNumber,
}

/// The parts of a body.
struct Body<'a> {
    begins: bool,
    page: u64,
    restart: u16,
    before: Option<BlockNumber>,
    /// Whether there is no byte after the shared ones, not even the one in the code.
    empty: bool,
    head: &'a [u8],
    zeros: usize,
    tail: &'a [u8],
}

impl<'a> Leaf<'a> {
    /// Finds the parts; `None` when they do not fit the page.
    #[inline]
    pub(super) fn read(page: &'a [u8]) -> Option<Self> {
        let (flags, pivots) = (u16_at(page, FLAGS_AT)?, usize::from(u16_at(page, PIVOTS_AT)?));
        let (coarse, wide) = (flags & COARSE != 0, flags & WIDE != 0);
        let lens_at = CODES_AT + 2 * pivots;
        let marks_at = lens_at + pivots * if wide { 2 } else { 1 };
        let (bodies_at, end) = (bodies_at(pivots, wide), usize::from(u16_at(page, END_AT)?));
        let fences = usize::from(u16_at(page, FENCES_COUNT_AT)?);
        if pivots == 0 || bodies_at > end || end + FENCE_LEN * fences > page.len() {
            return None;
        }
        Some(Self {
            page,
            lens_at,
            marks_at,
            bodies_at,
            end,
            fences,
            coarse,
            wide,
            pivots,
            first_page: u64_at(page, FIRST_PAGE_AT)?,
            last_page: u64_at(page, LAST_PAGE_AT)?,
            block_base: u64_at(page, BLOCK_BASE_AT)?,
        })
    }

    /// How many pivots it has.
    pub(super) fn pivots(&self) -> usize {
        self.pivots
    }

    /// The last page that the span of its last pivot reaches.
    pub(super) fn last_page(&self) -> u64 {
        self.last_page
    }

    /// The span of the last pivot whose boundary is not after `(key, at)`.
    ///
    /// `None` when there is none, or the leaf is not what a builder writes.
    #[inline]
    pub(super) fn locate(&self, key: &[u8], at: BlockNumber) -> Option<PageSpan> {
        // A search goes from the codes to the lengths to the bodies, each telling where in the next to look. The lengths are few
        // enough to ask for all of them while the codes are scanned.
        for line in self.page.get(self.lens_at..self.bodies_at).unwrap_or_default().chunks(64) {
            black_box(line[0]);
        }
        let (mut index, mut matched) = (0, 0);
        let known = loop {
            // Where the key ends, every separator that goes on is after it: 0 is not above any byte.
            let known = matched.min(SHARED_MAX);
            let wanted = code(known, key.get(known).copied().unwrap_or(0));
            index = first_at_least(self.page, index, self.pivots, wanted).min(self.pivots);
            if index == self.pivots || self.code(index) != Some(wanted) {
                break known;
            }
            if known == key.len() {
                index = self.behind_versions(index, key, at, wanted)?;
                break known;
            }
            let Side::After(agrees) = self.compare(index, key, at, known)? else { break known };
            (matched, index) = (agrees, index + 1);
        };
        let (first, restart) = self.place(index.checked_sub(1)?)?;
        let last = if index == self.pivots {
            self.last_page
        } else if !self.coarse {
            first
        } else {
            let stop = self.body(index)?;
            stop.page.checked_sub(u64::from(stop.begins))?
        };
        let span = PageSpan { first, last, restart };
        match first.cmp(&last) {
            Ordering::Less if index < self.pivots => self.narrow(span, index - 1, key, known),
            Ordering::Less | Ordering::Equal => Some(span),
            Ordering::Greater => None,
        }
    }

    /// The first pivot from `index` on that is after the position, where the boundaries before it are between versions of `key`: these
    /// have one code, and a key of a million versions has hundreds of them in a leaf.
    fn behind_versions(&self, index: usize, key: &[u8], at: BlockNumber, code: u16) -> Option<usize> {
        let run = (index..self.pivots).take_while(|&index| self.code(index) == Some(code)).count();
        let (mut low, mut high) = (index, index + run);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.compare(middle, key, at, key.len())? {
                Side::After(_) => low = middle + 1,
                Side::Before => high = middle,
            }
        }
        Some(low)
    }

    /// The pages of the span of a pivot that the fences leave to a key of which the first `known` bytes agree with the pivot.
    fn narrow(&self, span: PageSpan, index: usize, key: &[u8], known: usize) -> Option<PageSpan> {
        let fences = self.fences_of(span, index)?;
        if fences.is_empty() {
            return Some(span);
        }
        let (before, open) = fence::search(fences, key, known);
        let restart = if before == 0 { span.restart } else { 0 };
        let first = span.first + before;
        Some(PageSpan { first, last: first + open, restart })
    }

    /// The fences between the pages of the span of a pivot; none where the leaf does not have them.
    fn fences_of(&self, span: PageSpan, index: usize) -> Option<&'a [[u8; FENCE_LEN]]> {
        // Every page of the leaf so far begins with a pivot or with a fence.
        let begins = self.offset(index)?.1 + usize::from(self.len(index)?.0 >> 7);
        let pages = span.first.checked_sub(self.first_page)? + u64::from(self.len(0)?.0 >> 7);
        let from = usize::try_from(pages).ok()?.checked_sub(begins)?;
        let count = (span.last - span.first) as usize;
        if count > FENCES_MAX || from.checked_add(count).is_none_or(|end| end > self.fences) {
            return Some(&[]);
        }
        let (fences, _) = self.page.get(self.end + FENCE_LEN * from..)?.as_chunks();
        fences.get(..count)
    }

    /// How many bytes a separator has in common with the one before it.
    #[inline]
    fn shared(&self, index: usize) -> Option<usize> {
        127usize.checked_sub(usize::from(self.code(index)? >> 8))
    }

    #[inline]
    fn code(&self, index: usize) -> Option<u16> {
        u16_at(self.page, CODES_AT + 2 * index)
    }

    /// The flags and the length of a body.
    #[inline]
    fn len(&self, index: usize) -> Option<(u8, usize)> {
        if self.wide {
            let len = u16_at(self.page, self.lens_at + 2 * index)?;
            let flags = (len >> 8) as u8 & (BEGINS | EXTRAS);
            return Some((flags, usize::from(len & !(u16::from(BEGINS | EXTRAS) << 8))));
        }
        let len = *self.page.get(self.lens_at + index)?;
        Some((len & (BEGINS | EXTRAS), usize::from(len) & NARROW_LEN_MAX))
    }

    /// Where a body begins, counted from the first, and how many of the pivots before it begin a page.
    #[inline]
    fn offset(&self, index: usize) -> Option<(usize, usize)> {
        let mark = index / MARK_EVERY;
        let (mut offset, mut begins) = (0, 0);
        if mark > 0 {
            let mark_at = self.marks_at + (mark - 1) * MARK_LEN;
            offset = usize::from(u16_at(self.page, mark_at)?);
            begins = usize::from(u16_at(self.page, mark_at + 2)?);
        }
        let lens_at = self.lens_at + mark * MARK_EVERY;
        let block =
            if self.wide { None } else { self.page.get(lens_at..).and_then(|rest| rest.first_chunk()) };
        if let Some(block) = block {
            let (len, more) = sum_narrow(block, index % MARK_EVERY);
            return Some((offset + len, begins + more));
        }
        for index in mark * MARK_EVERY..index {
            let (flags, len) = self.len(index)?;
            offset += len;
            begins += usize::from(flags >> 7);
        }
        Some((offset, begins))
    }

    /// On which side of the boundary of a pivot the position is; the first `known` bytes and the one in the code agree.
    ///
    /// `None` when the leaf is not what a builder writes.
    #[inline]
    fn compare(&self, index: usize, key: &[u8], at: BlockNumber, known: usize) -> Option<Side> {
        let (flags, len) = self.len(index)?;
        if flags & EXTRAS != 0 || self.coarse {
            return Some(self.body(index)?.compare(key, at, known));
        }
        // By far the most: the separator is in one piece and is between two keys.
        let (offset, _) = self.offset(index)?;
        let from = self.bodies_at + offset;
        let mut tail = self.page.get(from..from + len)?;
        if flags & BEGINS == 0 {
            let mut restart_len = 0;
            take_varint(tail, &mut restart_len)?;
            tail = &tail[restart_len..];
        }
        // The byte in the code agrees, or it is a zero where the key ends.
        Some(key.get(known + 1..).map_or(Side::Before, |rest| Side::of(tail, rest, known + 1)))
    }

    /// Page and restart of a pivot.
    #[inline]
    fn place(&self, index: usize) -> Option<(u64, u16)> {
        let begins = self.len(index)?.0 & BEGINS != 0;
        if self.coarse || !begins {
            return self.body(index).map(|body| (body.page, body.restart));
        }
        Some((self.fine_page(self.offset(index)?.1, true)?, 0))
    }

    /// The page of a pivot in a leaf that is not coarse, from how many before it begin one.
    ///
    /// The first pivot of a leaf is in its first page, whether it begins it or not.
    #[inline]
    fn fine_page(&self, begins_before: usize, begins: bool) -> Option<u64> {
        let first = self.len(0)?.0 & BEGINS != 0;
        let pages = (begins_before + usize::from(begins)).checked_sub(usize::from(first))?;
        self.first_page.checked_add(pages as u64)
    }

    /// The body of a pivot, taken apart.
    #[inline]
    fn body(&self, index: usize) -> Option<Body<'a>> {
        let (offset, begins_before) = self.offset(index)?;
        let (flags, len) = self.len(index)?;
        let from = self.bodies_at + offset;
        let body = self.page.get(from..from + len)?;
        let begins = flags & BEGINS != 0;
        let mut at = 0;
        let mut extras = 0;
        if flags & EXTRAS != 0 {
            extras = *body.first()?;
            at = 1;
        }
        let page = if self.coarse {
            self.first_page.checked_add(take_varint(body, &mut at)?)?
        } else {
            self.fine_page(begins_before, begins)?
        };
        let restart = if begins { 0 } else { u16::try_from(take_varint(body, &mut at)?).ok()? };
        let mut before = None;
        if extras & EXTRA_BEFORE != 0 {
            before = Some(self.block_base.wrapping_add(unzigzag(take_varint(body, &mut at)?) as u64));
        }
        let (mut zeros_at, mut zeros) = (None, 0);
        if extras & EXTRA_ZEROS != 0 {
            zeros_at = Some(usize::try_from(take_varint(body, &mut at)?).ok()?);
            zeros = usize::try_from(take_varint(body, &mut at)?).ok().filter(|&zeros| zeros < PAGE_SIZE)?;
        }
        let rest = body.get(at..)?;
        let (head, tail) = rest.split_at_checked(zeros_at.unwrap_or(rest.len()))?;
        Some(Body { begins, page, restart, before, empty: extras & EXTRA_EMPTY != 0, head, zeros, tail })
    }

    /// Calls `each` with every pivot in order. `None` when the leaf is not what a builder writes; the ordinals are not stored and are 0.
    pub(super) fn for_each(&self, mut each: impl FnMut(&Pivot<'_>) -> Option<()>) -> Option<()> {
        let (mut key, mut previous) = (Vec::new(), Vec::new());
        let (mut end, mut fences, mut first) = (0, 0, 0);
        for index in 0..self.pivots {
            let (offset, _) = self.offset(index)?;
            if offset != end {
                return None;
            }
            end += self.len(index)?.1;
            let (body, code) = (self.body(index)?, self.code(index)?);
            let shared = self.shared(index)?;
            if shared > key.len() {
                return None;
            }
            key.clone_into(&mut previous);
            key.truncate(shared);
            if !body.empty {
                key.push(code as u8);
            }
            key.extend_from_slice(body.head);
            key.resize(key.len() + body.zeros, 0);
            key.extend_from_slice(body.tail);
            // A search relies on the shared lengths, so they must be what the keys share.
            if shared != shared_len(&key, &previous).min(SHARED_MAX) || (body.restart == 0) != body.begins {
                return None;
            }
            let Body { page, restart, before, .. } = body;
            let last = page.checked_sub(u64::from(body.begins && index > 0))?;
            if index > 0 && last > first {
                fences += self.fences_of(PageSpan { first, last, restart: 0 }, index - 1)?.len();
            }
            first = page;
            each(&Pivot { separator: Separator { key: &key, before }, page, restart, ordinal: 0 })?;
        }
        (self.bodies_at + end == self.end && fences == self.fences).then_some(())
    }
}

/// Where a position is, seen from a boundary.
enum Side {
    /// Before it.
    Before,
    /// At or after it; the key and the separator agree in this many bytes.
    After(usize),
}

impl Side {
    /// The side by the bytes of separator and key after the first `known`, where they agree; equal keys are after.
    #[inline]
    fn of(separator: &[u8], key: &[u8], known: usize) -> Self {
        let equal = shared_len(separator, key);
        let after = equal == separator.len() || (equal < key.len() && key[equal] > separator[equal]);
        if after { Self::After(known + equal) } else { Self::Before }
    }
}

impl Body<'_> {
    /// On which side of this boundary the position is; the first `known` bytes and the one in the code agree.
    fn compare(&self, key: &[u8], at: BlockNumber, known: usize) -> Side {
        let mut matched = known;
        if !self.empty {
            // The byte in the code agrees, or it is a zero where the key ends.
            matched += 1;
            for part in [self.head, &ZEROS[..self.zeros], self.tail] {
                let Some(rest) = key.get(matched..) else { return Side::Before };
                match Side::of(part, rest, matched) {
                    Side::After(agrees) if agrees == matched + part.len() => matched = agrees,
                    side => return side,
                }
            }
        }
        let answered_before = matched == key.len() && self.before.is_some_and(|before| before <= at);
        if answered_before { Side::Before } else { Side::After(matched) }
    }
}

/// The first index from `from` on whose code is not below `wanted`; some number of at least `pivots` where there is none.
///
/// Compares four codes in one subtraction, sixteen without a branch: a code with its top bit set, less `wanted`, keeps the bit
/// exactly when it is not below, and borrows from no neighbour. What is after the last code is compared too, and means
/// nothing.
#[inline]
fn first_at_least(page: &[u8], from: usize, pivots: usize, wanted: u16) -> usize {
    const LANES: usize = 16;
    const TOPS: u64 = 0x8000_8000_8000_8000;
    let wanted_each = u64::from(wanted) * 0x0001_0001_0001_0001;
    let mut index = from;
    while index < pivots {
        let at = CODES_AT + 2 * index;
        let Some(chunk) = page.get(at..).and_then(|rest| rest.first_chunk::<{ 2 * LANES }>()) else {
            let rest = page.get(at..).unwrap_or_default().chunks_exact(2);
            return index + rest.take_while(|pair| u16::from_le_bytes([pair[0], pair[1]]) < wanted).count();
        };
        let (words, _) = chunk.as_chunks::<8>();
        let hits = |word: usize| ((u64::from_le_bytes(words[word]) | TOPS) - wanted_each) & TOPS;
        let hits = [hits(0), hits(1), hits(2), hits(3)];
        if hits[0] | hits[1] | hits[2] | hits[3] != 0 {
            // The last assignment that is made is the one of the first word: moves, not branches.
            let (mut word, mut first) = (3, hits[3]);
            for earlier in [2, 1, 0] {
                (word, first) = if hits[earlier] == 0 { (word, first) } else { (earlier, hits[earlier]) };
            }
            return index + 4 * word + first.trailing_zeros() as usize / 16;
        }
        index += LANES;
    }
    index
}

/// The sum of the lengths, and how many have [`BEGINS`], among the first `count` of a block of one-byte lengths; `count` is less
/// than the block has. Adds in all bytes of a word at once.
#[inline]
fn sum_narrow(block: &[u8; MARK_EVERY], count: usize) -> (usize, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let kept = u128::from_le_bytes(*block) & ((1 << (8 * count)) - 1);
    let (low, high) = (kept as u64, (kept >> 64) as u64);
    let begins = ((low >> 7) & EACH) + ((high >> 7) & EACH);
    let lens = EACH * NARROW_LEN_MAX as u64;
    let lens = (low & lens) + (high & lens);
    // Sums of up to 126 in each byte: too much for one byte in the end, so from here in pairs.
    const PAIRS: u64 = 0x00FF_00FF_00FF_00FF;
    let lens = (lens & PAIRS) + ((lens >> 8) & PAIRS);
    let len = lens.wrapping_mul(0x0001_0001_0001_0001) >> 48;
    (len as usize, (begins.wrapping_mul(EACH) >> 56) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DOC;

    #[test]
    fn the_table_of_the_document_is_the_constants() {
        let leaf = [
            (0, "page checksum"),
            (FLAGS_AT, "flags: 1 coarse, 2 wide"),
            (PIVOTS_AT, "pivots"),
            (END_AT, "end of the bodies"),
            (FENCES_COUNT_AT, "fences"),
            (FIRST_PAGE_AT, "data page of the first"),
            (LAST_PAGE_AT, "last data page"),
            (BLOCK_BASE_AT, "base of the blocks"),
            (CODES_AT, "codes"),
        ];
        DOC.check_layout("### Leaf of a `.bt`", &leaf, None);
        assert_eq!((COARSE, WIDE), (1, 2));
    }

    #[test]
    fn the_scan_finds_the_first_code_that_is_not_below() {
        let mut page = [0; PAGE_SIZE];
        for (index, pair) in page[CODES_AT..].chunks_exact_mut(2).enumerate() {
            let code = (index * 7919 % 0x8000) as u16;
            pair.copy_from_slice(&code.to_le_bytes());
        }
        let codes: Vec<u16> = (0..2028).map(|i| u16_at(&page, CODES_AT + 2 * i).unwrap()).collect();
        for wanted in [0, 1, 127, 5000, 0x7EFF, 0x7FFF] {
            for from in (0..40).chain(1980..2028) {
                let found =
                    codes[from..].iter().position(|&code| code >= wanted).map_or(2028, |at| from + at);
                assert_eq!(first_at_least(&page, from, 2028, wanted), found, "{wanted} from {from}");
            }
        }
    }

    #[test]
    fn the_sums_are_those_of_the_bytes() {
        for block in [[0xFF; 16], std::array::from_fn(|i| (i * 37) as u8), [0x80; 16], [0x3F; 16]] {
            for count in 0..16 {
                let len = block[..count].iter().map(|&byte| usize::from(byte & 0x3F)).sum();
                let begins = block[..count].iter().filter(|&&byte| byte >= 0x80).count();
                assert_eq!(sum_narrow(&block, count), (len, begins), "{block:02x?} {count}");
            }
        }
    }

    #[test]
    fn the_offsets_are_those_of_the_format_document() {
        let fields = [
            (FLAGS_AT, "flags: 1 coarse, 2 wide"),
            (PIVOTS_AT, "pivots `n`"),
            (END_AT, "end of the bodies"),
            (FENCES_COUNT_AT, "fences"),
            (FIRST_PAGE_AT, "data page of the first pivot"),
            (LAST_PAGE_AT, "last data page of the last pivot's span"),
            (BLOCK_BASE_AT, "base of the blocks"),
            (CODES_AT, "codes, lengths, marks, bodies, fences"),
        ];
        crate::check_table("### Leaf of a `.bt`", &fields);
    }
}
