//! A tape of random bytes from which a target takes its decisions: the same tape, the same run.

use icecore_tools::workload::SplitMix64;

/// What is left of a tape. At its end every decision is 0.
pub(crate) struct Tape<'a> {
    bytes: &'a [u8],
}

impl<'a> Tape<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *byte
    }

    fn raw(&mut self, len: usize) -> u64 {
        (0..len).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let len = if bound <= 256 { 1 } else { 4 };
        (self.raw(len) % bound as u64) as usize
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// A number as an attacker chooses it: near `old`, at an edge, or any.
    pub(crate) fn number(&mut self, old: u64) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            0x7F,
            0x80,
            0xFF,
            0x1000,
            0x7FFF,
            0xFFFF,
            1 << 30,
            u32::MAX as u64,
            1 << 40,
            u64::MAX >> 1,
            u64::MAX,
        ];
        match self.below(6) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => old ^ 1 << self.below(64),
            3 => self.raw(2),
            4 => self.raw(8),
            _ => *self.pick(&EDGES),
        }
    }

    /// Changes some bytes of a range: single ones, fields of two to eight bytes, stretches copied or filled.
    pub(crate) fn mutate(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        for _ in 0..=self.below(4) {
            // Mostly near the front, where the fields are that lead far.
            let reach = if self.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
            let at = self.below(reach);
            let rest = &mut bytes[at..];
            match self.below(6) {
                0 => rest[0] ^= 1 << self.below(8),
                1 => rest[0] = self.byte(),
                op @ 2..=3 => {
                    let width = if op == 2 { 2 } else { 8 };
                    if let Some(field) = rest.get_mut(..width) {
                        let mut old = [0; 8];
                        old[..width].copy_from_slice(field);
                        let new = self.number(u64::from_le_bytes(old));
                        field.copy_from_slice(&new.to_le_bytes()[..width]);
                    }
                }
                4 => {
                    let len = 1 + self.below(rest.len().min(64));
                    let value = *self.pick(&[0, 1, 0x7F, 0x80, 0xFF]);
                    rest[..len].fill(value);
                }
                _ => {
                    let len = 1 + self.below(rest.len().min(256));
                    let from = self.below(bytes.len() - len + 1);
                    bytes.copy_within(from..from + len, at.min(bytes.len() - len));
                }
            }
        }
    }
}

/// A tape for one input.
pub(crate) fn random_tape(random: &mut SplitMix64) -> Vec<u8> {
    let len = 16 + random.below(500) as usize;
    std::iter::repeat_with(|| random.next_u64() as u8).take(len).collect()
}
