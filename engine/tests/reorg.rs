//! Taking blocks back: what an unwinding refuses, what it leaves, what becomes of blocks begun before it, and what a power loss
//! finds after it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Durability, Error, ErrorKind, Maintenance, OpenOptions, Options, ProgressListener, Reader,
};

const PATH: &str = "/archive";

fn open_options() -> OpenOptions {
    OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::EmitOnly)
}

fn archive(disk: &SimStorage, reorg_window: u64) -> Archive {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = Options::new().domain("kv").blocks_per_step(4).reorg_window(reorg_window);
    Archive::create_on(storage, PATH, options, open_options()).unwrap()
}

fn commit(archive: &Archive, height: u64, branch: &str) {
    let mut block = archive.begin(height).unwrap();
    block.put("kv", b"branch", branch.as_bytes()).unwrap();
    block.put("kv", &height.to_be_bytes(), branch.as_bytes()).unwrap();
    block.commit().unwrap();
}

/// With everything in memory, and with all but the newest blocks in segments.
const WINDOWS: [u64; 2] = [1000, 0];

#[test]
fn a_block_begun_before_an_unwinding_is_refused_after_it() {
    for window in WINDOWS {
        let archive = archive(&SimStorage::new(), window);
        (1..20).for_each(|height| commit(&archive, height, "old"));
        archive.emit().unwrap();
        let mut begun = archive.begin(20).unwrap();
        begun.put("kv", b"branch", b"old").unwrap();
        let drafted = archive.draft(11);
        archive.unwind(10, &()).unwrap();
        for stale in [begun, drafted] {
            let height = stale.height();
            let refused = stale.commit().unwrap_err();
            assert!(matches!(refused, Error::StaleBlock { height: h } if h == height), "{refused}");
            assert_eq!(refused.kind(), ErrorKind::Misuse);
        }
        assert!(!archive.is_poisoned());
        assert_eq!(archive.reader().head(), Some(10));
        commit(&archive, 11, "new");
        // One that takes nothing back makes no block stale.
        let begun = archive.begin(12).unwrap();
        archive.unwind(11, &()).unwrap();
        begun.commit().unwrap();
        assert_eq!(archive.at(12).unwrap().get("kv", b"branch").unwrap().unwrap(), b"new");
    }
}

#[test]
fn an_unwinding_goes_to_any_block_that_can_be_read() {
    for window in WINDOWS {
        let archive = archive(&SimStorage::new(), window);
        let refused = |to| match archive.unwind(to, &()) {
            Err(error @ Error::OutOfRange { .. }) => assert_eq!(error.kind(), ErrorKind::OutOfRange),
            other => panic!("{to}: {other:?}"),
        };
        refused(0);
        [3, 4, 9, 20, 21, 40].iter().for_each(|height| commit(&archive, *height, "old"));
        archive.emit().unwrap();
        [2, 41, u64::MAX].into_iter().for_each(refused);
        let pinned = archive.at(40).unwrap();
        for (to, head) in [(40, 40), (30, 21), (21, 21), (15, 9), (3, 3)] {
            archive.unwind(to, &()).unwrap();
            assert_eq!(archive.reader().range(), Some((3, head)), "{to}");
        }
        commit(&archive, 40, "new");
        assert_eq!(archive.history("kv", b"branch").unwrap().count(), 2);
        assert_eq!(pinned.get("kv", b"branch").unwrap().unwrap(), b"old");
        assert_eq!(pinned.history("kv", b"branch").unwrap().count(), 6);
    }
}

#[test]
fn an_unwinding_that_returned_survives_a_power_loss_in_every_mode() {
    for window in WINDOWS {
        for seed in 0..20 {
            let disk = SimStorage::new();
            let archive = archive(&disk, window);
            (1..15).for_each(|height| commit(&archive, height, "old"));
            archive.emit().unwrap();
            archive.unwind(6, &()).unwrap();
            let root = archive.root(6).unwrap();
            for disk in [disk.kill_clone(), disk.crash_clone(seed)] {
                let storage: Arc<dyn Storage> = Arc::new(disk);
                let reader = Reader::open_on(Arc::clone(&storage), PATH).unwrap();
                assert_eq!((reader.head(), reader.root(6).unwrap()), (Some(6), root), "{window} {seed}");
                let archive = Archive::open_on(storage, PATH, open_options()).unwrap();
                assert_eq!((archive.reader().head(), archive.root(6).unwrap()), (Some(6), root));
            }
        }
    }
}

#[test]
fn who_waits_for_blocks_finds_a_replaced_one_by_its_root() {
    let archive = archive(&SimStorage::new(), 1000);
    (1..=50).for_each(|height| commit(&archive, height, "old"));
    let reader = archive.reader().clone();
    let handled = reader.root(50).unwrap();
    archive.unwind(45, &()).unwrap();
    assert!(matches!(reader.root(50), Err(Error::OutOfRange { .. })));
    (46..=50).for_each(|height| commit(&archive, height, "new"));
    assert_eq!(reader.wait(50, std::time::Duration::ZERO).unwrap(), None, "no block is above it");
    assert_ne!(reader.root(50).unwrap(), handled);
}

/// Counts what is begun.
#[derive(Default)]
struct Begun(AtomicU32);

impl ProgressListener for Begun {
    fn begin(&self, _: &str, _: Option<u64>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_unwinding_to_the_block_that_the_tree_was_built_at_keeps_the_tree() {
    let disk = SimStorage::new();
    let created = archive(&disk, 1000);
    [3, 10].iter().for_each(|height| commit(&created, *height, "old"));
    created.close().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(disk);
    let archive = Archive::open_on(storage, PATH, open_options()).unwrap();
    let begun = Arc::new(Begun::default());
    archive.set_progress_listener(begun.clone());
    let expected = archive.root(10).unwrap();
    for branch in ["one", "two"] {
        [17, 30, 31].iter().for_each(|height| commit(&archive, *height, branch));
        archive.unwind(10, &()).unwrap();
        assert_eq!(archive.root(10).unwrap(), expected);
    }
    assert_eq!(begun.0.load(Ordering::Relaxed), 1, "the tree is built once");
    // Below it, the tree is built again.
    archive.unwind(3, &()).unwrap();
    commit(&archive, 10, "old");
    assert_eq!(archive.root(10).unwrap(), expected);
    assert_eq!(begun.0.load(Ordering::Relaxed), 2);
}
