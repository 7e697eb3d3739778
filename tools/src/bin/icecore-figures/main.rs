//! Measures every figure that the design promises and says which are met, in one run on one machine.

mod child;
mod commitment;
mod export;
mod files;
mod follow;
mod get;
mod goals;
mod hot;
mod ingest;
mod instructions;
mod many;
mod plot;
mod proofs;
#[cfg(feature = "remote")]
mod remote;
mod report;
mod scale;
mod snapshots;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure the figures that bind and say which are met.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        icecore-figures files --entries 5000000\n  \
        icecore-figures files --entries 50000000 --dir /mnt/disk --json > figures.json\n  \
        icecore-figures scale --entries 1000000000 --dir /mnt/disk\n  \
        icecore-figures instructions --m 64\n  \
        icecore-figures hot\n  \
        icecore-figures many --files 10000\n  \
        icecore-figures plot benches/results"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The figures of files: faults, times against the disk's baseline, sizes, build, reindex and merge.
    Files(files::FilesArgs),
    /// What grows with the number of entries: one segment of the dataset as a stream, of any size that the disk holds.
    Scale(scale::ScaleArgs),
    /// The instructions of a warm lookup, by part; needs valgrind.
    Instructions(instructions::InstructionsArgs),
    /// The figures of the hot layer: updates, memory and proofs, beside what the machine can do of hashing and random reads.
    Hot(hot::HotArgs),
    /// The figures of Ethereum's state trie: updates, undo and memory, beside what the machine can do of Keccak.
    Commitment(commitment::CommitmentArgs),
    /// The figures of proofs at past blocks of an archive for Ethereum: bytes and time of rows, times and memory of proofs.
    Proofs(proofs::ProofsArgs),
    /// The figures of a tree of Ethereum that is larger than its memory: memory, opening, updates beside random reads of the disk.
    Tree(tree::TreeArgs),
    /// The figures of snapshots: what they cost a writer, what they save a proof, and how fast a large archive opens.
    Snapshots(snapshots::SnapshotsArgs),
    /// The figures of an archive of many files: opening, listing, one lookup, verify; syncs of an emission; how merging keeps up.
    Many(many::ManyArgs),
    /// The figures of a reader that follows a writer of another process: refreshing, waiting for a block.
    Follow(follow::FollowArgs),
    /// The figures of one lookup by the command `icecore` while the log holds many changes.
    Get(get::GetArgs),
    /// The figures of an ingest through the crate: processor time and memory of a change.
    Ingest(ingest::IngestArgs),
    /// The figures of an archive in a bucket: requests, bytes and waits, and times beside requests without any of our code.
    #[cfg(feature = "remote")]
    Remote(remote::RemoteArgs),
    /// The figures of an export: rates of changes and of the files of the command `icecore`, and its memory.
    Export(export::ExportArgs),
    /// Plots of the reports of runs, as SVG.
    Plot(plot::PlotArgs),
    /// Work whose memory is measured, in a process of its own.
    #[command(hide = true)]
    Child(child::ChildArgs),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Files(args) => files::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Hot(args) => hot::run(&args),
        Command::Commitment(args) => commitment::run(&args),
        Command::Proofs(args) => proofs::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Snapshots(args) => snapshots::run(&args),
        Command::Many(args) => many::run(&args),
        Command::Follow(args) => follow::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        #[cfg(feature = "remote")]
        Command::Remote(args) => remote::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Plot(args) => plot::run(&args),
        Command::Child(args) => child::run(&args),
    };
    icecore_tools::exit::code("icecore-figures", result)
}
