//! A trie whose leaves collapse and are read again from the model is the trie that has all of them.

use std::collections::BTreeMap;

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    Expansion, GroupLeaves, Nibbles, OutlineError, OutlineLoader, OutlinePart, Reference, StateLoader,
    StateTrie, Touched, TrieId, Undo,
};
use proptest::prelude::*;

use crate::model::{Model, Op, Path, block, ops, path, storage_roots};

/// The leaves of a group, as the model has them.
fn leaves(model: &Model, trie: TrieId, position: Nibbles) -> Expansion {
    let leaves = match trie {
        TrieId::Accounts => {
            let below = model.0.iter().filter(|(path, _)| position.is_prefix_of(path));
            GroupLeaves::Accounts(below.map(|(path, account)| (*path, account.account())).collect())
        }
        TrieId::Storage(account) => {
            let slots = model.0[&account].slots.iter();
            let below = slots.filter(|(path, _)| position.is_prefix_of(path));
            GroupLeaves::Slots(below.map(|(path, value)| (*path, *value)).collect())
        }
    };
    Expansion { trie, position, leaves }
}

fn expand(trie: &mut StateTrie, model: &Model, of: TrieId, touched: &[Touched]) -> usize {
    let met = trie.collapsed_below(&of, touched);
    let expansions: Vec<Expansion> = met.iter().map(|position| leaves(model, of, *position)).collect();
    trie.expand(&expansions).unwrap();
    assert_eq!(trie.collapsed_below(&of, touched), []);
    met.len()
}

/// Expands what a block from one state to the next meets.
fn expand_for_block(trie: &mut StateTrie, before: &Model, after: &Model, ops: &[Op]) -> usize {
    let (mut accounts, mut slots) = (BTreeMap::new(), BTreeMap::<Path, BTreeMap<Path, bool>>::new());
    for op in ops {
        let (Op::Put { account, .. }
        | Op::Delete { account }
        | Op::Wipe { account }
        | Op::Slot { account, .. }
        | Op::Long { account, .. }) = *op;
        let account = path(account);
        accounts.insert(account, !after.0.contains_key(&account));
        let of_account = slots.entry(account).or_default();
        match *op {
            Op::Slot { slot, .. } | Op::Long { slot, .. } => {
                let slot = path(slot);
                let is_left = after.0.get(&account).is_some_and(|after| after.slots.contains_key(&slot));
                of_account.insert(slot, !is_left);
            }
            Op::Delete { .. } | Op::Wipe { .. } => drop(of_account.insert([0; 32], false)),
            Op::Put { .. } => {}
        }
    }
    let touched = |paths: &BTreeMap<Path, bool>| -> Vec<Touched> {
        paths.iter().map(|(path, may_vanish)| Touched { path: *path, may_vanish: *may_vanish }).collect()
    };
    let mut met = expand(trie, before, TrieId::Accounts, &touched(&accounts));
    for (account, slots) in slots.iter().filter(|(account, _)| before.0.contains_key(*account)) {
        met += expand(trie, before, TrieId::Storage(*account), &touched(slots));
    }
    met
}

fn expand_for_undo(trie: &mut StateTrie, model: &Model, undo: &Undo) {
    expand(trie, model, TrieId::Accounts, &undo.touched_accounts());
    for (account, slots) in undo.touched_slots().collect::<Vec<_>>() {
        if model.0.contains_key(&account) {
            expand(trie, model, TrieId::Storage(account), &slots);
        }
    }
}

fn outline(trie: &StateTrie) -> Vec<(TrieId, OutlinePart)> {
    let mut parts = Vec::new();
    trie.outline(|trie, part| {
        parts.push((*trie, part.clone()));
        Ok::<_, ()>(())
    })
    .unwrap();
    parts
}

fn load_outline(parts: &[(TrieId, OutlinePart)], of: &StateTrie) -> Result<StateTrie, OutlineError> {
    let mut loader = OutlineLoader::new(HashBackend::Auto);
    parts.iter().try_for_each(|(trie, part)| loader.push(trie, part))?;
    loader.finish(of.accounts(), of.slots())
}

/// The trie that is put together of the outline of one.
fn reload(trie: &StateTrie) -> StateTrie {
    let parts = outline(trie);
    let loaded = load_outline(&parts, trie).unwrap();
    assert_eq!((loaded.root(), loaded.accounts(), loaded.len()), (trie.root(), trie.accounts(), trie.len()));
    assert_eq!(outline(&loaded), parts);
    loaded
}

/// Expands all there is, in rounds: accounts first.
fn expand_all(trie: &mut StateTrie, model: &Model) {
    let expansions = |trie: &StateTrie, of: TrieId| -> Vec<Expansion> {
        trie.collapsed_above(&of, 64).iter().map(|position| leaves(model, of, *position)).collect()
    };
    let accounts = expansions(trie, TrieId::Accounts);
    trie.expand(&accounts).unwrap();
    for account in model.0.keys() {
        let slots = expansions(trie, TrieId::Storage(*account));
        trie.expand(&slots).unwrap();
    }
    assert!(!trie.has_collapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trie_with_collapsed_groups_is_what_the_model_says(
        blocks in prop::collection::vec((ops(), any::<bool>(), 0..3_u64), 1..8),
    ) {
        let mut trie = StateTrie::new(HashBackend::Auto);
        let mut model = Model::default();
        let mut history: Vec<(Model, Undo, u64)> = Vec::new();
        for (ops, is_kept, share) in &blocks {
            let (batch, after) = block(&model, ops);
            expand_for_block(&mut trie, &model, &after, ops);
            let applied = trie.apply(&batch).unwrap();
            prop_assert_eq!(applied.root, after.root());
            prop_assert_eq!(applied.storage_roots, storage_roots(&model, &after));
            if *is_kept {
                history.push((model.clone(), applied.undo, *share));
            } else {
                // What nobody can take back is garbage, groups in it and all.
                history.clear();
            }
            model = after;
            trie.collapse(trie.node_bytes() * share / 2);
            let loaded = reload(&trie);
            if !is_kept {
                trie = loaded;
            }
            prop_assert_eq!(trie.root(), model.root());
            prop_assert_eq!(trie.accounts(), model.0.len() as u64);
        }
        let mut whole = model.load();
        for (before, undo, share) in history.into_iter().rev() {
            expand_for_undo(&mut trie, &model, &undo);
            prop_assert_eq!(trie.undo(undo), before.root());
            model = before;
            trie.collapse(trie.node_bytes() * share / 2);
            whole = model.load();
        }
        expand_all(&mut trie, &model);
        prop_assert_eq!((trie.root(), trie.len()), (whole.root(), model.len()));
        for number in 0..24 {
            let account = path(number);
            prop_assert_eq!(trie.account(&account), whole.account(&account));
            prop_assert_eq!(trie.prove_account(&account), whole.prove_account(&account));
            for slot in (0..60).map(path) {
                prop_assert_eq!(trie.prove_slot(&account, &slot), whole.prove_slot(&account, &slot));
            }
        }
    }
}

/// A state of hashed paths: accounts, every 16th with some slots, one with many.
fn large() -> (StateTrie, Model) {
    let hash = |number: u64| icecore_hot::ethereum::keccak256(&number.to_be_bytes());
    let mut model = Model::default();
    for number in 0..3_000 {
        let account = model.0.entry(hash(number)).or_default();
        (account.nonce, account.code_hash) = (number, icecore_hot::ethereum::EMPTY_CODE_HASH);
        let slots = if number == 7 {
            40_000
        } else if number % 16 == 0 {
            number % 100
        } else {
            0
        };
        account.slots = (0..slots).map(|slot| (hash(slot), hash(slot << 32))).collect();
    }
    (model.load(), model)
}

#[test]
fn a_sweep_frees_what_it_is_told_and_goes_on_where_it_stopped() {
    let (mut trie, model) = large();
    let (root, all) = (trie.root(), trie.node_bytes());
    for share in [9, 8, 6, 4, 2] {
        trie.collapse(all * share / 10);
        // A look is due every so many groups.
        assert!(trie.node_bytes() <= all * share / 10, "{} of {all}", trie.node_bytes());
        assert!(share < 5 || trie.node_bytes() > all * (share - 2) / 10, "{} of {all}", trie.node_bytes());
        assert_eq!(trie.root(), root);
    }
    trie.collapse(0);
    assert!(trie.node_bytes() < all / 100, "{} of {all}", trie.node_bytes());
    expand_all(&mut trie, &model);
    assert_eq!((trie.root(), trie.node_bytes()), (root, all));
}

#[test]
fn a_trie_is_put_together_of_its_outline() {
    let (whole, model) = large();
    for share in [10, 5, 0] {
        let (mut trie, _) = large();
        trie.collapse(whole.node_bytes() * share / 10);
        let parts = outline(&trie);
        // Most groups have some ten leaves; the large storage has its own.
        assert!(parts.len() < 43_000 / 8, "{}", parts.len());
        assert!(parts.iter().any(|(trie, _)| matches!(trie, TrieId::Storage(_))));
        let mut loaded = reload(&trie);
        assert!(loaded.node_bytes() < whole.node_bytes() / 10);
        expand_all(&mut loaded, &model);
        assert_eq!((loaded.root(), loaded.node_bytes()), (whole.root(), whole.node_bytes()));
    }
}

#[test]
fn parts_that_are_no_outline_are_refused() {
    let (trie, _) = large();
    let parts = outline(&trie);
    let is_refused = |parts: &[(TrieId, OutlinePart)]| {
        load_outline(parts, &trie).map_or(true, |loaded| loaded.root() != trie.root())
    };
    assert!(!is_refused(&parts));
    for at in (0..parts.len()).step_by(7) {
        let without = [&parts[..at], &parts[at + 1..]].concat();
        assert!(is_refused(&without), "without {at}");
        assert!(is_refused(&[&parts[..=at], &parts[at..]].concat()), "{at} twice");
        let mut other = parts.clone();
        let (of, part) = &mut other[at];
        match part {
            OutlinePart::Group { position, .. } if at % 2 == 0 => {
                *position = Nibbles::prefix(&position.paths().0, position.len() + 1);
            }
            OutlinePart::Group { leaves, .. } if at % 3 == 0 || matches!(of, TrieId::Storage(_)) => {
                *leaves += 1;
            }
            OutlinePart::Group { reference, .. } => *reference = Reference::hash([7; 32]),
            OutlinePart::Account { account, .. } => account.nonce += 1,
            OutlinePart::Slot { value, .. } => value[0] ^= 1,
        }
        assert!(is_refused(&other), "{at} is another one");
        if at > 0 {
            let mut swapped = parts.clone();
            swapped.swap(at - 1, at);
            assert!(is_refused(&swapped), "{at} before the one before it");
        }
    }
}

#[test]
fn groups_above_a_depth_are_told() {
    let (mut trie, model) = large();
    trie.collapse(0);
    let groups = |trie: &StateTrie, depth| trie.collapsed_above(&TrieId::Accounts, depth);
    assert!(!groups(&trie, 2).is_empty() && groups(&trie, 2).iter().all(|position| position.len() <= 2));
    let expansions: Vec<Expansion> =
        groups(&trie, 2).iter().map(|position| leaves(&model, TrieId::Accounts, *position)).collect();
    trie.expand(&expansions).unwrap();
    assert_eq!(groups(&trie, 2), []);
}

#[test]
fn leaves_that_are_not_those_of_the_group_are_refused() {
    let (mut trie, model) = large();
    let (root, account) = (trie.root(), *model.0.keys().next().unwrap());
    trie.collapse(0);
    let met = trie.collapsed_below(&TrieId::Accounts, &[Touched { path: account, may_vanish: false }]);
    let right = leaves(&model, TrieId::Accounts, met[0]);
    let GroupLeaves::Accounts(accounts) = &right.leaves else { unreachable!() };
    let mut wrong = vec![Vec::new(), accounts[1..].to_vec(), [&accounts[..], &accounts[..1]].concat()];
    wrong.push(
        accounts
            .iter()
            .map(|(path, account)| {
                (*path, {
                    let mut account = *account;
                    account.nonce += 1;
                    account
                })
            })
            .collect(),
    );
    let other = *model.0.keys().last().unwrap();
    wrong.push([&accounts[..], &[(other, accounts[0].1)]].concat());
    for accounts in wrong {
        let expansion = Expansion { leaves: GroupLeaves::Accounts(accounts), ..right.clone() };
        let bytes = trie.node_bytes();
        let error = trie.expand(&[expansion]).unwrap_err();
        assert_eq!((error.trie, error.position), (TrieId::Accounts, met[0]));
        assert_eq!((trie.root(), trie.node_bytes()), (root, bytes));
    }
    trie.expand(&[right]).unwrap();
    assert_eq!(trie.account(&account), Some(model.0[&account].account()));
}

#[test]
fn a_state_is_loaded_within_its_memory() {
    let (whole, model) = large();
    let bytes_max = whole.node_bytes() / 4;
    let mut loader = StateLoader::within(HashBackend::Auto, bytes_max);
    // More than are taken in together, so that what was loaded collapses while more comes.
    let mut slots = 0;
    for (path, account) in &model.0 {
        loader.push_account(path, &account.account()).unwrap();
        for (slot, value) in &account.slots {
            loader.push_slot(slot, value).unwrap();
            slots += 1;
        }
    }
    assert!(slots + model.0.len() > 3 << 14);
    let mut trie = loader.finish().unwrap();
    assert_eq!((trie.root(), trie.len()), (whole.root(), whole.len()));
    assert!(trie.node_bytes() <= bytes_max);
    expand_all(&mut trie, &model);
    assert_eq!(trie.node_bytes(), whole.node_bytes());
}
