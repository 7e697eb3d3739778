//! Packs pivots into leaves of a `.bt`.

use icecore_segments::bytes::{put_varint, shared_len};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::{Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::fence::{FENCE_LEN, FENCES_MAX, fence};
use super::layout::{
    BLOCK_BASE_AT, BLOCK_LEN_AT, BODIES_MAX, COARSE, CODES_LEN, DEPTH_AT, DIRECTORY_AT, END_AT, END_BEFORE,
    END_EMPTY, END_HEAD_MAX, END_HEAD_SHIFT, ENTRY_LEN, EXTRA_BEFORE, EXTRA_EMPTY, EXTRA_ZEROS,
    FIRST_PAGE_AT, FLAGS_AT, GROUP_CODES_AT, GROUP_MAX, GROUPED, GROUPS_AT, HEAD_LEN, LAST_PAGE_AT,
    LEAF_LEN_MAX, PIVOTS_AT, PLACE_LEN_SHIFT, SHARED_MAX, code, head,
};

/// A run of zeros shorter than this is stored: leaving it out costs three bytes.
const ZEROS_MIN: usize = 5;

/// The longest separator that is certain to fit an empty leaf.
pub(super) const SEPARATOR_LEN_MAX: usize = PAGE_SIZE - DIRECTORY_AT - 64;

/// Collects the pivots of one leaf.
#[derive(Default)]
pub(super) struct LeafBuilder {
    pivots: Vec<Packed>,
    groups: Vec<Group>,
    /// What is stored of the separators, without blocks.
    bodies: Vec<u8>,
    /// The newest separator, and that of the newest group's first pivot.
    newest: Vec<u8>,
    first: Vec<u8>,
    fences: Vec<u16>,
    /// The fences after the newest pivot, and the newest boundary, be it of a pivot or of a fence.
    pending_fences: Vec<u16>,
    boundary: Vec<u8>,
    /// How many bytes the first separators of all groups share.
    depth: usize,
    sums: Sums,
}

struct Packed {
    code: u16,
    extras: u8,
    body_end: usize,
    page: u64,
    restart: u16,
    before: Option<BlockNumber>,
}

/// Where the pivots, bodies and fences of a group end, counted over the leaf.
struct Group {
    pivots_from: usize,
    /// The first bytes of its first separator: as many as a head can end with.
    head: Vec<u8>,
    /// What its bodies take at most, the first one's not counted.
    bodies_len: usize,
    fences_end: usize,
    /// Whether a span is without fences, so that all after it are.
    is_unfenced: bool,
}

/// What decides how many bytes the leaf takes.
#[derive(Clone, Copy, Default)]
struct Sums {
    first_page: u64,
    pivots: usize,
    groups: usize,
    bodies_len: usize,
    fences: usize,

    /// The lowest and the highest block of a boundary between versions, and how many such boundaries are there.
    blocks: Option<(BlockNumber, BlockNumber)>,
    blocks_count: usize,
    coarse: bool,
    /// The bytes that say the place of a pivot.
    place_len: usize,
}

impl Sums {
    fn add(&mut self, pivot: &Pivot<'_>, is_first: bool, is_regular: bool, body_len: usize) {
        if self.pivots == 0 {
            self.first_page = pivot.page;
        }
        self.pivots += 1;
        self.groups += usize::from(is_first);
        self.bodies_len += body_len;
        self.coarse |= !is_regular;
        let restart_len = [0, 1, 2][usize::from(pivot.restart > 0) + usize::from(pivot.restart > 0xFF)];
        self.place_len = self.place_len.max(1 + restart_len);
        if let Some(block) = pivot.separator.before {
            let (low, high) = self.blocks.unwrap_or((block, block));
            self.blocks = Some((low.min(block), high.max(block)));
            self.blocks_count += 1;
        }
    }

    /// The bytes of each block, less the lowest.
    fn block_len(&self) -> usize {
        self.blocks.map_or(0, |(low, high)| (64 - (high - low).leading_zeros() as usize).div_ceil(8))
    }

    /// Where the rests of the directory begin: the first group has no code.
    fn rests_at(&self) -> usize {
        DIRECTORY_AT + ENTRY_LEN * self.groups - 2
    }

    /// The bytes of the leaf.
    fn len(&self) -> usize {
        const CODE_AND_END: usize = 3;
        self.rests_at()
            + GROUP_CODES_AT * self.groups
            + CODE_AND_END * (self.pivots - self.groups)
            + self.place_len * self.pivots
            + self.bodies_len
            + self.block_len() * self.blocks_count
            + FENCE_LEN * self.fences
    }

    /// Whether a leaf has room for all of it, with `in_group` pivots in the newest group: what is looked at together with its last code is
    /// in the page too.
    fn fits(&self, in_group: usize) -> bool {
        let after_codes = in_group - 1 + self.place_len * in_group;
        let looked_at = self.len() - after_codes + CODES_LEN - 2;
        self.len() <= LEAF_LEN_MAX && (self.pivots == 1 || looked_at <= PAGE_SIZE)
    }
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
        let (Some(last), Some(group)) = (self.pivots.last(), self.groups.last()) else { return 0 };
        let inner = next.page - u64::from(next.restart == 0) - last.page;
        // A page whose boundary was too long to be offered leaves the span without fences, and all spans after it in the group.
        let all = self.pending_fences.len() as u64 == inner && inner <= FENCES_MAX as u64;
        if all && !group.is_unfenced { inner as usize } else { 0 }
    }

    /// Takes the next pivot, or returns `false` and changes nothing when the leaf is full.
    pub(super) fn push(&mut self, pivot: &Pivot<'_>) -> bool {
        let Separator { key, before } = pivot.separator;
        let bodies_from = self.bodies.len();
        let mut shared = shared_len(key, &self.newest).min(SHARED_MAX);
        let mut extras = put_body(&mut self.bodies, &pivot.separator, shared);
        let body_len = self.bodies.len() - bodies_from;
        let is_first = self.begins_group(pivot, body_len);
        if is_first {
            shared = shared_len(key, &self.first).min(SHARED_MAX);
            extras = if key.len() == shared { EXTRA_EMPTY } else { 0 };
            // The first of a leaf has no code, so all of it is in the rest.
            let coded = usize::from(!self.pivots.is_empty());
            self.bodies.truncate(bodies_from);
            self.bodies.extend_from_slice(key.get(shared + coded..).unwrap_or_default());
        }
        let is_regular =
            self.pivots.last().is_none_or(|last| pivot.page == last.page + u64::from(pivot.restart == 0));
        let fences = self.fences_before(pivot);
        let mut sums = self.sums;
        sums.add(pivot, is_first, is_regular, self.bodies.len() - bodies_from);
        sums.fences += fences;
        let in_group = 1 + if is_first { 0 } else { self.pivots.len() - self.group_from() };
        if !sums.fits(in_group) || pivot.page - sums.first_page > u64::from(u32::MAX) {
            self.bodies.truncate(bodies_from);
            return false;
        }
        self.sums = sums;
        self.end_span(fences, is_regular);
        if is_first {
            self.depth =
                if self.pivots.is_empty() { key.len() } else { self.depth.min(shared) }.min(SHARED_MAX);
            let (pivots_from, fences_end) = (self.pivots.len(), self.fences.len());
            let head = key[..key.len().min(SHARED_MAX + HEAD_LEN)].to_vec();
            self.groups.push(Group { pivots_from, head, fences_end, bodies_len: 0, is_unfenced: false });
            key.clone_into(&mut self.first);
        } else if let Some(group) = self.groups.last_mut() {
            group.bodies_len += bytes_at_most(body_len, before);
        }
        let code = code(shared, key.get(shared).copied().unwrap_or(0));
        let (page, restart, body_end) = (pivot.page, pivot.restart, self.bodies.len());
        self.pivots.push(Packed { code, extras, body_end, page, restart, before });
        key.clone_into(&mut self.newest);
        key.clone_into(&mut self.boundary);
        true
    }

    /// The first pivot of the newest group.
    fn group_from(&self) -> usize {
        self.groups.last().map_or(0, |group| group.pivots_from)
    }

    /// Whether a pivot has to begin a group: there is none, or it is full, or a byte cannot say the place of its body or page.
    fn begins_group(&self, pivot: &Pivot<'_>, body_len: usize) -> bool {
        let Some(group) = self.groups.last() else { return true };
        self.pivots.len() - group.pivots_from == GROUP_MAX
            || group.bodies_len + bytes_at_most(body_len, pivot.separator.before) > BODIES_MAX
            || pivot.page - self.pivots[group.pivots_from].page > u64::from(u8::MAX)
    }

    /// Makes those that wait the fences of the newest pivot, if it gets any.
    fn end_span(&mut self, fences: usize, is_regular: bool) {
        if let Some(group) = self.groups.last_mut() {
            if fences > 0 {
                self.fences.append(&mut self.pending_fences);
            } else {
                group.is_unfenced |= !is_regular;
            }
            group.fences_end = self.fences.len();
        }
        self.pending_fences.clear();
    }

    /// Writes the leaf into `page`, which is all zeros, and starts an empty one. `last_page` is the last page that the span of the last
    /// pivot reaches.
    pub(super) fn finish(&mut self, page: &mut [u8; PAGE_SIZE], last_page: u64) {
        let sums = self.sums;
        let mut directory = Directory::default();
        let mut groups = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            directory.offsets.push(groups.len());
            self.put_entry(&mut directory, group, number == 0);
            self.put_group(&mut groups, number);
        }
        let flags =
            GROUPED | if sums.coarse { COARSE } else { 0 } | (sums.place_len as u8) << PLACE_LEN_SHIFT;
        (page[FLAGS_AT], page[BLOCK_LEN_AT]) = (flags, sums.block_len() as u8);
        (page[GROUPS_AT], page[DEPTH_AT]) = (sums.groups as u8, self.depth as u8);
        let base = self.block_base();
        for (at, value) in
            [(FIRST_PAGE_AT, sums.first_page), (LAST_PAGE_AT, last_page), (BLOCK_BASE_AT, base)]
        {
            page[at..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let items = [directory.bytes(), groups].concat();
        let end = DIRECTORY_AT + items.len();
        for (at, value) in [(PIVOTS_AT, sums.pivots), (END_AT, end)] {
            page[at..][..2].copy_from_slice(&(value as u16).to_le_bytes());
        }
        page[DIRECTORY_AT..end].copy_from_slice(&items);
        *self = Self::default();
    }

    /// Adds the first separator of a group.
    fn put_entry(&self, directory: &mut Directory, group: &Group, is_first: bool) {
        let pivot = &self.pivots[group.pivots_from];
        directory.heads.extend_from_slice(&head(&group.head, self.depth).to_le_bytes());
        if !is_first {
            put_u16(&mut directory.codes, pivot.code);
        }
        directory.rests.extend_from_slice(self.body(group.pivots_from));
        self.put_block(&mut directory.rests, pivot);
        let before = if pivot.before.is_some() { END_BEFORE } else { 0 };
        let empty = if !is_first && pivot.extras & EXTRA_EMPTY != 0 { END_EMPTY } else { 0 };
        let head_len = (group.head.len() - self.depth).min(END_HEAD_MAX) as u16;
        let end = self.sums.rests_at() + directory.rests.len();
        put_u16(&mut directory.ends, end as u16 | head_len << END_HEAD_SHIFT | before | empty);
    }

    /// Appends a group.
    fn put_group(&self, out: &mut Vec<u8>, number: usize) {
        let group = &self.groups[number];
        let end = self.groups.get(number + 1).map_or(self.pivots.len(), |next| next.pivots_from);
        let fences_from = number.checked_sub(1).map_or(0, |before| self.groups[before].fences_end);
        let pivots = &self.pivots[group.pivots_from..end];
        let mut with_extras = 0u32;
        let (mut codes, mut ends, mut places, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, pivot) in pivots.iter().enumerate() {
            let [low, high] = pivot.restart.to_le_bytes();
            let place = [(pivot.page - pivots[0].page) as u8, low, high];
            places.extend_from_slice(&place[..self.sums.place_len]);
            if index == 0 {
                continue;
            }
            put_u16(&mut codes, pivot.code);
            with_extras |= u32::from(pivot.extras != 0) << index;
            bodies.extend_from_slice(self.body(group.pivots_from + index));
            self.put_block(&mut bodies, pivot);
            ends.push(bodies.len() as u8);
        }
        let first_page = (pivots[0].page - self.sums.first_page) as u32;
        out.extend_from_slice(&first_page.to_le_bytes());
        out.extend_from_slice(&with_extras.to_le_bytes());
        out.push(pivots.len() as u8);
        [codes, ends, places, bodies].iter().for_each(|part| out.extend_from_slice(part));
        self.fences[fences_from..group.fences_end].iter().for_each(|&fence| put_u16(out, fence));
    }

    /// What is stored of a separator.
    fn body(&self, pivot: usize) -> &[u8] {
        let from = pivot.checked_sub(1).map_or(0, |before| self.pivots[before].body_end);
        &self.bodies[from..self.pivots[pivot].body_end]
    }

    fn put_block(&self, out: &mut Vec<u8>, pivot: &Packed) {
        if let Some(block) = pivot.before {
            let more = block - self.block_base();
            out.extend_from_slice(&more.to_le_bytes()[..self.sums.block_len()]);
        }
    }

    fn block_base(&self) -> BlockNumber {
        self.sums.blocks.map_or(0, |(low, _)| low)
    }
}

/// The parts of a directory.
#[derive(Default)]
struct Directory {
    heads: Vec<u8>,
    codes: Vec<u8>,
    ends: Vec<u8>,
    /// Counted from the first group.
    offsets: Vec<usize>,
    rests: Vec<u8>,
}

impl Directory {
    fn bytes(self) -> Vec<u8> {
        let Self { heads, codes, ends, offsets, rests } = self;
        let len = heads.len() + codes.len() + ends.len() + 2 * offsets.len() + rests.len();
        let mut at = Vec::new();
        offsets.iter().for_each(|offset| put_u16(&mut at, (DIRECTORY_AT + len + offset) as u16));
        [heads, codes, ends, at, rests].concat()
    }
}

/// What a body takes, however far the blocks of the leaf are apart: groups end where they end whatever else the leaf gets.
fn bytes_at_most(body_len: usize, before: Option<BlockNumber>) -> usize {
    body_len + if before.is_some() { size_of::<BlockNumber>() } else { 0 }
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a body without its block, and returns the extras.
fn put_body(out: &mut Vec<u8>, separator: &Separator<'_>, shared: usize) -> u8 {
    let suffix = &separator.key[shared..];
    let tail = suffix.get(1..).unwrap_or_default();
    let (zeros_at, zeros) = longest_zeros(tail);
    let mut extras = if suffix.is_empty() { EXTRA_EMPTY } else { 0 };
    extras |= if separator.before.is_some() { EXTRA_BEFORE } else { 0 };
    extras |= if zeros < ZEROS_MIN { 0 } else { EXTRA_ZEROS };
    if extras != 0 {
        out.push(extras);
    }
    if zeros < ZEROS_MIN {
        out.extend_from_slice(tail);
        return extras;
    }
    put_varint(out, zeros_at as u64);
    put_varint(out, zeros as u64);
    out.extend_from_slice(&tail[..zeros_at]);
    out.extend_from_slice(&tail[zeros_at + zeros..]);
    extras
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
