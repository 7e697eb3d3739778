//! Writes the columns of a page.

use crate::columns::{KIND_DELETION, KIND_INLINE, KIND_OVERFLOW};
use crate::page_header::{CODE_DELETION, CODE_OVERFLOW, FIXED_LEN, Form, KINDS, ONE_KEY, WIDE};

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

/// Where the next cell of each column goes.
pub(crate) struct Cells {
    form: Form,
    prints_at: usize,
    shared_at: usize,
    lens_at: usize,
    suffix_lens_at: usize,
    kinds_at: usize,
    blocks_at: usize,
}

impl Cells {
    /// The columns of `count` entries, the first of which begins at `at`.
    pub(crate) fn new(form: Form, count: usize, at: usize) -> Self {
        let lengths_len = count << u8::from(form.has(WIDE));
        let shared_at = at + if form.has_prints() { count } else { 0 };
        let lens_at = shared_at + if form.has(ONE_KEY) { 0 } else { lengths_len };
        let suffix_lens_at = lens_at + lengths_len;
        let kinds_at = suffix_lens_at + if form.has(FIXED_LEN) { 0 } else { lengths_len };
        let blocks_at = kinds_at + if form.has(KINDS) { count } else { 0 };
        Self { form, prints_at: at, shared_at, lens_at, suffix_lens_at, kinds_at, blocks_at }
    }

    /// Writes the cells of the next entry.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut [u8], cell: &Cell) {
        let width = 1 + usize::from(self.form.has(WIDE));
        if self.form.has_prints() {
            put(out, &mut self.prints_at, 1, cell.print.into());
        }
        if !self.form.has(ONE_KEY) {
            put(out, &mut self.shared_at, width, cell.shared as u64);
        }
        put(out, &mut self.lens_at, width, cell.blob_len as u64);
        if !self.form.has(FIXED_LEN) {
            put(out, &mut self.suffix_lens_at, width, cell.suffix_len as u64);
        }
        if self.form.has(KINDS) {
            let kind = match cell.code {
                CODE_DELETION => KIND_DELETION,
                CODE_OVERFLOW => KIND_OVERFLOW,
                _ => KIND_INLINE,
            };
            put(out, &mut self.kinds_at, 1, kind.into());
        }
        if self.form.block_width > 0 {
            put(out, &mut self.blocks_at, self.form.block_width.into(), cell.block);
        }
    }
}

#[inline]
fn put(out: &mut [u8], at: &mut usize, width: usize, value: u64) {
    // Nearly all cells have one byte, which is stored sooner than a copy is called.
    if width == 1 {
        out[*at] = value as u8;
    } else {
        out[*at..*at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    *at += width;
}
