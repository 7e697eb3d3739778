//! Archives that older builds wrote, at least one for each retired version of a format: they open for reading and for
//! writing, and give the answers and the roots that they gave when they were new.
//!
//! `testdata/README.md` says how they were made, and how the next one is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod oracle;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use icecore::format::{self, FormatVersion};
use icecore::{Archive, Maintenance, MergeOptions, OpenOptions, Options, Reader, Root, VerifyMode, verify};
use oracle::{Change, Oracle, commit};
use tempfile::TempDir;

/// The heights of the archives before a test adds to them.
const HEAD: u64 = 13;

/// The changes of a block. Nothing in it may ever change: the kept archives hold it.
fn changes(height: u64, branch: u64) -> Vec<Change> {
    let key = |i: u64| format!("account-{:02}", (7 * height + 3 * i + branch) % 23).into_bytes();
    let mut changes: Vec<Change> =
        (0..5).map(|i| (0, key(i), Some(format!("{height}.{branch}.{i}").into_bytes()))).collect();
    changes.push((0, key(5), Some(Vec::new())));
    changes.push((0, key(6), None));
    if height % 4 == 1 {
        // Larger than fits a page.
        let code = (0..3000).map(|i| (height * i % 251) as u8).collect();
        changes.push((1, format!("code-{height}").into_bytes(), Some(code)));
    }
    changes
}

/// What the kept archives went through: blocks in segments, merged and not, and in the log blocks, an unwind and the
/// blocks of another branch.
fn go_through(archive: &Archive) -> Oracle {
    let mut oracle = Oracle::default();
    (1..=12).for_each(|height| commit(archive, &mut oracle, height, &changes(height, 0)));
    archive.unwind(11, &()).unwrap();
    oracle.unwind(11);
    (12..=HEAD).for_each(|height| commit(archive, &mut oracle, height, &changes(height, 1)));
    archive.merge(&MergeOptions::default(), &()).unwrap();
    oracle
}

fn options() -> Options {
    oracle::DOMAINS
        .iter()
        .fold(Options::new(), |options, name| options.domain(name))
        .blocks_per_step(2)
        .reorg_window(3)
        .snapshot_period(NonZeroU64::new(4))
}

fn open() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly)
}

/// Makes an archive with the formats of this build, and says what it has to answer.
fn new_archive(path: &Path) -> (Oracle, Archive) {
    let archive = Archive::create(path, options()).unwrap();
    let oracle = go_through(&archive);
    (oracle, archive)
}

/// The kept archives, by name.
fn kept() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = files.filter_map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.zst")?.to_owned();
        Some((name, path))
    });
    named.collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn unpack(file: &Path, folder: &Path) -> PathBuf {
    let bytes = zstd::Decoder::new(File::open(file).unwrap()).unwrap();
    let path = folder.join("archive");
    tar::Archive::new(bytes).unpack(&path).unwrap();
    path
}

/// The formats and versions that the files of an archive state in their first bytes.
fn versions(archive: &Path) -> BTreeSet<(String, u32)> {
    let files = fs::read_dir(archive).unwrap().chain(fs::read_dir(archive.join("wal")).unwrap());
    let stated = files.filter_map(|entry| {
        let path = entry.unwrap().path();
        let (format, at, width) = match path.extension().map(|extension| extension.to_str().unwrap()) {
            None if path.ends_with("MANIFEST") => ("manifest", 8, 4),
            Some("wal") => ("log", 8, 2),
            Some(segment @ ("kv" | "bt" | "kvei" | "kvbi")) => (segment, 10, 2),
            _ => return None,
        };
        let mut number = [0; 4];
        number[..width].copy_from_slice(&fs::read(&path).unwrap()[at..at + width]);
        Some((format.to_owned(), u32::from_le_bytes(number)))
    });
    stated.collect()
}

#[test]
fn every_retired_version_is_kept() {
    let mut kept_versions = BTreeSet::new();
    for (name, file) in kept() {
        let folder = TempDir::new().unwrap();
        let versions = versions(&unpack(&file, folder.path()));
        let number = |format| versions.iter().find(|(name, _)| name == format).unwrap().1;
        assert_eq!(name, format!("manifest-{}-log-{}", number("manifest"), number("log")));
        kept_versions.extend(versions);
    }
    let retired = |entry: &&FormatVersion| {
        format::versions().iter().any(|(format, written)| *format == entry.format && entry.version < *written)
    };
    for entry in format::HISTORY.iter().filter(retired) {
        let (format, version) = (entry.format.to_owned(), entry.version);
        assert!(kept_versions.contains(&(format, version)), "no archive with {} {version}", entry.format);
    }
}

#[test]
fn a_new_archive_has_the_versions_that_are_written() {
    let folder = TempDir::new().unwrap();
    // How an archive comes to `testdata/`.
    let path = std::env::var_os("KEEP").map_or_else(|| folder.path().join("new"), PathBuf::from);
    let (oracle, archive) = new_archive(&path);
    archive.close().unwrap();
    let written = format::versions().map(|(format, version)| (format.to_owned(), version));
    assert_eq!(versions(&path), written.into());
    oracle.check(&Reader::open(&path).unwrap());
}

#[test]
fn kept_archives_answer_as_when_they_were_new() {
    let folder = TempDir::new().unwrap();
    let (oracle, _) = new_archive(&folder.path().join("new"));
    for (name, file) in kept() {
        let folder = TempDir::new().unwrap();
        let path = unpack(&file, folder.path());
        let before = versions(&path);
        let reader = Reader::open(&path).unwrap();
        assert!(!reader.segments().is_empty() && reader.stats().steps_in_memory > 0, "{name}");
        oracle.check(&reader);
        let report = verify(&path, VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
        assert_eq!(versions(&path), before, "{name}: reading changes nothing");
    }
}

#[test]
fn kept_archives_grow_merge_and_unwind_as_new_ones_do() {
    let folder = TempDir::new().unwrap();
    let (start, new) = new_archive(&folder.path().join("new"));
    let expected: Vec<Root> = {
        let mut oracle = start.clone();
        grow(&new, &mut oracle);
        oracle.roots.into_values().collect()
    };
    for (name, file) in kept() {
        let folder = TempDir::new().unwrap();
        let path = unpack(&file, folder.path());
        let mut oracle = start.clone();
        let archive = Archive::open(&path, open()).unwrap();
        assert!(archive.repairs().is_empty(), "{name}: {:?}", archive.repairs());
        grow(&archive, &mut oracle);
        assert_eq!(oracle.roots.values().copied().collect::<Vec<_>>(), expected, "{name}");
        oracle.check(archive.reader());
        archive.close().unwrap();
        let written = format::versions().map(|(format, version)| (format.to_owned(), version));
        assert_eq!(versions(&path), written.into(), "{name}: every file is of the version that is written");
        let archive = Archive::open(&path, open()).unwrap();
        oracle.check(archive.reader());
    }
}

/// Another branch from block 12 on, long enough that all that the kept log held is emitted; all merged.
fn grow(archive: &Archive, oracle: &mut Oracle) {
    archive.unwind(12, &()).unwrap();
    oracle.unwind(12);
    (HEAD..HEAD + 12).for_each(|height| commit(archive, oracle, height, &changes(height, 2)));
    archive.emit().unwrap();
    archive.merge(&MergeOptions::default(), &()).unwrap();
}
