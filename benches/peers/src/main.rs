//! Icecore beside its rivals: the same data and the same work in one run on one machine.
//!
//! | subcommand | what is compared |
//! |---|---|
//! | `files` | an archive and four stores: loading blocks, size, lookups at past blocks, cold and warm ([`files`]) |
//! | `hot` | Merkle trees of a whole state: updates per second with a root after each batch ([`hot`]) |
//! | `history` | the blocks that changed one key: an archive, and lists of blocks in MDBX as reth keeps them ([`history`]) |
//! | `structures` | maps in memory: what it costs to commit to what they hold ([`structures`]) |
//!
//! Run it in this folder, so that `.cargo/config.toml` lets every peer use all instructions of the processor, which the authors of
//! RocksDB ask for:
//!
//! ```text
//! cd benches/peers
//! cargo run --release -- files --entries 5000000 --dir /mnt/disk
//! cargo run --release -- hot --keys-log2 20 --batch-log2 17 --batches 8
//! cargo run --release -- history
//! cargo run --release -- structures
//! ```
//!
//! This package is a workspace of its own, so nothing else compiles a rival. It needs a C and a C++ compiler and, for the bindings
//! of RocksDB, libclang: on Debian `apt-get install build-essential libclang-dev`. RocksDB takes a quarter of an hour of two
//! cores; `--no-default-features` leaves it out, and with it the need for C++ and libclang.
//!
//! Each peer lives in one file and states its versions and options in the report (`settings`). Each phase of each peer runs in a
//! process of its own ([`child`]), so that no memory, cache or background thread of one is counted for another.

#![forbid(unsafe_code)]

mod child;
mod files;
mod history;
mod hot;
mod report;
mod structures;
mod timing;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What everything here returns that can fail: the errors of eight libraries have only their words in common.
type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measure Icecore beside its rivals.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        icecore-peers files --entries 5000000 --dir /mnt/disk\n  \
        icecore-peers files --entries 1000000 --peer icecore --peer mdbx --json\n  \
        icecore-peers hot --keys-log2 20 --batch-log2 17 --batches 8\n  \
        icecore-peers history --changes 1000000 --group point_query"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Stores of versions: load, size, lookups at past blocks, cold and warm.
    Files(files::FilesArgs),
    /// Merkle trees: updates per second, root per batch included.
    Hot(hot::HotArgs),
    /// The blocks that changed one key: append, query, list, unwind.
    History(history::HistoryArgs),
    /// A map that commits to what it holds, beside maps that do not: get, set, commitment, three blocks.
    Structures(structures::StructuresArgs),
    /// One phase of one peer, in a process of its own.
    #[command(hide = true)]
    Child(child::ChildArgs),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Files(args) => files::run(&args),
        Command::Hot(args) => hot::run(&args),
        Command::History(args) => history::run(&args),
        Command::Structures(args) => structures::run(&args),
        Command::Child(args) => child::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("icecore-peers: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error with what caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
