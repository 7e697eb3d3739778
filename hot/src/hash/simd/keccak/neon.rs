//! Keccak-f of 2 states with NEON.
#![expect(
    unsafe_code,
    reason = "vector loads, and a call into a function compiled for a detected CPU feature"
)]

use std::arch::aarch64::{
    uint64x2_t, vbicq_u64, vdupq_n_u64, veorq_u64, vld1q_u64, vshlq_n_u64, vsriq_n_u64, vst1q_u64,
};

use super::{Neon, States};
use crate::hash::keccak::{ROUNDS, keccak_round};

/// Permutes 2 states.
#[inline]
pub(super) fn permute2(_: Neon, states: &mut States<2>) {
    // SAFETY: a `Neon` exists only where the CPU has it.
    unsafe { neon(states) }
}

#[inline]
#[target_feature(enable = "neon")]
fn xor5(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t, d: uint64x2_t, e: uint64x2_t) -> uint64x2_t {
    xor(xor(xor(a, b), xor(c, d)), e)
}

#[inline]
#[target_feature(enable = "neon")]
fn xor(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
    veorq_u64(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn rol<const LEFT: i32, const RIGHT: i32>(a: uint64x2_t) -> uint64x2_t {
    vsriq_n_u64::<RIGHT>(vshlq_n_u64::<LEFT>(a), a)
}

#[inline]
#[target_feature(enable = "neon")]
fn chi(a: uint64x2_t, b: uint64x2_t, c: uint64x2_t) -> uint64x2_t {
    xor(a, vbicq_u64(c, b))
}

#[target_feature(enable = "neon")]
fn neon(states: &mut States<2>) {
    let mut a = [vdupq_n_u64(0); 25];
    for (word, lanes) in a.iter_mut().zip(&states.0) {
        // SAFETY: 2 words are 16 readable bytes, aligned as words are.
        *word = unsafe { vld1q_u64(lanes.as_ptr()) };
    }
    for constant in ROUNDS {
        a = keccak_round!(a, xor5, xor, rol, chi);
        a[0] = xor(a[0], vdupq_n_u64(constant));
    }
    for (word, lanes) in a.iter().zip(&mut states.0) {
        // SAFETY: 2 words are 16 bytes, all of them writable through this exclusive reference.
        unsafe { vst1q_u64(lanes.as_mut_ptr(), *word) };
    }
}
