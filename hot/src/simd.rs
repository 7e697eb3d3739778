//! Many hashes at once: one message per lane, chosen at run time, with a portable twin.
//!
//! Everything the tree hashes is one BLAKE3 compression of one 64-byte block, so a lane needs no loop and no
//! state: 16 lanes with AVX-512, 8 with AVX2. A key or a value longer than one block goes to the `blake3`
//! crate, and so does everything where neither instruction set is found. All backends agree with
//! `blake3::hash`; the tests below say so for every length of a block.
#![expect(unsafe_code, reason = "vector loads, and calls into functions compiled for a detected CPU feature")]

use crate::KeyHash;
use crate::arena::Line;
use crate::compress::{CHUNK_END, CHUNK_START, IV, MIXES, ROOT, SCHEDULE, compress};
use crate::hash::{Hash, TAG, leaf};

/// The most messages any backend takes at once; callers gather this many.
pub(crate) const LANES: usize = 16;

/// The chaining value after the tag block: where the one compression of a leaf starts.
const TAG_STATE: [u32; 8] = compress(IV, &TAG, 64, CHUNK_START);

/// Which instructions hash. The roots are the same with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HashBackend {
    /// The widest that this CPU has.
    #[default]
    Auto,
    /// 16 lanes; [`Auto`](Self::Auto) where the CPU lacks AVX-512.
    Avx512,
    /// 8 lanes; portable where the CPU lacks AVX2.
    Avx2,
    /// The `blake3` crate, one message at a time.
    Portable,
}

impl HashBackend {
    /// The backend that is really used on this CPU: never [`Auto`](Self::Auto).
    pub fn resolve(self) -> Self {
        let has_avx512 = detect::avx512();
        match self {
            Self::Auto | Self::Avx512 if has_avx512 => Self::Avx512,
            Self::Auto | Self::Avx512 | Self::Avx2 if detect::avx2() => Self::Avx2,
            _ => Self::Portable,
        }
    }
}

/// A backend that is known to work here; copying it copies one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// What a set of lanes computes: where each starts, with which flags.
#[derive(Clone, Copy)]
enum Job<'a> {
    /// Full blocks, each a message of its own: an inner node.
    Pair,
    /// Full blocks after the tag block: a leaf.
    Leaf,
    /// Zero-padded blocks of the given lengths, each a message of its own: a short key or value.
    Short(&'a [u8; LANES]),
}

impl Job<'_> {
    const fn start(&self) -> [u32; 8] {
        match self {
            Self::Leaf => TAG_STATE,
            Self::Pair | Self::Short(_) => IV,
        }
    }

    const fn flags(&self) -> u32 {
        match self {
            Self::Leaf => CHUNK_END | ROOT,
            Self::Pair | Self::Short(_) => CHUNK_START | CHUNK_END | ROOT,
        }
    }
}

impl Lanes {
    pub(crate) fn new(backend: HashBackend) -> Self {
        match backend.resolve() {
            #[cfg(target_arch = "x86_64")]
            HashBackend::Avx512 => Self(Kind::Avx512),
            #[cfg(target_arch = "x86_64")]
            HashBackend::Avx2 => Self(Kind::Avx2),
            _ => Self(Kind::Portable),
        }
    }

    /// Hashes 16 scattered inner nodes.
    #[inline]
    pub(crate) fn gathered(self, lines: &[&Line; LANES], out: &mut [Hash; LANES]) {
        self.run(lines, Job::Pair, out);
    }

    /// Hashes inner nodes that lie in a row, one output per line.
    #[inline]
    pub(crate) fn pairs(self, lines: &[Line], out: &mut [Hash]) {
        self.rows(lines, out, Job::Pair);
    }

    /// Hashes leaves: each line holds a key hash and a value hash.
    #[inline]
    pub(crate) fn leaves(self, lines: &[Line], out: &mut [Hash]) {
        self.rows(lines, out, Job::Leaf);
    }

    /// Hashes messages of at most 64 bytes, each zero-padded in its own line. Lengths above 64 give a
    /// meaningless hash: the caller puts the right one in its place.
    #[inline]
    pub(crate) fn short(self, lines: &[Line; LANES], lens: &[u8; LANES], out: &mut [Hash; LANES]) {
        self.run(&lines.each_ref(), Job::Short(lens), out);
    }

    fn rows(self, lines: &[Line], out: &mut [Hash], job: Job<'_>) {
        assert_eq!(lines.len(), out.len(), "one output per line");
        let (rows, tail) = lines.as_chunks::<LANES>();
        let (outs, out_tail) = out.as_chunks_mut::<LANES>();
        for (row, out) in rows.iter().zip(outs) {
            self.run(&row.each_ref(), job, out);
        }
        if let Some(first) = tail.first() {
            let mut refs = [first; LANES];
            refs.iter_mut().zip(tail).for_each(|(slot, line)| *slot = line);
            let mut last = [[0; 32]; LANES];
            self.run(&refs, job, &mut last);
            out_tail.copy_from_slice(&last[..tail.len()]);
        }
    }

    #[inline]
    fn run(self, lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kind::Avx512` is made by `Lanes::new` alone, and only where `resolve` has detected
            // avx512f, which is all that the function is compiled for.
            Kind::Avx512 => unsafe { x86::avx512(lines, job, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kind::Avx2` is made by `Lanes::new` alone, and only where `resolve` has detected avx2.
            Kind::Avx2 => unsafe { x86::avx2(lines, job, out) },
            Kind::Portable => portable(lines, job, out),
        }
    }
}

fn portable(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
    for (i, (line, out)) in lines.iter().zip(out).enumerate() {
        *out = match job {
            Job::Pair => *blake3::hash(line.bytes()).as_bytes(),
            Job::Leaf => leaf(&KeyHash(line.halves[0]), &line.halves[1]),
            Job::Short(lens) => *blake3::hash(&line.bytes()[..usize::from(lens[i]).min(64)]).as_bytes(),
        };
    }
}

#[cfg(target_arch = "x86_64")]
mod detect {
    pub(super) fn avx512() -> bool {
        is_x86_feature_detected!("avx512f")
    }

    pub(super) fn avx2() -> bool {
        is_x86_feature_detected!("avx2")
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod detect {
    pub(super) fn avx512() -> bool {
        false
    }

    pub(super) fn avx2() -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256,
        _mm256_set1_epi32, _mm256_setr_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
        _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256, _mm512_add_epi32, _mm512_loadu_si512,
        _mm512_permutex2var_epi64, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_setr_epi64,
        _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
        _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
    };

    use super::{Hash, IV, Job, LANES, Line, MIXES, SCHEDULE};

    /// Turns 16 blocks (a block per vector) into 16 words (a word of every block per vector).
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transpose512(rows: &mut [__m512i; 16]) {
        for k in 0..8 {
            let (a, b) = (rows[2 * k], rows[2 * k + 1]);
            rows[2 * k] = _mm512_unpacklo_epi32(a, b);
            rows[2 * k + 1] = _mm512_unpackhi_epi32(a, b);
        }
        for k in 0..4 {
            let [p, q, r, s] = [rows[4 * k], rows[4 * k + 1], rows[4 * k + 2], rows[4 * k + 3]];
            rows[4 * k] = _mm512_unpacklo_epi64(p, r);
            rows[4 * k + 1] = _mm512_unpackhi_epi64(p, r);
            rows[4 * k + 2] = _mm512_unpacklo_epi64(q, s);
            rows[4 * k + 3] = _mm512_unpackhi_epi64(q, s);
        }
        // Vector 4g + w now holds the words w, w + 4, w + 8, w + 12 of the blocks 4g to 4g + 3, a word per
        // 128-bit part. Two rounds of choosing parts bring the blocks of one word together.
        let v = *rows;
        for w in 0..4 {
            let low_even = _mm512_shuffle_i32x4::<0x88>(v[w], v[4 + w]);
            let low_odd = _mm512_shuffle_i32x4::<0xdd>(v[w], v[4 + w]);
            let high_even = _mm512_shuffle_i32x4::<0x88>(v[8 + w], v[12 + w]);
            let high_odd = _mm512_shuffle_i32x4::<0xdd>(v[8 + w], v[12 + w]);
            rows[w] = _mm512_shuffle_i32x4::<0x88>(low_even, high_even);
            rows[8 + w] = _mm512_shuffle_i32x4::<0xdd>(low_even, high_even);
            rows[4 + w] = _mm512_shuffle_i32x4::<0x88>(low_odd, high_odd);
            rows[12 + w] = _mm512_shuffle_i32x4::<0xdd>(low_odd, high_odd);
        }
    }

    /// Writes 8 words (of 16 lanes each) as 16 hashes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store512(words: &[__m512i; 8], out: &mut [Hash; LANES]) {
        let mut parts = [_mm512_setzero_si512(); 8];
        for half in 0..2 {
            let [a, b, c, d] =
                [words[4 * half], words[4 * half + 1], words[4 * half + 2], words[4 * half + 3]];
            let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            parts[4 * half] = _mm512_unpacklo_epi64(ab_low, cd_low);
            parts[4 * half + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
            parts[4 * half + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
            parts[4 * half + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
        }
        // Part r holds half a hash of the lanes r, r + 4, r + 8, r + 12.
        let even = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let odd = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        for r in 0..4 {
            let first = _mm512_permutex2var_epi64(parts[r], even, parts[4 + r]);
            let second = _mm512_permutex2var_epi64(parts[r], odd, parts[4 + r]);
            for (base, pair) in [(r, first), (r + 8, second)] {
                let mut line = Line::ZERO;
                // SAFETY: a `Line` is 64 bytes, all of them writable through this exclusive reference.
                unsafe { _mm512_storeu_si512((&raw mut line).cast(), pair) };
                out[base] = line.halves[0];
                out[base + 4] = line.halves[1];
            }
        }
    }

    /// 16 compressions.
    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        let mut m = [_mm512_setzero_si512(); 16];
        for (row, line) in m.iter_mut().zip(lines) {
            // SAFETY: a `Line` is 64 readable bytes; the load asks for no alignment.
            *row = unsafe { _mm512_loadu_si512(std::ptr::from_ref::<Line>(line).cast()) };
        }
        transpose512(&mut m);
        let start = job.start();
        let lens = match job {
            Job::Pair | Job::Leaf => _mm512_set1_epi32(64),
            Job::Short(lens) => {
                let wide = lens.map(u32::from);
                // SAFETY: `wide` is 16 words, 64 readable bytes; the load asks for no alignment.
                unsafe { _mm512_loadu_si512(wide.as_ptr().cast()) }
            }
        };
        let mut v = [_mm512_setzero_si512(); 16];
        for i in 0..8 {
            v[i] = _mm512_set1_epi32(start[i] as i32);
        }
        for i in 0..4 {
            v[8 + i] = _mm512_set1_epi32(IV[i] as i32);
        }
        v[14] = lens;
        v[15] = _mm512_set1_epi32(job.flags() as i32);
        for order in &SCHEDULE {
            for (i, &[a, b, c, d]) in MIXES.iter().enumerate() {
                v[a] = _mm512_add_epi32(_mm512_add_epi32(v[a], m[order[2 * i]]), v[b]);
                v[d] = _mm512_ror_epi32::<16>(_mm512_xor_si512(v[d], v[a]));
                v[c] = _mm512_add_epi32(v[c], v[d]);
                v[b] = _mm512_ror_epi32::<12>(_mm512_xor_si512(v[b], v[c]));
                v[a] = _mm512_add_epi32(_mm512_add_epi32(v[a], m[order[2 * i + 1]]), v[b]);
                v[d] = _mm512_ror_epi32::<8>(_mm512_xor_si512(v[d], v[a]));
                v[c] = _mm512_add_epi32(v[c], v[d]);
                v[b] = _mm512_ror_epi32::<7>(_mm512_xor_si512(v[b], v[c]));
            }
        }
        let mut words = [_mm512_setzero_si512(); 8];
        for i in 0..8 {
            words[i] = _mm512_xor_si512(v[i], v[i + 8]);
        }
        store512(&words, out);
    }

    /// The 8 by 8 transposition; its own inverse.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose256(rows: &mut [__m256i; 8]) {
        let mut t = *rows;
        for k in 0..4 {
            t[2 * k] = _mm256_unpacklo_epi32(rows[2 * k], rows[2 * k + 1]);
            t[2 * k + 1] = _mm256_unpackhi_epi32(rows[2 * k], rows[2 * k + 1]);
        }
        let mut u = t;
        for k in 0..2 {
            u[4 * k] = _mm256_unpacklo_epi64(t[4 * k], t[4 * k + 2]);
            u[4 * k + 1] = _mm256_unpackhi_epi64(t[4 * k], t[4 * k + 2]);
            u[4 * k + 2] = _mm256_unpacklo_epi64(t[4 * k + 1], t[4 * k + 3]);
            u[4 * k + 3] = _mm256_unpackhi_epi64(t[4 * k + 1], t[4 * k + 3]);
        }
        for k in 0..4 {
            rows[k] = _mm256_permute2x128_si256::<0x20>(u[k], u[4 + k]);
            rows[4 + k] = _mm256_permute2x128_si256::<0x31>(u[k], u[4 + k]);
        }
    }

    /// 16 compressions, 8 at a time.
    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        for half in [0, 8] {
            eight(lines, job, out, half);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: 32 readable bytes; the load asks for no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate<const RIGHT: i32, const LEFT: i32>(v: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(v), _mm256_slli_epi32::<LEFT>(v))
    }

    #[target_feature(enable = "avx2")]
    fn eight(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES], from: usize) {
        let mut m = [_mm256_setzero_si256(); 16];
        for side in 0..2 {
            let mut rows = [_mm256_setzero_si256(); 8];
            for (row, line) in rows.iter_mut().zip(&lines[from..]) {
                *row = load(&line.halves[side]);
            }
            transpose256(&mut rows);
            m[8 * side..8 * side + 8].copy_from_slice(&rows);
        }
        let start = job.start();
        let mut v = [_mm256_setzero_si256(); 16];
        for i in 0..8 {
            v[i] = _mm256_set1_epi32(start[i] as i32);
        }
        for i in 0..4 {
            v[8 + i] = _mm256_set1_epi32(IV[i] as i32);
        }
        v[14] = match job {
            Job::Pair | Job::Leaf => _mm256_set1_epi32(64),
            Job::Short(lens) => {
                let mut wide = [0u8; 32];
                for i in 0..8 {
                    wide[4 * i] = lens[from + i];
                }
                load(&wide)
            }
        };
        v[15] = _mm256_set1_epi32(job.flags() as i32);
        let by16 = _mm256_setr_epi8(
            2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14,
            15, 12, 13,
        );
        let by8 = _mm256_setr_epi8(
            1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13,
            14, 15, 12,
        );
        for order in &SCHEDULE {
            for (i, &[a, b, c, d]) in MIXES.iter().enumerate() {
                v[a] = _mm256_add_epi32(_mm256_add_epi32(v[a], m[order[2 * i]]), v[b]);
                v[d] = _mm256_shuffle_epi8(_mm256_xor_si256(v[d], v[a]), by16);
                v[c] = _mm256_add_epi32(v[c], v[d]);
                v[b] = rotate::<12, 20>(_mm256_xor_si256(v[b], v[c]));
                v[a] = _mm256_add_epi32(_mm256_add_epi32(v[a], m[order[2 * i + 1]]), v[b]);
                v[d] = _mm256_shuffle_epi8(_mm256_xor_si256(v[d], v[a]), by8);
                v[c] = _mm256_add_epi32(v[c], v[d]);
                v[b] = rotate::<7, 25>(_mm256_xor_si256(v[b], v[c]));
            }
        }
        let mut words = [_mm256_setzero_si256(); 8];
        for i in 0..8 {
            words[i] = _mm256_xor_si256(v[i], v[i + 8]);
        }
        transpose256(&mut words);
        for (hash, row) in out[from..].iter_mut().zip(words) {
            // SAFETY: a hash is 32 bytes, all of them writable through this exclusive reference.
            unsafe { _mm256_storeu_si256(hash.as_mut_ptr().cast(), row) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKENDS: [HashBackend; 4] =
        [HashBackend::Auto, HashBackend::Avx512, HashBackend::Avx2, HashBackend::Portable];

    fn lines(count: usize, seed: u8) -> Vec<Line> {
        (0..count)
            .map(|i| {
                let hash = |n: u8| *blake3::hash(&[seed, n, i as u8, (i >> 8) as u8]).as_bytes();
                Line { halves: [hash(0), hash(1)] }
            })
            .collect()
    }

    #[test]
    fn resolve_names_a_real_backend() {
        for backend in BACKENDS {
            assert_ne!(backend.resolve(), HashBackend::Auto);
        }
        assert_eq!(HashBackend::Portable.resolve(), HashBackend::Portable);
    }

    #[test]
    fn pairs_and_leaves_agree_with_blake3_at_every_count() {
        for backend in BACKENDS {
            let lanes = Lanes::new(backend);
            for count in [0, 1, 7, 8, 15, 16, 17, 33, 100] {
                let input = lines(count, 3);
                let mut out = vec![[0; 32]; count];
                lanes.pairs(&input, &mut out);
                for (line, out) in input.iter().zip(&out) {
                    assert_eq!(out, blake3::hash(line.bytes()).as_bytes(), "{backend:?}");
                }
                lanes.leaves(&input, &mut out);
                for (line, out) in input.iter().zip(&out) {
                    let whole = [&TAG[..], line.bytes()].concat();
                    assert_eq!(out, blake3::hash(&whole).as_bytes(), "{backend:?}");
                }
            }
        }
    }

    #[test]
    fn short_messages_agree_with_blake3_at_every_length() {
        for backend in BACKENDS {
            let lanes = Lanes::new(backend);
            for first in 0..=64u8 {
                let full = lines(LANES, first);
                let lens: [u8; LANES] = std::array::from_fn(|i| (first + 5 * i as u8) % 65);
                let padded: [Line; LANES] = std::array::from_fn(|i| {
                    let mut line = Line::ZERO;
                    let len = usize::from(lens[i]);
                    line.bytes_mut()[..len].copy_from_slice(&full[i].bytes()[..len]);
                    line
                });
                let mut out = [[0; 32]; LANES];
                lanes.short(&padded, &lens, &mut out);
                for i in 0..LANES {
                    let message = &full[i].bytes()[..usize::from(lens[i])];
                    assert_eq!(out[i], *blake3::hash(message).as_bytes(), "{backend:?} len={}", lens[i]);
                }
            }
        }
    }

    #[test]
    fn gathered_agrees_with_pairs() {
        let input = lines(LANES, 9);
        for backend in BACKENDS {
            let lanes = Lanes::new(backend);
            let refs: [&Line; LANES] = std::array::from_fn(|i| &input[LANES - 1 - i]);
            let (mut gathered, mut rows) = ([[0; 32]; LANES], [[0; 32]; LANES]);
            lanes.gathered(&refs, &mut gathered);
            lanes.pairs(&input, &mut rows);
            rows.reverse();
            assert_eq!(gathered, rows);
        }
    }
}
