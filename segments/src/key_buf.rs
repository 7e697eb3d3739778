//! The key that a walk over entries rebuilds.

use std::ops::Deref;

use crate::entry::KEY_LEN_MAX;

/// What is copied at once, in bytes: most of what one key has and the key before it has not, a slot, is no longer.
const COPY_LEN: usize = 32;

/// A key, with room for the longest and for what a copy of a fixed length takes too much.
pub(crate) struct KeyBuf {
    bytes: Box<[u8; KEY_LEN_MAX + COPY_LEN]>,
    len: usize,
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self { bytes: Box::new([0; KEY_LEN_MAX + COPY_LEN]), len: 0 }
    }
}

impl Deref for KeyBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl KeyBuf {
    /// Keeps the first `keep` bytes and appends those of `body` from `at` on, `len` of them. `false`, and nothing is changed: the key would be
    /// too long.
    ///
    /// Copies a fixed number of bytes where it can: that is done sooner than a copy is called.
    #[inline]
    pub(crate) fn replace_from(&mut self, keep: usize, body: &[u8], at: usize, len: usize) -> bool {
        let to = keep + len;
        if to > KEY_LEN_MAX {
            return false;
        }
        let whole = body.get(at..).and_then(<[u8]>::first_chunk::<COPY_LEN>);
        match (whole, self.bytes.get_mut(keep..).and_then(<[u8]>::first_chunk_mut)) {
            (Some(from), Some(into)) if len <= COPY_LEN => *into = *from,
            _ => self.bytes[keep..to].copy_from_slice(&body[at..at + len]),
        }
        self.len = to;
        true
    }

    /// Makes it so long; what it gets is to be written. `false`, and nothing is changed: the key would be too long.
    pub(crate) fn resize(&mut self, len: usize) -> bool {
        let fits = len <= KEY_LEN_MAX;
        self.len = if fits { len } else { self.len };
        fits
    }

    /// Overwrites the bytes from `at` on.
    #[inline]
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes it this key, which has at most [`KEY_LEN_MAX`] bytes.
    pub(crate) fn set(&mut self, key: &[u8]) {
        self.bytes[..key.len()].copy_from_slice(key);
        self.len = key.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_was_kept_and_what_came_after_it() {
        let body: Vec<u8> = (0..=255).cycle().take(3 * KEY_LEN_MAX).collect();
        for keep in [0, 1, 31, 32, 33, 500, KEY_LEN_MAX] {
            for at in [0, 7, body.len() - 40, body.len() - 33, body.len() - 32, body.len() - 1, body.len()] {
                for len in [0, 1, 5, 31, 32, 33, 64, KEY_LEN_MAX, KEY_LEN_MAX + 1] {
                    if at + len > body.len() {
                        continue;
                    }
                    let mut key = KeyBuf::default();
                    key.set(&body[100..100 + KEY_LEN_MAX]);
                    let expected = [&body[100..100 + keep], &body[at..at + len]].concat();
                    let fits = key.replace_from(keep, &body, at, len);
                    assert_eq!(fits, expected.len() <= KEY_LEN_MAX);
                    assert!(*key == if fits { expected } else { body[100..100 + KEY_LEN_MAX].to_vec() });
                }
            }
        }
    }
}
