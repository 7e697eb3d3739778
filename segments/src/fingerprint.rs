//! The fingerprint of a key in a page of columns: written by the page builder, looked for by the lookup, compared by `verify`.

/// The multiplier of fingerprints: odd, half of its bits set, no short pattern.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Eight bits that tell keys apart: of what a key has after the prefix of its page, the first and the last eight bytes.
///
/// Keys that differ in their last byte only, as slots in a row do, never have the same. Keys that differ between the two only are
/// told apart by comparing them: all bytes would cost every lookup a dozen steps more.
#[inline]
pub(crate) fn fingerprint(rest: &[u8]) -> u8 {
    let (first, last) = match (rest.first_chunk(), rest.last_chunk()) {
        (Some(first), Some(last)) if rest.len() > 8 => {
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
        }
        _ => (0, rest.iter().fold(0, |word, &byte| word >> 8 | u64::from(byte) << 56)),
    };
    let hash = (first ^ rest.len() as u64).wrapping_mul(MULTIPLIER);
    ((hash ^ last).wrapping_mul(MULTIPLIER) >> 56) as u8
}
