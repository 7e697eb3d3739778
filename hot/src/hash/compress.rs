//! The compression function of BLAKE3, one block at a time, and the constants that the lanes share with it.

pub(crate) const CHUNK_START: u32 = 1;
pub(crate) const CHUNK_END: u32 = 2;
pub(crate) const ROOT: u32 = 8;

/// The initial chaining value of BLAKE3 (the fractional parts of the square roots of the first 8 primes).
pub(crate) const IV: [u32; 8] =
    [0x6A09_E667, 0xBB67_AE85, 0x3C6E_F372, 0xA54F_F53A, 0x510E_527F, 0x9B05_688C, 0x1F83_D9AB, 0x5BE0_CD19];

/// The order of the message words in each of the seven rounds.
pub(crate) const SCHEDULE: [[usize; 16]; 7] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8],
    [3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1],
    [10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6],
    [12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4],
    [9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7],
    [11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13],
];

/// The columns and diagonals that a round mixes, in order.
pub(crate) const MIXES: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

/// One compression on plain integers, for the constant above; the specification, section 2.2.
pub(crate) const fn compress(start: [u32; 8], block: &[u8; 64], len: u32, flags: u32) -> [u32; 8] {
    let mut words = [0u32; 16];
    let mut i = 0;
    while i < 16 {
        words[i] = u32::from_le_bytes([block[4 * i], block[4 * i + 1], block[4 * i + 2], block[4 * i + 3]]);
        i += 1;
    }
    let mut v = [0u32; 16];
    let mut i = 0;
    while i < 8 {
        v[i] = start[i];
        i += 1;
    }
    (v[8], v[9], v[10], v[11], v[14], v[15]) = (IV[0], IV[1], IV[2], IV[3], len, flags);
    let mut round = 0;
    while round < 7 {
        let mut i = 0;
        while i < 8 {
            let [a, b, c, d] = MIXES[i];
            let (x, y) = (words[SCHEDULE[round][2 * i]], words[SCHEDULE[round][2 * i + 1]]);
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
            v[d] = (v[d] ^ v[a]).rotate_right(16);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(12);
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
            v[d] = (v[d] ^ v[a]).rotate_right(8);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(7);
            i += 1;
        }
        round += 1;
    }
    let mut out = [0u32; 8];
    let mut i = 0;
    while i < 8 {
        out[i] = v[i] ^ v[i + 8];
        i += 1;
    }
    out
}
