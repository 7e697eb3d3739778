//! The state as a map of maps, and its roots and proofs by `alloy-trie`, which nobody here wrote.

use std::collections::BTreeMap;

use alloy_primitives::{B256, U256};
use alloy_trie::proof::ProofRetainer;
use alloy_trie::{HashBuilder, Nibbles, TrieAccount};
use icecore_hot::ethereum::{Account, EMPTY_ROOT, StateBatch, StateLoader, StateTrie, slot_rlp};
use icecore_hot::{HashBackend, Root};
use proptest::prelude::*;

pub(crate) type Path = [u8; 32];

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelAccount {
    pub(crate) nonce: u64,
    pub(crate) balance: [u8; 32],
    pub(crate) code_hash: [u8; 32],
    pub(crate) slots: BTreeMap<Path, [u8; 32]>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model(pub(crate) BTreeMap<Path, ModelAccount>);

/// The root of leaves, and the proof of a path.
pub(crate) fn root_and_proof(leaves: &[(Path, Vec<u8>)], target: Option<&Path>) -> (Path, Vec<Vec<u8>>) {
    let targets = target.map(|path| Nibbles::unpack(B256::from(*path)));
    let mut builder = HashBuilder::default().with_proof_retainer(ProofRetainer::from_iter(targets));
    for (path, value) in leaves {
        builder.add_leaf(Nibbles::unpack(B256::from(*path)), value);
    }
    let root = builder.root().0;
    let nodes = builder.take_proof_nodes().into_nodes_sorted();
    // Theirs has inlined nodes as nodes of their own; `eth_getProof` has not.
    let is_listed = |(position, node): &(Nibbles, _)| {
        let node: &alloy_primitives::Bytes = node;
        position.is_empty() || node.len() >= 32
    };
    let nodes = nodes.into_iter().filter(is_listed).map(|(_, node)| node.to_vec());
    (root, if leaves.is_empty() { Vec::new() } else { nodes.collect() })
}

impl ModelAccount {
    pub(crate) fn slot_leaves(&self) -> Vec<(Path, Vec<u8>)> {
        self.slots.iter().map(|(path, value)| (*path, slot_rlp(value))).collect()
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            nonce: self.nonce,
            balance: self.balance,
            code_hash: self.code_hash,
            storage_root: root_and_proof(&self.slot_leaves(), None).0,
        }
    }
}

impl Model {
    pub(crate) fn leaves(&self) -> Vec<(Path, Vec<u8>)> {
        let leaf = |(path, account): (&Path, &ModelAccount)| {
            let account = account.account();
            let theirs = TrieAccount {
                nonce: account.nonce,
                balance: U256::from_be_bytes(account.balance),
                storage_root: account.storage_root.into(),
                code_hash: account.code_hash.into(),
            };
            (*path, alloy_rlp::encode(theirs))
        };
        self.0.iter().map(leaf).collect()
    }

    pub(crate) fn root(&self) -> Root {
        Root(root_and_proof(&self.leaves(), None).0)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64 + self.0.values().map(|account| account.slots.len() as u64).sum::<u64>()
    }

    pub(crate) fn load(&self) -> StateTrie {
        let mut loader = StateLoader::new(HashBackend::Auto);
        for (path, account) in &self.0 {
            loader.push_account(path, &account.account()).unwrap();
            for (slot, value) in &account.slots {
                loader.push_slot(slot, value).unwrap();
            }
        }
        loader.finish().unwrap()
    }
}

/// A change of a test; accounts and slots by number.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put { account: u8, nonce: u8, has_code: bool },
    Delete { account: u8 },
    Wipe { account: u8 },
    Slot { account: u8, slot: u8, value: u8 },
    Long { account: u8, slot: u8 },
}

/// Path `number` out of few: some share 60 nibbles, some a few, some none.
pub(crate) fn path(number: u8) -> Path {
    let mut path = [0xA5; 32];
    match number % 4 {
        0 => path[30..].copy_from_slice(&(u16::from(number) * 0x0101).to_be_bytes()),
        1 => (path[2], path[31]) = (number, number),
        2 => (path[0], path[1]) = (number.wrapping_mul(67), number),
        _ => (path[20], path[31]) = (number & 0xF0, 7),
    }
    path
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..24u8, 0..3u8, any::<bool>()).prop_map(|(account, nonce, has_code)| Op::Put { account, nonce, has_code }),
        2 => (0..24u8).prop_map(|account| Op::Delete { account }),
        1 => (0..24u8).prop_map(|account| Op::Wipe { account }),
        12 => (0..24u8, 0..60u8, 0..3u8).prop_map(|(account, slot, value)| Op::Slot { account, slot, value }),
        1 => (0..24u8, 0..60u8).prop_map(|(account, slot)| Op::Long { account, slot }),
    ];
    prop::collection::vec(op, 0..120)
}

/// The batch of some changes to a state, without slots of accounts that are not there afterwards, and the state after it.
pub(crate) fn block(before: &Model, ops: &[Op]) -> (StateBatch, Model) {
    let (mut batch, mut after) = (StateBatch::new(), before.clone());
    let code_hash = |has_code| if has_code { [0xC0; 32] } else { icecore_hot::ethereum::EMPTY_CODE_HASH };
    for op in ops {
        match *op {
            Op::Put { account, nonce, has_code } => {
                let mut balance = [0; 32];
                // Some of them do not fit 16 bytes.
                balance[if nonce == 2 { 3 } else { 31 }] = nonce;
                let (nonce, path) = (u64::from(nonce), path(account));
                batch.put_account(&path, nonce, balance, code_hash(has_code));
                let entry = after.0.entry(path).or_default();
                (entry.nonce, entry.balance, entry.code_hash) = (nonce, balance, code_hash(has_code));
            }
            Op::Delete { account } => {
                batch.delete_account(&path(account));
                after.0.remove(&path(account));
            }
            Op::Wipe { account } => {
                batch.wipe(&path(account));
                after.0.entry(path(account)).and_modify(|account| account.slots.clear());
            }
            Op::Slot { .. } | Op::Long { .. } => {}
        }
    }
    // Slots are put after all wipes, wherever they are in the batch.
    for op in ops {
        let (account, slot, value) = match *op {
            Op::Slot { account, slot, value } => (account, slot, vec![0, value]),
            Op::Long { account, slot } => (account, slot, vec![slot | 1; 32]),
            _ => continue,
        };
        let Some(entry) = after.0.get_mut(&path(account)) else { continue };
        let slot = path(slot);
        batch.put_slot(&path(account), &slot, &value).unwrap();
        if value.iter().all(|byte| *byte == 0) {
            entry.slots.remove(&slot);
        } else {
            let mut padded = [0; 32];
            padded[32 - value.len()..].copy_from_slice(&value);
            entry.slots.insert(slot, padded);
        }
    }
    (batch, after)
}

/// What changed of the storage roots from one state to the next.
pub(crate) fn storage_roots(before: &Model, after: &Model) -> Vec<(Path, Path)> {
    let root =
        |model: &Model, path: &Path| model.0.get(path).map_or(EMPTY_ROOT, |a| a.account().storage_root);
    let roots = after.0.keys().map(|path| (*path, root(after, path)));
    roots.filter(|(path, now)| root(before, path) != *now).collect()
}
