//! Archives in object storage: [`push`] what is in segments to a [`Bucket`], [`pull`] it from there, look what there is.
//!
//! A bucket holds generations of an archive: immutable objects named by their content, and manifests that name them, each created
//! once and naming the one before. It needs a store that creates an object only where there is none (`If-None-Match: *`), and
//! nothing else of it; [`push`] refuses one that does not. What goes up is what was emitted: the newest steps and the window stay
//! with the writer.
//!
//! | to | use |
//! |---|---|
//! | name a bucket | [`Bucket::open`], [`BucketOptions`] |
//! | publish an archive, again after each emission | [`push`], [`Reader::push`](crate::Reader::push) |
//! | get a copy on disk, of all or of some domains and blocks | [`pull`], [`PullOptions`] |
//! | read in place | [`Reader::open_remote`](crate::Reader::open_remote), [`RemoteOptions`] |
//! | see what there is, check it, collect what nothing names | [`list`], [`verify`], [`gc`] |
//! | sign what is pushed, and believe only that | [`PushOptions::sign`], [`BucketOptions::public_key`] |
//!
//! Every request is given up when nothing comes for two seconds and repeated a few times; errors come within 15 seconds and name
//! the object ([`RemoteError`]). Requests run on threads of their own, so that a call may come from any thread.
//!
#![doc = include_str!("FORMAT.md")]

mod blocks;
mod bucket;
mod bundle;
mod cache;
#[cfg(test)]
mod cache_tests;
mod claim;
mod connect;
mod fault;
mod garbage;
mod generations;
mod holdings;
mod jobs;
mod local;
mod location;
mod manifest;
mod names;
pub(crate) mod open;
#[cfg(test)]
mod partial_tests;
mod patience;
mod profile;
mod proof;
mod pull;
mod pull_options;
pub(crate) mod push;
mod room;
mod runtime;
mod selection;
mod signature;
mod storage;
mod store;
mod succession;
mod transfer;
mod verify;

pub use crate::remote_error::RemoteError;
pub use bucket::Bucket;
pub use cache::RemoteCost;
pub use connect::BucketOptions;
pub use garbage::{GcOptions, GcReport, RemoteArchive, gc, list};
pub use open::{RemoteOptions, default_cache};
pub use pull::{PullReport, pull};
pub use pull_options::{Accessors, PullOptions};
pub use push::{PushOptions, PushReport, push};
pub use signature::{PublicKey, SigningKey};
pub use verify::{BucketReport, verify};

/// The document, for the tests that compare it with the code.
#[cfg(test)]
pub(crate) const DOC: icecore_segments::format_doc::FormatDoc =
    icecore_segments::format_doc::FormatDoc::new(include_str!("FORMAT.md"));
