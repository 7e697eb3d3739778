//! 16 lanes with AVX-512, 8 with AVX2.
//!
//! An [`Avx512`] and an [`Avx2`] exist only where the CPU was asked and has the instructions, so that whoever
//! holds one may use them.
#![expect(unsafe_code, reason = "vector loads, and calls into functions compiled for a detected CPU feature")]

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256,
    _mm256_set1_epi32, _mm256_setr_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256, _mm512_add_epi32, _mm512_loadu_si512,
    _mm512_permutex2var_epi64, _mm512_ror_epi32, _mm512_set1_epi32, _mm512_setr_epi64, _mm512_setzero_si512,
    _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::{Hash, IV, Job, LANES, Line, MIXES, SCHEDULE};

/// A CPU with AVX-512.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    #[inline]
    pub(super) fn run(_: Self, lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        // SAFETY: only `detect` makes an `Avx512`, and only where the CPU has avx512f, which is all that the
        // function is compiled for.
        unsafe { avx512(lines, job, out) }
    }
}

/// A CPU with AVX2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    #[inline]
    pub(super) fn run(_: Self, lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        // SAFETY: only `detect` makes an `Avx2`, and only where the CPU has avx2.
        unsafe { avx2(lines, job, out) }
    }
}

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
        let [a, b, c, d] = [words[4 * half], words[4 * half + 1], words[4 * half + 2], words[4 * half + 3]];
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

/// One of the seven rounds. Which one is known when this is compiled, so that every word has its register: a loop
/// over the rounds is not unrolled, looks each word up, and hashed 138 M blocks a second where this hashes 148 M.
#[inline]
#[target_feature(enable = "avx512f")]
fn round512<const ROUND: usize>(v: &mut [__m512i; 16], m: &[__m512i; 16]) {
    let order = &SCHEDULE[ROUND];
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

/// 16 compressions.
#[target_feature(enable = "avx512f")]
fn avx512(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
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
    round512::<0>(&mut v, &m);
    round512::<1>(&mut v, &m);
    round512::<2>(&mut v, &m);
    round512::<3>(&mut v, &m);
    round512::<4>(&mut v, &m);
    round512::<5>(&mut v, &m);
    round512::<6>(&mut v, &m);
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
fn avx2(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
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

/// One of the seven rounds, as `round512`.
#[inline]
#[target_feature(enable = "avx2")]
fn round256<const ROUND: usize>(v: &mut [__m256i; 16], m: &[__m256i; 16]) {
    let by16 = _mm256_setr_epi8(
        2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15,
        12, 13,
    );
    let by8 = _mm256_setr_epi8(
        1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14,
        15, 12,
    );
    let order = &SCHEDULE[ROUND];
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
    round256::<0>(&mut v, &m);
    round256::<1>(&mut v, &m);
    round256::<2>(&mut v, &m);
    round256::<3>(&mut v, &m);
    round256::<4>(&mut v, &m);
    round256::<5>(&mut v, &m);
    round256::<6>(&mut v, &m);
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
