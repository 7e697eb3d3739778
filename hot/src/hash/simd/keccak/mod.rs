//! Many Keccak-256 at once: one message per lane, 8 with AVX-512, 4 with AVX2, 2 with NEON, chosen as
//! [`HashBackend`] says.
//!
//! The lanes permute only. Taking messages in and hashes out is plain code for all of them, over a state whose words
//! hold a lane each: messages are taken in the order of their lengths in blocks, so that lanes end together.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::HashBackend;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};
use crate::hash::Hash;
use crate::hash::keccak::{RATE_WORDS, block_words, blocks, keccak256, with_block};

/// The states of `LANES` messages: word `i` of all of them is beside each other.
#[repr(align(64))]
struct States<const LANES: usize>([[u64; LANES]; 25]);

/// A backend that is known to work here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeccakLanes(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(Neon),
    Portable,
}

impl KeccakLanes {
    pub(crate) fn new(backend: HashBackend) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let (HashBackend::Auto | HashBackend::Avx512, Some(cpu)) = (backend, Avx512::detect()) {
            return Self(Kind::Avx512(cpu));
        }
        #[cfg(target_arch = "x86_64")]
        if let (HashBackend::Auto | HashBackend::Avx512 | HashBackend::Avx2, Some(cpu)) =
            (backend, Avx2::detect())
        {
            return Self(Kind::Avx2(cpu));
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if backend != HashBackend::Portable
            && let Some(cpu) = Neon::detect()
        {
            return Self(Kind::Neon(cpu));
        }
        let _ = backend;
        Self(Kind::Portable)
    }

    /// Hashes the messages `message(0)` to `message(out.len() - 1)`.
    pub(crate) fn hash<'m>(
        self,
        order: &mut Vec<u32>,
        message: impl Fn(usize) -> &'m [u8],
        out: &mut [Hash],
    ) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(cpu) => lanes(order, message, out, |states| x86::permute8(cpu, states)),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(cpu) => lanes(order, message, out, |states| x86::permute4(cpu, states)),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Kind::Neon(cpu) => lanes(order, message, out, |states| neon::permute2(cpu, states)),
            Kind::Portable => out.iter_mut().enumerate().for_each(|(i, out)| *out = keccak256(message(i))),
        }
    }
}

/// Hashes messages `LANES` at a time.
fn lanes<'m, const LANES: usize>(
    order: &mut Vec<u32>,
    message: impl Fn(usize) -> &'m [u8],
    out: &mut [Hash],
    permute: impl Fn(&mut States<LANES>),
) {
    order.clear();
    order.extend(0..u32::try_from(out.len()).expect("fewer than 2^32 messages are hashed at once"));
    order.sort_by_key(|&i| blocks(message(i as usize).len()));
    for chosen in order.chunks(LANES) {
        // A lane alone: the permutation of one state is faster than that of several.
        if let [only] = chosen {
            out[*only as usize] = keccak256(message(*only as usize));
            continue;
        }
        let mut states = States([[0; LANES]; 25]);
        let last = chosen.last().map_or(0, |&i| blocks(message(i as usize).len()));
        for index in 0..last {
            for (lane, &i) in chosen.iter().enumerate() {
                let message = message(i as usize);
                if index < blocks(message.len()) {
                    with_block(message, index, |block| {
                        for (words, input) in states.0[..RATE_WORDS].iter_mut().zip(block_words(block)) {
                            words[lane] ^= input;
                        }
                    });
                }
            }
            permute(&mut states);
            for (lane, &i) in chosen.iter().enumerate() {
                if index + 1 == blocks(message(i as usize).len()) {
                    let out = out[i as usize].as_chunks_mut().0;
                    out.iter_mut().zip(&states.0).for_each(|(out, words)| *out = words[lane].to_le_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_agrees_with_the_reference_at_every_length_and_count() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * 31 + i / 256) as u8).collect();
        for backend in [
            HashBackend::Auto,
            HashBackend::Avx512,
            HashBackend::Avx2,
            HashBackend::Neon,
            HashBackend::Portable,
        ] {
            let lanes = KeccakLanes::new(backend);
            for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 700] {
                let message = |i: usize| &bytes[i % 13..][..(i * 37 + count) % 700];
                let mut out = vec![[0; 32]; count];
                lanes.hash(&mut Vec::new(), message, &mut out);
                for (i, hash) in out.iter().enumerate() {
                    assert_eq!(
                        *hash,
                        *alloy_primitives::keccak256(message(i)),
                        "{backend:?}, {i} of {count}"
                    );
                }
            }
        }
    }
}
