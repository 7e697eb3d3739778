//! Ranges of leaves with the proofs that `alloy-trie` makes of their ends, and nodes of many proofs each once.

use std::collections::BTreeSet;

use icecore_hot::Root;
use icecore_hot::ethereum::range::{Beyond, RangeProofError, verify_accounts, verify_slots};
use icecore_hot::ethereum::{Account, NodeProofError, NodeSet, keccak256};
use proptest::prelude::*;

use crate::model::{Model, Path, block, ops, path, root_and_proof};

/// The accounts of a range and the nodes that prove it, each once.
fn range_of(model: &Model, first: &Path, last: &Path) -> (Vec<(Path, Account)>, Vec<Vec<u8>>) {
    let leaves = model.leaves();
    let ends = [first, last].into_iter().flat_map(|end| root_and_proof(&leaves, Some(end)).1);
    let nodes: BTreeSet<Vec<u8>> = ends.collect();
    let accounts = model.0.range(*first..=*last).map(|(path, account)| (*path, account.account()));
    (accounts.collect(), nodes.into_iter().collect())
}

fn beyond(model: &Model, last: &Path) -> Beyond {
    if model.0.keys().any(|path| path > last) { Beyond::More } else { Beyond::End }
}

/// An end of a range: a path of an account, one just before or after it, or one of the extremes.
fn end(number: u8, shift: u8) -> Path {
    let mut end = path(number);
    match shift {
        0 => {}
        1 => end[31] = end[31].wrapping_add(1),
        2 => end[31] = end[31].wrapping_sub(1),
        3 => end = [0; 32],
        _ => end = [0xFF; 32],
    }
    end
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_range_holds_with_all_of_its_leaves_and_with_no_others(
        changes in ops(),
        (a, b) in ((0..26u8, 0..5u8), (0..26u8, 0..5u8)),
        at in any::<prop::sample::Index>(),
    ) {
        let (_, model) = block(&Model::default(), &changes);
        let (a, b) = (end(a.0, a.1), end(b.0, b.1));
        let (first, last) = (a.min(b), a.max(b));
        let root = model.root();
        let (mut accounts, nodes) = range_of(&model, &first, &last);
        let set = NodeSet::new(&nodes);
        let verify = |accounts: &[(Path, Account)]| verify_accounts(&root, (&first, &last), accounts, &set);
        prop_assert_eq!(verify(&accounts), Ok(beyond(&model, &last)));
        // An account more than there is.
        let other = accounts.iter().all(|(path, _)| *path != first);
        if other {
            let mut more = accounts.clone();
            more.insert(0, (first, Account::default()));
            prop_assert!(verify(&more).is_err());
        }
        // Each node is needed, or is that of the leaf at an end, which the accounts have as well.
        for left_out in 0..nodes.len() {
            let fewer: Vec<&Vec<u8>> =
                nodes.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, node)| node).collect();
            let found = verify_accounts(&root, (&first, &last), &accounts, &NodeSet::new(&fewer));
            match found {
                Ok(found) => prop_assert_eq!(found, beyond(&model, &last)),
                Err(error) => {
                    let is_told = matches!(error, RangeProofError::Incomplete { .. } | RangeProofError::OtherRoot);
                    prop_assert!(is_told, "{error}");
                }
            }
        }
        if accounts.is_empty() {
            return Ok(());
        }
        let at = at.index(accounts.len());
        let (path, account) = accounts[at];
        accounts[at].1.nonce += 1;
        prop_assert_eq!(verify(&accounts), Err(RangeProofError::OtherRoot));
        accounts[at] = (path, account);
        accounts.remove(at);
        prop_assert_eq!(verify(&accounts), Err(RangeProofError::OtherRoot));
        accounts.insert(at, (path, account));
        accounts.insert(at, (path, account));
        prop_assert_eq!(verify(&accounts), Err(RangeProofError::Order { leaf: at + 1 }));
        accounts.truncate(at + 1);
        accounts[at].0 = if last == [0xFF; 32] { return Ok(()) } else { [0xFF; 32] };
        prop_assert_eq!(verify(&accounts), Err(RangeProofError::Order { leaf: at }));
    }

    #[test]
    fn a_range_of_slots_holds(changes in ops(), account in 0..24u8, (a, b) in (0..60u8, 0..60u8)) {
        let (_, model) = block(&Model::default(), &changes);
        let Some(content) = model.0.get(&path(account)) else { return Ok(()) };
        let (first, last) = (path(a).min(path(b)), path(a).max(path(b)));
        let leaves = content.slot_leaves();
        let ends = [&first, &last].into_iter().flat_map(|end| root_and_proof(&leaves, Some(end)).1);
        let nodes: Vec<Vec<u8>> = ends.collect();
        let set = NodeSet::new(&nodes);
        let root = Root(content.account().storage_root);
        let mut slots: Vec<_> = content.slots.range(first..=last).map(|(path, value)| (*path, *value)).collect();
        let more = content.slots.keys().any(|path| *path > last);
        let found = verify_slots(&root, (&first, &last), &slots, &set);
        prop_assert_eq!(found, Ok(if more { Beyond::More } else { Beyond::End }));
        if slots.pop().is_some() {
            prop_assert!(verify_slots(&root, (&first, &last), &slots, &set).is_err());
        }
    }

    #[test]
    fn nodes_of_many_proofs_each_once_prove_all(changes in ops(), left_out in any::<prop::sample::Index>()) {
        let (_, model) = block(&Model::default(), &changes);
        let (leaves, root) = (model.leaves(), model.root());
        let nodes: BTreeSet<Vec<u8>> =
            (0..26).flat_map(|number| root_and_proof(&leaves, Some(&path(number))).1).collect();
        let mut nodes: Vec<Vec<u8>> = nodes.into_iter().collect();
        let set = NodeSet::new(&nodes);
        for number in 0..26 {
            let account = model.0.get(&path(number)).map(crate::model::ModelAccount::account);
            prop_assert_eq!(set.account(&root, &path(number)), Ok(account));
        }
        if nodes.is_empty() {
            return Ok(());
        }
        nodes.remove(left_out.index(nodes.len()));
        let set = NodeSet::new(&nodes);
        let mut missing = 0;
        for number in 0..26 {
            let account = model.0.get(&path(number)).map(crate::model::ModelAccount::account);
            match set.account(&root, &path(number)) {
                Ok(found) => prop_assert_eq!(found, account),
                Err(NodeProofError::Incomplete { .. }) => missing += 1,
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        prop_assert!(missing > 0);
    }
}

#[test]
fn no_bytes_of_a_node_make_a_range_of_something_else() {
    let changes: Vec<_> =
        (0..24).map(|account| crate::model::Op::Put { account, nonce: 1, has_code: false }).collect();
    let (_, model) = block(&Model::default(), &changes);
    let (first, last, root) = (path(4), path(9).max(path(5)), model.root());
    let (first, last) = (first.min(last), first.max(last));
    let (accounts, nodes) = range_of(&model, &first, &last);
    let expected = verify_accounts(&root, (&first, &last), &accounts, &NodeSet::new(&nodes));
    assert_eq!(expected, Ok(beyond(&model, &last)));
    for node in 0..nodes.len() {
        for at in 0..nodes[node].len() {
            let mut nodes = nodes.clone();
            nodes[node][at] ^= 0x5A;
            let found = verify_accounts(&root, (&first, &last), &accounts, &NodeSet::new(&nodes));
            assert!(found.is_err() || found == expected, "node {node}, byte {at}");
            // Whoever chooses the root too may have any trie around these leaves, or what is none.
            let own = Root(keccak256(&nodes[node]));
            let _ = verify_accounts(&own, (&first, &last), &accounts, &NodeSet::new(&nodes));
        }
    }
}
