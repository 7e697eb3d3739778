//! 4 lanes with NEON.
//!
//! A [`Neon`] exists only where the CPU was asked, as in `x86`, although hardly an aarch64 lacks it. A vector takes
//! the words of a block as they are, so big-endian systems hash portably.
#![expect(
    unsafe_code,
    reason = "vector loads, and a call into a function compiled for a detected CPU feature"
)]

use std::arch::aarch64::{
    uint32x4_t, vaddq_u32, vdupq_n_u32, veorq_u32, vld1q_u8, vqtbl1q_u8, vreinterpretq_u8_u32,
    vreinterpretq_u16_u32, vreinterpretq_u32_u8, vreinterpretq_u32_u16, vreinterpretq_u32_u64,
    vreinterpretq_u64_u32, vrev32q_u16, vshlq_n_u32, vsriq_n_u32, vst1q_u8, vtrn1q_u32, vtrn1q_u64,
    vtrn2q_u32, vtrn2q_u64,
};
use std::arch::is_aarch64_feature_detected;

use super::{Hash, IV, Job, LANES, Line, MIXES, SCHEDULE};

/// A CPU with NEON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    #[inline]
    pub(super) fn run(_: Self, lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
        // SAFETY: only `detect` makes a `Neon`, and only where the CPU has it.
        unsafe { neon(lines, job, out) }
    }
}

/// 16 compressions, 4 at a time.
#[target_feature(enable = "neon")]
fn neon(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES]) {
    for from in [0, 4, 8, 12] {
        four(lines, job, out, from);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint32x4_t {
    // SAFETY: 16 readable bytes; a load of bytes asks for no alignment.
    vreinterpretq_u32_u8(unsafe { vld1q_u8(bytes.as_ptr()) })
}

#[inline]
#[target_feature(enable = "neon")]
fn store(words: uint32x4_t, bytes: &mut [u8; 16]) {
    let words = vreinterpretq_u8_u32(words);
    // SAFETY: 16 bytes, all of them writable through this exclusive reference.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), words) };
}

/// The 4 by 4 transposition; its own inverse.
#[inline]
#[target_feature(enable = "neon")]
fn transpose([a, b, c, d]: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    let pairs = [vtrn1q_u32(a, b), vtrn2q_u32(a, b), vtrn1q_u32(c, d), vtrn2q_u32(c, d)];
    let [ab_even, ab_odd, cd_even, cd_odd] = pairs.map(|pair| vreinterpretq_u64_u32(pair));
    [
        vreinterpretq_u32_u64(vtrn1q_u64(ab_even, cd_even)),
        vreinterpretq_u32_u64(vtrn1q_u64(ab_odd, cd_odd)),
        vreinterpretq_u32_u64(vtrn2q_u64(ab_even, cd_even)),
        vreinterpretq_u32_u64(vtrn2q_u64(ab_odd, cd_odd)),
    ]
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate16(v: uint32x4_t) -> uint32x4_t {
    vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(v)))
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate8(v: uint32x4_t) -> uint32x4_t {
    let order = load(&[1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12]);
    vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(v), vreinterpretq_u8_u32(order)))
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate<const RIGHT: i32, const LEFT: i32>(v: uint32x4_t) -> uint32x4_t {
    vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(v), v)
}

/// One of the seven rounds, each compiled for itself, as in `x86`.
#[inline]
#[target_feature(enable = "neon")]
fn round<const ROUND: usize>(v: &mut [uint32x4_t; 16], m: &[uint32x4_t; 16]) {
    let order = &SCHEDULE[ROUND];
    for (i, &[a, b, c, d]) in MIXES.iter().enumerate() {
        v[a] = vaddq_u32(vaddq_u32(v[a], m[order[2 * i]]), v[b]);
        v[d] = rotate16(veorq_u32(v[d], v[a]));
        v[c] = vaddq_u32(v[c], v[d]);
        v[b] = rotate::<12, 20>(veorq_u32(v[b], v[c]));
        v[a] = vaddq_u32(vaddq_u32(v[a], m[order[2 * i + 1]]), v[b]);
        v[d] = rotate8(veorq_u32(v[d], v[a]));
        v[c] = vaddq_u32(v[c], v[d]);
        v[b] = rotate::<7, 25>(veorq_u32(v[b], v[c]));
    }
}

#[target_feature(enable = "neon")]
fn four(lines: &[&Line; LANES], job: Job<'_>, out: &mut [Hash; LANES], from: usize) {
    let mut m = [vdupq_n_u32(0); 16];
    for part in 0..4 {
        let rows = std::array::from_fn(|lane| load(&lines[from + lane].bytes().as_chunks().0[part]));
        m[4 * part..4 * part + 4].copy_from_slice(&transpose(rows));
    }
    let start = job.start();
    let mut v = [vdupq_n_u32(0); 16];
    for i in 0..8 {
        v[i] = vdupq_n_u32(start[i]);
    }
    for i in 0..4 {
        v[8 + i] = vdupq_n_u32(IV[i]);
    }
    v[14] = match job {
        Job::Pair | Job::Leaf => vdupq_n_u32(64),
        Job::Short(lens) => {
            let mut wide = [0u8; 16];
            for i in 0..4 {
                wide[4 * i] = lens[from + i];
            }
            load(&wide)
        }
    };
    v[15] = vdupq_n_u32(job.flags());
    round::<0>(&mut v, &m);
    round::<1>(&mut v, &m);
    round::<2>(&mut v, &m);
    round::<3>(&mut v, &m);
    round::<4>(&mut v, &m);
    round::<5>(&mut v, &m);
    round::<6>(&mut v, &m);
    for half in 0..2 {
        let words = std::array::from_fn(|i| veorq_u32(v[4 * half + i], v[4 * half + i + 8]));
        for (hash, row) in out[from..].iter_mut().zip(transpose(words)) {
            store(row, &mut hash.as_chunks_mut().0[half]);
        }
    }
}
