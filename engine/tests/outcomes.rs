//! What a failed commit says is so: *not committed* shows the block to nobody ever, *unknown* refuses writes until the archive
//! is opened again, and what is not poisoned can be tried again.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use icecore::storage::Storage;
use icecore::testing::{Fault, SimStorage};
use icecore::{Archive, Durability, Error, Maintenance, OpenOptions, Options, Reader, Root};

const PATH: &str = "/archive";
/// Of the block that fails: the first of a step, which begins a log file.
const HEIGHT: u64 = 8;

fn open(disk: &SimStorage, durability: Durability) -> Archive {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let options = OpenOptions::new().durability(durability).maintenance(Maintenance::EmitOnly);
    Archive::open_on(storage, PATH, options).unwrap()
}

fn commit(archive: &Archive, height: u64) -> Result<Root, Error> {
    let mut block = archive.begin(height)?;
    block.put("kv", b"key", &height.to_le_bytes())?;
    block.commit()
}

fn sample(durability: Durability) -> (SimStorage, Archive) {
    let disk = SimStorage::new();
    let options = Options::new().domain("kv").blocks_per_step(4).reorg_window(100);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    Archive::create_on(storage, PATH, options, OpenOptions::new()).unwrap().close().unwrap();
    let archive = open(&disk, durability);
    for height in 0..HEIGHT {
        commit(&archive, height).unwrap();
    }
    (disk, archive)
}

/// What the next writer finds, after a kill and after power losses.
fn heads(disk: &SimStorage, durability: Durability) -> Vec<Option<u64>> {
    let disks = [disk.kill_clone()].into_iter().chain((0..4).map(|seed| disk.crash_clone(seed)));
    disks.map(|disk| open(&disk, durability).reader().head()).collect()
}

#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    refused_and_poisoned: u32,
    unknown: u32,
}

fn try_everywhere(durability: Durability, fault: fn(u64) -> Fault) -> Seen {
    let mut seen = Seen::default();
    for at in 1.. {
        let (disk, archive) = sample(durability);
        disk.inject(fault(disk.operations() + at));
        let Err(error) = commit(&archive, HEIGHT) else { return seen };
        disk.heal();
        assert!(!matches!(error, Error::Poisoned { .. }), "nothing failed before");
        assert_eq!(archive.reader().head(), Some(HEIGHT - 1), "{at}: {error}");
        let is_unknown = matches!(error, Error::CommitUnknown { height: HEIGHT, .. });
        if is_unknown {
            seen.unknown += 1;
            assert!(archive.is_poisoned(), "{at}: {error}");
        } else if archive.is_poisoned() {
            seen.refused_and_poisoned += 1;
        } else {
            seen.refused += 1;
        }
        if archive.is_poisoned() {
            assert!(matches!(commit(&archive, HEIGHT), Err(Error::Poisoned { .. })));
            assert_eq!(archive.at(3).unwrap().get("kv", b"key").unwrap().unwrap(), 3u64.to_le_bytes());
        }
        if !is_unknown && durability == Durability::Block {
            for head in heads(&disk, durability) {
                assert_eq!(head, Some(HEIGHT - 1), "{at}: {error} said that it was not committed");
            }
        }
        if archive.is_poisoned() {
            drop(archive);
            let archive = open(&disk, durability);
            let next = archive.reader().head().unwrap() + 1;
            assert!(is_unknown || next == HEIGHT);
            commit(&archive, next).unwrap();
        } else {
            commit(&archive, HEIGHT).unwrap();
        }
        let storage: Arc<dyn Storage> = Arc::new(disk);
        assert!(Reader::open_on(storage, PATH).unwrap().head().unwrap() >= HEIGHT);
    }
    seen
}

#[test]
fn a_failed_commit_says_what_became_of_the_block() {
    for fault in [|at| Fault::at(at), |at| Fault::at(at).no_space(), |at| Fault::at(at).torn(at)] {
        let seen = try_everywhere(Durability::Block, fault);
        assert!(seen.refused > 0 && seen.refused_and_poisoned > 0 && seen.unknown >= 2, "{seen:?}");
        try_everywhere(Durability::Group { blocks: 3 }, fault);
        try_everywhere(Durability::Relaxed, fault);
    }
}
