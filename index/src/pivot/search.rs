//! How a run of boundaries is searched, be they the first ones of the groups of a leaf or those of one group.

#![allow(clippy::inline_always, reason = "a call for each costs a search 7 % more instructions: callgrind")]

use icecore_segments::bytes::shared_len;
use icecore_segments::frame::PAGE_SIZE;
use icecore_segments::step::BlockNumber;

use super::layout::{SHARED_MAX, code};
use super::page::Page;
use super::scan::{first_at_least, first_unlike};

/// What a run of zeros is compared with.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// A separator as it is stored: what follows the bytes that it shares with its predecessor, and the byte in its code.
pub(super) struct Body<'a> {
    pub(super) before: Option<BlockNumber>,
    /// Whether there is no byte after the shared ones, not even the one in the code.
    pub(super) empty: bool,
    pub(super) head: &'a [u8],
    pub(super) zeros: usize,
    pub(super) tail: &'a [u8],
}

/// What a search looks for.
#[derive(Clone, Copy)]
pub(super) struct Position<'k> {
    pub(super) key: &'k [u8],
    pub(super) at: BlockNumber,
}

/// Where a position is, seen from a boundary.
#[derive(Clone, Copy)]
pub(super) enum Side {
    /// Before it.
    Before,
    /// At or after it; the key and the separator agree in this many bytes.
    After(usize),
}

/// Boundaries in order, each with a code: the first ones of the groups, or those of a group.
pub(super) trait Boundaries: Copy {
    fn page(&self) -> Page<'_>;

    fn count(&self) -> usize;

    /// Where the code of the first would be, which has none.
    fn codes_at(&self) -> usize;

    /// Whether a boundary, not the first, is all in its code and what is between the two offsets.
    fn rest(&self, index: usize) -> Option<(usize, usize)>;

    /// The block before a boundary between two versions of one key whose separator is no more than it shares.
    fn block(&self, index: usize) -> Option<BlockNumber>;

    /// The separator of any, not of the first.
    fn separator(&self, index: usize) -> Option<Body<'_>>;
}

/// The last boundary that is not after the position, and how many bytes of it agree with the key, as far as a code can say.
/// Boundary `passed` is not after it and agrees with `known` bytes.
#[inline(always)]
pub(super) fn search(
    boundaries: impl Boundaries,
    position: Position<'_>,
    passed: usize,
    known: usize,
) -> (usize, usize) {
    let (page, codes_at, count) = (boundaries.page(), boundaries.codes_at(), boundaries.count().max(1));
    let (mut passed, mut known) = (passed, known);
    loop {
        // Where the key ends, every separator that goes on is after it: 0 is not above any byte.
        let wanted = code(known, position.key.get(known).copied().unwrap_or(0));
        let next = first_at_least(page, codes_at, passed + 1, count, wanted);
        if next >= count || page.u16(codes_at + 2 * next) != wanted {
            return (next - 1, known);
        }
        if known == position.key.len() {
            return (search_versions(boundaries, position, next, wanted), known);
        }
        let side = match boundaries.rest(next) {
            Some((from, end)) => side_of_rest(page, from, end, position.key, known + 1),
            None => side_of_separator(boundaries, next, position, known),
        };
        match side {
            Side::After(agrees) => (known, passed) = (agrees.min(SHARED_MAX), next),
            Side::Before => return (next - 1, known),
        }
    }
}

/// The last boundary that is not after the position, where that from `next` on are between versions of its key: these have one code,
/// and a key of a million versions has hundreds of them in a leaf.
#[inline(never)]
fn search_versions(boundaries: impl Boundaries, position: Position<'_>, next: usize, code: u16) -> usize {
    let (page, codes_at, count) = (boundaries.page(), boundaries.codes_at(), boundaries.count());
    let (mut low, mut high) = (next, first_unlike(page, codes_at, next, count, code));
    while low < high {
        let middle = usize::midpoint(low, high);
        // One that goes on with a zero is after all versions.
        let is_before = boundaries.block(middle).is_none_or(|block| block <= position.at);
        (low, high) = if is_before { (low, middle) } else { (middle + 1, high) };
    }
    low - 1
}

#[inline(never)]
fn side_of_separator(
    boundaries: impl Boundaries,
    index: usize,
    position: Position<'_>,
    known: usize,
) -> Side {
    boundaries.separator(index).map_or(Side::Before, |separator| separator.side(position, known))
}

/// On which side of a boundary a key is that agrees with it in `known` bytes; the bytes of the separator after these are from `from`
/// to `end`. One more than the key has may be known: it ended where the code has a zero.
#[inline(always)]
fn side_of_rest(page: Page<'_>, from: usize, end: usize, key: &[u8], known: usize) -> Side {
    const WORD: usize = size_of::<u64>();
    let len = end.wrapping_sub(from);
    let Some(last_word) = key.len().checked_sub(WORD).filter(|_| len <= WORD) else {
        return side_of_long_rest(page, from, end, key, known);
    };
    // Eight bytes of each, as numbers that grow with them; zeros after what the separator and the key have.
    let kept = !u64::MAX.checked_shr(8 * len as u32).unwrap_or(0);
    let separator = page.u64(from).swap_bytes() & kept;
    let at = known.min(last_word);
    let word = key.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_be_bytes(*word));
    let word = word.checked_shl(8 * (known - at) as u32).unwrap_or(0) & kept;
    let agrees = ((separator ^ word).leading_zeros() as usize / 8).min(len);
    let after = word > separator || word == separator && known + len <= key.len();
    if after { Side::After(known + agrees) } else { Side::Before }
}

#[inline(never)]
fn side_of_long_rest(page: Page<'_>, from: usize, end: usize, key: &[u8], known: usize) -> Side {
    page.slice(from, end).map_or(Side::Before, |separator| Side::of(separator, key, known))
}

impl Side {
    /// The side by the bytes of separator and key from the first `known` of the key on, where all before agree; equal keys are
    /// after.
    fn of(separator: &[u8], key: &[u8], known: usize) -> Self {
        let Some(rest) = key.get(known..) else { return Self::Before };
        let equal = shared_len(separator, rest);
        let after = equal == separator.len() || (equal < rest.len() && rest[equal] > separator[equal]);
        if after { Self::After(known + equal) } else { Self::Before }
    }
}

impl Body<'_> {
    /// On which side of this boundary the position is; the first `known` bytes and the one in the code agree.
    fn side(&self, position: Position<'_>, known: usize) -> Side {
        let mut matched = known;
        if !self.empty {
            matched += 1;
            for part in [self.head, &ZEROS[..self.zeros], self.tail] {
                match Side::of(part, position.key, matched) {
                    Side::After(agrees) if agrees == matched + part.len() => matched = agrees,
                    side => return side,
                }
            }
        }
        let answered_before =
            matched == position.key.len() && self.before.is_some_and(|before| before <= position.at);
        if answered_before { Side::Before } else { Side::After(matched) }
    }
}
