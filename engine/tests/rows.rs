//! Archives for Ethereum prove every block from rows: the same proofs as without rows, while tries grow, shrink, go and come back.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use icecore::ethereum::{
    Account, AccountProof, Address, Beyond, BlockState, MultiProofReason, NodeProofError, RangeProofError,
    Word, word,
};
use icecore::{
    Archive, Commitment, Comparison, Entry, Error, Maintenance, MergeOptions, OpenOptions, Options, Reader,
    Root, RowsReport, RowsRule, Scan, VerifyMode, verify,
};

const LAST: u64 = 20;
/// More than a trie has before it gets a row.
const MANY: u64 = 9_000;
/// The account with so many slots.
const LARGE: Address = [0xAA; 20];

fn options(keeps_rows: bool) -> Options {
    let options = Options::new().commitment(Commitment::Ethereum).blocks_per_step(4).reorg_window(3);
    options.keep_rows(keeps_rows)
}

fn address(number: u64) -> Address {
    let mut address = [0; 20];
    address[12..].copy_from_slice(&number.to_be_bytes());
    address
}

fn set_nonce(state: &mut BlockState, number: u64, nonce: u64) {
    state.account(address(number)).nonce = Some(Some(nonce));
}

fn delete(state: &mut BlockState, address: Address) {
    let account = state.account(address);
    (account.balance, account.nonce) = (Some(None), Some(None));
}

fn set_slots(state: &mut BlockState, slots: std::ops::Range<u64>, value: u64) {
    let account = state.account(LARGE);
    account.nonce = Some(Some(1));
    account.slots.extend(slots.map(|slot| (word(slot), word(value))));
}

fn changes(height: u64) -> BlockState {
    let mut state = BlockState::new();
    match height {
        1 => (0..MANY).for_each(|number| set_nonce(&mut state, number, 1)),
        3 => set_slots(&mut state, 0..MANY, 3),
        // A few of a storage with rows, some of them gone.
        6 => (set_slots(&mut state, 10..20, 6), set_slots(&mut state, 30..35, 0)).0,
        10 => set_slots(&mut state, 1_000..MANY, 0),
        12 => delete(&mut state, LARGE),
        13 => set_slots(&mut state, 0..3, 13),
        14 => (1_500..MANY).for_each(|number| delete(&mut state, address(number))),
        16 => (1_500..MANY).for_each(|number| set_nonce(&mut state, number, 16)),
        17 => set_slots(&mut state, 0..MANY, 17),
        // Wiped with rows, and with as many slots again.
        18 => {
            state.account(LARGE).wipes_storage = true;
            set_slots(&mut state, 20_000..20_000 + MANY, 18);
        }
        _ => {}
    }
    (height * 20..height * 20 + 10).for_each(|number| set_nonce(&mut state, number, height));
    state
}

fn commit(archive: &Archive, height: u64) -> Root {
    let before = archive.reader().latest().ok();
    let mut block = archive.begin(height).unwrap();
    changes(height).write(before.as_ref(), &mut block).unwrap();
    block.commit().unwrap()
}

fn build(path: &Path, keeps_rows: bool) -> Vec<Root> {
    build_with(path, keeps_rows, OpenOptions::new())
}

fn build_with(path: &Path, keeps_rows: bool, open: OpenOptions) -> Vec<Root> {
    let archive = Archive::open_or_create(path, options(keeps_rows), open).unwrap();
    let roots = (1..=LAST).map(|height| commit(&archive, height)).collect();
    archive.close().unwrap();
    roots
}

fn prove(reader: &Reader, height: u64) -> Vec<AccountProof> {
    let slots: Vec<Word> = [0, 1, 12, 31, 999, 1_000, 5_000, 20_001, 99_999].map(word).into();
    let few = [word(1)];
    let mut asked: Vec<(Address, &[Word])> = vec![(LARGE, &slots), (address(MANY + 1), &few)];
    asked.extend([0, height * 20, 1_499, 1_500, 8_000].map(|number| (address(number), &few[..])));
    asked.push((LARGE, &few));
    let view = reader.at(height).unwrap();
    let (root, proofs) = (view.root().unwrap(), view.prove_accounts(&asked).unwrap());
    for ((address, slots), proof) in asked.iter().zip(&proofs) {
        assert_eq!(proof.verify(&root, address).unwrap().len(), slots.len());
    }
    assert_eq!(view.prove_account(&LARGE, &slots).unwrap(), proofs[0], "alone as together");
    proofs
}

/// How many keys were looked up for the proofs of a block.
fn lookups(reader: &Reader, height: u64) -> u64 {
    let before = reader.stats().reads.lookups;
    prove(reader, height);
    reader.stats().reads.lookups - before
}

#[test]
fn proofs_from_rows_are_those_of_the_whole_trie() {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with.ice"), dir.path().join("without.ice"));
    let roots = build(&with, true);
    assert_eq!(build(&without, false), roots);
    let oracle = Reader::open(&without).unwrap();
    let expected: Vec<Vec<AccountProof>> = (1..=LAST).map(|height| prove(&oracle, height)).collect();
    assert!(lookups(&oracle, 5) < 8, "no rows");
    let check = |reader: &Reader| {
        for height in 1..=LAST {
            assert!(prove(reader, height) == expected[height as usize - 1], "block {height}");
        }
    };
    // Beside a writer in another process: the newest blocks are in the log, and their tries are rebuilt.
    let reader = Reader::open(&with).unwrap();
    check(&reader);
    assert!(lookups(&reader, 5) > 32 && lookups(&reader, LAST) < 8);
    // Beside a writer of this process, which has the nodes of all blocks.
    let archive = Archive::open(&with, OpenOptions::new()).unwrap();
    assert_eq!(commit(&archive, LAST + 1), {
        let other = Archive::open(&without, OpenOptions::new()).unwrap();
        commit(&other, LAST + 1)
    });
    check(archive.reader());
    assert!(lookups(archive.reader(), LAST) > 32);
    assert!(lookups(archive.reader(), 15) < 32, "neither trie has rows");
    archive.emit().unwrap();
    check(archive.reader());
    archive.merge(&MergeOptions::new(), &()).unwrap();
    check(archive.reader());
    // Back over all that changed the depths of rows, and forth again.
    for to in [17, 15, 11, 5, 2] {
        archive.unwind(to, &()).unwrap();
        for height in to + 1..=LAST {
            assert_eq!(commit(&archive, height), roots[height as usize - 1], "after unwinding to {to}");
        }
        check(archive.reader());
    }
    archive.close().unwrap();
    assert!(verify(&with, VerifyMode::Full, &()).unwrap().problems.is_empty());
}

/// The names of the files of segments, which say what is in them.
/// Accounts and slots by their paths.
type Leaves = (Vec<(Word, Account)>, Vec<(Word, Word)>);

/// All accounts and all slots of the large one, taken range by range, each proven.
fn take_in_ranges(reader: &Reader, height: u64, count: usize) -> Leaves {
    let view = reader.at(height).unwrap();
    let root = view.root().unwrap();
    let (mut accounts, mut first) = (Vec::new(), [0; 32]);
    loop {
        let range = view.prove_account_range(first..=[0xFF; 32], count).unwrap();
        assert!(range.accounts.len() <= count);
        let beyond = range.verify(&root, &first).unwrap();
        assert_ne!(range.verify(&Root([7; 32]), &first), Ok(beyond), "another root");
        if let [.., _] = range.accounts[..] {
            let mut fewer = range.clone();
            fewer.accounts.remove(fewer.accounts.len() / 2);
            assert_eq!(fewer.verify(&root, &first), Err(RangeProofError::OtherRoot));
        }
        first = next(range.last);
        accounts.extend(range.accounts);
        if beyond == Beyond::End {
            break;
        }
    }
    let (mut slots, mut first) = (Vec::new(), [0; 32]);
    loop {
        let range = view.prove_slot_range(&LARGE, first..=[0xFF; 32], count).unwrap();
        let beyond = range.verify(&root, &LARGE, &first).unwrap();
        assert!(range.verify(&root, &address(1), &first).is_err(), "another account");
        first = next(range.last);
        slots.extend(range.slots);
        if beyond == Beyond::End {
            break;
        }
    }
    (accounts, slots)
}

/// The path after one.
fn next(mut path: Word) -> Word {
    for byte in path.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    path
}

#[test]
fn a_state_is_taken_range_by_range() {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with.ice"), dir.path().join("without.ice"));
    build(&with, true);
    build(&without, false);
    let (with, without) = (Reader::open(&with).unwrap(), Reader::open(&without).unwrap());
    for (height, count) in
        [(2, 4_000), (5, 1_000), (11, 500), (12, 7_000), (13, 2_500), (15, 900), (LAST, 3_000)]
    {
        let (accounts, slots) = take_in_ranges(&with, height, count);
        let stored =
            |domain| with.at(height).unwrap().scan(domain, &Scan::all()).unwrap().map(Result::unwrap);
        let expected = stored("storage").map(|Entry { key, value, .. }| {
            let mut word = [0; 32];
            word[32 - value.len()..].copy_from_slice(&value);
            (<Word>::try_from(&key[20..]).unwrap(), word)
        });
        assert!(slots.iter().copied().eq(expected), "slots of block {height}");
        let expected = stored("account").map(|entry| entry.key);
        assert!(accounts.iter().map(|(path, _)| path.to_vec()).eq(expected), "accounts of block {height}");
        assert!((accounts, slots) == take_in_ranges(&without, height, 6_000), "block {height}");
    }
    let view = with.at(5).unwrap();
    // A range in the midst, and one without a leaf.
    let root = view.root().unwrap();
    let (first, last) = ([0x31; 32], [0x35; 32]);
    let range = view.prove_account_range(first..=last, usize::MAX).unwrap();
    assert!(
        (range.last, range.verify(&root, &first)) == (last, Ok(Beyond::More)) && range.accounts.len() > 50
    );
    let none = view.prove_slot_range(&LARGE, [0; 32]..=[0; 32], 5).unwrap();
    assert_eq!((none.slots.len(), none.verify(&root, &LARGE, &[0; 32])), (0, Ok(Beyond::More)));
    let empty = view.prove_slot_range(&address(3), first..=last, 5).unwrap();
    assert_eq!((empty.slots.len(), empty.verify(&root, &address(3), &first)), (0, Ok(Beyond::End)));
    for (paths, count) in [(last..=first, 5), (first..=last, 0)] {
        assert!(matches!(view.prove_account_range(paths, count), Err(Error::Options { .. })));
    }
}

#[test]
fn a_block_is_written_on_the_state_below_it_and_on_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path().join("state.ice"), options(true)).unwrap();
    (1..=3).for_each(|height| _ = commit(&archive, height));
    let state = changes(4);
    let views = [None, Some(archive.at(2).unwrap()), Some(archive.at(3).unwrap())];
    for (at, before) in [None, Some(2), Some(3)].into_iter().zip(&views) {
        let mut block = archive.begin(4).unwrap();
        match state.write(before.as_ref(), &mut block) {
            Ok(()) => assert_eq!(at, Some(3)),
            Err(error) => assert!(
                at != Some(3) && error.to_string().contains("the state that it is written on"),
                "{error}"
            ),
        }
    }
    // A block that is there, on a state that has it.
    let mut again = archive.draft(2);
    assert!(matches!(state.write(views[2].as_ref(), &mut again), Err(Error::NoState { .. })));
    changes(2).write(Some(&archive.at(1).unwrap()), &mut again).unwrap();
    assert_eq!(again.compare().unwrap(), Comparison::Same);
}

#[test]
fn one_proof_of_many_blocks_has_each_node_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.ice");
    let roots = build(&path, true);
    let reader = Reader::open(&path).unwrap();
    let slots = [word(1), word(12), word(99_999)];
    let (first, second) = (address(1_499), address(MANY + 7));
    let accounts: [(Address, &[Word]); 3] = [(LARGE, &slots), (first, &[]), (second, &slots[..1])];
    let asked: Vec<_> = [2, 5, 6, 7, 8, 12, 13, LAST].map(|block| (block, &accounts[..])).into();
    let proof = reader.prove_many(&asked).unwrap();
    let root_of = |block: u64| roots.get(block as usize - 1).copied();
    assert_eq!(proof.verify(root_of), Ok(()));
    let mut apart = 0;
    for (told, (block, accounts)) in proof.blocks.iter().zip(&asked) {
        let proofs = reader.at(*block).unwrap().prove_accounts(accounts).unwrap();
        for (told, proof) in told.accounts.iter().zip(proofs) {
            apart += proof.nodes.len() + proof.slots.iter().map(|slot| slot.nodes.len()).sum::<usize>();
            assert_eq!(told.account, proof.account);
            assert!(
                told.slots.iter().eq(proof
                    .slots
                    .iter()
                    .map(|slot| (slot.slot, slot.value))
                    .collect::<Vec<_>>()
                    .iter())
            );
        }
    }
    let mut nodes = proof.nodes.clone();
    nodes.sort();
    nodes.dedup();
    assert!(nodes.len() == proof.nodes.len() && 3 * nodes.len() < 2 * apart, "{} of {apart}", nodes.len());
    for left_out in 0..proof.nodes.len() {
        let mut fewer = proof.clone();
        fewer.nodes.remove(left_out);
        assert!(matches!(
            fewer.verify(root_of).unwrap_err().reason,
            MultiProofReason::Nodes(NodeProofError::Incomplete { .. })
        ));
    }
    let mut other = proof.clone();
    other.blocks[1].accounts[0].slots[1].1 = word(77);
    let error = other.verify(root_of).unwrap_err();
    assert_eq!((error.block, error.account, error.slot), (5, 0, Some(1)));
    assert_eq!(error.reason, MultiProofReason::OtherValue);
    assert_eq!(proof.verify(|_| None).unwrap_err().reason, MultiProofReason::UnknownRoot);
    assert!(matches!(reader.prove_many(&[(LAST + 9, &accounts[..])]), Err(Error::OutOfRange { .. })));
}

fn segments(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "kv"));
    let mut files: Vec<_> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_tree_in_little_memory_writes_what_a_whole_one_writes() {
    let dir = tempfile::tempdir().unwrap();
    let open = |memory: u64| OpenOptions::new().maintenance(Maintenance::Inline).tree_memory(memory);
    let whole = dir.path().join("whole.ice");
    let roots = build_with(&whole, true, open(u64::MAX));
    for memory in [0, 100_000, 400_000] {
        let path = dir.path().join(format!("{memory}.ice"));
        assert_eq!(build_with(&path, true, open(memory)), roots);
        assert_eq!(segments(&path), segments(&whole), "{memory} bytes");
        let archive = Archive::open(&path, open(memory)).unwrap();
        for to in [17, 15, 11, 5, 18, 2] {
            archive.unwind(to, &()).unwrap();
            for height in to + 1..=LAST {
                assert_eq!(
                    commit(&archive, height),
                    roots[height as usize - 1],
                    "{memory}: {height} after {to}"
                );
                // Within the reorg window, so that the tree takes them back itself.
                if height > to + 2 && height % 3 == 0 {
                    archive.unwind(height - 2, &()).unwrap();
                    for height in height - 1..=height {
                        assert_eq!(commit(&archive, height), roots[height as usize - 1]);
                    }
                }
            }
        }
        archive.close().unwrap();
        assert!(verify(&path, VerifyMode::Full, &()).unwrap().problems.is_empty());
    }
}

#[test]
fn rows_are_chosen_when_an_archive_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    drop(Archive::create(&path, options(false)).unwrap());
    let refused = Archive::open_or_create(&path, options(true), OpenOptions::new());
    assert!(matches!(refused, Err(icecore::Error::Options { field: "keep_rows", .. })));
    drop(Archive::open_or_create(&path, options(false), OpenOptions::new()).unwrap());
}

/// An archive whose files are those of its blocks alone, whatever the clock says.
fn build_alone(path: &Path, keeps_rows: bool, is_merged: bool) -> Archive {
    let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
    let archive = Archive::create_with(path, options(keeps_rows), open).unwrap();
    for height in 1..=LAST {
        commit(&archive, height);
    }
    archive.emit().unwrap();
    if is_merged {
        archive.merge(&MergeOptions::new(), &()).unwrap();
    }
    archive
}

/// The files of nodes.
fn node_files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(path)
        .unwrap()
        .map(|file| file.unwrap())
        .filter(|file| file.file_name().to_str().unwrap().starts_with("_nodes."))
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn rows_that_are_built_later_are_those_of_an_archive_that_kept_them() {
    let dir = tempfile::tempdir().unwrap();
    for is_merged in [false, true] {
        let (with, late) = (dir.path().join("with.ice"), dir.path().join("late.ice"));
        let kept = build_alone(&with, true, is_merged);
        let expected: Vec<Vec<AccountProof>> =
            (1..=LAST).map(|height| prove(kept.reader(), height)).collect();
        let archive = build_alone(&late, false, is_merged);
        let elsewhere = Reader::open(&late).unwrap();
        assert!(!elsewhere.keeps_rows() && node_files(&late) != node_files(&with));
        assert!(lookups(&elsewhere, 8) < 8, "no rows");
        let report = archive.build_rows(RowsRule::Missing, &()).unwrap();
        // Twenty blocks in steps of four, and a window of three: 0 to 15 are in segments.
        assert_eq!((report.first, report.blocks), (Some(1), 15));
        assert!(report.updates > 3 * MANY);
        assert!(archive.reader().keeps_rows());
        for reader in [archive.reader(), &elsewhere] {
            for height in 1..=LAST {
                assert!(prove(reader, height) == expected[height as usize - 1], "block {height}");
            }
        }
        elsewhere.refresh().unwrap();
        assert!(elsewhere.keeps_rows() && lookups(&elsewhere, 8) > 32);
        assert!(node_files(&late) == node_files(&with), "the same bytes in the same files");
        assert_eq!(archive.build_rows(RowsRule::Missing, &()).unwrap(), RowsReport::default());
        // The writer goes on with rows.
        for height in LAST + 1..LAST + 9 {
            assert_eq!(commit(&archive, height), commit(&kept, height));
            archive.emit().unwrap();
            kept.emit().unwrap();
        }
        assert!(lookups(archive.reader(), LAST + 8) > 32);
        assert!(node_files(&late) == node_files(&with), "and goes on so");
        assert_eq!(archive.build_rows(RowsRule::Again, &()).unwrap().blocks, 23);
        assert!(node_files(&late) == node_files(&with), "and again");
        archive.close().unwrap();
        assert!(verify(&late, VerifyMode::Full, &()).unwrap().problems.is_empty());
        std::fs::remove_dir_all(&with).unwrap();
        std::fs::remove_dir_all(&late).unwrap();
    }
}

#[test]
fn rows_of_a_pruned_archive_begin_at_its_lowest_block() {
    let dir = tempfile::tempdir().unwrap();
    let kept = build_alone(&dir.path().join("with.ice"), true, true);
    let archive = build_alone(&dir.path().join("late.ice"), false, true);
    archive.prune(9, &()).unwrap();
    // From the last block of the step before on, which an unwinding to 9 needs.
    let report = archive.build_rows(RowsRule::Missing, &()).unwrap();
    assert_eq!((report.first, report.blocks), (Some(8), 8));
    for height in 9..=LAST {
        assert!(prove(archive.reader(), height) == prove(kept.reader(), height), "block {height}");
    }
    assert!(lookups(archive.reader(), 9) > 32);
    archive.unwind(9, &()).unwrap();
    kept.unwind(9, &()).unwrap();
    for height in 10..=LAST {
        assert_eq!(commit(&archive, height), commit(&kept, height));
    }
    assert!(prove(archive.reader(), 11) == prove(kept.reader(), 11));
}

#[test]
fn rows_are_built_of_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path().join("empty.ice"), options(false)).unwrap();
    assert_eq!(archive.build_rows(RowsRule::Missing, &()).unwrap(), RowsReport::default());
    assert!(archive.reader().keeps_rows(), "from the first block on");
    let archive = Archive::create(dir.path().join("log.ice"), options(false)).unwrap();
    commit(&archive, 1);
    prove(archive.reader(), 1);
    assert_eq!(archive.build_rows(RowsRule::Missing, &()).unwrap(), RowsReport::default());
    commit(&archive, 2);
    assert!(lookups(archive.reader(), 1) > 32, "what is in the log gets its rows with the tree");
    let native = Archive::create(dir.path().join("native.ice"), Options::new().domain("kv")).unwrap();
    let refused = native.build_rows(RowsRule::Missing, &());
    assert!(matches!(refused, Err(Error::Commitment { commitment: Commitment::Icecore, .. })));
}
