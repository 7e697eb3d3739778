//! The view over one data page: where its entries are, and the search among them.
//!
//! ```text
//! page   checksum | flags | lengths | entry count | body, zero-filled to 4096 bytes
//! body   restart count | prefix length | key length | base block | restart table | prefix | entries
//! entry  shared | suffix length, unless fixed | suffix | block delta, unless one block | value code | value
//! ```
//!
//! A compressed page holds the same body, larger, and is decoded first. Nothing here believes a byte:
//! whatever a body holds, reading it ends in an entry or in [`Error::Corrupt`].
//!
//! # Cost
//! The header, the restart table and its key heads share the first cache line or two. A lookup
//! decides between restarts by their heads alone, then scans one group of about 14 entries; it
//! compares key bytes only where the target can still differ, and rebuilds no key.

use std::cmp::Ordering;
use std::hint::black_box;

use crate::bytes::{shared_len, take_varint, u16_at, u64_at, unzigzag};
use crate::entry::KEY_LEN_MAX;
use crate::error::{Corruption, Error, Part, Reason};
use crate::frame::PAGE_SIZE;
use crate::overflow::VALUE_INLINE_MAX;
use crate::overflow::{OVERFLOW_REF_LEN, OverflowRef};
use crate::step::BlockNumber;

pub(crate) const FLAGS_AT: usize = 8;
pub(crate) const ZERO_AT: usize = 9;
pub(crate) const STORED_LEN_AT: usize = 10;
pub(crate) const RAW_LEN_AT: usize = 12;
pub(crate) const COUNT_AT: usize = 14;
/// The bytes of a page in front of its body.
pub(crate) const PAGE_HEADER_LEN: usize = 16;
/// The most bytes that a body takes in the file.
pub(crate) const STORED_LEN_MAX: usize = PAGE_SIZE - PAGE_HEADER_LEN;

/// The longest decoded body, in bytes: what a reader of compressed pages sets aside.
///
/// Offsets in the restart table are 16 bits wide; half of that bounds the time to decode a page to
/// about 20 us where the content compresses eightfold.
pub const PAGE_RAW_LEN_MAX: usize = 32 << 10;

pub(crate) const RESTARTS_AT: usize = 0;
pub(crate) const PREFIX_LEN_AT: usize = 2;
pub(crate) const KEY_LEN_AT: usize = 4;
pub(crate) const BASE_AT: usize = 6;
/// The bytes of a body in front of its restart table.
pub(crate) const BODY_HEADER_LEN: usize = 14;
/// One restart: the offset of its entry (`u16`), the first two key bytes after the prefix (big-endian).
pub(crate) const RESTART_LEN: usize = 4;

/// All keys of the page have the same length.
pub(crate) const FIXED_LEN: u8 = 1;
/// All entries of the page are at the base block.
pub(crate) const ONE_BLOCK: u8 = 2;
/// The body is a zstd frame.
pub(crate) const COMPRESSED: u8 = 4;

pub(crate) const CODE_DELETION: u16 = 0;
pub(crate) const CODE_OVERFLOW: u16 = 1;
/// A value of n bytes inside the page has the code n plus this.
pub(crate) const CODE_INLINE: u16 = 2;

const _: () = assert!(COUNT_AT + 2 == PAGE_HEADER_LEN && BASE_AT + 8 == BODY_HEADER_LEN);
const _: () = assert!(PAGE_RAW_LEN_MAX <= u16::MAX as usize);

/// A value as its page has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    Deletion,
    Inline(&'a [u8]),
    Overflow(OverflowRef),
}

/// The fixed front of a data page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageHeader {
    pub(crate) flags: u8,
    pub(crate) stored_len: usize,
    pub(crate) raw_len: usize,
    pub(crate) count: usize,
}

impl PageHeader {
    /// `None`: a value that no builder writes.
    #[inline]
    pub(crate) fn parse(page: &[u8]) -> Option<Self> {
        let front: &[u8; PAGE_HEADER_LEN] = page.first_chunk()?;
        let flags = front[FLAGS_AT];
        let header = Self {
            flags,
            stored_len: u16_at(front, STORED_LEN_AT)? as usize,
            raw_len: u16_at(front, RAW_LEN_AT)? as usize,
            count: u16_at(front, COUNT_AT)? as usize,
        };
        let sound = flags & !(FIXED_LEN | ONE_BLOCK | COMPRESSED) == 0
            && front[ZERO_AT] == 0
            && header.stored_len <= STORED_LEN_MAX
            && header.raw_len <= PAGE_RAW_LEN_MAX
            && (header.is_compressed() || header.raw_len == header.stored_len)
            && header.count > 0;
        sound.then_some(header)
    }

    pub(crate) fn encode(&self, page: &mut [u8]) {
        page[FLAGS_AT] = self.flags;
        page[ZERO_AT] = 0;
        page[STORED_LEN_AT..][..2].copy_from_slice(&(self.stored_len as u16).to_le_bytes());
        page[RAW_LEN_AT..][..2].copy_from_slice(&(self.raw_len as u16).to_le_bytes());
        page[COUNT_AT..][..2].copy_from_slice(&(self.count as u16).to_le_bytes());
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }
}

/// What is known of a page once its body was looked at, apart from the body itself. Half a cache line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// The offset of the page in the file, for errors.
    pub(crate) offset: u64,
    base: BlockNumber,
    count: u16,
    restarts: u16,
    prefix_len: u16,
    key_len: u16,
    entries_at: u16,
    fixed: bool,
    one_block: bool,
}

impl Shape {
    pub(crate) fn count(&self) -> usize {
        self.count.into()
    }

    #[inline]
    pub(crate) fn restarts(&self) -> usize {
        self.restarts.into()
    }

    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        self.prefix_len.into()
    }
}

/// One page, its body decoded.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    pub(crate) shape: Shape,
    body: &'a [u8],
}

/// One entry, as offsets into the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryAt {
    pub(crate) block: BlockNumber,
    shared: u16,
    suffix_at: u16,
    suffix_len: u16,
    code: u16,
    value_at: u16,
    end: u16,
}

impl EntryAt {
    /// The key bytes shared with the entry before, beyond the page's prefix.
    #[inline]
    pub(crate) fn shared(&self) -> usize {
        self.shared.into()
    }

    /// Where the entry ends and the next begins.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end.into()
    }
}

/// What a search in a page finds.
#[derive(Clone, Copy)]
pub(crate) enum Lookup {
    /// The newest version at or below the block asked for.
    Hit(EntryAt),
    /// The page shows that there is none.
    Miss,
    /// Every entry of the page sorts before the position: the next page decides.
    Past,
}

/// The first two bytes as a number that orders like the bytes; absent bytes count as zero.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u16 {
    match *bytes {
        [] => 0,
        [first] => u16::from(first) << 8,
        [first, second, ..] => u16::from(first) << 8 | u16::from(second),
    }
}

impl<'a> Page<'a> {
    /// Looks at the front of a decoded body. Entries are checked as they are read.
    #[inline]
    pub(crate) fn parse(header: &PageHeader, body: &'a [u8], offset: u64) -> Result<Self, Error> {
        let read = || {
            let front: &[u8; BODY_HEADER_LEN] = body.first_chunk()?;
            let restarts = u16_at(front, RESTARTS_AT)?;
            let prefix_len = u16_at(front, PREFIX_LEN_AT)?;
            let entries_at = BODY_HEADER_LEN + RESTART_LEN * restarts as usize + prefix_len as usize;
            // What a body holds is addressed in 16 bits: a body is never longer than that.
            let key_len = u16_at(front, KEY_LEN_AT)?;
            if restarts == 0 || entries_at >= body.len().min(PAGE_RAW_LEN_MAX) {
                return None;
            }
            if usize::from(prefix_len.max(key_len)) > KEY_LEN_MAX {
                return None;
            }
            let shape = Shape {
                offset,
                base: u64_at(front, BASE_AT)?,
                count: header.count as u16,
                restarts,
                prefix_len,
                key_len,
                entries_at: entries_at as u16,
                fixed: header.flags & FIXED_LEN != 0,
                one_block: header.flags & ONE_BLOCK != 0,
            };
            let key_len_sound = if shape.fixed { prefix_len <= shape.key_len } else { shape.key_len == 0 };
            key_len_sound.then_some(Self { shape, body })
        };
        read().ok_or_else(|| damaged(offset, Reason::Field))
    }

    /// The page of a shape that [`Page::parse`] gave for the same body.
    #[inline]
    pub(crate) fn with_shape(shape: Shape, body: &'a [u8]) -> Self {
        Self { shape, body }
    }

    /// The bytes that all keys of the page begin with.
    #[inline]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        let end = self.shape.entries_at as usize;
        &self.body[end - self.shape.prefix_len()..end]
    }

    /// The end of the entries: the length of the body.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.body.len()
    }

    pub(crate) fn damaged(&self, reason: Reason) -> Error {
        damaged(self.shape.offset, reason)
    }

    /// Where the group of a restart begins, or the end after the last.
    #[inline]
    pub(crate) fn group_at(&self, restart: usize) -> Result<usize, Error> {
        if restart >= self.shape.restarts() {
            return Ok(self.end());
        }
        let offset = u16_at(self.body, BODY_HEADER_LEN + RESTART_LEN * restart);
        let at = self.shape.entries_at as usize + offset.map_or(usize::MAX >> 1, usize::from);
        if at < self.end() { Ok(at) } else { Err(self.damaged(Reason::Overrun)) }
    }

    #[inline]
    fn head_at(&self, restart: usize) -> u16 {
        let at = BODY_HEADER_LEN + RESTART_LEN * restart + 2;
        self.body.get(at..at + 2).map_or(0, head)
    }

    /// Decodes the entry at `at`; `before` is the block of the entry before it, the base at a restart.
    #[inline]
    pub(crate) fn entry_at(&self, at: usize, before: BlockNumber) -> Result<EntryAt, Error> {
        self.try_entry_at(at, before).ok_or_else(|| self.damaged(Reason::Overrun))
    }

    #[expect(clippy::inline_always, reason = "the step of every scan: a call costs as much as the step")]
    #[inline(always)]
    fn try_entry_at(&self, mut at: usize, before: BlockNumber) -> Option<EntryAt> {
        let shape = &self.shape;
        let shared = take_varint(self.body, &mut at)?;
        let suffix_len = if shape.fixed {
            u64::from(shape.key_len - shape.prefix_len).checked_sub(shared)?
        } else {
            take_varint(self.body, &mut at)?
        };
        let suffix_at = at;
        // Nothing that runs out of the body is believed: after this all of it fits 16 bits.
        at = at.checked_add(suffix_len as usize)?;
        let block = if shape.one_block {
            shape.base
        } else {
            before.wrapping_add_signed(unzigzag(take_varint(self.body, &mut at)?))
        };
        let code = take_varint(self.body, &mut at)?;
        let value_len = match code {
            0 => 0,
            1 => OVERFLOW_REF_LEN,
            len => len as usize - CODE_INLINE as usize,
        };
        let end = at.checked_add(value_len)?;
        let sound = value_len <= VALUE_INLINE_MAX && end <= self.body.len() && shared <= KEY_LEN_MAX as u64;
        sound.then_some(EntryAt {
            block,
            shared: shared as u16,
            suffix_at: suffix_at as u16,
            suffix_len: suffix_len as u16,
            code: code as u16,
            value_at: at as u16,
            end: end as u16,
        })
    }

    /// Decodes the first entry of a group, which shares nothing beyond the prefix.
    #[inline]
    pub(crate) fn restart_entry(&self, restart: usize) -> Result<EntryAt, Error> {
        let entry = self.entry_at(self.group_at(restart)?, self.shape.base)?;
        if entry.shared == 0 { Ok(entry) } else { Err(self.damaged(Reason::Field)) }
    }

    /// The key bytes that the entry adds to what it shares.
    #[inline]
    pub(crate) fn suffix(&self, entry: &EntryAt) -> &'a [u8] {
        &self.body[entry.suffix_at as usize..][..entry.suffix_len as usize]
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn value(&self, entry: &EntryAt) -> Result<Stored<'a>, Error> {
        let bytes = &self.body[entry.value_at as usize..entry.end()];
        Ok(match entry.code {
            CODE_DELETION => Stored::Deletion,
            CODE_OVERFLOW => {
                Stored::Overflow(OverflowRef::parse(bytes).ok_or_else(|| self.damaged(Reason::Field))?)
            }
            _ => Stored::Inline(bytes),
        })
    }

    /// The bytes of a value, whatever they are.
    #[inline]
    pub(crate) fn value_bytes(&self, entry: &EntryAt) -> &'a [u8] {
        &self.body[entry.value_at as usize..entry.end()]
    }

    /// Checks the restart table: the groups follow each other from the first entry on, and each head is its key's.
    pub(crate) fn check_table(&self) -> Result<(), Error> {
        let mut at = self.shape.entries_at as usize;
        for restart in 0..self.shape.restarts() {
            let begins = self.group_at(restart)?;
            if (restart == 0 && begins != at) || (restart > 0 && begins <= at) {
                return Err(self.damaged(Reason::Order));
            }
            if self.head_at(restart) != head(self.suffix(&self.restart_entry(restart)?)) {
                return Err(self.damaged(Reason::Field));
            }
            at = begins;
        }
        Ok(())
    }

    /// Whether the page's first entry sorts after the position `(key, at)`.
    pub(crate) fn begins_after(&self, key: &[u8], at: BlockNumber) -> Result<bool, Error> {
        let first = self.restart_entry(0)?;
        let prefix = self.prefix();
        let shared = shared_len(prefix, key);
        if shared < prefix.len() {
            return Ok(shared == key.len() || prefix[shared] > key[shared]);
        }
        Ok(match self.suffix(&first).cmp(&key[shared..]) {
            Ordering::Equal => first.block < at,
            other => other == Ordering::Greater,
        })
    }

    /// Whether the page's first entry is of `key`; gives it if so.
    pub(crate) fn first_if(&self, key: &[u8]) -> Result<Option<EntryAt>, Error> {
        let first = self.restart_entry(0)?;
        Ok(key.strip_prefix(self.prefix()).is_some_and(|rest| rest == self.suffix(&first)).then_some(first))
    }

    /// Whether the entry at a restart sorts at or before the position `(prefix + rest, at)`.
    #[inline]
    fn restart_reaches(&self, restart: usize, rest: &[u8], at: BlockNumber) -> Result<bool, Error> {
        match self.head_at(restart).cmp(&head(rest)) {
            Ordering::Less => Ok(true),
            Ordering::Greater => Ok(false),
            Ordering::Equal => {
                let entry = self.restart_entry(restart)?;
                Ok(match self.suffix(&entry).cmp(rest) {
                    Ordering::Equal => entry.block >= at,
                    other => other == Ordering::Less,
                })
            }
        }
    }

    /// The last restart from `hint` on that sorts at or before the position; `None`: not even the hint does.
    ///
    /// After a hint the answer is near, so the steps begin at one and double.
    #[inline]
    pub(crate) fn group_of(&self, hint: usize, rest: &[u8], at: BlockNumber) -> Result<Option<usize>, Error> {
        let restarts = self.shape.restarts();
        let (mut low, mut high) = (hint, restarts);
        if hint > 0 {
            let mut step = 1;
            while low + step < restarts {
                if !self.restart_reaches(low + step, rest, at)? {
                    high = low + step;
                    break;
                }
                low += step;
                step *= 2;
            }
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.restart_reaches(middle, rest, at)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        if low == hint && !self.restart_reaches(hint, rest, at)? {
            return Ok(None);
        }
        Ok(Some(low))
    }

    /// Finds the newest version of `key` at or below block `at`. No entry before the restart `hint` may
    /// sort at or after the position.
    #[inline]
    pub(crate) fn lookup(&self, hint: usize, key: &[u8], at: BlockNumber) -> Result<Lookup, Error> {
        let prefix = self.prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            return Ok(if key < prefix { Lookup::Miss } else { Lookup::Past });
        };
        let Some(group) = self.group_of(hint, rest, at)? else {
            return self.lookup_first_of(hint, rest);
        };
        match self.scan(group, rest, at)? {
            Lookup::Past if group + 1 < self.shape.restarts() => self.lookup_first_of(group + 1, rest),
            found => Ok(found),
        }
    }

    /// The entry of a restart is the first at or after the position: is it of the key?
    fn lookup_first_of(&self, restart: usize, rest: &[u8]) -> Result<Lookup, Error> {
        let entry = self.restart_entry(restart)?;
        Ok(if self.suffix(&entry) == rest { Lookup::Hit(entry) } else { Lookup::Miss })
    }

    /// Scans one group. `matched` is what the target shares with the entry before, which sorts before it:
    /// an entry that shares more with its predecessor than that sorts before the target too, one that shares less
    /// sorts after it, and only one that shares as much has bytes to compare.
    #[inline]
    fn scan(&self, group: usize, rest: &[u8], at: BlockNumber) -> Result<Lookup, Error> {
        let (begin, end) = (self.group_at(group)?, self.group_at(group + 1)?);
        // Asks for the first lines of the group at once: the scan below would wait for one after the other.
        // Over 5 M entries that takes 0.6 us to a lookup where none take 0.7; more lines take longer again.
        for line in self.body.get(begin..end).unwrap_or_default().chunks(64).take(4) {
            black_box(line[0]);
        }
        let mut entry = self.restart_entry(group)?;
        let mut matched = 0;
        loop {
            if entry.shared() < matched {
                return Ok(Lookup::Miss);
            }
            if entry.shared() == matched {
                let (suffix, target) = (self.suffix(&entry), &rest[matched..]);
                let more = shared_len(suffix, target);
                match (suffix.get(more), target.get(more)) {
                    (None, None) if entry.block <= at => return Ok(Lookup::Hit(entry)),
                    (Some(_), None) => return Ok(Lookup::Miss),
                    (Some(got), Some(want)) if got > want => return Ok(Lookup::Miss),
                    _ => matched += more,
                }
            }
            if entry.end() >= end {
                return Ok(Lookup::Past);
            }
            entry = self.entry_at(entry.end(), entry.block)?;
        }
    }
}

pub(crate) fn damaged(offset: u64, reason: Reason) -> Error {
    Corruption { part: Part::DataPage, offset, reason }.into()
}
