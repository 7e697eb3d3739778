//! Is a file noticed that is sound and not the one that belongs there? An older manifest, a log file of another archive: an
//! error names it, and nothing that the right file names is removed meanwhile.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use icecore::{
    Archive, Error, Maintenance, MergeOptions, OpenOptions, Options, Reader, VerifyMode, VerifyReport, verify,
};
use tempfile::TempDir;

fn open(path: &Path) -> Result<Archive, Error> {
    Archive::open(path, OpenOptions::new().maintenance(Maintenance::EmitOnly))
}

/// An archive with a block at each height, all of which write `value`.
fn archive(dir: &TempDir, reorg_window: u64, heights: Range<u64>, value: &[u8]) -> (PathBuf, Archive) {
    let path = dir.path().join("archive");
    let options = Options::new().domain("kv").blocks_per_step(2).reorg_window(reorg_window);
    drop(Archive::create(&path, options).unwrap());
    let archive = open(&path).unwrap();
    commit(&archive, heights, value);
    (path, archive)
}

fn commit(archive: &Archive, heights: Range<u64>, value: &[u8]) {
    for height in heights {
        let mut block = archive.begin(height).unwrap();
        block.put("kv", b"key", value).unwrap();
        block.put("kv", &height.to_be_bytes(), value).unwrap();
        block.commit().unwrap();
    }
}

fn check(reader: &Reader, heights: Range<u64>, value: &[u8]) {
    assert_eq!(reader.range(), Some((heights.start, heights.end - 1)));
    for height in heights {
        let view = reader.at(height).unwrap();
        assert_eq!(view.block().unwrap(), height);
        assert_eq!(view.get("kv", &height.to_be_bytes()).unwrap().as_deref(), Some(value));
    }
}

fn full(path: &Path) -> VerifyReport {
    verify(path, VerifyMode::Full, &()).unwrap()
}

fn assert_names(error: &Error, file: &Path) {
    assert!(matches!(error, Error::Damaged { path, .. } if path == file), "{error}");
}

#[test]
fn a_manifest_that_is_older_than_its_log_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (path, archive) = archive(&dir, 100, 1..4, b"value");
    let manifest = path.join("MANIFEST");
    let older = fs::read(&manifest).unwrap();
    commit(&archive, 4..10, b"value");
    archive.close().unwrap();
    let right = fs::read(&manifest).unwrap();
    fs::write(&manifest, older).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_names(&reader.latest().map(drop).unwrap_err(), &manifest);
    assert_names(&open(&path).map(drop).unwrap_err(), &manifest);
    let problems = full(&path).problems;
    assert_names(problems.first().unwrap(), &manifest);
    fs::write(&manifest, right).unwrap();
    check(&Reader::open(&path).unwrap(), 1..10, b"value");
    assert!(full(&path).problems.is_empty());
}

#[test]
fn a_manifest_that_is_older_than_its_segments_does_not_have_them_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, archive) = archive(&dir, 0, 1..40, b"value");
    archive.emit().unwrap();
    let manifest = path.join("MANIFEST");
    let older = fs::read(&manifest).unwrap();
    assert!(archive.merge(&MergeOptions::default(), &()).unwrap() > 0);
    archive.close().unwrap();
    let right = fs::read(&manifest).unwrap();
    fs::write(&manifest, older).unwrap();
    let found = open(&path).unwrap();
    assert!(matches!(found.at(1).unwrap().block(), Err(Error::Missing { .. })));
    drop(found);
    fs::write(&manifest, right).unwrap();
    check(open(&path).unwrap().reader(), 1..40, b"value");
    assert!(full(&path).problems.is_empty());
}

#[test]
fn a_log_file_of_another_archive_is_named() {
    let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, sample) = archive(&dir, 100, 1..10, b"value");
    let (other, foreign) = archive(&other_dir, 100, 1..10, b"other");
    sample.close().unwrap();
    foreign.close().unwrap();
    for number in [1, 2] {
        let log = format!("wal/{number:016x}.wal");
        let right = fs::read(path.join(&log)).unwrap();
        fs::copy(other.join(&log), path.join(&log)).unwrap();
        let reader = Reader::open(&path).unwrap();
        assert_names(&reader.latest().map(drop).unwrap_err(), &path.join(&log));
        assert_names(&open(&path).map(drop).unwrap_err(), &path.join(&log));
        assert_names(full(&path).problems.first().unwrap(), &path.join(&log));
        fs::write(path.join(&log), right).unwrap();
    }
    check(&Reader::open(&path).unwrap(), 1..10, b"value");
}

#[test]
fn a_checkpoint_goes_on_with_the_log_of_its_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (_, archive) = archive(&dir, 100, 1..10, b"value");
    let copy = dir.path().join("copy");
    archive.checkpoint(&copy, &()).unwrap();
    let opened = open(&copy).unwrap();
    commit(&opened, 10..20, b"value");
    opened.close().unwrap();
    check(&Reader::open(&copy).unwrap(), 1..20, b"value");
}

#[test]
fn a_reader_does_not_follow_an_archive_that_took_the_place_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, archive) = archive(&dir, 2, 0..20, b"one");
    let reader = Reader::open(&path).unwrap();
    archive.close().unwrap();
    for step in 0..2 {
        // Another archive of equal options, then the same of more blocks than the reader has seen.
        std::fs::rename(&path, dir.path().join(format!("moved {step}"))).unwrap();
        let (_, other) = self::archive(&dir, 2, 0..20 + 10 * step, b"two");
        for _ in 0..3 {
            let refused = reader.refresh().unwrap_err();
            assert!(matches!(refused, Error::Replaced { .. }), "{refused:?}");
        }
        check(&reader, 0..20, b"one");
        other.close().unwrap();
    }
}
