//! Random blocks of Ethereum, and what must follow from them: changes that a plain map of versions takes, and by
//! `alloy-trie`, which nobody here wrote, the state root and the proofs.

use std::collections::BTreeMap;

use alloy_primitives::{B256, Bytes, U256};
use alloy_trie::proof::ProofRetainer;
use alloy_trie::{HashBuilder, Nibbles, TrieAccount};
use icecore::ethereum::{
    ACCOUNT, Account, AccountChange, Address, BlockState, CODE, EMPTY_CODE_HASH, STORAGE, Word, keccak256,
    word,
};
use icecore::{Error, Root, View};

use super::{Change, Oracle, Random};

pub(crate) const DOMAINS: [&str; 3] = [ACCOUNT, CODE, STORAGE];

/// Accounts that blocks change; the next one never is there.
const ACCOUNTS: u64 = 6;

/// Slots that blocks write; the next one never is there.
const SLOTS: u64 = 9;

/// The bytes of an address.
const ADDRESS_LEN: usize = 20;

/// What a block changes, by account, and whether it clears those that are empty then.
#[derive(Default)]
pub(crate) struct Block {
    accounts: BTreeMap<Address, AccountChange>,
    clears_empty: bool,
}

/// The form in which a key of a domain is stored, and the order of keys.
pub(crate) fn stored(domain: usize, key: &[u8]) -> Vec<u8> {
    match domain {
        0 => keccak256(key).to_vec(),
        2 => [&keccak256(&key[..ADDRESS_LEN])[..ADDRESS_LEN], &keccak256(&key[ADDRESS_LEN..])].concat(),
        _ => key.to_vec(),
    }
}

/// A key of the same domain that is not there.
pub(crate) fn absent(key: &[u8]) -> Vec<u8> {
    key.iter().map(|byte| !byte).collect()
}

fn slot_key(address: &Address, slot: &Word) -> Vec<u8> {
    [&address[..], slot].concat()
}

/// Codes that accounts share: one is longer than a page, one is what a delegation leaves.
fn code(number: u64) -> Vec<u8> {
    match number {
        0 => vec![0x60; 6000],
        1 => [&[0xEF, 0x01, 0x00][..], &[7; ADDRESS_LEN]].concat(),
        _ => b"code".to_vec(),
    }
}

fn draw_slots(random: &mut Random, change: &mut AccountChange) {
    for _ in 0..random.below(5) {
        let value = if random.below(3) == 0 { 0 } else { random.next() >> random.below(64) };
        change.slots.insert(word(random.below(SLOTS)), word(value));
    }
}

/// One change of an account: destroyed, destroyed and there again, its storage wiped, without anything, or some fields and slots.
fn draw_account(random: &mut Random, exists: bool) -> AccountChange {
    let mut change = AccountChange::default();
    let balance = |random: &mut Random| Some(Some(word(random.below(1 << 40))));
    match random.below(12) {
        0..=1 => (change.balance, change.nonce) = (Some(None), Some(None)),
        2 => {
            change.wipes_storage = true;
            (change.balance, change.nonce) = (balance(random), Some(Some(1)));
            change.code = Some(Some(code(random.below(3))));
            draw_slots(random, &mut change);
        }
        3 => {
            change.wipes_storage = true;
            if exists {
                draw_slots(random, &mut change);
            }
        }
        4 => (change.balance, change.nonce, change.code) = (Some(Some(word(0))), Some(Some(0)), Some(None)),
        _ => {
            if !exists || random.below(2) == 0 {
                change.nonce = Some(Some(random.below(4)));
            }
            if random.below(3) == 0 {
                change.balance = balance(random);
            }
            if random.below(4) == 0 {
                change.code = Some(Some(code(random.below(3))));
            }
            draw_slots(random, &mut change);
        }
    }
    change
}

/// Draws a block of up to `max` accounts on the newest state.
pub(crate) fn draw(random: &mut Random, oracle: &Oracle, max: u64) -> Block {
    let mut block = Block { clears_empty: random.below(2) == 0, ..Block::default() };
    for _ in 0..random.below(max + 1) {
        let address = [random.below(ACCOUNTS) as u8; ADDRESS_LEN];
        let exists = account(oracle, &address, u64::MAX).is_some();
        block.accounts.insert(address, draw_account(random, exists));
    }
    block
}

/// A block that changes the newest state, whatever that is.
pub(crate) fn sure_change(oracle: &Oracle) -> Block {
    let address = [1; ADDRESS_LEN];
    let nonce = account(oracle, &address, u64::MAX).unwrap_or_default().nonce + 1;
    let slots = BTreeMap::from([(word(2), word(nonce))]);
    let change = AccountChange { nonce: Some(Some(nonce)), slots, ..AccountChange::default() };
    Block { accounts: BTreeMap::from([(address, change)]), clears_empty: false }
}

/// The block for [`BlockState::write`].
pub(crate) fn block_state(block: &Block) -> BlockState {
    let mut state = BlockState::new();
    if block.clears_empty {
        state.clear_empty_accounts();
    }
    for (address, change) in &block.accounts {
        *state.account(*address) = change.clone();
    }
    state
}

/// What a block writes on the newest state.
pub(crate) fn changes(oracle: &Oracle, block: &Block) -> Vec<Change> {
    let mut changes = BTreeMap::new();
    for (address, change) in &block.accounts {
        let before = account(oracle, address, u64::MAX);
        let mut after = account_after(before, change);
        let is_cleared = block.clears_empty && after == Some(Account::default());
        if is_cleared {
            after = None;
        }
        if change.wipes_storage || after.is_none() {
            for slot in slots(oracle, address, u64::MAX).keys() {
                changes.insert((2, slot_key(address, slot)), None);
            }
        }
        if after != before {
            changes.insert((0, address.to_vec()), after.map(|account| account.encode()));
        }
        if let Some(Some(code)) = &change.code {
            let hash = keccak256(code).to_vec();
            if oracle.get(1, &hash, u64::MAX).is_none() {
                changes.insert((1, hash), Some(code.clone()));
            }
        }
        for (slot, value) in change.slots.iter().filter(|_| !is_cleared) {
            let value = Some(value.to_vec()).filter(|value| value.iter().any(|byte| *byte != 0));
            changes.insert((2, slot_key(address, slot)), value);
        }
    }
    changes.into_iter().map(|((domain, key), value)| (domain, key, value)).collect()
}

fn account_after(before: Option<Account>, change: &AccountChange) -> Option<Account> {
    let says_nothing = change.balance.is_none() && change.nonce.is_none() && change.code.is_none();
    if change.balance == Some(None) || (says_nothing && before.is_none()) {
        return None;
    }
    let mut account = before.unwrap_or_default();
    account.balance = change.balance.map_or(account.balance, Option::unwrap_or_default);
    account.nonce = change.nonce.map_or(account.nonce, Option::unwrap_or_default);
    if let Some(code) = &change.code {
        account.code_hash = code.as_ref().map_or(EMPTY_CODE_HASH, |code| keccak256(code));
    }
    Some(account)
}

/// An account, its storage root left empty.
fn account(oracle: &Oracle, address: &Address, at: u64) -> Option<Account> {
    oracle.get(0, address, at).map(|record| Account::decode(&record).unwrap())
}

fn slots(oracle: &Oracle, address: &Address, at: u64) -> BTreeMap<Word, Word> {
    let all = oracle.plain_state(2, at).into_iter();
    let own = all.filter(|(key, _)| key.starts_with(address));
    own.map(|(key, value)| (key[ADDRESS_LEN..].try_into().unwrap(), value.try_into().unwrap())).collect()
}

/// The leaves of a trie, by path.
type Leaves = BTreeMap<Word, Vec<u8>>;

fn slot_leaves(oracle: &Oracle, address: &Address, at: u64) -> Leaves {
    let leaf =
        |(slot, value): (Word, Word)| (keccak256(&slot), alloy_rlp::encode(U256::from_be_bytes(value)));
    slots(oracle, address, at).into_iter().map(leaf).collect()
}

/// The leaves of the accounts at a height.
fn account_leaves(oracle: &Oracle, at: u64) -> Leaves {
    let leaf = |(address, _): (Vec<u8>, _)| {
        let address: Address = address.try_into().unwrap();
        let Account { nonce, balance, code_hash, .. } = account(oracle, &address, at).unwrap();
        let storage_root = root_and_proof(&slot_leaves(oracle, &address, at), None).0;
        let (balance, storage_root) = (U256::from_be_bytes(balance), storage_root.into());
        let theirs = TrieAccount { nonce, balance, storage_root, code_hash: code_hash.into() };
        (keccak256(&address), alloy_rlp::encode(theirs))
    };
    oracle.plain_state(0, at).into_iter().map(leaf).collect()
}

/// The root of leaves, and the proof of a path.
fn root_and_proof(leaves: &Leaves, target: Option<&Word>) -> (Word, Vec<Vec<u8>>) {
    let nibbles = |path: &Word| Nibbles::unpack(B256::from(*path));
    let mut builder =
        HashBuilder::default().with_proof_retainer(ProofRetainer::from_iter(target.map(nibbles)));
    leaves.iter().for_each(|(path, value)| builder.add_leaf(nibbles(path), value));
    let root = builder.root().0;
    let nodes = builder.take_proof_nodes().into_nodes_sorted();
    // Theirs has inlined nodes as nodes of their own, and a node for nothing; `eth_getProof` has not.
    let is_listed = |(position, node): &(Nibbles, Bytes)| position.is_empty() || node.len() >= 32;
    let nodes = nodes.into_iter().filter(|_| !leaves.is_empty()).filter(is_listed);
    (root, nodes.map(|(_, node)| node.to_vec()).collect())
}

/// The state root at a height.
pub(crate) fn root(oracle: &Oracle, at: u64) -> Root {
    Root(root_and_proof(&account_leaves(oracle, at), None).0)
}

/// Proves every `every`-th account, there or not, with slots that are there and one that is not, and compares each node.
pub(crate) fn check_proofs(oracle: &Oracle, view: &View, every: usize) -> Result<(), Error> {
    let at = view.height();
    let leaves = account_leaves(oracle, at);
    let root = view.root()?;
    for number in (0..=ACCOUNTS).step_by(every) {
        let address = [number as u8; ADDRESS_LEN];
        let path = keccak256(&address);
        let of_slots = slot_leaves(oracle, &address, at);
        let asked: Vec<Word> = (0..=SLOTS).step_by(every).map(word).collect();
        let proof = view.prove_account(&address, &asked)?;
        assert_eq!(proof.nodes, root_and_proof(&leaves, Some(&path)).1, "account {number} at {at}");
        let values = proof.verify(&root, &address).unwrap();
        let expected = slots(oracle, &address, at);
        for (slot, value) in asked.iter().zip(values) {
            assert_eq!(
                value,
                expected.get(slot).copied().unwrap_or_default(),
                "{slot:?} of {number} at {at}"
            );
        }
        for slot in &proof.slots {
            let expected = root_and_proof(&of_slots, Some(&keccak256(&slot.slot))).1;
            assert_eq!(slot.nodes, expected, "{:?} of {number} at {at}", slot.slot);
        }
        let told =
            proof.account.map(|account| Account { storage_root: icecore::ethereum::EMPTY_ROOT, ..account });
        assert_eq!(told, account(oracle, &address, at), "account {number} at {at}");
    }
    Ok(())
}
