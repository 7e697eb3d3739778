//! The commitment of Ethereum: the secure Merkle-Patricia trie of accounts and of the storage of each.

mod keccak;

pub use crate::hash::keccak::keccak256;
pub use keccak::keccak256_batch;
