//! What every [`Storage`] promises, as one suite that is run against each.
//!
//! Promises about power loss are not here: only the simulated disk can lose power, and its own tests show that it does.

use std::path::Path;

use crate::error::{Error, Operation};
use crate::storage::layout::LOCK;
use crate::storage::{Access, Storage, WriteFile};

/// Tries every promise of [`Storage`] in an existing, empty directory.
///
/// # Panics
/// At the first that is broken.
pub fn check(storage: &dyn Storage, dir: &Path) {
    directories(storage, &dir.join("directories"));
    creating(storage, &fresh(storage, dir, "creating"));
    appending(storage, &fresh(storage, dir, "appending"));
    mapping(storage, &fresh(storage, dir, "mapping"));
    following(storage, &fresh(storage, dir, "following"));
    linking(storage, &fresh(storage, dir, "linking"));
    renaming_and_removing(storage, &fresh(storage, dir, "renaming"));
    spooling(storage, &fresh(storage, dir, "spooling"));
    locking(storage, &fresh(storage, dir, "locking"));
}

fn fresh(storage: &dyn Storage, dir: &Path, name: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    storage.create_dir(&path).expect("a directory can be created");
    path
}

/// Puts a whole file there, synced.
fn put(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let mut file = storage.create(path).expect("a new file can be created");
    write(&mut *file, bytes);
    file.sync().expect("a file can be synced");
}

fn write(file: &mut dyn WriteFile, bytes: &[u8]) {
    file.write_all(bytes).expect("a file takes bytes");
}

fn content(storage: &dyn Storage, path: &Path) -> Option<Vec<u8>> {
    let bytes = storage.read(path).expect("reading works or says that there is no file");
    let len = storage.len(path).expect("a length can be asked");
    assert_eq!(len, bytes.as_ref().map(|bytes| bytes.len() as u64), "length and content agree");
    bytes
}

/// The operation failed, and the error says which and on what.
fn assert_io<T>(result: Result<T, Error>, wanted: Operation, on: &Path) {
    match result {
        Err(Error::Io { operation, path, .. }) => assert_eq!((operation, path.as_path()), (wanted, on)),
        Err(other) => panic!("not an I/O error: {other}"),
        Ok(_) => panic!("{wanted} {} did not fail", on.display()),
    }
}

fn directories(storage: &dyn Storage, dir: &Path) {
    let nested = dir.join("a/b");
    assert_eq!(storage.list(&nested).expect("asking is no error"), None);
    storage.create_dir(&nested).expect("with those above it");
    storage.create_dir(&nested).expect("one that exists is no error");
    assert_eq!(storage.list(&nested).expect("it is there"), Some(vec![]));
    for name in ["z", "a.kv", "Z", "a.1.kv"] {
        put(storage, &nested.join(name), b"");
    }
    storage.create_dir(&nested.join("inner")).expect("a directory among files");
    let listed = storage.list(&nested).expect("it is there").expect("it is there");
    assert_eq!(listed, ["Z", "a.1.kv", "a.kv", "z"], "files only, sorted by bytes");
    storage.sync_dir(&nested).expect("a directory can be synced");
    assert_io(storage.sync_dir(&dir.join("none")), Operation::Sync, &dir.join("none"));
    assert_io(storage.create(&dir.join("none/f")), Operation::Create, &dir.join("none/f"));
}

fn creating(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("f");
    assert_eq!(content(storage, &path), None);
    let mut file = storage.create(&path).expect("a new file can be created");
    assert_eq!(content(storage, &path), Some(vec![]), "the name is there at once");
    assert_io(storage.create(&path), Operation::Create, &path);
    write(&mut *file, b"one ");
    file.flush().expect("flushing works");
    assert_eq!(content(storage, &path).as_deref(), Some(&b"one "[..]), "flushed bytes are seen");
    write(&mut *file, b"two ");
    file.sync().expect("syncing works");
    assert_eq!(content(storage, &path).as_deref(), Some(&b"one two "[..]), "so are synced ones");
    let long: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
    write(&mut *file, &long);
    write(&mut *file, b"end");
    file.flush().expect("flushing works");
    let expected = [&b"one two "[..], &long, b"end"].concat();
    assert!(content(storage, &path) == Some(expected), "a write larger than any buffer keeps its place");
}

fn appending(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("f");
    assert_io(storage.append(&path, 0..0), Operation::Open, &path);
    assert_eq!(content(storage, &path), None, "appending creates nothing");
    put(storage, &path, b"0123456789");
    assert_io(storage.append(&path, 0..11), Operation::Open, &path);
    assert_eq!(
        content(storage, &path).as_deref(),
        Some(&b"0123456789"[..]),
        "a refused append changes nothing"
    );
    let mut file = storage.append(&path, 0..4).expect("an existing file can be appended to");
    assert_eq!(content(storage, &path).as_deref(), Some(&b"0123"[..]), "the cut happens at once");
    write(&mut *file, b"xy");
    file.sync().expect("syncing works");
    assert_eq!(content(storage, &path).as_deref(), Some(&b"0123xy"[..]));
}

fn mapping(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("f");
    for access in [Access::Random, Access::Sequential] {
        match storage.map(&path, access) {
            Err(Error::Missing { path: named }) => assert_eq!(named, path),
            other => panic!("mapping a file that is not there: {other:?}"),
        }
    }
    put(storage, &dir.join("empty"), b"");
    let empty = storage.map(&dir.join("empty"), Access::Random).expect("an empty file can be mapped");
    assert_eq!(empty.as_ref(), b"");
    put(storage, &path, &[7; 10_000]);
    put(storage, &dir.join("other"), b"other");
    let mapped = storage.map(&path, Access::Random).expect("a file can be mapped");
    mapped.will_need(4096..20_000);
    assert_eq!(mapped.as_ref(), [7; 10_000]);
    storage.rename(&dir.join("other"), &path).expect("a mapped file can be replaced");
    storage.remove(&path).expect("and removed");
    assert_eq!(mapped.as_ref(), [7; 10_000], "the mapping keeps the bytes of the file it was made of");
}

/// Reading a file that grows and is replaced.
fn following(storage: &dyn Storage, dir: &Path) {
    let (path, other) = (dir.join("log"), dir.join("log.new"));
    assert!(storage.open(&path).expect("asking is no error").is_none());
    put(storage, &path, b"one");
    let file = storage.open(&path).expect("a file can be opened").expect("it is there");
    let read = |offset, len| {
        let mut bytes = vec![0xAA; len];
        let read = file.read_at(offset, &mut bytes).expect("an open file can be read");
        bytes.truncate(read);
        bytes
    };
    assert_eq!(
        (read(0, 3), read(1, 9), read(3, 4), read(70, 4)),
        (b"one".into(), b"ne".into(), vec![], vec![])
    );
    let mut writer = storage.append(&path, 0..3).expect("an existing file can be appended to");
    write(&mut *writer, b"two");
    writer.sync().expect("a file can be synced");
    assert_eq!((file.len().expect("a length"), read(2, 9)), (6, b"etwo".to_vec()), "an open file grows");
    assert!(file.is_at(&path).expect("a name can be compared") && !file.is_at(&other).expect("also none"));
    put(storage, &other, b"three");
    storage.rename(&other, &path).expect("a rename replaces");
    assert!(!file.is_at(&path).expect("a name can be compared"), "another file has the name");
    assert_eq!(read(0, 9), b"onetwo", "bytes stay without a name");
    storage.remove(&path).expect("a file can be removed");
    assert!(!file.is_at(&path).expect("a name that nothing has"));
}

fn linking(storage: &dyn Storage, dir: &Path) {
    let (path, second) = (dir.join("a"), dir.join("b"));
    assert!(matches!(storage.link(&path, &second), Err(Error::Missing { path: named }) if named == path));
    put(storage, &path, b"one");
    if !storage.link(&path, &second).expect("a file can be linked, or the file system says no") {
        return;
    }
    assert_io(storage.link(&path, &second), Operation::Create, &second);
    storage.remove(&path).expect("a name can go");
    assert_eq!(content(storage, &second).as_deref(), Some(&b"one"[..]), "the other stays");
}

fn renaming_and_removing(storage: &dyn Storage, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    assert_io(storage.rename(&a, &b), Operation::Rename, &a);
    put(storage, &a, b"new");
    put(storage, &b, b"old");
    storage.rename(&a, &b).expect("a rename replaces");
    assert_eq!((content(storage, &a), content(storage, &b).as_deref()), (None, Some(&b"new"[..])));
    storage.rename(&b, &b).expect("a rename to itself does nothing");
    assert_eq!(content(storage, &b).as_deref(), Some(&b"new"[..]));
    let mut file = storage.append(&b, 0..3).expect("an existing file can be appended to");
    storage.remove(&b).expect("a file being written can be removed");
    assert_eq!(content(storage, &b), None);
    write(&mut *file, b"more");
    file.sync().expect("its writer goes on into nothing");
    assert_eq!(content(storage, &b), None);
    storage.remove(&b).expect("a file that is not there is no error");
    put(storage, &b, b"again");
    assert_eq!(content(storage, &b).as_deref(), Some(&b"again"[..]), "the name is free again");
}

fn spooling(storage: &dyn Storage, dir: &Path) {
    let mut spool = storage.spool(dir).expect("a spool file can be made");
    let mut expected = Vec::new();
    for i in 0..200_u32 {
        let bytes = vec![i as u8; (i * 37 % 5000) as usize];
        assert_eq!(spool.append(&bytes).expect("it takes bytes"), expected.len() as u64);
        expected.extend_from_slice(&bytes);
        let from = expected.len() * 2 / 3;
        let mut buf = vec![0; expected.len() - from];
        spool.read_at(from as u64, &mut buf).expect("and gives them back, between appends too");
        assert_eq!(buf, expected[from..]);
    }
    spool.read_at(expected.len() as u64, &mut []).expect("nothing can be read from the end");
    assert_io(spool.read_at(expected.len() as u64 - 1, &mut [0; 2]), Operation::Read, dir);
    assert_eq!(storage.list(dir).expect("it is there"), Some(vec![]), "it has no name");
    assert_io(storage.spool(&dir.join("none")), Operation::Create, &dir.join("none"));
}

fn locking(storage: &dyn Storage, dir: &Path) {
    let held = storage.lock(dir).expect("a free lock can be taken");
    match storage.lock(dir) {
        Err(Error::Locked { path }) => assert_eq!(path, dir.join(LOCK)),
        other => panic!("a second holder in the same process: {other:?}"),
    }
    let inner = dir.join("inner");
    storage.create_dir(&inner).expect("a directory can be created");
    let _other = storage.lock(&inner).expect("each directory has its own");
    assert!(storage.is_locked(dir).expect("a lock can be looked at"));
    drop(held);
    assert!(!storage.is_locked(dir).expect("a lock can be looked at"), "looking takes nothing");
    let again = storage.lock(dir).expect("it is free when its holder let go");
    drop(again);
    assert_io(storage.lock(&dir.join("none")), Operation::Lock, &dir.join("none").join(LOCK));
}
