//! Entries of a merge, gathered by one thread and written by another.

use crate::cursor::{Cursor, Held};
use crate::entry::{Entry, EntrySource, Value};
use crate::error::Error;
use crate::file_bytes::FileBytes;
use crate::merge::MergeCursor;
use crate::step::BlockNumber;

/// The bytes of keys and values that a full batch has at least: small enough to stay in a processor's cache on the way.
const FULL_LEN: usize = 64 << 10;

/// The most entries of a batch.
const COUNT_MAX: usize = 1024;

/// Entries in their order, apart from the cursors that they came from. Values outside their page are borrowed from the segment.
#[derive(Default)]
pub struct EntryBatch<'s> {
    /// Key and value of one entry after the other.
    bytes: Vec<u8>,
    items: Vec<Item<'s>>,
}

struct Item<'s> {
    block: BlockNumber,
    key_len: usize,
    value: Kept<'s>,
}

enum Kept<'s> {
    /// So many bytes after the key.
    Here(usize),
    Is(Value<'s>),
}

impl<'s> EntryBatch<'s> {
    /// Takes the next entries of `merge` in place of those that it has, until it is full or there are no more.
    ///
    /// # Errors
    /// Whatever stops the merge.
    pub fn fill<D: FileBytes>(&mut self, merge: &mut MergeCursor<Cursor<'s, D>>) -> Result<(), Error> {
        self.bytes.clear();
        self.items.clear();
        while self.bytes.len() < FULL_LEN && self.items.len() < COUNT_MAX {
            let Some((key, block, value)) = merge.winner().and_then(Cursor::parts) else { return Ok(()) };
            self.bytes.extend_from_slice(key);
            let value = match value {
                Held::Is(value) => Kept::Is(value),
                Held::InPage(bytes) => {
                    self.bytes.extend_from_slice(bytes);
                    Kept::Here(bytes.len())
                }
            };
            self.items.push(Item { block, key_len: key.len(), value });
            merge.advance()?;
        }
        Ok(())
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none: the merge had no more.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = &self.bytes[..];
        self.items.iter().map(move |item| {
            let (key, after) = rest.split_at(item.key_len);
            rest = after;
            let value = match item.value {
                Kept::Is(value) => value,
                Kept::Here(len) => {
                    let (value, after) = rest.split_at(len);
                    rest = after;
                    Value::Inline(value)
                }
            };
            Entry { key, block: item.block, value }
        })
    }
}
