//! Proofs as bytes: ICS23 messages that the unmodified `ics23` crate accepts.
//!
//! A single proof is a `CommitmentProof` with an existence or a non-existence proof in it; a batch is the
//! compressed form, in which a step that several paths share is written once. Absence in the empty tree is a
//! non-existence proof without neighbours; `ics23` itself cannot express an empty tree and refuses it.
//!
//! Every proof has exactly one encoding: decoding encodes again and compares, so no byte can be changed without
//! being noticed, not even one that the message format would ignore.

use ics23::batch_entry::Proof as BatchKind;
use ics23::commitment_proof::Proof as MessageKind;
use ics23::{
    BatchEntry, CommitmentProof, ExistenceProof, HashOp, InnerOp, InnerSpec, LeafOp, LengthOp,
    NonExistenceProof, ProofSpec,
};
use prost::Message;

use crate::hash::{EMPTY, TAG, tree_key, tree_value};
use crate::path::Path;
use crate::proof::{BatchProof, Entry, Kind, PATH_LEN_MAX, Proof, ProofError, Witness, around};

/// The construction of the tree in the terms of ICS23, for `ics23::verify_membership` and its kin.
///
/// Keys are [`tree_key`](crate::tree_key)s there, and values [`tree_value`](crate::tree_value)s.
pub fn proof_spec() -> ProofSpec {
    ProofSpec {
        leaf_spec: Some(leaf_op()),
        inner_spec: Some(InnerSpec {
            child_order: vec![0, 1],
            child_size: 32,
            min_prefix_length: 0,
            max_prefix_length: 0,
            empty_child: EMPTY.to_vec(),
            hash: HashOp::Blake3.into(),
        }),
        max_depth: PATH_LEN_MAX as i32,
        min_depth: 0,
        prehash_key_before_comparison: true,
    }
}

fn leaf_op() -> LeafOp {
    LeafOp {
        hash: HashOp::Blake3.into(),
        prehash_key: HashOp::Blake3.into(),
        prehash_value: HashOp::Blake3.into(),
        length: LengthOp::NoPrefix.into(),
        prefix: TAG.to_vec(),
    }
}

impl Proof {
    /// Encodes the proof as an ICS23 `CommitmentProof`.
    pub fn to_ics23_bytes(&self) -> Vec<u8> {
        let proof = match entry_of(self) {
            BatchKind::Exist(proof) => MessageKind::Exist(proof),
            BatchKind::Nonexist(proof) => MessageKind::Nonexist(proof),
        };
        CommitmentProof { proof: Some(proof) }.encode_to_vec()
    }

    /// Decodes what [`to_ics23_bytes`](Self::to_ics23_bytes) wrote. The proof is not verified by that.
    ///
    /// # Errors
    /// [`ProofError::Malformed`], whatever the bytes are; nothing panics.
    pub fn from_ics23_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let message = CommitmentProof::decode(bytes).map_err(|_| ProofError::Malformed)?;
        let proof = match message.proof {
            Some(MessageKind::Exist(proof)) => proof_of(BatchKind::Exist(proof)),
            Some(MessageKind::Nonexist(proof)) => proof_of(BatchKind::Nonexist(proof)),
            _ => None,
        };
        proof.filter(|proof| proof.to_ics23_bytes() == bytes).ok_or(ProofError::Malformed)
    }
}

impl BatchProof {
    /// Encodes the proofs as one compressed ICS23 `CommitmentProof`.
    ///
    /// A batch of one is worth it for absence: the paths of two neighbours share most of their steps.
    pub fn to_ics23_bytes(&self) -> Vec<u8> {
        let entries = self.proofs.iter().map(|proof| BatchEntry { proof: Some(entry_of(proof)) }).collect();
        let batch = CommitmentProof { proof: Some(MessageKind::Batch(ics23::BatchProof { entries })) };
        ics23::compress(&batch)
            .expect("compressing a batch only looks up what it has put there")
            .encode_to_vec()
    }

    /// Decodes what [`to_ics23_bytes`](Self::to_ics23_bytes) wrote. The proofs are not verified by that.
    ///
    /// # Errors
    /// [`ProofError::Malformed`], whatever the bytes are; nothing panics.
    pub fn from_ics23_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let message = CommitmentProof::decode(bytes).map_err(|_| ProofError::Malformed)?;
        if !is_bounded(&message) {
            return Err(ProofError::Malformed);
        }
        let message = ics23::decompress(&message).map_err(|_| ProofError::Malformed)?;
        let Some(MessageKind::Batch(batch)) = message.proof else {
            return Err(ProofError::Malformed);
        };
        let proofs: Option<Vec<Proof>> =
            batch.entries.into_iter().map(|entry| entry.proof.and_then(proof_of)).collect();
        let batch = Self { proofs: proofs.ok_or(ProofError::Malformed)? };
        if batch.to_ics23_bytes() == bytes { Ok(batch) } else { Err(ProofError::Malformed) }
    }
}

/// Whether no path of a compressed batch is longer than a path can be. One byte names a step of any size, so
/// without a bound a small message could decompress into a very large one.
fn is_bounded(message: &CommitmentProof) -> bool {
    use ics23::compressed_batch_entry::Proof as CompressedKind;
    let Some(MessageKind::Compressed(batch)) = &message.proof else {
        return false;
    };
    batch.lookup_inners.iter().all(|step| step.prefix.len() + step.suffix.len() == 32)
        && batch.entries.iter().all(|entry| match &entry.proof {
            Some(CompressedKind::Exist(proof)) => proof.path.len() <= PATH_LEN_MAX,
            Some(CompressedKind::Nonexist(proof)) => {
                [&proof.left, &proof.right].into_iter().flatten().all(|side| side.path.len() <= PATH_LEN_MAX)
            }
            None => false,
        })
}

fn entry_of(proof: &Proof) -> BatchKind {
    match &proof.0 {
        Kind::Present(witness) => BatchKind::Exist(existence(witness)),
        Kind::Absent { domain, key, left, right } => BatchKind::Nonexist(NonExistenceProof {
            key: tree_key(domain, key),
            left: left.as_ref().map(existence),
            right: right.as_ref().map(existence),
        }),
    }
}

fn existence(Witness { entry, path }: &Witness) -> ExistenceProof {
    let hash = entry.key_hash();
    let steps = path.siblings.iter().zip((0..path.siblings.len()).rev());
    let path = steps.map(|(sibling, depth)| {
        let (prefix, suffix) = around(&hash.0, depth, sibling);
        InnerOp { hash: HashOp::Blake3.into(), prefix, suffix }
    });
    ExistenceProof {
        key: tree_key(&entry.domain, &entry.key),
        value: tree_value(&entry.value),
        leaf: Some(leaf_op()),
        path: path.collect(),
    }
}

/// Takes from a message what cannot be computed; whether the rest agrees shows when it is encoded again.
fn proof_of(message: BatchKind) -> Option<Proof> {
    Some(Proof(match message {
        BatchKind::Exist(proof) => Kind::Present(witness(proof)?),
        BatchKind::Nonexist(NonExistenceProof { key, left, right }) => {
            let (domain, key) = split_key(&key)?;
            let left = left.map(|proof| witness(proof).ok_or(())).transpose().ok()?;
            let right = right.map(|proof| witness(proof).ok_or(())).transpose().ok()?;
            Kind::Absent { domain, key, left, right }
        }
    }))
}

fn witness(proof: ExistenceProof) -> Option<Witness> {
    let (domain, key) = split_key(&proof.key)?;
    let value = proof.value.split_first()?.1.to_vec();
    if proof.path.len() > PATH_LEN_MAX {
        return None;
    }
    let sibling = |step: InnerOp| [step.prefix, step.suffix].concat().try_into().ok();
    let siblings = proof.path.into_iter().map(sibling).collect::<Option<Vec<_>>>()?;
    Some(Witness { entry: Entry { domain, key, value }, path: Path { siblings } })
}

fn split_key(tree_key: &[u8]) -> Option<(String, Vec<u8>)> {
    let (&len, rest) = tree_key.split_first()?;
    let (domain, key) = rest.split_at_checked(usize::from(len))?;
    Some((String::from_utf8(domain.to_vec()).ok()?, key.to_vec()))
}
