//! Keccak-256 as Ethereum uses it: the permutation Keccak-f[1600], the padding, one message at a time.
//!
//! The permutation is written once, as a macro over the operations of a word, so that the lanes in `simd` are the same
//! text as the portable form. Users: `ethereum`, and `simd::keccak`, which hashes many messages at once.

use crate::hash::Hash;

/// How many bytes of a message one permutation takes in.
pub(crate) const RATE: usize = 136;

/// How many words of the state that is.
pub(crate) const RATE_WORDS: usize = RATE / 8;

/// What the last step of each round adds.
pub(crate) const ROUNDS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808A,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808B,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008A,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000A,
    0x0000_0000_8000_808B,
    0x8000_0000_0000_008B,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800A,
    0x8000_0000_8000_000A,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// One round (FIPS 202, section 3.2) of the state `$a`, but for the constant: `$xor5` adds five words, `$xor` two,
/// `$rol::<L, R>` rotates left by L = 64 - R, and `$chi(a, b, c)` is `a ^ (!b & c)`.
///
/// A row of the new state is made of words that are rotated for that row alone, so that few of them need a register.
macro_rules! keccak_round {
    ($a:ident, $xor5:ident, $xor:ident, $rol:ident, $chi:ident) => {{
        let c0 = $xor5($a[0], $a[5], $a[10], $a[15], $a[20]);
        let c1 = $xor5($a[1], $a[6], $a[11], $a[16], $a[21]);
        let c2 = $xor5($a[2], $a[7], $a[12], $a[17], $a[22]);
        let c3 = $xor5($a[3], $a[8], $a[13], $a[18], $a[23]);
        let c4 = $xor5($a[4], $a[9], $a[14], $a[19], $a[24]);
        let d0 = $xor(c4, $rol::<1, 63>(c1));
        let d1 = $xor(c0, $rol::<1, 63>(c2));
        let d2 = $xor(c1, $rol::<1, 63>(c3));
        let d3 = $xor(c2, $rol::<1, 63>(c4));
        let d4 = $xor(c3, $rol::<1, 63>(c0));
        let mut next = $a;
        let b0 = $xor($a[0], d0);
        let b1 = $rol::<44, 20>($xor($a[6], d1));
        let b2 = $rol::<43, 21>($xor($a[12], d2));
        let b3 = $rol::<21, 43>($xor($a[18], d3));
        let b4 = $rol::<14, 50>($xor($a[24], d4));
        next[0] = $chi(b0, b1, b2);
        next[1] = $chi(b1, b2, b3);
        next[2] = $chi(b2, b3, b4);
        next[3] = $chi(b3, b4, b0);
        next[4] = $chi(b4, b0, b1);
        let b0 = $rol::<28, 36>($xor($a[3], d3));
        let b1 = $rol::<20, 44>($xor($a[9], d4));
        let b2 = $rol::<3, 61>($xor($a[10], d0));
        let b3 = $rol::<45, 19>($xor($a[16], d1));
        let b4 = $rol::<61, 3>($xor($a[22], d2));
        next[5] = $chi(b0, b1, b2);
        next[6] = $chi(b1, b2, b3);
        next[7] = $chi(b2, b3, b4);
        next[8] = $chi(b3, b4, b0);
        next[9] = $chi(b4, b0, b1);
        let b0 = $rol::<1, 63>($xor($a[1], d1));
        let b1 = $rol::<6, 58>($xor($a[7], d2));
        let b2 = $rol::<25, 39>($xor($a[13], d3));
        let b3 = $rol::<8, 56>($xor($a[19], d4));
        let b4 = $rol::<18, 46>($xor($a[20], d0));
        next[10] = $chi(b0, b1, b2);
        next[11] = $chi(b1, b2, b3);
        next[12] = $chi(b2, b3, b4);
        next[13] = $chi(b3, b4, b0);
        next[14] = $chi(b4, b0, b1);
        let b0 = $rol::<27, 37>($xor($a[4], d4));
        let b1 = $rol::<36, 28>($xor($a[5], d0));
        let b2 = $rol::<10, 54>($xor($a[11], d1));
        let b3 = $rol::<15, 49>($xor($a[17], d2));
        let b4 = $rol::<56, 8>($xor($a[23], d3));
        next[15] = $chi(b0, b1, b2);
        next[16] = $chi(b1, b2, b3);
        next[17] = $chi(b2, b3, b4);
        next[18] = $chi(b3, b4, b0);
        next[19] = $chi(b4, b0, b1);
        let b0 = $rol::<62, 2>($xor($a[2], d2));
        let b1 = $rol::<55, 9>($xor($a[8], d3));
        let b2 = $rol::<39, 25>($xor($a[14], d4));
        let b3 = $rol::<41, 23>($xor($a[15], d0));
        let b4 = $rol::<2, 62>($xor($a[21], d1));
        next[20] = $chi(b0, b1, b2);
        next[21] = $chi(b1, b2, b3);
        next[22] = $chi(b2, b3, b4);
        next[23] = $chi(b3, b4, b0);
        next[24] = $chi(b4, b0, b1);
        next
    }};
}

pub(crate) use keccak_round;

/// The permutation on plain integers.
pub(crate) fn permute(state: &mut [u64; 25]) {
    fn xor5(a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
        a ^ b ^ c ^ d ^ e
    }
    fn xor(a: u64, b: u64) -> u64 {
        a ^ b
    }
    fn rol<const LEFT: u32, const RIGHT: u32>(a: u64) -> u64 {
        a << LEFT | a >> RIGHT
    }
    fn chi(a: u64, b: u64, c: u64) -> u64 {
        a ^ (!b & c)
    }
    let mut a = *state;
    for constant in ROUNDS {
        a = keccak_round!(a, xor5, xor, rol, chi);
        a[0] ^= constant;
    }
    *state = a;
}

/// How many permutations a message of `len` bytes takes: its padding is one byte at least.
pub(crate) const fn blocks(len: usize) -> usize {
    len / RATE + 1
}

/// Block `index` of a message, the padding included.
#[inline]
pub(crate) fn with_block<T>(message: &[u8], index: usize, absorb: impl FnOnce(&[u8; RATE]) -> T) -> T {
    let rest = &message[index * RATE..];
    if let Some(block) = rest.first_chunk() {
        return absorb(block);
    }
    let mut block = [0; RATE];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x01;
    block[RATE - 1] |= 0x80;
    absorb(&block)
}

/// The words of a block, as the state takes them in.
#[inline]
pub(crate) fn block_words(block: &[u8; RATE]) -> impl Iterator<Item = u64> + '_ {
    block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The Keccak-256 of a message, padded as before FIPS 202: Ethereum's hash of everything.
///
/// # Cost
/// One permutation, some 250 ns, per 136 bytes. Many messages are hashed faster by
/// [`keccak256_batch`](crate::ethereum::keccak256_batch).
pub fn keccak256(message: &[u8]) -> Hash {
    let mut state = [0; 25];
    for index in 0..blocks(message.len()) {
        with_block(message, index, |block| {
            state.iter_mut().zip(block_words(block)).for_each(|(word, input)| *word ^= input);
        });
        permute(&mut state);
    }
    let mut hash = [0; 32];
    hash.as_chunks_mut().0.iter_mut().zip(state).for_each(|(out, word)| *out = word.to_le_bytes());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_agrees_with_the_reference_at_every_length() {
        let bytes: Vec<u8> = (0..700u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in 0..bytes.len() {
            let message = &bytes[..len];
            assert_eq!(keccak256(message), *alloy_primitives::keccak256(message), "{len} bytes");
        }
    }
}
