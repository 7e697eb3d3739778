//! The state trie of Ethereum against `alloy-trie`, and against the roots and proofs of a chain that geth made.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod chain;
mod collapse;
mod model;
mod range;
mod rows;

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    Account, EMPTY_CODE_HASH, EMPTY_ROOT, LoadError, StateBatch, StateLoader, StateTrie, TrieError, Undo,
    verify_account, verify_slot,
};
use model::{Model, block, ops, path, root_and_proof, storage_roots};
use proptest::prelude::*;

const BACKENDS: [HashBackend; 4] =
    [HashBackend::Auto, HashBackend::Avx512, HashBackend::Avx2, HashBackend::Portable];

/// Compares everything a trie says with the model, for all accounts and slots that a test uses.
fn check(trie: &StateTrie, model: &Model) {
    assert_eq!((trie.root(), trie.len()), (model.root(), model.len()));
    assert_eq!(trie.accounts(), model.0.len() as u64);
    let leaves = model.leaves();
    for number in 0..26 {
        let key = path(number);
        let (account, proof) = (trie.account(&key), trie.prove_account(&key));
        assert_eq!(account, model.0.get(&key).map(model::ModelAccount::account));
        assert_eq!(proof, root_and_proof(&leaves, Some(&key)).1, "account {number}");
        assert_eq!(verify_account(&trie.root(), &key, &proof), Ok(account));
        let slots = model.0.get(&key).map(model::ModelAccount::slot_leaves).unwrap_or_default();
        let storage_root = account.map_or(EMPTY_ROOT, |account| account.storage_root);
        for slot in (number % 7..60).step_by(7) {
            let slot = path(slot);
            let (value, proof) = (trie.slot(&key, &slot), trie.prove_slot(&key, &slot));
            assert_eq!(value.as_ref(), model.0.get(&key).and_then(|account| account.slots.get(&slot)));
            assert_eq!(proof, root_and_proof(&slots, Some(&slot)).1);
            assert_eq!(verify_slot(&storage_root, &slot, &proof), Ok(value));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trie_is_what_the_model_says_after_each_block_and_each_undo(
        blocks in prop::collection::vec(ops(), 1..6),
        backend in 0..BACKENDS.len(),
    ) {
        let mut trie = StateTrie::new(BACKENDS[backend]);
        let mut history: Vec<(Model, Undo)> = Vec::new();
        let mut model = Model::default();
        for ops in &blocks {
            let (batch, after) = block(&model, ops);
            let applied = trie.apply(&batch).unwrap();
            prop_assert_eq!(applied.root, trie.root());
            prop_assert_eq!(applied.storage_roots, storage_roots(&model, &after));
            check(&trie, &after);
            history.push((std::mem::replace(&mut model, after), applied.undo));
        }
        prop_assert_eq!(model.load().root(), trie.root());
        // Half of the way back, on again, and then all the way.
        let half = history.len() / 2;
        for (before, undo) in history.drain(half..).rev() {
            prop_assert_eq!(trie.undo(undo), before.root());
            check(&trie, &before);
            model = before;
        }
        let (batch, after) = block(&model, &blocks[0]);
        let again = trie.apply(&batch).unwrap();
        check(&trie, &after);
        history.push((model, again.undo));
        for (before, undo) in history.into_iter().rev() {
            prop_assert_eq!(trie.undo(undo), before.root());
            check(&trie, &before);
        }
        prop_assert!(trie.is_empty());
    }

    #[test]
    fn the_order_of_a_batch_does_not_matter_and_neither_do_batches(ops in ops(), cut in any::<prop::sample::Index>()) {
        let (_, model) = block(&Model::default(), &ops);
        let mut changes: Vec<(model::Path, Option<model::Path>)> = Vec::new();
        for (path, account) in &model.0 {
            changes.push((*path, None));
            changes.extend(account.slots.keys().map(|slot| (*path, Some(*slot))));
        }
        let put = |batch: &mut StateBatch, (path, slot): &(model::Path, Option<model::Path>)| {
            let account = &model.0[path];
            match slot {
                None => batch.put_account(path, account.nonce, account.balance, account.code_hash),
                Some(slot) => batch.put_slot(path, slot, &account.slots[slot]).unwrap(),
            }
        };
        let cut = cut.index(changes.len() + 1);
        let mut batches = [StateBatch::new(), StateBatch::new()];
        changes[..cut].iter().for_each(|change| put(&mut batches[0], change));
        changes[cut..].iter().for_each(|change| put(&mut batches[1], change));
        let mut trie = StateTrie::new(HashBackend::Auto);
        batches.iter().for_each(|batch| drop(trie.apply(batch).unwrap()));
        prop_assert_eq!(trie.root(), model.root());
        let mut reversed = StateBatch::new();
        changes.iter().rev().for_each(|change| put(&mut reversed, change));
        let mut trie = StateTrie::new(HashBackend::Auto);
        prop_assert_eq!(trie.apply(&reversed).unwrap().root, model.root());
    }

    #[test]
    fn hostile_proofs_prove_nothing(ops in ops(), number in 0..26u8, slot in 0..60u8) {
        let (_, model) = block(&Model::default(), &ops);
        let trie = model.load();
        let (key, slot) = (path(number), path(slot));
        let proof = trie.prove_account(&key);
        for hostile in damaged(&proof) {
            prop_assert!(verify_account(&trie.root(), &key, &hostile).is_err(), "{hostile:x?}");
        }
        let storage_root = trie.account(&key).map_or(EMPTY_ROOT, |account| account.storage_root);
        let proof = trie.prove_slot(&key, &slot);
        for hostile in damaged(&proof) {
            prop_assert!(verify_slot(&storage_root, &slot, &hostile).is_err(), "{hostile:x?}");
        }
    }

    #[test]
    fn any_bytes_are_safe_to_verify(mut nodes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..3)) {
        // Whatever is at the top is what its hash says, so that all of it is read.
        if let Some(first) = nodes.first_mut().filter(|first| !first.is_empty()) {
            first[0] = 0xC0 + (first.len() - 1).min(55) as u8;
        }
        let root = nodes.first().map_or(EMPTY_ROOT, |node| icecore_hot::ethereum::keccak256(node));
        let _ = verify_slot(&root, &[0x11; 32], &nodes);
        let _ = verify_account(&icecore_hot::Root(root), &[0x11; 32], &nodes);
    }
}

/// A proof with each byte flipped, cut at each node and in each, and with more than there should be.
fn damaged(proof: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for node in 0..proof.len() {
        for byte in 0..proof[node].len() {
            let mut flipped = proof.to_vec();
            flipped[node][byte] ^= 1 << (byte % 8);
            all.push(flipped);
        }
        let mut cut = proof.to_vec();
        cut[node].pop();
        all.push(cut);
        all.push(proof[..node].to_vec());
        let mut without = proof.to_vec();
        without.remove(node);
        all.push(without);
        let mut longer = proof.to_vec();
        longer[node].push(0);
        all.push(longer);
    }
    for extra in [vec![], vec![0x80], proof.last().cloned().unwrap_or_default()] {
        all.push([proof, &[extra]].concat());
    }
    all
}

#[test]
fn slots_of_an_account_that_is_not_there_are_refused_and_nothing_changes() {
    let mut trie = StateTrie::new(HashBackend::Auto);
    let (key, other, slot) = (path(1), path(2), path(3));
    let mut batch = StateBatch::new();
    batch.put_account(&other, 1, [0; 32], EMPTY_CODE_HASH);
    batch.put_slot(&key, &slot, &[1]).unwrap();
    assert_eq!(trie.apply(&batch).unwrap_err(), TrieError::NoAccount { account: key });
    assert!(trie.is_empty() && trie.root().0 == EMPTY_ROOT);
    // An account of nothing but storage is one all the same.
    batch.put_account(&key, 0, [0; 32], EMPTY_CODE_HASH);
    let applied = trie.apply(&batch).unwrap();
    assert_eq!(applied.storage_roots.len(), 1);
    assert_eq!((trie.len(), trie.storage_len(&key), trie.storage_len(&slot)), (3, Some(1), None));
    let before = trie.root();
    let mut gone = StateBatch::new();
    gone.delete_account(&key);
    // That a slot goes with its account may be said.
    gone.delete_slot(&key, &slot);
    let mut bad = gone.clone();
    bad.put_slot(&key, &path(4), &[1]).unwrap();
    assert_eq!(trie.apply(&bad).unwrap_err(), TrieError::NoAccount { account: key });
    assert_eq!(trie.root(), before);
    let undo = trie.apply(&gone).unwrap().undo;
    assert_eq!((trie.account(&key), trie.len()), (None, 1));
    assert_eq!((trie.undo(undo), trie.len()), (before, 3));
    assert!(batch.put_slot(&key, &slot, &[1; 33]).is_err());
}

#[test]
fn a_wiped_storage_is_kept_for_its_undo_and_then_freed() {
    let mut trie = StateTrie::new(HashBackend::Auto);
    let slot = |i: u32| icecore_hot::ethereum::keccak256(&i.to_be_bytes());
    let key = path(1);
    let mut fill = StateBatch::new();
    fill.put_account(&key, 1, [0; 32], [7; 32]);
    (0..20_000).for_each(|i| fill.put_slot(&key, &slot(i), &[1, 2]).unwrap());
    let full = trie.apply(&fill).unwrap().root;
    let used = |trie: &StateTrie| trie.memory().leaves + trie.memory().nodes;
    let before = used(&trie);
    let mut wipe = StateBatch::new();
    wipe.wipe(&key);
    wipe.put_slot(&key, &slot(5), &[9]).unwrap();
    let undo = trie.apply(&wipe).unwrap().undo;
    assert_eq!((trie.slots(), trie.slot(&key, &slot(6))), (1, None));
    assert!(used(&trie) >= before, "the undo keeps the storage");
    assert_eq!((trie.undo(undo), trie.slots()), (full, 20_000));
    drop(trie.apply(&wipe).unwrap().undo);
    (0..200).for_each(|_| drop(trie.apply(&StateBatch::new()).unwrap()));
    assert!(used(&trie) < before / 100, "{} of {before} bytes", used(&trie));
    drop(trie.apply(&fill).unwrap());
    assert_eq!(trie.root(), full);
}

#[test]
fn leaves_that_are_no_state_are_refused() {
    let account = Account { nonce: 1, ..Account::default() };
    let (low, high) = ([1; 32], [2; 32]);
    let mut loader = StateLoader::new(HashBackend::Auto);
    assert_eq!(loader.push_slot(&low, &[1]), Err(LoadError::SlotOrder { slot: low }));
    loader.push_account(&high, &account).unwrap();
    assert_eq!(loader.push_account(&low, &account), Err(LoadError::AccountOrder { account: low }));
    assert_eq!(loader.push_account(&high, &account), Err(LoadError::AccountOrder { account: high }));
    assert_eq!(loader.push_slot(&low, &[0, 0]), Err(LoadError::Zero { slot: low }));
    assert!(matches!(loader.push_slot(&low, &[1; 33]), Err(LoadError::Value { .. })));
    loader.push_slot(&low, &[1]).unwrap();
    assert_eq!(loader.push_slot(&low, &[1]), Err(LoadError::SlotOrder { slot: low }));
    let Err(LoadError::StorageRoot { account, recorded, .. }) = loader.finish() else {
        panic!("the record says that there are no slots")
    };
    assert_eq!((account, recorded), (high, EMPTY_ROOT));
}

#[test]
fn a_loader_takes_a_storage_in_many_runs() {
    let mut model = Model::default();
    for number in 0..3 {
        let account = model.0.entry(path(number)).or_default();
        (account.nonce, account.code_hash) = (1, EMPTY_CODE_HASH);
        for i in 0..20_000u32 {
            account.slots.insert(icecore_hot::ethereum::keccak256(&i.to_be_bytes()), [number + 1; 32]);
        }
    }
    let trie = model.load();
    assert_eq!((trie.root(), trie.len()), (model.root(), model.len()));
    let mut batch = StateBatch::new();
    model.0.iter().for_each(|(path, account)| {
        batch.put_account(path, account.nonce, account.balance, account.code_hash);
        account.slots.iter().for_each(|(slot, value)| batch.put_slot(path, slot, value).unwrap());
    });
    let mut other = StateTrie::new(HashBackend::Portable);
    assert_eq!(other.apply(&batch).unwrap().root, model.root());
}
