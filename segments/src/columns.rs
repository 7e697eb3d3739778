//! Entries in columns: what a lookup asks of every entry stands together, apart from keys and values.
//!
//! ```text
//! columns  fingerprint{n} | shared{n} | blob length{n} | suffix length{n}, unless fixed | kind{n}, if any needs it | block{n}
//! blob     suffix | value
//! ```
//!
//! All columns of a page of 110 entries of the reference dataset are in its first 448 bytes, seven cache lines that are
//! asked for at once. An entry is found by its ordinal and decoded alone: its blob by the sum of the lengths before it
//! in its group, its block by its cell.

use std::ops::Range;

use crate::bytes::{u16_at, word_at};
use crate::entry::KEY_LEN_MAX;
use crate::error::{Error, Reason};
use crate::fingerprint::fingerprint;
use crate::overflow::{OVERFLOW_REF_LEN, VALUE_INLINE_MAX};
use crate::page::{EntryAt, Page};
use crate::page_header::{BODY_HEADER_LEN, CODE_DELETION, CODE_INLINE, CODE_OVERFLOW, KINDS, ONE_KEY, WIDE};
use crate::step::BlockNumber;

/// Where the column of fingerprints begins in the body.
const PRINTS_AT: usize = BODY_HEADER_LEN;

/// A cell of the column of kinds.
pub(crate) const KIND_DELETION: u8 = 0;
pub(crate) const KIND_OVERFLOW: u8 = 1;
pub(crate) const KIND_INLINE: u8 = 2;

/// The last entry of a group.
pub(crate) struct LastOfGroup {
    pub(crate) block: BlockNumber,
    /// The number of entries in the group.
    pub(crate) entries: u64,
}

impl Page<'_> {
    /// A cell of the column of lengths that begins at `column`.
    #[inline]
    fn length(&self, column: u16, ordinal: usize) -> Option<usize> {
        let column = usize::from(column);
        if self.shape.form.has(WIDE) {
            u16_at(self.body, column + 2 * ordinal).map(usize::from)
        } else {
            self.body.get(column + ordinal).map(|&len| usize::from(len))
        }
    }

    /// The cells of the blocks, newest first in a page of one key, and the bytes of each.
    #[inline]
    pub(crate) fn block_cells(&self) -> (&[u8], usize) {
        (
            &self.body[usize::from(self.shape.columns.blocks)..self.shape.table_at()],
            self.shape.form.block_width.into(),
        )
    }

    /// The block of an entry.
    #[inline]
    pub(crate) fn block_of(&self, ordinal: usize) -> BlockNumber {
        let width = u32::from(self.shape.form.block_width);
        if width == 0 {
            return self.shape.base;
        }
        let word = word_at(self.body, usize::from(self.shape.columns.blocks) + ordinal * width as usize);
        self.shape.base.wrapping_add(word & (u64::MAX >> (64 - 8 * width)))
    }

    /// The ordinal of a restart's first entry.
    #[inline]
    pub(crate) fn ordinal_at(&self, restart: usize) -> Option<usize> {
        let ordinal = u16_at(self.body, self.shape.table_at() + 2 * (self.shape.restarts() + restart))?;
        Some(usize::from(ordinal)).filter(|&ordinal| ordinal < self.shape.count())
    }

    /// The length of a suffix that goes with a length shared.
    #[inline]
    fn suffix_len(&self, ordinal: usize, shared: usize) -> Option<usize> {
        match self.shape.fixed_rest_len() {
            Some(len) => len.checked_sub(shared),
            None => self.length(self.shape.columns.suffix_lens, ordinal),
        }
    }

    /// Puts an entry together from its cells; `at` is where its blob begins.
    #[inline]
    pub(crate) fn column_entry(&self, ordinal: usize, at: usize) -> Option<EntryAt> {
        if ordinal >= self.shape.count() {
            return None;
        }
        let is_one_key = self.shape.form.has(ONE_KEY);
        let shared = if is_one_key { 0 } else { self.length(self.shape.columns.shared, ordinal)? };
        let len = self.length(self.shape.columns.lens, ordinal)?;
        let suffix_len = self.suffix_len(ordinal, shared)?;
        let value_len = len.checked_sub(suffix_len)?;
        let end = at + len;
        let code = if self.shape.form.has(KINDS) {
            self.code(ordinal, value_len)?
        } else if value_len == 0 {
            CODE_DELETION
        } else {
            CODE_INLINE
        };
        let sound = value_len <= VALUE_INLINE_MAX && end <= self.body.len() && shared <= KEY_LEN_MAX;
        sound.then_some(EntryAt {
            block: self.block_of(ordinal),
            shared: shared as u16,
            suffix_at: at as u16,
            suffix_len: suffix_len as u16,
            code,
            value_at: (at + suffix_len) as u16,
            end: end as u16,
            next: ordinal as u16 + 1,
        })
    }

    /// What the column of kinds says of a value. `None`: its length belies it.
    fn code(&self, ordinal: usize, value_len: usize) -> Option<u16> {
        let kind = *self.body.get(usize::from(self.shape.columns.kinds) + ordinal)?;
        match (kind, value_len) {
            (KIND_DELETION, 0) => Some(CODE_DELETION),
            (KIND_OVERFLOW, OVERFLOW_REF_LEN) => Some(CODE_OVERFLOW),
            (KIND_INLINE, _) => Some(CODE_INLINE),
            _ => None,
        }
    }

    /// Makes `key`, which is the first of a group, the last of that group.
    ///
    /// Goes back from the end of the group, and only to those entries that hold bytes of that key.
    pub(crate) fn last_key_of(&self, group: usize, key: &mut Vec<u8>) -> Result<LastOfGroup, Error> {
        let (first, next) = (self.group_at(group)?, self.group_at(group + 1)?);
        let end =
            if group + 1 < self.shape.restarts() { self.bytes_at(group + 1) } else { Some(self.body.len()) };
        let last = end.and_then(|end| self.put_together(first..next, end, key));
        last.ok_or_else(|| self.damaged(Reason::Overrun))?;
        Ok(LastOfGroup { block: self.block_of(next - 1), entries: (next - first) as u64 })
    }

    /// Puts the key of the last of some entries together, the first of which shares nothing; `at` is where their blobs end.
    fn put_together(&self, entries: Range<usize>, mut at: usize, key: &mut Vec<u8>) -> Option<()> {
        let prefix_len = self.shape.prefix_len();
        // What is still to be found of the key, after the prefix; all of it, to begin with.
        let mut missing = usize::MAX;
        for ordinal in entries.rev() {
            let shared = if self.shape.form.has(ONE_KEY) {
                0
            } else {
                self.length(self.shape.columns.shared, ordinal)?
            };
            at = at.checked_sub(self.length(self.shape.columns.lens, ordinal)?)?;
            if shared >= missing {
                continue;
            }
            let suffix = self.body.get(at..)?.get(..self.suffix_len(ordinal, shared)?)?;
            if missing == usize::MAX {
                missing = shared + suffix.len();
                key.resize(prefix_len + missing, 0);
            }
            key[prefix_len + shared..prefix_len + missing].copy_from_slice(suffix.get(..missing - shared)?);
            missing = shared;
            if missing == 0 {
                return Some(());
            }
        }
        None
    }

    /// Checks that the blobs lie one after the other, from the first to the end of the body, as the restart table says.
    pub(crate) fn check_blobs(&self) -> Result<(), Error> {
        let mut at = self.shape.entries_at();
        let mut restart = 0;
        for ordinal in 0..self.shape.count() {
            if restart < self.shape.restarts() && self.group_at(restart)? == ordinal {
                if self.bytes_at(restart) != Some(at) {
                    return Err(self.damaged(Reason::Order));
                }
                restart += 1;
            }
            let entry = self.column_entry(ordinal, at).ok_or_else(|| self.damaged(Reason::Overrun))?;
            at = entry.end();
        }
        if at == self.body.len() { Ok(()) } else { Err(self.damaged(Reason::Length)) }
    }

    /// Checks the fingerprint of the entry before the position `next`, whose key is `key`, where the page has fingerprints.
    pub(crate) fn check_print(&self, next: usize, key: &[u8]) -> Result<(), Error> {
        if !self.shape.form.has_prints() {
            return Ok(());
        }
        let print = next.checked_sub(1).and_then(|ordinal| self.body.get(PRINTS_AT + ordinal));
        let rest = key.get(self.shape.prefix_len()..).unwrap_or_default();
        if print == Some(&fingerprint(rest)) { Ok(()) } else { Err(self.damaged(Reason::Field)) }
    }
}
