//! A damaged log keeps writers out until they give up what follows the damage; then everything before it is there, what is
//! given up is reported and kept, and the archive is whole again.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::path::{Path, PathBuf};

use icecore::testing::SimStorage;
use icecore::{
    Archive, Durability, Error, ErrorKind, LogDamage, Maintenance, MergeOptions, OpenOptions, Options,
    Reader, ReindexRule, VerifyMode, verify_on,
};
use oracle::script::{PATH, storage};
use oracle::{DOMAINS, Oracle, Random, commit};

fn refuse() -> OpenOptions {
    OpenOptions::new().durability(Durability::Block).maintenance(Maintenance::EmitOnly)
}

fn drop_after() -> OpenOptions {
    refuse().log_damage(LogDamage::DropAfter)
}

fn open(disk: &SimStorage, options: OpenOptions) -> Result<Archive, Error> {
    Archive::open_on(storage(disk), PATH, options)
}

fn create(blocks_per_step: u64, reorg_window: u64) -> (SimStorage, Archive) {
    let disk = SimStorage::new();
    let options = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
    let options = options.blocks_per_step(blocks_per_step).reorg_window(reorg_window);
    let archive = Archive::create_on(storage(&disk), PATH, options, refuse()).unwrap();
    (disk, archive)
}

/// Some segments, and four files of log with unwound blocks in one of them. With a damaged log the archive is a part of one of
/// the two branches.
fn sample() -> (SimStorage, [Oracle; 2]) {
    let (disk, archive) = create(4, 12);
    let (mut oracle, mut random) = (Oracle::default(), Random(3));
    let mut write = |oracle: &mut Oracle, heights: std::ops::Range<u64>| {
        heights.for_each(|height| commit(&archive, oracle, height, &random.changes(5)));
        archive.emit().unwrap();
    };
    write(&mut oracle, 1..30);
    let first_branch = oracle.clone();
    archive.unwind(26, &()).unwrap();
    oracle.unwind(26);
    write(&mut oracle, 27..34);
    archive.close().unwrap();
    (disk.kill_clone(), [oracle, first_branch])
}

fn logs(disk: &SimStorage) -> Vec<(PathBuf, u64)> {
    let is_log = |(path, _): &(PathBuf, u64)| path.extension().is_some_and(|kind| kind == "wal");
    disk.files().into_iter().filter(is_log).collect()
}

/// The files that are kept aside, by the name they had, and their bytes.
fn aside(disk: &SimStorage) -> Vec<(PathBuf, Vec<u8>)> {
    let is_aside = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "damaged");
    let paths = disk.files().into_iter().map(|(path, _)| path).filter(is_aside);
    paths.map(|path| (path.with_extension(""), disk.bytes(&path))).collect()
}

/// Checks that the archive answers as the oracle does up to its head, and goes on.
fn expect_whole(disk: &SimStorage, archive: Archive, branches: &[Oracle]) {
    let head = archive.reader().head();
    let root = head.map(|head| archive.root(head).unwrap());
    let is_it = |branch: &&Oracle| head.map(|head| branch.roots.get(&head).copied()) == root.map(Some);
    let mut oracle = branches.iter().find(is_it).expect("a block that was committed").clone();
    oracle.unwind(head.unwrap_or(0));
    let check = |archive: &Archive, oracle: &Oracle| {
        oracle.read_all(archive.reader(), 6).unwrap();
        oracle.read_all(&Reader::open_on(storage(disk), PATH).unwrap(), 6).unwrap();
    };
    check(&archive, &oracle);
    let next = oracle.head().unwrap_or(0) + 1;
    commit(&archive, &mut oracle, next, &[(0, b"again".to_vec(), Some(b"there".to_vec()))]);
    archive.close().unwrap();
    let archive = open(disk, refuse()).unwrap();
    assert!(archive.log_drop().is_none());
    check(&archive, &oracle);
    let mut random = Random(8);
    (next + 1..next + 20).for_each(|height| commit(&archive, &mut oracle, height, &random.changes(3)));
    archive.close().unwrap();
    let report = verify_on(storage(disk), PATH, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

fn path_of(error: &Error) -> &Path {
    match error {
        Error::Damaged { path, .. } | Error::Missing { path } => path,
        other => panic!("{other:?}"),
    }
}

/// Opens a disk whose log is damaged. `true` where the damage was harmless.
fn check_damaged(disk: &SimStorage, branches: &[Oracle], what: &str) -> bool {
    let before: Vec<_> = logs(disk).into_iter().map(|(path, _)| (disk.bytes(&path), path)).collect();
    let files = disk.files();
    let Err(refused) = open(&disk.kill_clone(), refuse()) else { return true };
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{what}: {refused}");
    let reader = Reader::open_on(storage(disk), PATH).unwrap();
    let planned = reader.plan_log_drop().unwrap().expect(what);
    assert_eq!(planned.damage.to_string(), refused.to_string(), "{what}");
    assert_eq!(disk.files(), files, "nothing is changed by planning");
    let archive = open(disk, drop_after()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = archive.log_drop().expect(what);
    assert_eq!(report.damage.to_string(), refused.to_string(), "{what}");
    assert_eq!((report.head, report.dropped), (planned.head, planned.dropped), "{what}");
    assert_eq!(report.files, planned.files, "{what}");
    assert_eq!(report.head, archive.reader().head(), "{what}");
    let kept = aside(disk);
    let damaged = path_of(&refused);
    let mut given_up =
        before.into_iter().map(|(bytes, path)| (path, bytes)).filter(|(path, _)| &**path >= damaged);
    assert!(given_up.all(|file| kept.contains(&file)), "{what}");
    assert_eq!(report.files.len(), kept.len(), "{what}");
    if let Some((lowest, highest)) = report.dropped {
        assert!(report.head < Some(lowest) && lowest <= highest && highest <= 39, "{what}: {report:?}");
    }
    expect_whole(disk, archive, branches);
    false
}

#[test]
fn a_damaged_log_is_given_up_from_the_damage_on() {
    let (sample, branches) = sample();
    let files = logs(&sample);
    assert!(files.len() >= 4, "{files:?}");
    let mut harmless = 0;
    for (path, len) in &files {
        for offset in (0..*len).step_by(23) {
            let disk = sample.kill_clone();
            disk.corrupt(path, offset, 0x20);
            harmless +=
                u32::from(check_damaged(&disk, &branches, &format!("{} at {offset}", path.display())));
        }
        for len in [0, 10, 64, len / 2, len - 1] {
            let disk = sample.kill_clone();
            disk.truncate(path, len);
            let what = format!("{} cut to {len}", path.display());
            harmless += u32::from(check_damaged(&disk, &branches, &what));
        }
        let disk = sample.kill_clone();
        disk.lose(path);
        assert!(!check_damaged(&disk, &branches, &format!("{} lost", path.display())));
    }
    assert!(harmless <= 3, "the last mark, which nothing follows: {harmless}");
    let disk = sample.kill_clone();
    disk.swap(&files[0].0, &files[1].0);
    assert!(!check_damaged(&disk, &branches, "swapped"));
}

#[test]
fn the_log_of_a_pruned_archive_with_snapshots_is_given_up_after_deep_unwinds() {
    let disk = SimStorage::new();
    let options = DOMAINS.iter().fold(Options::new(), |options, name| options.domain(name));
    let options = options.blocks_per_step(4).reorg_window(6).snapshot_period(std::num::NonZeroU64::new(3));
    let archive = Archive::create_on(storage(&disk), PATH, options, refuse()).unwrap();
    let (mut oracle, mut random, mut branches) = (Oracle::default(), Random(9), Vec::new());
    // Each time into segments, and the last in memory.
    for (head, unwound_to) in [(30, 14), (34, 17), (38, 35)] {
        for height in oracle.head().unwrap_or(0) + 1..=head {
            commit(&archive, &mut oracle, height, &random.changes(5));
        }
        archive.emit().unwrap();
        archive.merge(&MergeOptions::default(), &()).unwrap();
        archive.prune(head - 20, &()).unwrap();
        oracle.prune(head - 20);
        branches.insert(0, oracle.clone());
        archive.unwind(unwound_to.max(head - 20), &()).unwrap();
        oracle.unwind(unwound_to.max(head - 20));
    }
    (36..40).for_each(|height| commit(&archive, &mut oracle, height, &random.changes(5)));
    branches.insert(0, oracle);
    archive.close().unwrap();
    let mut damaged = 0;
    for (path, len) in logs(&disk) {
        for offset in (0..len).step_by(131) {
            let disk = disk.kill_clone();
            disk.corrupt(&path, offset, 0x20);
            damaged +=
                u32::from(!check_damaged(&disk, &branches, &format!("{} at {offset}", path.display())));
        }
        let disk = disk.kill_clone();
        disk.lose(&path);
        damaged += u32::from(!check_damaged(&disk, &branches, &format!("{} lost", path.display())));
    }
    assert!(damaged > 10, "{damaged}");
}

#[test]
fn what_is_dropped_is_reported() {
    let (disk, [oracle, _]) = sample();
    let files = logs(&disk);
    let (second, _) = &files[1];
    disk.corrupt(second, 70, 1);
    let archive = open(&disk, drop_after()).unwrap();
    let report = archive.log_drop().unwrap();
    let head = report.head.unwrap();
    assert!(oracle.roots.contains_key(&head) && head < 33);
    assert_eq!(report.dropped.unwrap().1, 33, "what follows the damage and is whole is found");
    let named = |(path, _): &(PathBuf, u64)| PathBuf::from(format!("{}.damaged", path.display()));
    assert_eq!(report.files, files[1..].iter().map(named).collect::<Vec<_>>());
}

#[test]
fn a_sound_log_is_left_alone() {
    let (disk, branches) = sample();
    assert!(Reader::open_on(storage(&disk), PATH).unwrap().plan_log_drop().unwrap().is_none());
    let archive = open(&disk, drop_after()).unwrap();
    assert!(archive.log_drop().is_none());
    assert_eq!(archive.reader().head(), branches[0].head());
    expect_whole(&disk, archive, &branches);
    assert!(aside(&disk).is_empty());
}

#[test]
fn blocks_of_a_branch_that_was_given_up_do_not_come_back() {
    let (disk, archive) = create(4, 40);
    let (mut oracle, mut random) = (Oracle::default(), Random(4));
    let mut write = |oracle: &mut Oracle, heights: std::ops::Range<u64>| {
        heights.for_each(|height| commit(&archive, oracle, height, &random.changes(5)));
        archive.emit().unwrap();
    };
    write(&mut oracle, 1..61);
    let (file, unwind_at) = logs(&disk).pop().unwrap();
    archive.unwind(21, &()).unwrap();
    oracle.unwind(21);
    write(&mut oracle, 22..76);
    archive.close().unwrap();
    let disk = disk.kill_clone();
    assert!(logs(&disk).iter().any(|(path, _)| path < &file), "blocks 36 to 60 of both branches");
    disk.corrupt(&file, unwind_at + 8, 0x20);
    let archive = open(&disk, drop_after()).unwrap();
    let report = archive.log_drop().unwrap();
    assert_eq!(report.head, Some(35), "what is in segments: {report:?}");
    assert_eq!(report.dropped, Some((36, 75)));
    assert_eq!(aside(&disk).len(), report.files.len());
    expect_whole(&disk, archive, &[oracle]);
}

#[test]
fn a_step_whose_end_is_dropped_is_open_again() {
    let (disk, archive) = create(10, 0);
    let mut oracle = Oracle::default();
    let mut random = Random(6);
    for height in [101, 102, 105, 120, 121] {
        commit(&archive, &mut oracle, height, &random.changes(5));
    }
    archive.emit().unwrap();
    archive.close().unwrap();
    let disk = disk.kill_clone();
    let (path, _) = logs(&disk).pop().unwrap();
    let bytes = disk.bytes(&path);
    let at = |height: u64| {
        bytes.windows(8).position(|found| found == height.to_le_bytes()).expect("the block is in the log")
            as u64
    };
    disk.corrupt(&path, at(120), 0x40);
    let archive = open(&disk, drop_after()).unwrap();
    assert_eq!(archive.reader().head(), Some(105));
    // Into the step that was in segments.
    expect_whole(&disk, archive, &[oracle]);
}

#[test]
fn where_nothing_could_be_read_the_log_is_not_given_up() {
    let (disk, _) = sample();
    let archive = open(&disk, refuse()).unwrap();
    archive.prune(33, &()).unwrap();
    archive.close().unwrap();
    let disk = disk.kill_clone();
    let (path, _) = logs(&disk).remove(0);
    disk.corrupt(&path, 70, 0x10);
    let files = disk.files();
    let refused = open(&disk, drop_after()).map(drop).unwrap_err();
    assert_eq!(path_of(&refused), path);
    assert!(Reader::open_on(storage(&disk), PATH).unwrap().plan_log_drop().is_err());
    assert_eq!(disk.files(), files);
}

#[test]
fn without_a_segment_an_empty_archive_is_left() {
    let (disk, archive) = create(4, 100);
    let mut oracle = Oracle::default();
    commit(&archive, &mut oracle, 5, &[]);
    commit(&archive, &mut oracle, 6, &[]);
    archive.close().unwrap();
    let disk = disk.kill_clone();
    disk.corrupt(&logs(&disk)[0].0, 70, 1);
    let archive = open(&disk, drop_after()).unwrap();
    let report = archive.log_drop().unwrap();
    assert_eq!((report.head, report.dropped), (None, Some((6, 6))));
    assert_eq!(archive.reader().range(), None);
    let mut oracle = Oracle::default();
    commit(&archive, &mut oracle, 2, &[]);
    expect_whole(&disk, archive, &[oracle]);
}

#[test]
fn an_attempt_that_is_stopped_anywhere_can_be_made_again() {
    let (disk, branches) = sample();
    let (path, len) = logs(&disk).remove(1);
    disk.corrupt(&path, len / 2, 0x20);
    let tried = disk.kill_clone();
    let archive = open(&tried, drop_after()).unwrap();
    let (head, kept) = (archive.reader().head(), aside(&tried));
    drop(archive);
    for at in 1..tried.operations() {
        let tried = disk.kill_clone();
        tried.fail_at(at);
        let _ = open(&tried, drop_after());
        tried.heal();
        for after in [tried.kill_clone(), tried.crash_clone(at), tried.crash_clone(at + 1000)] {
            // Whoever comes next need not know of the attempt.
            let _ = open(&after, refuse());
            let archive = open(&after, drop_after()).unwrap();
            assert_eq!((archive.reader().head(), aside(&after)), (head, kept.clone()), "{at}");
            expect_whole(&after, archive, &branches);
        }
    }
}

#[test]
fn plans_name_the_damage() {
    let (disk, _) = sample();
    let (path, _) = logs(&disk).remove(0);
    disk.corrupt(&path, 70, 0x10);
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    let lowest = reader.range().unwrap().0;
    let errors = [
        reader.plan_merge(&MergeOptions::default()).map(drop).unwrap_err(),
        reader.plan_prune(lowest + 1).map(drop).unwrap_err(),
        reader.plan_unwind(lowest + 1).map(drop).unwrap_err(),
        reader.plan_reindex(ReindexRule::Current, None).map(drop).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| path_of(error) == path), "{errors:?}");
}
