//! Writes workloads to standard output: the reference dataset, or a stream of blocks for `icecore ingest`.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use icecore_tools::workload::blocks::BlockOptions;
use icecore_tools::workload::storage::{BlockRule, StorageEntries};
use icecore_tools::workload::{jsonl, repeat};

/// Write a workload to standard output.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  \
        icecore-gen blocks --shape text | icecore ingest text.ice - --format jsonl --create\n  \
        icecore-gen blocks | icecore ingest a.ice - --format jsonl --create --domain accounts,code,storage\n  \
        icecore-gen storage -n 5000000 --serialised | sha256sum\n  \
        icecore-gen repeat --times 50 < eth.jsonl | icecore ingest eth.ice - --format eth-changes --create"
)]
struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// The reference dataset: storage-like entries, 52-byte keys, values of 1 to 32 bytes.
    Storage {
        /// How many entries.
        #[arg(short = 'n', long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
        entries: u64,
        /// Write the form in which implementations compare themselves instead of JSON lines: for each entry
        /// the lengths of key and value as little-endian u16, then key and value, in key order.
        #[arg(long, conflicts_with_all = ["block", "domain"])]
        serialised: bool,
        /// Which block an entry belongs to.
        #[arg(long, value_enum, default_value_t = Rule::AllOne)]
        block: Rule,
        /// The domain that the lines name.
        #[arg(long, default_value = "storage")]
        domain: String,
    },
    /// A stream of blocks as JSON lines: many versions per key, deletions, hot and cold keys.
    Blocks {
        /// How many blocks.
        #[arg(long, default_value_t = 1000)]
        blocks: u64,
        /// How many changes are drawn for a block.
        #[arg(long, default_value_t = 200)]
        changes: u64,
        /// The height of the first block.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Another seed gives other keys and values.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Of 100 changes to a key that exists, how many delete it.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(..=100))]
        deletions: u64,
        /// Skip some heights, as chains with missed slots do.
        #[arg(long)]
        irregular: bool,
        /// The domains: `accounts`, `code` and `storage`, or `kv` with readable keys and values.
        #[arg(long, value_enum, default_value_t = Shape::Chain)]
        shape: Shape,
    },
    /// The JSON lines of standard input several times over, each round at higher blocks.
    Repeat {
        /// How many times.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        times: u64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Rule {
    /// All entries at block 0.
    AllOne,
    /// Entry i of the key order at block i mod 1024.
    Mod1024,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shape {
    /// Accounts, code and storage.
    Chain,
    /// One domain of text.
    Text,
}

fn main() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&Args::parse().workload, &mut out).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("icecore-gen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(workload: &Workload, out: &mut impl Write) -> io::Result<()> {
    match workload {
        Workload::Storage { entries, serialised: true, .. } => {
            StorageEntries::new(*entries).write_serialised(out)
        }
        Workload::Repeat { times } => repeat::write_repeated(io::stdin().lock(), *times, out),
        Workload::Storage { entries, block, domain, .. } => {
            let rule = match block {
                Rule::AllOne => BlockRule::AllOne(0),
                Rule::Mod1024 => BlockRule::Mod1024,
            };
            jsonl::write_storage(out, &StorageEntries::new(*entries), domain, rule)
        }
        &Workload::Blocks { blocks, changes, first, seed, deletions, irregular, shape } => {
            let shaped = match shape {
                Shape::Chain => BlockOptions::chain(blocks, changes),
                Shape::Text => BlockOptions::text(blocks, changes),
            };
            let options =
                BlockOptions { first_height: first, seed, deletions_percent: deletions, irregular, ..shaped };
            options.stream().try_for_each(|block| jsonl::write_block(out, &options, &block))
        }
    }
}
