//! Fences: what tells the pages of a span apart, at two bytes for each boundary between them.
//!
//! A fence is the code of a boundary without the rest: how many bytes it shares with the boundary before it, and the first that differs.
//! Going along the fences of a span, a search knows the first bytes of each boundary, `told` of them, and how many the key
//! agrees with. As soon as they differ, the key is on one side for certain; where all that is told agrees, that boundary is
//! open, and the pages on both sides of it are left.

use std::cmp::Ordering;

use super::layout::{SHARED_MAX, code};

pub(super) const FENCE_LEN: usize = 2;

/// What a fence says beside the code: the code is all there is of the boundary, so that a key with the same is after it.
const WHOLE: u16 = 0x8000;

/// Spans of more pages than one more than this have no fences: at M in the thousands an index is asked to be small.
pub(super) const FENCES_MAX: usize = 31;

/// The fence of a boundary of which `shared` bytes are those of the boundary before it. `is_certain`: it is between two keys.
pub(super) fn fence(key: &[u8], shared: usize, is_certain: bool) -> u16 {
    let whole = if is_certain && key.len() == shared + 1 { WHOLE } else { 0 };
    code(shared, key.get(shared).copied().unwrap_or(0)) | whole
}

/// How many boundaries are certain to be before the key, and how many after those are open.
///
/// The key is after the pivot of the span and agrees with the first `known` bytes of it.
pub(super) fn search(fences: &[[u8; FENCE_LEN]], key: &[u8], known: usize) -> (u64, u64) {
    let mut agreed = known.min(SHARED_MAX);
    // One byte more is told of the pivot: that it is smaller than the key's, unless no code could say so.
    let mut told = (known + 1).min(SHARED_MAX);
    let (mut before, mut seen) = (0, 0);
    for fence in fences.iter().map(|pair| u16::from_le_bytes(*pair)) {
        let (shared, byte) = (127 - usize::from(fence >> 8 & 0x7F), fence as u8);
        let is_before = match shared.cmp(&agreed) {
            Ordering::Less => break,
            // Like the boundary before it, as far as that is told.
            Ordering::Greater => agreed < told,
            Ordering::Equal => match key.get(agreed).map(|wanted| wanted.cmp(&byte)) {
                Some(Ordering::Less) => break,
                Some(Ordering::Greater) => true,
                // A zero may stand for no byte: a boundary between versions of one key has none.
                Some(Ordering::Equal) if byte > 0 || fence & WHOLE != 0 => {
                    agreed = (agreed + 1).min(SHARED_MAX);
                    fence & WHOLE != 0
                }
                None if byte > 0 => break,
                Some(Ordering::Equal) | None => false,
            },
        };
        told = if is_before { told.min(shared + 1).max(agreed) } else { agreed };
        seen += 1;
        if is_before {
            before = seen;
        }
    }
    (before, seen - before)
}

#[cfg(test)]
mod tests {
    use icecore_segments::bytes::shared_len;

    use super::*;

    /// Fences of ascending boundaries after a pivot.
    fn fences(pivot: &[u8], boundaries: &[&[u8]]) -> Vec<[u8; FENCE_LEN]> {
        let previous = std::iter::once(&pivot).chain(boundaries);
        let fence = |(previous, boundary): (&&[u8], &&[u8])| {
            fence(boundary, shared_len(boundary, previous).min(SHARED_MAX), true).to_le_bytes()
        };
        previous.zip(boundaries).map(fence).collect()
    }

    #[test]
    fn what_is_told_decides_and_the_rest_is_open() {
        let boundaries: [&[u8]; 4] = [b"bcx", b"bcz", b"bm", b"d"];
        let fences = fences(b"a", &boundaries);
        let search = |key: &[u8]| search(&fences, key, usize::from(key[0] == b'a'));
        assert_eq!(search(b"az"), (0, 0));
        assert_eq!(search(b"ba"), (0, 2), "of bcx a b is told, and of bcz no more");
        assert_eq!(search(b"bcy"), (0, 2));
        assert_eq!(search(b"bn"), (3, 0), "bm is told whole");
        assert_eq!(search(b"bm"), (3, 0));
        assert_eq!(search(b"c"), (3, 0));
        assert_eq!(search(b"d"), (4, 0));
        assert_eq!(search(b"e"), (4, 0));
    }

    #[test]
    fn no_key_is_sent_to_the_wrong_side() {
        let alphabet: [&[u8]; 4] = [b"", b"\0", b"a", b"b"];
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for filler in [&[][..], &[7; 125]] {
            for number in 0..4usize.pow(4) {
                let digits = (0..4).map(|digit| alphabet[number >> (2 * digit) & 3]);
                keys.push(std::iter::once(filler).chain(digits).flatten().copied().collect());
            }
        }
        keys.sort();
        keys.dedup();
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut chosen: Vec<&[u8]> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                &keys[(seed >> 33) as usize % keys.len()][..]
            })
            .take(5)
            .collect();
            let key = chosen.pop().unwrap();
            chosen.sort_unstable();
            chosen.dedup();
            if key < chosen[0] {
                continue;
            }
            let (before, open) = search(&fences(chosen[0], &chosen[1..]), key, shared_len(chosen[0], key));
            let right = chosen[1..].iter().filter(|&&boundary| boundary <= key).count() as u64;
            assert!((before..=before + open).contains(&right), "{key:?} in {chosen:?}: {before} + {open}");
        }
    }
}
