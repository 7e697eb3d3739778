//! Archives with another commitment than the first: what they answer, refuse and keep.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use icecore::ethereum::{ACCOUNT, Account, Address, BlockState, STORAGE, Word, word};
use icecore::{
    Archive, Commitment, Comparison, Error, ErrorKind, Options, Parallelism, Reader, Root, VerifyMode, verify,
};

#[test]
fn without_a_commitment_there_are_versions_and_no_roots() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.ice");
    let options = Options::new().domain("a").commitment(Commitment::None).blocks_per_step(4).reorg_window(2);
    let archive = Archive::create(&path, options.clone()).unwrap();
    for height in 1..=20 {
        let mut block = archive.begin(height).unwrap();
        block.put("a", b"key", &height.to_le_bytes()).unwrap();
        assert_eq!(block.commit().unwrap(), Root::EMPTY);
    }
    archive.emit().unwrap();
    archive.unwind(12, &()).unwrap();
    drop(archive);
    let archive = Archive::open(&path, icecore::OpenOptions::new()).unwrap();
    let mut block = archive.begin(13).unwrap();
    block.delete("a", b"key").unwrap();
    block.commit().unwrap();
    assert_eq!(archive.at(12).unwrap().get("a", b"key").unwrap(), Some(12_u64.to_le_bytes().to_vec()));
    assert_eq!(archive.at(13).unwrap().get("a", b"key").unwrap(), None);
    assert_eq!(archive.reader().commitment(), Commitment::None);
    for failed in [
        archive.at(9).unwrap().root().map(drop),
        archive.at(9).unwrap().prove("a", b"key").map(drop),
        archive.at(9).unwrap().prove_batch(&[("a", b"key")], Parallelism::Off).map(drop),
        archive.at(9).unwrap().prove_account(&[0; 20], &[]).map(drop),
        archive.at(9).unwrap().account(&[0; 20]).map(drop),
    ] {
        let error = failed.unwrap_err();
        assert!(matches!(error, Error::Commitment { commitment: Commitment::None, .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Misuse);
    }
    archive.close().unwrap();
    assert!(verify(&path, VerifyMode::Full, &()).unwrap().problems.is_empty());
    let refused =
        Archive::create(dir.path().join("b.ice"), options.snapshot_period(std::num::NonZeroU64::new(2)));
    assert!(matches!(refused, Err(Error::Options { field: "snapshot_period", .. })));
}

fn ethereum() -> Options {
    Options::new().commitment(Commitment::Ethereum).domain("notes").blocks_per_step(4).reorg_window(2)
}

const A: Address = [1; 20];
const B: Address = [2; 20];

fn commit(archive: &Archive, height: u64, change: impl FnOnce(&mut BlockState)) -> Result<Root, Error> {
    let mut state = BlockState::new();
    change(&mut state);
    let before = archive.reader().latest().ok();
    let mut block = archive.begin(height)?;
    state.write(before.as_ref(), &mut block)?;
    block.commit()
}

fn slot(archive: &Archive, height: u64, address: &Address, slot: u64) -> Option<Vec<u8>> {
    let key = [&address[..], &word(slot)].concat();
    archive.at(height).unwrap().get(STORAGE, &key).unwrap()
}

/// The proof of an account at a height holds against its root; gives the slots.
fn proved(reader: &Reader, height: u64, address: &Address, slots: &[u64]) -> Vec<Word> {
    let view = reader.at(height).unwrap();
    let slots: Vec<Word> = slots.iter().copied().map(word).collect();
    let proof = view.prove_account(address, &slots).unwrap();
    proof.verify(&view.root().unwrap(), address).unwrap()
}

/// Blocks 1 to 20: an account with a slot of its own in each block; A is destroyed at 15 and born again at 18.
fn chain(archive: &Archive) -> Vec<Root> {
    let block = |height: u64| {
        commit(archive, height, |state| {
            let account = state.account(B);
            account.nonce = Some(Some(height));
            account.slots.insert(word(height), word(100 + height));
            let account = state.account(A);
            match height {
                1 | 18 => {
                    account.balance = Some(Some(word(height)));
                    account.code = Some(Some(b"code".to_vec()));
                    account.slots.insert(word(7), word(height));
                }
                15 => (account.balance, account.nonce) = (Some(None), Some(None)),
                2..15 => drop(account.slots.insert(word(height), word(height))),
                _ => {}
            }
        })
        .unwrap()
    };
    (1..=20).map(block).collect()
}

#[test]
fn an_archive_for_ethereum_keeps_state_and_proves_it_at_every_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("eth.ice");
    let archive = Archive::create(&path, ethereum()).unwrap();
    let roots = chain(&archive);
    let check = |archive: &Archive| {
        for height in 1..=20 {
            assert_eq!(archive.reader().root(height).unwrap(), roots[height as usize - 1], "{height}");
            let expected = if (15..18).contains(&height) { 0 } else { height.clamp(1, 14) };
            let (there, gone) = (proved(archive.reader(), height, &A, &[expected.max(1)]), 99);
            match height {
                2..15 => assert_eq!(there, [word(height)], "{height}"),
                15..18 => assert_eq!(there, [word(0)], "{height}"),
                _ => assert_eq!(
                    proved(archive.reader(), height, &A, &[7]),
                    [word(if height == 1 { 1 } else { 18 })]
                ),
            }
            assert_eq!(proved(archive.reader(), height, &B, &[height, gone]), [word(100 + height), word(0)]);
            assert!(proved(archive.reader(), height, &[9; 20], &[1]) == [word(0)]);
            let account = archive.at(height).unwrap().account(&B).unwrap().unwrap();
            assert_eq!(account.nonce, height);
        }
        assert_eq!(slot(archive, 14, &A, 3), Some(word(3).to_vec()));
        assert_eq!(slot(archive, 15, &A, 3), None, "the account was destroyed");
        assert_eq!(slot(archive, 20, &A, 3), None, "and is another one since");
    };
    check(&archive);
    archive.emit().unwrap();
    check(&archive);
    archive.close().unwrap();
    let archive = Archive::open(&path, icecore::OpenOptions::new()).unwrap();
    check(&archive);
    // Back below what was emitted, and the same way again: other roots would not come out.
    archive.unwind(5, &()).unwrap();
    assert_eq!(archive.reader().root(5).unwrap(), roots[4]);
    let again = commit(&archive, 6, |state| {
        let account = state.account(B);
        account.nonce = Some(Some(6));
        account.slots.insert(word(6), word(106));
        state.account(A).slots.insert(word(6), word(6));
    });
    assert_eq!(again.unwrap(), roots[5]);
    archive.close().unwrap();
    assert!(verify(&path, VerifyMode::Full, &()).unwrap().problems.is_empty());
}

#[test]
fn empty_accounts_are_accounts_until_blocks_clear_them() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path().join("eth.ice"), ethereum()).unwrap();
    let touch = |height: u64, clears: bool| {
        let change = |state: &mut BlockState| {
            if clears {
                state.clear_empty_accounts();
            }
            state.account(A).balance = Some(Some(word(0)));
            state.account(A).slots.insert(word(height), word(1));
            state.account(B).nonce = Some(Some(1));
        };
        commit(&archive, height, change).unwrap()
    };
    let kept = touch(1, false);
    assert_eq!(archive.at(1).unwrap().account(&A).unwrap(), Some(Account::default()));
    assert_eq!(proved(archive.reader(), 1, &A, &[1]), [word(1)]);
    let cleared = touch(2, true);
    assert_eq!(archive.at(2).unwrap().account(&A).unwrap(), None);
    assert_eq!(
        (slot(&archive, 2, &A, 1), slot(&archive, 2, &A, 2)),
        (None, None),
        "its storage went with it"
    );
    assert!(archive.at(2).unwrap().account(&B).unwrap().is_some());
    // Nothing is left to be cleared, and what a feed deletes by itself comes to the same.
    assert_eq!(touch(3, true), cleared);
    let other = Archive::create(dir.path().join("other.ice"), ethereum()).unwrap();
    let alone = commit(&other, 1, |state| state.account(B).nonce = Some(Some(1))).unwrap();
    assert!(alone == cleared && alone != kept);
}

/// A domain, a key and what is put there.
type OneChange = (&'static str, Vec<u8>, Option<Vec<u8>>);

#[test]
fn changes_that_make_no_state_are_refused_and_leave_none() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path().join("eth.ice"), ethereum()).unwrap();
    let roots = chain(&archive);
    let before = *roots.last().unwrap();
    let account = Account { nonce: 1, ..Account::default() };
    let of = |address: Address, slot: u64| [&address[..], &word(slot)].concat();
    let cases: [(&str, Vec<OneChange>, &str); 6] = [
        ("slot", vec![(STORAGE, of([9; 20], 1), Some(word(1).to_vec()))], "which is not there"),
        ("zero", vec![(STORAGE, of(B, 1), Some(word(0).to_vec()))], "set to zero"),
        ("long", vec![(STORAGE, of(B, 1), Some(vec![1; 33]))], "more than 32 bytes"),
        ("record", vec![(ACCOUNT, B.to_vec(), Some(b"account".to_vec()))], "the record of an account"),
        ("kept", vec![(ACCOUNT, B.to_vec(), None), (STORAGE, of(B, 1), None)], "keeps 19 slots"),
        ("code", vec![(icecore::ethereum::CODE, vec![7; 32], Some(b"x".to_vec()))], "is not its hash"),
    ];
    for (name, changes, reason) in cases {
        let mut block = archive.begin(21).unwrap();
        block.put(ACCOUNT, &[5; 20], &account.encode()).unwrap();
        for (domain, key, value) in &changes {
            match value {
                Some(value) => block.put(*domain, key, value).unwrap(),
                None => block.delete(*domain, key).unwrap(),
            }
        }
        let error = block.commit().unwrap_err();
        assert!(
            matches!(&error, Error::NoState { reason: told, .. } if told.contains(reason)),
            "{name}: {error}"
        );
        assert_eq!((error.kind(), archive.is_poisoned()), (ErrorKind::Misuse, false), "{name}");
    }
    // A root that is not the one expected leaves the tree as it was.
    let mut block = archive.begin(21).unwrap();
    block.put(ACCOUNT, &[5; 20], &account.encode()).unwrap();
    block.expect_root(before);
    assert!(matches!(block.commit(), Err(Error::UnexpectedRoot { block: 21, .. })));
    assert_eq!(archive.reader().head(), Some(20));
    let mut block = archive.begin(21).unwrap();
    block.expect_root(before);
    assert_eq!(
        block.commit().unwrap(),
        before,
        "a block that changes nothing has the root of the one before it"
    );
    // Given again, the block that is there is compared with what is expected too.
    let mut draft = archive.draft(21);
    assert_eq!(draft.compare().unwrap(), Comparison::Same);
    draft.expect_root(before);
    assert_eq!(draft.compare().unwrap(), Comparison::Same);
    draft.expect_root(Root([7; 32]));
    assert!(matches!(draft.compare(), Err(Error::UnexpectedRoot { block: 21, .. })));
}
