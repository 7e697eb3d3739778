//! Is every damage noticed? Bytes of every kind of file are flipped, files are cut, exchanged and removed. Reading
//! everything then gives an error that names the file, or the right answers, and where an accessor had to be done without
//! the statistics name it; the full `verify` reports every damage; a writer rebuilds accessors. What does not need the damaged
//! file is answered all the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod oracle;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use icecore::testing::SimStorage;
use icecore::{
    Archive, Commitment, Durability, Error, ErrorKind, Maintenance, OpenOptions, ProgressListener, Reader,
    VerifyMode, verify_on,
};
use oracle::Oracle;
use oracle::ethereum;
use oracle::script::{PATH, Script, Step, fresh, options_of, play, storage};

/// What a log file ends in when its last block was synced: a mark, which itself is not synced.
const MARK_LEN: u64 = 32;

const PAGE: u64 = 4096;

/// An archive with two log files, and per domain a merged segment and one of a single step.
struct Sample {
    disk: SimStorage,
    oracle: Oracle,
    files: Vec<(PathBuf, u64)>,
}

fn open_options() -> OpenOptions {
    OpenOptions::new().durability(Durability::Block).maintenance(Maintenance::EmitOnly)
}

impl Sample {
    fn new() -> Self {
        Self::of(Commitment::Icecore)
    }

    fn of(commitment: Commitment) -> Self {
        let disk = fresh(options_of(commitment), open_options());
        let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
        let script = Script::of(commitment, 11).commits(18).then(Step::Merge).commits(3).begin_step();
        let oracle = play(&archive, &script.steps);
        archive.close().unwrap();
        let disk = disk.kill_clone();
        let files: Vec<_> = disk
            .files()
            .into_iter()
            .filter(|(path, _)| !path.ends_with("LOCK") && !path.ends_with("RESERVE"))
            .collect();
        let sample = Self { disk, oracle, files };
        for (kind, least) in [("kv", 6), ("bt", 6), ("kvei", 6), ("kvbi", 4), ("wal", 2)] {
            assert!(sample.of_kind(kind).len() >= least, "{kind}");
        }
        sample
    }

    fn of_kind(&self, kind: &str) -> Vec<&(PathBuf, u64)> {
        let is_kind = |file: &&(PathBuf, u64)| file.0.extension().is_some_and(|found| found == kind);
        self.files.iter().filter(is_kind).collect()
    }

    fn is_last_log(&self, path: &Path) -> bool {
        self.of_kind("wal").last().is_some_and(|(last, _)| last == path)
    }
}

fn path_of(error: &Error) -> Option<&Path> {
    match error {
        Error::File { path, .. }
        | Error::Damaged { path, .. }
        | Error::Missing { path }
        | Error::Unsupported { path, .. }
        | Error::Io { path, .. } => Some(path),
        _ => None,
    }
}

/// Checks that an error is one that names one of the damaged files.
fn expect_named(error: &Error, damaged: &[&Path], what: &str) {
    let named = path_of(error).is_some_and(|path| damaged.contains(&path));
    assert!(named && error.kind() == ErrorKind::Corrupt, "{what}: the wrong error: {error} {error:?}");
}

/// Opens for reading and reads everything. `Ok(false)`: blocks at the end are missing.
fn read(sample: &Sample, disk: &SimStorage) -> Result<bool, Error> {
    let reader = Reader::open_on(storage(disk), PATH)?;
    reader.latest()?;
    let mut oracle = sample.oracle.clone();
    let is_whole = reader.head() == oracle.head();
    oracle.unwind(reader.head().unwrap_or(0));
    oracle.read_all(&reader, 3)?;
    if reader.commitment() == Commitment::Ethereum {
        ethereum::check_proofs(&oracle, &reader.latest()?, 4)?;
    }
    Ok(is_whole)
}

/// Reads everything where files are known to be missing or wrong: an error names one of them. Accessors may be done
/// without, which the statistics say; then every answer is right.
fn expect_named_or_degraded(sample: &Sample, disk: &SimStorage, damaged: &[&Path], what: &str) {
    match read(sample, disk) {
        Err(error) => expect_named(&error, damaged, what),
        Ok(is_whole) => {
            assert!(is_whole, "{what}: blocks are gone");
            let is_accessor = |path: &&Path| {
                path.extension().is_some_and(|kind| kind == "bt" || kind == "kvei" || kind == "kvbi")
            };
            // Few roots are asked for, and none by way of a filter; nodes are for proofs of the past.
            let is_of =
                |domain: &str, path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with(domain);
            let is_used = |path: &&&Path| !is_of("_roots", path) && !is_of("_nodes", path);
            if damaged.iter().all(|path| is_of("_nodes", path)) {
                return;
            }
            let reader = Reader::open_on(storage(disk), PATH).unwrap();
            if !damaged.iter().all(is_accessor) {
                // The few heights that were read did not need it; all of them do.
                let error = sample.oracle.read_all(&reader, usize::MAX).unwrap_err();
                return expect_named(&error, damaged, what);
            }
            sample.oracle.read_all(&reader, 3).unwrap();
            let stats = reader.stats();
            if damaged.iter().any(|path| is_used(&path)) {
                assert!(stats.degraded_reads > 0, "{what}");
                let named = |path: &&&Path| {
                    stats.problems.iter().any(|problem| problem.contains(path.to_str().unwrap()))
                };
                assert!(damaged.iter().filter(is_used).any(|path| named(&path)), "{what}: {stats:?}");
            }
        }
    }
}

/// What full verification says, the errors that keep it from running included.
fn problems(disk: &SimStorage) -> Vec<Error> {
    match verify_on(storage(disk), PATH, VerifyMode::Full, &()) {
        Ok(report) => report.problems,
        Err(error) => vec![error],
    }
}

/// What the tasks of a verification announce, and what they then report.
#[derive(Default)]
struct Progress(Mutex<Vec<(u64, u64)>>);

impl ProgressListener for Progress {
    fn begin(&self, _: &str, units: Option<u64>) {
        self.0.lock().unwrap().push((units.unwrap(), 0));
    }

    fn advance(&self, units: u64) {
        self.0.lock().unwrap().last_mut().unwrap().1 += units;
    }
}

#[test]
fn verify_reports_all_the_progress_that_it_announces() {
    let sample = Sample::new();
    let damaged = sample.disk.kill_clone();
    for (path, len) in sample.of_kind("kv") {
        damaged.corrupt(path, len / 2, 4);
    }
    for disk in [&sample.disk, &damaged] {
        for mode in [VerifyMode::Fast, VerifyMode::Full] {
            let progress = Progress::default();
            verify_on(storage(disk), PATH, mode, &progress).unwrap();
            let (announced, reported) = progress.0.into_inner().unwrap()[0];
            assert_eq!(announced, reported, "{mode:?}");
        }
    }
}

fn expect_reported(disk: &SimStorage, damaged: &[&Path], what: &str) {
    let problems = problems(disk);
    assert!(!problems.is_empty(), "{what}: verify reports nothing");
    for error in &problems {
        expect_named(error, damaged, what);
    }
}

/// Opens a copy for writing: damaged accessors are rebuilt, where opening can see it, and everything reads right.
fn expect_writable_or_named(sample: &Sample, disk: &SimStorage, damaged: &[&Path], what: &str) {
    let disk = disk.kill_clone();
    let result = Archive::open_on(storage(&disk), PATH, open_options()).and_then(|archive| {
        let mut oracle = sample.oracle.clone();
        oracle.unwind(archive.reader().head().unwrap_or(0));
        oracle.read_all(archive.reader(), 2)?;
        Ok(archive.repairs().to_vec())
    });
    match result {
        Err(error) => expect_named(&error, damaged, what),
        Ok(repairs) => {
            for name in repairs {
                assert!(damaged.iter().any(|path| path.ends_with(&name)), "{what}: repaired {name}");
            }
        }
    }
}

/// The bytes worth flipping: those that say something, and some of the padding.
fn offsets(bytes: &[u8], range: Range<u64>, every: u64) -> Vec<u64> {
    let is_chosen = |at: &u64| (bytes[*at as usize] != 0 && every < 50) || at.is_multiple_of(every);
    range.filter(is_chosen).collect()
}

/// Flips bytes of one file and tries every `thin`-th.
fn flip(sample: &Sample, file: &(PathBuf, u64), every: u64, thin: usize) -> usize {
    let (path, len) = file;
    let disk = sample.disk.kill_clone();
    let bytes = disk.bytes(path);
    let is_small = *len <= 2 * PAGE && path.extension().is_none_or(|kind| kind == "wal");
    let edges = if is_small { 0..*len } else { 0..160.min(*len) };
    let mut chosen: Vec<u64> = edges.collect();
    if !is_small {
        chosen.extend(offsets(&bytes, len - PAGE..*len, 7));
        chosen.extend(offsets(&bytes, 160..len - PAGE, every));
    }
    let chosen: Vec<u64> = chosen.into_iter().step_by(thin).collect();
    for (i, at) in chosen.iter().enumerate() {
        let xor = [0x01, 0x80, 0xFF, 0x10][i % 4];
        disk.corrupt(path, *at, xor);
        let what = format!("{} byte {at} of {len} ^ {xor:#x}", path.display());
        let is_tail = sample.is_last_log(path) && *at >= len - MARK_LEN;
        match read(sample, &disk) {
            Ok(is_whole) => assert!(is_whole || is_tail, "{what}: blocks are gone without a word"),
            Err(error) => expect_named(&error, &[path], &what),
        }
        if i % 9 == 0 && !is_tail {
            expect_reported(&disk, &[path], &what);
            expect_writable_or_named(sample, &disk, &[path], &what);
        }
        disk.corrupt(path, *at, xor);
    }
    assert!(disk.bytes(path) == bytes);
    chosen.len()
}

#[test]
fn a_flipped_byte_is_named_or_harmless() {
    let sample = Sample::new();
    let mut flips = 0;
    for file in &sample.files {
        flips += flip(&sample, file, 61, 1);
    }
    println!("{flips} flips in {} files", sample.files.len());
}

/// Cuts a file short at every `thin`-th place.
fn cut(sample: &Sample, (path, len): &(PathBuf, u64), thin: usize) {
    let every = if *len <= 2 * PAGE { 1 } else { 509 };
    let is_chosen = |cut: &u64| cut.is_multiple_of(every) || len - cut < 4 || cut.is_multiple_of(PAGE);
    for cut in (0..*len).filter(is_chosen).step_by(thin) {
        let disk = sample.disk.kill_clone();
        disk.truncate(path, cut);
        let what = format!("{} cut to {cut} of {len}", path.display());
        let is_last_mark = sample.is_last_log(path) && len - cut <= MARK_LEN;
        match read(sample, &disk) {
            // The last mark says nothing that the manifest does not.
            Ok(is_whole) if is_last_mark => assert!(is_whole, "{what}"),
            Ok(_) => expect_named_or_degraded(sample, &disk, &[path], &what),
            Err(error) => expect_named(&error, &[path], &what),
        }
        if cut % 11 == 0 {
            if !is_last_mark {
                expect_reported(&disk, &[path], &what);
            }
            expect_writable_or_named(sample, &disk, &[path], &what);
        }
    }
}

#[test]
fn a_file_cut_short_is_named() {
    let sample = Sample::new();
    sample.files.iter().for_each(|file| cut(&sample, file, 1));
}

#[test]
fn a_longer_file_is_named() {
    let sample = Sample::new();
    for kind in ["kv", "bt", "kvei", "kvbi"] {
        let files = sample.of_kind(kind);
        let (short, long) =
            (files.iter().min_by_key(|f| f.1).unwrap(), files.iter().max_by_key(|f| f.1).unwrap());
        let disk = sample.disk.kill_clone();
        disk.swap(&short.0, &long.0);
        expect_named_or_degraded(&sample, &disk, &[&short.0, &long.0], kind);
    }
}

#[test]
fn exchanged_files_are_named() {
    let sample = Sample::new();
    for kind in ["kv", "bt", "kvei", "kvbi", "wal"] {
        let files = sample.of_kind(kind);
        for (i, a) in files.iter().enumerate() {
            for b in &files[i + 1..] {
                let disk = sample.disk.kill_clone();
                disk.swap(&a.0, &b.0);
                let what = format!("{} exchanged with {}", a.0.display(), b.0.display());
                let damaged = [a.0.as_path(), b.0.as_path()];
                expect_named_or_degraded(&sample, &disk, &damaged, &what);
                expect_reported(&disk, &damaged, &what);
                expect_writable_or_named(&sample, &disk, &damaged, &what);
            }
        }
    }
}

fn remove(sample: &Sample, path: &Path) {
    let disk = sample.disk.kill_clone();
    disk.lose(path);
    let what = format!("{} removed", path.display());
    expect_named_or_degraded(sample, &disk, &[path], &what);
    if let Err(error) = read(sample, &disk) {
        assert!(matches!(error, Error::Missing { .. }), "{what}: {error:?}");
    }
    expect_reported(&disk, &[path], &what);
    expect_writable_or_named(sample, &disk, &[path], &what);
}

#[test]
fn a_missing_file_is_named() {
    let sample = Sample::new();
    sample.files.iter().for_each(|(path, _)| remove(&sample, path));
}

/// A thinner choice of the same, with proofs at the head: the trie is built from what is read.
#[test]
fn damage_of_an_archive_for_ethereum_is_named() {
    let sample = Sample::of(Commitment::Ethereum);
    let mut flips = 0;
    for file in &sample.files {
        flips += flip(&sample, file, 61, 41);
        cut(&sample, file, 97);
        remove(&sample, &file.0);
    }
    println!("{flips} flips in {} files", sample.files.len());
}

#[test]
fn a_writer_rebuilds_what_it_cannot_open() {
    let sample = Sample::new();
    let accessors: Vec<_> = [sample.of_kind("bt"), sample.of_kind("kvei"), sample.of_kind("kvbi")].concat();
    let harm: [fn(&SimStorage, &Path, u64); 4] = [
        |disk, path, _| disk.lose(path),
        |disk, path, len| disk.truncate(path, len / 2),
        |disk, path, _| disk.corrupt(path, 9, 0x40),
        |disk, path, len| disk.corrupt(path, len - 1, 0x40),
    ];
    for (i, (path, len)) in accessors.into_iter().enumerate() {
        let disk = sample.disk.kill_clone();
        harm[i % harm.len()](&disk, path, *len);
        let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(archive.repairs(), [name], "said which");
        sample.oracle.read_all(archive.reader(), 4).unwrap();
        archive.close().unwrap();
        assert!(problems(&disk).is_empty());
        let report = verify_on(storage(&disk), PATH, VerifyMode::Fast, &()).unwrap();
        assert!(report.garbage.is_empty(), "{:?}", report.garbage);
        let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
        assert!(archive.repairs().is_empty(), "repaired once for all");
    }
}

#[test]
fn all_accessors_at_once_are_rebuilt() {
    let sample = Sample::new();
    let disk = sample.disk.kill_clone();
    let accessors: Vec<_> = [sample.of_kind("bt"), sample.of_kind("kvei"), sample.of_kind("kvbi")].concat();
    accessors.iter().for_each(|(path, _)| disk.lose(path));
    let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
    assert_eq!(archive.repairs().len(), accessors.len());
    sample.oracle.read_all(archive.reader(), 8).unwrap();
    for (path, _) in accessors {
        // The named file is not written again: the new one has another revision.
        let (stem, kind) = (path.with_extension(""), path.extension().unwrap().to_str().unwrap());
        let rebuilt = PathBuf::from(format!("{}.1.{kind}", stem.display()));
        assert!(disk.bytes(&rebuilt) == sample.disk.bytes(path), "{}: the same bytes again", path.display());
    }
}

#[test]
fn a_damaged_page_of_an_accessor_is_cured_by_a_rebuild() {
    let sample = Sample::new();
    for (path, len) in [sample.of_kind("bt"), sample.of_kind("kvei"), sample.of_kind("kvbi")].concat() {
        let disk = sample.disk.kill_clone();
        disk.corrupt(path, (len / PAGE / 2) * PAGE + 8, 0x04);
        let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
        archive.reindex(icecore::ReindexRule::Rebuild, None, &()).unwrap();
        sample.oracle.read_all(archive.reader(), 4).unwrap();
        archive.close().unwrap();
        assert!(problems(&disk).is_empty(), "{}", path.display());
    }
}

#[test]
fn a_missing_segment_fails_the_lookups_that_need_it_and_no_other() {
    let sample = Sample::new();
    let Some((lost, _)) = sample
        .of_kind("kv")
        .into_iter()
        .find(|(path, _)| path.file_name().unwrap().to_str().unwrap().starts_with("code."))
    else {
        panic!("the sample has a segment of `code`")
    };
    let disk = sample.disk.kill_clone();
    disk.lose(lost);
    let check = |reader: &Reader| {
        let at = reader.head().unwrap();
        assert_eq!(Some(at), sample.oracle.head());
        let view = reader.at(at).unwrap();
        assert_eq!(view.root().unwrap(), sample.oracle.roots[&at]);
        for (domain, key) in sample.oracle.keys() {
            let found = view.get(oracle::DOMAINS[domain], &key);
            match found {
                Ok(value) => assert_eq!(value, sample.oracle.get(domain, &key, at)),
                Err(error) => {
                    assert_eq!(domain, 1, "{error}");
                    expect_named(&error, &[lost], "a lookup in `code`");
                }
            }
        }
        assert!(view.scan("code", &icecore::Scan::all()).unwrap().any(|entry| entry.is_err()));
        let stats = reader.stats();
        assert!(stats.problems.iter().any(|problem| problem.contains(lost.to_str().unwrap())));
        let listed = reader.segments();
        let name = lost.file_name().unwrap().to_str().unwrap();
        let of_lost = listed.iter().find(|segment| segment.files[0] == name).unwrap();
        assert!(of_lost.problem.as_ref().is_some_and(|problem| problem.contains("missing")));
        assert_eq!(listed.iter().filter(|segment| segment.problem.is_some()).count(), 1);
    };
    check(&Reader::open_on(storage(&disk), PATH).unwrap());
    expect_reported(&disk, &[lost], "a missing segment");
    let archive = Archive::open_on(storage(&disk), PATH, open_options()).unwrap();
    check(archive.reader());
    // The tree of the state needs every segment, so no block goes in on top of a hole.
    let error = archive.begin(1000).unwrap().commit().unwrap_err();
    expect_named(&error, &[lost], "a commit");
    archive.close().unwrap();
    assert_eq!(problems(&disk).len(), 1, "nothing else was lost by trying");
}
