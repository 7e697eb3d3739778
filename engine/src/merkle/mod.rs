//! The Merkle tree of the state: kept up to date for the writer, built from segments, and proved from.
//!
//! The trees themselves are those of `icecore-hot`; this folder feeds them with what the archive holds. It alone knows which
//! [`Commitment`](crate::Commitment) an archive has: the rest of the engine asks [`live_tree`], [`prove`] and [`state_root`].

pub(crate) mod account_proof;
pub(crate) mod build;
pub(crate) mod check_state;
pub(crate) mod collapsed;
pub(crate) mod ethereum_tree;
pub(crate) mod icecore_tree;
pub(crate) mod kept_tree;
pub(crate) mod leaf_range;
pub(crate) mod leaves;
pub(crate) mod live_build;
pub(crate) mod live_tree;
pub(crate) mod load_trie;
pub(crate) mod multi_proof;
pub(crate) mod node_error;
pub(crate) mod outline_part;
pub(crate) mod parallel;
pub(crate) mod prefetch;
pub(crate) mod prove;
pub(crate) mod prove_account;
pub(crate) mod prove_range;
pub(crate) mod range_proof;
pub(crate) mod row_depths;
pub(crate) mod rows;
pub(crate) mod span;
pub(crate) mod state_batch;
pub(crate) mod state_leaves;
pub(crate) mod state_paths;
pub(crate) mod state_root;
pub(crate) mod state_rows;
pub(crate) mod tree_file;
pub(crate) mod tree_leaves;
pub(crate) mod tree_rows;
pub(crate) mod trie_rows;
