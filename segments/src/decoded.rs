//! Entries of a group, decoded together: what a walk goes over.
//!
//! One loop over the columns of a group costs less than a step from entry to entry, each of which would find out again how its page is
//! laid out. A group that a builder writes has at most 24 entries and fits.

use crate::key_buf::KeyBuf;
use crate::page::{EntryAt, Page};
use crate::page_header::{CODE_DELETION, CODE_INLINE, KINDS, ONE_KEY, WIDE};
use crate::step::BlockNumber;

/// The most entries that are decoded together: a power of two.
const CAPACITY: usize = 32;

/// Up to [`CAPACITY`] entries that follow each other, all in one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    entries: [EntryAt; CAPACITY],
    len: usize,
}

impl Default for Decoded {
    fn default() -> Self {
        Self { entries: [EntryAt::default(); CAPACITY], len: 0 }
    }
}

impl Decoded {
    /// The number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One of the entries.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &EntryAt {
        debug_assert!(index < self.len.max(1), "an index among those decoded");
        &self.entries[index % CAPACITY]
    }

    /// Decodes the entries from the position `at` on, of a group that ends at `end`; `bytes_at` is where the bytes of the first begin and
    /// `before` the block that a row counts from. Ends early at one that is not sound: none at all is damage.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        page: &Page<'_>,
        (at, end): (usize, usize),
        bytes_at: usize,
        before: BlockNumber,
    ) {
        self.len = if page.shape.in_columns() {
            let count = end.saturating_sub(at).min(CAPACITY);
            page.decode_columns(at, bytes_at, &mut self.entries[..count])
        } else {
            page.decode_rows(at, end, before, &mut self.entries)
        };
    }

    /// Makes `key` that of an entry: from those entries before it that hold its bytes, the first of which begins a group. `false`: they do not.
    pub(crate) fn key_of(&self, index: usize, page: &Page<'_>, key: &mut KeyBuf) -> bool {
        let entry = self.get(index);
        let prefix_len = page.shape.prefix_len();
        let mut missing = entry.shared() + usize::from(entry.suffix_len);
        if !key.resize(prefix_len + missing) {
            return false;
        }
        key.write(0, page.prefix());
        for holder in self.entries[..=index].iter().rev() {
            let shared = holder.shared();
            if shared < missing || missing == 0 {
                let Some(bytes) = page.suffix(holder).get(..missing - shared) else { return false };
                key.write(prefix_len + shared, bytes);
                missing = shared;
            }
            if missing == 0 {
                return true;
            }
        }
        missing == 0
    }
}

impl Page<'_> {
    /// Decodes entries in columns from an ordinal on, whose blob begins at `at`, and returns how many of them are sound.
    #[inline]
    fn decode_columns(&self, ordinal: usize, at: usize, into: &mut [EntryAt]) -> usize {
        let form = self.shape.form;
        if form.has(WIDE) || form.has(KINDS) {
            return self.decode_any(ordinal, at, into);
        }
        if form.has(ONE_KEY) {
            return self.decode_narrow(ordinal, at, into, &[0; CAPACITY], |_, _| 0);
        }
        let shared = self.cells(self.shape.columns.shared, ordinal);
        if let Some(len) = self.shape.fixed_rest_len() {
            return self.decode_narrow(ordinal, at, into, shared, |_, shared| len.wrapping_sub(shared));
        }
        let lens = self.cells(self.shape.columns.suffix_lens, ordinal);
        let suffix_len = |i: usize, _| lens.get(i).map_or(usize::MAX, |&len| len.into());
        self.decode_narrow(ordinal, at, into, shared, suffix_len)
    }

    /// The same where cells of lengths have one byte and values no kinds. `shared` are the cells of what is shared, `suffix_len` is of an
    /// index and what that entry shares.
    #[inline]
    fn decode_narrow(
        &self,
        ordinal: usize,
        mut at: usize,
        into: &mut [EntryAt],
        shared: &[u8],
        suffix_len: impl Fn(usize, usize) -> usize,
    ) -> usize {
        let cells = shared.iter().zip(self.cells(self.shape.columns.lens, ordinal));
        let mut sound = 0;
        for (entry, (&shared, &len)) in into.iter_mut().zip(cells) {
            let (suffix_len, end) = (suffix_len(sound, shared.into()), at + usize::from(len));
            if suffix_len > len.into() || end > self.body.len() {
                break;
            }
            let value_at = at + suffix_len;
            *entry = EntryAt {
                block: self.block_of(ordinal + sound),
                shared: shared.into(),
                suffix_at: at as u16,
                suffix_len: suffix_len as u16,
                code: if value_at == end { CODE_DELETION } else { CODE_INLINE },
                value_at: value_at as u16,
                end: end as u16,
                next: (ordinal + sound) as u16 + 1,
            };
            at = end;
            sound += 1;
        }
        sound
    }

    /// The same in columns of any form.
    fn decode_any(&self, ordinal: usize, mut at: usize, into: &mut [EntryAt]) -> usize {
        for (i, place) in into.iter_mut().enumerate() {
            let Some(entry) = self.column_entry(ordinal + i, at) else { return i };
            at = entry.end();
            *place = entry;
        }
        into.len()
    }

    /// Decodes the rows from `at` to `end`; `before` is the block of the entry before the first.
    fn decode_rows(&self, mut at: usize, end: usize, mut before: BlockNumber, into: &mut [EntryAt]) -> usize {
        let mut sound = 0;
        while at < end && sound < into.len() {
            let Some(entry) = self.row_at(at, before).filter(|entry| entry.next() <= end) else { break };
            (at, before) = (entry.next(), entry.block);
            into[sound] = entry;
            sound += 1;
        }
        sound
    }

    /// The column of cells of one byte from an ordinal on, and what is after it.
    #[inline]
    fn cells(&self, column: u16, ordinal: usize) -> &[u8] {
        self.body.get(usize::from(column) + ordinal..).unwrap_or_default()
    }
}
