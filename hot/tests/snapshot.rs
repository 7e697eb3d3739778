//! Rows of nodes: what a tree says of any place, which places changed between two states, and proofs of what was kept,
//! against the definition.

mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

use icecore_hot::{
    Batch, DirtyKeys, HotTree, KeyHash, Loader, Node, Options, Parallelism, PartialTree, SubtreeRoots,
    tree_value, value_hash,
};
use proptest::prelude::*;
use tree::{Leaves, Model, key_hash_sharing, leaf, subtree};

fn bits_shared(a: &[u8; 32], b: &[u8; 32]) -> usize {
    (0..256).find(|bit| (a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1 == 1).unwrap_or(256)
}

/// What the definition says of the place at `depth` on the way to `key`.
fn definition(leaves: &Leaves, key: &[u8; 32], depth: usize) -> Node {
    let below: Vec<_> =
        leaves.iter().filter(|(k, _)| bits_shared(k, key) >= depth).map(|(k, leaf)| (*k, *leaf)).collect();
    match below.len() {
        0 => Node::Empty,
        1 => Node::Leaf(below[0].1.0),
        _ => Node::Inner(subtree(&below, depth)),
    }
}

fn options(subtree_bits: u32) -> Options {
    let mut options = Options::default();
    options.subtree_roots = SubtreeRoots::from_bits(subtree_bits);
    options
}

fn load(keys: &[KeyHash], subtree_bits: u32) -> (HotTree, Leaves) {
    let mut loader = Loader::new(options(subtree_bits));
    let mut leaves = Leaves::new();
    for key in keys {
        let value = *blake3::hash(&tree_value(&key.0[..4])).as_bytes();
        loader.push_hashed(*key, &value);
        leaves.insert(key.0, leaf(&key.0, &value));
    }
    (loader.finish(), leaves)
}

#[test]
fn a_tree_says_of_every_place_what_the_definition_says() {
    let random = |count: u64| (0..count).map(|i| key_hash_sharing(0, i)).collect::<Vec<_>>();
    let near = |shared: usize, count: u64| (0..count).map(|i| key_hash_sharing(shared, i)).collect();
    let mixed = [random(900), near(9, 5), near(200, 3)].concat();
    for keys in [random(0), random(1), random(2), near(200, 2), near(255, 2), mixed] {
        for subtree_bits in [0, 3, 8] {
            let (tree, leaves) = load(&keys, subtree_bits);
            let asked = keys
                .iter()
                .rev()
                .take(40)
                .copied()
                .chain([key_hash_sharing(0, 5000), key_hash_sharing(201, 9)]);
            for key in asked {
                for depth in 0..=256 {
                    let expected = definition(&leaves, &key.0, depth);
                    assert_eq!(tree.node(&key, depth), expected, "{} keys, depth {depth}", keys.len());
                }
            }
        }
    }
}

#[test]
fn the_nodes_above_a_batch_are_those_of_the_definition() {
    let mut tree = HotTree::new(options(3));
    let mut leaves = Leaves::new();
    for round in 0..6_u64 {
        let (mut batch, mut asked, before) = (Batch::new(), Vec::new(), leaves.clone());
        for number in 0..40 {
            let (name, value) = ((round * 23 + number * 7).to_le_bytes(), [round as u8; 5]);
            let key = KeyHash::of("kv", &name);
            asked.push(key.0);
            if (round + number) % 3 == 0 {
                batch.delete("kv", &name);
                leaves.remove(&key.0);
            } else {
                batch.put("kv", &name, &value);
                leaves.insert(key.0, leaf(&key.0, &value_hash(&value)));
            }
        }
        let (_, undo) = tree.apply(&batch);
        for depth in [0, 4, 8, 12] {
            let mut found = Vec::new();
            tree.nodes_above(&undo, depth, |key, hash| found.push((cut(&key.0, depth), hash)));
            let node = |place: [u8; 32]| match definition(&leaves, &place, depth) {
                Node::Inner(hash) => Some(hash),
                Node::Empty | Node::Leaf(_) => None,
            };
            let places = |keys: Vec<[u8; 32]>| -> BTreeSet<[u8; 32]> {
                keys.iter().map(|key| cut(key, depth)).collect()
            };
            // A key that stays what it was may be told of or not.
            let changed = asked
                .iter()
                .filter(|key| before.get(*key).map(|leaf| leaf.0) != leaves.get(*key).map(|leaf| leaf.0));
            let (due, may_be) = (places(changed.copied().collect()), places(asked.clone()));
            let told: BTreeSet<_> = found.iter().map(|(place, _)| *place).collect();
            assert!(told.is_superset(&due) && told.is_subset(&may_be), "round {round}, depth {depth}");
            assert!(found.iter().all(|(place, hash)| *hash == node(*place)), "round {round}, depth {depth}");
            assert!(found.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}

/// The rows of a state: the inner nodes at every multiple of `spacing`, by depth and first bits.
fn rows(leaves: &Leaves, spacing: usize) -> BTreeMap<(usize, [u8; 32]), [u8; 32]> {
    let mut rows = BTreeMap::new();
    for key in leaves.keys() {
        for depth in (0..256).step_by(spacing) {
            if let Node::Inner(hash) = definition(leaves, key, depth) {
                rows.insert((depth, cut(key, depth)), hash);
            }
        }
    }
    rows
}

/// The first bits of a key, zeros after.
fn cut(key: &[u8; 32], depth: usize) -> [u8; 32] {
    let mut out = [0; 32];
    for bit in 0..depth {
        out[bit / 8] |= key[bit / 8] & 128 >> (bit % 8);
    }
    out
}

/// A change of one of few keys: deleted, or given one of three values.
fn change() -> impl Strategy<Value = (u8, Option<u8>)> {
    (0..60u8, prop::option::weighted(0.6, 0..3u8))
}

fn apply(tree: &mut HotTree, model: &mut Model, changes: &[(u8, Option<u8>)]) -> icecore_hot::Undo {
    let mut batch = Batch::new();
    for (key, value) in changes {
        match value {
            Some(value) => {
                batch.put("d", &[*key], &[*value]);
                model.put("d", &[*key], &[*value]);
            }
            None => {
                batch.delete("d", &[*key]);
                model.delete("d", &[*key]);
            }
        }
    }
    tree.apply(&batch).1
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn kept_rows_follow_the_state(
        snapshots in prop::collection::vec(prop::collection::vec(prop::collection::vec(change(), 0..9), 1..4), 1..8),
        spacing in prop_oneof![Just(1usize), Just(4), Just(7), Just(8)],
        subtree_bits in prop_oneof![Just(0u32), Just(2), Just(6)],
    ) {
        let mut tree = HotTree::new(options(subtree_bits));
        let (mut model, mut kept) = (Model::default(), BTreeMap::new());
        for blocks in snapshots {
            let before = kept.clone();
            let mut changed = DirtyKeys::new();
            for block in blocks {
                changed.add(&apply(&mut tree, &mut model, &block));
            }
            let mut visited = Vec::new();
            tree.changed_nodes(&mut changed, spacing, |depth, key, hash| {
                let place = (depth, cut(&key.0, depth));
                visited.push(place);
                match hash {
                    Some(hash) => kept.insert(place, hash),
                    None => kept.remove(&place),
                };
            });
            prop_assert!(visited.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
            prop_assert_eq!(visited[0].0, 0, "the root in any case");
            prop_assert_eq!(&kept, &rows(&model.leaves, spacing));
            for place in &visited[1..] {
                prop_assert!(before.get(place) != kept.get(place), "nothing is visited in vain: {:?}", place);
            }
        }
    }
}

#[test]
fn threads_visit_the_same_rows_in_the_same_order() {
    let visited = |parallelism| {
        let mut options = options(3);
        options.parallelism = parallelism;
        let mut tree = HotTree::new(options);
        let mut changed = DirtyKeys::new();
        for from in [0, 1500u32] {
            let mut batch = Batch::new();
            (from..from + 3000).for_each(|key| batch.put("d", &key.to_le_bytes(), &from.to_le_bytes()));
            changed.add(&tree.apply(&batch).1);
        }
        let mut visited = Vec::new();
        tree.changed_nodes(&mut changed, 4, |depth, key, hash| visited.push((depth, *key, hash)));
        visited
    };
    let alone = visited(Parallelism::Off);
    assert!(alone.len() > 4500 / 4, "{}", alone.len());
    for threads in [2, 5] {
        let threads = NonZeroUsize::new(threads).unwrap();
        assert!(visited(Parallelism::Threads(threads)) == alone, "{threads} threads");
    }
}

#[test]
fn a_key_that_was_written_in_vain_is_no_change() {
    let mut model = Model::default();
    let mut tree = HotTree::new(options(3));
    apply(&mut tree, &mut model, &(0..20).map(|key| (key, Some(0))).collect::<Vec<_>>());
    let mut changed = DirtyKeys::new();
    // As a state that is read again tells it: written, and still of the value it had; deleted, and not there before.
    changed.add_key(KeyHash::of("d", &[3]), Some(&value_hash(&[0])));
    changed.add_key(KeyHash::of("d", &[200]), None);
    let mut visited = Vec::new();
    tree.changed_nodes(&mut changed, 4, |depth, _, hash| visited.push((depth, hash)));
    assert_eq!(visited, [(0, Some(tree.root().0))]);
}

/// The parts of a state, opened up to the leaves around `keys` and no further than rows of `spacing`.
fn parts(
    leaves: &Leaves,
    values: &BTreeMap<[u8; 32], [u8; 32]>,
    keys: &[KeyHash],
    spacing: usize,
) -> PartialTree {
    let mut out = PartialTree::new();
    let mut skipped: Option<([u8; 32], usize)> = None;
    for key in leaves.keys() {
        if skipped.is_some_and(|(from, depth)| bits_shared(&from, key) >= depth) {
            continue;
        }
        let closed = (0..256).step_by(spacing).find_map(|depth| match definition(leaves, key, depth) {
            Node::Inner(hash) if keys.iter().all(|k| bits_shared(&k.0, key) < depth) => Some((depth, hash)),
            _ => None,
        });
        match closed {
            Some((depth, hash)) => {
                out.push_inner(KeyHash(*key), depth, hash);
                skipped = Some((*key, depth));
            }
            None => out.push_leaf(KeyHash(*key), &values[key]),
        }
    }
    out
}

#[test]
fn proofs_of_parts_are_those_of_the_tree() {
    let random = |count: u64| (0..count).map(|i| key_hash_sharing(0, i)).collect::<Vec<_>>();
    let near: Vec<_> = (0..4).map(|i| key_hash_sharing(200, i)).collect();
    for keys in [random(0), random(1), random(2), random(300), [random(50), near].concat()] {
        let (tree, leaves) = load(&keys, 4);
        let values: BTreeMap<_, _> =
            keys.iter().map(|key| (key.0, *blake3::hash(&tree_value(&key.0[..4])).as_bytes())).collect();
        for asked in
            keys.iter().rev().take(9).copied().chain([key_hash_sharing(0, 7000), key_hash_sharing(190, 3)])
        {
            let expected = tree.prove(&asked);
            let opened: Vec<_> = expected.neighbours().copied().chain([asked]).collect();
            for spacing in [1, 4, 6, 8] {
                let partial = parts(&leaves, &values, &opened, spacing);
                let expected = (tree.root(), vec![Some(expected.clone())]);
                assert_eq!(partial.prove(&[asked]), expected, "{} keys", keys.len());
            }
        }
        let all = parts(&leaves, &values, &keys, 4);
        let expected: Vec<_> = keys.iter().map(|key| Some(tree.prove(key))).collect();
        assert_eq!(all.prove(&keys), (tree.root(), expected), "all at once");
    }
}

#[test]
fn what_the_parts_do_not_show_is_not_proved() {
    let keys: Vec<_> = (0..300).map(|i| key_hash_sharing(0, i)).collect();
    let (_, leaves) = load(&keys, 4);
    let values = keys.iter().map(|key| (key.0, *blake3::hash(&tree_value(&key.0[..4])).as_bytes())).collect();
    let partial = parts(&leaves, &values, &keys[..1], 4);
    let (_, proofs) = partial.prove(&keys);
    assert!(proofs[0].is_some());
    assert!(proofs.iter().filter(|proof| proof.is_some()).count() < 20);
}
