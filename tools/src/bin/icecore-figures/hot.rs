//! The figures of the hot layer against their goals, beside what this machine can do of hashing and of random reads.
//!
//! | part | on what |
//! |---|---|
//! | [`updates`] | batches in trees of 2^20 and 2^24 keys, taken back and applied again |
//! | [`scaling`] | the same batches with one thread and with two, and with up to 16 where there are processors |
//! | [`proofs`] | proofs of present and of absent keys: bytes, and the time to find a path and to verify |
//!
//! Used by `main`; the workload and the roofs are those of `icecore_hot::measure`.

mod proofs;
mod scaling;
mod updates;

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use icecore_hot::measure::{DOMAIN, Roofs, key, value};
use icecore_hot::{HotTree, Loader, Options, Parallelism};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::Times;
use serde::Serialize;

use crate::report::Figures;

/// How to measure the figures of the hot layer.
#[derive(Args)]
pub(crate) struct HotArgs {
    /// A trial run: every tree 256 times smaller, under the names of the full run. No figure of it counts.
    #[arg(long)]
    small: bool,
    /// Measure only what more threads give, this many times: the lowest of the runs counts.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What the parts of the measurement share.
struct Bench {
    figures: Figures,
    roofs: Roofs,
    /// How many bits are cut off every size.
    cut: u32,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct HotConditions {
    /// Whether the trees were smaller than the names say: then no figure counts.
    trial: bool,
    /// How often what more threads give was measured.
    runs_with_threads: u32,
    machine: Conditions,
    hash_backend: String,
    options: String,
    workload: &'static str,
    clock: &'static str,
    repetitions: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const WORKLOAD: &str =
    "batch: 85 % new values of random keys, 10 % new keys, 5 % deletions; key 52 B in one domain, value 32 B";

const CLOCK: &str =
    "time of one thread on a processor; wall time where a name says so, and for several threads";

const REPETITIONS: &str = "updates and undo: the lower quartile of the times of each of 3 passes over 8 batches (128 of the small \
     ones), the best pass counts; a batch is timed when it is applied first, with cold caches; threads: the best of 200 batches \
     (2,000 of the small ones) each, in turn, of one thread over several, and the median of the \
     ratios; proofs and roofs: the best of 5 passes; load once";

/// Measures and prints.
pub(crate) fn run(args: &HotArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let options = options(1);
    let lines = if args.small { 1 << 24 } else { 1 << 30 };
    let roofs = Roofs::measure(&options, lines, |work| Times::of(|| std::hint::black_box(work())).0.cpu);
    let mut bench = Bench { figures: Figures::new(), roofs, cut: if args.small { 8 } else { 0 } };
    bench.figures.add("64-byte hashes", roofs.hashes);
    bench.figures.add("random lines, addresses known ahead", roofs.lines);
    bench.figures.add("random lines, each address from the line before", roofs.chained);
    if let Some(runs) = args.threads {
        scaling::measure(&mut bench, runs);
    } else {
        for size in &updates::SIZES {
            updates::measure(&mut bench, size);
        }
        scaling::measure(&mut bench, 1);
        proofs::measure(&mut bench);
    }
    let conditions = HotConditions {
        trial: args.small,
        runs_with_threads: args.threads.unwrap_or(1),
        machine: Conditions::of(Path::new(".")),
        hash_backend: format!("{:?}", options.hash_backend.resolve()),
        options: format!("{options:?}"),
        workload: WORKLOAD,
        clock: CLOCK,
        repetitions: REPETITIONS,
        load_average: [load_before, load_average()],
    };
    bench.figures.print(&conditions, args.json)?;
    Ok(())
}

/// The defaults but for this many threads.
fn options(threads: usize) -> Options {
    let mut options = Options::default();
    options.parallelism =
        NonZeroUsize::new(threads).filter(|n| n.get() > 1).map_or(Parallelism::Off, Parallelism::Threads);
    options
}

/// A tree of the keys `0..keys`.
fn load(options: Options, keys: usize) -> HotTree {
    let mut loader = Loader::new(options);
    (0..keys as u64).for_each(|id| loader.push(DOMAIN, &key(id), &value(id, 0)));
    loader.finish()
}

/// Millions per second.
fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}
