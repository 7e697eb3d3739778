//! Creating an archive: interrupted at any operation it can be done again, and it never covers an archive that is there.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;

use icecore::testing::{Fault, SimStorage};
use icecore::{Archive, Error, Maintenance, OpenOptions, Options};

const DIR: &str = "/data/archive";

fn create(disk: &SimStorage) -> Result<Archive, Error> {
    let options = Options::new().domain("kv").blocks_per_step(2).reorg_window(0);
    Archive::create_on(
        Arc::new(disk.clone()),
        DIR,
        options,
        OpenOptions::new().maintenance(Maintenance::Inline),
    )
}

fn open(disk: &SimStorage) -> Result<Archive, Error> {
    Archive::open_on(Arc::new(disk.clone()), DIR, OpenOptions::new().maintenance(Maintenance::Inline))
}

#[test]
fn creation_interrupted_anywhere_can_be_done_again() {
    let whole = SimStorage::new();
    create(&whole).unwrap().close().unwrap();
    let operations = whole.operations();
    assert!(operations > 5);
    for k in 1..=operations {
        let disk = SimStorage::new();
        disk.inject(Fault::at(k).from_then_on());
        drop(create(&disk));
        let left = (0..3).map(|seed| disk.crash_clone(seed)).chain([disk.kill_clone()]);
        for (n, left) in left.enumerate() {
            let archive = match open(&left) {
                Err(Error::NotAnArchive { .. }) => create(&left),
                opened => opened,
            };
            let archive = archive.unwrap_or_else(|error| panic!("operation {k}, disk {n}: {error}"));
            archive.begin(1).unwrap().commit().unwrap();
            for loss in 0..8 {
                let opened = open(&left.crash_clone(loss));
                let archive = opened.unwrap_or_else(|error| panic!("operation {k}, disk {n}, lost: {error}"));
                assert_eq!(archive.reader().head(), Some(1), "operation {k}, disk {n}");
            }
        }
    }
}

#[test]
fn an_archive_that_lost_its_manifest_is_not_created_over() {
    let disk = SimStorage::new();
    let archive = create(&disk).unwrap();
    for height in 1..=3 {
        let mut block = archive.begin(height).unwrap();
        block.put("kv", b"k", &height.to_le_bytes()).unwrap();
        block.commit().unwrap();
    }
    archive.close().unwrap();
    disk.lose(&Path::new(DIR).join("MANIFEST"));
    assert!(matches!(create(&disk), Err(Error::Exists { .. })));
    assert!(matches!(open(&disk), Err(Error::Missing { .. })));
}

#[test]
fn a_directory_that_is_no_archive_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let names = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    let refused = || Archive::open(dir.path(), OpenOptions::new()).unwrap_err();
    assert!(matches!(refused(), Error::NotAnArchive { .. }));
    assert!(names().is_empty(), "{:?}", names());
    std::fs::write(dir.path().join("1.jpg"), "x").unwrap();
    assert!(matches!(refused(), Error::NotAnArchive { .. }));
    let create = Archive::create(dir.path(), Options::new().domain("kv"));
    assert!(matches!(create, Err(Error::Exists { .. })));
    assert_eq!(names(), ["1.jpg"]);
}
