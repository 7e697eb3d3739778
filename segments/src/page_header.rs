//! The front of a data page, and of its body: where their fields are, and how the rest is laid out.

use crate::bytes::u16_at;
use crate::frame::PAGE_SIZE;

pub(crate) const FLAGS_AT: usize = 8;
pub(crate) const BLOCK_WIDTH_AT: usize = 9;
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
/// One restart of rows: the offset of its entry (`u16`), the first two key bytes after the prefix (big-endian).
pub(crate) const RESTART_LEN: usize = 4;
/// One restart of columns, the numbers of each kind together: head, ordinal of its entry, offset of that one's blob (`u16`).
pub(crate) const COLUMN_RESTART_LEN: usize = 6;

/// All keys of the page have the same length.
pub(crate) const FIXED_LEN: u8 = 1;
/// All entries of the page are at the base block. Rows only: columns have a block width of zero.
pub(crate) const ONE_BLOCK: u8 = 2;
/// The body is a zstd frame.
pub(crate) const COMPRESSED: u8 = 4;
/// The entries are in columns.
pub(crate) const COLUMNS: u8 = 8;
/// The cells of lengths have two bytes, and there are no fingerprints: such pages have few entries.
pub(crate) const WIDE: u8 = 16;
/// A column says of each value what it is; without it an empty value is a deletion and no value is a reference.
pub(crate) const KINDS: u8 = 32;
/// All entries are versions of one key, which is the prefix: columns have neither fingerprints nor lengths shared.
pub(crate) const ONE_KEY: u8 = 64;

/// The widest cell of a block, in bytes.
pub(crate) const BLOCK_WIDTH_MAX: u8 = 8;

pub(crate) const CODE_DELETION: u16 = 0;
pub(crate) const CODE_OVERFLOW: u16 = 1;
/// A value of n bytes inside the page has the code n plus this.
pub(crate) const CODE_INLINE: u16 = 2;

const _: () = assert!(COUNT_AT + 2 == PAGE_HEADER_LEN && BASE_AT + 8 == BODY_HEADER_LEN);
const _: () = assert!(PAGE_RAW_LEN_MAX <= u16::MAX as usize);

/// How the body of a page is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) flags: u8,
    /// The bytes of a block in its column; zero in rows.
    pub(crate) block_width: u8,
}

impl Form {
    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether a builder writes pages of this form.
    #[inline]
    fn is_known(self) -> bool {
        if self.has(COLUMNS) {
            self.flags & !(COLUMNS | FIXED_LEN | WIDE | KINDS | ONE_KEY) == 0
                && (self.has(FIXED_LEN) || !self.has(ONE_KEY))
                && self.block_width <= BLOCK_WIDTH_MAX
        } else {
            self.flags & !(FIXED_LEN | ONE_BLOCK | COMPRESSED) == 0 && self.block_width == 0
        }
    }

    #[inline]
    pub(crate) fn restart_len(self) -> usize {
        if self.has(COLUMNS) { COLUMN_RESTART_LEN } else { RESTART_LEN }
    }

    /// The bytes of an entry in all columns together: none in rows.
    #[inline]
    pub(crate) fn cells_len(self) -> usize {
        if !self.has(COLUMNS) {
            return 0;
        }
        let lengths = 3 - usize::from(self.has(FIXED_LEN)) - usize::from(self.has(ONE_KEY));
        let lengths = lengths << u8::from(self.has(WIDE));
        usize::from(self.has_prints())
            + lengths
            + usize::from(self.has(KINDS))
            + usize::from(self.block_width)
    }

    /// Whether there is a column of fingerprints.
    #[inline]
    pub(crate) fn has_prints(self) -> bool {
        self.flags & (COLUMNS | WIDE | ONE_KEY) == COLUMNS
    }
}

/// Where each column begins in a body, or where the next cell goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColumnPlaces {
    pub(crate) prints: u16,
    pub(crate) shared: u16,
    pub(crate) lens: u16,
    pub(crate) suffix_lens: u16,
    pub(crate) kinds: u16,
    pub(crate) blocks: u16,
}

impl ColumnPlaces {
    /// Those of `count` entries, the first column at `at`; they end within a body, which 16 bits can address.
    #[inline]
    pub(crate) fn new(form: Form, count: usize, at: usize) -> Self {
        let lengths_len = count << u8::from(form.has(WIDE));
        let shared_at = at + if form.has_prints() { count } else { 0 };
        let lens_at = shared_at + if form.has(ONE_KEY) { 0 } else { lengths_len };
        let suffix_lens_at = lens_at + lengths_len;
        let kinds_at = suffix_lens_at + if form.has(FIXED_LEN) { 0 } else { lengths_len };
        let blocks_at = kinds_at + if form.has(KINDS) { count } else { 0 };
        Self {
            prints: at as u16,
            shared: shared_at as u16,
            lens: lens_at as u16,
            suffix_lens: suffix_lens_at as u16,
            kinds: kinds_at as u16,
            blocks: blocks_at as u16,
        }
    }
}

/// The fixed front of a data page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageHeader {
    pub(crate) form: Form,
    pub(crate) stored_len: usize,
    pub(crate) raw_len: usize,
    pub(crate) count: usize,
}

impl PageHeader {
    /// `None`: a value that no builder writes.
    #[inline]
    pub(crate) fn parse(page: &[u8]) -> Option<Self> {
        let front: &[u8; PAGE_HEADER_LEN] = page.first_chunk()?;
        let header = Self {
            form: Form { flags: front[FLAGS_AT], block_width: front[BLOCK_WIDTH_AT] },
            stored_len: u16_at(front, STORED_LEN_AT)? as usize,
            raw_len: u16_at(front, RAW_LEN_AT)? as usize,
            count: u16_at(front, COUNT_AT)? as usize,
        };
        let sound = header.form.is_known()
            && header.stored_len <= STORED_LEN_MAX
            && header.raw_len <= PAGE_RAW_LEN_MAX
            && (header.is_compressed() || header.raw_len == header.stored_len)
            && header.count > 0;
        sound.then_some(header)
    }

    pub(crate) fn encode(&self, page: &mut [u8]) {
        page[FLAGS_AT] = self.form.flags;
        page[BLOCK_WIDTH_AT] = self.form.block_width;
        page[STORED_LEN_AT..][..2].copy_from_slice(&(self.stored_len as u16).to_le_bytes());
        page[RAW_LEN_AT..][..2].copy_from_slice(&(self.raw_len as u16).to_le_bytes());
        page[COUNT_AT..][..2].copy_from_slice(&(self.count as u16).to_le_bytes());
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.form.has(COMPRESSED)
    }
}
