//! Writes the columns of a page.

use crate::columns::{KIND_DELETION, KIND_INLINE, KIND_OVERFLOW};
use crate::page_header::{CODE_DELETION, CODE_OVERFLOW, ColumnPlaces, FIXED_LEN, Form, KINDS, ONE_KEY, WIDE};

/// What the columns say of one entry.
pub(crate) struct Cell {
    pub(crate) print: u8,
    pub(crate) shared: usize,
    pub(crate) suffix_len: usize,
    pub(crate) blob_len: usize,
    pub(crate) code: u16,
    /// The block, less the base of the page.
    pub(crate) block: u64,
}

/// Writes the columns of a body, entry by entry.
pub(crate) struct Cells {
    form: Form,
    next: ColumnPlaces,
}

impl Cells {
    /// The columns of `count` entries, the first of which begins at `at`.
    pub(crate) fn new(form: Form, count: usize, at: usize) -> Self {
        Self { form, next: ColumnPlaces::new(form, count, at) }
    }

    /// Writes the cells of the next entry.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut [u8], cell: &Cell) {
        let width = 1 + usize::from(self.form.has(WIDE));
        if self.form.has_prints() {
            put(out, &mut self.next.prints, 1, cell.print.into());
        }
        if !self.form.has(ONE_KEY) {
            put(out, &mut self.next.shared, width, cell.shared as u64);
        }
        put(out, &mut self.next.lens, width, cell.blob_len as u64);
        if !self.form.has(FIXED_LEN) {
            put(out, &mut self.next.suffix_lens, width, cell.suffix_len as u64);
        }
        if self.form.has(KINDS) {
            let kind = match cell.code {
                CODE_DELETION => KIND_DELETION,
                CODE_OVERFLOW => KIND_OVERFLOW,
                _ => KIND_INLINE,
            };
            put(out, &mut self.next.kinds, 1, kind.into());
        }
        if self.form.block_width > 0 {
            put(out, &mut self.next.blocks, self.form.block_width.into(), cell.block);
        }
    }
}

#[inline]
fn put(out: &mut [u8], at: &mut u16, width: usize, value: u64) {
    let from = usize::from(*at);
    // Nearly all cells have one byte, which is stored sooner than a copy is called.
    if width == 1 {
        out[from] = value as u8;
    } else {
        out[from..from + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    *at += width as u16;
}
