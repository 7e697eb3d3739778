//! Snapshots: at every one of them a proof is made of a few kept nodes, and it is byte for byte the proof of an archive
//! that keeps none; in memory, in segments, merged, pruned, reopened, and after other blocks took the place of some.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use icecore::testing::SimStorage;
use icecore::{
    Archive, Durability, Error, ErrorKind, Maintenance, MergeOptions, OpenOptions, Options, Parallelism,
    ProgressListener, Proof, ProofSource, Reader, VerifyMode, View, verify_on,
};
use oracle::script::{PATH, storage};
use oracle::{DOMAINS, Oracle, Random, commit};

fn period(blocks: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(blocks)
}

fn open() -> OpenOptions {
    OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly)
}

fn options() -> Options {
    DOMAINS
        .iter()
        .fold(Options::new(), |options, name| options.domain(name))
        .blocks_per_step(4)
        .reorg_window(6)
}

/// The same blocks in an archive with snapshots and in one without.
struct Pair {
    disk: SimStorage,
    kept: Archive,
    plain: Archive,
    oracle: Oracle,
    random: Random,
    period: u64,
}

impl Pair {
    fn new(every: u64, seed: u64) -> Self {
        let disk = SimStorage::new();
        let kept = options().snapshot_period(period(every));
        let kept = Archive::create_on(storage(&disk), PATH, kept, open()).unwrap();
        let plain = Archive::create_on(storage(&SimStorage::new()), PATH, options(), open()).unwrap();
        Self { disk, kept, plain, oracle: Oracle::default(), random: Random(seed), period: every }
    }

    /// Commits blocks of a few changes, now and then with a hole in the heights.
    fn commits(&mut self, blocks: u64) {
        for _ in 0..blocks {
            let skip = if self.random.below(5) == 0 { 1 + self.random.below(5) } else { 1 };
            let height = self.oracle.head().map_or(3, |head| head + skip);
            let changes = self.random.changes(5);
            commit(&self.plain, &mut self.oracle.clone(), height, &changes);
            commit(&self.kept, &mut self.oracle, height, &changes);
        }
    }

    fn unwind(&mut self, back: u64) {
        let to = self.oracle.head().unwrap() - back;
        self.kept.unwind(to, &()).unwrap();
        self.plain.unwind(to, &()).unwrap();
        self.oracle.unwind(to);
    }

    fn reopen(self) -> Self {
        self.kept.close().unwrap();
        let kept = Archive::open_on(storage(&self.disk), PATH, open()).unwrap();
        Self { kept, ..self }
    }

    /// The blocks of the oracle that must be snapshots: the first at or above each multiple of the period.
    fn snapshots(&self) -> Vec<u64> {
        let mut last = None;
        let heights = self.oracle.roots.keys().copied();
        heights.filter(|height| last.replace(height / self.period) != Some(height / self.period)).collect()
    }

    /// Compares proofs at all blocks. `all`: every snapshot is there, also those of blocks in memory.
    fn check(&self, all: bool) {
        let snapshots = self.snapshots();
        let (first, head) = self.oracle.range().unwrap();
        for at in self.oracle.roots.keys().copied().filter(|at| (first..=head).contains(at)) {
            let source = check_proofs(&self.kept.at(at).unwrap(), &self.plain.at(at).unwrap(), &self.oracle);
            let is_snapshot = snapshots.contains(&at);
            assert!(is_snapshot || source == ProofSource::State, "block {at} has no snapshot");
            assert!(!all || !is_snapshot || source == ProofSource::Snapshot, "block {at} has a snapshot");
        }
        let report = verify_on(storage(&self.disk), PATH, VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Compares the proofs of some keys, one by one and together, and returns what they were made of.
fn check_proofs(kept: &View, plain: &View, oracle: &Oracle) -> ProofSource {
    let (root, at) = (plain.root().unwrap(), plain.height());
    let keys: Vec<_> = oracle.keys().into_iter().skip(at as usize % 3).step_by(23).collect();
    let asked: Vec<(&str, &[u8])> = keys.iter().map(|(domain, key)| (DOMAINS[*domain], &key[..])).collect();
    let expected = plain.prove_batch(&asked, Parallelism::Off).unwrap();
    for ((domain, key), expected) in keys.iter().zip(&expected.proofs) {
        let proof = kept.prove(DOMAINS[*domain], key).unwrap();
        assert_eq!(proof.to_ics23_bytes(), expected.to_ics23_bytes(), "{key:?} at {at}");
        let proof = Proof::from_ics23_bytes(&proof.to_ics23_bytes()).unwrap();
        proof.verify(&root, DOMAINS[*domain], key, oracle.get(*domain, key, at).as_deref()).unwrap();
    }
    let (batch, cost) = kept.prove_counted(&asked, Parallelism::Off).unwrap();
    assert_eq!(batch, expected);
    batch.verify(&root).unwrap();
    cost.source
}

#[test]
fn proofs_from_snapshots_are_those_of_the_whole_state() {
    for every in [1, 2, 7, 16] {
        let mut pair = Pair::new(every, every);
        pair.commits(3);
        pair.check(true);
        pair.commits(60);
        pair.check(true);
        pair.kept.merge(&MergeOptions::default(), &()).unwrap();
        pair.check(true);
    }
}

#[test]
fn other_blocks_in_the_place_of_snapshots() {
    for every in [1, 3, 8] {
        let mut pair = Pair::new(every, 40 + every);
        pair.commits(25);
        for back in [0, 1, 4, 5, 9, 2, 15, 3] {
            pair.unwind(back);
            pair.commits(back / 2 + 2);
            pair.check(true);
        }
    }
}

#[test]
fn a_writer_that_opens_again_goes_on_as_if_it_had_not() {
    for every in [1, 5, 11] {
        let mut pair = Pair::new(every, 80 + every);
        pair.commits(30);
        for (back, blocks) in [(0, 1), (3, 2), (8, 6), (1, 9), (0, 3)] {
            pair = pair.reopen();
            // Blocks in memory get their nodes with the first block that is written.
            pair.check(false);
            pair.unwind(back);
            pair.check(false);
            pair.commits(blocks);
            pair.check(true);
        }
    }
}

#[test]
fn what_pruning_keeps_can_be_proved_and_gone_back_to() {
    for every in [1, 6, 20] {
        let mut pair = Pair::new(every, 120 + every);
        pair.commits(40);
        for back in [30, 12, 7, 2] {
            let before = pair.oracle.head().unwrap() - back;
            pair.kept.prune(before, &()).unwrap();
            pair.oracle.prune(before);
            pair.check(true);
            pair = pair.reopen();
            pair.commits(2);
            pair.check(true);
            pair.unwind(2);
            pair = pair.reopen();
            pair.commits(8);
            pair.check(true);
        }
    }
}

#[test]
fn the_domain_of_nodes_is_not_the_users() {
    let mut pair = Pair::new(2, 5);
    pair.commits(20);
    // With gaps in heights so few blocks stay in memory.
    pair.kept.emit().unwrap();
    pair.plain.emit().unwrap();
    let reader = pair.kept.reader();
    assert_eq!(reader.domains().iter().map(|domain| &domain.name[..]).collect::<Vec<_>>(), DOMAINS);
    assert_eq!(reader.snapshot_period(), period(2));
    assert!(matches!(reader.latest().unwrap().get("_nodes", b""), Err(Error::UnknownDomain { .. })));
    assert!(matches!(Archive::create("/x", Options::new().domain("_nodes")), Err(Error::Options { .. })));
    let (kept, plain) = (reader.stats(), pair.plain.reader().stats());
    assert_eq!(kept.entries, plain.entries);
    assert!(kept.node_bytes > 0 && plain.node_bytes == 0);
}

/// An archive of many keys in segments, with a snapshot at its only block.
fn large(keys: u32) -> (SimStorage, Archive) {
    let disk = SimStorage::new();
    let options = Options::new().domain("kv").blocks_per_step(1).reorg_window(0).snapshot_period(period(1));
    let archive = Archive::create_on(storage(&disk), PATH, options, open()).unwrap();
    let mut block = archive.begin(0).unwrap();
    for key in 0..keys {
        block.put("kv", &key.to_le_bytes(), &[1; 40]).unwrap();
    }
    block.commit().unwrap();
    (disk, archive)
}

#[test]
fn a_proof_reads_a_handful_of_nodes() {
    let (_disk, archive) = large(30_000);
    let view = archive.at(0).unwrap();
    for key in [0u32, 7, 29_999, 30_000, u32::MAX] {
        let (batch, cost) = view.prove_counted(&[("kv", &key.to_le_bytes())], Parallelism::Off).unwrap();
        batch.verify(&view.root().unwrap()).unwrap();
        assert_eq!(cost.source, ProofSource::Snapshot);
        assert!(cost.entries < 200 && cost.reads < 60, "{cost:?}");
    }
    let (_, cost) = view.prove_counted::<&str, &[u8]>(&[], Parallelism::Off).unwrap();
    assert!(cost.entries < 3, "{cost:?}");
}

#[test]
fn many_proofs_at_once_are_those_of_one_by_one() {
    let (_disk, archive) = large(6000);
    let view = archive.at(0).unwrap();
    // Half of the keys are absent.
    let keys: Vec<_> = (0u32..12_000).step_by(3).map(u32::to_le_bytes).collect();
    let asked: Vec<(&str, &[u8])> = keys.iter().map(|key| ("kv", &key[..])).collect();
    let alone = view.prove_batch(&asked, Parallelism::Off).unwrap();
    let threads = Parallelism::Threads(NonZeroUsize::new(3).unwrap());
    assert_eq!(view.prove_batch(&asked, threads).unwrap(), alone);
    alone.verify(&view.root().unwrap()).unwrap();
    for (key, proof) in keys.iter().zip(&alone.proofs).step_by(97) {
        assert_eq!(view.prove("kv", key).unwrap(), *proof);
    }
}

/// Remembers what was told.
#[derive(Default)]
struct Told(Mutex<Vec<(String, Option<u64>, u64)>>);

impl ProgressListener for Told {
    fn begin(&self, task: &str, units: Option<u64>) {
        self.0.lock().unwrap().push((task.to_owned(), units, 0));
    }

    fn advance(&self, units: u64) {
        self.0.lock().unwrap().last_mut().unwrap().2 += units;
    }
}

#[test]
fn building_the_tree_tells_its_progress() {
    for (keys, threads) in [(300, 1), (70_000, 1), (70_000, 3)] {
        let (disk, archive) = large(keys);
        let expected = archive.begin(1).unwrap().commit().unwrap();
        archive.emit().unwrap();
        archive.close().unwrap();
        let parallelism = Parallelism::Threads(NonZeroUsize::new(threads).unwrap());
        let archive = Archive::open_on(storage(&disk), PATH, open().parallelism(parallelism)).unwrap();
        let told = Arc::new(Told::default());
        archive.set_progress_listener(told.clone());
        assert_eq!(archive.begin(2).unwrap().commit().unwrap(), expected);
        let told = told.0.lock().unwrap();
        let keys = u64::from(keys);
        assert_eq!(told[0], ("build the tree of block 1".to_owned(), Some(keys), keys));
        assert_eq!(told[1], ("apply the blocks in memory".to_owned(), None, 0));
    }
}

#[test]
fn damaged_nodes_are_an_error_and_never_a_proof() {
    let (disk, archive) = large(3000);
    archive.emit().unwrap();
    archive.close().unwrap();
    let is_nodes = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("_nodes.") && path.extension().unwrap() == "kv"
    };
    let path = disk.files().into_iter().map(|(path, _)| path).find(is_nodes).unwrap();
    let pages = disk.bytes(&path).len() / 4096;
    let mut refused = 0;
    for page in 1..pages {
        let damaged = disk.kill_clone();
        damaged.corrupt(&path, (page * 4096 + 900) as u64, 0x10);
        let Ok(reader) = Reader::open_on(storage(&damaged), PATH) else {
            refused += 1;
            continue;
        };
        let view = reader.at(0).unwrap();
        let root = view.root().unwrap();
        for key in (0u32..3000).step_by(113) {
            match view.prove("kv", &key.to_le_bytes()) {
                Ok(proof) => proof.verify(&root, "kv", &key.to_le_bytes(), Some(&[1; 40])).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > pages);
}
