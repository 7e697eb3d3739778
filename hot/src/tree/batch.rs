//! The changes of a block, as raw bytes that are ready to be hashed 16 at a time.

use crate::hash::Line;
use crate::hash::simd::{LANES, Lanes};
use crate::hash::{Hash, domain_len};

/// A message that is longer than one block: its line holds where it is instead.
const LONG: u8 = 0xff;
/// In place of a value length: the key is deleted.
const DELETED: u8 = 0xfe;
/// What one line holds.
const BLOCK: usize = 64;

/// The changes of one block. Of several changes of one key the last one counts.
///
/// Keys and values of up to a block (64 bytes with domain and marker) are zero-padded in cache lines, so they
/// are hashed from where they are; longer ones are in one shared buffer.
///
/// # Cost
/// A change is one copy of its bytes; nothing is hashed before [`HotTree::apply`]. A batch that is cleared
/// and filled again allocates nothing.
///
/// [`HotTree::apply`]: crate::HotTree::apply
#[derive(Clone, Debug, Default)]
pub struct Batch {
    keys: Vec<Line>,
    key_lens: Vec<u8>,
    values: Vec<Line>,
    value_lens: Vec<u8>,
    long: Vec<u8>,
}

impl Batch {
    /// A batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds: `key` in `domain` now has `value`.
    ///
    /// # Panics
    /// When the domain name is longer than [`DOMAIN_LEN_MAX`](crate::DOMAIN_LEN_MAX).
    pub fn put(&mut self, domain: &str, key: &[u8], value: &[u8]) {
        self.push_key(domain, key);
        let (line, len) = pack([&[1], &[], value], &mut self.long);
        self.values.push(line);
        self.value_lens.push(len);
    }

    /// Adds: `key` in `domain` has no value any more. Deleting what is not there changes nothing.
    ///
    /// # Panics
    /// When the domain name is longer than [`DOMAIN_LEN_MAX`](crate::DOMAIN_LEN_MAX).
    pub fn delete(&mut self, domain: &str, key: &[u8]) {
        self.push_key(domain, key);
        self.values.push(Line::ZERO);
        self.value_lens.push(DELETED);
    }

    /// The number of changes, repeated keys counted as often as they were given.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Forgets the changes and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_lens.clear();
        self.values.clear();
        self.value_lens.clear();
        self.long.clear();
    }

    fn push_key(&mut self, domain: &str, key: &[u8]) {
        let (line, len) = pack([&[domain_len(domain)], domain.as_bytes(), key], &mut self.long);
        self.keys.push(line);
        self.key_lens.push(len);
    }

    /// Hashes the changes `from..from + out.len()`: each becomes a line of key hash and leaf hash, the leaf
    /// hash all zeros for a deletion.
    pub(crate) fn hash(&self, lanes: Lanes, from: usize, out: &mut [Line]) {
        for (i, chunk) in out.chunks_mut(LANES).enumerate() {
            let at = from + i * LANES;
            self.hash_chunk(lanes, at, chunk);
        }
    }

    fn hash_chunk(&self, lanes: Lanes, at: usize, out: &mut [Line]) {
        let end = at + out.len();
        let mut keys = [[0; 32]; LANES];
        let mut values = [[0; 32]; LANES];
        self.messages(lanes, &self.keys[at..end], &self.key_lens[at..end], &mut keys);
        self.messages(lanes, &self.values[at..end], &self.value_lens[at..end], &mut values);
        for ((line, key), value) in out.iter_mut().zip(keys).zip(values) {
            line.halves = [key, value];
        }
        let mut leaves = [[0; 32]; LANES];
        let leaves = &mut leaves[..out.len()];
        lanes.leaves(out, leaves);
        for ((line, leaf), &len) in out.iter_mut().zip(leaves).zip(&self.value_lens[at..end]) {
            line.halves[1] = if len == DELETED { [0; 32] } else { *leaf };
        }
    }

    fn messages(&self, lanes: Lanes, lines: &[Line], lens: &[u8], out: &mut [Hash; LANES]) {
        if let (Ok(lines), Ok(lens)) = (lines.try_into(), lens.try_into()) {
            lanes.short(lines, lens, out);
        } else {
            let mut padded = [Line::ZERO; LANES];
            padded[..lines.len()].copy_from_slice(lines);
            let mut padded_lens = [0; LANES];
            padded_lens[..lens.len()].copy_from_slice(lens);
            lanes.short(&padded, &padded_lens, out);
        }
        for ((line, _), out) in lines.iter().zip(lens).zip(out).filter(|((_, len), _)| **len == LONG) {
            *out = *blake3::hash(&self.long[unpack(line)]).as_bytes();
        }
    }
}

/// Joins the parts in one zero-padded line, or, where they do not fit, in the buffer of long messages.
fn pack(parts: [&[u8]; 3], long: &mut Vec<u8>) -> (Line, u8) {
    let mut line = Line::ZERO;
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len > BLOCK {
        let start = long.len() as u64;
        for part in parts {
            long.extend_from_slice(part);
        }
        line.halves[0][..8].copy_from_slice(&start.to_le_bytes());
        line.halves[0][8..16].copy_from_slice(&(len as u64).to_le_bytes());
        return (line, LONG);
    }
    let mut rest = &mut line.bytes_mut()[..];
    for part in parts {
        let (head, tail) = rest.split_at_mut(part.len());
        head.copy_from_slice(part);
        rest = tail;
    }
    (line, len as u8)
}

fn unpack(line: &Line) -> std::ops::Range<usize> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&line.bytes()[at..at + 8]);
        u64::from_le_bytes(bytes) as usize
    };
    word(0)..word(0) + word(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::simd::HashBackend;
    use crate::hash::{KeyHash, leaf, value_hash};

    #[test]
    fn hashes_agree_with_one_at_a_time_at_every_length() {
        for backend in [HashBackend::Auto, HashBackend::Avx2, HashBackend::Portable] {
            let bytes: Vec<u8> = (0..300u32).map(|i| (i * 7) as u8).collect();
            let mut batch = Batch::new();
            for len in 0..150 {
                batch.put("accounts", &bytes[..len], &bytes[len..2 * len]);
                batch.delete("", &bytes[len..]);
            }
            for cut in [0, 1, 16, 37] {
                let mut out = vec![Line::ZERO; batch.len() - cut];
                batch.hash(Lanes::new(backend), cut, &mut out);
                for (i, line) in (cut..).zip(&out) {
                    let len = i / 2;
                    let (key, leaf) = if i % 2 == 0 {
                        let key = KeyHash::of("accounts", &bytes[..len]);
                        (key, leaf(&key, &value_hash(&bytes[len..2 * len])))
                    } else {
                        (KeyHash::of("", &bytes[len..]), [0; 32])
                    };
                    assert_eq!(line.halves, [key.0, leaf], "{backend:?} change={i}");
                }
            }
            batch.clear();
            assert!(batch.is_empty());
        }
    }
}
