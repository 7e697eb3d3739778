//! Keccak-f of 8 states with AVX-512, of 4 with AVX2.
#![expect(unsafe_code, reason = "vector loads, and calls into functions compiled for a detected CPU feature")]

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi64x,
    _mm256_setr_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_loadu_si512, _mm512_rol_epi64, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{Avx2, Avx512, States};
use crate::hash::keccak::{ROUNDS, keccak_round};

/// Permutes 8 states.
#[inline]
pub(super) fn permute8(_: Avx512, states: &mut States<8>) {
    // SAFETY: an `Avx512` exists only where the CPU has avx512f, which is all that the function is compiled for.
    unsafe { avx512(states) }
}

/// Permutes 4 states.
#[inline]
pub(super) fn permute4(_: Avx2, states: &mut States<4>) {
    // SAFETY: an `Avx2` exists only where the CPU has avx2, which is all that the function is compiled for.
    unsafe { avx2(states) }
}

/// The operations of `keccak_round` on 8 words.
mod wide {
    use super::{__m512i, _mm512_rol_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512};

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn xor5(a: __m512i, b: __m512i, c: __m512i, d: __m512i, e: __m512i) -> __m512i {
        let abc = _mm512_ternarylogic_epi64::<0x96>(a, b, c);
        _mm512_ternarylogic_epi64::<0x96>(abc, d, e)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn xor(a: __m512i, b: __m512i) -> __m512i {
        _mm512_xor_si512(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn rol<const LEFT: i32, const RIGHT: i32>(a: __m512i) -> __m512i {
        _mm512_rol_epi64::<LEFT>(a)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn chi(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0xD2>(a, b, c)
    }
}

#[target_feature(enable = "avx512f")]
fn avx512(states: &mut States<8>) {
    use wide::{chi, rol, xor, xor5};
    let mut a = [_mm512_setzero_si512(); 25];
    for (word, lanes) in a.iter_mut().zip(&states.0) {
        // SAFETY: 8 words are 64 readable bytes; the load asks for no alignment.
        *word = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
    }
    for constant in ROUNDS {
        a = keccak_round!(a, xor5, xor, rol, chi);
        a[0] = xor(a[0], _mm512_set1_epi64(constant.cast_signed()));
    }
    for (word, lanes) in a.iter().zip(&mut states.0) {
        // SAFETY: 8 words are 64 bytes, all of them writable through this exclusive reference.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), *word) };
    }
}

/// The operations of `keccak_round` on 4 words.
mod narrow {
    use super::{
        __m256i, _mm256_andnot_si256, _mm256_or_si256, _mm256_setr_epi8, _mm256_shuffle_epi8,
        _mm256_slli_epi64, _mm256_srli_epi64, _mm256_xor_si256,
    };

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn xor5(a: __m256i, b: __m256i, c: __m256i, d: __m256i, e: __m256i) -> __m256i {
        xor(xor(xor(a, b), xor(c, d)), e)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn xor(a: __m256i, b: __m256i) -> __m256i {
        _mm256_xor_si256(a, b)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn rol<const LEFT: i32, const RIGHT: i32>(a: __m256i) -> __m256i {
        // By whole bytes one instruction does it.
        match LEFT {
            8 => _mm256_shuffle_epi8(
                a,
                _mm256_setr_epi8(
                    7, 0, 1, 2, 3, 4, 5, 6, 15, 8, 9, 10, 11, 12, 13, 14, 7, 0, 1, 2, 3, 4, 5, 6, 15, 8, 9,
                    10, 11, 12, 13, 14,
                ),
            ),
            56 => _mm256_shuffle_epi8(
                a,
                _mm256_setr_epi8(
                    1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 8, 1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11,
                    12, 13, 14, 15, 8,
                ),
            ),
            _ => _mm256_or_si256(_mm256_slli_epi64::<LEFT>(a), _mm256_srli_epi64::<RIGHT>(a)),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        xor(a, _mm256_andnot_si256(b, c))
    }
}

#[target_feature(enable = "avx2")]
fn avx2(states: &mut States<4>) {
    use narrow::{chi, rol, xor, xor5};
    let mut a = [_mm256_setzero_si256(); 25];
    for (word, lanes) in a.iter_mut().zip(&states.0) {
        // SAFETY: 4 words are 32 readable bytes; the load asks for no alignment.
        *word = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
    }
    for constant in ROUNDS {
        a = keccak_round!(a, xor5, xor, rol, chi);
        a[0] = xor(a[0], _mm256_set1_epi64x(constant.cast_signed()));
    }
    for (word, lanes) in a.iter().zip(&mut states.0) {
        // SAFETY: 4 words are 32 bytes, all of them writable through this exclusive reference.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), *word) };
    }
}
