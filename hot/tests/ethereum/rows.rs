//! Rows that follow the blocks of a chain, and tries put together of them and of leaves.

use std::collections::{BTreeMap, BTreeSet};

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    Account, Nibbles, NodeRef, PartialTrie, PartialTrieBuilder, PartialTrieError, Reference, StateTrie,
    TrieId, Undo,
};
use proptest::prelude::*;

use crate::model::{Model, Path, block, ops, path};

type Rows = BTreeMap<(TrieId, usize, Vec<u8>), NodeRef>;

const DEPTHS: [&[usize]; 6] = [&[1, 3], &[2, 4], &[0, 5], &[1, 41], &[60, 61, 62, 63], &[0, 64]];

/// The nibbles of a position: in this order positions are visited.
fn key(position: &Nibbles) -> Vec<u8> {
    position.iter().collect()
}

fn follow(rows: &mut Rows, trie: &StateTrie, undo: &Undo, depths: &[usize]) {
    let mut visited: Vec<(TrieId, usize, Vec<u8>)> = Vec::new();
    trie.changed_nodes(
        undo,
        |_| depths.iter().copied(),
        |id, position, node| {
            let place = (*id, position.len(), key(position));
            assert_eq!(trie.node_at(id, position), node);
            visited.push(place.clone());
            match node {
                Some(node) => rows.insert(place, node),
                None => rows.remove(&place),
            };
        },
    );
    let sorted: BTreeSet<_> = visited.iter().cloned().collect();
    assert_eq!(sorted.into_iter().collect::<Vec<_>>(), visited, "ascending, and each once");
}

/// A trie of all leaves, those of one depth as their rows say but for the position of the target.
fn partial<L>(
    rows: &Rows,
    id: TrieId,
    depth: usize,
    leaves: &[(Path, L)],
    push: impl Fn(&mut PartialTrieBuilder, &Path, &L) -> Result<(), PartialTrieError>,
    target: &Path,
) -> PartialTrie {
    let (mut builder, mut last) = (PartialTrieBuilder::new(), None);
    for (path, leaf) in leaves {
        let position = Nibbles::prefix(path, depth);
        match rows.get(&(id, depth, key(&position))) {
            Some(node) if !position.is_prefix_of(target) => {
                if last != Some(position) {
                    builder.push_node(&position, node).unwrap();
                    last = Some(position);
                }
            }
            _ => push(&mut builder, path, leaf).unwrap(),
        }
    }
    builder.finish(HashBackend::Auto)
}

fn accounts_of(model: &Model) -> Vec<(Path, Account)> {
    model.0.iter().map(|(path, account)| (*path, account.account())).collect()
}

fn check(rows: &Rows, trie: &StateTrie, model: &Model, depths: &[usize], number: u8) {
    let target = path(number);
    for depth in depths {
        let push = PartialTrieBuilder::push_account;
        let accounts = partial(rows, TrieId::Accounts, *depth, &accounts_of(model), push, &target);
        assert_eq!(accounts.root(), trie.root(), "depth {depth}");
        assert_eq!(accounts.prove(&target), Ok(trie.prove_account(&target)), "depth {depth}");
        for (account, content) in &model.0 {
            let Account { storage_root, .. } = content.account();
            let leaves: Vec<_> = content.slots.iter().map(|(path, value)| (*path, *value)).collect();
            let push = PartialTrieBuilder::push_slot;
            let storage = partial(rows, TrieId::Storage(*account), *depth, &leaves, push, &target);
            assert_eq!(storage.root().0, storage_root, "depth {depth}");
            assert_eq!(storage.prove(&target), Ok(trie.prove_slot(account, &target)), "depth {depth}");
        }
    }
    let tries: BTreeSet<Path> = model.0.keys().copied().collect();
    let is_left = |(id, ..): &&(TrieId, usize, Vec<u8>)| match id {
        TrieId::Storage(account) => !tries.contains(account),
        TrieId::Accounts => false,
    };
    assert_eq!(rows.keys().find(is_left), None, "rows of an account that is not there");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_leaves_prove_what_the_trie_proves(
        blocks in prop::collection::vec(ops(), 1..8),
        depths in 0..DEPTHS.len(),
        number in 0..60u8,
    ) {
        let (mut trie, mut rows, mut model) = (StateTrie::new(HashBackend::Auto), Rows::new(), Model::default());
        for ops in &blocks {
            let (batch, after) = block(&model, ops);
            let undo = trie.apply(&batch).unwrap().undo;
            model = after;
            follow(&mut rows, &trie, &undo, DEPTHS[depths]);
            check(&rows, &trie, &model, DEPTHS[depths], number);
        }
    }
}

#[test]
fn a_path_below_a_reference_is_not_proven() {
    let ops: Vec<_> =
        (0..24).map(|account| crate::model::Op::Put { account, nonce: 1, has_code: false }).collect();
    let (_, model) = block(&Model::default(), &ops);
    let trie = model.load();
    let mut rows = Rows::new();
    let position = Nibbles::prefix(&path(0), 1);
    let node = trie.node_at(&TrieId::Accounts, &position).unwrap();
    rows.insert((TrieId::Accounts, 1, key(&position)), node);
    let other = [0x11; 32];
    let (leaves, push) = (accounts_of(&model), PartialTrieBuilder::push_account);
    let partial = partial(&rows, TrieId::Accounts, 1, &leaves, push, &other);
    assert_eq!((partial.root(), partial.prove(&other)), (trie.root(), Ok(trie.prove_account(&other))));
    let Err(PartialTrieError::Unknown { path: unknown, .. }) = partial.prove(&path(0)) else {
        panic!("only the reference is known")
    };
    assert_eq!(unknown, path(0));
}

#[test]
fn parts_that_are_no_trie_are_refused() {
    let node = NodeRef { skipped: Nibbles::EMPTY, reference: Reference::hash([1; 32]) };
    let at = |nibbles: &[u8]| Nibbles::from_nibbles(nibbles).unwrap();
    let mut builder = PartialTrieBuilder::new();
    builder.push_node(&at(&[1, 2]), &node).unwrap();
    let inside = [0x12; 32];
    for position in [at(&[1, 2]), at(&[1]), at(&[1, 2, 3]), at(&[0, 5])] {
        assert_eq!(builder.push_node(&position, &node), Err(PartialTrieError::Order { position }));
    }
    assert_eq!(
        builder.push_slot(&inside, &[1; 32]),
        Err(PartialTrieError::Order { position: Nibbles::prefix(&inside, 64) })
    );
    let position = at(&[3; 64]);
    assert_eq!(builder.push_node(&position, &node), Err(PartialTrieError::TooDeep { position }));
    builder.push_slot(&[0x13; 32], &[1; 32]).unwrap();
}
