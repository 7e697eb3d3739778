//! An account: its leaf in the trie, and its record in an archive.

use crate::ethereum::rlp::{self, EMPTY_STRING};
use crate::hash::Hash;

/// The Keccak-256 of no code.
pub const EMPTY_CODE_HASH: [u8; 32] = [
    0xC5, 0xD2, 0x46, 0x01, 0x86, 0xF7, 0x23, 0x3C, 0x92, 0x7E, 0x7D, 0xB2, 0xDC, 0xC7, 0x03, 0xC0, 0xE5,
    0x00, 0xB6, 0x53, 0xCA, 0x82, 0x27, 0x3B, 0x7B, 0xFA, 0xD8, 0x04, 0x5D, 0x85, 0xA4, 0x70,
];

/// The root of a trie without leaves: the Keccak-256 of the RLP of an empty string.
pub const EMPTY_ROOT: [u8; 32] = [
    0x56, 0xE8, 0x1F, 0x17, 0x1B, 0xCC, 0x55, 0xA6, 0xFF, 0x83, 0x45, 0xE6, 0x92, 0xC0, 0xF8, 0x6E, 0x5B,
    0x48, 0xE0, 0x1B, 0x99, 0x6C, 0xAD, 0xC0, 0x01, 0x62, 0x2F, 0xB5, 0xE3, 0x63, 0xB4, 0x21,
];

/// What the state says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// How many transactions it sent, or contracts it made.
    pub nonce: u64,
    /// In wei, big-endian.
    pub balance: [u8; 32],
    /// The Keccak-256 of its code.
    pub code_hash: [u8; 32],
    /// The root of its storage.
    pub storage_root: [u8; 32],
}

/// The bytes are no [`Account::encode`] of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of an account {0}")]
pub struct AccountDecodeError(&'static str);

/// The value of a slot has more than 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of a slot has more than 32 bytes")]
pub struct SlotValueError;

const HAS_NONCE: u8 = 1;
const HAS_BALANCE: u8 = 2;
const HAS_CODE: u8 = 4;
const HAS_STORAGE: u8 = 8;

impl Default for Account {
    /// An account with nothing: no nonce, no balance, no code, no storage.
    fn default() -> Self {
        Self { nonce: 0, balance: [0; 32], code_hash: EMPTY_CODE_HASH, storage_root: EMPTY_ROOT }
    }
}

/// The longest RLP of an account.
const RLP_MAX: usize = 2 + 9 + 33 + 2 * 33;

impl Account {
    /// The value of the account's leaf: `RLP[nonce, balance, storage root, code hash]`.
    pub fn rlp(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RLP_MAX);
        self.write_rlp(&mut out);
        out
    }

    pub(crate) fn write_rlp(&self, out: &mut Vec<u8>) {
        let nonce = self.nonce.to_be_bytes();
        let (nonce, balance) = (rlp::trimmed(&nonce), rlp::trimmed(&self.balance));
        rlp::put_list_header(out, rlp::string_len(nonce) + rlp::string_len(balance) + 2 * 33);
        for item in [nonce, balance, &self.storage_root, &self.code_hash] {
            rlp::put_string(out, item);
        }
    }

    /// Reads the value of a leaf; `None` where it is not the one that [`rlp`](Self::rlp) gives.
    pub(crate) fn from_rlp(bytes: &[u8]) -> Option<Self> {
        let mut items = rlp::list(bytes)?;
        let nonce = u64::from_be_bytes(rlp::number(rlp::take_string(&mut items)?)?);
        let balance = rlp::number(rlp::take_string(&mut items)?)?;
        let storage_root = rlp::take_string(&mut items)?.try_into().ok()?;
        let code_hash = rlp::take_string(&mut items)?.try_into().ok()?;
        items.is_empty().then_some(Self { nonce, balance, code_hash, storage_root })
    }

    /// The record of the account in an archive, in few bytes; each account has one encoding.
    ///
    /// A byte of flags (1: a nonce, 2: a balance, 4: code, 8: storage), and what the flags name, in this order: the nonce, seven bits a byte, the least first;
    /// the number of bytes of the balance, and those without leading zeros; the code hash; the storage root.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0];
        let mut flags = 0;
        if self.nonce != 0 {
            flags |= HAS_NONCE;
            let mut nonce = self.nonce;
            while nonce >= 0x80 {
                out.push(nonce as u8 | 0x80);
                nonce >>= 7;
            }
            out.push(nonce as u8);
        }
        let balance = rlp::trimmed(&self.balance);
        if !balance.is_empty() {
            flags |= HAS_BALANCE;
            out.push(balance.len() as u8);
            out.extend_from_slice(balance);
        }
        if self.code_hash != EMPTY_CODE_HASH {
            flags |= HAS_CODE;
            out.extend_from_slice(&self.code_hash);
        }
        if self.storage_root != EMPTY_ROOT {
            flags |= HAS_STORAGE;
            out.extend_from_slice(&self.storage_root);
        }
        out[0] = flags;
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are not the encoding of an account, or not the one that `encode` gives.
    pub fn decode(bytes: &[u8]) -> Result<Self, AccountDecodeError> {
        const CUT: AccountDecodeError = AccountDecodeError("is cut off");
        let (flags, mut rest) = bytes.split_first().ok_or(CUT)?;
        if flags & !(HAS_NONCE | HAS_BALANCE | HAS_CODE | HAS_STORAGE) != 0 {
            return Err(AccountDecodeError("has a flag that is unknown"));
        }
        let mut account = Self::default();
        if flags & HAS_NONCE != 0 {
            account.nonce = take_nonce(&mut rest)?;
        }
        if flags & HAS_BALANCE != 0 {
            let (len, tail) = rest.split_first().ok_or(CUT)?;
            let (balance, tail) = tail.split_at_checked(usize::from(*len)).ok_or(CUT)?;
            let is_zero = balance.is_empty();
            account.balance = rlp::number(balance)
                .filter(|_| !is_zero)
                .ok_or(AccountDecodeError("has a balance with leading zeros or over 32 bytes"))?;
            rest = tail;
        }
        for (flag, field, empty) in [
            (HAS_CODE, &mut account.code_hash, &EMPTY_CODE_HASH),
            (HAS_STORAGE, &mut account.storage_root, &EMPTY_ROOT),
        ] {
            if flags & flag != 0 {
                let (hash, tail) = rest.split_first_chunk::<32>().ok_or(CUT)?;
                if hash == empty {
                    return Err(AccountDecodeError("writes out the hash of nothing"));
                }
                (*field, rest) = (*hash, tail);
            }
        }
        if rest.is_empty() { Ok(account) } else { Err(AccountDecodeError("has bytes after its end")) }
    }
}

/// Takes a nonce above zero off `bytes`, in as few bytes as it needs.
fn take_nonce(bytes: &mut &[u8]) -> Result<u64, AccountDecodeError> {
    const LONG: AccountDecodeError =
        AccountDecodeError("has a nonce of more bytes than it needs, or of more than 64 bits");
    let mut nonce = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(AccountDecodeError("is cut off"))?;
        *bytes = rest;
        let part = u64::from(byte & 0x7F);
        if part << shift >> shift != part {
            return Err(LONG);
        }
        nonce |= part << shift;
        if byte & 0x80 == 0 {
            return if *byte == 0 { Err(LONG) } else { Ok(nonce) };
        }
    }
    Err(LONG)
}

/// The value of a slot's leaf: the RLP of the number, in which no zero is kept.
pub fn slot_rlp(value: &Hash) -> Vec<u8> {
    let mut out = Vec::with_capacity(33);
    put_slot_rlp(&mut out, value);
    out
}

/// Appends the same.
pub(crate) fn put_slot_rlp(out: &mut Vec<u8>, value: &Hash) {
    rlp::put_string(out, rlp::trimmed(value));
}

/// Reads the value of a slot's leaf; `None` where it is not the one that [`slot_rlp`] gives for a number above zero.
pub(crate) fn slot_from_rlp(mut bytes: &[u8]) -> Option<Hash> {
    if bytes.first() == Some(&EMPTY_STRING) {
        return None;
    }
    let value = rlp::number(rlp::take_string(&mut bytes)?)?;
    bytes.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_constants_are_the_hashes_of_nothing() {
        assert_eq!(EMPTY_CODE_HASH, crate::ethereum::keccak256(b""));
        assert_eq!(EMPTY_ROOT, crate::ethereum::keccak256(&[EMPTY_STRING]));
    }

    fn accounts() -> impl Strategy<Value = Account> {
        let hash = |empty| prop_oneof![Just(empty), any::<[u8; 32]>()];
        let number = (any::<[u8; 32]>(), 0..=32usize).prop_map(|(mut bytes, zeros)| {
            bytes[..zeros].fill(0);
            bytes
        });
        (any::<u64>(), 0..=64u32, number, hash(EMPTY_CODE_HASH), hash(EMPTY_ROOT)).prop_map(
            |(nonce, shift, balance, code_hash, storage_root)| Account {
                nonce: nonce.checked_shr(shift).unwrap_or(0),
                balance,
                code_hash,
                storage_root,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_account_is_read_as_it_was_written(account in accounts(), cut in any::<prop::sample::Index>()) {
            let record = account.encode();
            prop_assert_eq!(Account::decode(&record), Ok(account));
            prop_assert!(Account::decode(&record[..cut.index(record.len())]).is_err());
            prop_assert!(Account::decode(&[&record[..], &[0]].concat()).is_err());
            let leaf = account.rlp();
            prop_assert_eq!(Account::from_rlp(&leaf), Some(account));
            prop_assert_eq!(slot_from_rlp(&slot_rlp(&account.code_hash)), Some(account.code_hash));
            let theirs = alloy_trie::TrieAccount {
                nonce: account.nonce,
                balance: alloy_primitives::U256::from_be_bytes(account.balance),
                storage_root: account.storage_root.into(),
                code_hash: account.code_hash.into(),
            };
            prop_assert_eq!(leaf, alloy_rlp::encode(theirs));
        }

        #[test]
        fn bytes_are_no_account_or_the_one_encoding_of_one(
            mut bytes in prop::collection::vec(any::<u8>(), 0..90),
            flags in 0..20u8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = flags;
            }
            if let Ok(account) = Account::decode(&bytes) {
                prop_assert_eq!(account.encode(), bytes);
            }
        }

        #[test]
        fn a_changed_record_is_no_account_or_another_one(account in accounts(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut record = account.encode();
            let at = at.index(record.len());
            record[at] ^= 1u8 << bit;
            if let Ok(other) = Account::decode(&record) {
                prop_assert_ne!(other, account);
                prop_assert_eq!(other.encode(), record);
            }
        }
    }
}
