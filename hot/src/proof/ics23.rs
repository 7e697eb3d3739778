//! Proofs as bytes: ICS23 messages that the unmodified `ics23` crate accepts.
//!
//! A single proof is a `CommitmentProof` with an existence or a non-existence proof in it; a batch is the
//! compressed form, in which a step that several paths share is written once. Absence in the empty tree is a
//! non-existence proof without neighbours; `ics23` itself cannot express an empty tree and refuses it.
//!
//! Every proof has exactly one encoding, and [`decoding`](super::decoding) reads no other.

use ics23::batch_entry::Proof as BatchKind;
use ics23::commitment_proof::Proof as MessageKind;
use ics23::{
    BatchEntry, CommitmentProof, ExistenceProof, HashOp, InnerOp, InnerSpec, LeafOp, LengthOp,
    NonExistenceProof, ProofSpec,
};
use prost::Message;

use crate::hash::{EMPTY, TAG, tree_key, tree_value};
use crate::proof::{BatchProof, Kind, PATH_LEN_MAX, Proof, Witness, around};

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

pub(crate) fn leaf_op() -> LeafOp {
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
