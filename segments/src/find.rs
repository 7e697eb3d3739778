//! The lookup in a page of columns: by fingerprint to the one entry that can be it, then by its bytes.
//!
//! ```text
//! heads of the restarts --> one or two groups --> fingerprints of those --> an ordinal --> its blob
//! ```
//!
//! The heads say between which restarts a key must be, the fingerprints which of those entries to look at. Only the blob
//! of that entry is touched, and of those before it in its group that hold bytes of its key: a lookup waits for memory twice,
//! for the columns and for the blobs. In 14 entries a wrong fingerprint fits one time in 18; what fits is always compared
//! whole, so fingerprints decide how long a lookup takes and never what it answers.

use crate::bytes::{u16_at, word_at};
use crate::columns::{KIND_DELETION, KIND_INLINE};
use crate::fingerprint::fingerprint;
use crate::frame::PAGE_SIZE;
use crate::page::head;
use crate::page_header::{
    BASE_AT, BLOCK_WIDTH_AT, BLOCK_WIDTH_MAX, BODY_HEADER_LEN, COLUMN_RESTART_LEN, COLUMNS, COUNT_AT,
    FIXED_LEN, FLAGS_AT, Form, KEY_LEN_AT, KINDS, ONE_KEY, PAGE_HEADER_LEN, PREFIX_LEN_AT, RESTARTS_AT,
    STORED_LEN_AT,
};
use crate::step::BlockNumber;

/// Where the column of fingerprints begins in a page.
const PRINTS_AT: usize = PAGE_HEADER_LEN + BODY_HEADER_LEN;

/// The columns of one byte, by how many are before each.
const PRINTS: usize = 0;
const SHARED: usize = 1;
const LENS: usize = 2;
/// The lengths of blobs in a page of one key.
const LENS_OF_ONE_KEY: usize = 0;
const SUFFIX_LENS: usize = 3;

/// Every byte 1; every byte 0x7F; every other byte.
const ONES: u64 = 0x0101_0101_0101_0101;
const LOW_BITS: u64 = 0x7F7F_7F7F_7F7F_7F7F;
const EVEN_BYTES: u64 = 0x00FF_00FF_00FF_00FF;

/// A one in the top bit of every byte that is zero, and nowhere else.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

/// The sum of eight bytes.
#[inline]
fn sum_bytes(word: u64) -> usize {
    let pairs = (word & EVEN_BYTES) + (word >> 8 & EVEN_BYTES);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
}

/// What a lookup by fingerprints says.
pub(crate) enum Found<'a> {
    /// The newest version at or below the height: its block, and its value, unless that is a deletion.
    Entry(BlockNumber, Option<&'a [u8]>),
    /// The page has none.
    Absent,
    /// This way does not lead to an answer: a page in rows or with wide cells, a value outside its page, damage.
    Unsure,
}

/// A page in columns, as far as a lookup needs it; offsets are from the beginning of the page.
struct Columns<'a> {
    page: &'a [u8; PAGE_SIZE],
    form: Form,
    count: usize,
    restarts: usize,
    prefix_len: usize,
    key_len: usize,
    /// Where the restart table begins: after the columns.
    table_at: usize,
    /// Where the prefix ends and the blobs begin.
    blobs_at: usize,
    end: usize,
}

/// What is wanted of a page: the key after its prefix, and the height.
#[derive(Clone, Copy)]
struct Wanted<'k> {
    rest: &'k [u8],
    at: BlockNumber,
}

/// Finds the newest version of `key` at or below block `at` in a page whose checksum held.
///
/// Says what the ordered search would say, or that it cannot; `hint` is only checked. On its own, not inlined: what the
/// other ways to read a page need would take the registers.
#[inline(never)]
pub(crate) fn find<'a>(page: &'a [u8; PAGE_SIZE], hint: usize, key: &[u8], at: BlockNumber) -> Found<'a> {
    if page[FLAGS_AT] & ONE_KEY != 0 {
        return find_in_one_key(page, hint, key, at);
    }
    let columns = Columns::of(page, COLUMNS).filter(|columns| hint < columns.restarts);
    columns.and_then(|columns| columns.find(key, at)).unwrap_or(Found::Unsure)
}

/// The same in a page of the versions of one key.
#[inline(never)]
fn find_in_one_key<'a>(page: &'a [u8; PAGE_SIZE], hint: usize, key: &[u8], at: BlockNumber) -> Found<'a> {
    let columns = Columns::of(page, COLUMNS | ONE_KEY).filter(|columns| hint < columns.restarts);
    columns.and_then(|columns| columns.version_of_one_key(key, at)).unwrap_or(Found::Unsure)
}

// `None` throughout: the bytes belie each other, and who reads them in order will say how.
impl<'a> Columns<'a> {
    /// `layout`: the flags that the page has besides those of a fixed key length and of kinds.
    #[inline]
    fn of(page: &'a [u8; PAGE_SIZE], layout: u8) -> Option<Self> {
        let form = Form { flags: page[FLAGS_AT], block_width: page[BLOCK_WIDTH_AT] };
        if form.flags & !(FIXED_LEN | KINDS) != layout || form.block_width > BLOCK_WIDTH_MAX {
            return None;
        }
        let field = |at: usize| u16_at(page, at).map(usize::from);
        let body = PAGE_HEADER_LEN;
        let (count, end) = (field(COUNT_AT)?, body + field(STORED_LEN_AT)?);
        let (restarts, prefix_len) = (field(body + RESTARTS_AT)?, field(body + PREFIX_LEN_AT)?);
        let table_at = PRINTS_AT + form.cells_len() * count;
        let blobs_at = table_at + COLUMN_RESTART_LEN * restarts + prefix_len;
        let key_len = field(body + KEY_LEN_AT)?;
        let is_sound = blobs_at <= end && end <= PAGE_SIZE;
        is_sound.then_some(Self { page, form, count, restarts, prefix_len, key_len, table_at, blobs_at, end })
    }

    #[inline]
    fn find(&self, key: &[u8], at: BlockNumber) -> Option<Found<'a>> {
        let prefix = self.page.get(self.blobs_at - self.prefix_len..self.blobs_at)?;
        let Some(rest) = key.strip_prefix(prefix) else { return Some(Found::Absent) };
        if self.form.has(FIXED_LEN) && key.len() != self.key_len {
            return Some(Found::Absent);
        }
        let (group, to) = self.groups_of(head(rest))?;
        let end = if to < self.restarts { self.ordinal(to)? } else { self.count };
        let print = u64::from(fingerprint(rest)) * ONES;
        let Some(hit) = self.next_of(print, self.ordinal(group)?, end) else { return Some(Found::Absent) };
        let group = if to - group > 1 { self.group_of(group, to, hit)? } else { group };
        if let Some(value_at) = self.value_if(group, hit, rest)? {
            return self.version((group, to), hit, value_at, Wanted { rest, at });
        }
        self.find_after((group, to), hit, end, print, Wanted { rest, at })
    }

    /// The same after an entry that had the fingerprint and not the key: one time in 20.
    #[cold]
    #[inline(never)]
    fn find_after(
        &self,
        (mut group, to): (usize, usize),
        mut hit: usize,
        end: usize,
        print: u64,
        wanted: Wanted<'_>,
    ) -> Option<Found<'a>> {
        loop {
            let Some(next) = self.next_of(print, hit + 1, end) else { return Some(Found::Absent) };
            hit = next;
            group = self.group_of(group, to, hit)?;
            if let Some(value_at) = self.value_if(group, hit, wanted.rest)? {
                return self.version((group, to), hit, value_at, wanted);
            }
        }
    }

    /// The group of an entry that is in one from `group` to before `to`.
    #[inline]
    fn group_of(&self, mut group: usize, to: usize, ordinal: usize) -> Option<usize> {
        while group + 1 < to && self.ordinal(group + 1)? <= ordinal {
            group += 1;
        }
        Some(group)
    }

    /// The groups that can hold keys with this head: the first, and the one after the last. None: all keys are greater.
    #[inline]
    fn groups_of(&self, head: u16) -> Option<(usize, usize)> {
        let table = self.page.get(self.table_at..self.table_at + 2 * self.restarts)?;
        let heads = table.as_chunks().0;
        let mut to = heads.partition_point(|cell| u16::from_le_bytes(*cell) < head);
        let from = to.saturating_sub(1);
        if heads.get(to).is_some_and(|cell| u16::from_le_bytes(*cell) == head) {
            to += heads[to..].partition_point(|cell| u16::from_le_bytes(*cell) == head);
        }
        Some((from, to))
    }

    /// The ordinal of the first entry of a group.
    #[inline]
    fn ordinal(&self, group: usize) -> Option<usize> {
        u16_at(self.page, self.table_at + 2 * (self.restarts + group)).map(usize::from)
    }

    /// Where the blob of the first entry of a group begins.
    #[inline]
    fn first_blob_at(&self, group: usize) -> Option<usize> {
        let offset = u16_at(self.page, self.table_at + 2 * (2 * self.restarts + group))?;
        Some(self.blobs_at + usize::from(offset))
    }

    /// The first entry from `from` to before `end` that has the fingerprint which every byte of `print` is.
    #[inline]
    fn next_of(&self, print: u64, mut from: usize, end: usize) -> Option<usize> {
        while from < end {
            let hits = zero_bytes(self.word(PRINTS_AT + from) ^ print);
            if hits != 0 {
                let hit = from + (hits.trailing_zeros() / 8) as usize;
                return (hit < end).then_some(hit);
            }
            from += 8;
        }
        None
    }

    /// Eight bytes of the page, its last ones at most: columns of one byte end before those, or the blobs would be empty.
    #[inline]
    fn word(&self, at: usize) -> u64 {
        let at = at.min(PAGE_SIZE - 8);
        self.page[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    #[inline]
    fn bytes(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.page.get(at..)?.get(..len)
    }

    /// A cell of the column after so many others, of one byte. Bytes that belie each other lead to another one of the page.
    #[inline]
    fn cell(&self, column: usize, ordinal: usize) -> usize {
        self.page[(PRINTS_AT + column * self.count + ordinal) % PAGE_SIZE].into()
    }

    #[inline]
    fn block(&self, ordinal: usize) -> BlockNumber {
        let base = self.word_of_base();
        let width = usize::from(self.form.block_width);
        if width == 0 {
            return base;
        }
        let at = self.table_at - (self.count - ordinal) * width;
        base.wrapping_add(word_at(self.page, at) & (u64::MAX >> (64 - 8 * width)))
    }

    #[inline]
    fn word_of_base(&self) -> BlockNumber {
        let at = PAGE_HEADER_LEN + BASE_AT;
        self.page[at..].first_chunk().map_or(0, |base| u64::from_le_bytes(*base))
    }

    /// Whether a suffix has this length, where its key would then have the length wanted.
    #[inline]
    fn has_suffix_len(&self, ordinal: usize, len: usize) -> bool {
        self.form.has(FIXED_LEN) || self.cell(SUFFIX_LENS, ordinal) == len
    }

    /// The cells of the lengths shared, or of blobs, from an ordinal to before another.
    #[inline]
    fn cells(&self, column: usize, from: usize, to: usize) -> Option<&'a [u8]> {
        self.bytes(PRINTS_AT + column * self.count + from, to.checked_sub(from)?)
    }

    /// The length of the blobs of the entries from `from` to before `to`, of one group, by the column of those lengths.
    #[expect(clippy::inline_always, reason = "a call costs as much as the step")]
    #[inline(always)]
    fn blobs_len(&self, column: usize, from: usize, to: usize) -> Option<usize> {
        let (mut tail, mut len) = (self.cells(column, from, to)?, 0);
        while let Some((word, after)) = tail.split_first_chunk() {
            len += sum_bytes(u64::from_le_bytes(*word));
            tail = after;
        }
        if !tail.is_empty() {
            // Read from the end, so that there is always a whole word; shifted out is what is before the tail.
            let word = self.word(PRINTS_AT + column * self.count + to - 8);
            len += sum_bytes(word >> (64 - 8 * tail.len()));
        }
        Some(len)
    }

    /// Where the value of the entry `hit` of a group begins, if its key is that. `Some(None)`: it is another one.
    #[inline(never)]
    fn value_if(&self, group: usize, hit: usize, rest: &[u8]) -> Option<Option<usize>> {
        let first = self.ordinal(group)?;
        let blob_at = self.first_blob_at(group)? + self.blobs_len(LENS, first, hit)?;
        let Some((before, own)) = rest.split_at_checked(self.cell(SHARED, hit)) else { return Some(None) };
        if !self.has_suffix_len(hit, own.len()) || self.bytes(blob_at, own.len())? != own {
            return Some(None);
        }
        if !before.is_empty() && !self.shares((first, hit), blob_at, before)? {
            return Some(None);
        }
        Some(Some(blob_at + own.len()))
    }

    /// The newest version at or below the height of the key whose first entry is `first`, in the first of `groups`.
    #[expect(clippy::inline_always, reason = "a call costs as much as the step")]
    #[inline(always)]
    fn version(
        &self,
        groups: (usize, usize),
        first: usize,
        value_at: usize,
        wanted: Wanted<'_>,
    ) -> Option<Found<'a>> {
        let block = self.block(first);
        if block > wanted.at {
            return self.older_version(groups, first, wanted);
        }
        let value_len = (self.cell(LENS, first) + self.cell(SHARED, first)).checked_sub(wanted.rest.len())?;
        self.entry(first, block, value_at, value_len)
    }

    /// Whether the key of the last of the entries before `hit`, of whose group `first` is the first, begins with `wanted`: what it
    /// shares in turn is in those before it, back to the restart, which shares nothing.
    #[expect(clippy::inline_always, reason = "a call costs as much as the step")]
    #[inline(always)]
    fn shares(&self, (first, hit): (usize, usize), mut at: usize, mut wanted: &[u8]) -> Option<bool> {
        let lens = self.cells(LENS, first, hit)?;
        for (&len, &shared) in lens.iter().zip(self.cells(SHARED, first, hit)?).rev() {
            at = at.checked_sub(len.into())?;
            let shared = usize::from(shared);
            if shared < wanted.len() {
                let (before, own) = wanted.split_at(shared);
                if self.bytes(at, own.len())? != own {
                    return Some(false);
                }
                if before.is_empty() {
                    return Some(true);
                }
                wanted = before;
            }
        }
        None
    }

    /// The entry at a block, its value in its place.
    #[expect(clippy::inline_always, reason = "a call costs as much as the step")]
    #[inline(always)]
    fn entry(
        &self,
        ordinal: usize,
        block: BlockNumber,
        value_at: usize,
        value_len: usize,
    ) -> Option<Found<'a>> {
        let value = self.bytes(value_at, value_len)?;
        if value_at + value_len > self.end {
            return None;
        }
        let is_deletion = if self.form.has(KINDS) {
            let kinds_at = self.table_at - self.count * (1 + usize::from(self.form.block_width));
            match *self.page.get(kinds_at + ordinal)? {
                KIND_DELETION if value.is_empty() => true,
                KIND_INLINE => false,
                _ => return None,
            }
        } else {
            value.is_empty()
        };
        Some(Found::Entry(block, (!is_deletion).then_some(value)))
    }

    /// The newest version of `key` at or below `at` in a page that has the versions of one key only: that is its prefix.
    fn version_of_one_key(&self, key: &[u8], at: BlockNumber) -> Option<Found<'a>> {
        if self.page.get(self.blobs_at - self.prefix_len..self.blobs_at)? != key {
            return Some(Found::Absent);
        }
        let (mut above, mut ordinal) = (0, self.count);
        while above < ordinal {
            let middle = usize::midpoint(above, ordinal);
            if self.block(middle) > at { above = middle + 1 } else { ordinal = middle }
        }
        if ordinal == self.count {
            return Some(Found::Absent);
        }
        let (mut group, mut after) = (0, self.restarts);
        while after - group > 1 {
            let middle = usize::midpoint(group, after);
            if self.ordinal(middle)? > ordinal { after = middle } else { group = middle }
        }
        let value_at =
            self.first_blob_at(group)? + self.blobs_len(LENS_OF_ONE_KEY, self.ordinal(group)?, ordinal)?;
        self.entry(ordinal, self.block(ordinal), value_at, self.cell(LENS_OF_ONE_KEY, ordinal))
    }

    /// The newest version at or below the height of the key whose first entry, at `first`, is above it; in `groups`, the
    /// first of which that entry is in.
    #[inline(never)]
    fn older_version(&self, groups: (usize, usize), first: usize, wanted: Wanted<'_>) -> Option<Found<'a>> {
        // The last group that begins with the key above the height, or the first one. By its fingerprint; compared is the last.
        let print = self.cell(PRINTS, first);
        let (mut low, mut high) = groups;
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            let ordinal = self.ordinal(middle)?;
            let is_above = self.cell(PRINTS, ordinal) == print && self.block(ordinal) > wanted.at;
            if is_above { low = middle } else { high = middle }
        }
        if low > groups.0 && !self.begins_with(low, wanted.rest)? {
            return None;
        }
        let begin = self.ordinal(low)?;
        let to = if low + 1 < self.restarts { self.ordinal(low + 1)? } else { self.count };
        let from = begin.max(first);
        let run = (from + 1..to).find(|&ordinal| !self.repeats(ordinal, wanted.rest.len())).unwrap_or(to);
        let (mut newer, mut older) = (from, run);
        while newer + 1 < older {
            let middle = usize::midpoint(newer, older);
            if self.block(middle) > wanted.at { newer = middle } else { older = middle }
        }
        if older < run {
            // It repeats the key: its blob is its value.
            let at = self.first_blob_at(low)? + self.blobs_len(LENS, begin, older)?;
            return self.entry(older, self.block(older), at, self.cell(LENS, older));
        }
        if run < to || low + 1 >= self.restarts || !self.begins_with(low + 1, wanted.rest)? {
            return Some(Found::Absent);
        }
        let block = self.block(to);
        if block > wanted.at {
            return Some(Found::Absent);
        }
        let (len, rest_len) = (self.cell(LENS, to), wanted.rest.len());
        self.entry(to, block, self.first_blob_at(low + 1)? + rest_len, len.checked_sub(rest_len)?)
    }

    /// Whether a group begins with the key.
    fn begins_with(&self, group: usize, rest: &[u8]) -> Option<bool> {
        let has_len = self.has_suffix_len(self.ordinal(group)?, rest.len());
        Some(has_len && self.bytes(self.first_blob_at(group)?, rest.len())? == rest)
    }

    /// Whether an entry, not the first of its group, has the key of the one before.
    fn repeats(&self, ordinal: usize, rest_len: usize) -> bool {
        self.cell(SHARED, ordinal) == rest_len && self.has_suffix_len(ordinal, 0)
    }
}

#[cfg(test)]
mod tests;
