//! Checkpoints: is the copy the archive as it was at one moment, whatever the writer did meanwhile, and does one that was
//! stopped anywhere say that it is not finished?

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use icecore::storage::Storage;
use icecore::storage::os::OsStorage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Commitment, Durability, Error, Maintenance, MergeOptions, OpenOptions, Reader, VerifyMode,
    verify_on,
};
use oracle::script::{PATH, Script, Step, fresh, options, options_of, play, storage};
use oracle::{Oracle, Random, commit};

const COPY: &str = "/copy";

fn open_options() -> OpenOptions {
    OpenOptions::new().durability(Durability::Group { blocks: 4 }).maintenance(Maintenance::EmitOnly)
}

/// An archive with merged and fresh segments, two log files, and blocks that were not synced.
fn sample() -> (SimStorage, Archive, Oracle) {
    sample_of(Commitment::Icecore)
}

fn sample_of(commitment: Commitment) -> (SimStorage, Archive, Oracle) {
    let disk = fresh(options_of(commitment), open_options());
    let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
    let script = Script::of(commitment, 5).commits(18).then(Step::Merge).commits(3).begin_step();
    let oracle = play(&archive, &script.steps);
    (disk, archive, oracle)
}

fn assert_whole(storage: &Arc<dyn Storage>, path: &str) {
    let report = verify_on(Arc::clone(storage), path, VerifyMode::Full, &()).unwrap();
    assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
}

#[test]
fn a_checkpoint_is_an_archive_of_its_own() {
    [Commitment::Icecore, Commitment::Ethereum, Commitment::None].into_iter().for_each(check_copy);
}

fn check_copy(commitment: Commitment) {
    let (disk, archive, mut oracle) = sample_of(commitment);
    let made = archive.checkpoint(COPY, &()).unwrap();
    assert_eq!(made.range, oracle.range());
    assert!(made.files_linked > 10 && made.files_copied == 1, "{made:?}");
    assert_whole(&storage(&disk), COPY);
    oracle.check(&Reader::open_on(storage(&disk), COPY).unwrap());
    // Each goes its own way from here on.
    let copy = Archive::open_on(storage(&disk), COPY, open_options()).unwrap();
    let (mut other, mut random, head) = (oracle.clone(), Random(1), oracle.head().unwrap());
    for height in head + 1..head + 30 {
        for (archive, oracle) in [(&archive, &mut oracle), (&copy, &mut other)] {
            let changes = oracle.draw(&mut random, 5);
            commit(archive, oracle, height, &changes);
        }
    }
    archive.merge(&MergeOptions::default(), &()).unwrap();
    archive.unwind(head - 9, &()).unwrap();
    oracle.unwind(head - 9);
    copy.close().unwrap();
    archive.close().unwrap();
    for (path, oracle) in [(PATH, &oracle), (COPY, &other)] {
        assert_whole(&storage(&disk), path);
        oracle.check(&Reader::open_on(storage(&disk), path).unwrap());
    }
    // After a power loss the copy is there.
    for seed in 0..20 {
        let after = disk.crash_clone(seed);
        oracle::Oracle::check(&other, &Reader::open_on(storage(&after), COPY).unwrap());
    }
}

#[test]
fn a_checkpoint_that_was_stopped_anywhere_is_finished_or_says_that_it_is_not() {
    let (disk, archive, oracle) = sample();
    drop(archive);
    let disk = disk.kill_clone();
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    let before = disk.operations();
    disk.film(before + 1, 3);
    reader.checkpoint(COPY, &()).unwrap();
    let frames = disk.frames();
    assert!(frames.len() > 20);
    let mut unfinished = 0;
    for (at, frame) in &frames {
        for disk in [frame.kill_clone(), frame.crash_clone(*at)] {
            match Reader::open_on(storage(&disk), COPY) {
                Ok(reader) => oracle.check(&reader),
                Err(Error::NotAnArchive { .. } | Error::Unfinished { .. }) => unfinished += 1,
                Err(error) => panic!("operation {at}: {error} {error:?}"),
            }
            let reader = Reader::open_on(storage(&disk), PATH).unwrap();
            match reader.checkpoint(COPY, &()) {
                Ok(made) => assert_eq!(made.range, oracle.range()),
                Err(Error::Exists { .. }) => {}
                Err(error) => panic!("operation {at}, again: {error} {error:?}"),
            }
            oracle.check(&Reader::open_on(storage(&disk), COPY).unwrap());
            Archive::open_on(storage(&disk), COPY, open_options()).unwrap().close().unwrap();
            assert_whole(&storage(&disk), COPY);
        }
    }
    assert!(unfinished > frames.len());
}

#[test]
fn what_is_there_stays() {
    let (disk, archive, _) = sample();
    archive.checkpoint(COPY, &()).unwrap();
    let files = disk.files();
    assert!(matches!(archive.checkpoint(COPY, &()), Err(Error::Exists { .. })));
    assert_eq!(disk.files(), files);
}

#[test]
fn a_place_inside_the_archive_is_refused() {
    let (disk, archive, _) = sample();
    let files = disk.files();
    for inside in [PATH.to_owned(), format!("{PATH}/copy"), format!("{PATH}/wal/deep/copy")] {
        let refused = archive.checkpoint(&inside, &()).unwrap_err();
        assert!(matches!(refused, Error::InsideArchive { .. }), "{inside}: {refused}");
        assert_eq!(refused.kind(), icecore::ErrorKind::Misuse);
    }
    assert_eq!(disk.files(), files);
}

#[test]
fn a_place_inside_the_archive_is_refused_by_whatever_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let archive = Archive::create(&path, options()).unwrap();
    archive.begin(1).unwrap().commit().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let names = || {
        let entries = std::fs::read_dir(&dir).unwrap().chain(std::fs::read_dir(&path).unwrap());
        entries.map(|entry| entry.unwrap().path()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    for inside in [
        path.join("copy"),
        link.clone(),
        link.join("copy"),
        link.join("a/b"),
        dir.path().join("x/../link/copy"),
        dir.path().join("x/../a.ice/copy"),
        dir.path().join("x/y/../../a.ice"),
        path.join("x/../copy"),
    ] {
        let refused = archive.checkpoint(&inside, &()).unwrap_err();
        assert!(matches!(refused, Error::InsideArchive { .. }), "{}: {refused}", inside.display());
    }
    assert_eq!(names(), before, "a place that is refused is left as it was");
    archive.checkpoint(dir.path().join("a.ice.copy"), &()).unwrap();
}

#[test]
fn a_damaged_archive_is_not_copied_without_a_word() {
    let (disk, archive, _) = sample();
    let (lost, _) =
        disk.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "bt")).unwrap();
    disk.lose(&lost);
    assert!(matches!(archive.checkpoint(COPY, &()), Err(Error::Missing { path }) if path == lost));
    assert!(matches!(Reader::open_on(storage(&disk), COPY), Err(Error::Unfinished { .. })));
}

#[test]
fn a_segment_that_is_cut_short_or_another_one_is_not_copied_without_a_word() {
    let kvs = |disk: &SimStorage| -> Vec<(PathBuf, u64)> {
        disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "kv")).collect()
    };
    for is_cut in [true, false] {
        let (disk, archive, _) = sample();
        let [(first, _), .., (last, len)] = &kvs(&disk)[..] else { panic!("a sample has several segments") };
        if is_cut {
            disk.truncate(last, len - 4096);
        } else {
            disk.swap(first, last);
        }
        let error = archive.checkpoint(COPY, &()).unwrap_err();
        assert!(matches!(&error, Error::File { path, .. } if path == first || path == last), "{error}");
        assert!(matches!(Reader::open_on(storage(&disk), COPY), Err(Error::Unfinished { .. })));
    }
}

#[test]
fn a_copy_of_a_damaged_log_is_not_finished() {
    let (disk, archive, _) = sample();
    archive.close().unwrap();
    let log =
        disk.files().into_iter().rfind(|(path, _)| path.extension().is_some_and(|e| e == "wal")).unwrap();
    disk.corrupt(&log.0, 80, 0x10);
    let reader = Reader::open_on(storage(&disk), PATH).unwrap();
    assert_eq!(reader.checkpoint(COPY, &()).unwrap_err().kind(), icecore::ErrorKind::Corrupt);
    assert!(matches!(Reader::open_on(storage(&disk), COPY), Err(Error::Unfinished { .. })));
}

#[test]
fn a_copy_that_is_cut_later_is_known_to_be() {
    let (disk, archive, oracle) = sample();
    archive.checkpoint(COPY, &()).unwrap();
    let (log, len) = disk.files().into_iter().rfind(|(path, _)| path.starts_with("/copy/wal")).unwrap();
    for cut in [40, 100, len - 64] {
        let disk = disk.kill_clone();
        disk.truncate(&log, len - cut);
        let report = verify_on(storage(&disk), COPY, VerifyMode::Fast, &()).unwrap();
        assert!(!report.problems.is_empty(), "cut by {cut}");
        assert!(Reader::open_on(storage(&disk), COPY).unwrap().latest().is_err());
    }
    let report = verify_on(storage(&disk), COPY, VerifyMode::Fast, &()).unwrap();
    assert!(report.log_tail.is_none(), "all of it is marked: {report:?}");
    oracle.check(&Reader::open_on(storage(&disk), COPY).unwrap());
}

/// Blocks whose content follows from their height, so that a copy can be checked without the writer.
fn write(archive: &Archive, height: u64) {
    let mut block = archive.begin(height).unwrap();
    for key in 0..9_u64 {
        if (height + key).is_multiple_of(3) {
            block.put("kv", &key.to_le_bytes(), &height.to_le_bytes()).unwrap();
        }
    }
    block.commit().unwrap();
}

fn check(reader: &Reader) {
    let (first, head) = reader.range().unwrap();
    for at in
        [first.max(3), u64::midpoint(first, head), head].into_iter().filter(|at| (3..=head).contains(at))
    {
        let view = reader.at(at).unwrap();
        for key in 0..9_u64 {
            let expected = (1..=at).rev().find(|height| (height + key).is_multiple_of(3)).unwrap();
            let found = view.get("kv", &key.to_le_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&expected.to_le_bytes()[..]), "key {key} at {at}");
        }
    }
}

#[test]
fn checkpoints_beside_a_busy_writer_are_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let options = icecore::Options::new().domain("kv").blocks_per_step(2).reorg_window(3);
    let open = OpenOptions::new().durability(Durability::Relaxed).maintenance(Maintenance::Background);
    let archive = Archive::create_on(Arc::new(OsStorage), &path, options, open).unwrap();
    write(&archive, 1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for height in 2..500 {
                write(&archive, height);
                if height % 41 == 0 {
                    archive.unwind(height - 8, &()).unwrap();
                    (height - 7..=height).for_each(|height| write(&archive, height));
                }
                if height % 97 == 0 {
                    archive.prune(height - 20, &()).unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut made = 0;
        while !done.load(Ordering::SeqCst) {
            let copy = dir.path().join(format!("copy-{made}"));
            // As another process would.
            let report = Reader::open(&path).unwrap().checkpoint(&copy, &()).unwrap();
            let reader = Reader::open(&copy).unwrap();
            assert_eq!(reader.range(), report.range);
            check(&reader);
            let report = icecore::verify(&copy, VerifyMode::Full, &()).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
            drop(reader);
            std::fs::remove_dir_all(&copy).unwrap();
            made += 1;
        }
        println!("{made} checkpoints");
        assert!(made > 0);
    });
    assert!(Path::new(&path).exists());
}
