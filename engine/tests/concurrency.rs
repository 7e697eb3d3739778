//! Readers beside a writer: each sees one consistent block, whatever is emitted, merged, reindexed, pruned or unwound
//! meanwhile, and whatever happens to the thread that does it.
//!
//! Which block writes which key is a formula, and each value says its key and its block, so that readers check answers
//! without asking the writer.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore::storage::os::OsStorage;
use icecore::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile};
use icecore::testing::SimStorage;
use icecore::{
    Archive, Density, DensityRule, Durability, Error, ErrorKind, Maintenance, MaintenanceTask, MergeOptions,
    OpenOptions, Operation, Options, ProgressListener, Reader, ReindexRule, Scan, VerifyMode, View,
};
use oracle::Random;

const KEYS: u64 = 24;
const FIRST: u64 = 3;
const PATH: &str = "/archive";

fn key(i: u64) -> Vec<u8> {
    format!("key-{i:03}").into_bytes()
}

/// Whether block `height` writes key `i`, and whether it deletes it.
fn writes(i: u64, height: u64) -> Option<bool> {
    let mixed = Random(i * 1000 + height).next();
    mixed.is_multiple_of(5).then_some(mixed.is_multiple_of(35))
}

/// The block whose value of key `i` is seen at `at`.
fn seen(i: u64, at: u64) -> Option<u64> {
    let last = (FIRST..=at).rev().find(|height| writes(i, *height).is_some())?;
    (writes(i, last) == Some(false)).then_some(last)
}

/// `fork` tells the blocks of a height apart that was written again after unwinding.
fn value(i: u64, height: u64, fork: u64) -> Vec<u8> {
    let mut value = format!("{i} {height} {fork} ").into_bytes();
    value.resize(value.len() + ((i + height) % 90) as usize, b'.');
    value
}

fn block_of(value: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(value).unwrap();
    let mut parts = text.split(' ').map(str::parse);
    (parts.next().unwrap().unwrap(), parts.next().unwrap().unwrap())
}

fn write(archive: &Archive, height: u64, fork: u64) -> Result<(), Error> {
    let mut block = archive.begin(height)?;
    for i in 0..KEYS {
        match writes(i, height) {
            Some(true) => block.delete("kv", &key(i))?,
            Some(false) => block.put("kv", &key(i), &value(i, height, fork))?,
            None => {}
        }
    }
    block.commit().map(drop)
}

/// The root, and all keys with their values.
type Said = (icecore::Root, Vec<(Vec<u8>, Vec<u8>)>);

/// Everything a view says, checked against the formula.
fn check_view(view: &View) -> Said {
    let at = view.height();
    let entries = view.scan("kv", &Scan::all()).unwrap().map(Result::unwrap);
    let items: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
    let found: Vec<_> = items.iter().map(|(key, value)| (key.clone(), block_of(value))).collect();
    let expected: Vec<_> = (0..KEYS).filter_map(|i| Some((key(i), (i, seen(i, at)?)))).collect();
    assert_eq!(found, expected, "at {at}");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let many = view.multi_get("kv", &asked).unwrap();
    for (i, many) in many.iter().enumerate() {
        let one = view.get("kv", asked[i]).unwrap();
        assert_eq!(&one, many);
        assert_eq!(one.map(|value| block_of(&value).1), seen(i as u64, at), "key {i} at {at}");
    }
    assert_eq!(view.block().unwrap(), at);
    (view.root().unwrap(), items)
}

fn check_proof(view: &View, i: u64) {
    let value = view.get("kv", &key(i)).unwrap();
    let proof = view.prove("kv", &key(i)).unwrap();
    proof.verify(&view.root().unwrap(), "kv", &key(i), value.as_deref()).unwrap();
}

/// Reads until told to stop; keeps a pinned view for a while and asks it again.
fn keep_reading(reader: &Reader, seed: u64, done: &AtomicBool) -> u64 {
    let mut random = Random(seed);
    let (mut rounds, mut pinned) = (0, None);
    while !done.load(Ordering::Relaxed) {
        let Some((first, head)) = reader.range() else { continue };
        let at = first + random.below(head - first + 1);
        match reader.at(at) {
            Ok(view) => drop(check_view(&view)),
            // Pruned or unwound since the range was asked for.
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}"),
        }
        let view = reader.latest().unwrap();
        let said = check_view(&view);
        if rounds % 16 == 0 {
            check_proof(&view, random.below(KEYS));
            if let Some((view, said)) = pinned.replace((view, said)) {
                assert_eq!(check_view(&view), said, "a pinned view answers the same for ever");
            }
        }
        for change in reader.history("kv", &key(random.below(KEYS))).unwrap() {
            let change = change.unwrap();
            assert!(change.value.is_none_or(|value| block_of(&value).1 == change.block));
        }
        rounds += 1;
    }
    rounds
}

/// What the writer tells those who open the archive beside it.
#[derive(Default)]
struct Progress {
    done: AtomicBool,
    /// The newest block whose commit returned.
    committed: AtomicU64,
    /// Counts up before and after each unwinding.
    unwinds: AtomicU64,
}

/// Opens the archive again and again as another process would.
fn keep_opening(storage: &Arc<dyn Storage>, path: &Path, progress: &Progress) -> u64 {
    let mut opened = 0;
    while !progress.done.load(Ordering::SeqCst) {
        let unwinds = progress.unwinds.load(Ordering::SeqCst);
        let committed = progress.committed.load(Ordering::SeqCst);
        let reader = match Reader::open_on(Arc::clone(storage), path) {
            Ok(reader) => reader,
            Err(error) => panic!("opening beside a writer: {error} {error:?}"),
        };
        let steady = unwinds.is_multiple_of(2) && progress.unwinds.load(Ordering::SeqCst) == unwinds;
        assert!(!steady || reader.head() >= Some(committed), "{:?} below {committed}", reader.head());
        check_view(&reader.latest().unwrap());
        let (first, head) = reader.range().unwrap();
        check_view(&reader.at(first + (head - first) / 2).unwrap());
        opened += 1;
        if opened % 8 == 0 {
            let report = icecore::verify_on(Arc::clone(storage), path, VerifyMode::Full, &()).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }
    opened
}

/// Writes blocks, and now and then does everything else that an archive can do.
fn keep_writing(archive: &Archive, blocks: u64, progress: &Progress) {
    let mut head = archive.reader().head().unwrap();
    for round in 1..=blocks {
        head += 1;
        write(archive, head, round).unwrap();
        progress.committed.store(head, Ordering::SeqCst);
        if round % 23 == 0 {
            let back = 1 + round % 3;
            progress.unwinds.fetch_add(1, Ordering::SeqCst);
            head -= back;
            archive.unwind(head, &()).unwrap();
            progress.committed.store(head, Ordering::SeqCst);
            progress.unwinds.fetch_add(1, Ordering::SeqCst);
        }
        if round % 61 == 0 {
            let m = [16, 1, 64][(round / 61 % 3) as usize];
            let rule = DensityRule::Fixed(Density::new(m).unwrap());
            archive.reindex(ReindexRule::Rule(rule), None, &()).unwrap();
        }
        if round % 97 == 0 {
            archive.prune(head - 40, &()).unwrap();
        }
        if round % 131 == 0 {
            archive.merge(&MergeOptions::default(), &()).unwrap();
        }
    }
}

fn options() -> Options {
    Options::new().domain("kv").blocks_per_step(4).reorg_window(4)
}

/// All of the above at once.
fn run(storage: &Arc<dyn Storage>, path: &Path, blocks: u64) -> Archive {
    let open = OpenOptions::new().durability(Durability::Block).maintenance(Maintenance::Background);
    let archive = Archive::create_on(Arc::clone(storage), path, options(), open).unwrap();
    write(&archive, FIRST, 0).unwrap();
    let progress = Progress::default();
    progress.committed.store(FIRST, Ordering::SeqCst);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let (reader, done) = (archive.reader().clone(), &progress.done);
                scope.spawn(move || keep_reading(&reader, seed, done))
            })
            .collect();
        let opener = scope.spawn(|| keep_opening(storage, path, &progress));
        let writer = scope.spawn(|| keep_writing(&archive, blocks, &progress));
        let written = writer.join();
        progress.done.store(true, Ordering::SeqCst);
        let rounds: Vec<u64> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        println!("{rounds:?} rounds of reading, {} openings", opener.join().unwrap());
        written.unwrap();
    });
    archive
}

#[test]
fn readers_see_one_block_whatever_the_writer_does() {
    let disk = SimStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk);
    let archive = run(&storage, Path::new(PATH), 400);
    drop(archive);
    let report = icecore::verify_on(storage, PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

/// The names in a directory that are not among the archive's live files.
fn leftovers(dir: &Path, archive: &Archive) -> Vec<String> {
    let segments = archive.reader().segments().into_iter();
    let live: Vec<String> =
        segments.flat_map(|segment| segment.files.into_iter().chain(segment.block_index)).collect();
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| {
            !live.contains(name) && !["MANIFEST", "LOCK", "RESERVE", "wal"].contains(&name.as_str())
        })
        .collect()
}

#[test]
fn a_real_disk_shows_the_same_and_is_tidy_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive");
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    let archive = run(&storage, &path, 250);
    assert!(matches!(Archive::open(&path, OpenOptions::new()), Err(Error::Locked { .. })), "one writer");
    archive.emit().unwrap();
    archive.merge(&MergeOptions::default(), &()).unwrap();
    archive.reindex(ReindexRule::Current, None, &()).unwrap();
    assert_eq!(leftovers(&path, &archive), Vec::<String>::new(), "nobody pins anything");

    let view = archive.reader().latest().unwrap();
    let said = check_view(&view);
    archive.reindex(ReindexRule::Rebuild, None, &()).unwrap();
    archive.prune(view.height(), &()).unwrap();
    assert!(!leftovers(&path, &archive).is_empty(), "the view pins files");
    assert_eq!(check_view(&view), said);
    drop(view);
    assert_eq!(leftovers(&path, &archive), Vec::<String>::new(), "they go with the last pin");
    archive.close().unwrap();
    drop(Archive::open(&path, OpenOptions::new()).unwrap());
}

/// A view may outlive its writer; the next writer may use the name of a file that the view still pins.
#[test]
fn a_view_that_outlives_its_writer_removes_nothing_of_the_next() {
    let disk = SimStorage::new();
    let storage = || -> Arc<dyn Storage> { Arc::new(disk.clone()) };
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(storage(), PATH, options().reorg_window(0), open).unwrap();
    (FIRST..24).for_each(|height| write(&archive, height, 0).unwrap());
    let view = archive.reader().at(10).unwrap();
    archive.merge(&MergeOptions::default(), &()).unwrap();
    archive.close().unwrap();

    let archive = Archive::open_on(storage(), PATH, open).unwrap();
    archive.unwind(FIRST, &()).unwrap();
    (FIRST + 1..24).for_each(|height| write(&archive, height, 1).unwrap());
    check_view(&view);
    drop(view);
    let report = icecore::verify_on(storage(), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    check_view(&Reader::open_on(storage(), PATH).unwrap().latest().unwrap());
}

/// What happens to whoever creates a `.kv`, or between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    NoSpace,
    Panic,
    /// Somebody creates the archive just before its directory is listed.
    Creation,
}

/// A disk on which no segment can be created, or one that changes between two calls.
#[derive(Debug)]
struct Troubled(SimStorage, Trouble);

impl Storage for Troubled {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        self.0.create_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Option<Vec<String>>, Error> {
        if self.1 == Trouble::Creation && self.0.list(dir)?.is_none() {
            let storage = Arc::new(self.0.clone());
            let archive = Archive::create_on(storage, PATH, options(), OpenOptions::new())?;
            write(&archive, FIRST, 0)?;
        }
        self.0.list(dir)
    }
    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        self.0.len(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        if path.extension().is_some_and(|kind| kind == "kv") {
            assert!(self.1 != Trouble::Panic, "the trouble that the test is about");
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(Error::Io { operation: Operation::Create, path: path.to_owned(), source });
        }
        self.0.create(path)
    }
    fn append(&self, path: &Path, unsure: std::ops::Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        self.0.append(path, unsure)
    }
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        self.0.read(path)
    }
    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        self.0.open(path)
    }
    fn map(&self, path: &Path, access: Access) -> Result<Mapping, Error> {
        self.0.map(path, access)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<bool, Error> {
        self.0.link(from, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.0.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        self.0.sync_dir(dir)
    }
    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        self.0.spool(dir)
    }
    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        self.0.lock(dir)
    }
    fn is_locked(&self, dir: &Path) -> Result<bool, Error> {
        self.0.is_locked(dir)
    }
}

#[test]
fn a_writer_is_told_when_the_background_thread_fails() {
    for trouble in [Trouble::NoSpace, Trouble::Panic] {
        let disk = SimStorage::new();
        let storage: Arc<dyn Storage> = Arc::new(Troubled(disk.clone(), trouble));
        let archive = Archive::create_on(storage, PATH, options(), OpenOptions::new()).unwrap();
        let refused = (FIRST..1000).find_map(|height| write(&archive, height, 0).err());
        let head = archive.reader().head().unwrap();
        check_view(&archive.reader().latest().unwrap());
        if trouble == Trouble::Panic {
            assert!(matches!(refused, Some(Error::Poisoned { .. })), "{refused:?}");
            assert!(matches!(archive.close(), Err(Error::Poisoned { .. })), "close says so");
        } else {
            let refused = refused.unwrap();
            assert!(matches!(refused, Error::HeldUp { .. }), "{refused:?}");
            assert_eq!(refused.kind(), ErrorKind::NoSpace);
            let failures = archive.reader().stats().failures;
            assert_eq!(failures[0].task, MaintenanceTask::Emission, "{failures:?}");
            archive.close().unwrap();
        }

        let archive = Archive::open_on(Arc::new(disk), PATH, OpenOptions::new()).unwrap();
        assert_eq!(archive.reader().head(), Some(head), "{trouble:?}: nothing committed is lost");
        write(&archive, head + 1, 0).unwrap();
        archive.emit().unwrap();
        check_view(&archive.reader().latest().unwrap());
    }
}

#[test]
fn a_reader_finds_an_archive_that_is_created_while_it_opens() {
    let storage: Arc<dyn Storage> = Arc::new(Troubled(SimStorage::new(), Trouble::Creation));
    let reader = Reader::open_on(storage, PATH).unwrap();
    assert_eq!(reader.head(), Some(FIRST));
}

#[test]
fn dropping_never_waits_for_ever() {
    for blocks in [1, 5, 30, 90] {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
        let archive = Archive::create_on(storage, PATH, options(), OpenOptions::new()).unwrap();
        (FIRST..FIRST + blocks).for_each(|height| write(&archive, height, 0).unwrap());
        let reader = archive.reader().clone();
        drop(archive);
        check_view(&reader.latest().unwrap());
    }
}

/// Holds a merge up after every some thousand entries until the writer is as far as it said it would be.
struct HeldUp {
    rounds: AtomicU64,
    written: AtomicU64,
}

/// Blocks that are written in each round: as many steps as may wait for emission.
const BLOCKS_A_ROUND: u64 = 4;

impl ProgressListener for HeldUp {
    fn advance(&self, _: u64) {
        let wanted = BLOCKS_A_ROUND * (1 + self.rounds.fetch_add(1, Ordering::SeqCst));
        let begun = Instant::now();
        while self.written.load(Ordering::SeqCst) < wanted {
            assert!(begun.elapsed() < Duration::from_secs(20), "{wanted} blocks wait for the merge to end");
            thread::yield_now();
        }
    }
}

#[test]
fn commits_do_not_wait_for_a_merge() {
    const LARGE: u64 = 40_000;
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new());
    let options = Options::new().domain("d").blocks_per_step(1).reorg_window(0);
    let emit_only = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_on(Arc::clone(&storage), PATH, options, emit_only).unwrap();
    let write = |archive: &Archive, height: u64, keys: u64| {
        let mut block = archive.begin(height).unwrap();
        (0..keys).for_each(|i| block.put("d", &key(i), &height.to_be_bytes()).unwrap());
        block.commit().unwrap();
    };
    for height in 2..5 {
        write(&archive, height, if height < 4 { LARGE } else { 1 });
        archive.emit().unwrap();
    }
    archive.close().unwrap();

    let archive = Archive::open_on(storage, PATH, OpenOptions::new()).unwrap();
    let held_up = HeldUp { rounds: AtomicU64::new(0), written: AtomicU64::new(0) };
    let only = MergeOptions::new().domain(Some("d"));
    thread::scope(|scope| {
        let merging = scope.spawn(|| archive.merge(&only, &held_up));
        while held_up.rounds.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        for height in 5..5 + 8 * BLOCKS_A_ROUND {
            write(&archive, height, 1);
            held_up.written.fetch_add(1, Ordering::SeqCst);
        }
        held_up.written.store(u64::MAX, Ordering::SeqCst);
        assert!(merging.join().unwrap().unwrap() > 0);
    });
    assert!(held_up.rounds.load(Ordering::SeqCst) > 2 * LARGE / (1 << 14));
    let view = archive.reader().at(3).unwrap();
    assert_eq!(view.get("d", &key(LARGE - 1)).unwrap(), Some(3u64.to_be_bytes().to_vec()));
    assert_eq!(archive.reader().latest().unwrap().get("d", &key(0)).unwrap().map(|v| v.len()), Some(8));
}
