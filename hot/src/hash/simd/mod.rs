//! Many hashes at once: one message per lane, chosen at run time, with a portable twin.
//!
//! Everything the tree hashes is one BLAKE3 compression of one 64-byte block, so a lane needs no loop and no
//! state: 16 lanes with AVX-512, 8 with AVX2, 4 with NEON. A key or a value longer than one block goes to the
//! `blake3` crate, and so does everything where none of these instruction sets is found. All backends agree
//! with `blake3::hash`; the tests below say so for every length of a block.

pub(crate) mod keccak;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::KeyHash;
use crate::hash::Line;
use crate::hash::compress::{CHUNK_END, CHUNK_START, IV, MIXES, ROOT, SCHEDULE, compress};
use crate::hash::{Hash, TAG, leaf};

/// The most messages any backend takes at once; callers gather this many.
pub(crate) const LANES: usize = 16;

/// The chaining value after the tag block: where the one compression of a leaf starts.
const TAG_STATE: [u32; 8] = compress(IV, &TAG, 64, CHUNK_START);

/// Which instructions hash. The roots are the same with all of them.
///
/// Where a CPU lacks one, the next in this order that it has takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HashBackend {
    /// The widest that this CPU has.
    #[default]
    Auto,
    /// 16 lanes of BLAKE3, 8 of Keccak, on x86-64.
    Avx512,
    /// 8 lanes of BLAKE3, 4 of Keccak, on x86-64.
    Avx2,
    /// 4 lanes of BLAKE3, 2 of Keccak, on every little-endian aarch64.
    Neon,
    /// One message at a time, BLAKE3 by the `blake3` crate.
    Portable,
}

impl HashBackend {
    /// The backend that is really used on this CPU: never [`Auto`](Self::Auto).
    pub fn resolve(self) -> Self {
        match Lanes::new(self).0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => Self::Avx2,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Kind::Neon(_) => Self::Neon,
            Kind::Portable => Self::Portable,
        }
    }
}

/// A backend that is known to work here; copying it copies one byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(neon::Neon),
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
        #[cfg(target_arch = "x86_64")]
        if let (HashBackend::Auto | HashBackend::Avx512, Some(cpu)) = (backend, x86::Avx512::detect()) {
            return Self(Kind::Avx512(cpu));
        }
        #[cfg(target_arch = "x86_64")]
        if let (HashBackend::Auto | HashBackend::Avx512 | HashBackend::Avx2, Some(cpu)) =
            (backend, x86::Avx2::detect())
        {
            return Self(Kind::Avx2(cpu));
        }
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        if backend != HashBackend::Portable
            && let Some(cpu) = neon::Neon::detect()
        {
            return Self(Kind::Neon(cpu));
        }
        Self(Kind::Portable)
    }

    /// Hashes 16 scattered inner nodes.
    #[inline]
    pub(crate) fn gathered(self, lines: &[&Line; LANES], out: &mut [Hash; LANES]) {
        self.run(lines, Job::Pair, out);
    }

    /// Hashes inner nodes that are in a row, one output per line.
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
            Kind::Avx512(cpu) => x86::Avx512::run(cpu, lines, job, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(cpu) => x86::Avx2::run(cpu, lines, job, out),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Kind::Neon(cpu) => neon::Neon::run(cpu, lines, job, out),
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

#[cfg(test)]
mod tests {
    use super::*;

    const BACKENDS: [HashBackend; 5] =
        [HashBackend::Auto, HashBackend::Avx512, HashBackend::Avx2, HashBackend::Neon, HashBackend::Portable];

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
        if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
            assert_eq!(HashBackend::Auto.resolve(), HashBackend::Neon);
        }
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
