//! One file per verb: its arguments and what it does.

mod checkpoint;
mod completions;
mod create;
mod demo;
mod diff;
mod export;
mod get;
mod history;
mod info;
mod ingest;
mod ls;
mod man;
mod merge;
mod plan;
mod prove;
mod prune;
#[cfg(feature = "s3")]
mod pull;
#[cfg(feature = "s3")]
mod push;
mod query;
mod recover;
mod reindex;
#[cfg(feature = "s3")]
mod remote;
mod root;
mod rows;
mod scan;
mod stats;
mod unwind;
mod upkeep;
mod verify;
mod verify_proof;

use std::path::Path;

use clap::Subcommand;
use icecore::{Archive, Maintenance, OpenOptions};

use crate::exit::{Failure, Outcome};
use crate::notes::note;

/// The verbs, in the order of `--help`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make an empty archive
    Create(create::Args),
    /// Add blocks from files of changes
    Ingest(ingest::Args),
    /// Print the value of a key at a block
    Get(get::Args),
    /// Print keys and values in order at a block
    Scan(scan::Args),
    /// Print all versions of a key, newest first
    History(history::Args),
    /// Compare two archives, or one at two heights
    Diff(diff::Args),
    /// Write changes or a state as CSV, JSON lines or Parquet
    Export(export::Args),
    /// Answer many questions, one JSON request and answer a line
    Query(query::Args),
    /// Print the root of the state at a block
    Root(root::Args),
    /// Write a proof of a key's value, or of its absence, at a block
    Prove(prove::Args),
    /// Check a proof; needs no archive
    VerifyProof(verify_proof::Args),
    /// List the segments
    Ls(ls::Args),
    /// Print the header of one file of an archive
    Info(info::Args),
    /// Sum up what the archive holds
    Stats(stats::Args),
    /// Check every file
    Verify(verify::Args),
    /// Make a consistent copy, also beside a running writer
    Checkpoint(checkpoint::Args),
    /// Publish the segments of an archive in object storage
    #[cfg(feature = "s3")]
    Push(push::Args),
    /// Copy an archive from object storage to disk
    #[cfg(feature = "s3")]
    Pull(pull::Args),
    /// Look at a bucket: ls, verify, gc
    #[cfg(feature = "s3")]
    Remote(remote::Args),
    /// Merge adjacent segments
    Merge(merge::Args),
    /// Rebuild pivot indexes and filters with another density
    Reindex(reindex::Args),
    /// Build the rows from which blocks of Ethereum are proven
    Rows(rows::Args),
    /// Forget the history below a block
    Prune(prune::Args),
    /// Forget the blocks above a height
    Unwind(unwind::Args),
    /// Give up a damaged log from the damage on
    Recover(recover::Args),
    /// Run a demonstration on generated blocks
    Demo(demo::Args),
    /// Print completions for a shell
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Create(args) => create::run(&args),
            Self::Ingest(args) => ingest::run(args),
            Self::Get(args) => get::run(&args),
            Self::Scan(args) => scan::run(&args),
            Self::History(args) => history::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Export(args) => export::run(&args),
            Self::Query(args) => query::run(args),
            Self::Root(args) => root::run(&args),
            Self::Prove(args) => prove::run(&args),
            Self::VerifyProof(args) => verify_proof::run(args),
            Self::Ls(args) => ls::run(&args),
            Self::Info(args) => info::run(&args),
            Self::Stats(args) => stats::run(&args),
            Self::Verify(args) => verify::run(&args),
            Self::Checkpoint(args) => checkpoint::run(&args),
            #[cfg(feature = "s3")]
            Self::Push(args) => push::run(&args),
            #[cfg(feature = "s3")]
            Self::Pull(args) => pull::run(&args),
            #[cfg(feature = "s3")]
            Self::Remote(args) => remote::run(&args),
            Self::Merge(args) => merge::run(args),
            Self::Reindex(args) => reindex::run(&args),
            Self::Rows(args) => rows::run(&args),
            Self::Prune(args) => prune::run(&args),
            Self::Unwind(args) => unwind::run(&args),
            Self::Recover(args) => recover::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}

/// Opens an archive for a command that changes files and adds no block: no thread works beside it.
fn open_for_upkeep(dir: &Path) -> Result<Archive, Failure> {
    let archive =
        Archive::open(dir, OpenOptions::new().maintenance(Maintenance::EmitOnly).resident_budget(0))?;
    tell_repairs(&archive);
    Ok(archive)
}

/// Nothing is mended in silence.
fn tell_repairs(archive: &Archive) {
    for file in archive.repairs() {
        note(format_args!("{file} was missing or damaged and has been built again"));
    }
}
