//! The in-memory Merkle layer of Icecore: the whole latest state under one root, a block at a time.
//!
//! Two trees: the one of this page, Icecore's own, and in [`ethereum`] the state trie of Ethereum.
//!
//! ```
//! use icecore_hot::{Batch, HotTree, KeyHash, Options, PathProof, Root};
//!
//! let mut tree = HotTree::new(Options::default());
//! assert_eq!(tree.root(), Root::EMPTY);
//!
//! let mut block = Batch::new();
//! block.put("accounts", b"alice", b"100");
//! let (root, undo) = tree.apply(&block);
//!
//! // A hit: the path to the key; with the key and its value it is a proof that needs no tree.
//! let path = tree.prove(&KeyHash::of("accounts", b"alice"));
//! assert!(matches!(path, PathProof::Present(_)));
//! let alice = |_: &KeyHash| Some(("accounts".into(), b"alice".to_vec(), b"100".to_vec()).into());
//! let proof = path.complete("accounts", b"alice", alice)?;
//! proof.verify(&root, "accounts", b"alice", Some(b"100"))?;
//!
//! // A miss: the neighbours on both sides, as far as there are any.
//! let path = tree.prove(&KeyHash::of("accounts", b"bob"));
//! let proof = path.complete("accounts", b"bob", alice)?;
//! proof.verify(&root, "accounts", b"bob", None)?;
//! assert!(proof.verify(&root, "accounts", b"alice", None).is_err());
//!
//! // Undo gives back the root before the block.
//! assert_eq!(tree.undo(undo), Root::EMPTY);
//! # Ok::<(), icecore_hot::ProofError>(())
//! ```
//!
//! # How it fits
//! The engine feeds one [`Batch`] per block and gets the [`Root`] and an [`Undo`]. The tree knows hashes only:
//! whoever asks for a proof brings the keys and values. For snapshots it tells which rows of nodes [`DirtyKeys`], and a
//! [`PartialTree`] of what was kept proves as the tree did. There are no files, no clock and no I/O in here.
//!
//! # How it works
//! A batch is hashed 16 changes at a time ([`HashBackend`]), sorted by key hash, and split by its first bits
//! between [`SubtreeRoots`] subtrees, each with memory of its own, so that workers share nothing and lock nothing.
//! In a subtree the leaves are in small sorted buckets, and above them a dense heap of sibling pairs, one cache line
//! per pair, breadth first or as [`RadixShape`] says. Where a change goes follows from its key hash by arithmetic:
//! no pointer is chased, and memory is asked for before it is needed ([`Prefetch`]). Nodes are then hashed a level
//! at a time, 16 at once, across all buckets and subtrees of a worker.
//!
//! # Invariants
//! - The root depends on the keys and values alone: not on order, batches, threads, backend or options.
//! - The cost of a batch is proportional to its changes and not to the tree, growth aside; growth is spread
//!   over the subtrees, which add their levels at different sizes.
//! - Unsafe code is in `memory/arena.rs` (memory, prefetch) and the folder `hash/simd` (lanes) and nowhere else.
#![deny(unsafe_code)]

pub mod ethereum;
mod hash;
#[cfg(any(test, feature = "measure"))]
pub mod measure;
mod memory;
mod options;
mod proof;
mod tree;
mod update;

pub use hash::simd::HashBackend;
pub use hash::{DOMAIN_LEN_MAX, KeyHash, ParseRootError, Root, tree_key, tree_value, value_hash};
pub use options::{HugePages, Options, Parallelism, Prefetch, RadixShape, SubtreeRoots};
pub use proof::ics23::proof_spec;
pub use proof::partial::PartialTree;
pub use proof::path::{Neighbour, Path, PathProof};
pub use proof::{BatchProof, Entry, Proof, ProofError};
pub use tree::batch::Batch;
pub use tree::dirty_keys::{DirtyKeys, Node};
pub use tree::loader::{LeafHasher, Loader};
pub use tree::undo::Undo;
pub use tree::{HotTree, Memory};
