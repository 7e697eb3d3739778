//! A part of a trie that is enough to prove some paths: leaves, and references of branches.
//!
//! Where a trie was kept as rows of references, whoever proves a path puts together what is beside it, here. The parts
//! must cover the trie: then the root follows from them, and whoever knows the root knows whether they are right.

use std::ops::Range;

use crate::ethereum::account::{Account, EMPTY_ROOT, put_slot_rlp};
use crate::ethereum::nibbles::{KeyPath, Nibbles, PATH_LEN, common_nibbles, nibble};
use crate::ethereum::node::{INLINE_BELOW, NodeRef, Reference, put_branch, put_extension, put_leaf};
use crate::ethereum::proof::ProofNodes;
use crate::hash::Root;
use crate::hash::keccak::keccak256;
use crate::hash::simd::HashBackend;
use crate::hash::simd::keccak::KeccakLanes;

/// Encodings are hashed together as long as they fit this.
const BUFFER_BYTES: usize = 1 << 16;

/// Why parts are no trie, or do not prove a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialTrieError {
    /// A part does not come after the one before it, or is inside it.
    #[error("the part of a trie at {position} does not come after the part before it")]
    Order {
        /// The position of the part.
        position: Nibbles,
    },
    /// A branch would be deeper than a path is long.
    #[error("the branch below {position} is deeper than a path is long")]
    TooDeep {
        /// The position that it was given for.
        position: Nibbles,
    },
    /// The path leads into a subtree of which only the reference is known.
    #[error("path {} leads below {node}, of which only the reference is known", Nibbles::prefix(path, 64))]
    Unknown {
        /// The path to be proven.
        path: KeyPath,
        /// The position of the branch that is known by its reference.
        node: Nibbles,
    },
}

/// A node, made of parts.
#[derive(Debug)]
struct PartNode {
    content: Content,
    /// How the node is named where it is: by the extension above it, if there is one.
    reference: Reference,
}

#[derive(Debug)]
enum Content {
    Leaf {
        path: KeyPath,
        /// Where its value is among those of all leaves.
        value: Range<usize>,
    },
    /// A branch that is known by its reference.
    Known { position: Nibbles, reference: Reference },
    Branch {
        /// The position of the branch itself; what it skips are the last nibbles of it.
        position: Nibbles,
        /// The nibbles and the numbers of the children.
        children: Vec<(u8, u32)>,
        reference: Reference,
    },
}

impl Content {
    /// The position of the part, filled up with zeros, and how much of that is the position.
    fn position(&self) -> (&KeyPath, usize) {
        match self {
            Self::Leaf { path, .. } => (path, PATH_LEN),
            Self::Known { position, .. } | Self::Branch { position, .. } => {
                (position.padded(), position.len())
            }
        }
    }
}

/// Takes the parts of a trie, ascending.
#[derive(Debug, Default)]
pub struct PartialTrieBuilder {
    parts: Vec<Content>,
    /// The values of all leaves.
    values: Vec<u8>,
}

impl PartialTrieBuilder {
    /// A trie without parts so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next leaf of a trie of accounts.
    ///
    /// # Errors
    /// Its path is not after the part before.
    pub fn push_account(&mut self, path: &KeyPath, account: &Account) -> Result<(), PartialTrieError> {
        self.push_leaf(path, |value| account.write_rlp(value))
    }

    /// Takes the next leaf of a storage trie, a big-endian number above zero.
    ///
    /// # Errors
    /// Its path is not after the part before.
    pub fn push_slot(&mut self, path: &KeyPath, value: &[u8; 32]) -> Result<(), PartialTrieError> {
        self.push_leaf(path, |out| put_slot_rlp(out, value))
    }

    /// Takes the next leaf with its value as it stands in the leaf.
    pub(crate) fn push_encoded_leaf(&mut self, path: &KeyPath, value: &[u8]) -> Result<(), PartialTrieError> {
        self.push_leaf(path, |out| out.extend_from_slice(value))
    }

    /// Takes the next node, whichever it is, as the branch above its position has it.
    pub(crate) fn push_child(
        &mut self,
        position: &Nibbles,
        reference: Reference,
    ) -> Result<(), PartialTrieError> {
        self.push(Content::Known { position: *position, reference })
    }

    fn push_leaf(&mut self, path: &KeyPath, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), PartialTrieError> {
        let start = self.values.len();
        put(&mut self.values);
        self.push(Content::Leaf { path: *path, value: start..self.values.len() })
    }

    /// Takes the next branch that is known by its reference, as it was told for a position.
    ///
    /// # Errors
    /// It is not after the part before, or it is deeper than a path is long.
    pub fn push_node(&mut self, position: &Nibbles, node: &NodeRef) -> Result<(), PartialTrieError> {
        let joined = position.join(&node.skipped).filter(|joined| joined.len() < PATH_LEN);
        let joined = joined.ok_or(PartialTrieError::TooDeep { position: *position })?;
        self.push(Content::Known { position: joined, reference: node.reference })
    }

    fn push(&mut self, part: Content) -> Result<(), PartialTrieError> {
        if let Some(last) = self.parts.last() {
            let ((last, len), (next, next_len)) = (last.position(), part.position());
            if next <= last || common_nibbles(last, next) >= len.min(next_len) {
                return Err(PartialTrieError::Order { position: Nibbles::prefix(next, next_len) });
            }
        }
        self.parts.push(part);
        Ok(())
    }

    /// The trie of the parts.
    ///
    /// # Cost
    /// Linear; leaves and branches are hashed by lanes, the deepest first.
    pub fn finish(self, backend: HashBackend) -> PartialTrie {
        let nodes = Vec::with_capacity(self.parts.len() + self.parts.len() / 2);
        let mut trie = PartialTrie { nodes, top: None, values: self.values };
        let mut levels: Vec<Vec<(u32, usize)>> = vec![Vec::new(); PATH_LEN + 1];
        let mut parts: Vec<Option<Content>> = self.parts.into_iter().map(Some).collect();
        if !parts.is_empty() {
            trie.top = Some(trie.build(&mut parts, 0, &mut levels));
        }
        let lanes = KeccakLanes::new(backend);
        for level in levels.iter().rev() {
            trie.hash_all(lanes, level);
        }
        trie
    }
}

/// A part of a trie that has a root and proves the paths of its leaves, and that paths between its parts have none.
#[derive(Debug)]
pub struct PartialTrie {
    nodes: Vec<PartNode>,
    top: Option<u32>,
    values: Vec<u8>,
}

impl PartialTrie {
    /// The root that follows from the parts.
    pub fn root(&self) -> Root {
        let Some(top) = self.top else { return Root(EMPTY_ROOT) };
        let encodings = self.encode(top, 0);
        // A branch that is known by its reference alone, and stands at the top, is named as the root names it.
        match encodings.first() {
            Some(encoding) => Root(keccak256(encoding)),
            None => {
                let reference = self.nodes[top as usize].reference;
                let hash = reference.bytes().first_chunk().copied();
                Root(hash.unwrap_or_else(|| keccak256(reference.bytes())))
            }
        }
    }

    /// The proof of a path, or that it has no leaf, as `eth_getProof` gives it.
    ///
    /// # Errors
    /// The path leads below a branch of which only the reference is known.
    pub fn prove(&self, path: &KeyPath) -> Result<Vec<Vec<u8>>, PartialTrieError> {
        let (mut nodes, mut next, mut depth) = (ProofNodes::new(), self.top, 0);
        while let Some(node) = next {
            let content = &self.nodes[node as usize].content;
            let (position, end) = content.position();
            let is_on_path = common_nibbles(position, path) >= end;
            let encodings = self.encode(node, depth);
            if let Content::Known { position, .. } = content
                && is_on_path
            {
                return Err(PartialTrieError::Unknown { path: *path, node: *position });
            }
            // Beside the path ends what an extension skips: its branch is not part of the proof.
            let is_cut = !is_on_path && encodings.len() == 2;
            encodings.into_iter().take(if is_cut { 1 } else { 2 }).for_each(|encoding| nodes.push(encoding));
            next = match content {
                Content::Branch { children, .. } if is_on_path => {
                    let at = nibble(path, end) as u8;
                    children.iter().find(|(nibble, _)| *nibble == at).map(|(_, child)| *child)
                }
                _ => None,
            };
            depth = end + 1;
        }
        Ok(nodes.finish())
    }

    /// Adds the node of some parts, at least one, at `depth`, and notes on which level each is to be hashed.
    fn build(
        &mut self,
        parts: &mut [Option<Content>],
        depth: usize,
        levels: &mut [Vec<(u32, usize)>],
    ) -> u32 {
        let position = |part: &Option<Content>| *part.as_ref().expect("each part is taken once").position().0;
        let (content, level) = match parts {
            [only] => {
                let content = only.take().expect("each part is taken once");
                (content, depth)
            }
            _ => {
                let (first, last) = (position(&parts[0]), position(&parts[parts.len() - 1]));
                let end = common_nibbles(&first, &last);
                let mut children = Vec::new();
                let at = |part: &Option<Content>| nibble(&position(part), end);
                for group in parts.chunk_by_mut(|a, b| at(a) == at(b)) {
                    let nibble = at(&group[0]) as u8;
                    children.push((nibble, self.build(group, end + 1, levels)));
                }
                let reference = Reference::hash([0; 32]);
                (Content::Branch { position: Nibbles::prefix(&first, end), children, reference }, end)
            }
        };
        let number = u32::try_from(self.nodes.len()).expect("fewer than 2^32 parts");
        self.nodes.push(PartNode { content, reference: Reference::hash([0; 32]) });
        levels[level].push((number, depth));
        number
    }

    /// Hashes nodes, given with the depth of their position, none of which is below another.
    fn hash_all(&mut self, lanes: KeccakLanes, level: &[(u32, usize)]) {
        let (mut bytes, mut ends, mut hashes, mut order) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut rest = level;
        while !rest.is_empty() {
            bytes.clear();
            ends.clear();
            while ends.len() < rest.len() && bytes.len() < BUFFER_BYTES {
                let (node, depth) = rest[ends.len()];
                self.put_own(node, depth, &mut bytes);
                ends.push(bytes.len());
            }
            let message =
                |i: usize| &bytes[i.checked_sub(1).map_or(0, |before: usize| ends[before])..ends[i]];
            hashes.clear();
            hashes.resize(ends.len(), [0; 32]);
            lanes.hash(&mut order, message, &mut hashes);
            for (i, &(node, depth)) in rest[..ends.len()].iter().enumerate() {
                let own = match (&self.nodes[node as usize].content, message(i)) {
                    (Content::Known { reference, .. }, _) => *reference,
                    (_, encoding) if encoding.len() < INLINE_BELOW => Reference::of(encoding),
                    _ => Reference::hash(hashes[i]),
                };
                self.set_reference(node, depth, own);
            }
            rest = &rest[ends.len()..];
        }
    }

    /// Sets the reference of a node itself, from which that of the extension above it follows.
    fn set_reference(&mut self, node: u32, depth: usize, own: Reference) {
        let mut extension = Vec::new();
        self.put_extension(node, depth, &own, &mut extension);
        let node = &mut self.nodes[node as usize];
        if let Content::Branch { reference, .. } = &mut node.content {
            *reference = own;
        }
        node.reference = if extension.is_empty() { own } else { Reference::of(&extension) };
    }

    /// The encodings of a node: that of the extension above it, if there is one, and its own, if that is known.
    fn encode(&self, node: u32, depth: usize) -> Vec<Vec<u8>> {
        let (mut extension, mut own) = (Vec::new(), Vec::new());
        match &self.nodes[node as usize].content {
            Content::Leaf { .. } => {}
            Content::Known { reference, .. } | Content::Branch { reference, .. } => {
                self.put_extension(node, depth, reference, &mut extension);
            }
        }
        self.put_own(node, depth, &mut own);
        [extension, own].into_iter().filter(|encoding| !encoding.is_empty()).collect()
    }

    /// Appends the extension above a branch, where it skips nibbles.
    fn put_extension(&self, node: u32, depth: usize, branch: &Reference, out: &mut Vec<u8>) {
        let content = &self.nodes[node as usize].content;
        let (position, end) = content.position();
        if !matches!(content, Content::Leaf { .. }) && end > depth {
            put_extension(out, position, depth, end, branch);
        }
    }

    /// Appends a leaf, or a branch without the extension above it; nothing where that is not known.
    fn put_own(&self, node: u32, depth: usize, out: &mut Vec<u8>) {
        match &self.nodes[node as usize].content {
            Content::Known { .. } => {}
            Content::Leaf { path, value } => put_leaf(out, path, depth, &self.values[value.clone()]),
            Content::Branch { children, .. } => {
                let (mut mask, mut inlined, mut references) = (0u16, 0u16, Vec::with_capacity(16));
                for (nibble, child) in children {
                    let (bytes, is_inline) = self.nodes[*child as usize].reference.parts();
                    mask |= 1 << nibble;
                    inlined |= u16::from(is_inline) << nibble;
                    references.push(*bytes);
                }
                put_branch(out, mask, inlined, &references);
            }
        }
    }
}
