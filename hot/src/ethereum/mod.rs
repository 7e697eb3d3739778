//! The commitment of Ethereum: the secure Merkle-Patricia trie of accounts and of the storage of each, in memory.
//!
//! ```
//! use icecore_hot::HashBackend;
//! use icecore_hot::ethereum::{
//!     EMPTY_CODE_HASH, EMPTY_ROOT, StateBatch, StateTrie, keccak256, verify_account, verify_slot,
//! };
//!
//! let mut trie = StateTrie::new(HashBackend::Auto);
//! assert_eq!(trie.root().0, EMPTY_ROOT);
//!
//! let (account, slot) = (keccak256(&[0x11; 20]), keccak256(&[0; 32]));
//! let mut block = StateBatch::new();
//! block.put_account(&account, 1, [0; 32], EMPTY_CODE_HASH);
//! block.put_slot(&account, &slot, &[7])?;
//! let applied = trie.apply(&block)?;
//!
//! // A hit: the account, and a slot of it.
//! let found = verify_account(&applied.root, &account, &trie.prove_account(&account))?.unwrap();
//! assert_eq!(found, trie.account(&account).unwrap());
//! let value = verify_slot(&found.storage_root, &slot, &trie.prove_slot(&account, &slot))?;
//! assert_eq!(value.map(|value| value[31]), Some(7));
//!
//! // A miss is proven as well.
//! let other = keccak256(&[0x22; 20]);
//! assert_eq!(verify_account(&applied.root, &other, &trie.prove_account(&other))?, None);
//!
//! // Undo gives back the root before the block.
//! assert_eq!(trie.undo(applied.undo).0, EMPTY_ROOT);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it fits
//! Whoever keeps an archive of Ethereum feeds one [`StateBatch`] per block and compares the root with the `stateRoot` of
//! the header. Everything is named by its path, the Keccak-256 of the address or of the slot; [`keccak256_batch`] makes
//! many. EIP-161 (an account with nothing is removed) is a rule of the chain and not of the trie: who makes the batch
//! deletes it.
//!
//! # How it works
//! The nodes of all tries are rows of few sizes, without a byte per child that is not there; see `arena`. A sorted run of
//! changes goes down a trie once (`update`) and notes the nodes whose references are stale; these are hashed the deepest
//! first, a level of all storages of the block at once, by lanes (`dirty`): first the storages, then the accounts.
//!
//! Where the nodes would take more memory than they may, groups of leaves give way to their references (`collapse`); whoever keeps the
//! leaves expands the groups that a block meets before it is applied (`expand`). Methods that read leaves, prove or change the trie panic
//! where they meet a group.
//!
//! For proofs at past blocks [`StateTrie::changed_nodes`] tells what stands at chosen depths after a block, and a
//! [`PartialTrie`] of what was kept, and of leaves, proves as the trie did.

mod account;
mod arena;
mod batch;
mod collapse;
mod descent;
mod dirty;
mod edit;
mod expand;
mod group;
mod keccak;
mod loader;
mod nibbles;
mod node;
mod node_set;
mod outline;
mod outline_loader;
mod partial;
mod proof;
mod ptr;
pub mod range;
mod rlp;
mod rows;
mod slab;
mod sweep;
mod trie;
mod undo;
mod update;
mod verify;

pub use crate::hash::keccak::keccak256;
pub use account::{Account, AccountDecodeError, EMPTY_CODE_HASH, EMPTY_ROOT, SlotValueError, slot_rlp};
pub use batch::{StateBatch, TrieError};
pub use expand::{ExpandError, Expansion, GroupLeaves, Touched};
pub use keccak::keccak256_batch;
pub use loader::{LoadError, StateLoader};
pub use nibbles::{KeyPath, Nibbles};
pub use node::{NodeRef, Reference};
pub use node_set::NodeSet;
pub use outline::{OutlinePart, StorageOutline};
pub use outline_loader::{OutlineError, OutlineLoader};
pub use partial::{PartialTrie, PartialTrieBuilder, PartialTrieError};
pub use rows::TrieId;
pub use trie::{Applied, StateMemory, StateTrie};
pub use undo::Undo;
pub use verify::{NodeProofError, verify_account, verify_slot};
