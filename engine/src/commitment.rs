//! What the roots of an archive commit to, chosen when it is created; and in which order its domains keep their keys, which
//! follows from that. The trees themselves are in `icecore-hot`, and [`merkle`](crate::merkle) feeds them.

use std::borrow::Cow;
use std::fmt;

use icecore_hot::KeyHash;
use icecore_hot::ethereum::keccak256;

/// The commitment of an archive: how the root of a block follows from the state after it. Chosen when the archive is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Commitment {
    /// None: there are no roots and no proofs, and no tree is kept in memory. [`BlockWriter::commit`](crate::BlockWriter::commit) gives
    /// 32 zero bytes, [`View::root`](crate::View::root) and [`View::prove`](crate::View::prove) fail with [`Error::Commitment`](crate::Error::Commitment).
    None,
    /// A sparse Merkle tree over BLAKE3 of all declared domains, whose proofs are those of ICS23.
    #[default]
    Icecore,
    /// The state trie of Ethereum: a root is the `stateRoot` of the block's header, a proof what `eth_getProof` gives. The archive has the
    /// domains [`ACCOUNT`](crate::ethereum::ACCOUNT), [`CODE`](crate::ethereum::CODE) and [`STORAGE`](crate::ethereum::STORAGE); the trie
    /// is of accounts and storage, and others may be declared beside them.
    Ethereum,
}

impl Commitment {
    /// Every commitment with the number and the name that it has in files and on command lines.
    const ALL: [(Self, u8, &str); 3] =
        [(Self::None, 0, "none"), (Self::Icecore, 1, "icecore"), (Self::Ethereum, 2, "ethereum")];

    fn row(self) -> (Self, u8, &'static str) {
        Self::ALL[self as usize]
    }

    pub(crate) fn code(self) -> u8 {
        self.row().1
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// Its name: `none`, `icecore` or `ethereum`.
    pub fn name(self) -> &'static str {
        self.row().2
    }
}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The order in which a domain keeps its keys, and the form in which it stores them. Lookups take plain keys in every order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DomainOrder {
    /// As they are.
    #[default]
    Key,
    /// By their path in the trie, Keccak-256 of the key. Scans give paths.
    Path,
    /// By two paths: that of the account, of which the first 20 bytes are kept, and that of the slot. A plain key is the 20 bytes of an
    /// address and the 32 of a slot. Scans give paths.
    PathInAccount,
    /// By the first 8 bytes of their path in the tree of [`Commitment::Icecore`], which are kept with them, then as they are. Scans give
    /// plain keys, in this order.
    PathThenKey,
}

/// The bytes of an address, and of an account's path that a stored slot begins with.
pub(crate) const ACCOUNT_LEN: usize = 20;

/// The bytes of its path that a stored key begins with in [`DomainOrder::PathThenKey`]: far more than any row of the tree is deep, so that
/// what is below a position is one range; and so few that a key takes little more than itself. Keys with the same ones are told apart by
/// themselves.
pub(crate) const PATH_HEAD_LEN: usize = 8;

impl DomainOrder {
    const ALL: [Self; 4] = [Self::Key, Self::Path, Self::PathInAccount, Self::PathThenKey];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The form in which a key of the domain with this name is stored.
    pub(crate) fn stored<'k>(self, domain: &str, key: &'k [u8]) -> Cow<'k, [u8]> {
        match self {
            Self::Key => Cow::Borrowed(key),
            Self::Path => Cow::Owned(keccak256(key).to_vec()),
            Self::PathInAccount => {
                let (address, slot) = key.split_at(ACCOUNT_LEN.min(key.len()));
                let mut stored = keccak256(address)[..ACCOUNT_LEN].to_vec();
                stored.extend_from_slice(&keccak256(slot));
                Cow::Owned(stored)
            }
            Self::PathThenKey => Cow::Owned([&KeyHash::of(domain, key).0[..PATH_HEAD_LEN], key].concat()),
        }
    }

    /// The form in which a stored key is given to callers; `None` of bytes that are none.
    pub(crate) fn shown(self, stored: &[u8]) -> Option<&[u8]> {
        stored.get(self.head_len()..)
    }

    /// The length of the keys that callers are given, where those that they give have the length `plain`.
    pub(crate) fn shown_len(self, plain: Option<usize>) -> Option<usize> {
        match self {
            Self::Key | Self::PathThenKey => plain,
            Self::Path => Some(32),
            Self::PathInAccount => Some(ACCOUNT_LEN + 32),
        }
    }

    /// How many bytes a stored key has beside those that callers are given.
    pub(crate) fn head_len(self) -> usize {
        match self {
            Self::Key | Self::Path | Self::PathInAccount => 0,
            Self::PathThenKey => PATH_HEAD_LEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_for_what_they_came_from() {
        for (commitment, code, _) in Commitment::ALL {
            assert_eq!((commitment.code(), Commitment::of_code(code)), (code, Some(commitment)));
        }
        for order in DomainOrder::ALL {
            assert_eq!(DomainOrder::of_code(order.code()), Some(order));
        }
        assert_eq!((Commitment::of_code(3), DomainOrder::of_code(4)), (None, None));
    }

    #[test]
    fn paths_are_hashes_of_the_parts_of_a_key() {
        let (address, slot) = ([7; 20], [9; 32]);
        let of_account = DomainOrder::Path.stored("d", &address);
        assert_eq!(*of_account, keccak256(&address));
        let of_slot = DomainOrder::PathInAccount.stored("d", &[&address[..], &slot].concat()).into_owned();
        assert_eq!(of_slot, [&of_account[..20], &keccak256(&slot)].concat());
        let behind = DomainOrder::PathThenKey.stored("d", &address);
        assert_eq!(*behind, [&KeyHash::of("d", &address).0[..8], &address].concat());
        for (order, stored, shown) in [
            (DomainOrder::Path, &*of_account, &*of_account),
            (DomainOrder::PathInAccount, &of_slot, &of_slot),
            (DomainOrder::PathThenKey, &behind, &address),
        ] {
            assert_eq!((order.shown(stored), order.shown_len(Some(20))), (Some(shown), Some(shown.len())));
        }
        assert_eq!(DomainOrder::PathThenKey.shown(&[0; 7]), None);
        assert_eq!(DomainOrder::Key.stored("d", b"key"), &b"key"[..]);
    }
}
