//! The one hash of keys: what a filter knows of a key.
//!
//! XXH3 with 64 bits and no seed, so that the same key has the same hash on every machine and in every file, and hashes
//! taken while a segment is written can be merged later without its keys.

use std::fmt;

/// The 64-bit hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterHash(u64);

impl FilterHash {
    /// The hash of `key`. About 10 ns for 52 bytes.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(key))
    }

    /// A hash that was taken earlier and kept as a number.
    #[inline]
    pub fn from_u64(hash: u64) -> Self {
        Self(hash)
    }

    /// The hash as a number, to keep it.
    #[inline]
    pub fn to_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for FilterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterHash({:#018x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_xxh3_and_stays_so() {
        for (key, hash) in [(&b""[..], 0x2D06_8005_38D3_94C2), (b"icecore", 0x2128_6889_6D24_E2A1)] {
            assert_eq!(FilterHash::of(key).to_u64(), hash, "{:#x}", FilterHash::of(key).to_u64());
        }
    }
}
