//! Feeds hostile bytes to every parser and to archives as a whole: mutated, with all checksums computed again.
//!
//! ```text
//! seed -> tape of random bytes -> target: takes its decisions from the tape, mutates a sound file, seals it, reads it
//! ```
//!
//! What a target reads must end, in an answer or an error, within a time and in memory that the input bounds; where verify says
//! that all is well, answers must agree. A tape that fails is kept in a file and fails again with `--input`.

mod archive;
mod child;
mod forge;
mod frames;
mod guard;
mod json;
mod log;
mod proofs;
mod rig;
mod sample;
mod selftest;
mod tape;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use icecore_tools::exit;
use peak_alloc::PeakAlloc;

use crate::rig::{Limits, Target};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Feed mutated bytes under checksums that hold to every parser.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
A tape that fails is written to icecore-fuzz-TARGET-SEED-ROUND.tape in the working directory.

Examples:
  icecore-fuzz list
  icecore-fuzz archive --seconds 60 --seed 7
  icecore-fuzz archive --input icecore-fuzz-archive-7-1234.tape
  icecore-fuzz all --seconds 5"
)]
struct Args {
    /// A target of `list`; `all`: each of them; `selftest`: planted faults, each of which must be caught
    target: String,
    /// How long, in seconds; for `all`, each target
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Another seed gives other inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this tape alone
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// How long one input may take, in seconds
    #[arg(long, default_value_t = 30, hide = true)]
    limit: u64,
}

/// All targets, in the order in which `all` runs them.
const TARGETS: &[Target] = &[
    Target { name: "header", about: "header page of .kv, .bt, .kvei and .kvbi", run: frames::header },
    Target { name: "footer", about: "footer page of .kv, .bt, .kvei and .kvbi", run: frames::footer },
    Target {
        name: "page",
        about: "data pages, run table, dictionary and large values of a .kv",
        run: frames::page,
    },
    Target { name: "index", about: "leaves and top of a .bt", run: frames::index },
    Target { name: "filter", about: "shards and boundaries of a .kvei", run: frames::filter },
    Target { name: "blocks", about: "leaves and first blocks of a .kvbi", run: frames::blocks },
    Target { name: "manifest", about: "the manifest of an archive", run: archive::manifest },
    Target { name: "log", about: "files and records of the write-ahead log", run: log::log },
    Target { name: "proof", about: "proofs, ICS23 and compact", run: proofs::single },
    Target { name: "batch-proof", about: "batches of proofs", run: proofs::batch },
    Target {
        name: "json",
        about: "what the icecore command reads: changes, traces, proofs",
        run: json::json,
    },
    Target {
        name: "archive",
        about: "any files of an archive, read, written to and verified",
        run: archive::archive,
    },
];

fn main() -> ExitCode {
    exit::code("icecore-fuzz", run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let limits = Limits { total: Duration::from_secs(args.seconds), each: Duration::from_secs(args.limit) };
    let with = |target: &Target| match &args.input {
        Some(path) => rig::replay(target, &std::fs::read(path)?, limits),
        None => rig::fuzz(target, args.seed, limits),
    };
    match args.target.as_str() {
        "list" => {
            TARGETS.iter().for_each(|target| println!("{:12} {}", target.name, target.about));
            Ok(())
        }
        "selftest" => selftest::run(),
        "all" => TARGETS.iter().try_for_each(with),
        name => {
            let mut known = TARGETS.iter().chain(selftest::PLANTED);
            let target = known.find(|target| target.name == name);
            with(target.ok_or_else(|| format!("no target {name:?}: see icecore-fuzz list"))?)
        }
    }
}
