//! The hashes of the blocks of a file: what a part of it is checked by, by who believes only a key.
//!
//! BLAKE3 hashes a file as a tree, and the root of that tree is in the manifest of a generation. The nodes above its blocks of 64 KiB are kept in an
//! object of their own: together they give the root, so that nobody has to vouch for them, and each says what its block is.

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::remote::names::Hash;

/// Bytes of a block, but for the last of a file.
pub(crate) const BLOCK: u64 = 64 << 10;

/// How many hashes a file has whose content has so many bytes. One of a single block has none: its root says what it is.
pub(crate) fn count(content_len: u64) -> u64 {
    match content_len.div_ceil(BLOCK) {
        0 | 1 => 0,
        blocks => blocks,
    }
}

/// The hashes of the blocks of a file's content, which are known to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockHashes {
    len: u64,
    root: Hash,
    hashes: Vec<Hash>,
}

impl BlockHashes {
    /// Reads the bytes of an object. `None` where they are not those of a content of `len` bytes with this root.
    pub(crate) fn read(bytes: &[u8], len: u64, root: Hash) -> Option<Self> {
        let (hashes, rest) = bytes.as_chunks::<32>();
        let has_all = rest.is_empty() && hashes.len() as u64 == count(len);
        let is_right = has_all && (hashes.is_empty() || root_of(hashes) == root);
        is_right.then(|| Self { len, root, hashes: hashes.to_vec() })
    }

    /// The bytes of the object that has them.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.hashes.concat()
    }

    /// The hash of the whole content.
    pub(crate) fn root(&self) -> Hash {
        self.root
    }

    /// Of bytes that were read from the beginning of a block, those of whole blocks of content that are right, each with its place.
    pub(crate) fn right<'b>(&'b self, from: u64, bytes: &'b [u8]) -> impl Iterator<Item = (u64, &'b [u8])> {
        let content = self.len.saturating_sub(from).min(bytes.len() as u64) as usize;
        let blocks = bytes[..content].chunks(BLOCK as usize);
        let placed = blocks.enumerate().map(move |(i, block)| (from + i as u64 * BLOCK, block));
        placed.filter(|(at, block)| self.is_right(*at, block))
    }

    fn is_right(&self, at: u64, block: &[u8]) -> bool {
        match self.hashes.get((at / BLOCK) as usize) {
            Some(hash) => hash_of(at, block) == *hash,
            None => self.hashes.is_empty() && at == 0 && *blake3::hash(block).as_bytes() == self.root,
        }
    }
}

/// The node of the tree above one block.
fn hash_of(at: u64, block: &[u8]) -> Hash {
    Hasher::new().set_input_offset(at).update(block).finalize_non_root()
}

/// What the nodes above several blocks give.
fn root_of(hashes: &[Hash]) -> Hash {
    let (left, right) = halves(hashes);
    *merge_subtrees_root(&node_of(left), &node_of(right), Mode::Hash).as_bytes()
}

fn node_of(hashes: &[Hash]) -> Hash {
    let [hash] = hashes else {
        let (left, right) = halves(hashes);
        return merge_subtrees_non_root(&node_of(left), &node_of(right), Mode::Hash);
    };
    *hash
}

/// On the left as many as a full tree has, and at least one on the right.
fn halves(hashes: &[Hash]) -> (&[Hash], &[Hash]) {
    hashes.split_at(hashes.len().next_power_of_two() / 2)
}

/// Computes the hashes of a content as it is read. As fast as its root alone.
#[derive(Default)]
pub(crate) struct BlockHasher {
    /// Of the block that is not full, which has so many bytes.
    block: Hasher,
    filled: u64,
    len: u64,
    hashes: Vec<Hash>,
}

impl BlockHasher {
    /// Takes the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == BLOCK {
                self.hashes.push(self.block.finalize_non_root());
                self.block = Hasher::new();
                self.block.set_input_offset(self.len);
                self.filled = 0;
            }
            let (some, rest) = bytes.split_at(bytes.len().min((BLOCK - self.filled) as usize));
            self.block.update(some);
            self.filled += some.len() as u64;
            self.len += some.len() as u64;
            bytes = rest;
        }
    }

    /// The hashes of all bytes taken.
    pub(crate) fn finish(mut self) -> BlockHashes {
        if self.hashes.is_empty() {
            return BlockHashes { len: self.len, root: self.block.finalize().into(), hashes: Vec::new() };
        }
        self.hashes.push(self.block.finalize_non_root());
        BlockHashes { len: self.len, root: root_of(&self.hashes), hashes: self.hashes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(len: u64) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8 ^ (i >> 16) as u8).collect()
    }

    const LENS: [u64; 9] =
        [0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 4096, 16 * BLOCK + 7];

    #[test]
    fn the_blocks_give_the_root_that_the_whole_has() {
        for len in LENS {
            let bytes = content(len);
            let root = *blake3::hash(&bytes).as_bytes();
            for part in [1000, BLOCK as usize, 8 << 20] {
                let mut hasher = BlockHasher::default();
                bytes.chunks(part).for_each(|some| hasher.update(some));
                let hashes = hasher.finish();
                assert_eq!((hashes.root(), hashes.hashes.len() as u64), (root, count(len)), "{len}");
                assert_eq!(BlockHashes::read(&hashes.to_bytes(), len, root), Some(hashes.clone()), "{len}");
                let with_footer = [&bytes[..], &[9; 4096]].concat();
                let right: Vec<_> = hashes.right(0, &with_footer).collect();
                assert_eq!(right.len() as u64, len.div_ceil(BLOCK), "{len}");
                assert_eq!(right.iter().flat_map(|(_, block)| *block).copied().collect::<Vec<_>>(), bytes);
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_that_of_its_block_alone() {
        let bytes = content(5 * BLOCK + 4096);
        let mut hasher = BlockHasher::default();
        hasher.update(&bytes);
        let hashes = hasher.finish();
        for at in [0, BLOCK - 1, BLOCK, 3 * BLOCK + 77, 5 * BLOCK + 4095] {
            let mut damaged = bytes.clone();
            damaged[at as usize] ^= 4;
            let from = at / BLOCK * BLOCK;
            assert_eq!(hashes.right(0, &damaged).count(), 5, "{at}");
            assert!(hashes.right(0, &damaged).all(|(place, _)| place != from), "{at}");
            assert_eq!(
                hashes.right(from, &bytes[from as usize..]).next().map(|(place, _)| place),
                Some(from)
            );
            assert_ne!(
                hashes.right(from, &damaged[from as usize..]).next().map(|(place, _)| place),
                Some(from)
            );
        }
        // Another block of the file, and less than a block.
        assert_eq!(hashes.right(BLOCK, &bytes[..BLOCK as usize]).count(), 0);
        assert_eq!(hashes.right(0, &bytes[..1000]).count(), 0);
        assert_eq!(hashes.right(99 * BLOCK, &bytes).count(), 0);
    }

    #[test]
    fn no_byte_of_the_hashes_can_be_another() {
        let (len, mut hasher) = (4 * BLOCK + 1, BlockHasher::default());
        hasher.update(&content(len));
        let hashes = hasher.finish();
        let bytes = hashes.to_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(BlockHashes::read(&damaged, len, hashes.root()), None, "byte {at}");
            assert_eq!(BlockHashes::read(&bytes[..at], len, hashes.root()), None, "cut at {at}");
        }
        assert_eq!(BlockHashes::read(&bytes, len + BLOCK, hashes.root()), None);
        assert_eq!(BlockHashes::read(&[], BLOCK + 1, hashes.root()), None);
    }
}
