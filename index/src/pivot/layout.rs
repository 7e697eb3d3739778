//! Where what is in a leaf, for [`packer`](super::packer) and [`node`](super::node).

use icecore_segments::frame::PAGE_SIZE;

pub(super) const FLAGS_AT: usize = 8;
pub(super) const BLOCK_LEN_AT: usize = 9;
pub(super) const PIVOTS_AT: usize = 10;
pub(super) const END_AT: usize = 12;
pub(super) const GROUPS_AT: usize = 14;
pub(super) const DEPTH_AT: usize = 15;
pub(super) const FIRST_PAGE_AT: usize = 16;
pub(super) const LAST_PAGE_AT: usize = 24;
pub(super) const BLOCK_BASE_AT: usize = 32;
pub(super) const DIRECTORY_AT: usize = 40;

/// The most bytes of a leaf: a search reads eight bytes where less may be meant, and no page but the leaf.
pub(super) const LEAF_LEN_MAX: usize = PAGE_SIZE - 8;

/// Leaf flag: a span may have several pages. Without it a pivot begins the page after the one before, or is inside it.
pub(super) const COARSE: u8 = 1;
/// Leaf flag: pivots are in groups with a directory. A leaf of version 1 does not have it.
pub(super) const GROUPED: u8 = 4;
/// How many bytes say the place of a pivot, in the upper half of the leaf's flags: one for its page, none to two for its restart.
pub(super) const PLACE_LEN_SHIFT: u8 = 4;

/// What a leaf takes for each group in its directory, beside the rest of a separator: head, code, end and offset.
pub(super) const ENTRY_LEN: usize = 10;
pub(super) const HEAD_LEN: usize = 4;
/// In the directory, an end: where it is.
pub(super) const END_OFFSET: u16 = 0x0FFF;
/// In the directory, an end: how many bytes of the head are the separator's, three for four too.
pub(super) const END_HEAD_SHIFT: u16 = 12;
pub(super) const END_HEAD_MAX: usize = 3;
/// In the directory, an end: the separator has no byte more than it shares.
pub(super) const END_EMPTY: u16 = 0x4000;
/// In the directory, an end: the boundary is between two versions, and the block is before the end.
pub(super) const END_BEFORE: u16 = 0x8000;

/// The most pivots of a group: the codes of all but the first are looked at in one go.
pub(super) const GROUP_MAX: usize = 32;
/// The bytes that are looked at then.
pub(super) const CODES_LEN: usize = 2 * GROUP_MAX;
/// The parts of a group before its codes: page, bits of the bodies with extras, pivots.
pub(super) const GROUP_EXTRAS_AT: usize = 4;
pub(super) const GROUP_COUNT_AT: usize = 8;
pub(super) const GROUP_CODES_AT: usize = 9;
/// The most bytes of the bodies of a group, and how far its last page is from its first: what a byte says.
pub(super) const BODIES_MAX: usize = 255;

/// The extras byte: the boundary is between two versions, and the block ends the body.
pub(super) const EXTRA_BEFORE: u8 = 1;
/// The extras byte: a run of zeros was left out of the separator; where it was and its length follow.
pub(super) const EXTRA_ZEROS: u8 = 2;
/// The extras byte: the separator has no byte more than it shares.
pub(super) const EXTRA_EMPTY: u8 = 4;

/// The most shared bytes that a code can say. Separators that share more store the rest again.
///
/// So a code has 15 bits, and compares as a signed number too.
pub(super) const SHARED_MAX: usize = 126;

/// The code of a separator or key that shares `shared` bytes with its predecessor and goes on with `byte`: smaller for
/// what comes first, among all that follow one predecessor.
#[inline]
pub(super) fn code(shared: usize, byte: u8) -> u16 {
    debug_assert!(shared <= SHARED_MAX);
    (((127 - shared) as u16) << 8) | u16::from(byte)
}

/// The head of a separator or key in a directory: the bytes after the first `depth`, as a number that grows with them.
#[inline]
pub(super) fn head(key: &[u8], depth: usize) -> u32 {
    let rest = key.get(depth..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk() {
        return u32::from_be_bytes(*bytes);
    }
    let mut bytes = [0; HEAD_LEN];
    bytes[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DOC;

    #[test]
    fn the_table_of_the_document_is_the_constants() {
        let leaf = [
            (0, "page checksum"),
            (FLAGS_AT, "flags: 1 coarse, 4 grouped; from bit 4"),
            (BLOCK_LEN_AT, "length `b` of a block"),
            (PIVOTS_AT, "pivots"),
            (END_AT, "end of the last group"),
            (GROUPS_AT, "groups"),
            (DEPTH_AT, "depth"),
            (FIRST_PAGE_AT, "data page of the first"),
            (LAST_PAGE_AT, "last data page"),
            (BLOCK_BASE_AT, "base of the blocks"),
            (DIRECTORY_AT, "directory, groups"),
        ];
        DOC.check_layout("### Leaf of a `.bt`", &leaf, None);
        assert_eq!((COARSE, GROUPED, PLACE_LEN_SHIFT, LEAF_LEN_MAX), (1, 4, 4, 4088));
    }
}
