//! The simulated disk does lose what it may lose, and nothing else.

use std::collections::BTreeSet;

use super::*;

fn disk_with(bytes: &[u8]) -> (SimStorage, Box<dyn WriteFile>) {
    let disk = SimStorage::new();
    let mut file = disk.create(Path::new("/f")).unwrap();
    file.write_all(bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, file)
}

/// What one file is after power losses of many seeds; `None` where it is gone.
fn outcomes(disk: &SimStorage, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..400).map(|seed| disk.crash_clone(seed).read(Path::new(path)).unwrap()).collect()
}

#[test]
fn the_simulated_disk_keeps_the_contract() {
    let disk = SimStorage::new();
    disk.create_dir(Path::new("/d")).unwrap();
    crate::testing::contract::check(&disk, Path::new("/d"));
}

#[test]
fn synced_bytes_stay_and_others_may_go_in_part() {
    let (disk, mut file) = disk_with(b"synced");
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([Some(b"synced".to_vec())]));
    file.write_all(&[7; 1500]).unwrap();
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([Some(b"synced".to_vec())]), "a buffer is no disk");
    file.flush().unwrap();
    assert_eq!(disk.kill_clone().bytes(Path::new("/f")).len(), 1506, "a kill takes nothing from the system");
    let outcomes = outcomes(&disk, "/f");
    let all: Vec<_> = outcomes.iter().map(|bytes| bytes.as_deref().unwrap()).collect();
    assert!(all.iter().all(|bytes| bytes.starts_with(b"synced") && bytes.len() <= 1506));
    let has = |what: &dyn Fn(&[u8]) -> bool| all.iter().any(|bytes| what(&bytes[6..]));
    assert!(has(&|bytes| bytes.is_empty()) && has(&|bytes| bytes == [7; 1500]), "nothing, everything");
    assert!(
        has(&|bytes| !bytes.is_empty() && bytes.len() < 1500 && bytes.iter().all(|b| *b == 7)),
        "a prefix"
    );
    assert!(has(&|bytes| bytes.ends_with(&[0; 20]) && bytes.starts_with(&[7])), "zeros after");
    assert!(has(&|bytes| bytes.starts_with(&[0]) && bytes.ends_with(&[7])), "a hole before");
    assert!(has(&|bytes| bytes.iter().any(|b| *b != 0 && *b != 7)), "garbage");
}

#[test]
fn a_cut_that_was_not_synced_may_not_have_happened() {
    let (disk, file) = disk_with(b"0123456789");
    drop(file);
    let mut file = disk.append(Path::new("/f"), 4..4).unwrap();
    let expected = [b"0123".to_vec(), b"0123456789".to_vec()].map(Some);
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from(expected));
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([Some(b"0123".to_vec())]));
}

#[test]
fn names_last_when_their_directory_was_synced() {
    let (disk, _file) = disk_with(b"old");
    let mut fresh = disk.create(Path::new("/new")).unwrap();
    fresh.write_all(b"new").unwrap();
    fresh.sync().unwrap();
    disk.rename(Path::new("/new"), Path::new("/f")).unwrap();
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([b"old".to_vec(), b"new".to_vec()].map(Some)));
    assert_eq!(
        outcomes(&disk, "/new"),
        BTreeSet::from([None, Some(b"new".to_vec())]),
        "with and without its name"
    );
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([Some(b"new".to_vec())]));
    assert_eq!(outcomes(&disk, "/new"), BTreeSet::from([None]));
    disk.remove(Path::new("/f")).unwrap();
    assert_eq!(
        outcomes(&disk, "/f"),
        BTreeSet::from([None, Some(b"new".to_vec())]),
        "a removal may be undone"
    );
}

#[test]
fn a_directory_takes_with_it_what_it_holds() {
    let disk = SimStorage::new();
    disk.create_dir(Path::new("/d")).unwrap();
    disk.create(Path::new("/d/f")).unwrap().sync().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([None, Some(vec![])]));
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(outcomes(&disk, "/d/f"), BTreeSet::from([Some(vec![])]));
}

#[test]
fn a_sync_that_failed_is_not_made_good_by_the_next() {
    let (disk, mut file) = disk_with(b"");
    file.write_all(b"data").unwrap();
    file.flush().unwrap();
    disk.fail_at(disk.operations() + 1);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([vec![0; 4], b"data".to_vec()].map(Some)));
}

#[test]
fn faults_come_when_and_as_they_were_arranged() {
    let (disk, mut file) = disk_with(b"");
    disk.inject(Fault::at(disk.operations() + 2).no_space());
    disk.len(Path::new("/f")).unwrap();
    let error = disk.remove(Path::new("/f")).unwrap_err();
    assert_eq!(error.kind(), crate::error::ErrorKind::NoSpace);
    assert_eq!(disk.files().len(), 1, "what fails does nothing");
    disk.len(Path::new("/f")).unwrap();
    disk.inject(Fault::at(disk.operations() + 1).torn(5).from_then_on());
    file.write_all(&[1; 100]).unwrap();
    assert!(file.flush().is_err());
    let written = disk.bytes(Path::new("/f")).len();
    assert!(0 < written && written < 100, "torn at {written}");
    assert!(disk.len(Path::new("/f")).is_err() && disk.sync_dir(Path::new("/")).is_err(), "and all after it");
    disk.heal();
    disk.len(Path::new("/f")).unwrap();
}

#[test]
fn a_lock_ends_with_its_process() {
    let disk = SimStorage::new();
    disk.create_dir(Path::new("/d")).unwrap();
    let _held = disk.lock(Path::new("/d")).unwrap();
    assert!(matches!(disk.clone().lock(Path::new("/d")), Err(Error::Locked { .. })), "the same disk");
    let _next = disk.kill_clone().lock(Path::new("/d")).unwrap();
}

#[test]
fn the_seed_decides_everything() {
    let run = || {
        let (disk, mut file) = disk_with(b"x");
        file.write_all(&[3; 5000]).unwrap();
        file.flush().unwrap();
        disk.create_dir(Path::new("/a/b")).unwrap();
        disk.create(Path::new("/a/b/c")).unwrap();
        (0..50).map(|seed| disk.crash_clone(seed).0.lock().names.clone().len()).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
    let (disk, mut file) = disk_with(b"x");
    file.write_all(&[3; 5000]).unwrap();
    file.flush().unwrap();
    let bytes = |seed| disk.crash_clone(seed).bytes(Path::new("/f"));
    assert!((0..50).all(|seed| bytes(seed) == bytes(seed)));
}

#[test]
fn damage_by_hand_is_where_it_was_put() {
    let (disk, _file) = disk_with(b"abc");
    disk.create(Path::new("/g")).unwrap();
    let mapped = disk.map(Path::new("/f"), Access::Random).unwrap();
    disk.corrupt(Path::new("/f"), 1, 0x20);
    assert_eq!((disk.bytes(Path::new("/f")), mapped.as_ref()), (b"aBc".to_vec(), &b"abc"[..]));
    disk.swap(Path::new("/f"), Path::new("/g"));
    assert_eq!(disk.files(), [("/f".into(), 0), ("/g".into(), 3)]);
    disk.truncate(Path::new("/g"), 2);
    disk.lose(Path::new("/f"));
    assert_eq!(disk.files(), [("/g".into(), 2)]);
    assert_eq!(outcomes(&disk, "/f"), BTreeSet::from([None]));
}

#[test]
fn a_film_shows_the_disk_before_each_operation() {
    let (disk, mut file) = disk_with(b"a");
    let first = disk.operations() + 1;
    disk.film(first, 2);
    for byte in b"bcd" {
        file.write_all(&[*byte]).unwrap();
        file.flush().unwrap();
    }
    let frames = disk.frames();
    let seen: Vec<_> = frames.iter().map(|(at, disk)| (*at - first, disk.bytes(Path::new("/f")))).collect();
    assert_eq!(seen, [(0, b"a".to_vec()), (2, b"abc".to_vec())]);
    assert!(disk.frames().is_empty());
}
