//! Blocks into an archive, with a snapshot of the tree every few of them or none.
//!
//! What is timed is a whole step, its emission included, so that each period pays for all its snapshots. What a period costs
//! beside the others at the same moment, `icecore-figures snapshots` shows.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use icecore::storage::os::OsStorage;
use icecore::{Archive, Durability, Maintenance, OpenOptions, Options, Root};
use icecore_benches::{DOMAIN, size};
use icecore_hot::measure::{key, value};
use icecore_tools::workload::SplitMix64;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (keys, blocks, changes) = (size(1 << 16, 1 << 8), size(256, 4), size(300, 8));
    let mut root = None;
    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(blocks * changes)).sample_size(10);
    for (name, period) in [("off", 0), ("1", 1), ("16", 16), ("256", 256)] {
        let dir = tempfile::tempdir().expect("the system has room for files");
        let mut ingest = Ingest::new(&dir.path().join("archive"), period, keys, blocks, changes);
        let first = ingest.step();
        assert_eq!(*root.get_or_insert(first), first, "snapshots change no root");
        let id = format!("keys={keys} blocks={blocks} changes={changes} snapshot_period={name}");
        group.bench_function(id, |bencher| bencher.iter(|| ingest.step()));
    }
    group.finish();
    criterion.final_summary();
}

struct Ingest {
    archive: Archive,
    height: u64,
    keys: u64,
    blocks: u64,
    changes: u64,
}

impl Ingest {
    /// An archive of this many keys, all of them in the first step.
    fn new(path: &Path, period: u64, keys: u64, blocks: u64, changes: u64) -> Self {
        let options = Options::new().domain(DOMAIN).blocks_per_step(blocks).reorg_window(0);
        let options = options.snapshot_period(NonZeroU64::new(period));
        let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly);
        let archive =
            Archive::create_on(Arc::new(OsStorage), path, options, open).expect("the folder is empty");
        let mut ingest = Self { archive, height: 0, keys, blocks, changes };
        ingest.commit(0..keys);
        ingest.height = blocks;
        ingest
    }

    /// A step of blocks that give random keys new values.
    fn step(&mut self) -> Root {
        let mut random = SplitMix64::new(self.height);
        let mut root = Root::EMPTY;
        for _ in 0..self.blocks {
            let numbers: Vec<u64> = (0..self.changes).map(|_| random.below(self.keys)).collect();
            root = self.commit(numbers);
        }
        root
    }

    fn commit(&mut self, numbers: impl IntoIterator<Item = u64>) -> Root {
        let mut block = self.archive.begin(self.height).expect("blocks come in order");
        for number in numbers {
            block.put(DOMAIN, &key(number), &value(number, self.height)).expect("keys and values are short");
        }
        self.height += 1;
        block.commit().expect("the disk has room")
    }
}
