//! Readers of another process: what they see when they open, what they see when they refresh, and that a view stays what it
//! was whatever the writer does to the files.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use icecore::storage::os::OsStorage;
use icecore::testing::SimStorage;
use icecore::{Archive, Durability, ErrorKind, Maintenance, OpenOptions, Options, Reader, Scan, View};
use oracle::script::{PATH, options, storage};
use oracle::{DOMAINS, Oracle, Random, commit};

const MODES: [Durability; 3] = [Durability::Block, Durability::Group { blocks: 5 }, Durability::Relaxed];

fn with(durability: Durability) -> OpenOptions {
    OpenOptions::new().durability(durability).maintenance(Maintenance::EmitOnly)
}

fn open(disk: &SimStorage, durability: Durability) -> Archive {
    Archive::open_on(storage(disk), PATH, with(durability)).unwrap()
}

fn create(disk: &SimStorage, durability: Durability) -> Archive {
    Archive::create_on(storage(disk), PATH, options(), with(durability)).unwrap()
}

fn reader(disk: &SimStorage) -> Reader {
    Reader::open_on(storage(disk), PATH).unwrap()
}

#[test]
fn a_reader_sees_every_committed_block_in_every_mode() {
    for durability in MODES {
        let disk = SimStorage::new();
        let archive = create(&disk, durability);
        let (mut oracle, mut random) = (Oracle::default(), Random(1));
        let following = reader(&disk);
        for height in 5..40 {
            commit(&archive, &mut oracle, height, &random.changes(5));
            assert!(following.refresh().unwrap(), "a block is new");
            oracle.check(&following);
            oracle.check(&reader(&disk));
            assert!(!following.refresh().unwrap(), "nothing is new");
            // Killed at this moment, with no writer left.
            oracle.check(&reader(&disk.kill_clone()));
        }
    }
}

#[test]
fn a_damaged_last_mark_hides_no_block() {
    let disk = SimStorage::new();
    let archive = create(&disk, Durability::Relaxed);
    let (mut oracle, mut random) = (Oracle::default(), Random(2));
    for height in 1..4 {
        commit(&archive, &mut oracle, height, &random.changes(5));
    }
    archive.close().unwrap();
    let (log, len) =
        disk.files().into_iter().rfind(|(path, _)| path.ends_with("0000000000000001.wal")).unwrap();
    disk.corrupt(&log, len - 1, 0x10);
    oracle.check(&reader(&disk));
    let report = icecore::verify_on(storage(&disk), PATH, icecore::VerifyMode::Fast, &()).unwrap();
    assert!(report.log_tail.is_some(), "the torn mark is told of");
}

#[test]
fn a_power_loss_in_block_mode_hides_no_acknowledged_block_from_readers() {
    let mut shown = 0;
    for seed in 0..200 {
        let disk = SimStorage::new();
        let archive = create(&disk, Durability::Block);
        let (mut oracle, mut random) = (Oracle::default(), Random(seed));
        for height in 1..4 + seed % 13 {
            commit(&archive, &mut oracle, height, &random.changes(5));
        }
        let after = disk.crash_clone(seed);
        let reader = reader(&after);
        assert_eq!(reader.head(), oracle.head(), "seed {seed}");
        oracle.check(&reader);
        shown += 1;
    }
    assert_eq!(shown, 200);
}

/// What a view says of everything, in its own words.
fn said(view: &View) -> String {
    let mut said = format!("{:?} {:?}", view.block().unwrap(), view.root().unwrap());
    for domain in DOMAINS {
        let entries: Vec<_> = view.scan(domain, &Scan::all()).unwrap().map(Result::unwrap).collect();
        let keys: Vec<&[u8]> = entries.iter().map(|entry| &entry.key[..]).collect();
        let values = view.multi_get(domain, &keys).unwrap();
        let one_by_one: Vec<_> = keys.iter().map(|key| view.get(domain, key).unwrap()).collect();
        assert_eq!(values, one_by_one);
        write!(said, "{entries:?} {values:?}").unwrap();
    }
    said
}

#[test]
fn views_of_another_process_stay_what_they_were() {
    let disk = SimStorage::new();
    let archive = create(&disk, Durability::Group { blocks: 3 });
    let (mut oracle, mut random) = (Oracle::default(), Random(3));
    let following = reader(&disk);
    let mut pinned: Vec<(View, String)> = Vec::new();
    let mut untouched: Vec<(View, View)> = Vec::new();
    let mut height = 4;
    for round in 0..160_u64 {
        match round % 16 {
            7 => drop(archive.merge(&icecore::MergeOptions::default(), &()).unwrap()),
            9 if height > 30 => {
                let (first, head) = archive.reader().range().unwrap();
                let before = first + (head - first) / 3;
                archive.prune(before, &()).unwrap();
            }
            11 => {
                let m = icecore::Density::new([1, 16, 256][(round / 16 % 3) as usize]).unwrap();
                let rule = icecore::ReindexRule::Rule(icecore::DensityRule::Fixed(m));
                archive.reindex(rule, None, &()).unwrap();
            }
            13 | 15 => {
                let (first, head) = archive.reader().range().unwrap();
                let to = first + random.below(head - first + 1);
                archive.unwind(to, &()).unwrap();
                height = archive.reader().head().unwrap();
            }
            _ => {
                height += 1 + random.below(2);
                commit(&archive, &mut oracle, height, &random.changes(8));
            }
        }
        following.refresh().unwrap();
        assert_eq!(following.range(), archive.reader().range(), "round {round}");
        let (first, head) = following.range().unwrap();
        let at = first + random.below(head - first + 1);
        let (theirs, ours) = (following.at(at).unwrap(), archive.at(at).unwrap());
        if round % 3 == 0 {
            let words = said(&ours);
            assert_eq!(said(&theirs), words, "round {round} at {at}");
            pinned.push((theirs, words));
        } else {
            // Its files are first read when they are long gone.
            untouched.push((theirs, ours));
        }
        assert_eq!(said(&reader(&disk).at(at).unwrap()), said(&archive.at(at).unwrap()));
    }
    for (round, (view, words)) in pinned.iter().enumerate() {
        assert_eq!(&said(view), words, "pinned view {round}");
    }
    for (theirs, ours) in &untouched {
        assert_eq!(said(theirs), said(ours), "a view that was not read before");
    }
}

#[test]
fn waiting_ends_with_the_block_or_with_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let archive =
        Archive::create_on(Arc::new(OsStorage), &path, options(), with(Durability::Relaxed)).unwrap();
    let outside = Reader::open(&path).unwrap();
    let inside = archive.reader().clone();
    for reader in [&outside, &inside] {
        let started = Instant::now();
        assert_eq!(reader.wait(reader.head(), Duration::from_millis(20)).unwrap(), None);
        assert!(started.elapsed() >= Duration::from_millis(20));
    }
    let next = AtomicU64::new(10);
    thread::scope(|scope| {
        for reader in [outside, inside] {
            scope.spawn(|| {
                let reader = reader;
                let mut head = reader.head();
                while head < Some(30) {
                    let found = reader.wait(head, Duration::from_secs(20)).unwrap();
                    assert!(found > head, "{found:?} after {head:?}");
                    reader.at(found.unwrap()).unwrap().root().unwrap();
                    head = found;
                }
            });
        }
        for height in 10..=30 {
            let mut block = archive.begin(height).unwrap();
            block.put("kv", b"k", &height.to_le_bytes()).unwrap();
            block.commit().unwrap();
            next.store(height, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
        }
    });
    assert_eq!(next.load(Ordering::SeqCst), 30);
}

#[test]
fn a_reader_of_an_archive_that_was_closed_says_so() {
    let ends: [fn(Archive); 2] = [|archive| archive.close().unwrap(), drop];
    for end in ends {
        let disk = SimStorage::new();
        let archive = create(&disk, Durability::Block);
        commit(&archive, &mut Oracle::default(), 1, &[]);
        let reader = archive.reader().clone();
        assert!(reader.refresh().unwrap());
        commit(&archive, &mut Oracle::default(), 2, &[]);
        let view = reader.latest().unwrap();
        end(archive);
        // What was committed before is told first.
        assert_eq!(reader.wait(1, Duration::ZERO).unwrap(), Some(2));
        let again = open(&disk, Durability::Block);
        commit(&again, &mut Oracle::default(), 3, &[]);
        for refused in [reader.refresh().map(drop), reader.wait(2, Duration::from_secs(60)).map(drop)] {
            let error = refused.unwrap_err();
            assert!(matches!(error, icecore::Error::Closed { .. }), "{error}");
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        // What it had stays readable.
        assert_eq!((view.block().unwrap(), reader.head()), (2, Some(2)));
        assert_eq!(reader.root(2).unwrap(), view.root().unwrap());
    }
}

#[test]
fn closing_wakes_whoever_waits_for_a_block() {
    let disk = SimStorage::new();
    let archive = create(&disk, Durability::Block);
    let reader = archive.reader().clone();
    thread::scope(|scope| {
        let waiter = scope.spawn(move || reader.wait(None, Duration::from_secs(600)));
        thread::sleep(Duration::from_millis(20));
        archive.close().unwrap();
        assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_reader_opens_beside_any_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let options = Options::new().domain("kv").blocks_per_step(1).reorg_window(0);
    let archive = Archive::create_on(Arc::new(OsStorage), &path, options, with(Durability::Relaxed)).unwrap();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for height in 1..400 {
                let mut block = archive.begin(height).unwrap();
                block.put("kv", &height.to_le_bytes(), b"v").unwrap();
                block.commit().unwrap();
                if height % 64 == 0 {
                    archive.merge(&icecore::MergeOptions::default(), &()).unwrap();
                }
            }
            done.store(1, Ordering::SeqCst);
        });
        while done.load(Ordering::SeqCst) == 0 {
            let reader = Reader::open(&path).unwrap();
            let Some(head) = reader.head() else { continue };
            let view = reader.latest().unwrap();
            for height in 1..=head {
                assert_eq!(view.get("kv", &height.to_le_bytes()).unwrap().as_deref(), Some(&b"v"[..]));
            }
            assert!(reader.stats().problems.is_empty(), "{:?}", reader.stats().problems);
        }
    });
}

#[test]
fn another_archive_in_the_same_place_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    Archive::create(&path, Options::new().domain("one")).unwrap().close().unwrap();
    let reader = Reader::open(&path).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(reader.refresh().is_err());
    Archive::create(&path, Options::new().domain("two")).unwrap().close().unwrap();
    assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_damaged_log_fails_what_needs_it_and_no_other() {
    let disk = SimStorage::new();
    let archive = create(&disk, Durability::Block);
    let (mut oracle, mut random) = (Oracle::default(), Random(9));
    for height in 1..30 {
        commit(&archive, &mut oracle, height, &random.changes(5));
    }
    archive.close().unwrap();
    let logs: Vec<_> =
        disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "wal")).collect();
    disk.corrupt(&logs[0].0, 70, 0x10);
    let reader = reader(&disk);
    assert_eq!(reader.latest().err().unwrap().kind(), ErrorKind::Corrupt);
    let emitted = reader.head().unwrap();
    assert!(emitted < 29);
    // A reader that was opened before the damage does not need the log for what is in segments.
    disk.corrupt(&logs[0].0, 70, 0x10);
    let opened = Reader::open_on(storage(&disk), PATH).unwrap();
    let last = logs.last().unwrap();
    disk.corrupt(&last.0, last.1 / 2, 0x10);
    oracle.unwind(emitted);
    oracle.check_view(&opened.at(emitted).unwrap(), &oracle.keys(), emitted);
    disk.corrupt(&last.0, last.1 / 2, 0x10);
    disk.corrupt(&logs[0].0, 70, 0x10);
    oracle.unwind(emitted);
    oracle.check_view(&reader.at(emitted).unwrap(), &oracle.keys(), emitted);
    assert_eq!(
        reader.at(29).err().unwrap().kind(),
        ErrorKind::Corrupt,
        "not out of range: it is there, and damaged"
    );
    assert_eq!(reader.stats().problems.len(), 1);
    // What waits for blocks hears of it, as often as it asks, and at once.
    for _ in 0..2 {
        assert_eq!(reader.refresh().unwrap_err().kind(), ErrorKind::Corrupt);
        let waited = reader.wait(emitted, Duration::from_secs(600));
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert!(!reader.segments().is_empty());
    // The newest versions of any key may be in the log.
    assert_eq!(reader.history("kv", b"a").unwrap_err().kind(), ErrorKind::Corrupt);
    // Where all that was kept is in the log, nothing can be read, and nothing is made up.
    let disk = disk.kill_clone();
    disk.corrupt(&logs[0].0, 70, 0x10);
    let archive = open(&disk, Durability::Block);
    archive.prune(29, &()).unwrap();
    archive.close().unwrap();
    let log =
        disk.files().into_iter().rfind(|(path, _)| path.extension().is_some_and(|e| e == "wal")).unwrap();
    disk.corrupt(&log.0, 70, 0x10);
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    assert_eq!(reader.range(), None);
    assert_eq!(reader.wait(None, Duration::from_secs(600)).unwrap_err().kind(), ErrorKind::Corrupt);
    // Put right again, it is followed again.
    disk.corrupt(&log.0, 70, 0x10);
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.head(), Some(29));
    disk.corrupt(&log.0, 70, 0x10);
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    for at in [0, emitted, 28, 29, 30] {
        assert_eq!(reader.at(at).err().unwrap().kind(), ErrorKind::Corrupt, "{at}");
    }
}

#[test]
fn many_lookups_in_a_log_are_answered_as_few_are() {
    let disk = SimStorage::new();
    let options = Options::new().domain("kv").domain("code").blocks_per_step(1000);
    let archive = Archive::create_on(storage(&disk), PATH, options, with(Durability::Relaxed)).unwrap();
    let (mut oracle, mut random) = (Oracle::default(), Random(5));
    for height in 1..60 {
        commit(&archive, &mut oracle, height, &random.changes(9));
        if height % 20 == 0 {
            archive.unwind(height - 7, &()).unwrap();
            oracle.unwind(height - 7);
            commit(&archive, &mut oracle, height, &random.changes(9));
        }
    }
    for at in [1, 12, 13, 14, 33, 59] {
        for (domain, key) in oracle.keys() {
            // One question each: none of them puts the log in order.
            let reader = reader(&disk);
            let found = reader.at(at).unwrap().get(DOMAINS[domain], &key).unwrap();
            assert_eq!(found, oracle.get(domain, &key, at));
            assert_eq!(reader.root(at).unwrap(), *oracle.roots.range(..=at).next_back().unwrap().1);
        }
        oracle.check(&reader(&disk));
    }
    drop(open(&disk.kill_clone(), Durability::Block));
}
