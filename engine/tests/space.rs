//! A full disk: what frees space works on it, all else says so, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod watch;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, DensityRule, Error, ErrorKind, Maintenance, MergeOptions, OpenOptions, Operation, Options,
    ReindexRule, Root, VerifyMode,
};
use watch::{Watch, Watched, no_space};

const PATH: &str = "/archive";
const BLOCKS: u64 = 40;

fn commit(archive: &Archive, height: u64) -> Result<Root, Error> {
    let mut block = archive.begin(height)?;
    for domain in ["a", "b"] {
        for key in 0..20u64 {
            block.put(domain, &(key + height % 3).to_be_bytes(), &height.to_be_bytes())?;
        }
    }
    block.commit()
}

fn open_options() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly)
}

/// Steps of four blocks, of which the last three are in memory.
fn filled(storage: &Arc<dyn Storage>) -> (Archive, Vec<Root>) {
    let options = Options::new().domain("a").domain("b").blocks_per_step(4).reorg_window(12);
    let archive = Archive::create_on(Arc::clone(storage), PATH, options, open_options()).unwrap();
    let committed = |height| {
        let root = commit(&archive, height).unwrap();
        archive.emit().unwrap();
        root
    };
    let roots = (0..BLOCKS).map(committed).collect();
    (archive, roots)
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

#[test]
fn pruning_frees_the_files_of_a_domain_before_it_writes_the_next() {
    let seen = Arc::new(Mutex::new(Vec::<(Operation, PathBuf)>::new()));
    let recorded = Arc::clone(&seen);
    let storage: Arc<dyn Storage> =
        Watched::new(SimStorage::new(), move |operation: Operation, path: &Path| {
            if is(path, "kv") {
                recorded.lock().unwrap().push((operation, path.to_owned()));
            }
            Ok(())
        });
    let (archive, _) = filled(&storage);
    seen.lock().unwrap().clear();
    archive.prune(20, &()).unwrap();
    let seen = seen.lock().unwrap();
    let at = |operation, name: &str| {
        let is_it = |(other, path): &&(Operation, PathBuf)| {
            *other == operation && path.file_name().unwrap().to_str().unwrap().starts_with(name)
        };
        seen.iter().position(|found| is_it(&found)).unwrap()
    };
    // Of the roots nothing is written: whole segments go.
    let written = ["a.", "b."].map(|name| at(Operation::Create, name));
    let removed = ["_roots.", "a.", "b."].map(|name| at(Operation::Remove, name));
    assert!(removed[0] < *written.iter().min().unwrap(), "roots are dropped first: {seen:?}");
    assert!(removed[1] < written[1] || removed[2] < written[0], "{seen:?}");
}

/// No byte can be written until the reserve or a segment is removed.
#[derive(Default)]
struct FullDisk {
    full: AtomicBool,
    reserve_gone: AtomicBool,
    /// Giving up the reserve frees nothing, as on a file system that compresses.
    without_reserve: AtomicBool,
}

impl FullDisk {
    fn is_full(&self) -> bool {
        let is_spared =
            self.reserve_gone.load(Ordering::SeqCst) && !self.without_reserve.load(Ordering::SeqCst);
        self.full.load(Ordering::SeqCst) && !is_spared
    }
}

impl Watch for FullDisk {
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error> {
        match operation {
            Operation::Create | Operation::Write if self.is_full() => return Err(no_space(operation, path)),
            Operation::Remove if path.ends_with("RESERVE") => self.reserve_gone.store(true, Ordering::SeqCst),
            Operation::Remove if is(path, "kv") => self.full.store(false, Ordering::SeqCst),
            _ => {}
        }
        Ok(())
    }

    fn free_space(&self) -> Option<u64> {
        match (self.is_full(), self.full.load(Ordering::SeqCst)) {
            (true, _) => Some(0),
            (false, true) => Some(100 << 10),
            (false, false) => Some(u64::MAX),
        }
    }
}

/// There is room for so many files of segments, and for one more with each that is removed, as with each file of the log.
#[derive(Default)]
struct RoomForFiles {
    room: Mutex<u64>,
    files: Mutex<HashSet<PathBuf>>,
}

impl Watch for RoomForFiles {
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error> {
        let (mut room, mut files) = (self.room.lock().unwrap(), self.files.lock().unwrap());
        match operation {
            Operation::Create if is(path, "kv") => {
                *room = room.checked_sub(1).ok_or_else(|| no_space(operation, path))?;
                files.insert(path.to_owned());
            }
            Operation::Create if is(path, "wal") => drop(files.insert(path.to_owned())),
            Operation::Remove if files.remove(path) => *room += 1,
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn steps_that_do_not_fit_all_at_once_are_emitted_in_parts() {
    // The smallest is one step: the roots and two domains.
    for room in [100, 5, 4, 3] {
        let disk = Watched::new(SimStorage::new(), RoomForFiles::default());
        let storage: Arc<dyn Storage> = disk.clone();
        let options = Options::new().domain("a").domain("b").blocks_per_step(4).reorg_window(0);
        let archive = Archive::create_on(Arc::clone(&storage), PATH, options, open_options()).unwrap();
        let roots: Vec<Root> = (0..BLOCKS).map(|height| commit(&archive, height).unwrap()).collect();
        assert_eq!(archive.reader().stats().segments, 0, "no room yet");
        *disk.watch.room.lock().unwrap() = room;
        archive.emit().unwrap();
        assert_eq!(archive.reader().stats().steps_in_memory, 0, "with room for {room}");
        assert_sound(&storage, archive, 0, &roots);
    }
}

fn full_disk() -> (Arc<Watched<SimStorage, FullDisk>>, Arc<dyn Storage>) {
    let disk = Watched::new(SimStorage::new(), FullDisk::default());
    let storage: Arc<dyn Storage> = disk.clone();
    (disk, storage)
}

fn has_reserve(storage: &Arc<dyn Storage>) -> bool {
    storage.len(&Path::new(PATH).join("RESERVE")).unwrap() == Some(512 << 10)
}

fn assert_sound(storage: &Arc<dyn Storage>, archive: Archive, first: u64, roots: &[Root]) {
    let check = |archive: &Archive| {
        assert_eq!(archive.reader().range(), Some((first, first + roots.len() as u64 - 1)));
        for (height, root) in (first..).zip(roots) {
            assert_eq!(archive.root(height).unwrap(), *root, "{height}");
        }
    };
    check(&archive);
    drop(archive);
    check(&Archive::open_on(Arc::clone(storage), PATH, open_options()).unwrap());
    let report = icecore::verify_on(Arc::clone(storage), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

#[test]
fn what_frees_space_works_on_a_full_disk() {
    for deep_unwind in [false, true] {
        let (disk, storage) = full_disk();
        let (archive, roots) = filled(&storage);
        assert!(has_reserve(&storage));
        disk.watch.full.store(true, Ordering::SeqCst);
        drop(archive);
        let archive = Archive::open_on(Arc::clone(&storage), PATH, open_options()).unwrap();
        assert!(has_reserve(&storage), "opening does not need it");
        if deep_unwind {
            archive.unwind(9, &()).unwrap();
        } else {
            archive.prune(20, &()).unwrap();
        }
        assert!(disk.watch.reserve_gone.load(Ordering::SeqCst), "it was needed");
        assert!(has_reserve(&storage), "taken back from what was freed");
        disk.watch.reserve_gone.store(false, Ordering::SeqCst);
        let (first, roots) = if deep_unwind { (0, &roots[..10]) } else { (20, &roots[20..]) };
        assert_sound(&storage, archive, first, roots);
    }
}

#[test]
fn a_shallow_unwind_survives_a_full_disk() {
    let (disk, storage) = full_disk();
    let (archive, roots) = filled(&storage);
    disk.watch.full.store(true, Ordering::SeqCst);
    archive.unwind(BLOCKS - 2, &()).unwrap();
    assert!(disk.watch.reserve_gone.load(Ordering::SeqCst) && !archive.is_poisoned());
    assert_sound(&storage, archive, 0, &roots[..BLOCKS as usize - 1]);
    // Without a reserve nothing happens.
    let (disk, storage) = full_disk();
    let (archive, roots) = filled(&storage);
    disk.watch.full.store(true, Ordering::SeqCst);
    disk.watch.without_reserve.store(true, Ordering::SeqCst);
    let error = archive.unwind(BLOCKS - 2, &()).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }) && !archive.is_poisoned(), "{error}");
    assert_sound(&storage, archive, 0, &roots);
}

/// The largest file that is there and will go while a prune writes is the one in hand.
#[test]
fn pruning_takes_the_room_of_the_largest_segment() {
    let disk = SimStorage::new();
    let peak = Arc::new(Mutex::new(0));
    let (seen, measured) = (Arc::clone(&peak), disk.clone());
    let storage: Arc<dyn Storage> = Watched::new(disk.clone(), move |_: Operation, _: &Path| {
        let total: u64 = measured.files().iter().map(|(_, len)| len).sum();
        let mut peak = seen.lock().unwrap();
        *peak = total.max(*peak);
        Ok(())
    });
    let (archive, roots) = filled(&storage);
    let sizes = |archive: &Archive| -> Vec<u64> {
        let segments = archive.reader().segments();
        segments.iter().map(|info| info.kv_bytes + info.bt_bytes + info.kvei_bytes).collect()
    };
    let (before, largest) = (disk.files().iter().map(|(_, len)| len).sum::<u64>(), sizes(&archive));
    assert!(largest.len() > 12, "several of each domain");
    *peak.lock().unwrap() = 0;
    archive.prune(24, &()).unwrap();
    let (peak, room) = (*peak.lock().unwrap(), largest.iter().max().unwrap() + (8 << 10));
    assert!(peak <= before + room, "{peak} of {before} and {room}");
    assert_sound(&storage, archive, 24, &roots[24..]);
}

/// A disk with so much left, and what was written to it at most.
struct Measured {
    disk: SimStorage,
    free: AtomicU64,
    spooled: AtomicU64,
    peak: AtomicU64,
}

impl Measured {
    fn total(&self) -> u64 {
        let files: u64 = self.disk.files().iter().map(|(_, len)| len).sum();
        files + self.spooled.load(Ordering::SeqCst)
    }
}

impl Watch for Measured {
    fn before(&self, _: Operation, _: &Path) -> Result<(), Error> {
        self.peak.fetch_max(self.total(), Ordering::SeqCst);
        Ok(())
    }

    fn free_space(&self) -> Option<u64> {
        Some(self.free.load(Ordering::SeqCst))
    }

    fn spooled(&self, bytes: u64) {
        self.spooled.fetch_add(bytes, Ordering::SeqCst);
    }
}

#[test]
fn a_merge_of_many_versions_takes_the_room_that_its_plan_names() {
    let disk = SimStorage::new();
    let (free, spooled, peak) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicU64::new(0));
    let disk = Watched::new(disk.clone(), Measured { disk, free, spooled, peak });
    let (storage, seen): (Arc<dyn Storage>, _) = (disk.clone(), &disk.watch);
    let options = Options::new().domain("a").blocks_per_step(1).reorg_window(0);
    let archive = Archive::create_on(Arc::clone(&storage), PATH, options, open_options()).unwrap();
    // More together than the index of blocks is sorted of in memory.
    for height in 0..3 {
        let mut block = archive.begin(height).unwrap();
        for key in 0..if height < 2 { 600_000u32 } else { 0 } {
            block.put("a", &key.to_be_bytes(), b"").unwrap();
        }
        block.commit().unwrap();
    }
    archive.emit().unwrap();
    let plan = archive.reader().plan_merge(&MergeOptions::default()).unwrap();
    let needed = plan.merges.iter().map(|merge| merge.bytes_needed).max().unwrap();
    seen.free.store(needed - 1, Ordering::SeqCst);
    let error = archive.merge(&MergeOptions::new().domain(Some("a")), &()).unwrap_err();
    assert!(matches!(error, Error::NoRoom { needed: told, .. } if told == needed), "{error}");
    seen.free.store(needed, Ordering::SeqCst);
    seen.spooled.store(0, Ordering::SeqCst);
    let before = seen.total();
    seen.peak.store(0, Ordering::SeqCst);
    archive.merge(&MergeOptions::new().domain(Some("a")), &()).unwrap();
    let written = seen.peak.load(Ordering::SeqCst) - before;
    let spooled = seen.spooled.load(Ordering::SeqCst);
    println!("{needed} bytes planned, {written} written, {spooled} of them to temporary files");
    assert!(1 << 20 < spooled && written <= needed, "{written} of {needed}, {spooled} of it spooled");
}

#[test]
fn what_frees_nothing_leaves_the_reserve_alone_and_loses_nothing() {
    type Work = fn(&Archive) -> Result<(), Error>;
    let works: [(&str, Work); 4] = [
        ("commit", |archive| commit(archive, BLOCKS).map(drop)),
        ("merge", |archive| archive.merge(&MergeOptions::default(), &()).map(drop)),
        ("reindex", |archive| archive.reindex(ReindexRule::Rebuild, None, &()).map(drop)),
        ("a rule", |archive| {
            archive.reindex(ReindexRule::Rule(DensityRule::Budget { bytes: 10 << 20 }), None, &()).map(drop)
        }),
    ];
    for (name, work) in works {
        let (disk, storage) = full_disk();
        let (archive, roots) = filled(&storage);
        disk.watch.full.store(true, Ordering::SeqCst);
        let error = work(&archive).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{name}: {error}");
        assert!(has_reserve(&storage), "{name}");
        drop(archive);
        let archive = Archive::open_on(Arc::clone(&storage), PATH, open_options()).unwrap();
        assert_sound(&storage, archive, 0, &roots);
        disk.watch.full.store(false, Ordering::SeqCst);
        let archive = Archive::open_on(Arc::clone(&storage), PATH, open_options()).unwrap();
        work(&archive).unwrap();
    }
}
