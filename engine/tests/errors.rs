//! The text and the kind of every error: users and scripts see them, so a change must be meant.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use icecore::testing::{Fault, SimStorage};
use icecore::{
    Archive, Available, DensityRule, Domain, Durability, Error, ErrorKind, Maintenance, OpenOptions,
    Operation, Options, Reader,
};

fn path() -> PathBuf {
    PathBuf::from("/a/kv.0-4.kv")
}

fn io_error(operation: Operation, kind: io::ErrorKind) -> Error {
    Error::Io { operation, path: path(), source: kind.into() }
}

fn file(source: icecore_segments::Error) -> Error {
    Error::File { path: path(), source }
}

fn corrupt() -> icecore_segments::Error {
    use icecore_segments::error::{Corruption, Part, Reason};
    Corruption { part: Part::DataPage, offset: 8192, reason: Reason::Checksum }.into()
}

/// One of each, with the whole chain of its causes and what to do about it.
fn about_files() -> Vec<(Error, &'static str, ErrorKind)> {
    let segment_unsupported =
        icecore_segments::Error::Unsupported { what: "format version", found: 9, supported: 1 };
    let mismatch = icecore_segments::Error::Mismatch {
        what: "content checksum",
        expected: "aa".to_owned(),
        found: "bb".to_owned(),
    };
    vec![
        (
            file(corrupt()),
            "/a/kv.0-4.kv: damaged part=data-page offset=8192 reason=checksum",
            ErrorKind::Corrupt,
        ),
        (
            file(mismatch),
            "/a/kv.0-4.kv: content checksum does not match expected=aa found=bb",
            ErrorKind::Corrupt,
        ),
        (
            file(segment_unsupported),
            "/a/kv.0-4.kv: unsupported format version found=9 supported=1",
            ErrorKind::Unsupported,
        ),
        (
            file(icecore_segments::Error::Write(io::ErrorKind::StorageFull.into())),
            "/a/kv.0-4.kv: write failed: no storage space",
            ErrorKind::NoSpace,
        ),
        (
            file(icecore_segments::Error::Write(io::ErrorKind::Other.into())),
            "/a/kv.0-4.kv: write failed: other error",
            ErrorKind::Environment,
        ),
        (
            Error::Damaged { path: "/a/MANIFEST".into(), offset: 16, reason: "length" },
            "damaged /a/MANIFEST offset=16 reason=length",
            ErrorKind::Corrupt,
        ),
        (Error::Missing { path: path() }, "missing file /a/kv.0-4.kv", ErrorKind::Corrupt),
        (
            Error::Unsupported { path: "/a/MANIFEST".into(), found: 2, supported: 1 },
            "unsupported format version=2 supported=1 in /a/MANIFEST",
            ErrorKind::Unsupported,
        ),
    ]
}

fn about_archives() -> Vec<(Error, &'static str, ErrorKind)> {
    let dir = || PathBuf::from("/a");
    vec![
        (
            Error::Locked { path: "/a/LOCK".into() },
            "archive is locked by another writer: /a/LOCK",
            ErrorKind::Busy,
        ),
        (Error::KeepsChanging { path: dir() }, "the archive at /a keeps changing", ErrorKind::Busy),
        (Error::Closed { path: dir() }, "the archive at /a was closed", ErrorKind::Closed),
        (Error::Replaced { path: dir() }, "the archive at /a was replaced by another one", ErrorKind::Closed),
        (Error::NotAnArchive { path: dir() }, "no archive at /a", ErrorKind::NotFound),
        (Error::Unfinished { path: dir() }, "the copy at /a was not finished", ErrorKind::NotFound),
        (Error::Exists { path: dir() }, "/a exists and is not empty", ErrorKind::AlreadyExists),
        (
            Error::RootMismatch { block: 7, expected: "aa".to_owned(), found: "bb".to_owned() },
            "root of block 7 does not match the state expected=aa found=bb",
            ErrorKind::Corrupt,
        ),
        (Error::RootMissing { block: 7 }, "no root recorded for block 7", ErrorKind::Corrupt),
        (
            Error::DigestMismatch { block: 7 },
            "the changes of block 7 are not those that were recorded",
            ErrorKind::Corrupt,
        ),
        (
            Error::Poisoned { since: "cannot sync /a/wal/1.wal".to_owned(), cause: ErrorKind::Environment },
            "writes are refused since an earlier failure: cannot sync /a/wal/1.wal",
            ErrorKind::Closed,
        ),
        (
            Error::Poisoned { since: "cannot write /a/wal/1.wal".to_owned(), cause: ErrorKind::NoSpace },
            "writes are refused since an earlier failure: cannot write /a/wal/1.wal",
            ErrorKind::NoSpace,
        ),
        (
            Error::Poisoned { since: "cannot map /a/kv.0-4.kv".to_owned(), cause: ErrorKind::Limit },
            "writes are refused since an earlier failure: cannot map /a/kv.0-4.kv",
            ErrorKind::Limit,
        ),
    ]
}

fn about_calls() -> Vec<(Error, &'static str, ErrorKind)> {
    vec![
        (
            Error::OutOfRange { asked: 9, available: Available::Nothing },
            "block 9 is out of range: the archive has no block",
            ErrorKind::OutOfRange,
        ),
        (
            Error::OutOfRange { asked: 9, available: Available::Blocks(1, 8) },
            "block 9 is out of range: the archive has blocks 1 to 8",
            ErrorKind::OutOfRange,
        ),
        (
            Error::CommitUnknown {
                height: 7,
                source: Box::new(io_error(Operation::Sync, io::ErrorKind::StorageFull)),
            },
            "block 7 may or may not be committed, open the archive again to learn which: cannot sync /a/kv.0-4.kv: no storage space",
            ErrorKind::NoSpace,
        ),
        (
            Error::InsideArchive { path: "/a/b".into(), archive: "/a".into() },
            "/a/b is inside the archive /a, a checkpoint needs a directory outside it",
            ErrorKind::Misuse,
        ),
        (Error::Empty, "the archive has no block", ErrorKind::OutOfRange),
        (Error::NotRising { head: 8, got: 8 }, "block 8 does not rise above the head 8", ErrorKind::Misuse),
        (
            Error::StaleBlock { height: 8 },
            "block 8 was begun before blocks were unwound, begin it again",
            ErrorKind::Misuse,
        ),
        (
            Error::TooHigh { got: u64::MAX },
            "block 18446744073709551615 is too high, no block could follow it",
            ErrorKind::Misuse,
        ),
        (
            Error::KeyLength { domain: "kv".to_owned(), expected: 20, found: 19 },
            "a key of domain kv has 20 bytes, this one has 19",
            ErrorKind::Misuse,
        ),
        (
            Error::UnknownDomain { name: "cod\n".to_owned(), declared: "kv, code".to_owned() },
            "unknown domain 'cod\\n', declared: kv, code",
            ErrorKind::Misuse,
        ),
        (
            Error::TooLarge { what: "key", len: 1025, max: 1024 },
            "key too large len=1025 max=1024",
            ErrorKind::Misuse,
        ),
        (
            Error::Options { field: "blocks_per_step", reason: "must be at least 1".to_owned() },
            "option blocks_per_step: must be at least 1",
            ErrorKind::Misuse,
        ),
    ]
}

#[test]
fn invalid_options_are_refused() {
    let disk = SimStorage::new();
    let storage = || -> Arc<dyn icecore::storage::Storage> { Arc::new(disk.clone()) };
    let zero = OpenOptions::new().durability(Durability::Group { blocks: 0 });
    let refused = |archive: Result<Archive, Error>| {
        let error = archive.expect_err("no group of no block");
        assert_eq!(error.kind(), ErrorKind::Misuse);
        assert_eq!(error.to_string(), "option durability: a group has at least 1 block");
    };
    refused(Archive::create_on(storage(), "/a", Options::new().domain("kv"), zero));
    assert!(disk.files().is_empty(), "nothing was created");
    drop(Archive::create_on(storage(), "/a", Options::new().domain("kv"), OpenOptions::new()).unwrap());
    refused(Archive::open_on(storage(), "/a", zero));
    let no_merge = OpenOptions::new().merge_span_max(0);
    let refused = Archive::open_on(storage(), "/a", no_merge).expect_err("no merge of no step");
    assert_eq!(refused.to_string(), "option merge_span_max: must be at least 1");
    let kv = || Options::new().domain("kv");
    for (options, text) in [
        (kv().domain("kv"), "option domain: 'kv' is declared twice"),
        (kv().blocks_per_step(u64::MAX), "option blocks_per_step: must be at most 2^40"),
        (kv().reorg_window((1 << 40) + 1), "option reorg_window: must be at most 2^40"),
        (kv().density(DensityRule::Budget { bytes: 0 }), "option density: a budget has at least 1 byte"),
        (
            Options::new().declare(Domain::new("kv").key_len(0)),
            "option domain: the keys of 'kv' must have 1 to 1024 bytes",
        ),
    ] {
        let error = Archive::create_on(storage(), "/b", options, OpenOptions::new()).err().unwrap();
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_height_that_no_block_could_follow_is_refused() {
    let storage: Arc<dyn icecore::storage::Storage> = Arc::new(SimStorage::new());
    let archive = Archive::create_on(storage, "/a", Options::new().domain("kv"), OpenOptions::new()).unwrap();
    assert!(matches!(archive.begin(u64::MAX), Err(Error::TooHigh { .. })));
    assert!(matches!(archive.draft(u64::MAX).commit(), Err(Error::TooHigh { .. })));
    archive.begin(u64::MAX - 1).unwrap().commit().unwrap();
    assert_eq!(archive.reader().head(), Some(u64::MAX - 1));
}

#[test]
fn an_archive_without_a_block_says_so() {
    let storage: Arc<dyn icecore::storage::Storage> = Arc::new(SimStorage::new());
    let options = Options::new().domain("kv");
    let archive = Archive::create_on(Arc::clone(&storage), "/a", options, OpenOptions::new()).unwrap();
    for reader in [archive.reader().clone(), Reader::open_on(storage, "/a").unwrap()] {
        assert!(matches!(reader.latest(), Err(Error::Empty)));
    }
}

fn whole_text(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", whole_text(source)),
        None => error.to_string(),
    }
}

#[test]
fn every_error_says_what_it_always_said() {
    for (error, text, kind) in [about_files(), about_archives(), about_calls()].into_iter().flatten() {
        assert_eq!(whole_text(&error), text);
        assert_eq!(error.kind(), kind, "{text}");
    }
}

#[test]
fn every_operation_has_its_verb() {
    let verbs = [
        (Operation::Create, "create"),
        (Operation::Open, "open"),
        (Operation::Read, "read"),
        (Operation::Map, "map"),
        (Operation::Write, "write"),
        (Operation::Sync, "sync"),
        (Operation::Rename, "rename"),
        (Operation::Remove, "remove"),
        (Operation::List, "list"),
        (Operation::Lock, "lock"),
    ];
    for (operation, verb) in verbs {
        let error = io_error(operation, io::ErrorKind::PermissionDenied);
        assert_eq!(whole_text(&error), format!("cannot {verb} /a/kv.0-4.kv: permission denied"));
        assert_eq!(error.kind(), ErrorKind::Environment);
    }
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
        assert_eq!(io_error(Operation::Write, kind).kind(), ErrorKind::NoSpace);
    }
}

#[test]
fn a_limit_of_the_system_is_named_with_what_to_do() {
    for (operation, code, limit) in [
        (Operation::Open, 24, "a process are limited by `ulimit -n`"),
        (Operation::Create, 23, "all processes are limited by fs.file-max"),
        (Operation::Map, 12, "a process are limited by vm.max_map_count"),
    ] {
        let error = Error::Io { operation, path: path(), source: io::Error::from_raw_os_error(code) };
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        let text = error.to_string();
        assert!(text.contains(limit) && text.ends_with("or merge segments"), "{text}");
    }
}

#[test]
fn a_full_disk_is_known_as_one_by_every_later_write() {
    let disk = SimStorage::new();
    let options = Options::new().domain("kv");
    let inline = OpenOptions::new().maintenance(Maintenance::Inline);
    let archive = Archive::create_on(Arc::new(disk.clone()), "/a", options, inline).unwrap();
    archive.begin(1).unwrap().commit().unwrap();
    disk.inject(Fault::at(disk.operations() + 1).no_space());
    let first = archive.begin(2).unwrap().commit().unwrap_err();
    assert_eq!(first.kind(), ErrorKind::NoSpace, "{first}");
    let later = archive.begin(2).expect_err("writes are refused");
    assert!(matches!(later, Error::Poisoned { .. }) && later.kind() == ErrorKind::NoSpace, "{later}");
}
