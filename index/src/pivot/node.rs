//! One leaf of a `.bt`: its layout, written and searched.
//!
//! ```text
//! header | code of each pivot | length of each body | a mark for every 16th pivot | bodies
//! ```
//!
//! The separators of a leaf are front-coded: each stores how many bytes it shares with the one before it, and the
//! rest. The *code* of a separator is that number, inverted, and the first byte that differs. While a search walks along the
//! codes it knows how many bytes of the key agree with the separator it stands on, and the key's own code at that
//! point: a separator with a smaller code lies before the key, one with a greater code behind it, and only for an equal one is
//! the body looked at. So a search is a scan of two-byte numbers for the first that is not smaller, which processors do
//! sixteen at a time without a wrong guess, and of the hundreds of bodies it reads two or three.
//!
//! Source: front coding after Bayer and Unterauer, *Prefix B-Trees*, 1977; searching by the shared lengths alone after
//! Ferguson, *Bit-Tree*, 1992, and Lomet, *The evolution of effective B-tree*, 2001.

use icecore_segments::bytes::{put_varint, take_varint, u16_at, u64_at, unzigzag, varint_len, zigzag};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::{PageSpan, Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::choice::shared_len;

const FLAGS_AT: usize = 8;
const PIVOTS_AT: usize = 10;
const END_AT: usize = 12;
const FIRST_PAGE_AT: usize = 16;
const LAST_PAGE_AT: usize = 24;
const BLOCK_BASE_AT: usize = 32;
const CODES_AT: usize = 40;

/// Leaf flag: bodies begin with the page of their pivot. Without it a pivot begins the page after the one before, or lies inside it.
const COARSE: u16 = 1;
/// Leaf flag: lengths of bodies take two bytes each.
const WIDE: u16 = 2;

/// What a length says beside the length: the pivot begins a page, the body has an extras byte.
const BEGINS: u8 = 0x80;
const EXTRAS: u8 = 0x40;
const NARROW_LEN_MAX: usize = 0x3F;

/// The extras byte: the border lies between two versions, and the block follows.
const EXTRA_BEFORE: u8 = 1;
/// The extras byte: a run of zeros was left out of the separator; where it was and its length follow.
const EXTRA_ZEROS: u8 = 2;
/// The extras byte: the separator has no byte more than it shares.
const EXTRA_EMPTY: u8 = 4;

/// A run of zeros shorter than this is stored: leaving it out costs three bytes.
const ZEROS_MIN: usize = 5;

/// What a run of zeros is compared with.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// The most shared bytes that a code can say. Separators that share more store the rest again.
///
/// So a code has 15 bits, and four are compared at once.
const SHARED_MAX: usize = 126;

/// How many pivots lie between two marks: what a search adds up to find a body.
const MARK_EVERY: usize = 16;
const MARK_LEN: usize = 4;

/// The longest separator that is certain to fit an empty leaf.
pub(super) const SEPARATOR_LEN_MAX: usize = PAGE_SIZE - CODES_AT - 64;

/// The code of a separator or key that shares `shared` bytes with its predecessor and goes on with `byte`: smaller for
/// what comes first, among all that follow one predecessor.
#[inline]
fn code(shared: usize, byte: u8) -> u16 {
    (((127 - shared.min(SHARED_MAX)) as u16) << 8) | u16::from(byte)
}

/// Collects the pivots of one leaf.
#[derive(Default)]
pub(super) struct LeafBuilder {
    pivots: Vec<Packed>,
    /// What follows the pages in the bodies.
    bodies: Vec<u8>,
    newest: Vec<u8>,
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
        let len =
            bodies_at(count, wide) + self.bodies.len() + extras_len + if coarse { pages_len } else { 0 };
        if len > PAGE_SIZE {
            self.bodies.truncate(bodies_len);
            return false;
        }
        let flags = if begins { BEGINS } else { 0 } | if extras == 0 { 0 } else { EXTRAS };
        let code = code(shared, key.get(shared).copied().unwrap_or(0));
        self.pivots.push(Packed { code, flags, extras, body_len, page: pivot.page });
        (self.first_page, self.block_base, self.pages_len) = (first_page, block_base, pages_len);
        (self.coarse, self.wide, self.extras_len) = (coarse, wide, extras_len);
        key.clone_into(&mut self.newest);
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
        let items = [codes, lens, marks, bodies].concat();
        let end = CODES_AT + items.len();
        page[FLAGS_AT..][..2].copy_from_slice(&flags.to_le_bytes());
        page[PIVOTS_AT..][..2].copy_from_slice(&(self.pivots.len() as u16).to_le_bytes());
        page[END_AT..][..2].copy_from_slice(&(end as u16).to_le_bytes());
        page[FIRST_PAGE_AT..][..8].copy_from_slice(&self.first_page.to_le_bytes());
        page[LAST_PAGE_AT..][..8].copy_from_slice(&last_page.to_le_bytes());
        page[BLOCK_BASE_AT..][..8].copy_from_slice(&self.block_base.unwrap_or(0).to_le_bytes());
        page[CODES_AT..end].copy_from_slice(&items);
        *self = Self::default();
    }
}

/// Where the bodies of `pivots` pivots begin.
fn bodies_at(pivots: usize, wide: bool) -> usize {
    let marks = pivots.saturating_sub(1) / MARK_EVERY;
    CODES_AT + pivots * if wide { 4 } else { 3 } + marks * MARK_LEN
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

/// A leaf, its parts found.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    page: &'a [u8],
    /// One or two bytes for each pivot.
    lens_at: usize,
    marks_at: usize,
    bodies_at: usize,
    end: usize,
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
    /// Whether there is no byte behind the shared ones, not even the one in the code.
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
        if pivots == 0 || bodies_at > end || end > page.len() {
            return None;
        }
        Some(Self {
            page,
            lens_at,
            marks_at,
            bodies_at,
            end,
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

    /// The span of the last pivot whose border is not behind `(key, at)`.
    ///
    /// `None` when there is none, or the leaf is not what a builder writes.
    #[inline]
    pub(super) fn locate(&self, key: &[u8], at: BlockNumber) -> Option<PageSpan> {
        let (mut index, mut matched) = (0, 0);
        loop {
            // Where the key ends, every separator that goes on lies behind it: 0 is not above any byte.
            let known = matched.min(SHARED_MAX);
            let wanted = code(known, key.get(known).copied().unwrap_or(0));
            index = first_at_least(self.page, index, self.pivots, wanted).min(self.pivots);
            if index == self.pivots || self.code(index) != Some(wanted) {
                break;
            }
            let Side::Behind(agrees) = self.compare(index, key, at, known)? else { break };
            (matched, index) = (agrees, index + 1);
        }
        let found = self.body(index.checked_sub(1)?)?;
        let last = if index == self.pivots {
            self.last_page
        } else if !self.coarse {
            found.page
        } else {
            let stop = self.body(index)?;
            stop.page.checked_sub(u64::from(stop.begins))?
        };
        (found.page <= last).then_some(PageSpan { first: found.page, last, restart: found.restart })
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

    /// On which side of the border of a pivot the position lies; the first `known` bytes and the one in the code agree.
    ///
    /// `None` when the leaf is not what a builder writes.
    #[inline]
    fn compare(&self, index: usize, key: &[u8], at: BlockNumber, known: usize) -> Option<Side> {
        let (flags, len) = self.len(index)?;
        if flags & EXTRAS != 0 || self.coarse {
            return Some(self.body(index)?.compare(key, at, known));
        }
        // By far the most: the separator is in one piece and lies between two keys.
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
        let pages = if self.coarse {
            take_varint(body, &mut at)?
        } else {
            // The first pivot of a leaf lies in its first page, whether it begins it or not.
            let first = self.len(0)?.0 & BEGINS != 0;
            (begins_before + usize::from(begins)).checked_sub(usize::from(first))? as u64
        };
        let page = self.first_page.checked_add(pages)?;
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
        let mut end = 0;
        for index in 0..self.pivots {
            let (offset, _) = self.offset(index)?;
            if offset != end {
                return None;
            }
            end += self.len(index)?.1;
            let (body, code) = (self.body(index)?, self.code(index)?);
            let shared = 127usize.checked_sub(usize::from(code >> 8))?;
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
            each(&Pivot { separator: Separator { key: &key, before }, page, restart, ordinal: 0 })?;
        }
        (self.bodies_at + end == self.end).then_some(())
    }
}

/// Where a position lies, seen from a border.
enum Side {
    /// Before it.
    Before,
    /// At or behind it; the key and the separator agree in so many bytes.
    Behind(usize),
}

impl Side {
    /// The side by the bytes of separator and key behind the first `known`, where they agree; equal keys lie behind.
    #[inline]
    fn of(separator: &[u8], key: &[u8], known: usize) -> Self {
        let equal = shared_len(separator, key);
        let behind = equal == separator.len() || (equal < key.len() && key[equal] > separator[equal]);
        if behind { Self::Behind(known + equal) } else { Self::Before }
    }
}

impl Body<'_> {
    /// On which side of this border the position lies; the first `known` bytes and the one in the code agree.
    fn compare(&self, key: &[u8], at: BlockNumber, known: usize) -> Side {
        let mut matched = known;
        if !self.empty {
            // The byte in the code agrees, or it is a zero where the key ends.
            matched += 1;
            for part in [self.head, &ZEROS[..self.zeros], self.tail] {
                let Some(rest) = key.get(matched..) else { return Side::Before };
                match Side::of(part, rest, matched) {
                    Side::Behind(agrees) if agrees == matched + part.len() => matched = agrees,
                    side => return side,
                }
            }
        }
        let answered_before = matched == key.len() && self.before.is_some_and(|before| before <= at);
        if answered_before { Side::Before } else { Side::Behind(matched) }
    }
}

/// The first index from `from` on whose code is not below `wanted`; some number of at least `pivots` where there is none.
///
/// Compares four codes in one subtraction, sixteen without a branch: a code with its top bit set, less `wanted`, keeps the bit
/// exactly when it is not below, and borrows from no neighbour. What lies behind the last code is compared too, and means
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
