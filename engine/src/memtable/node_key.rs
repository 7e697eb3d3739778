//! The domain `_nodes`, which an archive with snapshots has, one whose domains are by path, and one for Ethereum. With snapshots it has rows of the tree's inner nodes,
//! and the keys of its leaves.
//!
//! ```text
//! key                                    value                        version
//! row depth, first bits of a key hash    hash of the inner node       at a snapshot, where it changed
//! 0xFF, key hash (32 bytes)              domain number varint, key    at the block that inserts the key
//! ```
//!
//! Rows are [`ROW_SPACING`] bits apart, so the nodes of a row below one node of the row above are neighbours. A place that
//! is no inner node any more, and a key that is gone, is deleted. The root row is written at every snapshot: block N has
//! one when the newest version of that row at or below N is of N.
//!
//! Of an archive by path it has [rows](crate::merkle::tree_rows) of the tree, under the keys of the first two lines here; of an archive for
//! Ethereum the roots of storage tries, and [rows](crate::merkle::row_depths) of all tries:
//!
//! ```text
//! key                                                   value                                       version
//! 0x00                                                  deepest row of the accounts, 0: none        at every block
//! depth, nibbles of a position                          what the trie of accounts has there         at a block that changes it
//! 0x40, account (20 bytes of its path)                  root of its storage, and its deepest row    at a block that changes it
//! 0x40 | depth, account, nibbles of a position          what its storage has there                  at a block that changes it
//! ```
//!
//! Nibbles are two a byte, the last byte filled with a zero. What a trie has at a position is a
//! [`NodeRef`](icecore_hot::ethereum::NodeRef) where there are two leaves below it; else it is deleted. Rows count from the block
//! on at which the deepest row became what it is: there a row that the trie did not have before is written whole. The byte of the
//! deepest row is left out of a storage that has none. An account without slots has no root.
//!
//! Written by the [trees](crate::merkle::live_tree), kept in memory by [`node_table`](crate::memtable::node_table), read by
//! [`rows`](crate::merkle::rows), [`tree_rows`](crate::merkle::tree_rows) and [`trie_rows`](crate::merkle::trie_rows).

use std::sync::Arc;

use icecore_hot::KeyHash;
use icecore_segments::bytes::{put_varint, take_varint};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::memtable::Found;

/// How many key hash bits are between two rows: chosen by what `icecore-figures snapshots` shows.
pub(crate) const ROW_SPACING: usize = 4;

/// What the key of a row of a storage trie begins with, beside its depth.
pub(crate) const STORAGE: u8 = 0x40;

/// What the key of a leaf begins with: after every row.
const LEAF: u8 = 0xFF;

/// A key of the domain. Ordered as its bytes: what is after them is zero, and keys with one tag are of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeKey {
    bytes: [u8; 33],
    len: u8,
}

impl NodeKey {
    /// The root of the tree.
    pub(crate) const ROOT: Self = Self { bytes: [0; 33], len: 1 };

    /// The node at `depth` on the way to a key.
    pub(crate) fn row(depth: usize, key: &KeyHash) -> Self {
        Self::place(depth as u8, depth, key)
    }

    /// The node at the first `depth` nibbles of a path: of the trie of accounts or of Icecore's tree, or of the storage of the account
    /// whose path begins with the bytes given. At depth 0 it is the root. No row is deeper than 24 nibbles.
    pub(crate) fn trie_row(account: Option<&[u8; 20]>, depth: usize, path: &[u8; 32]) -> Self {
        let tag = depth as u8 | if account.is_some() { STORAGE } else { 0 };
        let (account, nibbles) = (account.map_or(&[][..], |account| account), depth.div_ceil(2));
        let (mut bytes, len) = ([0; 33], 1 + account.len() + nibbles);
        bytes[0] = tag;
        bytes[1..=account.len()].copy_from_slice(account);
        bytes[1 + account.len()..len].copy_from_slice(&path[..nibbles]);
        if !depth.is_multiple_of(2) {
            bytes[len - 1] &= 0xF0;
        }
        Self { bytes, len: len as u8 }
    }

    /// The leaf of a key.
    pub(crate) fn leaf(key: &KeyHash) -> Self {
        Self::place(LEAF, 256, key)
    }

    /// The first `depth` bits of a key hash after a tag, zeros to the end of the byte.
    fn place(tag: u8, depth: usize, key: &KeyHash) -> Self {
        let len = depth.div_ceil(8);
        let mut bytes = [0; 33];
        bytes[0] = tag;
        bytes[1..=len].copy_from_slice(&key.0[..len]);
        if !depth.is_multiple_of(8) {
            bytes[len] &= 0xFF << (8 - depth % 8);
        }
        Self { bytes, len: len as u8 + 1 }
    }

    /// The first bytes as a number: it orders keys, those with the same one aside.
    pub(crate) fn head(&self) -> u64 {
        let mut head = [0; 8];
        head.copy_from_slice(&self.bytes[..8]);
        u64::from_be_bytes(head)
    }

    /// The bytes of the key.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What a block writes in the domain: a key and what is there from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeVersion {
    pub(crate) key: NodeKey,
    pub(crate) block: BlockNumber,
    pub(crate) value: NodeValue,
}

impl NodeVersion {
    /// What a reader of a table is given.
    pub(crate) fn found(&self) -> Found {
        (self.block, self.value.as_bytes().map(<[u8]>::to_vec))
    }
}

/// What is at a key of the domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeValue {
    /// Nothing any more.
    Deleted,
    /// The hash of an inner node.
    Inner([u8; 32]),
    /// What a trie of Ethereum keeps of a node, or the depth of rows.
    Row(Arc<[u8]>),
    /// The domain and key of a leaf, as [`encode_preimage`] writes it.
    Preimage(Arc<[u8]>),
}

impl NodeValue {
    /// The bytes of the value, `None` for a deletion.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Deleted => None,
            Self::Inner(hash) => Some(hash),
            Self::Row(bytes) | Self::Preimage(bytes) => Some(bytes),
        }
    }
}

/// The key hash after a key of the row at `depth`, zeros where the row does not reach; `None` for what no row holds.
pub(crate) fn place_of_row(depth: usize, key: &[u8]) -> Option<KeyHash> {
    let (tag, place) = key.split_first()?;
    if usize::from(*tag) != depth || place.len() != depth.div_ceil(8) {
        return None;
    }
    let mut hash = [0; 32];
    hash[..place.len()].copy_from_slice(place);
    Some(KeyHash(hash))
}

/// The key hash after the key of a leaf.
pub(crate) fn hash_of_leaf(key: &[u8]) -> Option<KeyHash> {
    match key.split_first()? {
        (&LEAF, hash) => Some(KeyHash(hash.try_into().ok()?)),
        _ => None,
    }
}

/// The value of a leaf: whose key it is.
pub(crate) fn encode_preimage(domain: DomainId, key: &[u8]) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(2 + key.len());
    put_varint(&mut out, u64::from(domain.0));
    out.extend_from_slice(key);
    out.into()
}

/// The domain and the key that a leaf stands for.
pub(crate) fn decode_preimage(value: &[u8]) -> Option<(DomainId, &[u8])> {
    let mut at = 0;
    let domain = u16::try_from(take_varint(value, &mut at)?).ok()?;
    Some((DomainId(domain), &value[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash([0b1011_0110; 32]);

    #[test]
    fn keys_are_what_the_picture_says() {
        assert_eq!(NodeKey::row(0, &KEY).as_bytes(), [0]);
        assert_eq!(NodeKey::ROOT, NodeKey::row(0, &KEY));
        assert_eq!(NodeKey::row(4, &KEY).as_bytes(), [4, 0b1011_0000]);
        assert_eq!(NodeKey::row(8, &KEY).as_bytes(), [8, 0b1011_0110]);
        assert_eq!(NodeKey::row(252, &KEY).as_bytes().len(), 33);
        assert_eq!(
            place_of_row(4, &[4, 0b1011_0000]).map(|key| key.0[..2].to_vec()),
            Some(vec![0b1011_0000, 0])
        );
        assert_eq!((place_of_row(4, &[8, 1]), place_of_row(8, &[8, 1, 2])), (None, None));
        let leaf = NodeKey::leaf(&KEY);
        assert_eq!((leaf.as_bytes()[0], hash_of_leaf(leaf.as_bytes())), (0xFF, Some(KEY)));
        assert_eq!(hash_of_leaf(&[0xFF, 1]), None);
    }

    #[test]
    fn a_preimage_reads_back() {
        for domain in [1, 200] {
            let value = encode_preimage(DomainId(domain), b"key");
            assert_eq!(decode_preimage(&value), Some((DomainId(domain), &b"key"[..])));
        }
        assert_eq!(decode_preimage(b""), None);
    }
}
