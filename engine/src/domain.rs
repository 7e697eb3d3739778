//! Domains: the keyspaces of an archive, declared when it is created.
//!
//! A domain has a name for people and files and a number for the log and the tables. Number 0 is the archive's own:
//! the roots of all blocks, kept as versions like everything else, so that emission, merge, recovery and unwinding
//! treat them alike. An archive with snapshots has another of its own, the last: the nodes of its tree.

use std::borrow::Cow;
use std::cmp::Ordering;

use icecore_hot::Root;
use icecore_segments::bytes::array32_at;
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::DOMAIN_LEN_MAX;
use icecore_segments::step::BlockNumber;
use icecore_segments::{EncodingRule, KEY_LEN_MAX};

use crate::commitment::{Commitment, DomainOrder};
use crate::error::Error;

/// The most domains of an archive: those that are declared, one of its own for roots, and with snapshots another for Merkle nodes.
pub const DOMAINS_MAX: usize = 256;

/// The number of a domain inside one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(pub(crate) u16);

impl DomainId {
    /// The domain of roots: key = height, big-endian; value = [`RootRow`].
    pub(crate) const ROOTS: Self = Self(0);

    /// The domain of accounts: those that [`domains_of`] gives are the first that are declared.
    pub(crate) const ACCOUNT: Self = Self(1);
    /// The domain of codes.
    pub(crate) const CODE: Self = Self(2);
    /// The domain of slots.
    pub(crate) const STORAGE: Self = Self(3);

    /// As a position in a list by domain.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The name of the domain of accounts in archives for Ethereum.
pub const ACCOUNT: &str = "account";
/// The name of the domain of codes there.
pub const CODE: &str = "code";
/// The name of the domain of slots there.
pub const STORAGE: &str = "storage";

/// The domains that an archive with a commitment begins with, whatever else it declares.
pub(crate) fn domains_of(commitment: Commitment) -> Vec<Domain> {
    let ordered = |name, len, order| Domain { order, ..Domain::new(name).key_len(len) };
    match commitment {
        Commitment::None | Commitment::Icecore => Vec::new(),
        Commitment::Ethereum => vec![
            ordered(ACCOUNT, 20, DomainOrder::Path),
            ordered(CODE, 32, DomainOrder::Key),
            ordered(STORAGE, 52, DomainOrder::PathInAccount),
        ],
    }
}

/// The name of [`DomainId::ROOTS`] in file names. The underscore keeps it apart from declared names.
pub(crate) const ROOTS_NAME: &str = "_roots";

/// The name of the domain of [`nodes`](crate::memtable::node_key).
pub(crate) const NODES_NAME: &str = "_nodes";

/// The key of a block in the domain of roots: big-endian, so that keys order like heights.
pub(crate) fn root_key(height: BlockNumber) -> [u8; 8] {
    let mut key = height.to_le_bytes();
    key.reverse();
    key
}

/// The height that a key of the domain of roots stands for.
pub(crate) fn root_height(key: &[u8]) -> Option<BlockNumber> {
    let mut bytes: [u8; 8] = key.try_into().ok()?;
    bytes.reverse();
    Some(BlockNumber::from_le_bytes(bytes))
}

/// What the domain of roots has for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootRow {
    /// The root of the state after the block.
    pub(crate) root: Root,
    /// The digest of its changes, see [`compare`](crate::write::compare); `None` in rows of earlier versions.
    pub(crate) changes: Option<Checksum>,
}

impl RootRow {
    /// The value of a row.
    pub(crate) fn encode(root: &[u8; 32], changes: Checksum) -> [u8; 64] {
        let mut value = [0; 64];
        value[..32].copy_from_slice(root);
        value[32..].copy_from_slice(&changes.0);
        value
    }

    /// `None` when `value` is no row.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let root = Root(array32_at(value, 0)?);
        match value.len() {
            32 => Some(Self { root, changes: None }),
            64 => Some(Self { root, changes: Some(Checksum(array32_at(value, 32)?)) }),
            _ => None,
        }
    }
}

/// A domain: a named keyspace of an archive, declared when it is created. Keys are bytes and order bytewise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Domain {
    /// The name: 1 to 32 ASCII letters, digits, `-` and `_`, beginning with a letter or a digit. Files are named after it.
    pub name: String,
    /// The rule that chooses the page encoding of new segments, as of when the archive was opened;
    /// [`Archive::encoding`](crate::Archive::encoding) gives the one in force.
    pub encoding: EncodingRule,
    /// The length of every key in bytes, 1 to 1024; `None` where keys may have any length up to 1024.
    pub key_len: Option<usize>,
    /// The order in which keys are kept: see [`Domain::by_path`]. Those of Ethereum's own domains its commitment chooses.
    pub order: DomainOrder,
}

impl Domain {
    /// A domain with keys of any length, and an encoding chosen for each segment.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), encoding: EncodingRule::Auto, key_len: None, order: DomainOrder::Key }
    }

    /// Fixes the length of keys in bytes, 1 to 1024. Every call with a key of another length fails with [`Error::KeyLength`], so that
    /// a mistyped key is not taken for an absent one.
    ///
    /// ```
    /// let accounts = icecore::Domain::new("accounts").key_len(20);
    /// # let _ = accounts;
    /// ```
    pub fn key_len(mut self, len: usize) -> Self {
        self.key_len = Some(len);
        self
    }

    /// Keeps the keys in the order of their paths in the Merkle tree instead of their own. What is below a position of the tree lies side
    /// by side then, so that [every block is proven](crate::Options::keep_rows) from a few rows and a few thousand leaves. Only with
    /// [`Commitment::Icecore`], and of all domains of an archive or of none: the tree is of all of them. Calls take and give plain keys
    /// as ever; scans and changes give them in the order of their paths, which is none that means anything, and a scan has no range.
    ///
    /// # Cost
    /// 8 bytes more for each key of a segment and each change in the log, and a hash for each call with a key. Keys have at most
    /// 1016 bytes.
    ///
    /// ```
    /// let accounts = icecore::Domain::new("accounts").key_len(20).by_path();
    /// # let _ = accounts;
    /// ```
    pub fn by_path(mut self) -> Self {
        self.order = DomainOrder::PathThenKey;
        self
    }

    /// Sets the rule for the page encoding of segments. The default, [`EncodingRule::Auto`], leaves small fresh segments plain, and
    /// compresses a larger one where a sample says that it saves at least
    /// [`AUTO_SAVING_PERCENT`](crate::AUTO_SAVING_PERCENT).
    pub fn encoding(mut self, encoding: EncodingRule) -> Self {
        self.encoding = encoding;
        self
    }

    /// Whether it has the same keys: what may change while an archive exists is left out.
    pub(crate) fn is_same_keyspace(&self, other: &Self) -> bool {
        (&self.name, self.key_len, self.order) == (&other.name, other.key_len, other.order)
    }

    /// Checks that a key has the length that the domain fixes, as every call with a key does.
    ///
    /// # Errors
    /// [`Error::KeyLength`].
    #[inline]
    pub fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        match self.key_len {
            Some(expected) if expected != key.len() => {
                Err(Error::KeyLength { domain: self.name.clone(), expected, found: key.len() })
            }
            _ => Ok(()),
        }
    }

    /// The length of every key as scans give it, in bytes; `None` where they may have any.
    pub fn scanned_key_len(&self) -> Option<usize> {
        self.order.shown_len(self.key_len)
    }

    /// Compares keys by the order in which scans of this domain give them.
    ///
    /// ```
    /// let keys = icecore::Domain::new("kv");
    /// assert!(keys.compare(b"a", b"b").is_lt());
    /// ```
    ///
    /// # Cost
    /// A hash of each key in a domain [by path](Self::by_path).
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.order.head_len() {
            0 => a.cmp(b),
            _ => self.stored(a).cmp(&self.stored(b)),
        }
    }

    /// The form in which a key is stored.
    pub(crate) fn stored<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        self.order.stored(&self.name, key)
    }

    /// The form in which a stored key is given to callers.
    ///
    /// # Errors
    /// [`Error::Damaged`] of bytes that are no stored key.
    pub(crate) fn shown(&self, mut stored: Vec<u8>) -> Result<Vec<u8>, Error> {
        match self.order.head_len() {
            0 => {}
            head if stored.len() < head => return Err(self.damaged_key()),
            head => drop(stored.drain(..head)),
        }
        Ok(stored)
    }

    /// What is said of a key that is not one of this domain: in which file it was, who read it did not keep.
    pub(crate) fn damaged_key(&self) -> Error {
        Error::Damaged { path: self.name.clone().into(), offset: 0, reason: "a key without its path" }
    }

    /// Whether keys of this length are stored.
    pub(crate) fn is_stored_len(&self, len: usize) -> bool {
        let Some(shown) = len.checked_sub(self.order.head_len()) else { return false };
        self.scanned_key_len().is_none_or(|fixed| fixed == shown)
    }

    /// Whether it can have keys of the length that it declares.
    pub(crate) fn has_possible_key_len(&self) -> bool {
        self.key_len.is_none_or(|len| (1..=KEY_LEN_MAX - self.order.head_len()).contains(&len))
    }

    /// The domain of roots.
    pub(crate) fn roots() -> Self {
        Self::new(ROOTS_NAME).encoding(EncodingRule::Plain)
    }

    /// The domain of nodes.
    pub(crate) fn nodes() -> Self {
        Self::new(NODES_NAME).encoding(EncodingRule::Plain)
    }

    /// Checks a name that a user declares.
    pub(crate) fn check_name(name: &str) -> Result<(), Error> {
        let bad = |reason: &str| Error::Options { field: "domain", reason: format!("{name:?} {reason}") };
        if name.is_empty() || name.len() > DOMAIN_LEN_MAX {
            return Err(bad("must have 1 to 32 bytes"));
        }
        if name.starts_with(['_', '-']) {
            return Err(bad("must begin with a letter or a digit"));
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err(bad("may have ASCII letters, digits, - and _ only"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_keys_order_like_heights() {
        let heights = [0, 1, 255, 256, u64::from(u32::MAX), u64::MAX];
        for pair in heights.windows(2) {
            assert!(root_key(pair[0]) < root_key(pair[1]));
        }
        assert_eq!(root_height(&root_key(77)), Some(77));
        assert_eq!(root_height(b"short"), None);
    }

    #[test]
    fn rows_of_roots_read_back() {
        let (root, changes) = (Root([1; 32]), Checksum([2; 32]));
        let value = RootRow::encode(&root.0, changes);
        assert_eq!(RootRow::decode(&value), Some(RootRow { root, changes: Some(changes) }));
        assert_eq!(RootRow::decode(&value[..32]), Some(RootRow { root, changes: None }));
        for len in [0, 31, 33, 63] {
            assert_eq!(RootRow::decode(&value[..len]), None);
        }
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "_roots", "a/b", "..", "-x", "\u{e4}", &"x".repeat(33)] {
            assert!(Domain::check_name(name).is_err(), "{name}");
        }
        for name in ["kv", "Accounts", "a-b_c9", &"x".repeat(32)] {
            assert!(Domain::check_name(name).is_ok(), "{name}");
        }
    }
}
