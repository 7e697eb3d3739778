//! What is hashed, and how: leaves, inner nodes, keys and values.
//!
//! The construction, over BLAKE3:
//!
//! | node | hash |
//! |---|---|
//! | empty subtree | 32 zero bytes |
//! | leaf | `BLAKE3(TAG || BLAKE3(tree key) || BLAKE3(tree value))`, `TAG` of 64 bytes |
//! | subtree of one leaf | that leaf, at whatever height |
//! | any other subtree | `BLAKE3(left || right)` |
//!
//! An inner node is one compression, and so is a leaf: the tag fills the first 64-byte block, so the state
//! after it is a constant. Inner and leaf inputs differ in length (64 and 128 bytes), so one can never pass
//! for the other.
//!
//! A tree key carries its domain (`u8` length, name, key), so that one tree commits to all domains; keys of
//! up to 52 bytes in a domain with a name of up to 11 fit one block. A tree value is `0x01` and the value,
//! because ICS23 refuses empty values.

pub(crate) mod compress;
pub(crate) mod keccak;
pub(crate) mod simd;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A BLAKE3 output, and the unit of everything below.
pub(crate) type Hash = [u8; 32];

/// The hash of an empty subtree, and the root of the empty tree.
pub(crate) const EMPTY: Hash = [0; 32];

/// What precedes the key hash and the value hash in a leaf.
pub(crate) const TAG: [u8; 64] = *b"icecore state leaf, version 1: BLAKE3(tag, key hash, value hash)";

/// The longest domain name: its length is one byte of the tree key.
pub const DOMAIN_LEN_MAX: usize = 255;

/// The 32-byte commitment to a state; a function of the state alone. As text it is `0x` and 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Root(pub [u8; 32]);

/// The place of a key in the tree: the BLAKE3 of its tree key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl Ord for KeyHash {
    /// By the bytes, most of the time by the first eight as a number: sorting and searching do little else.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        prefix(&self.0).cmp(&prefix(&other.0)).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for KeyHash {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Root {
    /// The root of the state without keys.
    pub const EMPTY: Self = Self(EMPTY);
}

impl KeyHash {
    /// Hashes the tree key of `key` in `domain`.
    ///
    /// # Panics
    /// When the domain name is longer than [`DOMAIN_LEN_MAX`].
    pub fn of(domain: &str, key: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[domain_len(domain)]);
        hasher.update(domain.as_bytes());
        hasher.update(key);
        Self(*hasher.finalize().as_bytes())
    }
}

/// The bytes that are hashed to place a key: `u8` length of the domain name, the name, the key.
///
/// # Panics
/// When the domain name is longer than [`DOMAIN_LEN_MAX`].
pub fn tree_key(domain: &str, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + domain.len() + key.len());
    out.push(domain_len(domain));
    out.extend_from_slice(domain.as_bytes());
    out.extend_from_slice(key);
    out
}

/// The bytes that are hashed for a value: `0x01` and the value, so that an empty value still proves.
pub fn tree_value(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + value.len());
    out.push(1);
    out.extend_from_slice(value);
    out
}

/// Hashes a value as the leaf holds it.
pub fn value_hash(value: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[1]);
    hasher.update(value);
    *hasher.finalize().as_bytes()
}

pub(crate) fn domain_len(domain: &str) -> u8 {
    u8::try_from(domain.len()).expect("a domain name has at most 255 bytes")
}

/// The hash of a leaf, one at a time; the lanes in `simd` must agree with it.
pub(crate) fn leaf(key: &KeyHash, value_hash: &Hash) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&TAG);
    hasher.update(&key.0);
    hasher.update(value_hash);
    *hasher.finalize().as_bytes()
}

/// The hash of a subtree of at least two leaves, one at a time.
pub(crate) fn inner(left: &Hash, right: &Hash) -> Hash {
    let mut input = [0; 64];
    input[..32].copy_from_slice(left);
    input[32..].copy_from_slice(right);
    *blake3::hash(&input).as_bytes()
}

/// The bit at `depth`, counted from the most significant of the first byte.
pub(crate) fn bit(hash: &Hash, depth: usize) -> usize {
    usize::from(hash[depth / 8] >> (7 - depth % 8) & 1)
}

/// The first 64 bits as a number: its order is the order of the hashes as far as it goes.
pub(crate) fn prefix(hash: &Hash) -> u64 {
    let mut head = [0; 8];
    head.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(head)
}

/// The number of leading bits two hashes share.
pub(crate) fn common_bits(a: &Hash, b: &Hash) -> usize {
    let head = prefix(a) ^ prefix(b);
    if head != 0 {
        return head.leading_zeros() as usize;
    }
    match a.iter().zip(b).position(|(x, y)| x != y) {
        None => 256,
        Some(at) => at * 8 + (a[at] ^ b[at]).leading_zeros() as usize,
    }
}

fn hex(bytes: &Hash, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// The text is no [`Root`]: 64 hex digits, of either case, after `0x` or without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a root is 64 hex digits, with or without 0x before them")]
pub struct ParseRootError;

impl FromStr for Root {
    type Err = ParseRootError;

    fn from_str(text: &str) -> Result<Self, ParseRootError> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        let mut root = [0; 32];
        if digits.len() != 2 * root.len() {
            return Err(ParseRootError);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(ParseRootError);
        for (byte, pair) in root.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (16 * digit(pair[0])? + digit(pair[1])?) as u8;
        }
        Ok(Self(root))
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// One cache line: a sibling pair, or a leaf (key hash, leaf hash).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    pub(crate) halves: [Hash; 2],
}

const _: () = assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);

impl Line {
    pub(crate) const ZERO: Self = Self { halves: [EMPTY; 2] };

    pub(crate) fn bytes(&self) -> &[u8; 64] {
        self.halves.as_flattened().first_chunk().expect("two halves of 32 bytes")
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8; 64] {
        self.halves.as_flattened_mut().first_chunk_mut().expect("two halves of 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_read_as_it_is_printed() {
        let root = Root(*blake3::hash(b"a root").as_bytes());
        let text = root.to_string();
        let digits = &text[2..];
        for text in [&text, digits, &digits.to_uppercase(), &format!("0x{}", digits.to_uppercase())] {
            assert_eq!(text.parse(), Ok(root), "{text}");
        }
        let wide = format!("{}\u{e4}", &digits[2..]);
        for text in
            ["", "0x", &digits[1..], &format!("{text}0"), &format!("0X{digits}"), &format!("0x{text}"), &wide]
        {
            assert_eq!(text.parse::<Root>(), Err(ParseRootError), "{text}");
        }
        for text in [format!("+{}", &digits[1..]), format!("g{}", &digits[1..])] {
            assert_eq!(text.parse::<Root>(), Err(ParseRootError), "{text}");
        }
    }

    #[test]
    fn tree_key_is_length_name_key() {
        assert_eq!(tree_key("ab", b"xyz"), b"\x02abxyz");
        assert_eq!(KeyHash::of("ab", b"xyz").0, *blake3::hash(b"\x02abxyz").as_bytes());
        // The length keeps two domains apart whose name and key run together.
        assert_ne!(tree_key("a", b"bc"), tree_key("ab", b"c"));
    }

    #[test]
    fn tree_value_is_never_empty() {
        assert_eq!(tree_value(b""), b"\x01");
        assert_eq!(value_hash(b"v"), *blake3::hash(b"\x01v").as_bytes());
    }

    #[test]
    fn bits_count_from_the_most_significant() {
        let mut hash = EMPTY;
        hash[1] = 0b0100_0000;
        assert_eq!((bit(&hash, 8), bit(&hash, 9), bit(&hash, 10)), (0, 1, 0));
        assert_eq!(common_bits(&hash, &EMPTY), 9);
        assert_eq!(common_bits(&hash, &hash), 256);
        assert_eq!(prefix(&hash), 0x0040_0000_0000_0000);
    }

    #[test]
    fn roots_print_as_hex() {
        assert_eq!(Root::EMPTY.to_string(), format!("0x{}", "00".repeat(32)));
    }
}
