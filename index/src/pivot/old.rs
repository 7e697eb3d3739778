//! Leaves of version 1, as builds before grouped leaves wrote them: read from front to back, until a reindex or a merge writes the
//! file anew.
//!
//! ```text
//! header | code of each pivot | length of each body | a mark for every 16th pivot | bodies | fences
//! ```
//!
//! Marks and fences only made a search faster and its spans narrower, so they are not read.

use icecore_segments::bytes::{shared_len, take_varint, u16_at, u64_at, unzigzag};
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::span::{PageSpan, Pivot, Separator};
use icecore_segments::step::BlockNumber;

use super::layout::{
    BLOCK_BASE_AT, COARSE, EXTRA_BEFORE, EXTRA_EMPTY, EXTRA_ZEROS, FIRST_PAGE_AT, FLAGS_AT, LAST_PAGE_AT,
    PIVOTS_AT, SHARED_MAX,
};

const END_AT: usize = 12;
const CODES_AT: usize = 40;
const MARK_EVERY: usize = 16;
const MARK_LEN: usize = 4;

/// Leaf flag: lengths of bodies take two bytes each.
const WIDE: u8 = 2;

/// What a length says beside the length: the pivot begins a page, the body has an extras byte.
const BEGINS: u8 = 0x80;
const EXTRAS: u8 = 0x40;

/// The span of the last pivot whose boundary is not after `(key, at)`.
#[cold]
pub(super) fn locate(page: &[u8; PAGE_SIZE], key: &[u8], at: BlockNumber) -> Option<PageSpan> {
    let (mut found, mut last) = (None, u64_at(page, LAST_PAGE_AT)?);
    let mut is_passed = false;
    for_each(page, |pivot| {
        if is_passed {
            return Some(());
        }
        if pivot.separator.side(key, at).is_gt() {
            found = Some((pivot.page, pivot.restart));
        } else {
            is_passed = true;
            last = pivot.page.checked_sub(u64::from(pivot.restart == 0))?;
        }
        Some(())
    })?;
    let (first, restart) = found?;
    (first <= last).then_some(PageSpan { first, last, restart })
}

/// Calls `each` with every pivot in order; ordinals are not in a leaf.
///
/// `None` when the leaf is not what a builder wrote, or when `each` says so.
pub(super) fn for_each(page: &[u8; PAGE_SIZE], mut each: impl FnMut(&Pivot<'_>) -> Option<()>) -> Option<()> {
    let pivots = usize::from(u16_at(page, PIVOTS_AT)?);
    let len_len = if page[FLAGS_AT] & WIDE == 0 { 1 } else { 2 };
    let lens_at = CODES_AT + 2 * pivots;
    let mut bodies_at = lens_at + len_len * pivots + pivots.checked_sub(1)? / MARK_EVERY * MARK_LEN;
    let (mut key, mut data_page) = (Vec::new(), u64_at(page, FIRST_PAGE_AT)?);
    for index in 0..pivots {
        let code = u16_at(page, CODES_AT + 2 * index)?;
        let top = *page.get(lens_at + len_len * (index + 1) - 1)?;
        let (begins, has_extras) = (top & BEGINS != 0, top & EXTRAS != 0);
        let mut len = usize::from(top & !(BEGINS | EXTRAS));
        if len_len == 2 {
            len = len << 8 | usize::from(*page.get(lens_at + 2 * index)?);
        }
        let body = Body::read(page, page.get(bodies_at..bodies_at + len)?, begins, has_extras)?;
        bodies_at += len;
        body.extend(&mut key, code)?;
        data_page = match body.page {
            Some(page) => page,
            None => data_page.checked_add(u64::from(begins && index > 0))?,
        };
        if (body.restart == 0) != begins {
            return None;
        }
        let separator = Separator { key: &key, before: body.before };
        each(&Pivot { separator, page: data_page, restart: body.restart, ordinal: 0 })?;
    }
    (bodies_at == usize::from(u16_at(page, END_AT)?)).then_some(())
}

/// The parts of a body.
struct Body<'a> {
    /// In a coarse leaf.
    page: Option<u64>,
    restart: u16,
    before: Option<BlockNumber>,
    empty: bool,
    head: &'a [u8],
    zeros: usize,
    tail: &'a [u8],
}

impl<'a> Body<'a> {
    fn read(page: &[u8; PAGE_SIZE], body: &'a [u8], begins: bool, has_extras: bool) -> Option<Self> {
        let extras = if has_extras { *body.first()? } else { 0 };
        let mut at = usize::from(has_extras);
        let mut take = || take_varint(body, &mut at);
        let first_page = u64_at(page, FIRST_PAGE_AT)?;
        let is_coarse = page[FLAGS_AT] & COARSE != 0;
        let data_page = if is_coarse { Some(first_page.checked_add(take()?)?) } else { None };
        let restart = if begins { 0 } else { u16::try_from(take()?).ok()? };
        let mut before = None;
        if extras & EXTRA_BEFORE != 0 {
            before = Some(u64_at(page, BLOCK_BASE_AT)?.wrapping_add(unzigzag(take()?) as u64));
        }
        let (mut head_len, mut zeros) = (0, 0);
        if extras & EXTRA_ZEROS != 0 {
            head_len = usize::try_from(take()?).ok()?;
            zeros = usize::try_from(take()?).ok().filter(|&zeros| zeros < PAGE_SIZE)?;
        }
        let (head, tail) = body.get(at..)?.split_at_checked(head_len)?;
        Some(Self { page: data_page, restart, before, empty: extras & EXTRA_EMPTY != 0, head, zeros, tail })
    }

    /// Makes `key`, a separator, the next one.
    fn extend(&self, key: &mut Vec<u8>, code: u16) -> Option<()> {
        let shared = 127usize.checked_sub(usize::from(code >> 8)).filter(|&shared| shared <= key.len())?;
        let previous = key.clone();
        key.truncate(shared);
        if !self.empty {
            key.push(code as u8);
        }
        key.extend_from_slice(self.head);
        key.resize(key.len() + self.zeros, 0);
        key.extend_from_slice(self.tail);
        (shared == shared_len(key, &previous).min(SHARED_MAX)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of the document while version 1 was written.
    const EXAMPLE: &[u8] = &[
        0xAC, 0x4F, 0x52, 0xAE, 0x54, 0x6B, 0x96, 0x66, 0, 0, 3, 0, 0x3C, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x7F, 0x63, 0x7F, 0x64, 0x7F, 0xC1, 0x46, 0xC4,
        0x04, 1, 1, 0, 0x6F, 0x6C, 0x64, 2, 0, 6, 1,
    ];

    fn page() -> [u8; PAGE_SIZE] {
        let mut page = [0; PAGE_SIZE];
        page[..EXAMPLE.len()].copy_from_slice(EXAMPLE);
        page
    }

    #[test]
    fn a_leaf_of_version_1_is_read_and_searched() {
        let mut read = Vec::new();
        let all = for_each(&page(), |pivot| {
            let Separator { key, before } = pivot.separator;
            read.push((key.to_vec(), before, pivot.page, pivot.restart));
            Some(())
        });
        assert_eq!(all, Some(()));
        let third = b"d\0\0\0\0\0\0\x01".to_vec();
        assert_eq!(read, [(vec![], None, 0, 0), (b"cold".to_vec(), Some(9), 0, 1), (third, None, 1, 0)]);
        let span = |page, restart| Some(PageSpan { first: page, last: page, restart });
        for (key, at, expected) in [
            (&b"a"[..], 0, span(0, 0)),
            (b"cold", 9, span(0, 0)),
            (b"cold", 8, span(0, 1)),
            (b"d", 8, span(0, 1)),
            (b"d\0\0\0\0\0\0\x01", 8, span(1, 0)),
            (b"e", 8, span(1, 0)),
        ] {
            assert_eq!(locate(&page(), key, at), expected, "{key:?} at {at}");
        }
    }

    #[test]
    fn no_byte_of_it_makes_a_search_panic() {
        for at in FLAGS_AT..EXAMPLE.len() {
            for byte in 0..=u8::MAX {
                let mut page = page();
                page[at] = byte;
                let _ = locate(&page, b"cold", 9);
            }
        }
    }
}
