//! The keys and batches that every tree takes: those of the figures of `icecore-hot`, each key at most once in a batch.

use std::collections::HashMap;

use icecore_tools::workload::mix;

/// A key.
pub(super) type Key = [u8; 52];

/// One change of a batch; `None` deletes the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Key,
    pub(super) value: Option<[u8; 32]>,
}

/// The key of a number.
fn key(id: u64) -> Key {
    let mut key = [0; 52];
    for (i, part) in (0u64..).zip(key.chunks_mut(8)) {
        part.copy_from_slice(&mix(id * 7 + i).to_le_bytes()[..part.len()]);
    }
    key
}

/// A value of a key; another for each salt.
fn value(id: u64, salt: u64) -> [u8; 32] {
    let mut value = [0; 32];
    value[..8].copy_from_slice(&mix(id ^ salt << 40).to_le_bytes());
    value[24..].copy_from_slice(&salt.to_le_bytes());
    value
}

/// The changes that make the keys of some numbers.
pub(super) fn insertions(ids: std::ops::Range<u64>) -> Vec<Change> {
    ids.map(|id| Change { key: key(id), value: Some(value(id, 0)) }).collect()
}

/// The keys that are there, by number, and the next that is not.
pub(super) struct Keys {
    live: Vec<u32>,
    next: u32,
    state: u64,
}

impl Keys {
    /// The keys `0..count`.
    pub(super) fn new(count: u64) -> Self {
        let next = u32::try_from(count).expect("fewer than 2^32 keys");
        Self { live: (0..next).collect(), next, state: 1 }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    fn random(&mut self) -> usize {
        self.state += 1;
        (mix(self.state) % self.live.len() as u64) as usize
    }

    /// One batch of `changes` draws: 85 % new values of random keys, 10 % new keys, 5 % deletions. Of the draws of one key the last counts.
    pub(super) fn batch(&mut self, changes: u64, salt: u64) -> Vec<Change> {
        let mut places: HashMap<u32, usize> = HashMap::with_capacity(changes as usize);
        let mut batch: Vec<Change> = Vec::with_capacity(changes as usize);
        for i in 0..changes {
            let (id, is_deleted) = self.draw(i);
            let number = u64::from(id);
            let change = Change { key: key(number), value: (!is_deleted).then(|| value(number, salt)) };
            let place = *places.entry(id).or_insert(batch.len());
            if place == batch.len() { batch.push(change) } else { batch[place] = change }
        }
        batch
    }

    fn draw(&mut self, i: u64) -> (u32, bool) {
        match i % 20 {
            0 | 10 => {
                self.live.push(self.next);
                self.next += 1;
                (self.next - 1, false)
            }
            5 => {
                let at = self.random();
                (self.live.swap_remove(at), true)
            }
            _ => {
                let at = self.random();
                (self.live[at], false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_batch_names_a_key_once_and_deletes_only_what_is_there() {
        let mut keys = Keys::new(5_000);
        let mut live: HashSet<Key> = insertions(0..5_000).iter().map(|change| change.key).collect();
        for salt in 1..5 {
            let batch = keys.batch(4_000, salt);
            let named: HashSet<Key> = batch.iter().map(|change| change.key).collect();
            assert_eq!(named.len(), batch.len());
            for change in batch {
                match change.value {
                    Some(_) => _ = live.insert(change.key),
                    // A key that the same batch made may be deleted before it was ever there.
                    None => _ = live.remove(&change.key),
                }
            }
            assert_eq!(live.len(), keys.len());
        }
    }
}
