//! Keccak-256 of many messages, for whoever hashes keys and code: the trie hashes its nodes itself.

use crate::hash::Hash;
use crate::hash::simd::HashBackend;
use crate::hash::simd::keccak::KeccakLanes;

/// The Keccak-256 of each message.
///
/// # Cost
/// Several messages a permutation, as many as `backend` has lanes; the hashes are the same with all of them.
pub fn keccak256_batch<M: AsRef<[u8]>>(messages: &[M], backend: HashBackend) -> Vec<Hash> {
    let mut hashes = vec![[0; 32]; messages.len()];
    KeccakLanes::new(backend).hash(&mut Vec::new(), |i| messages[i].as_ref(), &mut hashes);
    hashes
}
