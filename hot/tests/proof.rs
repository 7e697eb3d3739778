//! Proofs: accepted by the unmodified `ics23` crate and by ourselves, and every forgery refused by both.

mod tree;

use std::collections::BTreeMap;

use icecore_hot::{
    Batch, BatchProof, Entry, HotTree, KeyHash, Loader, Options, PathProof, Proof, ProofError, Root,
    proof_spec, tree_key, tree_value,
};
use ics23::HostFunctionsManager;
use prost::Message;
use tree::key_hash_sharing;

const DOMAIN: &str = "storage";

/// A tree with the entries that the engine would keep beside it.
struct State {
    tree: HotTree,
    entries: BTreeMap<KeyHash, Entry>,
}

impl State {
    fn new(entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut loader = Loader::new(Options::default());
        let mut kept = BTreeMap::new();
        for (key, value) in entries {
            loader.push(DOMAIN, &key, &value);
            kept.insert(KeyHash::of(DOMAIN, &key), Entry { domain: DOMAIN.into(), key, value });
        }
        Self { tree: loader.finish(), entries: kept }
    }

    /// Keys and values `0 .. count`, as decimal digits.
    fn counted(count: u32) -> Self {
        Self::new((0..count).map(|i| (i.to_string().into_bytes(), (i * 7).to_string().into_bytes())))
    }

    fn root(&self) -> Root {
        self.tree.root()
    }

    fn prove(&self, key: &[u8]) -> Proof {
        let path = self.tree.prove(&KeyHash::of(DOMAIN, key));
        path.complete(DOMAIN, key, |hash| self.entries.get(hash).cloned()).expect("the state has all entries")
    }
}

fn ics23_accepts(bytes: &[u8], root: &Root, key: &[u8], value: Option<&[u8]>) -> bool {
    let Ok(message) = ics23::CommitmentProof::decode(bytes) else { return false };
    let (spec, root, key) = (proof_spec(), root.0.to_vec(), tree_key(DOMAIN, key));
    match value {
        Some(value) => {
            ics23::verify_membership::<HostFunctionsManager>(&message, &spec, &root, &key, &tree_value(value))
        }
        None => ics23::verify_non_membership::<HostFunctionsManager>(&message, &spec, &root, &key),
    }
}

/// Checks a proof in every way there is: by itself, by `ics23`, decoded, and in a batch of one.
fn check(state: &State, key: &[u8], value: Option<&[u8]>) -> usize {
    let proof = state.prove(key);
    let root = state.root();
    assert_eq!(proof.verify(&root, DOMAIN, key, value), Ok(()));
    assert_eq!(proof.claim(), (DOMAIN, key, value));
    let bytes = proof.to_ics23_bytes();
    let batch = BatchProof { proofs: vec![proof.clone()] };
    if !state.tree.is_empty() {
        assert!(ics23_accepts(&bytes, &root, key, value), "key={key:?}");
        assert!(ics23_accepts(&batch.to_ics23_bytes(), &root, key, value), "key={key:?}");
    }
    assert_eq!(Proof::from_ics23_bytes(&bytes), Ok(proof.clone()));
    let compact = proof.to_bytes();
    assert!(compact.len() < bytes.len() || state.tree.is_empty());
    assert_eq!(Proof::from_bytes(&compact), Ok(proof.clone()));
    assert_eq!(BatchProof::from_ics23_bytes(&batch.to_ics23_bytes()), Ok(batch));

    // The same proof says nothing else.
    let other = Root(*blake3::hash(&root.0).as_bytes());
    assert!(proof.verify(&other, DOMAIN, key, value).is_err());
    assert!(!ics23_accepts(&bytes, &other, key, value));
    assert_eq!(proof.verify(&root, "accounts", key, value), Err(ProofError::WrongKey));
    assert_eq!(proof.verify(&root, DOMAIN, &[key, b"x"].concat(), value), Err(ProofError::WrongKey));
    if let Some(value) = value {
        let longer = [value, b"x"].concat();
        assert_eq!(proof.verify(&root, DOMAIN, key, Some(&longer)), Err(ProofError::WrongValue));
        assert!(!ics23_accepts(&bytes, &root, key, Some(&longer)));
        assert_eq!(proof.verify(&root, DOMAIN, key, None), Err(ProofError::WrongKind));
        assert!(!ics23_accepts(&bytes, &root, key, None));
    } else {
        assert_eq!(proof.verify(&root, DOMAIN, key, Some(b"1")), Err(ProofError::WrongKind));
        assert!(!ics23_accepts(&bytes, &root, key, Some(b"1")));
    }
    bytes.len()
}

#[test]
fn trees_of_zero_one_two_and_a_thousand_keys_prove_all_they_hold_and_all_they_do_not() {
    for count in [0u32, 1, 2, 3, 1000] {
        let state = State::counted(count);
        for i in 0..count {
            check(&state, i.to_string().as_bytes(), Some((i * 7).to_string().as_bytes()));
        }
        for i in 0..300u32.min(20 * count + 5) {
            check(&state, format!("absent {i}").as_bytes(), None);
        }
    }
}

#[test]
fn proofs_over_a_million_keys_have_the_size_that_they_are_said_to_have() {
    let state = State::counted(1 << 20);
    let mean = |sizes: Vec<usize>| sizes.iter().sum::<usize>() / sizes.len();
    let present = (0..500u32).map(|i| {
        let id = i * 2081;
        check(&state, id.to_string().as_bytes(), Some((id * 7).to_string().as_bytes()))
    });
    assert!(mean(present.collect()) <= 1000);
    let absent = (0..500u32).map(|i| check(&state, format!("absent {i}").as_bytes(), None));
    assert!(mean(absent.collect()) <= 2000);
}

#[test]
fn empty_and_huge_values_and_keys_prove() {
    let huge = vec![0x5a; 1 << 20];
    let state = State::new([
        (b"empty".to_vec(), Vec::new()),
        (b"huge".to_vec(), huge.clone()),
        (Vec::new(), b"under the empty key".to_vec()),
        (vec![7; 1000], b"under a long key".to_vec()),
    ]);
    check(&state, b"empty", Some(b""));
    check(&state, b"huge", Some(&huge));
    check(&state, b"", Some(b"under the empty key"));
    check(&state, &[7; 1000], Some(b"under a long key"));
    check(&state, b"absent", None);
}

#[test]
fn paths_between_keys_that_share_200_bits_lead_to_the_root() {
    let mut loader = Loader::new(Options::default());
    let mut leaves = BTreeMap::new();
    for tail in 0..200u64 {
        let key = key_hash_sharing(200, tail);
        loader.push_hashed(key, &[1; 32]);
        leaves.insert(key.0, tree::leaf(&key.0, &[1; 32]).0);
    }
    let tree = loader.finish();
    let fold = |key: &[u8; 32], siblings: &[[u8; 32]]| {
        siblings.iter().zip((0..siblings.len()).rev()).fold(leaves[key], |hash, (sibling, depth)| {
            let is_right = key[depth / 8] >> (7 - depth % 8) & 1 == 1;
            let pair = if is_right { [*sibling, hash] } else { [hash, *sibling] };
            *blake3::hash(&pair.concat()).as_bytes()
        })
    };
    for key in leaves.keys() {
        let PathProof::Present(path) = tree.prove(&KeyHash(*key)) else { panic!("the key is there") };
        assert!(path.siblings.len() > 200);
        assert_eq!(fold(key, &path.siblings), tree.root().0);
    }
    for tail in 1000..1100u64 {
        for shared in [0, 100, 199, 200, 203] {
            let key = key_hash_sharing(shared, tail);
            let PathProof::Absent { left, right } = tree.prove(&key) else { panic!("the key is not there") };
            let before = leaves.range(..key.0).next_back().map(|(key, _)| KeyHash(*key));
            let after = leaves.range(key.0..).next().map(|(key, _)| KeyHash(*key));
            assert_eq!(left.as_ref().map(|neighbour| neighbour.key), before);
            assert_eq!(right.as_ref().map(|neighbour| neighbour.key), after);
            for neighbour in [left, right].into_iter().flatten() {
                assert_eq!(fold(&neighbour.key.0, &neighbour.path.siblings), tree.root().0);
            }
        }
    }
}

/// Whether anybody takes the bytes for a proof of what they claim, or of what was asked.
fn is_accepted(bytes: &[u8], root: &Root, key: &[u8], value: Option<&[u8]>) -> bool {
    Proof::from_ics23_bytes(bytes).is_ok_and(|proof| proof.verify(root, DOMAIN, key, value).is_ok())
}

#[test]
fn no_byte_of_a_proof_can_be_changed_and_no_byte_cut() {
    let state = State::counted(50);
    let root = state.root();
    for (key, value) in [(&b"7"[..], Some(&b"49"[..])), (b"absent", None)] {
        let bytes = state.prove(key).to_ics23_bytes();
        assert!(is_accepted(&bytes, &root, key, value));
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut forged = bytes.clone();
                forged[at] ^= flip;
                assert!(!is_accepted(&forged, &root, key, value), "at={at} flip={flip}");
            }
            assert!(!is_accepted(&bytes[..at], &root, key, value), "cut={at}");
        }
        assert!(!is_accepted(&[&bytes[..], b"\0"].concat(), &root, key, value));
        let compact = state.prove(key).to_bytes();
        let accepts = |bytes: &[u8]| {
            Proof::from_bytes(bytes).is_ok_and(|proof| proof.verify(&root, DOMAIN, key, value).is_ok())
        };
        assert!(accepts(&compact));
        for at in 0..compact.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut forged = compact.clone();
                forged[at] ^= flip;
                assert!(!accepts(&forged), "at={at} flip={flip}");
            }
            assert!(!accepts(&compact[..at]), "cut={at}");
        }
        assert!(!accepts(&[&compact[..], b"\0"].concat()));
        let batch = BatchProof { proofs: vec![state.prove(key)] }.to_ics23_bytes();
        for at in 0..batch.len() {
            let mut forged = batch.clone();
            forged[at] ^= 1;
            let is_accepted = BatchProof::from_ics23_bytes(&forged)
                .is_ok_and(|batch| batch.proofs.iter().all(|p| p.verify(&root, DOMAIN, key, value).is_ok()));
            assert!(!is_accepted, "at={at}");
        }
    }
}

fn decoded(bytes: &[u8]) -> Option<ics23::commitment_proof::Proof> {
    ics23::CommitmentProof::decode(bytes).expect("a proof of our own").proof
}

/// A proof of absence put together from parts of the forger's choice.
fn absence(key: &[u8], left: Option<&Proof>, right: Option<&Proof>) -> Vec<u8> {
    use ics23::commitment_proof::Proof as Kind;
    let part = |proof: &Proof| match decoded(&proof.to_ics23_bytes()) {
        Some(Kind::Exist(proof)) => proof,
        _ => panic!("a part is a proof of existence"),
    };
    let message =
        ics23::NonExistenceProof { key: tree_key(DOMAIN, key), left: left.map(part), right: right.map(part) };
    ics23::CommitmentProof { proof: Some(Kind::Nonexist(message)) }.encode_to_vec()
}

#[test]
fn absence_cannot_be_forged_from_leaves_that_are_not_the_neighbours() {
    let state = State::counted(40);
    let root = state.root();
    let ordered: Vec<&Entry> = state.entries.values().collect();
    let proofs: Vec<Proof> = ordered.iter().map(|entry| state.prove(&entry.key)).collect();
    let refused = |key: &[u8], left: Option<&Proof>, right: Option<&Proof>| {
        let bytes = absence(key, left, right);
        assert!(!is_accepted(&bytes, &root, key, None));
        assert!(!ics23_accepts(&bytes, &root, key, None));
    };
    for (i, entry) in ordered.iter().enumerate() {
        // The key is there: whatever encloses it skips it.
        for left in (0..i).rev().take(3) {
            for right in (i + 1..ordered.len()).take(3) {
                refused(&entry.key, Some(&proofs[left]), Some(&proofs[right]));
            }
        }
        for other in (0..ordered.len()).filter(|&other| other != i) {
            refused(&entry.key, Some(&proofs[other]), None);
            refused(&entry.key, None, Some(&proofs[other]));
        }
        refused(&entry.key, None, None);
    }
    // The key is absent: the true neighbours are accepted, and nothing else.
    for i in 0..100u32 {
        let key = format!("absent {i}").into_bytes();
        let hash = KeyHash::of(DOMAIN, &key);
        let at = state.entries.keys().filter(|other| **other < hash).count();
        let left = at.checked_sub(1).map(|left| &proofs[left]);
        let right = proofs.get(at);
        let bytes = absence(&key, left, right);
        assert!(is_accepted(&bytes, &root, &key, None) && ics23_accepts(&bytes, &root, &key, None));
        assert_eq!(bytes, state.prove(&key).to_ics23_bytes());
        if left.is_some() && right.is_some() {
            refused(&key, right, left);
            refused(&key, left, None);
            refused(&key, None, right);
            refused(&key, left, left);
        }
        if let Some(farther) = at.checked_sub(2) {
            refused(&key, Some(&proofs[farther]), right);
        }
        if let Some(farther) = proofs.get(at + 1) {
            refused(&key, left, Some(farther));
        }
    }
}

#[test]
fn a_path_with_a_step_too_few_or_too_many_is_refused() {
    use ics23::commitment_proof::Proof as Kind;
    let state = State::counted(30);
    let bytes = state.prove(b"7").to_ics23_bytes();
    let Some(Kind::Exist(proof)) = decoded(&bytes) else {
        panic!("the key is there");
    };
    let len = proof.path.len();
    for at in 0..len {
        let mut forged = proof.clone();
        forged.path.remove(at);
        let mut doubled = proof.clone();
        doubled.path.insert(at, doubled.path[at].clone());
        let mut swapped = proof.clone();
        swapped.path.swap(at, (at + 1) % len);
        for forged in [forged, doubled, swapped] {
            let bytes = ics23::CommitmentProof { proof: Some(Kind::Exist(forged)) }.encode_to_vec();
            assert!(!is_accepted(&bytes, &state.root(), b"7", Some(b"49")));
            assert!(!ics23_accepts(&bytes, &state.root(), b"7", Some(b"49")));
        }
    }
}

#[test]
fn batches_share_their_steps_and_ics23_takes_them() {
    let state = State::counted(1000);
    let keys: Vec<String> = (990..1010).map(|i: u32| i.to_string()).collect();
    let proofs: Vec<Proof> = keys.iter().map(|key| state.prove(key.as_bytes())).collect();
    let alone: usize = proofs.iter().map(|proof| proof.to_ics23_bytes().len()).sum();
    let batch = BatchProof { proofs };
    assert_eq!(batch.verify(&state.root()), Ok(()));
    let bytes = batch.to_ics23_bytes();
    assert!(bytes.len() * 10 < alone * 9, "together={} alone={alone}", bytes.len());
    for (i, key) in (990u32..1010).zip(&keys) {
        let value = (i * 7).to_string();
        let value = (i < 1000).then_some(value.as_bytes());
        assert!(ics23_accepts(&bytes, &state.root(), key.as_bytes(), value), "key={key}");
    }
    assert_eq!(BatchProof::from_ics23_bytes(&bytes), Ok(batch.clone()));
    assert!(batch.verify(&Root::EMPTY).is_err());
}

/// A batch of one entry, written by hand: this many steps in the table, and a path of these numbers.
fn batch_of(key: &[u8], table: &[ics23::InnerOp], path: &[i32]) -> Vec<u8> {
    use ics23::commitment_proof::Proof as Kind;
    let proof = ics23::CompressedExistenceProof {
        key: tree_key(DOMAIN, key),
        value: tree_value(b"v"),
        leaf: proof_spec().leaf_spec,
        path: path.to_vec(),
    };
    let proof = Some(ics23::compressed_batch_entry::Proof::Exist(proof));
    let entries = vec![ics23::CompressedBatchEntry { proof }];
    let batch = ics23::CompressedBatchProof { entries, lookup_inners: table.to_vec() };
    ics23::CommitmentProof { proof: Some(Kind::Compressed(batch)) }.encode_to_vec()
}

#[test]
fn a_batch_has_one_table_of_steps() {
    let hash = KeyHash::of(DOMAIN, b"k");
    let step = |byte: u8, depth: usize| {
        let (mut prefix, mut suffix) = (vec![byte; 32], Vec::new());
        if hash.0[depth / 8] >> (7 - depth % 8) & 1 == 0 {
            std::mem::swap(&mut prefix, &mut suffix);
        }
        ics23::InnerOp { hash: ics23::HashOp::Blake3.into(), prefix, suffix }
    };
    let (low, high) = (step(1, 1), step(2, 0));
    let accepts = |table: &[ics23::InnerOp], path: &[i32]| {
        let bytes = batch_of(b"k", table, path);
        let batch = BatchProof::from_ics23_bytes(&bytes);
        if let Ok(batch) = &batch {
            assert_eq!(batch.to_ics23_bytes(), bytes);
        }
        batch.is_ok()
    };
    assert!(accepts(&[], &[]));
    assert!(accepts(&[low.clone(), high.clone()], &[0, 1]));
    assert!(!accepts(&[high.clone(), low.clone()], &[1, 0]), "named in another order than they stand");
    assert!(!accepts(&[low.clone(), high.clone()], &[0]), "one that no path names");
    assert!(!accepts(&[low.clone(), low.clone()], &[0, 1]), "one twice");
    assert!(!accepts(std::slice::from_ref(&low), &[0, 1]), "one that is not there");
    assert!(!accepts(std::slice::from_ref(&low), &[-1]));
    assert!(!accepts(&[step(1, 0)], &vec![0; 257]), "longer than any path");
}

#[test]
fn messages_that_swell_are_refused() {
    // Two bytes of message each, and hundreds in the memory of whoever builds what they stand for.
    let fields = |tag: u8, content: &[u8], count: usize| {
        let mut body = Vec::new();
        for _ in 0..count {
            body.extend([tag, content.len() as u8]);
            body.extend(content);
        }
        body
    };
    let wrap = |tag: u8, body: &[u8]| {
        let mut out = vec![tag];
        prost::encoding::encode_varint(body.len() as u64, &mut out);
        out.extend(body);
        out
    };
    for (outer, inner) in [(4, 1), (4, 2), (3, 1), (1, 4), (2, 1)] {
        for content in [&b""[..], b"\x0a\0", b"\x12\0"] {
            let bytes = wrap(outer << 3 | 2, &fields(inner << 3 | 2, content, 1 << 18));
            assert_eq!(BatchProof::from_ics23_bytes(&bytes).err(), Some(ProofError::Malformed));
            assert_eq!(Proof::from_ics23_bytes(&bytes).err(), Some(ProofError::Malformed));
        }
    }
    let step = ics23::InnerOp { hash: ics23::HashOp::Blake3.into(), prefix: vec![7; 32], suffix: vec![] };
    let long = batch_of(b"k", &[step], &vec![0; 1 << 20]);
    assert_eq!(BatchProof::from_ics23_bytes(&long).err(), Some(ProofError::Malformed));
}

#[test]
fn what_is_decoded_is_what_was_encoded() {
    let state = State::counted(60);
    let keys: [&[u8]; 5] = [b"7", b"absent", b"8", b"other", b"7"];
    let proofs: Vec<Proof> = keys.iter().map(|key| state.prove(key)).collect();
    let single: Vec<Vec<u8>> = proofs.iter().map(Proof::to_ics23_bytes).collect();
    let batches = [1, 2, 5].map(|count| BatchProof { proofs: proofs[..count].to_vec() }.to_ics23_bytes());
    let mut random = 1u64;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % bound
    };
    for round in 0..30_000 {
        let sources: Vec<&Vec<u8>> = single.iter().chain(&batches).collect();
        let mut bytes = sources[round % sources.len()].clone();
        for _ in 0..=below(3) {
            let (at, other) = (below(bytes.len()), below(bytes.len()));
            match below(5) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes[at] = [0, 1, 2, 0x80, 0xFF][below(5)],
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, bytes[other]),
                _ => bytes.copy_within(at.max(other).., at.min(other)),
            }
        }
        if let Ok(proof) = Proof::from_ics23_bytes(&bytes) {
            assert_eq!(proof.to_ics23_bytes(), bytes);
        }
        if let Ok(batch) = BatchProof::from_ics23_bytes(&bytes) {
            assert_eq!(batch.to_ics23_bytes(), bytes);
        }
    }
}

#[test]
fn completing_a_path_needs_the_right_entries() {
    let state = State::counted(10);
    let hash = KeyHash::of(DOMAIN, b"3");
    let path = state.tree.prove(&hash);
    assert_eq!(path.neighbours().count(), 0);
    let missing = path.clone().complete(DOMAIN, b"3", |_| None);
    assert_eq!(missing, Err(ProofError::MissingEntry { key: hash }));
    let other = state.entries.values().find(|entry| entry.key != b"3").cloned();
    let wrong = path.complete(DOMAIN, b"3", |_| other.clone());
    assert_eq!(wrong, Err(ProofError::WrongEntry { key: hash }));
    // An entry with another value goes in, and does not come out: the root tells.
    let path = state.tree.prove(&hash);
    let forged = Entry { domain: DOMAIN.into(), key: b"3".to_vec(), value: b"forged".to_vec() };
    let proof = path.complete(DOMAIN, b"3", |_| Some(forged.clone())).unwrap();
    assert_eq!(proof.verify(&state.root(), DOMAIN, b"3", Some(b"forged")), Err(ProofError::WrongRoot));
}

#[test]
fn a_proof_of_the_state_before_undo_is_of_that_state_only() {
    let mut state = State::counted(100);
    let before = state.root();
    let proof = state.prove(b"5");
    let mut batch = Batch::new();
    batch.put(DOMAIN, b"5", b"new");
    batch.delete(DOMAIN, b"6");
    let (after, undo) = state.tree.apply(&batch);
    assert_eq!(proof.verify(&after, DOMAIN, b"5", Some(b"35")), Err(ProofError::WrongRoot));
    state.tree.undo(undo);
    assert_eq!(state.prove(b"5"), proof);
    assert_eq!(proof.verify(&before, DOMAIN, b"5", Some(b"35")), Ok(()));
}
