//! The view over one data page: where its entries are, and the ordered search among them.
//!
//! ```text
//! page     checksum | flags | block width | lengths | entry count | body, zero-filled to 4096 bytes
//! body     restart count | prefix length | key length | base block | columns | restart table | prefix | rows or blobs
//! rows     one entry after the other, each in one piece: compressed pages, and all pages of files of version 1
//! columns  what a lookup asks of every entry, a column each; then what it asks of one, a blob each: plain pages
//! ```
//!
//! A compressed page holds the same body, larger, and is decoded first. Nothing here believes a byte:
//! whatever a body holds, reading it ends in an entry or in [`Error::Corrupt`].
//!
//! Both layouts go from entry to entry in the same way, by *positions*: the byte where an entry begins in rows, its
//! ordinal in columns. What is said of one layout only is in `rows` and `columns`; the lookup by fingerprints in `find`.
//!
//! # Cost
//! The ordered search decides between restarts by their heads alone, then scans one group of about 14 entries; it
//! compares key bytes only where the target can still differ, and rebuilds no key.

use std::cmp::Ordering;
use std::hint::black_box;

use crate::bytes::{shared_len, u16_at, u64_at};
use crate::entry::KEY_LEN_MAX;
use crate::error::{Corruption, Error, Part, Reason};
use crate::overflow::OverflowRef;
use crate::page_header::{
    BASE_AT, BODY_HEADER_LEN, CODE_DELETION, CODE_OVERFLOW, COLUMNS, ColumnPlaces, FIXED_LEN, Form,
    KEY_LEN_AT, ONE_KEY, PAGE_RAW_LEN_MAX, PREFIX_LEN_AT, PageHeader, RESTART_LEN, RESTARTS_AT,
};
use crate::step::BlockNumber;

/// A value as its page has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    Deletion,
    Inline(&'a [u8]),
    Overflow(OverflowRef),
}

/// What is known of a page once its body was looked at, apart from the body itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// The offset of the page in the file, for errors.
    pub(crate) offset: u64,
    pub(crate) base: BlockNumber,
    count: u16,
    restarts: u16,
    prefix_len: u16,
    pub(crate) key_len: u16,
    /// Where the restart table begins: after the columns.
    table_at: u16,
    entries_at: u16,
    pub(crate) form: Form,
    /// Of no meaning in rows.
    pub(crate) columns: ColumnPlaces,
}

impl Shape {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.into()
    }

    /// Where the restart table begins: after the columns.
    #[inline]
    pub(crate) fn table_at(&self) -> usize {
        self.table_at.into()
    }

    /// Where the prefix ends and the first entry begins; in columns, its blob.
    #[inline]
    pub(crate) fn entries_at(&self) -> usize {
        self.entries_at.into()
    }

    #[inline]
    pub(crate) fn in_columns(&self) -> bool {
        self.form.has(COLUMNS)
    }

    /// The key bytes after the prefix, where all keys have the same length.
    #[inline]
    pub(crate) fn fixed_rest_len(&self) -> Option<usize> {
        self.form.has(FIXED_LEN).then(|| usize::from(self.key_len - self.prefix_len))
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
    pub(crate) body: &'a [u8],
}

/// One entry, as offsets into the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryAt {
    pub(crate) block: BlockNumber,
    pub(crate) shared: u16,
    pub(crate) suffix_at: u16,
    pub(crate) suffix_len: u16,
    pub(crate) code: u16,
    pub(crate) value_at: u16,
    pub(crate) end: u16,
    /// The position of the entry after it.
    pub(crate) next: u16,
}

impl EntryAt {
    /// The key bytes shared with the entry before, beyond the page's prefix.
    #[inline]
    pub(crate) fn shared(&self) -> usize {
        self.shared.into()
    }

    /// Where the bytes of the entry end and those of the next begin.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.end.into()
    }

    /// The position of the entry after it.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        self.next.into()
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
            let form = header.form;
            let table_at = BODY_HEADER_LEN + form.cells_len() * header.count;
            let entries_at = table_at + form.restart_len() * restarts as usize + prefix_len as usize;
            // What a body holds is addressed in 16 bits: a body is never longer than that.
            let key_len = u16_at(front, KEY_LEN_AT)?;
            // A row has bytes; of columns, the last blobs may be empty.
            let least_len = entries_at + usize::from(!form.has(COLUMNS));
            if restarts == 0 || least_len > body.len().min(PAGE_RAW_LEN_MAX) {
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
                table_at: table_at as u16,
                entries_at: entries_at as u16,
                form,
                columns: ColumnPlaces::new(form, header.count, BODY_HEADER_LEN),
            };
            let key_len_sound = match (form.has(FIXED_LEN), form.has(ONE_KEY)) {
                (true, true) => prefix_len == key_len,
                (true, false) => prefix_len <= key_len,
                (false, _) => key_len == 0,
            };
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
        let end = self.shape.entries_at();
        &self.body[end - self.shape.prefix_len()..end]
    }

    pub(crate) fn damaged(&self, reason: Reason) -> Error {
        damaged(self.shape.offset, reason)
    }

    /// The position of the first entry of a restart, or the end after the last.
    #[inline]
    pub(crate) fn group_at(&self, restart: usize) -> Result<usize, Error> {
        let shape = &self.shape;
        let at = match (shape.in_columns(), restart < shape.restarts()) {
            (true, true) => self.ordinal_at(restart),
            (true, false) => return Ok(shape.count()),
            (false, true) => self.bytes_at(restart),
            (false, false) => return Ok(self.body.len()),
        };
        at.ok_or_else(|| self.damaged(Reason::Overrun))
    }

    /// Where the bytes of a restart's first entry begin in the body.
    #[inline]
    pub(crate) fn bytes_at(&self, restart: usize) -> Option<usize> {
        let restarts = self.shape.restarts();
        let number = if self.shape.in_columns() { 2 * restarts + restart } else { 2 * restart };
        let offset = u16_at(self.body, self.shape.table_at() + 2 * number)?;
        let at = self.shape.entries_at() + usize::from(offset);
        (at + usize::from(!self.shape.in_columns()) <= self.body.len()).then_some(at)
    }

    #[inline]
    fn head_at(&self, restart: usize) -> u16 {
        if self.shape.in_columns() {
            return u16_at(self.body, self.shape.table_at() + 2 * restart).unwrap_or_default();
        }
        let at = self.shape.table_at() + RESTART_LEN * restart + 2;
        self.body.get(at..at + 2).map_or(0, head)
    }

    /// The entry after one.
    #[inline]
    pub(crate) fn entry_after(&self, before: &EntryAt) -> Result<EntryAt, Error> {
        let entry = if self.shape.in_columns() {
            self.column_entry(before.next(), before.end())
        } else {
            self.row_at(before.end(), before.block)
        };
        entry.ok_or_else(|| self.damaged(Reason::Overrun))
    }

    /// The first entry of a group, which shares nothing beyond the prefix.
    #[inline]
    pub(crate) fn restart_entry(&self, restart: usize) -> Result<EntryAt, Error> {
        let at = self.group_at(restart)?;
        let entry = if self.shape.in_columns() {
            self.bytes_at(restart).and_then(|bytes_at| self.column_entry(at, bytes_at))
        } else {
            self.row_at(at, self.shape.base)
        };
        let entry = entry.ok_or_else(|| self.damaged(Reason::Overrun))?;
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

    /// Checks the restart table: the groups follow each other from the first entry on, and each head is its key's.
    pub(crate) fn check_table(&self) -> Result<(), Error> {
        let mut at = if self.shape.in_columns() { 0 } else { self.shape.entries_at() };
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

    /// Finds the newest version of `key` at or below block `at` by the order of the entries. No entry before the
    /// restart `hint` may sort at or after the position.
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
        if !self.shape.in_columns() {
            for line in self.body.get(begin..end).unwrap_or_default().chunks(64).take(4) {
                black_box(line[0]);
            }
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
            if entry.next() >= end {
                return Ok(Lookup::Past);
            }
            entry = self.entry_after(&entry)?;
        }
    }
}

pub(crate) fn damaged(offset: u64, reason: Reason) -> Error {
    Corruption { part: Part::DataPage, offset, reason }.into()
}
