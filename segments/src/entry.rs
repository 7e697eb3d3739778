//! What a segment holds: entries, their values, and anything that gives entries in order.

use std::borrow::Cow;
use std::fmt::Write;

use crate::error::Error;
use crate::overflow::Blob;
use crate::step::BlockNumber;

/// The longest key, in bytes. Two keys, with room for all else, fit a footer; a key and a value fit a page.
pub const KEY_LEN_MAX: usize = 1024;

/// What a version holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The key was removed at this block.
    Deletion,
    /// The value itself. A reader gives at most [`VALUE_INLINE_MAX`](crate::VALUE_INLINE_MAX) bytes; a builder takes any length.
    Inline(&'a [u8]),
    /// A value that is outside its page, not yet decoded.
    Overflow(Blob<'a>),
}

impl<'a> Value<'a> {
    /// The bytes of the value, or `None` for a deletion. Borrows where nothing is to be decoded.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when an overflow value fails its checksum or does not decode.
    pub fn load(&self) -> Result<Option<Cow<'a, [u8]>>, Error> {
        Ok(match self {
            Self::Deletion => None,
            Self::Inline(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Overflow(blob) => Some(Cow::Owned(blob.load()?)),
        })
    }

    /// The length of the value in bytes, 0 for a deletion. Decodes nothing.
    pub fn raw_len(&self) -> u64 {
        match self {
            Self::Deletion => 0,
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Overflow(blob) => blob.raw_len(),
        }
    }
}

/// One version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key: at most [`KEY_LEN_MAX`] bytes, compared as unsigned bytes.
    pub key: &'a [u8],
    /// The block that wrote it.
    pub block: BlockNumber,
    /// What it wrote.
    pub value: Value<'a>,
}

/// The answer to a lookup: the newest version at or below the block asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// The block that wrote it.
    pub block: BlockNumber,
    /// What it wrote.
    pub value: Value<'a>,
}

/// Anything that gives entries in the order of a segment: key ascending, block descending.
pub trait EntrySource {
    /// The entry that the source stands on, or `None` after the last.
    fn entry(&self) -> Option<Entry<'_>>;

    /// Key and block of that entry.
    #[inline]
    fn position(&self) -> Option<(&[u8], BlockNumber)> {
        self.entry().map(|entry| (entry.key, entry.block))
    }

    /// How many bytes the key of the entry shares with that of the entry before it, which [`advance`](Self::advance) came from.
    fn shared(&self) -> usize;

    /// Goes to the next entry.
    ///
    /// # Errors
    /// Whatever stops the source, as damage in a segment.
    fn advance(&mut self) -> Result<(), Error>;
}

/// How errors name a position.
pub(crate) fn describe(key: &[u8], block: BlockNumber) -> String {
    const SHOWN_MAX: usize = 64;
    let mut text = String::from("0x");
    for byte in key.iter().take(SHOWN_MAX) {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > SHOWN_MAX {
        text.push_str("..");
    }
    format!("{text}@{block}")
}
