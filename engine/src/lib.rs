//! Icecore is an embeddable archive for chain state: it keeps every value that every key of a blockchain's state ever had. It
//! answers *what was the value of key K at block N, and can you prove it?* with one read of data, once index and filter are in memory.
//!
//! ```
//! use icecore::{Archive, Options};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("state.ice");
//!
//! let archive = Archive::create(&path, Options::new().domain("accounts"))?;
//! let mut block = archive.begin(1)?;
//! block.put("accounts", b"alice", b"100")?;
//! let root = block.commit()?; // durable when this returns
//!
//! let view = archive.at(1)?; // the state after block 1, for as long as the view lives
//! assert_eq!(view.get("accounts", b"alice")?.as_deref(), Some(&b"100"[..]));
//! assert_eq!(view.get("accounts", b"bob")?, None); // an absent key is not an error
//! for change in view.history("accounts", b"alice")? {
//!     let change = change?; // newest first: a block, and its value or `None` for a deletion
//!     assert_eq!(change.block, 1);
//! }
//! let proof = view.prove("accounts", b"alice")?;
//! proof.verify(&root, "accounts", b"alice", Some(b"100")).expect("it holds under the root alone");
//! # Ok::<(), icecore::Error>(())
//! ```
//!
//! # Where to begin
//!
//! | to | use |
//! |---|---|
//! | create or open an archive for writing | [`Archive`], with [`Options`] and [`OpenOptions`] |
//! | write a block | [`Archive::begin`], [`BlockWriter`] |
//! | replace blocks, when the chain reorganises | [`Archive::unwind`]; its readers: [`Reader::wait`] |
//! | read at a block | [`Archive::at`], which gives a [`View`]: [`get`](View::get), [`multi_get`](View::multi_get), [`scan`](View::scan), [`history`](View::history), [`change_blocks`](View::change_blocks), [`last_change`](View::last_change) |
//! | read a page at a time | [`Scan::after`], [`Scan::limit`] |
//! | read from other threads | a clone of [`Archive::reader`], or a [`View`]: both are `Send` and `Sync` |
//! | read beside the writer of another process | [`Reader::open`], [`Reader::refresh`], [`Reader::wait`] |
//! | prove a value or its absence | [`View::prove`], [`View::prove_batch`]; a [`Proof`] needs a [`Root`] and nothing else |
//! | check a proof with the `ics23` crate | [`Proof::to_ics23_bytes`], [`proof_spec`], [`tree_key`], [`tree_value`] |
//! | resolve a domain once | [`Archive::domain`], a [`DomainHandle`] |
//! | import blocks again | [`Archive::draft`], [`BlockWriter::compare`] |
//! | load in bulk | [`Durability::Relaxed`], [`Maintenance::EmitOnly`], then [`Archive::maintain`] |
//! | limit history, copy, check | [`Archive::prune`], [`Archive::checkpoint`], [`verify`] |
//! | see what there is | [`Reader::stats`], [`Reader::segments`], [`inspect`] |
//! | give an archive of Ethereum rows later | [`Archive::build_rows`] |
//! | keep the state of an Ethereum chain, with its roots and proofs | [`Options::commitment`], the module [`ethereum`] |
//! | push it to object storage, read it there, pull it from there | the module `remote`, with the feature `object-store` |
//! | handle an error | [`Error::kind`]: [`ErrorKind`] has a table of what to do |
//!
//! The folder `engine/examples/` of the repository has five programs: a first archive, a chain with reorganisations, many readers, a
//! light client, a bulk load. The files, byte by byte, are described in [`format`](mod@format).
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | block | the unit of commit: a height, which rises from block to block, and the changes made there |
//! | domain | a named keyspace; keys are bytes, ordered bytewise |
//! | version | a value of a key, or its deletion, and the block that wrote it |
//! | root | the 32-byte hash that commits to the whole state after a block; a function of that state alone |
//! | window | the reorg window: the newest [`Options::reorg_window`] heights, whose blocks stay in memory because the chain may replace them |
//! | step | a range of [`Options::blocks_per_step`] heights, whether each has a block or not; the unit of emission |
//! | emission | a step that is complete and has left the window leaves memory as one segment per domain |
//! | segment | the files of one domain over a range of steps: `accounts.0-64.kv`, which has the versions, and its accessors |
//! | page | 4096 bytes of a file: the unit of reading and of checksums |
//! | accessor | a file derived from a `.kv` that makes it fast to search and can be rebuilt: the pivot index `.bt` and the existence filter `.kvei` |
//! | pivot, M | an entry of the pivot index. There is one for about every M-th entry of the `.kv`, so a small M is a dense index. See [`DensityRule`] |
//! | existence filter | answers *no* or *maybe* for a key; a *no* is always right |
//! | merge | adjacent segments become one; no answer changes |
//! | reindex | new accessors for an unchanged `.kv` |
//! | manifest | the list of live files. Replacing it, by one rename, is the commit point of every change of files |
//! | unwind | take back the blocks above a height |
//! | prune | forget the versions that no block at or above a height can see; the newest block at or below that height becomes the floor, the lowest that can be read |
//! | snapshot | a block whose Merkle nodes are kept, so that a proof reads a few of them. See [`Options::snapshot_period`] |
//!
//! # The life of a block
//!
//! ```text
//! BlockWriter --commit--> Merkle tree: the root        hot, engine/src/merkle
//!                         write-ahead log: durable     engine/src/wal
//!                         memtable: readable           engine/src/memtable
//!                            |
//!                            | its step is complete and has left the window
//!                            v
//!                         emission                     engine/src/maintain, engine/src/segment
//!                           .kv, .bt and .kvei of each domain are written and synced,
//!                           one manifest publishes them, the log loses what they have
//!                            |
//!                            | in the background
//!                            v
//!                         merge, reindex               engine/src/maintain
//!                           new files, one manifest; old files are removed after their last reader
//! ```
//!
//! Until [`BlockWriter::commit`] returns, no reader of this process sees anything of the block. From then on the block survives the
//! death of the process, and a power loss as [`Durability`] says. [`Maintenance`] chooses who emits and merges.
//!
//! # How a read works
//!
//! ```text
//! View::get(domain, key)
//!    1. memory: blocks that are in no segment           engine/src/memtable
//!    2. segments, the newest first                      engine/src/read
//!         filter   says maybe   one page                index/src/filter
//!         index    says where   one page                index/src/pivot
//!         .kv      says what    one page                segments/src
//! ```
//!
//! The first version found at or below the height of the view is the answer. `multi_get`, `scan` and `history` work alike. A
//! [`View`] pins the state it was made from: commits, merges, prunes and unwindings after that change nothing it answers.
//!
//! # What it does not do
//!
//! It logs nothing and prints nothing: [`Stats::failures`] reports what fails in the background, and long work reports its progress to
//! a [`ProgressListener`]. It is synchronous. Only this crate opens files and reads clocks, and all files go through [`storage`]; the
//! crates below it, `icecore-hot`, `icecore-segments` and `icecore-index`, turn values into bytes and bytes into views.

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

pub mod ethereum;
/// The files of an archive, byte by byte.
pub mod format;
pub mod inspect;
#[cfg(feature = "measure")]
pub mod measure;
#[cfg(feature = "object-store")]
pub mod remote;
pub mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

mod archive;
mod archive_rows;
mod block;
mod commitment;
mod domain;
mod error;
mod error_kind;
mod error_text;
mod handle;
mod maintain;
mod manifest;
mod memtable;
mod merkle;
mod open_options;
mod operation;
mod options;
mod progress;
mod read;
mod reader;
mod reader_changes;
#[cfg(feature = "object-store")]
mod reader_remote;
mod reader_source;
#[cfg(feature = "object-store")]
mod remote_error;
mod segment;
mod stats;
mod steps;
mod view;
mod wal;
mod write;

pub use archive::Archive;
pub use block::BlockWriter;
pub use commitment::{Commitment, DomainOrder};
pub use domain::{DOMAINS_MAX, Domain};
pub use error::{Available, Error, ErrorKind, Operation};
pub use handle::{AsDomain, DomainHandle};
pub use icecore_hot::{
    BatchProof, Parallelism, ParseRootError, Proof, ProofError, Root, proof_spec, tree_key, tree_value,
};
pub use icecore_index::Density;
pub use icecore_segments::error::{Corruption, Part, Reason};
pub use icecore_segments::step::{BlockNumber, Step, StepRange};
pub use icecore_segments::{
    AUTO_SAVING_PERCENT, Encoding, EncodingRule, Error as FileError, KEY_LEN_MAX, VALUE_LEN_MAX,
};
pub use maintain::checkpoint::CheckpointReport;
pub use maintain::merge::MergeOptions;
pub use maintain::plan::{MergePlan, PrunePlan, RewritePlan, UnwindPlan};
pub use maintain::reindex::{ReindexPlan, ReindexRule};
pub use maintain::rows::{RowsReport, RowsRule};
pub use maintain::verify::{LogTailReport, VerifyMode, VerifyReport, verify, verify_on};
pub use merkle::leaves::{ProofCost, ProofSource};
pub use open_options::{Durability, LogDamage, Maintenance, OpenOptions, ReadOptions};
pub use options::{DensityRule, Options};
pub use progress::ProgressListener;
pub use read::change_blocks::ChangeBlocks;
pub use read::changes::{Changes, StateChange};
pub use read::entries::{Entries, Entry};
pub use read::history::{Change, History};
pub use read::resident::default_resident_budget;
pub use read::scan_range::Scan;
pub use reader::Reader;
pub use segment::info::SegmentInfo;
pub use stats::{MaintenanceFailure, MaintenanceTask, ReadStats, Stats};
pub use view::{Lookup, Source, View};
pub use write::compare::{Comparison, Difference, Written};
pub use write::log_drop::LogDrop;
