//! Domains: the keyspaces of an archive, declared when it is created.
//!
//! A domain has a name for people and files and a number for the log and the tables. Number 0 is the archive's own:
//! the roots of all blocks, kept as versions like everything else, so that emission, merge, recovery and unwinding
//! treat them alike. An archive with snapshots has another of its own, the last: the nodes of its tree.

use icecore_segments::EncodingRule;
use icecore_segments::frame::DOMAIN_LEN_MAX;
use icecore_segments::step::BlockNumber;

use crate::error::Error;

/// The most domains of an archive, its own included.
pub const DOMAINS_MAX: usize = 256;

/// The number of a domain inside one archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(pub(crate) u16);

impl DomainId {
    /// The domain of roots: key = height, big-endian; value = root.
    pub(crate) const ROOTS: Self = Self(0);

    /// As a position in a list by domain.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The name of [`DomainId::ROOTS`] in file names. The underscore keeps it apart from declared names.
pub(crate) const ROOTS_NAME: &str = "_roots";

/// The name of the domain of [`nodes`](crate::nodes).
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

/// A declared domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name: ASCII letters, digits, `-` and `_`, not beginning with `_`, at most 32 bytes.
    pub name: String,
    /// How its pages are encoded.
    pub encoding: EncodingRule,
}

impl Domain {
    /// A domain whose segments choose their encoding by themselves.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), encoding: EncodingRule::Auto }
    }

    /// The domain of roots.
    pub(crate) fn roots() -> Self {
        Self { name: ROOTS_NAME.to_owned(), encoding: EncodingRule::Plain }
    }

    /// The domain of nodes.
    pub(crate) fn nodes() -> Self {
        Self { name: NODES_NAME.to_owned(), encoding: EncodingRule::Plain }
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
    fn names_that_could_leave_the_directory_are_refused() {
        for name in ["", "_roots", "a/b", "..", "-x", "\u{e4}", &"x".repeat(33)] {
            assert!(Domain::check_name(name).is_err(), "{name}");
        }
        for name in ["kv", "Accounts", "a-b_c9", &"x".repeat(32)] {
            assert!(Domain::check_name(name).is_ok(), "{name}");
        }
    }
}
