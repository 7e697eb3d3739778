//! What an archive must answer: a plain map of versions, and roots computed from the state by a second, simple implementation
//! of the tree; that of Ethereum is in [`ethereum`].

use std::collections::{BTreeMap, BTreeSet};

use icecore::{Commitment, Domain, Root};

use crate::ethereum;

/// The domains of every archive that is not for Ethereum.
pub(crate) const DOMAINS: [&str; 2] = ["kv", "code"];

/// The domains of an archive.
pub(crate) fn domains(commitment: Commitment) -> &'static [&'static str] {
    if commitment == Commitment::Ethereum { &ethereum::DOMAINS } else { &DOMAINS }
}

/// A key: the place of its domain in [`domains`], and its bytes.
pub(crate) type Key = (usize, Vec<u8>);

/// A new value, or a deletion.
pub(crate) type Value = Option<Vec<u8>>;

/// One change of a block.
pub(crate) type Change = (Key, Value);

/// All versions of everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Whether there is an archive.
    pub(crate) exists: bool,
    versions: BTreeMap<Key, BTreeMap<u64, Value>>,
    roots: BTreeMap<u64, Root>,
    /// The lowest block that is answered: the first one, or the one whose state pruning kept.
    first: Option<u64>,
    /// The lowest blocks, each in its time, into whose step the archive was unwound.
    unwound_to: BTreeSet<u64>,
    blocks_per_step: u64,
    commitment: Commitment,
    /// Whether the domains are by path.
    pub(crate) is_by_path: bool,
}

impl Model {
    pub(crate) fn new(commitment: Commitment, is_by_path: bool, blocks_per_step: u64) -> Self {
        Self { blocks_per_step, commitment, is_by_path, ..Self::default() }
    }

    /// The domains of the archive.
    pub(crate) fn domains(&self) -> &'static [&'static str] {
        domains(self.commitment)
    }

    /// Whether it is an archive for Ethereum.
    pub(crate) fn is_ethereum(&self) -> bool {
        self.commitment == Commitment::Ethereum
    }

    /// A key that no script writes, with a value.
    pub(crate) fn new_entry(&self) -> (Key, Vec<u8>) {
        if self.is_ethereum() { ethereum::new_entry() } else { ((0, b"copy".to_vec()), vec![1; 9]) }
    }

    /// All keys that were ever written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Key> {
        self.versions.keys()
    }

    fn step_of(&self, height: u64) -> u64 {
        height / self.blocks_per_step
    }

    /// The heights that are answered, both inside.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let (head, _) = self.roots.last_key_value()?;
        Some((self.first?, *head))
    }

    /// The newest block.
    pub(crate) fn head(&self) -> Option<u64> {
        self.range().map(|(_, head)| head)
    }

    /// The blocks that are answered.
    pub(crate) fn blocks(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.roots.range(self.first.unwrap_or(0)..).map(|(height, _)| *height)
    }

    /// The newest block at or below a height, and its root.
    pub(crate) fn block_at(&self, at: u64) -> Option<(u64, Root)> {
        self.roots.range(..=at).next_back().map(|(height, root)| (*height, *root))
    }

    pub(crate) fn commit(&mut self, height: u64, changes: &[Change]) {
        for (key, value) in changes {
            self.versions.entry(key.clone()).or_default().insert(height, value.clone());
        }
        self.roots.insert(height, self.root_at(height));
        self.first = self.first.or(Some(height));
    }

    pub(crate) fn unwind(&mut self, to: u64) {
        let step = self.block_at(to).map(|(height, _)| self.step_of(height));
        self.unwound_to.extend(self.first.filter(|first| Some(self.step_of(*first)) == step));
        for versions in self.versions.values_mut() {
            versions.retain(|block, _| *block <= to);
        }
        self.roots.retain(|block, _| *block <= to);
    }

    /// Keeps what the state at `before` needs.
    pub(crate) fn prune(&mut self, before: u64) {
        self.first = self.first.max(self.block_at(before).map(|(height, _)| height));
    }

    /// The same with another lowest block.
    pub(crate) fn with_floor(&self, floor: u64) -> Self {
        Self { first: Some(floor), ..self.clone() }
    }

    pub(crate) fn get(&self, key: &Key, at: u64) -> Value {
        self.versions.get(key)?.range(..=at).next_back().and_then(|(_, value)| value.clone())
    }

    /// All keys of a domain with a value at a height, as they are stored, in order.
    pub(crate) fn state(&self, domain: usize, at: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let stored = |key: &Key| if self.is_ethereum() { ethereum::stored(key) } else { key.1.clone() };
        let keys = self.versions.keys().filter(|key| key.0 == domain);
        let mut state: Vec<_> = keys.filter_map(|key| Some((stored(key), self.get(key, at)?))).collect();
        if self.is_by_path {
            let order = Domain::new(DOMAINS[domain]).by_path();
            state.sort_by(|(a, _), (b, _)| order.compare(a, b));
        } else {
            state.sort_unstable();
        }
        state
    }

    /// The ways in which the versions that the lowest block sees may be told: an unwind that reached into segments moved those of
    /// the lowest block's step to that block. Whether it did depends on what was emitted, and is the same for all keys.
    pub(crate) fn moves(&self) -> Vec<BTreeSet<u64>> {
        let mut moves = vec![BTreeSet::new()];
        for floor in &self.unwound_to {
            let with_floor = |floors: &BTreeSet<u64>| floors.iter().chain([floor]).copied().collect();
            moves.extend(moves.iter().map(with_floor).collect::<Vec<_>>());
        }
        moves
    }

    /// The versions of a key, newest first, down to the one that the lowest block sees. A deletion before that block is none.
    pub(crate) fn history(&self, key: &Key, moved: &BTreeSet<u64>) -> Vec<(u64, Value)> {
        let Some(first) = self.first else { return Vec::new() };
        let Some(versions) = self.versions.get(key) else { return Vec::new() };
        let seen = versions.range(..=first).next_back();
        let seen = seen.filter(|(block, value)| **block == first || value.is_some()).map(|(block, value)| {
            let of_step = |floor: &&u64| self.step_of(**floor) == self.step_of(*block);
            let target = moved.range(block..=&first).rev().find(of_step).unwrap_or(block);
            (*target, value.clone())
        });
        let later = versions.range(first + 1..).rev().map(|(block, value)| (*block, value.clone()));
        later.chain(seen).collect()
    }

    /// All keys that were ever written, and some that never were: longer by a byte, and in the other domain.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = self.versions.keys().cloned().collect();
        if self.is_ethereum() {
            keys.extend(self.versions.keys().map(ethereum::absent));
            return keys;
        }
        for (domain, key) in self.versions.keys() {
            keys.insert((1 - domain, key.clone()));
            keys.insert((*domain, [key, &b"\0"[..]].concat()));
        }
        keys.extend([(0, Vec::new()), (1, vec![0xFF; 40])]);
        keys
    }

    /// The root of the state at a height.
    fn root_at(&self, at: u64) -> Root {
        if self.is_ethereum() {
            return ethereum::root(self, at);
        }
        let mut leaves = Vec::new();
        for key in self.versions.keys() {
            if let Some(value) = self.get(key, at) {
                leaves.push(leaf(DOMAINS[key.0], &key.1, &value));
            }
        }
        leaves.sort_unstable();
        Root(subtree(&leaves, 0))
    }
}

/// A place in the tree and the hash of the leaf there.
type Leaf = ([u8; 32], [u8; 32]);

fn leaf(domain: &str, key: &[u8], value: &[u8]) -> Leaf {
    let place = hash(&[&[domain.len() as u8], domain.as_bytes(), key]);
    let tag = b"icecore state leaf, version 1: BLAKE3(tag, key hash, value hash)";
    (place, hash(&[tag, &place, &hash(&[&[1], value])]))
}

/// The hash of the leaves whose places share the first `depth` bits, in order.
fn subtree(leaves: &[Leaf], depth: usize) -> [u8; 32] {
    match leaves {
        [] => [0; 32],
        [(_, leaf)] => *leaf,
        _ => {
            let is_left = |leaf: &Leaf| leaf.0[depth / 8] >> (7 - depth % 8) & 1 == 0;
            let (left, right) = leaves.split_at(leaves.partition_point(is_left));
            hash(&[&subtree(left, depth + 1), &subtree(right, depth + 1)])
        }
    }
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}
