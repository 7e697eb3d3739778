//! Entries in rows: each in one piece, to be read from the front.
//!
//! ```text
//! row  shared | suffix length, unless fixed | suffix | block delta, unless one block | value code | value
//! ```

use crate::bytes::{take_varint, unzigzag};
use crate::entry::KEY_LEN_MAX;
use crate::overflow::{OVERFLOW_REF_LEN, VALUE_INLINE_MAX};
use crate::page::{EntryAt, Page};
use crate::page_header::{CODE_INLINE, ONE_BLOCK};
use crate::step::BlockNumber;

impl Page<'_> {
    /// Decodes the row at `at`; `before` is the block of the entry before it, the base at a restart.
    #[expect(clippy::inline_always, reason = "the step of every scan: a call costs as much as the step")]
    #[inline(always)]
    pub(crate) fn row_at(&self, mut at: usize, before: BlockNumber) -> Option<EntryAt> {
        let shape = &self.shape;
        let shared = take_varint(self.body, &mut at)?;
        let suffix_len = match shape.fixed_rest_len() {
            Some(len) => (len as u64).checked_sub(shared)?,
            None => take_varint(self.body, &mut at)?,
        };
        let suffix_at = at;
        // Nothing that runs out of the body is believed: after this all of it fits 16 bits.
        at = at.checked_add(suffix_len as usize)?;
        let block = if shape.form.has(ONE_BLOCK) {
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
            next: end as u16,
        })
    }
}
