//! The tree against its definition: a root is what a few lines of recursion say it is, whatever the history.

mod tree;

use std::num::NonZeroUsize;

use icecore_hot::{
    Batch, HashBackend, HotTree, HugePages, KeyHash, Loader, Options, Parallelism, Prefetch, RadixShape,
    Root, SubtreeRoots, Undo,
};
use proptest::prelude::*;
use tree::{Model, definition, key_hash_sharing};

fn options(threads: usize, backend: HashBackend, bits: u32) -> Options {
    let mut options = Options::default();
    options.parallelism = match NonZeroUsize::new(threads) {
        Some(threads) if threads.get() > 1 => Parallelism::Threads(threads),
        _ => Parallelism::Off,
    };
    options.hash_backend = backend;
    options.subtree_roots = SubtreeRoots::from_bits(bits);
    options
}

/// Every way of working that must not change a root.
fn all_options() -> Vec<Options> {
    let mut plain = options(1, HashBackend::Portable, 0);
    plain.prefetch = Prefetch::Off;
    plain.huge_pages = HugePages::Off;
    vec![
        options(1, HashBackend::Auto, 8),
        options(2, HashBackend::Avx2, 4),
        options(3, HashBackend::Avx512, 1),
        options(4, HashBackend::Auto, 12),
        plain,
    ]
}

/// A change: a key out of few, and a value or a deletion.
fn changes() -> impl Strategy<Value = Vec<(u16, Option<u8>)>> {
    prop::collection::vec((0u16..600, prop::option::weighted(0.7, any::<u8>())), 0..400)
}

fn batch_of(changes: &[(u16, Option<u8>)]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in changes {
        let domain = if key % 3 == 0 { "accounts" } else { "storage" };
        match value {
            Some(value) => batch.put(domain, &key.to_le_bytes(), &[*value]),
            None => batch.delete(domain, &key.to_le_bytes()),
        }
    }
    batch
}

fn apply_to_model(model: &mut Model, changes: &[(u16, Option<u8>)]) {
    for (key, value) in changes {
        let domain = if key % 3 == 0 { "accounts" } else { "storage" };
        match value {
            Some(value) => model.put(domain, &key.to_le_bytes(), &[*value]),
            None => model.delete(domain, &key.to_le_bytes()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn roots_follow_the_definition_and_undo_gives_them_back(
        blocks in prop::collection::vec(changes(), 1..6),
        which in 0usize..5,
    ) {
        let mut tree = HotTree::new(all_options()[which]);
        let mut model = Model::default();
        let mut history: Vec<(Root, u64, Undo)> = Vec::new();
        for block in &blocks {
            let before = (tree.root(), tree.len());
            let (root, undo) = tree.apply(&batch_of(block));
            apply_to_model(&mut model, block);
            prop_assert_eq!(root, model.root());
            prop_assert_eq!(root, tree.root());
            prop_assert_eq!(tree.len(), model.leaves.len() as u64);
            history.push((before.0, before.1, undo));
        }
        while let Some((root, len, undo)) = history.pop() {
            prop_assert_eq!(tree.undo(undo), root);
            prop_assert_eq!(tree.len(), len);
        }
    }

    #[test]
    fn any_split_into_batches_gives_the_same_root(all in changes(), cut in 0usize..400) {
        let cut = cut.min(all.len());
        let mut whole = HotTree::new(all_options()[0]);
        let (root, _) = whole.apply(&batch_of(&all));
        for options in all_options() {
            let mut split = HotTree::new(options);
            split.apply(&batch_of(&all[..cut]));
            prop_assert_eq!(split.apply(&batch_of(&all[cut..])).0, root);
        }
    }

    #[test]
    fn any_radix_shape_gives_the_same_root_and_proofs(
        shape in prop::collection::vec(0u8..12, 0..8),
        bits in 0u32..6,
        threads in 1usize..4,
        blocks in prop::collection::vec(changes(), 1..4),
    ) {
        let mut plain = HotTree::new(all_options()[0]);
        let mut options = options(threads, HashBackend::Auto, bits);
        options.radix_shape = RadixShape::of_levels(&shape);
        let mut shaped = HotTree::new(options);
        let mut undos = Vec::new();
        for block in &blocks {
            let before = shaped.root();
            let (root, _) = plain.apply(&batch_of(block));
            let (shaped_root, undo) = shaped.apply(&batch_of(block));
            prop_assert_eq!(shaped_root, root);
            undos.push((before, undo));
        }
        for key in 0u16..40 {
            let key = KeyHash::of("storage", &key.to_le_bytes());
            prop_assert_eq!(shaped.prove(&key), plain.prove(&key));
        }
        while let Some((root, undo)) = undos.pop() {
            prop_assert_eq!(shaped.undo(undo), root);
        }
    }

    #[test]
    fn loading_in_any_order_gives_the_root_of_applying(
        keys in prop::collection::btree_map(any::<u32>(), any::<u16>(), 0..800)
            .prop_flat_map(|state| Just(state.into_iter().collect::<Vec<_>>()).prop_shuffle()),
    ) {
        let mut model = Model::default();
        let bytes: Vec<_> = keys.iter().map(|(key, value)| (key.to_be_bytes(), value.to_be_bytes())).collect();
        for (key, value) in &bytes {
            model.put("d", key, value);
        }
        for options in all_options() {
            let state = bytes.iter().map(|(key, value)| ("d", &key[..], &value[..]));
            let tree = HotTree::load(options, state);
            prop_assert_eq!(tree.root(), model.root());
            prop_assert_eq!(tree.len(), model.leaves.len() as u64);
        }
    }

    #[test]
    fn keys_that_share_bits_follow_the_definition(
        shared in 0usize..256,
        tails in prop::collection::vec(any::<u64>(), 1..40),
        which in 0usize..5,
    ) {
        let mut loader = Loader::new(all_options()[which]);
        let mut leaves = std::collections::BTreeMap::new();
        for tail in &tails {
            let key = key_hash_sharing(shared, *tail);
            let value = *blake3::hash(&tail.to_le_bytes()).as_bytes();
            loader.push_hashed(key, &value);
            leaves.insert(key.0, tree::leaf(&key.0, &value));
        }
        prop_assert_eq!(loader.finish().root(), definition(&leaves));
    }
}

/// Numbered keys, so that a large state needs no store of its own.
fn numbered(batch: &mut Batch, keys: std::ops::Range<u32>, salt: u32) {
    for key in keys {
        batch.put("storage", &key.to_le_bytes(), &(key ^ salt).to_le_bytes());
    }
}

#[test]
fn a_tree_that_grows_and_shrinks_keeps_to_the_definition() {
    let mut shaped = options(2, HashBackend::Auto, 3);
    shaped.radix_shape = RadixShape::of_levels(&[2, 4, 3, 16]);
    for options in [options(1, HashBackend::Auto, 2), options(2, HashBackend::Auto, 8), shaped] {
        let mut tree = HotTree::new(options);
        let mut model = Model::default();
        let mut undos = Vec::new();
        let mut batch = Batch::new();
        for round in 0..30u32 {
            batch.clear();
            // Growth in uneven steps, so that subtrees grow both by merging and leaf by leaf.
            let from = round * round * 20;
            let to = (round + 1) * (round + 1) * 20;
            numbered(&mut batch, from..to, round);
            for key in from..to {
                model.put("storage", &key.to_le_bytes(), &(key ^ round).to_le_bytes());
            }
            let before = tree.root();
            let (root, undo) = tree.apply(&batch);
            assert_eq!(root, model.root(), "round={round}");
            undos.push((before, undo));
        }
        batch.clear();
        for key in 0..17_900u32 {
            batch.delete("storage", &key.to_le_bytes());
            model.delete("storage", &key.to_le_bytes());
        }
        let before = tree.root();
        let (root, undo) = tree.apply(&batch);
        assert_eq!(root, model.root());
        undos.push((before, undo));
        while let Some((root, undo)) = undos.pop() {
            assert_eq!(tree.undo(undo), root);
        }
        assert!(tree.is_empty());
    }
}

#[test]
fn the_last_change_of_a_key_counts() {
    let mut tree = HotTree::new(Options::default());
    let mut batch = Batch::new();
    for round in 0..2100u32 {
        batch.put("d", b"same", &round.to_le_bytes());
        batch.put("d", b"gone", b"x");
        batch.delete("d", b"gone");
    }
    let (root, undo) = tree.apply(&batch);
    let mut model = Model::default();
    model.put("d", b"same", &2099u32.to_le_bytes());
    assert_eq!(root, model.root());
    assert_eq!((tree.len(), undo.len()), (1, 1));
    assert_eq!(tree.undo(undo), Root::EMPTY);
}

#[test]
fn batches_taken_back_together_leave_the_state_before_the_oldest() {
    for parallel in [1, 2] {
        let mut tree = HotTree::new(options(parallel, HashBackend::Auto, 4));
        let (mut states, mut batch) = (Vec::new(), Batch::new());
        let mut undos: Vec<Undo> = Vec::new();
        // Batches of none to 900 keys, most of them changed by many; 60 batches are more than are taken back in one piece.
        for round in 0..60u32 {
            batch.clear();
            let from = round * 37 % 400;
            numbered(&mut batch, from..from + round * 613 % 900, round);
            (from..from + round % 5 * 20).for_each(|key| batch.delete("storage", &key.to_le_bytes()));
            states.push((tree.root(), tree.len()));
            undos.push(tree.apply(&batch).1);
        }
        for kept in [60, 59, 48, 47, 9, 0] {
            let newest_first: Vec<Undo> = undos.drain(kept..).rev().collect();
            let root = tree.undo_all(newest_first);
            if let Some(state) = states.get(kept) {
                assert_eq!((root, tree.len()), *state, "{kept} batches stay");
            }
            assert_eq!(root, tree.root());
        }
    }
}

#[test]
fn nothing_changed_is_nothing_to_undo() {
    let mut tree = HotTree::new(Options::default());
    let mut batch = Batch::new();
    assert_eq!(tree.apply(&batch).0, Root::EMPTY);
    batch.put("d", b"k", b"v");
    let (root, _) = tree.apply(&batch);
    let (again, undo) = tree.apply(&batch);
    assert_eq!(again, root);
    assert!(undo.is_empty());
    batch.clear();
    batch.delete("d", b"absent");
    let (after, undo) = tree.apply(&batch);
    assert_eq!(after, root);
    assert!(undo.is_empty());
}

#[test]
fn the_root_of_one_key_is_its_leaf() {
    let mut tree = HotTree::new(Options::default());
    let mut batch = Batch::new();
    batch.put("d", b"k", b"");
    let key = KeyHash::of("d", b"k");
    let value = *blake3::hash(b"\x01").as_bytes();
    assert_eq!(tree.apply(&batch).0, Root(tree::leaf(&key.0, &value).0));
}

#[test]
fn a_thousand_keys_that_share_200_bits_neither_fail_nor_explode() {
    let mut leaves = std::collections::BTreeMap::new();
    let mut loader = Loader::new(Options::default());
    for tail in 0..1000u64 {
        let key = key_hash_sharing(200, tail.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        loader.push_hashed(key, &[7; 32]);
        leaves.insert(key.0, tree::leaf(&key.0, &[7; 32]));
    }
    let mut tree = loader.finish();
    assert_eq!(tree.root(), definition(&leaves));
    assert!(tree.memory().nodes < 1 << 20, "the heap follows the number of keys, not their bits");
    // The tree goes on with ordinary keys around them.
    let mut batch = Batch::new();
    let mut model = Model { leaves };
    for key in 0..5000u32 {
        batch.put("d", &key.to_le_bytes(), b"v");
        model.put("d", &key.to_le_bytes(), b"v");
    }
    let before = tree.root();
    let (root, undo) = tree.apply(&batch);
    assert_eq!(root, model.root());
    assert_eq!(tree.undo(undo), before);
}

#[test]
fn memory_adds_up_and_stays_bounded() {
    let mut loader = Loader::new(Options::default());
    for key in 0..100_000u32 {
        loader.push("storage", &key.to_le_bytes(), b"value");
    }
    let memory = loader.finish().memory();
    assert_eq!((memory.keys, memory.leaves), (100_000, 6_400_000));
    let cut = memory.leaves + memory.nodes + memory.spare;
    assert!(cut < 120 * memory.keys, "bytes={cut}");
}
