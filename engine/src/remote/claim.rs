//! Whose word a file of the cache is taken on: the names of its files keep apart what different keys and buckets say of the same object.
//!
//! Used by the cache, whose module says why.

use crate::remote::bucket::Bucket;
use crate::remote::names::Hash;
use crate::remote::room;

/// Who vouches for what comes of a bucket: the key that it is read with, or else the bucket itself. What begins the hash of a claim.
pub(crate) struct Source(blake3::Hasher);

impl Source {
    /// That of what is read of a bucket.
    pub(crate) fn of(bucket: &Bucket) -> Self {
        let mut source = blake3::Hasher::new();
        if let Some(key) = &bucket.trust {
            put_claim(&mut source, &[b"key", key.as_bytes()]);
        } else {
            let (url, endpoint) = (bucket.store.url(), &*bucket.endpoint);
            put_claim(&mut source, &[b"bucket", url.as_bytes(), endpoint.as_bytes()]);
        }
        Self(source)
    }

    /// The file for what comes of an object that is said to have this length, maybe this hash of its content, and these pieces.
    pub(crate) fn file_name(
        &self,
        id: &Hash,
        kind: &str,
        len: u64,
        content: Option<&Hash>,
        known: &[(u64, &[u8])],
    ) -> String {
        let mut claim = self.0.clone();
        put_claim(&mut claim, &[&len.to_le_bytes(), content.map_or(&[][..], |hash| &hash[..])]);
        for (offset, bytes) in known {
            put_claim(&mut claim, &[&offset.to_le_bytes(), bytes]);
        }
        room::file_name(id, claim.finalize().as_bytes(), kind)
    }
}

/// Adds parts to what is claimed, so that other parts never give the same bytes.
fn put_claim(claim: &mut blake3::Hasher, parts: &[&[u8]]) {
    for part in parts {
        claim.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
}
