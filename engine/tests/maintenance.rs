//! Emission, merging, reindexing, pruning and unwinding: what they leave, what they cost, and what follows when they fail.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Change, Error, ErrorKind, Maintenance, MaintenanceTask, MergeOptions, OpenOptions, Operation,
    Options, ProgressListener, Reader, ReindexRule, VerifyMode,
};
use watch::{Watch, Watched, no_space};

const PATH: &str = "/archive";

fn commit(archive: &Archive, height: u64, keys: &[(&str, Option<u64>)]) -> Result<icecore::Root, Error> {
    let mut block = archive.begin(height)?;
    for (key, value) in keys {
        match value {
            Some(value) => block.put("kv", key.as_bytes(), &value.to_be_bytes())?,
            None => block.delete("kv", key.as_bytes())?,
        }
    }
    block.commit()
}

fn options(blocks_per_step: u64) -> Options {
    Options::new().domain("kv").blocks_per_step(blocks_per_step).reorg_window(0)
}

fn emit_only() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly)
}

fn create(storage: &Arc<dyn Storage>, options: Options, open: OpenOptions) -> Archive {
    Archive::create_on(Arc::clone(storage), PATH, options, open).unwrap()
}

fn disk() -> Arc<dyn Storage> {
    Arc::new(SimStorage::new())
}

fn assert_sound(storage: &Arc<dyn Storage>) {
    let report = icecore::verify_on(Arc::clone(storage), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited for: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_floor_of_a_prune_is_a_block() {
    let storage = disk();
    let archive = create(&storage, options(4), emit_only());
    for height in [3, 5, 20, 30] {
        commit(&archive, height, &[("a", Some(height))]).unwrap();
    }
    archive.prune(15, &()).unwrap();
    assert_eq!(archive.reader().range(), Some((5, 30)));
    archive.unwind(15, &()).unwrap();
    assert_eq!(archive.reader().range(), Some((5, 5)));
    commit(&archive, 7, &[("b", Some(7))]).unwrap();
    commit(&archive, 9, &[("b", Some(9))]).unwrap();
    for (at, block) in [(5, 5), (6, 5), (7, 7), (8, 7), (9, 9)] {
        assert_eq!(archive.at(at).unwrap().block().unwrap(), block);
        assert_eq!(archive.at(at).unwrap().get("kv", b"a").unwrap(), Some(5u64.to_be_bytes().to_vec()));
    }
    drop(archive);
    let archive = Archive::open_on(Arc::clone(&storage), PATH, emit_only()).unwrap();
    assert_eq!(archive.reader().range(), Some((5, 9)));
    archive.unwind(7, &()).unwrap();
    assert_eq!(archive.reader().range(), Some((5, 7)));
    assert_sound(&storage);
}

/// A closed archive of forty blocks, a segment for each step of four.
fn in_steps_of_four() -> (SimStorage, Arc<dyn Storage>) {
    let disk = SimStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let archive = create(&storage, options(4), emit_only());
    for height in 0..40 {
        commit(&archive, height, &[("a", Some(height))]).unwrap();
        archive.emit().unwrap();
    }
    archive.close().unwrap();
    (disk, storage)
}

#[test]
fn a_prune_that_cannot_open_a_segment_gives_no_history_up() {
    let (disk, storage) = in_steps_of_four();
    let (kv, _) =
        disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "kv")).unwrap();
    disk.truncate(&kv, 100);
    let archive = Archive::open_on(Arc::clone(&storage), PATH, emit_only()).unwrap();
    let error = archive.prune(20, &()).unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if *path == kv), "{error}");
    assert_eq!(archive.reader().range(), Some((0, 39)));
}

#[test]
fn a_prune_does_not_need_what_it_does_not_read() {
    let (disk, storage) = in_steps_of_four();
    let kvs = disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "kv"));
    let above = kvs.map(|(path, _)| path).filter(|path| path.to_str().unwrap().contains("/kv."));
    let last = above.max_by_key(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.split(['.', '-']).nth(1).unwrap().parse::<u64>().unwrap()
    });
    disk.truncate(&last.unwrap(), 100);
    let archive = Archive::open_on(Arc::clone(&storage), PATH, emit_only()).unwrap();
    archive.prune(8, &()).unwrap();
    assert_eq!(archive.reader().range(), Some((8, 39)));
}

/// The number of blocks that the segments have a root of.
fn roots(reader: &Reader) -> u64 {
    reader.segments().iter().filter(|segment| segment.domain == "_roots").map(|segment| segment.entries).sum()
}

#[test]
fn unwinding_to_the_step_of_the_floor_brings_no_pruned_block_back() {
    let storage = disk();
    let archive = create(&storage, options(10), emit_only());
    let write = |height| {
        let (own, tens) = (format!("key {height}"), format!("tens {}", height % 10));
        commit(&archive, height, &[(&own, Some(height)), (&tens, Some(height)), ("gone", None)]).unwrap()
    };
    let before: Vec<_> = (1..40).map(write).collect();
    archive.prune(15, &()).unwrap();
    archive.unwind(16, &()).unwrap();
    assert_eq!(archive.reader().range(), Some((15, 16)));
    let again: Vec<_> = (17..40).map(write).collect();
    assert_eq!(again, before[16..], "the state is what it was");
    assert_eq!(roots(archive.reader()), 25);
    for height in 1..=15 {
        let view = archive.at(15).unwrap();
        let found = view.get("kv", format!("key {height}").as_bytes()).unwrap();
        assert_eq!(found, Some(u64::to_be_bytes(height).to_vec()));
        assert_eq!(view.root().unwrap(), before[14]);
    }
    drop(archive);
    assert_sound(&storage);
}

#[test]
fn history_ends_where_reading_ends() {
    // The versions in memory, in a segment that was pruned, and in one that was emitted after.
    for (reorg_window, emitted_later) in [(100, false), (0, false), (20, true)] {
        let storage = disk();
        let archive = create(&storage, options(10).reorg_window(reorg_window), emit_only());
        for height in 1..=30 {
            let gone = [("gone", (height == 3).then_some(3)), ("a", Some(height)), ("once", Some(1))];
            let changed = if height <= 4 { &gone[..] } else { &gone[1..2] };
            commit(&archive, height, changed).unwrap();
        }
        archive.prune(15, &()).unwrap();
        if emitted_later {
            (31..60).for_each(|height| assert!(commit(&archive, height, &[]).is_ok()));
        }
        let blocks = |key: &str| -> Vec<u64> {
            let found: Result<Vec<Change>, _> = archive.history("kv", key.as_bytes()).unwrap().collect();
            let found = found.unwrap();
            let found: Vec<u64> = found.iter().map(|change| change.block).collect();
            let view = archive.reader().latest().unwrap();
            let listed: Result<Vec<u64>, _> = view.change_blocks("kv", key.as_bytes()).unwrap().collect();
            assert_eq!(listed.unwrap(), found);
            found
        };
        assert_eq!(blocks("a"), (15..=30).rev().collect::<Vec<_>>());
        assert_eq!(blocks("once"), [4], "what the lowest block sees");
        assert_eq!(blocks("gone"), [0; 0], "deleted before the lowest block");
    }
}

/// Small steps are emitted this many at a time.
const EMITTED_TOGETHER: u64 = 16;

/// Refuses to create segments of more steps than an emission makes, or any, while it is told to.
struct Full {
    merges: AtomicBool,
    emissions: AtomicBool,
}

impl Watch for Full {
    fn before(&self, operation: Operation, path: &Path) -> Result<(), Error> {
        if operation != Operation::Create || path.extension().is_none_or(|kind| kind != "kv") {
            return Ok(());
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let (from, to) = name.split('.').nth(1).unwrap().split_once('-').unwrap();
        let is_merge = to.parse::<u64>().unwrap() - from.parse::<u64>().unwrap() > EMITTED_TOGETHER;
        let full = if is_merge { &self.merges } else { &self.emissions };
        if full.load(Ordering::SeqCst) { Err(no_space(operation, path)) } else { Ok(()) }
    }
}

fn full(merges: bool, emissions: bool) -> Arc<Watched<SimStorage, Full>> {
    let watch = Full { merges: merges.into(), emissions: emissions.into() };
    Watched::new(SimStorage::new(), watch)
}

/// Commits what one emission takes, and waits for it.
fn commit_an_emission(archive: &Archive) {
    let from = archive.reader().head().map_or(0, |head| head + 1);
    for height in from..from + EMITTED_TOGETHER {
        commit(archive, height, &[("a", Some(height))]).unwrap();
    }
    until("emission", || archive.reader().stats().steps_in_memory == 0);
}

#[test]
fn a_merge_that_fails_in_the_background_holds_nothing_up() {
    let disk = full(true, false);
    let storage: Arc<dyn Storage> = disk.clone();
    let archive = create(&storage, options(1), OpenOptions::new());
    (0..15).for_each(|_| commit_an_emission(&archive));
    until("attempts", || archive.reader().stats().failures.iter().any(|failure| failure.attempts > 10));
    let failures = archive.reader().stats().failures;
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((failure.task, failure.kind), (MaintenanceTask::Merge, ErrorKind::NoSpace), "{failure:?}");
    assert!(failure.since_block < Some(3 * EMITTED_TOGETHER), "{failure:?}");
    assert!(failure.reason.contains("kv.0-") || failure.reason.contains("_roots.0-"), "{failure:?}");
    disk.watch.merges.store(false, Ordering::SeqCst);
    commit_an_emission(&archive);
    until("merges", || archive.reader().stats().segments < 10);
    until("success", || archive.reader().stats().failures.is_empty());
    archive.close().unwrap();
    assert_sound(&storage);
}

#[test]
fn a_merge_that_failed_is_retried_without_a_commit() {
    let disk = full(true, false);
    let storage: Arc<dyn Storage> = disk.clone();
    let archive = create(&storage, options(1), OpenOptions::new());
    (0..2).for_each(|_| commit_an_emission(&archive));
    until("a failure", || !archive.reader().stats().failures.is_empty());
    disk.watch.merges.store(false, Ordering::SeqCst);
    until("a merge", || archive.reader().stats().segments == 2);
    until("success", || archive.reader().stats().failures.is_empty());
}

#[test]
fn a_failed_emission_holds_commits_up_and_poisons_nothing() {
    for open in [OpenOptions::new(), emit_only(), OpenOptions::new().maintenance(Maintenance::Inline)] {
        let disk = full(true, true);
        let storage: Arc<dyn Storage> = disk.clone();
        let archive = create(&storage, options(1), open);
        let refused = (0..1000).find_map(|height| Some((height, commit(&archive, height, &[]).err()?)));
        let (height, refused) = refused.expect("memory is not without bounds");
        assert!(matches!(refused, Error::HeldUp { .. }), "{refused:?}");
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        assert_eq!(archive.reader().head(), Some(height - 1), "not committed");
        let failures = archive.reader().stats().failures;
        assert!(failures.iter().any(|failure| failure.task == MaintenanceTask::Emission), "{failures:?}");
        disk.watch.emissions.store(false, Ordering::SeqCst);
        disk.watch.merges.store(false, Ordering::SeqCst);
        (height..height + 50).for_each(|height| assert!(commit(&archive, height, &[]).is_ok()));
        until("emission", || archive.emit().is_ok() && archive.reader().stats().steps_in_memory == 0);
        assert!(archive.reader().stats().failures.is_empty());
        archive.close().unwrap();
        assert_sound(&storage);
    }
}

#[test]
fn merges_and_reindexes_that_a_failed_emission_stops_say_so() {
    type Work = fn(&Archive) -> Result<(), Error>;
    let works: [Work; 2] = [
        |archive| archive.merge(&MergeOptions::default(), &()).map(drop),
        |archive| archive.reindex(ReindexRule::Rebuild, None, &()).map(drop),
    ];
    for work in works {
        let disk = full(true, false);
        let storage: Arc<dyn Storage> = disk.clone();
        let archive = create(&storage, options(1), emit_only());
        (0..3).for_each(|_| commit_an_emission(&archive));
        disk.watch.emissions.store(true, Ordering::SeqCst);
        let next = archive.reader().head().unwrap() + 1;
        let refused = (next..next + 1000).find_map(|height| commit(&archive, height, &[]).err());
        assert!(matches!(refused, Some(Error::HeldUp { .. })), "{refused:?}");
        let error = work(&archive).expect_err("the disk is full");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        disk.watch.emissions.store(false, Ordering::SeqCst);
        disk.watch.merges.store(false, Ordering::SeqCst);
        work(&archive).unwrap();
        archive.close().unwrap();
        assert_sound(&storage);
    }
}

#[test]
fn a_commit_that_returns_ok_is_committed_whatever_follows_it() {
    let disk = full(true, true);
    let storage: Arc<dyn Storage> = disk.clone();
    let archive = create(&storage, options(2), OpenOptions::new().maintenance(Maintenance::Inline));
    for height in 0..EMITTED_TOGETHER {
        let root = commit(&archive, height, &[("a", Some(height))]).unwrap();
        assert_eq!(archive.root(height).unwrap(), root);
    }
    assert_eq!(archive.reader().stats().failures[0].task, MaintenanceTask::Emission);
    assert_eq!(archive.maintain(&()).unwrap_err().kind(), ErrorKind::NoSpace);
    disk.watch.emissions.store(false, Ordering::SeqCst);
    archive.maintain(&()).unwrap();
    assert!(archive.reader().stats().failures.is_empty());
    assert_eq!(archive.reader().stats().steps_in_memory, 0);
}

/// Holds long work up after every some thousand entries until more blocks were committed.
struct HeldUp<'a> {
    written: &'a AtomicU64,
    rounds: AtomicU64,
}

impl ProgressListener for HeldUp<'_> {
    fn advance(&self, _: u64) {
        let wanted = 8 * (1 + self.rounds.fetch_add(1, Ordering::SeqCst));
        until("commits beside long work", || self.written.load(Ordering::SeqCst) >= wanted.min(80));
    }
}

/// 40,000 keys in each of some steps; then `work` beside commits.
fn commits_go_on_beside(work: impl Fn(&Archive, &dyn ProgressListener) + Sync, open: OpenOptions) -> Archive {
    const LARGE: u64 = 40_000;
    let storage = disk();
    let archive = create(&storage, options(1), emit_only());
    for height in 1..6 {
        let mut block = archive.begin(height).unwrap();
        (0..LARGE).for_each(|i| block.put("kv", &i.to_be_bytes(), &height.to_be_bytes()).unwrap());
        block.commit().unwrap();
    }
    archive.merge(&MergeOptions::default(), &()).unwrap();
    drop(archive);
    let archive = Archive::open_on(Arc::clone(&storage), PATH, open).unwrap();
    let written = AtomicU64::new(0);
    let held_up = HeldUp { written: &written, rounds: AtomicU64::new(0) };
    thread::scope(|scope| {
        let working = scope.spawn(|| work(&archive, &held_up));
        until("the work", || held_up.rounds.load(Ordering::SeqCst) > 0);
        for height in 6..6 + 80 {
            commit(&archive, height, &[("a", Some(height))]).unwrap();
            written.fetch_add(1, Ordering::SeqCst);
        }
        working.join().unwrap();
    });
    assert!(held_up.rounds.load(Ordering::SeqCst) > 4);
    archive
}

#[test]
fn commits_do_not_wait_for_a_prune() {
    for open in [OpenOptions::new(), emit_only()] {
        let archive = commits_go_on_beside(|archive, listener| archive.prune(5, listener).unwrap(), open);
        assert_eq!(archive.reader().range(), Some((5, 85)));
        let old = archive.at(5).unwrap().get("kv", &7u64.to_be_bytes()).unwrap();
        assert_eq!(old, Some(5u64.to_be_bytes().to_vec()));
        assert_eq!(archive.history("kv", &7u64.to_be_bytes()).unwrap().count(), 1);
    }
}

#[test]
fn commits_do_not_wait_for_a_deep_unwind() {
    let archive =
        commits_go_on_beside(|archive, listener| archive.unwind(2, listener).unwrap(), OpenOptions::new());
    assert_eq!(
        archive.at(2).unwrap().get("kv", &7u64.to_be_bytes()).unwrap(),
        Some(2u64.to_be_bytes().to_vec())
    );
}

#[test]
fn fresh_segments_are_merged_beside_long_work() {
    let archive =
        commits_go_on_beside(|archive, listener| archive.prune(5, listener).unwrap(), OpenOptions::new());
    until("merges", || archive.reader().stats().segments < 30);
}

#[test]
fn segments_stay_few_at_full_speed() {
    let storage = disk();
    let archive = create(&storage, options(1), OpenOptions::new());
    let mut most = 0;
    for height in 0..3000 {
        commit(&archive, height, &[("a", Some(height)), ("b", Some(height))]).unwrap();
        most = most.max(archive.reader().stats().segments);
    }
    assert!(most <= 2 * 90, "{most} segments in two domains");
    archive.maintain(&()).unwrap();
    archive.close().unwrap();
    assert_sound(&storage);
}

#[test]
fn merges_without_room_are_left_out_and_said_so() {
    struct Little(AtomicU64);
    impl Watch for Little {
        fn before(&self, _: Operation, _: &Path) -> Result<(), Error> {
            Ok(())
        }
        fn free_space(&self) -> Option<u64> {
            Some(self.0.load(Ordering::SeqCst))
        }
    }
    let disk = Watched::new(SimStorage::new(), Little(AtomicU64::new(1000)));
    let storage: Arc<dyn Storage> = disk.clone();
    let archive = create(&storage, options(1), OpenOptions::new().maintenance(Maintenance::Inline));
    for height in 0..8 * EMITTED_TOGETHER {
        commit(&archive, height, &[("a", Some(height))]).unwrap();
    }
    let stats = archive.reader().stats();
    assert_eq!((stats.segments, stats.failures[0].task), (16, MaintenanceTask::Merge));
    let error = archive.merge(&MergeOptions::default(), &()).unwrap_err();
    assert!(matches!(error, Error::NoRoom { needed, free: 1000, .. } if needed > 1000), "{error}");
    disk.watch.0.store(u64::MAX, Ordering::SeqCst);
    assert_eq!(archive.merge(&MergeOptions::default(), &()).unwrap(), 2);
}

#[test]
fn syncs_of_a_small_step_are_a_handful() {
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let count = move |operation: Operation, _: &Path| {
        counted.fetch_add(u64::from(operation == Operation::Sync), Ordering::SeqCst);
        // A sync of a disk takes its time, while blocks come in.
        if operation == Operation::Sync {
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    };
    let storage: Arc<dyn Storage> = Watched::new(SimStorage::new(), count);
    // One emission of one step: three files of roots and four of the domain, their names, the manifest and its name.
    let archive = create(&storage, options(1), emit_only());
    commit(&archive, 0, &[("a", Some(0))]).unwrap();
    let before = syncs.load(Ordering::SeqCst);
    archive.emit().unwrap();
    assert_eq!(syncs.load(Ordering::SeqCst) - before, 7 + 3);
    drop(archive);
    // Whoever emits, at whatever speed, and although the first step is out of line with those that go together: steps share all
    // but the sync of their block.
    let mut height = 1;
    for maintenance in [Maintenance::EmitOnly, Maintenance::Inline, Maintenance::Background] {
        let open = OpenOptions::new().maintenance(maintenance);
        let archive = Archive::open_on(Arc::clone(&storage), PATH, open).unwrap();
        let before = syncs.load(Ordering::SeqCst);
        for _ in 0..256 {
            commit(&archive, height, &[("a", Some(height))]).unwrap();
            height += 1;
            if maintenance == Maintenance::Background {
                until("emission", || archive.reader().stats().steps_in_memory < EMITTED_TOGETHER);
            }
        }
        archive.close().unwrap();
        let each = (syncs.load(Ordering::SeqCst) - before) as f64 / 256.0;
        assert!(each < 6.0, "{maintenance:?}: {each} syncs a block");
    }
}

#[test]
fn small_steps_wait_for_company_and_are_emitted_on_demand() {
    for maintenance in [Maintenance::EmitOnly, Maintenance::Inline, Maintenance::Background] {
        let storage = disk();
        let archive = create(&storage, options(1), OpenOptions::new().maintenance(maintenance));
        (0..EMITTED_TOGETHER - 1).for_each(|height| assert!(commit(&archive, height, &[]).is_ok()));
        assert_eq!(archive.reader().stats().steps_in_memory, EMITTED_TOGETHER - 1);
        archive.emit().unwrap();
        assert_eq!(archive.reader().stats().steps_in_memory, 0);
        let mut block = archive.begin(EMITTED_TOGETHER).unwrap();
        block.put("kv", b"large", &vec![7; 1 << 20]).unwrap();
        block.commit().unwrap();
        until("emission of a large step", || archive.reader().stats().steps_in_memory == 0);
    }
}

/// What happened to which file, in order.
type Seen = Arc<Mutex<Vec<(Operation, PathBuf)>>>;

fn record(seen: &Seen) -> impl Fn(Operation, &Path) -> Result<(), Error> + Send + Sync + 'static {
    let seen = Arc::clone(seen);
    move |operation, path| {
        seen.lock().unwrap().push((operation, path.to_owned()));
        Ok(())
    }
}

#[test]
fn a_named_file_is_never_written_again() {
    let disk = SimStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let archive = create(&storage, options(1), emit_only());
    for height in 0..3 {
        commit(&archive, height, &[("a", Some(height))]).unwrap();
        archive.emit().unwrap();
    }
    drop(archive);
    let lost = [Path::new(PATH).join("kv.1-2.bt"), Path::new(PATH).join("kv.2-3.kvei")];
    lost.iter().for_each(|path| disk.lose(path));
    let seen = Seen::default();
    let watched: Arc<dyn Storage> = Watched::new(disk, record(&seen));
    let archive = Archive::open_on(Arc::clone(&watched), PATH, emit_only()).unwrap();
    assert_eq!(archive.repairs().len(), 2);
    let created = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|(operation, _)| *operation == Operation::Create)
        .cloned()
        .collect::<Vec<_>>();
    assert!(created.iter().all(|(_, path)| !lost.contains(path)), "{created:?}");
    let files: Vec<_> = archive.reader().segments().into_iter().flat_map(|segment| segment.files).collect();
    assert!(
        files.contains(&"kv.1-2.1.bt".to_owned()) && files.contains(&"kv.2-3.1.kvei".to_owned()),
        "{files:?}"
    );
    drop(archive);
    assert_sound(&storage);
}

#[test]
fn a_log_file_is_named_empty_or_whole() {
    let seen = Seen::default();
    let storage: Arc<dyn Storage> = Watched::new(SimStorage::new(), record(&seen));
    let archive = create(&storage, options(4), emit_only());
    (0..20).for_each(|height| assert!(commit(&archive, height, &[("a", Some(height))]).is_ok()));
    archive.unwind(9, &()).unwrap();
    commit(&archive, 10, &[]).unwrap();
    let seen = seen.lock().unwrap();
    let is_log = |path: &Path| path.extension().is_some_and(|kind| kind == "wal");
    let created = seen.iter().filter(|(operation, path)| *operation == Operation::Create && is_log(path));
    let mut named = 0;
    for (_, path) in created.skip(1) {
        let of_file: Vec<_> = seen
            .iter()
            .filter(|(_, other)| other == path || other.ends_with("MANIFEST"))
            .map(|(operation, _)| *operation)
            .skip_while(|operation| *operation != Operation::Create)
            .collect();
        let rename = of_file.iter().position(|operation| *operation == Operation::Rename).unwrap();
        assert_eq!(of_file[rename - 1], Operation::Sync, "{path:?}: {of_file:?}");
        named += 1;
    }
    assert!(named >= 4, "{named}");
}
