//! Scripts of archives for Ethereum: blocks that are changes of a state, and the state root by a second, simple implementation
//! of the trie.

use std::collections::BTreeMap;

use icecore::ethereum::{ACCOUNT, Account, CODE, STORAGE, keccak256, word};
use icecore::{Commitment, Options, Root};
use icecore_tools::workload::SplitMix64;

use crate::model::{Change, Key, Model, Value};

pub(crate) const DOMAINS: [&str; 3] = [ACCOUNT, CODE, STORAGE];

/// The places of the domains.
const OF_ACCOUNTS: usize = 0;
const OF_CODE: usize = 1;
const OF_STORAGE: usize = 2;

/// The bytes of an address.
const ADDRESS_LEN: usize = 20;

const ACCOUNTS: u64 = 6;
const SLOTS: u64 = 9;

pub(crate) fn options() -> Options {
    Options::new().commitment(Commitment::Ethereum)
}

/// A key as it is stored, and in the order of keys.
pub(crate) fn stored((domain, key): &Key) -> Vec<u8> {
    match *domain {
        OF_ACCOUNTS => keccak256(key).to_vec(),
        OF_STORAGE => {
            let (address, slot) = key.split_at(ADDRESS_LEN);
            [&keccak256(address)[..ADDRESS_LEN], &keccak256(slot)].concat()
        }
        _ => key.clone(),
    }
}

/// An account that no script writes, with its record.
pub(crate) fn new_entry() -> (Key, Vec<u8>) {
    ((OF_ACCOUNTS, vec![ACCOUNTS as u8; ADDRESS_LEN]), Account { nonce: 1, ..Account::default() }.encode())
}

/// A key of the same domain that is never there.
pub(crate) fn absent((domain, key): &Key) -> Key {
    (*domain, key.iter().map(|byte| !byte).collect())
}

/// Whether another value of the same length would do: records and codes are bound to what they are of.
pub(crate) fn is_free(key: &Key) -> bool {
    key.0 == OF_STORAGE
}

/// The address of the account that a key is of, if that is what it is of.
pub(crate) fn address(key: &Key) -> Option<[u8; ADDRESS_LEN]> {
    if key.0 == OF_CODE { None } else { key.1.first_chunk().copied() }
}

/// The slots of an account that were ever written.
pub(crate) fn slots<'m>(model: &'m Model, address: &[u8]) -> impl Iterator<Item = &'m Key> {
    model.written().filter(move |key| key.0 == OF_STORAGE && key.1.starts_with(address))
}

/// The changes of a block that follows.
pub(crate) fn draw(random: &mut SplitMix64, model: &Model) -> Vec<Change> {
    let mut changes: BTreeMap<Key, Value> = BTreeMap::new();
    for _ in 0..random.below(5) {
        let address = [random.below(ACCOUNTS) as u8; ADDRESS_LEN];
        // Of an account that is in the block already, what the one before it left may not be there any more.
        if changes.contains_key(&(OF_ACCOUNTS, address.to_vec())) {
            continue;
        }
        let kind = random.below(8);
        if kind < 2 {
            let held = slots(model, &address).filter(|key| model.get(key, u64::MAX).is_some());
            changes.extend(held.map(|key| (key.clone(), None)));
        }
        if kind == 0 {
            changes.insert((OF_ACCOUNTS, address.to_vec()), None);
        } else {
            draw_account(random, address, &mut changes);
        }
    }
    changes.into_iter().collect()
}

/// An account that is there after the block, and some of its slots.
fn draw_account(random: &mut SplitMix64, address: [u8; ADDRESS_LEN], changes: &mut BTreeMap<Key, Value>) {
    let (nonce, balance) = (random.below(3), word(random.below(3) * random.below(1 << 40)));
    let mut account = Account { nonce, balance, ..Account::default() };
    if random.below(3) == 0 {
        // Accounts share codes; one is longer than a page.
        let code = vec![0x60; if random.below(4) == 0 { 6000 } else { 7 }];
        account.code_hash = keccak256(&code);
        changes.insert((OF_CODE, account.code_hash.to_vec()), Some(code));
    }
    changes.insert((OF_ACCOUNTS, address.to_vec()), Some(account.encode()));
    for _ in 0..random.below(5) {
        let key = [&address[..], &word(random.below(SLOTS))].concat();
        // Not zero, whatever its last byte.
        let value = word((1 + random.below(1 << 30)) << 8);
        let value = if random.below(3) == 0 { None } else { Some(value.to_vec()) };
        changes.insert((OF_STORAGE, key), value);
    }
}

/// A leaf: the nibbles of its path, and what it holds.
type Leaf = (Vec<u8>, Vec<u8>);

fn leaf(path: &[u8; 32], value: Vec<u8>) -> Leaf {
    (path.iter().flat_map(|byte| [byte >> 4, byte & 0xF]).collect(), value)
}

/// The state root at a height.
pub(crate) fn root(model: &Model, at: u64) -> Root {
    let mut leaves = Vec::new();
    for key in model.written().filter(|key| key.0 == OF_ACCOUNTS) {
        let Some(record) = model.get(key, at) else { continue };
        let account = Account::decode(&record).expect("the script writes records");
        let slot_leaf =
            |slot: &Key| Some(leaf(&keccak256(&slot.1[ADDRESS_LEN..]), number(&model.get(slot, at)?)));
        let storage_root = trie_root(slots(model, &key.1).filter_map(slot_leaf).collect());
        let (nonce, balance) = (number(&account.nonce.to_be_bytes()), number(&account.balance));
        let items = [nonce, balance, bytes(&storage_root), bytes(&account.code_hash)];
        leaves.push(leaf(&keccak256(&key.1), list(&items.concat())));
    }
    Root(trie_root(leaves))
}

fn trie_root(mut leaves: Vec<Leaf>) -> [u8; 32] {
    leaves.sort_unstable();
    keccak256(&if leaves.is_empty() { bytes(&[]) } else { node(&leaves, 0) })
}

/// The node of some leaves, at least one, that share the first `depth` nibbles.
fn node(leaves: &[Leaf], depth: usize) -> Vec<u8> {
    let (first, last) = (&leaves[0], &leaves[leaves.len() - 1]);
    if leaves.len() == 1 {
        return list(&[bytes(&compact(&first.0[depth..], true)), bytes(&first.1)].concat());
    }
    let shared = first.0.iter().zip(&last.0).take_while(|(a, b)| a == b).count();
    if shared > depth {
        let below = reference(node(leaves, shared));
        return list(&[bytes(&compact(&first.0[depth..shared], false)), below].concat());
    }
    let child = |nibble: u8| {
        let from = leaves.partition_point(|leaf| leaf.0[depth] < nibble);
        let to = leaves.partition_point(|leaf| leaf.0[depth] <= nibble);
        if from == to { bytes(&[]) } else { reference(node(&leaves[from..to], depth + 1)) }
    };
    list(&(0..16).map(child).chain([bytes(&[])]).collect::<Vec<_>>().concat())
}

/// What a node is in the one above it: itself where it is short.
fn reference(node: Vec<u8>) -> Vec<u8> {
    if node.len() < 32 { node } else { bytes(&keccak256(&node)) }
}

/// Nibbles as bytes, with what tells whether they are odd and end a path.
fn compact(nibbles: &[u8], is_end: bool) -> Vec<u8> {
    let (odd, even) = nibbles.split_at(nibbles.len() % 2);
    let first = u8::from(is_end) << 5 | odd.first().map_or(0, |nibble| 0x10 | nibble);
    std::iter::once(first).chain(even.chunks(2).map(|pair| pair[0] << 4 | pair[1])).collect()
}

/// The RLP of a number, big-endian with leading zeros.
fn number(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    bytes(&number[zeros..])
}

/// The RLP of bytes.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    if let [byte @ 0..0x80] = bytes { vec![*byte] } else { tagged(0x80, bytes) }
}

/// The RLP of a list of what is encoded already.
fn list(items: &[u8]) -> Vec<u8> {
    tagged(0xC0, items)
}

fn tagged(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len();
    if len < 56 {
        return [&[tag + len as u8], bytes].concat();
    }
    let digits = len.to_be_bytes();
    let digits = &digits[digits.iter().take_while(|byte| **byte == 0).count()..];
    [&[tag + 55 + digits.len() as u8], digits, bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of the trie tests of Ethereum in which no key is the beginning of another.
    #[test]
    fn roots_are_those_of_ethereum() {
        let single = vec![(vec![4, 1], vec![b'a'; 50])];
        let two = vec![
            (vec![0, 0, 4, 5], vec![0x01, 0x23, 0x45, 0x67, 0x89]),
            (vec![4, 5, 0, 0], vec![0x98, 0x76, 0x54, 0x32, 0x10]),
        ];
        for (leaves, expected) in [
            (Vec::new(), Root(icecore::ethereum::EMPTY_ROOT).to_string()),
            (single, "0xd23786fb4a010da3ce639d66d5e904a11dbc02746d1ce25029e53290cabf28ab".to_owned()),
            (two, "0x285505fcabe84badc8aa310e2aae17eddc7d120aabec8a476902c8184b3a3503".to_owned()),
        ] {
            assert_eq!(Root(trie_root(leaves)).to_string(), expected);
        }
    }
}
