//! The figures of an archive in a bucket: what a lookup, opening, a pull and a push cost in requests, bytes and waits, and how they stand
//! to requests without any of our code, against the server of [`icecore_tools::stub`] in this process.
//!
//! | part | on what |
//! |---|---|
//! | [`lookups`] | the reference dataset, in one segment and as merges leave it: hits, unknown keys, many keys, a cache after a restart |
//! | [`opening`] | 260 unmerged segments |
//! | [`transfer`] | the dataset in one segment, there and back; with versitygw, where that is installed, and beside `aws s3 cp` |
//! | refreshing | that of `follow`: an archive on the same disk |

mod lookups;
mod opening;
mod transfer;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use icecore::remote::{Accessors, Bucket, BucketOptions, PushOptions, RemoteOptions, push};
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, MergeOptions, OpenOptions, Options, Reader};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::bucket::RawClient;
use icecore_tools::stub::Stub;
use icecore_tools::workload::storage::StorageEntries;
use serde::Serialize;

use crate::follow;
use crate::report::Figures;

const DOMAIN: &str = "storage";

/// What the server adds to each answer where times are compared.
const LATENCY: Duration = Duration::from_millis(20);

/// The bucket of a server, where it is said to be, and credentials for the stub, which takes any.
const BUCKET: &str = "bucket";
const REGION: &str = "us-east-1";
const ANYBODY: (&str, &str) = ("key", "secret");

/// Entries of a block.
const PER_BLOCK: usize = 20_000;

/// How to measure the figures of a bucket.
#[derive(Args)]
pub(crate) struct RemoteArgs {
    /// How many entries the dataset has.
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    entries: u64,
    /// How many cold lookups are measured of each kind.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    lookups: u64,
    /// Where archives and caches are built and removed again. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct RemoteConditions {
    entries: u64,
    lookups: u64,
    latency_ms: u128,
    machine: Conditions,
    clock: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const CLOCK: &str = "wall time of each call. The server is in this process and shares its processors";

/// What the parts of the measurement share.
struct Bench<'a> {
    args: &'a RemoteArgs,
    dir: PathBuf,
    dataset: StorageEntries,
    figures: Figures,
}

/// Measures and prints.
pub(crate) fn run(args: &RemoteArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-figures").tempdir_in(&parent)?;
    let dataset = StorageEntries::new(args.entries);
    let mut bench = Bench { args, dir: folder.path().to_owned(), dataset, figures: Figures::new() };
    let one = Place::build(&bench, "one", 1)?;
    lookups::measure(&mut bench, &one, "one segment")?;
    lookups::many_keys(&mut bench, &one)?;
    lookups::after_restart(&mut bench, &one)?;
    transfer::measure(&mut bench, &one)?;
    drop(one);
    let merged = Place::build(&bench, "merged", 7)?;
    lookups::measure(&mut bench, &merged, "several segments")?;
    drop(merged);
    opening::measure(&mut bench)?;
    let Bench { dir, mut figures, .. } = bench;
    follow::synced_blocks(&dir.join("follow"), &mut figures)?;
    let conditions = RemoteConditions {
        entries: args.entries,
        lookups: args.lookups,
        latency_ms: LATENCY.as_millis(),
        machine: Conditions::of(folder.path()),
        clock: CLOCK,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

/// What opens an archive so that it emits and does nothing else.
fn emit_only() -> OpenOptions {
    OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly)
}

/// An archive of the dataset, and its bucket.
struct Place {
    path: PathBuf,
    stub: Stub,
    bucket: Bucket,
    raw: RawClient,
}

impl Place {
    /// Builds the dataset in so many steps, each with keys of the whole range, merged as they are by default, and pushes it.
    fn build(bench: &Bench<'_>, name: &str, steps: usize) -> Result<Self, Box<dyn Error>> {
        let path = bench.dir.join(name);
        let per_step = bench.args.entries.div_ceil((steps * PER_BLOCK) as u64);
        let options = Options::new().domain(DOMAIN).blocks_per_step(per_step).reorg_window(0);
        let archive = Archive::create_on(Arc::new(OsStorage), &path, options, emit_only())?;
        let mut height = 0;
        for step in 0..steps {
            let of_step = bench.dataset.iter().skip(step).step_by(steps);
            let entries: Vec<_> = of_step.collect();
            let mut blocks = entries.chunks(PER_BLOCK);
            for _ in 0..per_step {
                let mut block = archive.begin(height)?;
                for entry in blocks.next().unwrap_or_default() {
                    block.put(DOMAIN, entry.key(), entry.value())?;
                }
                block.commit()?;
                height += 1;
            }
            archive.emit()?;
        }
        archive.merge(&MergeOptions::default(), &())?;
        archive.close()?;
        Self::push(path)
    }

    fn push(path: PathBuf) -> Result<Self, Box<dyn Error>> {
        let stub = Stub::start()?;
        let bucket = bucket_of(&stub)?;
        push(&path, &bucket, &PushOptions::new(), &())?;
        let raw = RawClient::connect(&stub.endpoint(), BUCKET, ANYBODY)?;
        Ok(Self { path, stub, bucket, raw })
    }

    /// A reader with this cache.
    fn open(&self, cache: &Path, fetch: u64, warm: Accessors) -> Result<Reader, icecore::Error> {
        Reader::open_remote(&self.bucket, &RemoteOptions::new(cache).fetch(fetch).warm(warm))
    }

    /// The objects of files, as a client names them, and their lengths; the longest first.
    fn files(&self) -> Vec<(String, u64)> {
        let all = self.stub.objects().into_iter();
        let of_files = all.filter_map(|(name, bytes)| {
            let key = name.strip_prefix("bucket/")?.to_owned();
            key.starts_with("archive/o/").then_some((key, bytes.len() as u64))
        });
        let mut files: Vec<(String, u64)> = of_files.collect();
        files.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        files
    }
}

fn bucket_of(stub: &Stub) -> Result<Bucket, icecore::Error> {
    bucket_at(&stub.endpoint(), "archive", ANYBODY)
}

/// A prefix of the bucket of a server.
fn bucket_at(endpoint: &str, prefix: &str, (key, secret): (&str, &str)) -> Result<Bucket, icecore::Error> {
    let options = BucketOptions::new().endpoint(endpoint).credentials(key, secret, None).region(REGION);
    Bucket::open_with(&format!("s3://{BUCKET}/{prefix}"), &options)
}
