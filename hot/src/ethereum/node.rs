//! The nodes of a trie as RLP: what `trie`, `partial` and `verify` share.
//!
//! | node | RLP |
//! |---|---|
//! | leaf | `[hex-prefix(rest of the path), value]` |
//! | extension | `[hex-prefix(nibbles), reference of a branch]` |
//! | branch | `[16 references or empty strings, empty string]` |
//!
//! The reference of a node is its Keccak-256, or the node itself where that is under 32 bytes.

use crate::ethereum::nibbles::{KeyPath, Nibbles, PATH_LEN, nibble};
use crate::ethereum::rlp::{self, EMPTY_STRING, Item};
use crate::hash::Hash;
use crate::hash::keccak::keccak256;

/// In the first byte of a kept [`NodeRef`]: the node is inlined.
const INLINED: u8 = 0x80;

/// Encodings shorter than this stand in their parent as they are.
pub(crate) const INLINE_BELOW: usize = 32;

/// How a parent names a node: by its hash, or by the node itself where its encoding is under 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The hash, or the encoding and zeros.
    bytes: [u8; 32],
    is_inline: bool,
}

impl Reference {
    /// The reference of a node that is named by its hash.
    pub fn hash(hash: [u8; 32]) -> Self {
        Self { bytes: hash, is_inline: false }
    }

    /// The reference of a node that stands in its parent: `None` where the bytes are not one list of under 32 bytes.
    pub fn inline(encoding: &[u8]) -> Option<Self> {
        if encoding.len() >= INLINE_BELOW {
            return None;
        }
        rlp::list(encoding)?;
        Some(Self::of(encoding))
    }

    /// The reference of a node from its encoding.
    pub(crate) fn of(encoding: &[u8]) -> Self {
        if encoding.len() >= INLINE_BELOW {
            return Self::hash(keccak256(encoding));
        }
        let mut bytes = [0; 32];
        bytes[..encoding.len()].copy_from_slice(encoding);
        Self { bytes, is_inline: true }
    }

    pub(crate) fn from_parts(bytes: Hash, is_inline: bool) -> Self {
        Self { bytes, is_inline }
    }

    /// The hash, or the encoding and zeros, and which of them it is.
    pub(crate) fn parts(&self) -> (&Hash, bool) {
        (&self.bytes, self.is_inline)
    }

    /// The 32 bytes of the hash, or the encoding of the node, which is shorter.
    pub fn bytes(&self) -> &[u8] {
        if self.is_inline { &self.bytes[..inline_len(&self.bytes)] } else { &self.bytes }
    }

    /// Whether the node stands in its parent.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_inline { "inline " } else { "0x" })?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A branch at or below a position: where it is, and how it is named there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeRef {
    /// The nibbles between the position and the branch; an extension has them where there are any.
    pub skipped: Nibbles,
    /// The reference of the branch itself.
    pub reference: Reference,
}

impl NodeRef {
    /// As it is kept in files: the 32 bytes of a hash where nothing is skipped, else
    ///
    /// ```text
    /// 1 byte      number of skipped nibbles, and 0x80 where the node is inlined
    /// n / 2       the skipped nibbles, two a byte, the last byte filled with a zero
    /// 32 bytes    the hash, or the inlined node and zeros
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let (bytes, is_inline) = self.reference.parts();
        let mut out = Vec::with_capacity(33 + self.skipped.packed().len());
        if is_inline || !self.skipped.is_empty() {
            out.push(self.skipped.len() as u8 | if is_inline { INLINED } else { 0 });
            out.extend_from_slice(self.skipped.packed());
        }
        out.extend_from_slice(bytes);
        out
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, hash) = bytes.split_last_chunk::<32>()?;
        let Some((flags, packed)) = head.split_first() else {
            return Some(Self { skipped: Nibbles::EMPTY, reference: Reference::hash(*hash) });
        };
        let (len, is_inline) = (usize::from(flags & !INLINED), flags & INLINED != 0);
        let skipped = Nibbles::from_packed(packed, len)?;
        let reference =
            if is_inline { Reference::inline(&hash[..inline_len(hash)])? } else { Reference::hash(*hash) };
        let read = Self { skipped, reference };
        (read.encode() == bytes).then_some(read)
    }
}

/// How long an inlined node is: its first byte says so.
pub(crate) fn inline_len(encoding: &Hash) -> usize {
    1 + usize::from(encoding[0].wrapping_sub(0xC0)).min(INLINE_BELOW - 2)
}

/// Writes the hex-prefix form of nibbles as a string.
fn put_hex_prefix(out: &mut Vec<u8>, path: &KeyPath, start: usize, end: usize, is_leaf: bool) {
    let len = end - start;
    let flag = if is_leaf { 0x20 } else { 0x00 };
    let (first, start) =
        if len % 2 == 1 { (flag | 0x10 | nibble(path, start) as u8, start + 1) } else { (flag, start) };
    if len > 1 {
        out.push(0x80 + 1 + (len / 2) as u8);
    }
    out.push(first);
    if start.is_multiple_of(2) {
        out.extend_from_slice(&path[start / 2..end / 2]);
    } else {
        out.extend((start..end).step_by(2).map(|i| (nibble(path, i) << 4 | nibble(path, i + 1)) as u8));
    }
}

fn hex_prefix_len(nibbles: usize) -> usize {
    1 + if nibbles > 1 { 1 + nibbles / 2 } else { 0 }
}

/// Writes a leaf at `depth`.
pub(crate) fn put_leaf(out: &mut Vec<u8>, path: &KeyPath, depth: usize, value: &[u8]) {
    rlp::put_list_header(out, hex_prefix_len(PATH_LEN - depth) + rlp::string_len(value));
    put_hex_prefix(out, path, depth, PATH_LEN, true);
    rlp::put_string(out, value);
}

/// Writes the extension from `depth` to the branch at `end`, both on `path`.
pub(crate) fn put_extension(out: &mut Vec<u8>, path: &KeyPath, depth: usize, end: usize, branch: &Reference) {
    rlp::put_list_header(out, hex_prefix_len(end - depth) + reference_len(branch));
    put_hex_prefix(out, path, depth, end, false);
    put_reference(out, branch);
}

fn reference_len(reference: &Reference) -> usize {
    reference.bytes().len() + usize::from(!reference.is_inline)
}

fn put_reference(out: &mut Vec<u8>, reference: &Reference) {
    if !reference.is_inline {
        out.push(EMPTY_STRING + 32);
    }
    out.extend_from_slice(reference.bytes());
}

/// Writes a branch: its children ascending, those in `mask`, and of those the ones in `inlined` as they are.
pub(crate) fn put_branch(out: &mut Vec<u8>, mask: u16, inlined: u16, children: &[Hash]) {
    let inline_bytes = |mask: u16| -> usize {
        let places = ones(mask).zip(children);
        places.filter(|(nibble, _)| inlined >> nibble & 1 == 1).map(|(_, child)| inline_len(child)).sum()
    };
    let hashed = (mask & !inlined).count_ones() as usize;
    let short = if inlined == 0 { 0 } else { inline_bytes(mask) };
    rlp::put_list_header(out, 33 * hashed + short + (17 - mask.count_ones() as usize));
    let mut children = children.iter();
    for nibble in 0..16 {
        if mask >> nibble & 1 == 0 {
            out.push(EMPTY_STRING);
        } else if let Some(child) = children.next() {
            if inlined >> nibble & 1 == 1 {
                out.extend_from_slice(&child[..inline_len(child)]);
            } else {
                out.push(EMPTY_STRING + 32);
                out.extend_from_slice(child);
            }
        }
    }
    out.push(EMPTY_STRING);
}

/// The nibbles in a mask, ascending.
pub(crate) fn ones(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let nibble = mask.trailing_zeros() as usize;
        mask &= mask.checked_sub(1)?;
        Some(nibble)
    })
}

/// A child as it stands in its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child<'a> {
    None,
    Hash(&'a Hash),
    Inline(&'a [u8]),
}

/// A node that was read.
#[derive(Debug)]
pub(crate) enum Node<'a> {
    Leaf { rest: Nibbles, value: &'a [u8] },
    Extension { skipped: Nibbles, branch: Child<'a> },
    Branch(Box<[Child<'a>; 16]>),
}

/// Reads a node; `None` where it is not as the functions above write one.
pub(crate) fn read(encoding: &[u8]) -> Option<Node<'_>> {
    let mut items = rlp::list(encoding)?;
    let first = rlp::take(&mut items)?;
    let second = rlp::take(&mut items)?;
    if items.is_empty() {
        let Item::String(path) = first else { return None };
        let (nibbles, is_leaf) = from_hex_prefix(path)?;
        return match (is_leaf, second) {
            (true, Item::String(value)) => Some(Node::Leaf { rest: nibbles, value }),
            (false, branch) if !nibbles.is_empty() => match child(branch)? {
                Child::None => None,
                branch => Some(Node::Extension { skipped: nibbles, branch }),
            },
            _ => None,
        };
    }
    let mut children = [Child::None; 16];
    (children[0], children[1]) = (child(first)?, child(second)?);
    for place in &mut children[2..] {
        *place = child(rlp::take(&mut items)?)?;
    }
    let count = children.iter().filter(|child| !matches!(child, Child::None)).count();
    (items == [EMPTY_STRING] && count > 1).then(|| Node::Branch(Box::new(children)))
}

fn child(item: Item<'_>) -> Option<Child<'_>> {
    match item {
        Item::String([]) => Some(Child::None),
        Item::String(hash) => Some(Child::Hash(hash.try_into().ok()?)),
        Item::List { whole, .. } => (whole.len() < INLINE_BELOW).then_some(Child::Inline(whole)),
    }
}

fn from_hex_prefix(bytes: &[u8]) -> Option<(Nibbles, bool)> {
    let (first, rest) = bytes.split_first()?;
    let is_odd = first & 0x10 != 0;
    if first & 0xC0 != 0 || (!is_odd && first & 0x0F != 0) || rest.len() > 32 || (is_odd && rest.len() > 31) {
        return None;
    }
    let mut nibbles = Nibbles::EMPTY;
    if is_odd {
        nibbles.push(usize::from(first & 0x0F));
    }
    for byte in rest {
        nibbles.push(usize::from(byte >> 4));
        nibbles.push(usize::from(byte & 0x0F));
    }
    Some((nibbles, first & 0x20 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_as_they_were_written() {
        let path: KeyPath = std::array::from_fn(|i| (i as u8).wrapping_mul(0x3B));
        let inline = Reference::inline(&[0xC3, 0x82, 0x01, 0x02]).unwrap();
        assert_eq!((inline.is_inline(), inline.bytes()), (true, &[0xC3, 0x82, 0x01, 0x02][..]));
        for depth in 0..=PATH_LEN {
            let mut leaf = Vec::new();
            put_leaf(&mut leaf, &path, depth, &[5; 40]);
            let Some(Node::Leaf { rest, value }) = read(&leaf) else { panic!("{depth}: {leaf:x?}") };
            assert_eq!((rest, value), (Nibbles::part(&path, depth, PATH_LEN - depth), &[5; 40][..]));
            for end in depth + 1..PATH_LEN {
                let mut extension = Vec::new();
                put_extension(&mut extension, &path, depth, end, &Reference::hash(path));
                let Some(Node::Extension { skipped, branch: Child::Hash(hash) }) = read(&extension) else {
                    panic!("{depth}..{end}")
                };
                assert_eq!((skipped, hash), (Nibbles::part(&path, depth, end - depth), &path));
            }
        }
        let mut branch = Vec::new();
        let mut short = [0; 32];
        short[..4].copy_from_slice(inline.bytes());
        put_branch(&mut branch, 0x8005, 0x0004, &[path, short, path]);
        let Some(Node::Branch(children)) = read(&branch) else { panic!("{branch:x?}") };
        for (i, child) in children.iter().enumerate() {
            match (i, child) {
                (0 | 15, Child::Hash(hash)) => assert_eq!(*hash, &path),
                (2, Child::Inline(bytes)) => assert_eq!(*bytes, inline.bytes()),
                (_, child) => assert!(matches!(child, Child::None), "{i}"),
            }
        }
    }

    #[test]
    fn references_are_read_back_and_other_bytes_are_none() {
        let path: KeyPath = std::array::from_fn(|i| (i as u8).wrapping_mul(0x3B));
        let inlined = Reference::inline(&[0xC3, 0x82, 0x01, 0x02]).unwrap();
        for reference in [Reference::hash(path), inlined] {
            for len in 0..=PATH_LEN {
                let node = NodeRef { skipped: Nibbles::prefix(&path, len), reference };
                let bytes = node.encode();
                assert_eq!(NodeRef::decode(&bytes), Some(node));
                for at in 0..bytes.len() {
                    let cut = NodeRef::decode(&bytes[..at]);
                    assert!(cut.is_none_or(|node| node.encode() == bytes[..at]), "{len}, {at}");
                    let mut other = bytes.clone();
                    other[at] ^= 0x55;
                    assert_ne!(NodeRef::decode(&other), Some(node), "{len}, {at}");
                }
            }
        }
        let plain = NodeRef { skipped: Nibbles::EMPTY, reference: Reference::hash(path) };
        assert_eq!(plain.encode(), path);
        let with = |head: &[u8]| NodeRef::decode(&[head, &path[..]].concat());
        assert_eq!((with(&[0]), with(&[65]), with(&[1, 0x11]), with(&[2])), (None, None, None, None));
        assert!(with(&[1, 0x10]).is_some());
    }

    #[test]
    fn what_is_no_node_is_not_read() {
        let (hash, mut branch) = ([7; 32], Vec::new());
        put_branch(&mut branch, 0x0001, 0, &[hash]);
        assert!(read(&branch).is_none(), "a branch of one child");
        let mut two = Vec::new();
        put_branch(&mut two, 0x0003, 0, &[hash, hash]);
        assert!(read(&two).is_some());
        *two.last_mut().unwrap() = 0x01;
        assert!(read(&two).is_none(), "a branch with a value");
        for bytes in
            [&[0xC0][..], &[0xC1, 0x20], &[0xC2, 0x40, 0x01], &[0xC2, 0x21, 0x80], &[0xC2, 0x00, 0xC0]]
        {
            assert!(read(bytes).is_none(), "{bytes:x?}");
        }
        assert!(Reference::inline(&hash).is_none() && Reference::inline(&[0x80]).is_none());
        assert!(Reference::inline(&[0xC1]).is_none());
    }
}
