//! Proofs that need no tree: that a key has a value under a root, or that it has none.

pub(crate) mod compact;
pub(crate) mod decoding;
pub(crate) mod ics23;
pub(crate) mod partial;
pub(crate) mod path;

use crate::hash::{EMPTY, Hash, KeyHash, Root, bit, common_bits, inner, leaf, value_hash};
use crate::proof::path::{Neighbour, Path, PathProof};

/// A key with its value, as a proof shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The keyspace.
    pub domain: String,
    /// The key in it.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl From<(String, Vec<u8>, Vec<u8>)> for Entry {
    fn from((domain, key, value): (String, Vec<u8>, Vec<u8>)) -> Self {
        Self { domain, key, value }
    }
}

impl Entry {
    pub(crate) fn key_hash(&self) -> KeyHash {
        KeyHash::of(&self.domain, &self.key)
    }
}

/// Why a proof could not be made, or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// Nobody supplied the key and value of a leaf that the proof must show.
    #[error("the entry of a leaf is missing, key_hash={key}")]
    MissingEntry {
        /// Whose leaf it is.
        key: KeyHash,
    },
    /// An entry was supplied that belongs to another leaf.
    #[error("the entry belongs to another leaf, key_hash={key}")]
    WrongEntry {
        /// Whose entry was asked for.
        key: KeyHash,
    },
    /// The proof is of presence where one of absence was asked for, or the reverse.
    #[error("the proof is of the other kind")]
    WrongKind,
    /// The proof is of another key.
    #[error("the proof is of another key")]
    WrongKey,
    /// The proof is of another value.
    #[error("the proof is of another value")]
    WrongValue,
    /// The path does not lead to the root.
    #[error("the path does not lead to the root")]
    WrongRoot,
    /// The leaves shown are not the two that enclose the key.
    #[error("the leaves shown do not enclose the key")]
    NotNeighbours,
    /// The bytes are not an encoded proof, or not the one encoding that it has.
    #[error("the bytes are not an encoded proof")]
    Malformed,
}

/// A leaf with what is in it and its way to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) entry: Entry,
    pub(crate) path: Path,
}

/// The longest path: as many bits as a key hash has.
pub(crate) const PATH_LEN_MAX: usize = 256;

impl Witness {
    /// Checks that the path leads to the root, and returns the key hash of the leaf.
    fn check(&self, root: &Root) -> Result<KeyHash, ProofError> {
        let key = self.entry.key_hash();
        let path = &self.path.siblings;
        if path.len() > PATH_LEN_MAX {
            return Err(ProofError::WrongRoot);
        }
        let mut hash = leaf(&key, &value_hash(&self.entry.value));
        for (sibling, depth) in path.iter().zip((0..path.len()).rev()) {
            hash = if bit(&key.0, depth) == 0 { inner(&hash, sibling) } else { inner(sibling, &hash) };
        }
        if hash == root.0 { Ok(key) } else { Err(ProofError::WrongRoot) }
    }

    /// Whether nothing is beyond the leaf on the given side (1: right) in the subtree at `depth`.
    fn is_outermost(&self, key: &KeyHash, side: usize, depth: usize) -> bool {
        let path = &self.path.siblings;
        path.iter()
            .zip((depth..path.len()).rev())
            .all(|(sibling, depth)| bit(&key.0, depth) == side || *sibling == EMPTY)
    }
}

/// A proof that needs no tree: of a key with its value, or of the absence of a key.
///
/// # Cost
/// To verify: one hash per level and leaf shown, some 2 us for 2^20 keys; twice that for absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Present(Witness),
    Absent { domain: String, key: Vec<u8>, left: Option<Witness>, right: Option<Witness> },
}

impl Proof {
    /// Checks that under `root` the key has `value`, or, for `None`, that it has none.
    ///
    /// # Errors
    /// Says which part is wrong. Nothing that the proof claims is believed unless it leads to the root.
    pub fn verify(
        &self,
        root: &Root,
        domain: &str,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), ProofError> {
        match (&self.0, value) {
            (Kind::Present(witness), Some(value)) => {
                if witness.entry.domain != domain || witness.entry.key != key {
                    return Err(ProofError::WrongKey);
                }
                if witness.entry.value != value {
                    return Err(ProofError::WrongValue);
                }
                witness.check(root).map(|_| ())
            }
            (Kind::Absent { domain: shown_domain, key: shown_key, left, right }, None) => {
                if shown_domain != domain || shown_key != key {
                    return Err(ProofError::WrongKey);
                }
                check_absence(root, &KeyHash::of(domain, key), left.as_ref(), right.as_ref())
            }
            (Kind::Present(_), None) | (Kind::Absent { .. }, Some(_)) => Err(ProofError::WrongKind),
        }
    }

    /// What the proof says, without checking it: domain, key, and the value if there is one.
    pub fn claim(&self) -> (&str, &[u8], Option<&[u8]>) {
        match &self.0 {
            Kind::Present(Witness { entry, .. }) => (&entry.domain, &entry.key, Some(&entry.value)),
            Kind::Absent { domain, key, .. } => (domain, key, None),
        }
    }
}

fn check_absence(
    root: &Root,
    key: &KeyHash,
    left: Option<&Witness>,
    right: Option<&Witness>,
) -> Result<(), ProofError> {
    let left = left.map(|witness| witness.check(root).map(|hash| (witness, hash))).transpose()?;
    let right = right.map(|witness| witness.check(root).map(|hash| (witness, hash))).transpose()?;
    let is_enclosed = left.is_none_or(|(_, hash)| hash < *key) && right.is_none_or(|(_, hash)| *key < hash);
    let are_neighbours = match (left, right) {
        // Only the empty tree has no neighbours at all.
        (None, None) => return if *root == Root::EMPTY { Ok(()) } else { Err(ProofError::NotNeighbours) },
        (Some((left, hash)), None) => left.is_outermost(&hash, 1, 0),
        (None, Some((right, hash))) => right.is_outermost(&hash, 0, 0),
        (Some((left, left_hash)), Some((right, right_hash))) => {
            // Below the node where the two part, the left one is the rightmost leaf and the other way round.
            let below = common_bits(&left_hash.0, &right_hash.0) + 1;
            left.path.siblings.len() >= below
                && right.path.siblings.len() >= below
                && left.is_outermost(&left_hash, 1, below)
                && right.is_outermost(&right_hash, 0, below)
        }
    };
    if is_enclosed && are_neighbours { Ok(()) } else { Err(ProofError::NotNeighbours) }
}

impl PathProof {
    /// Makes a proof of a path by adding the keys and values of the leaves that it shows.
    ///
    /// `find` is asked for the key itself, or for its [`neighbours`](Self::neighbours) where it is absent.
    ///
    /// # Errors
    /// [`ProofError::MissingEntry`] when `find` has no answer, [`ProofError::WrongEntry`] when its answer is of
    /// another leaf.
    pub fn complete(
        self,
        domain: &str,
        key: &[u8],
        mut find: impl FnMut(&KeyHash) -> Option<Entry>,
    ) -> Result<Proof, ProofError> {
        let mut witness = |key: KeyHash, path: Path| {
            let entry = find(&key).ok_or(ProofError::MissingEntry { key })?;
            if entry.key_hash() != key {
                return Err(ProofError::WrongEntry { key });
            }
            Ok(Witness { entry, path })
        };
        let kind = match self {
            Self::Present(path) => Kind::Present(witness(KeyHash::of(domain, key), path)?),
            Self::Absent { left, right } => {
                let mut side = |neighbour: Option<Neighbour>| {
                    neighbour.map(|Neighbour { key, path }| witness(key, path)).transpose()
                };
                let (left, right) = (side(left)?, side(right)?);
                Kind::Absent { domain: domain.to_owned(), key: key.to_vec(), left, right }
            }
        };
        Ok(Proof(kind))
    }
}

/// Proofs under one root that share their siblings: each is encoded once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BatchProof {
    /// The proofs, in the order they were asked for.
    pub proofs: Vec<Proof>,
}

impl BatchProof {
    /// Checks every proof against what it claims itself; see [`Proof::claim`].
    ///
    /// # Errors
    /// The first that is found.
    pub fn verify(&self, root: &Root) -> Result<(), ProofError> {
        self.proofs.iter().try_for_each(|proof| {
            let (domain, key, value) = proof.claim();
            proof.verify(root, domain, key, value)
        })
    }
}

/// The side of a sibling in a path, as bytes before and after the child.
pub(crate) fn around(key: &Hash, depth: usize, sibling: &Hash) -> (Vec<u8>, Vec<u8>) {
    if bit(key, depth) == 0 { (Vec::new(), sibling.to_vec()) } else { (sibling.to_vec(), Vec::new()) }
}
