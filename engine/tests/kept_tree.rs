//! The file `TREE`: a writer begins with it instead of the state, whichever block it is of, and with none that is not right.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::{Arc, Mutex};

use icecore::ethereum::{Address, BlockState, word};
use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Commitment, Error, Maintenance, OpenOptions, Options, ProgressListener, Root, VerifyMode,
    verify_on,
};

const PATH: &str = "/archive";
const TREE: &str = "/archive/TREE";

/// Hears what is begun.
#[derive(Default)]
struct Tasks(Mutex<Vec<String>>);

impl ProgressListener for Tasks {
    fn begin(&self, task: &str, _: Option<u64>) {
        self.0.lock().unwrap().push(task.to_owned());
    }
}

impl Tasks {
    /// Whether the state was read to build the tree.
    fn read_state(&self) -> bool {
        self.0.lock().unwrap().iter().any(|task| task.starts_with("build the trie"))
    }

    fn left_aside(&self) -> Option<String> {
        self.0.lock().unwrap().iter().find(|task| task.starts_with("leave TREE aside")).cloned()
    }
}

fn open_options() -> OpenOptions {
    OpenOptions::new().maintenance(Maintenance::EmitOnly).tree_memory(0)
}

fn create(disk: &SimStorage) -> Archive {
    let options = Options::new().commitment(Commitment::Ethereum).blocks_per_step(4).reorg_window(3);
    Archive::create_on(Arc::new(disk.clone()), PATH, options, open_options()).unwrap()
}

fn open(disk: &SimStorage, open: OpenOptions) -> (Archive, Arc<Tasks>) {
    let archive = Archive::open_on(Arc::new(disk.clone()), PATH, open).unwrap();
    let tasks = Arc::new(Tasks::default());
    archive.set_progress_listener(tasks.clone());
    (archive, tasks)
}

fn address(number: u64) -> Address {
    let mut address = [0xA0; 20];
    address[..8].copy_from_slice(&number.to_be_bytes());
    address
}

/// A block at `height`: the first makes the state, each other one changes some of it. `branch` tells blocks of one height apart.
fn commit(archive: &Archive, height: u64, branch: u64) -> Result<Root, Error> {
    let mut state = BlockState::new();
    if height == 1 {
        for number in 0..3000 {
            state.account(address(number)).nonce = Some(Some(number + 1));
        }
        for (account, slots) in [(7, 5000), (8, 200), (9, 1), (10, 300)] {
            let slots = (1..=slots).map(|slot| (word(slot), word(slot + 5)));
            state.account(address(account)).slots.extend(slots);
        }
    } else {
        state.account(address(height)).nonce = Some(Some(1000 + branch));
        state.account(address(4000 + height)).balance = Some(Some(word(branch + 1)));
        let (gone, large) = (address(2000 + height), state.account(address(7)));
        for slot in [height, 100 * height] {
            large.slots.insert(word(slot), word(if slot % 3 == 0 { 0 } else { branch + 1 }));
        }
        (state.account(gone).balance, state.account(gone).nonce) = (Some(None), Some(None));
        match height % 4 {
            0 => drop(state.account(address(8)).slots.insert(word(height), word(7 + branch))),
            // One whose small storage goes and comes, and one whose large one does.
            1 => drop(state.account(address(9)).slots.insert(word(1), word(height % 8 - 1))),
            2 => state.account(address(11)).slots.extend((1..400).map(|slot| (word(slot), word(height)))),
            _ => state.account(address(11)).wipes_storage = true,
        }
    }
    let before = archive.reader().latest().ok();
    let mut block = archive.begin(height)?;
    state.write(before.as_ref(), &mut block)?;
    block.commit()
}

fn put(disk: &SimStorage, bytes: &[u8]) {
    disk.remove(Path::new(TREE)).unwrap();
    let mut file = disk.create(Path::new(TREE)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new(PATH)).unwrap();
}

fn tree(disk: &SimStorage) -> Vec<u8> {
    disk.bytes(Path::new(TREE))
}

/// An archive of the blocks to `head`, the root of each, and `TREE` as it was left at some of them.
fn history(disk: &SimStorage, head: u64) -> (Vec<Root>, Vec<(u64, Vec<u8>)>) {
    let (mut roots, mut kept, mut archive) = (vec![Root::EMPTY], Vec::new(), create(disk));
    for height in 1..=head {
        roots.push(commit(&archive, height, 0).unwrap());
        if height % 3 == 1 || height + 6 > head {
            archive.close().unwrap();
            kept.push((height, tree(disk)));
            archive = open(disk, open_options()).0;
        }
    }
    archive.close().unwrap();
    (roots, kept)
}

/// The root of another block at `height`, by a writer that has the whole tree in memory.
fn expected(disk: &SimStorage, height: u64) -> Root {
    let (archive, tasks) = open(&disk.kill_clone(), open_options().tree_memory(u64::MAX));
    let root = commit(&archive, height, 1).unwrap();
    assert!(tasks.left_aside().is_none());
    root
}

#[test]
fn a_writer_begins_with_an_outline_of_any_block() {
    const HEAD: u64 = 23;
    let disk = SimStorage::new();
    let (roots, kept) = history(&disk, HEAD);
    let expected_next = expected(&disk, HEAD + 1);
    let mut used = 0;
    for (of, bytes) in kept {
        let disk = disk.kill_clone();
        put(&disk, &bytes);
        let (archive, tasks) = open(&disk, open_options());
        assert_eq!(commit(&archive, HEAD + 1, 1).unwrap(), expected_next, "kept at {of}");
        assert!(!tasks.read_state(), "kept at {of}: {:?}", tasks.left_aside());
        // What is in the reorg window can be taken back, and came from the outline.
        for back in [1, 3] {
            archive.unwind(HEAD + 1 - back, &()).unwrap();
            assert_eq!(archive.root(HEAD + 1 - back).unwrap(), roots[(HEAD + 1 - back) as usize]);
            for height in HEAD + 2 - back..=HEAD {
                assert_eq!(commit(&archive, height, 0).unwrap(), roots[height as usize], "kept at {of}");
            }
            assert_eq!(commit(&archive, HEAD + 1, 1).unwrap(), expected_next, "kept at {of}");
        }
        assert!(!tasks.read_state(), "the tree was not built again");
        let view = archive.at(HEAD).unwrap();
        for number in [2, 7, 8, 9, 11, 4000 + HEAD] {
            let proof = view.prove_account(&address(number), &[word(1), word(HEAD)]).unwrap();
            proof.verify(&roots[HEAD as usize], &address(number)).unwrap();
        }
        archive.close().unwrap();
        let report = verify_on(Arc::new(disk.clone()), PATH, VerifyMode::Full, &()).unwrap();
        assert!(report.problems.is_empty() && report.garbage.is_empty(), "{report:?}");
        used += 1;
    }
    assert!(used > 8);
}

#[test]
fn opening_reads_the_outline_and_not_the_state() {
    let disk = SimStorage::new();
    history(&disk, 7);
    let (archive, _) = open(&disk, open_options());
    (8..=20).for_each(|height| _ = touch(&archive, height).unwrap());
    archive.close().unwrap();
    let (archive, _) = open(&disk.kill_clone(), open_options().tree_memory(u64::MAX));
    let expected = touch(&archive, 21).unwrap();
    let kv = disk.files().into_iter().filter(|(path, _)| {
        path.extension().is_some_and(|kind| kind == "kv") && path.to_str().unwrap().contains("/account.")
    });
    let (kv, len) = kv.max_by_key(|(_, len)| *len).unwrap();
    let reads = |page: u64, memory: u64| {
        let disk = disk.kill_clone();
        disk.corrupt(&kv, page * 4096 + 100, 0x55);
        let (archive, _) = open(&disk, open_options().tree_memory(memory));
        touch(&archive, 21).map(|root| assert_eq!(root, expected)).is_err()
    };
    // The first and the last are looked at in any case.
    let pages = 1..len / 4096 - 1;
    assert!(pages.end > 20 && pages.clone().all(|page| reads(page, u64::MAX)));
    let read = pages.filter(|page| reads(*page, 0)).count();
    // A group of leaves may be on two.
    assert!(read <= 2, "{read} pages were read for one account");
}

/// A block that changes one account, whatever the height.
fn touch(archive: &Archive, height: u64) -> Result<Root, Error> {
    let mut state = BlockState::new();
    state.account(address(1)).nonce = Some(Some(height));
    let before = archive.reader().latest().ok();
    let mut block = archive.begin(height)?;
    state.write(before.as_ref(), &mut block)?;
    block.commit()
}

/// An archive of some accounts, one of them with a storage that does not collapse.
fn small() -> SimStorage {
    let disk = SimStorage::new();
    let archive = create(&disk);
    let mut state = BlockState::new();
    (0..30).for_each(|number| state.account(address(number)).nonce = Some(Some(1)));
    state.account(address(3)).slots.extend((1..=300).map(|slot| (word(slot), word(slot))));
    let mut block = archive.begin(1).unwrap();
    state.write(None, &mut block).unwrap();
    block.commit().unwrap();
    (2..9).for_each(|height| _ = touch(&archive, height).unwrap());
    archive.close().unwrap();
    disk
}

#[test]
fn a_file_that_is_not_right_is_left_aside() {
    let disk = small();
    let bytes = tree(&disk);
    let is_left = |bytes: &[u8]| {
        let disk = disk.kill_clone();
        put(&disk, bytes);
        let (archive, tasks) = open(&disk, open_options());
        let (whole, _) = open(&disk_without_tree(&disk), open_options());
        assert_eq!(touch(&archive, 9).unwrap(), touch(&whole, 9).unwrap());
        assert_eq!(tasks.read_state(), tasks.left_aside().is_some());
        tasks.left_aside()
    };
    assert_eq!(is_left(&bytes), None);
    assert!(bytes.len() < 3000, "{}", bytes.len());
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x10;
        assert!(is_left(&other).is_some(), "byte {at}");
        assert!(is_left(&bytes[..at]).is_some(), "cut at {at}");
    }
    assert!(is_left(&[&bytes[..], b"x"].concat()).is_some());
    // Of another archive with the same blocks.
    assert!(is_left(&tree(&small())).unwrap().contains("another archive"));
}

fn disk_without_tree(disk: &SimStorage) -> SimStorage {
    let disk = disk.kill_clone();
    disk.remove(Path::new(TREE)).unwrap();
    disk
}

#[test]
fn an_outline_of_a_block_that_was_taken_back_is_left_aside() {
    let disk = SimStorage::new();
    history(&disk, 9);
    let (archive, tasks) = open(&disk, open_options());
    archive.unwind(8, &()).unwrap();
    commit(&archive, 9, 2).unwrap();
    assert!(!tasks.read_state() || tasks.left_aside().is_some());
    archive.flush().unwrap();
    // Killed: the file is still that of the other block 9.
    let killed = disk.kill_clone();
    drop(archive);
    let (archive, tasks) = open(&killed, open_options());
    commit(&archive, 10, 0).unwrap();
    assert!(tasks.left_aside().unwrap().contains("taken back") && tasks.read_state());
    archive.unwind(8, &()).unwrap();
    commit(&archive, 9, 0).unwrap();
    archive.close().unwrap();
    let (archive, tasks) = open(&killed, open_options());
    commit(&archive, 10, 0).unwrap();
    assert!(!tasks.read_state(), "closing wrote that of the block that is there");
}

#[test]
fn a_killed_process_leaves_an_outline_of_what_was_emitted() {
    let roots = history(&SimStorage::new(), 23).0;
    let disk = SimStorage::new();
    let archive = create(&disk);
    for height in 1..=23 {
        assert_eq!(commit(&archive, height, 0).unwrap(), roots[height as usize]);
        archive.emit().unwrap();
        let killed = disk.kill_clone();
        let (archive, tasks) = open(&killed, open_options());
        let expected = expected(&killed, height + 1);
        assert_eq!(commit(&archive, height + 1, 1).unwrap(), expected);
        // The first step is emitted with block 7.
        assert!(!tasks.read_state() || height < 8, "{height}: {:?}", tasks.left_aside());
    }
}

#[test]
fn a_tree_that_fits_its_memory_is_built_from_the_state() {
    let disk = SimStorage::new();
    history(&disk, 9);
    let (archive, tasks) = open(&disk, open_options().tree_memory(1 << 30));
    commit(&archive, 10, 0).unwrap();
    assert!(tasks.read_state() && tasks.left_aside().is_none());
    let before = tree(&disk);
    archive.close().unwrap();
    assert_eq!(tree(&disk), before, "and needs no file");
}
