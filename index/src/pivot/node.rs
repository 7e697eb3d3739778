//! One leaf of a `.bt`: how it is searched. `layout` says where what is, `packer` writes it, `decode` reads the whole of it.
//!
//! ```text
//! header | directory: head, code, end, offset of each group, rest of its first separator | groups
//! group:   page, bits, count | code of each pivot but the first | ends of bodies | places | bodies | fences
//! ```
//!
//! The separators of a leaf are front-coded twice: the first of each group after the first of the group before, and within a
//! group each after the one before it. The *code* of a separator is how many bytes it shares with that predecessor,
//! inverted, and the first byte that differs. While a search walks along the codes it knows how many bytes of the key agree with
//! the separator it stands on, and the key's own code at that point: a separator with a smaller code is before the key, one with
//! a greater code after it, and only for an equal one is the rest looked at. So a search is a scan of at most 31 numbers for the first that is
//! not smaller, without a wrong guess of the processor, and one or two rests.
//!
//! In the directory the *heads*, four bytes after those that all of a leaf share, mostly tell the group at once; where heads are equal the
//! search goes on along the codes.
//!
//! Where a pivot has a span of several pages, the boundaries between them are there with their codes alone, the [fences](super::fence).
//!
//! Source: front coding after Bayer and Unterauer, *Prefix B-Trees*, 1977; searching by the shared lengths alone after
//! Ferguson, *Bit-Tree*, 1992, and Lomet, *The evolution of effective B-tree*, 2001.

#![allow(clippy::inline_always, reason = "a call for each costs a search 7 % more instructions: callgrind")]

use std::hint::black_box;

use icecore_segments::bytes::take_varint;
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;

use super::fence::{self, FENCE_LEN, FENCES_MAX};
use super::layout::{
    BLOCK_BASE_AT, BLOCK_LEN_AT, COARSE, DEPTH_AT, DIRECTORY_AT, END_AT, END_BEFORE, END_EMPTY, END_HEAD_MAX,
    END_HEAD_SHIFT, END_OFFSET, ENTRY_LEN, EXTRA_BEFORE, EXTRA_EMPTY, EXTRA_ZEROS, FIRST_PAGE_AT, FLAGS_AT,
    GROUP_CODES_AT, GROUP_COUNT_AT, GROUP_EXTRAS_AT, GROUP_MAX, GROUPS_AT, HEAD_LEN, LAST_PAGE_AT, PIVOTS_AT,
    PLACE_LEN_SHIFT, SHARED_MAX, head,
};
use super::page::Page;
use super::search::{Body, Boundaries, Position, search};

/// A leaf.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a> {
    page: Page<'a>,
    groups: usize,
}

/// A group, its parts found.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    leaf: Leaf<'a>,
    number: usize,
    at: usize,
    pub(super) count: usize,
}

impl<'a> Leaf<'a> {
    #[inline]
    pub(super) fn new(page: Page<'a>) -> Self {
        Self { page, groups: usize::from(page.byte(GROUPS_AT)) }
    }

    /// The span of the last pivot whose boundary is not after `(key, at)`. The key agrees with `known` bytes of the first boundary, and is
    /// not before it.
    ///
    /// `None` when the leaf is not what a builder writes, as far as that was noticed.
    #[inline]
    pub(super) fn locate(&self, key: &[u8], at: BlockNumber, known: usize) -> Option<PageSpan> {
        let position = Position { key, at };
        let (number, known) = self.find_group(position, known)?;
        let group = self.group(number);
        let (index, known) = search_group(group, position, known);
        let span = group.span(index);
        if span.first == span.last { Some(span) } else { group.narrow(span, index, key, known) }
    }

    /// The last group whose first boundary is not after the position, and how many bytes of that agree, as far as a code can say.
    #[inline(always)]
    fn find_group(&self, position: Position<'_>, known: usize) -> Option<(usize, usize)> {
        let depth = usize::from(self.page.byte(DEPTH_AT));
        if known < depth {
            // All separators share more with the first than the key does, which is after it.
            return Some((self.groups.checked_sub(1)?, known));
        }
        let wanted = head(position.key, depth);
        let (heads, _) = self.page.slice(DIRECTORY_AT, DIRECTORY_AT + HEAD_LEN * self.groups)?.as_chunks();
        let next = heads.partition_point(|head| u32::from_le_bytes(*head) < wanted);
        let (mut group, mut known) = (0, known);
        if next > 1 {
            group = next - 1;
            // A head that is not the key's: they differ in one of the four bytes, or the separator ended.
            let agrees = (self.head(group) ^ wanted).leading_zeros() as usize / 8;
            let len = usize::from(self.end(group) >> END_HEAD_SHIFT) & END_HEAD_MAX;
            known = (depth + agrees.min(len)).min(SHARED_MAX);
        }
        if group + 1 >= self.groups || self.head(group + 1) != wanted {
            return Some((group, known));
        }
        Some(search_directory(*self, position, group, known))
    }

    /// The first separator of a group.
    pub(super) fn body(&self, group: usize) -> Option<Body<'a>> {
        let from = group.checked_sub(1).map_or(self.rests_at(), |before| offset(self.end(before)));
        let end = self.end(group);
        let mut to = offset(end);
        let before = if end & END_BEFORE == 0 { None } else { Some(self.take_block(&mut to)?) };
        let tail = self.page.slice(from, to)?;
        Some(Body { before, empty: end & END_EMPTY != 0, head: &[], zeros: 0, tail })
    }

    /// The block that ends at `end`, which becomes where it begins.
    #[inline]
    fn take_block(&self, end: &mut usize) -> Option<BlockNumber> {
        let len = usize::from(self.page.byte(BLOCK_LEN_AT));
        // The header is before it, so there are eight bytes.
        let bytes = self.page.u64(end.checked_sub(size_of::<BlockNumber>())?);
        let more = bytes.checked_shr(64u32.checked_sub(8 * len as u32)?).unwrap_or(0);
        *end -= len;
        Some(self.page.u64(BLOCK_BASE_AT).wrapping_add(more))
    }

    #[inline(always)]
    pub(super) fn head(&self, group: usize) -> u32 {
        self.page.u32(DIRECTORY_AT + HEAD_LEN * group)
    }

    /// The code of the first separator of a group, not the first.
    pub(super) fn code(&self, group: usize) -> u16 {
        self.page.u16(self.codes_at() + 2 * group)
    }

    /// Where the rest of the first separator of a group ends, and what is beside it.
    #[inline(always)]
    pub(super) fn end(&self, group: usize) -> u16 {
        self.page.u16(self.codes_at() + 2 * (self.groups + group))
    }

    /// Where a group begins; where the last one ends for the one after it.
    #[inline(always)]
    pub(super) fn group_at(&self, group: usize) -> usize {
        let at = self.codes_at() + 2 * (2 * self.groups + group);
        usize::from(self.page.u16(if group == self.groups { END_AT } else { at }))
    }

    /// Where the rests begin.
    fn rests_at(&self) -> usize {
        DIRECTORY_AT + ENTRY_LEN * self.groups - 2
    }

    #[inline(always)]
    pub(super) fn group(&self, number: usize) -> Group<'a> {
        let at = self.group_at(number);
        // What else of a group a search reads depends on the codes: ask for its lines while these are scanned.
        for line in 2..4 {
            black_box(self.page.byte(at + 64 * line));
        }
        Group { leaf: *self, number, at, count: usize::from(self.page.byte(at + GROUP_COUNT_AT)) }
    }

    /// How many bytes say the place of a pivot.
    #[inline(always)]
    fn place_len(&self) -> usize {
        usize::from(self.page.byte(FLAGS_AT) >> PLACE_LEN_SHIFT) % 4
    }

    pub(super) fn depth(&self) -> usize {
        usize::from(self.page.byte(DEPTH_AT))
    }

    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// How many pivots it says it has.
    pub(super) fn pivots(&self) -> usize {
        usize::from(self.page.u16(PIVOTS_AT))
    }

    #[inline(always)]
    pub(super) fn is_coarse(&self) -> bool {
        self.page.byte(FLAGS_AT) & COARSE != 0
    }
}

impl<'a> Group<'a> {
    #[inline(always)]
    fn ends_at(&self) -> usize {
        // All but the first have a code.
        self.at + GROUP_CODES_AT + 2 * self.count - 2
    }

    #[inline(always)]
    fn places_at(&self) -> usize {
        self.at + GROUP_CODES_AT + 3 * self.count - 3
    }

    #[inline(always)]
    fn bodies_at(&self) -> usize {
        self.places_at() + self.leaf.place_len() * self.count
    }

    /// The code of a separator, not the first.
    pub(super) fn code(&self, index: usize) -> u16 {
        self.leaf.page.u16(self.at + GROUP_CODES_AT + 2 * index - 2)
    }

    /// Where the body of a pivot ends, counted from the bodies. The first has none.
    #[inline(always)]
    fn end(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| usize::from(self.leaf.page.byte(self.ends_at() + before)))
    }

    /// From where to where the body of a pivot is, not that of the first.
    #[inline(always)]
    fn range(&self, index: usize) -> (usize, usize) {
        let bodies_at = self.bodies_at();
        (bodies_at + self.end(index - 1), bodies_at + self.end(index))
    }

    /// A bit for each body that has an extras byte.
    #[inline(always)]
    pub(super) fn extras(&self) -> u32 {
        self.leaf.page.u32(self.at + GROUP_EXTRAS_AT)
    }

    /// The separator of a pivot, not of the first.
    pub(super) fn body(&self, index: usize) -> Option<Body<'a>> {
        let (mut from, mut end) = self.range(index);
        let mut body = Body { before: None, empty: false, head: &[], zeros: 0, tail: &[] };
        let mut head_len = 0;
        if self.extras() >> (index % GROUP_MAX) & 1 != 0 {
            let extras = self.leaf.page.byte(from);
            from += 1;
            if extras & !(EXTRA_BEFORE | EXTRA_ZEROS | EXTRA_EMPTY) != 0 {
                return None;
            }
            body.empty = extras & EXTRA_EMPTY != 0;
            if extras & EXTRA_BEFORE != 0 {
                body.before = Some(self.leaf.take_block(&mut end)?);
            }
            if extras & EXTRA_ZEROS != 0 {
                let bytes = self.leaf.page.slice(0, end)?;
                let mut take = || usize::try_from(take_varint(bytes, &mut from)?).ok();
                (head_len, body.zeros) = (take()?, take()?);
            }
        }
        (body.head, body.tail) = self.leaf.page.slice(from, end)?.split_at_checked(head_len)?;
        (body.zeros <= PAGE_SIZE).then_some(body)
    }

    /// The span of a pivot, without fences.
    #[inline(always)]
    fn span(&self, index: usize) -> PageSpan {
        let (first, restart) = self.place(index);
        let next = if index + 1 < self.count { Some((*self, index + 1)) } else { None };
        let last = if self.leaf.is_coarse() {
            let (group, index) = next.unwrap_or_else(|| (self.leaf.group(self.number + 1), 0));
            if group.number == self.leaf.groups {
                self.leaf.page.u64(LAST_PAGE_AT)
            } else {
                let (page, restart) = group.place(index);
                page.wrapping_sub(u64::from(restart == 0))
            }
        } else if next.is_none() && self.number + 1 == self.leaf.groups {
            self.leaf.page.u64(LAST_PAGE_AT)
        } else {
            // The next pivot is in this page, or begins the next.
            first
        };
        PageSpan { first, last, restart }
    }

    /// Page and restart of a pivot.
    #[inline(always)]
    pub(super) fn place(&self, index: usize) -> (u64, u16) {
        let len = self.leaf.place_len();
        let place = self.leaf.page.u32(self.places_at() + len * index);
        let restart = place & ((1 << (8 * len)) - 1);
        let first_page =
            self.leaf.page.u64(FIRST_PAGE_AT).wrapping_add(u64::from(self.leaf.page.u32(self.at)));
        (first_page.wrapping_add(u64::from(place as u8)), (restart >> 8) as u16)
    }

    /// The pages of the span of a pivot that the fences leave to a key of which the first `known` bytes agree with the pivot.
    #[inline(never)]
    fn narrow(self, span: PageSpan, index: usize, key: &[u8], known: usize) -> Option<PageSpan> {
        let is_last = index + 1 == self.count && self.number + 1 == self.leaf.groups;
        let fences = if is_last { &[] } else { self.fences_of(span, index)? };
        if fences.is_empty() {
            return (span.first <= span.last).then_some(span);
        }
        let (before, open) = fence::search(fences, key, known);
        let restart = if before == 0 { span.restart } else { 0 };
        let first = span.first + before;
        Some(PageSpan { first, last: first + open, restart })
    }

    /// The fences between the pages of the span of a pivot; none where the group does not have them.
    pub(super) fn fences_of(&self, span: PageSpan, index: usize) -> Option<&'a [[u8; FENCE_LEN]]> {
        // Every page of the group so far begins with a pivot or with a fence.
        let begins = |index: usize| self.place(index).1 == 0;
        let all_begin = self.leaf.place_len() == 1;
        let begin = if all_begin { index + 1 } else { (0..=index).filter(|&index| begins(index)).count() };
        let pages = span.first.checked_sub(self.place(0).0)? + u64::from(begins(0));
        let from = usize::try_from(pages).ok()?.checked_sub(begin)?;
        let count = usize::try_from(span.last.checked_sub(span.first)?).ok()?;
        let fences = self.fences()?;
        let end = from.checked_add(count).filter(|&end| count <= FENCES_MAX && end <= fences.len());
        Some(end.map_or(&[], |end| &fences[from..end]))
    }

    /// All fences of the group: what is after its bodies.
    pub(super) fn fences(&self) -> Option<&'a [[u8; FENCE_LEN]]> {
        let from = self.bodies_at() + self.end(self.count.checked_sub(1)?);
        let (fences, odd) = self.leaf.page.slice(from, self.leaf.group_at(self.number + 1))?.as_chunks();
        odd.is_empty().then_some(fences)
    }

    pub(super) fn is_coarse(&self) -> bool {
        self.leaf.is_coarse()
    }

    /// Where the group begins in its page.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

/// An end in the directory without what is beside it.
#[inline(always)]
pub(super) fn offset(end: u16) -> usize {
    usize::from(end & END_OFFSET)
}

impl Boundaries for Leaf<'_> {
    #[inline(always)]
    fn page(&self) -> Page<'_> {
        self.page
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.groups
    }

    #[inline(always)]
    fn codes_at(&self) -> usize {
        DIRECTORY_AT + HEAD_LEN * self.groups - 2
    }

    #[inline(always)]
    fn rest(&self, group: usize) -> Option<(usize, usize)> {
        let (from, end) = (self.end(group - 1), self.end(group));
        (end & (END_BEFORE | END_EMPTY) == 0).then_some((offset(from), offset(end)))
    }

    #[inline(always)]
    fn block(&self, group: usize) -> Option<BlockNumber> {
        let end = self.end(group);
        if end & END_EMPTY == 0 { None } else { self.take_block(&mut offset(end)) }
    }

    fn separator(&self, group: usize) -> Option<Body<'_>> {
        self.body(group)
    }
}

impl Boundaries for Group<'_> {
    #[inline(always)]
    fn page(&self) -> Page<'_> {
        self.leaf.page
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn codes_at(&self) -> usize {
        self.at + GROUP_CODES_AT - 2
    }

    #[inline(always)]
    fn rest(&self, index: usize) -> Option<(usize, usize)> {
        (self.extras() >> (index % GROUP_MAX) & 1 == 0).then(|| self.range(index))
    }

    #[inline(always)]
    fn block(&self, index: usize) -> Option<BlockNumber> {
        let (from, mut end) = self.range(index);
        let is_version = self.extras() >> (index % GROUP_MAX) & 1 != 0
            && self.leaf.page.byte(from) == EXTRA_BEFORE | EXTRA_EMPTY;
        if is_version { self.leaf.take_block(&mut end) } else { None }
    }

    fn separator(&self, index: usize) -> Option<Body<'_>> {
        self.body(index)
    }
}

/// The directory's part of [`search`], where heads do not tell.
#[inline(never)]
fn search_directory(leaf: Leaf<'_>, position: Position<'_>, passed: usize, known: usize) -> (usize, usize) {
    search(leaf, position, passed, known)
}

/// The group's part of [`search`]. A function of its own keeps all it needs in registers.
#[inline(never)]
fn search_group(group: Group<'_>, position: Position<'_>, known: usize) -> (usize, usize) {
    search(group, position, 0, known)
}
