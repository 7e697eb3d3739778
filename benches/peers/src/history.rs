//! `history`: the blocks that changed one key, in an archive and as lists of blocks in MDBX.
//!
//! | group | what is timed |
//! |---|---|
//! | `append` | one block more that changes the key |
//! | `point_query` | *was the key changed at block N?*, of 1,024 blocks in turn; half of them changed it |
//! | `full_scan` | the list of all blocks, as numbers in memory |
//! | `unwind` | the last 100 changes are taken back |
//!
//! The groups are those of the shard study of `altuslabsxyz/evidence`, which asks how large the shards of reth's history index should
//! be: a key of 20 bytes, 10 thousand to a million changes, 1 to 20 blocks between two of them. There each list is a
//! `RoaringTreemap`, whole or in shards of a fixed number of blocks; here Icecore stands beside them. What differs from the study: blocks
//! are drawn from a seed, a query is not always the same one, and a scan ends with the numbers and not with a bitmap.
//!
//! What is the same for all: an append is durable when it returns, unless `--unsynced`; what a query needs to begin, a transaction or a
//! view, is begun and ended each time; everything is in memory. Each answer is compared before anything is timed.
//!
//! What is not the same: Icecore keeps what a block wrote beside the block and makes a root for each; it is asked through the
//! archive that appends.

mod icecore;
mod mdbx;
mod workload;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, SamplingMode};
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::provenance::Provenance;
use serde::Serialize;

use crate::Outcome;
use crate::report::{digits, print_conditions, print_table, study};
use crate::timing::{Time, TimingArgs, must};
use workload::Workload;

/// How to compare histories of one key.
#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// How many blocks changed the key. May be given several times.
    #[arg(long, default_values_t = [10_000, 100_000, 500_000, 1_000_000], value_parser = clap::value_parser!(u64).range(1000..))]
    changes: Vec<u64>,
    /// Only these groups.
    #[arg(long = "group", value_parser = clap::builder::PossibleValuesParser::new(GROUPS))]
    groups: Vec<String>,
    /// No append and no unwinding waits for the disk: `Durability::Relaxed` here, `SafeNoSync` in MDBX.
    #[arg(long)]
    unsynced: bool,
    /// Where the stores are built and removed again: on the disk that is to be measured. Default: the temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    timing: TimingArgs,
    /// Write JSON to this file too.
    #[arg(long)]
    json: Option<PathBuf>,
}

const GROUPS: [&str; 4] = ["point_query", "full_scan", "unwind", "append"];

/// How many changes are taken back.
const UNWOUND: usize = 100;

/// A store of the history of one key.
trait Peer {
    /// Its name in the report.
    fn name(&self) -> String;

    /// Makes a store in an empty folder that holds these blocks, and leaves it open.
    fn fill(&self, dir: &Path, blocks: &[u64]) -> Outcome<Box<dyn History>>;
}

/// A filled store.
trait History {
    /// Adds a block above all others.
    fn append(&mut self, block: u64) -> Outcome;

    /// Whether a block changed the key.
    fn was_changed(&mut self, block: u64) -> Outcome<bool>;

    /// All blocks, in ascending or descending order.
    fn list(&mut self) -> Outcome<Vec<u64>>;

    /// Takes back the blocks from `first` on; `last_kept` is the one before it.
    fn unwind(&mut self, last_kept: u64, first: u64) -> Outcome;

    /// What it takes on the disk.
    fn storage(&mut self) -> Outcome<Storage>;
}

/// What a store takes on the disk.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Storage {
    /// Bytes of the pages that are in use.
    bytes: u64,
    depth: u32,
    branch_pages: u64,
    leaf_pages: u64,
    /// Pages of values that are larger than a page holds; of Icecore, those of filters.
    other_pages: u64,
    entries: u64,
}

fn peers(unsynced: bool) -> Vec<Box<dyn Peer>> {
    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(icecore::Icecore { unsynced })];
    let sizes = [None, Some(100), Some(500), Some(1000), Some(2000), Some(5000), Some(10_000), Some(50_000)];
    peers.extend(sizes.map(|shard| -> Box<dyn Peer> { Box::new(mdbx::Shards { shard, unsynced }) }));
    peers
}

/// One figure: a series, or what a store takes.
#[derive(Serialize)]
struct Row {
    group: &'static str,
    changes: u64,
    peer: String,
    #[serde(flatten)]
    measured: Measured,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Measured {
    Time(Time),
    Storage(Storage),
}

/// The stores of one size, open side by side.
struct Stores<'w> {
    workload: &'w Workload,
    stores: Vec<(String, Box<dyn History>)>,
}

/// Measures and prints.
pub(crate) fn run(args: &HistoryArgs) -> Outcome {
    let (run, load_before) = (Provenance::of_this_run(), load_average());
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("icecore-history").tempdir_in(&parent)?;
    let mut criterion = args.timing.criterion()?;
    let mut rows = Vec::new();
    for &changes in &args.changes {
        let workload = Workload::new(changes);
        let mut stores = Stores::fill(&workload, folder.path(), args.unsynced)?;
        rows.extend(stores.storage()?);
        let wanted = |group: &&&str| args.groups.is_empty() || args.groups.iter().any(|name| name == *group);
        for group in GROUPS.iter().filter(wanted) {
            stores.measure(&mut criterion, group)?;
            rows.extend(stores.read_estimates(&args.timing, group)?);
        }
    }
    criterion.final_summary();
    if let Some(path) = &args.json {
        let load = [load_before, load_average()];
        let conditions =
            serde_json::json!({ "machine": Conditions::of(folder.path()), "load_average": load });
        fs::write(path, study(&run, &conditions, &rows))?;
    }
    print_conditions(&Conditions::of(folder.path()), [load_before, load_average()], &[]);
    print(&rows, args);
    Ok(())
}

/// The number of changes in the name of a group.
fn size_name(changes: u64) -> String {
    match changes {
        _ if changes.is_multiple_of(1_000_000) => format!("{}M", changes / 1_000_000),
        _ if changes.is_multiple_of(1000) => format!("{}K", changes / 1000),
        _ => changes.to_string(),
    }
}

impl<'w> Stores<'w> {
    fn fill(workload: &'w Workload, folder: &Path, unsynced: bool) -> Outcome<Self> {
        let mut stores = Vec::new();
        for peer in peers(unsynced) {
            let name = peer.name();
            eprintln!("{} changes: {name}", workload.blocks.len());
            let dir = folder.join(format!("{}-{name}", workload.blocks.len()));
            fs::create_dir(&dir)?;
            let mut store = peer.fill(&dir, &workload.blocks)?;
            check(&mut *store, workload).map_err(|error| format!("{name}: {error}"))?;
            stores.push((name, store));
        }
        Ok(Self { workload, stores })
    }

    fn changes(&self) -> u64 {
        self.workload.blocks.len() as u64
    }

    fn storage(&mut self) -> Outcome<Vec<Row>> {
        let changes = self.changes();
        let row = |(name, store): &mut (String, Box<dyn History>)| {
            let measured = Measured::Storage(store.storage()?);
            Ok(Row { group: "storage", changes, peer: name.clone(), measured })
        };
        self.stores.iter_mut().map(row).collect()
    }

    fn measure(&mut self, criterion: &mut Criterion, name: &str) -> Outcome {
        let mut group = criterion.benchmark_group(format!("{name}/{}", size_name(self.changes())));
        if name == "unwind" {
            // Each call needs a hundred commits before it: the samples are of one call each.
            group.sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_millis(1));
        }
        for (peer, store) in &mut self.stores {
            let result = match name {
                "append" => time_append(&mut group, peer, &mut **store, self.workload),
                "point_query" => time_query(&mut group, peer, &mut **store, self.workload),
                "full_scan" => time(&mut group, peer, || store.list().map(|blocks| blocks.len())),
                _ => time_unwind(&mut group, peer, &mut **store, self.workload),
            };
            result.map_err(|error| format!("{peer}: {error}"))?;
        }
        group.finish();
        Ok(())
    }

    /// What criterion made of a group.
    fn read_estimates(&self, timing: &TimingArgs, group: &'static str) -> Outcome<Vec<Row>> {
        let folder = PathBuf::from(format!("{group}_{}", size_name(self.changes())));
        let row = |(peer, _): &(String, Box<dyn History>)| {
            let measured = Measured::Time(timing.estimate(&folder.join(peer))?);
            Ok(Row { group, changes: self.changes(), peer: peer.clone(), measured })
        };
        self.stores.iter().map(row).collect()
    }
}

/// Asks everything once, and leaves the store as it was.
fn check(store: &mut dyn History, workload: &Workload) -> Outcome {
    let listed = |store: &mut dyn History| -> Outcome<Vec<u64>> {
        let mut blocks = store.list()?;
        blocks.sort_unstable();
        Ok(blocks)
    };
    if listed(store)? != workload.blocks {
        return Err("the list is not that of the blocks it was given".into());
    }
    for (block, is_change) in &workload.queries {
        if store.was_changed(*block)? != *is_change {
            return Err(format!("a wrong answer about block {block}").into());
        }
    }
    let (kept, gone) = workload.blocks.split_at(workload.blocks.len() - UNWOUND);
    store.unwind(kept[kept.len() - 1], gone[0])?;
    if listed(store)? != kept {
        return Err("an unwound list is not what remains".into());
    }
    gone.iter().try_for_each(|block| store.append(*block))?;
    if listed(store)? != workload.blocks {
        Err("a list that was appended to is wrong".into())
    } else {
        Ok(())
    }
}

/// Times a call whose failure ends the series.
fn time<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    peer: &str,
    mut call: impl FnMut() -> Outcome<T>,
) -> Outcome {
    group.bench_function(peer, |bencher| bencher.iter(|| must(call())));
    Ok(())
}

fn time_append(
    group: &mut BenchmarkGroup<'_, WallTime>,
    peer: &str,
    store: &mut dyn History,
    workload: &Workload,
) -> Outcome {
    let mut next = store.list()?.into_iter().max().unwrap_or(0);
    time(group, peer, || {
        next += workload.gap_after(next);
        store.append(next)
    })
}

fn time_query(
    group: &mut BenchmarkGroup<'_, WallTime>,
    peer: &str,
    store: &mut dyn History,
    workload: &Workload,
) -> Outcome {
    let mut queries = workload.queries.iter().cycle();
    time(group, peer, || {
        let (block, _) = queries.next().ok_or("no queries")?;
        store.was_changed(*block)
    })
}

fn time_unwind(
    group: &mut BenchmarkGroup<'_, WallTime>,
    peer: &str,
    store: &mut dyn History,
    workload: &Workload,
) -> Outcome {
    let (kept, gone) = workload.blocks.split_at(workload.blocks.len() - UNWOUND);
    let (last_kept, first) = (kept[kept.len() - 1], gone[0]);
    store.unwind(last_kept, first)?;
    let store = RefCell::new(store);
    group.bench_function(peer, |bencher| {
        bencher.iter_batched(
            || must(gone.iter().try_for_each(|block| store.borrow_mut().append(*block))),
            |()| must(store.borrow_mut().unwind(last_kept, first)),
            BatchSize::PerIteration,
        );
    });
    gone.iter().try_for_each(|block| store.borrow_mut().append(*block))
}

/// The tables for people: a group each, a line for each peer, a column for each size.
fn print(rows: &[Row], args: &HistoryArgs) {
    for group in GROUPS {
        let of_group: Vec<&Row> = rows.iter().filter(|row| row.group == group).collect();
        let mut names: Vec<&str> = of_group.iter().map(|row| row.peer.as_str()).collect();
        names.dedup();
        names.truncate(of_group.len() / args.changes.len());
        let cell = |peer: &str, changes: u64| {
            let row = of_group.iter().find(|row| row.peer == peer && row.changes == changes);
            match row.map(|row| &row.measured) {
                Some(Measured::Time(time)) => digits(time.median_ns / 1e3),
                _ => String::new(),
            }
        };
        let line = |peer: &&str| {
            let name = std::iter::once((*peer).to_owned());
            name.chain(args.changes.iter().map(|changes| cell(peer, *changes))).collect()
        };
        let sizes: Vec<String> = args.changes.iter().map(|changes| size_name(*changes)).collect();
        let header: Vec<&str> = std::iter::once("peer").chain(sizes.iter().map(String::as_str)).collect();
        if !names.is_empty() {
            print_table(&format!("{group}, us"), 1, &header, names.iter().map(line).collect());
        }
    }
    let header =
        ["changes", "peer", "bytes", "B/change", "to u64", "depth", "branch", "leaf", "other", "entries"];
    let line = |row: &Row| match row.measured {
        Measured::Storage(s) => Some(vec![
            size_name(row.changes),
            row.peer.clone(),
            s.bytes.to_string(),
            digits(s.bytes as f64 / row.changes as f64),
            digits(s.bytes as f64 / (8 * row.changes) as f64),
            s.depth.to_string(),
            s.branch_pages.to_string(),
            s.leaf_pages.to_string(),
            s.other_pages.to_string(),
            s.entries.to_string(),
        ]),
        Measured::Time(_) => None,
    };
    print_table("Storage: pages in use", 2, &header, rows.iter().filter_map(line).collect());
}
