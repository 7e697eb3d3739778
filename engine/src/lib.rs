//! Icecore: an embeddable archive for chain state. It keeps every version of every key in immutable step-range files
//! and answers *what was key K at block N, and can you prove it?* at the price of one disk read.
//!
//! ```
//! use icecore::{Archive, Options};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("state.ice");
//!
//! let archive = Archive::create(&path, Options::new().domain("accounts").blocks_per_step(1024))?;
//! let mut block = archive.begin(1)?;
//! block.put("accounts", b"alice", b"100")?;
//! let root = block.commit()?; // durable when this returns
//!
//! assert_eq!(archive.at(1)?.get("accounts", b"alice")?.as_deref(), Some(&b"100"[..]));
//! assert_eq!(archive.at(1)?.get("accounts", b"bob")?, None); // a miss is not an error
//! for change in archive.history("accounts", b"alice")? { /* newest first: block, value or deletion */ }
//! let proof = archive.at(1)?.prove("accounts", b"alice")?;
//! assert!(proof.verify(&root, "accounts", b"alice", Some(b"100")).is_ok());
//! # Ok::<(), icecore::Error>(())
//! ```
//!
//! # The life of a block
//!
//! ```text
//! BlockWriter (block) -> HotTree gives the root -> Log, synced -> StepTable, readable
//!                                                    | the step is complete and has left the reorg window
//!                        emission: .kv + .bt + .kvei, published by one manifest; log trimmed
//!                                                    | background
//!                        merge, reindex, prune, unwind: new files, one manifest, old files go with their last reader
//! ```
//!
//! # The way of a read
//!
//! [`View::get`] asks the tables, then the segments from the newest: *filter says maybe, index says where, segment says
//! what*. One module holds the ladder, `read`; `multi_get`, `scan` and `history` are its variations.
//!
//! Only this crate touches files and clocks, and all files through [`storage`]. The floors below start threads where they are told how
//! many: the Merkle tree for a batch, the filter builder for its shards.

#![deny(missing_debug_implementations)]
#![deny(unsafe_code)]

/// Whether a test leaves out a check; see `testing/control.rs`.
#[cfg(any(test, feature = "testing"))]
macro_rules! left_out {
    ($check:ident) => {
        crate::testing::control::Check::$check.is_left_out()
    };
}

/// Nothing is left out.
#[cfg(not(any(test, feature = "testing")))]
macro_rules! left_out {
    ($check:ident) => {
        false
    };
}

/// The examples of README are tests like those of this documentation. The packaged crate has no README at this place.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The files of an archive, byte by byte.
pub mod format;
pub mod inspect;
pub mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

mod archive;
mod block;
mod domain;
mod error;
mod handle;
mod maintain;
mod manifest;
mod memtable;
mod merkle;
mod options;
mod progress;
mod read;
mod reader;
mod segment;
mod stats;
mod steps;
mod view;
mod wal;
mod write;

pub use archive::Archive;
pub use block::BlockWriter;
pub use domain::{DOMAINS_MAX, Domain};
pub use error::{Available, Error, ErrorKind, Operation};
pub use handle::{AsDomain, DomainHandle};
pub use icecore_hot::{BatchProof, Parallelism, Proof, ProofError, Root};
pub use icecore_index::Density;
pub use icecore_segments::error::{Corruption, Part, Reason};
pub use icecore_segments::step::{BlockNumber, Step, StepRange};
pub use icecore_segments::{Encoding, EncodingRule, Error as FileError, KEY_LEN_MAX, VALUE_LEN_MAX};
pub use maintain::checkpoint::CheckpointReport;
pub use maintain::merge::MergeOptions;
pub use maintain::plan::{MergePlan, PrunePlan, RewritePlan, UnwindPlan};
pub use maintain::reindex::{ReindexPlan, ReindexRule};
pub use maintain::verify::{LogTailReport, VerifyMode, VerifyReport, verify, verify_on};
pub use merkle::leaves::{ProofCost, ProofSource};
pub use options::{DensityRule, Durability, LogDamage, Maintenance, OpenOptions, Options};
pub use progress::Observer;
pub use read::entries::{Entries, Entry};
pub use read::history::{Change, History};
pub use read::scan::Scan;
pub use reader::Reader;
pub use segment::info::SegmentInfo;
pub use stats::{MaintenanceFailure, MaintenanceTask, ReadStats, Stats};
pub use view::{Lookup, Source, View};
pub use write::compare::{Comparison, Difference, Written};
pub use write::log_drop::LogDrop;
