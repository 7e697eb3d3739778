//! The state and the batches that the tree is measured with: numbered keys and values, and the mix of a batch.
//!
//! Used by the examples of this crate and by `icecore-figures hot`, so that their figures are of the same work.

use crate::Batch;

/// The domain of all keys.
pub const DOMAIN: &str = "storage";

/// What the state of `SplitMix64` grows by.
pub(super) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`, step by step or at once.
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a number.
pub fn key(id: u64) -> [u8; 52] {
    let mut key = [0; 52];
    for (i, part) in key.chunks_mut(8).enumerate() {
        let bytes = mix(id * 7 + i as u64).to_le_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    }
    key
}

/// A value of a key; another for each salt.
pub fn value(id: u64, salt: u64) -> [u8; 32] {
    let mut value = [0; 32];
    value[..8].copy_from_slice(&mix(id ^ salt << 40).to_le_bytes());
    value[24..].copy_from_slice(&salt.to_le_bytes());
    value
}

/// The keys that are there, by number, and the next that is not.
#[derive(Debug)]
pub struct Keys {
    live: Vec<u32>,
    next: u32,
    state: u64,
}

impl Keys {
    /// The keys `0..count`.
    pub fn new(count: usize) -> Self {
        let next = u32::try_from(count).expect("fewer than 2^32 keys");
        Self { live: (0..next).collect(), next, state: 1 }
    }

    fn random(&mut self) -> usize {
        self.state += 1;
        (mix(self.state) % self.live.len() as u64) as usize
    }

    /// One batch: 85 % new values of random keys, 10 % new keys, 5 % deletions.
    pub fn fill(&mut self, batch: &mut Batch, changes: usize, salt: u64) {
        batch.clear();
        for i in 0..changes {
            match i % 20 {
                0 | 10 => {
                    batch.put(DOMAIN, &key(u64::from(self.next)), &value(u64::from(self.next), salt));
                    self.live.push(self.next);
                    self.next += 1;
                }
                5 => {
                    let at = self.random();
                    let id = self.live.swap_remove(at);
                    batch.delete(DOMAIN, &key(u64::from(id)));
                }
                _ => {
                    let at = self.random();
                    let id = u64::from(self.live[at]);
                    batch.put(DOMAIN, &key(id), &value(id, salt));
                }
            }
        }
    }
}
