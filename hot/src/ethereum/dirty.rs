//! The nodes whose references a batch made stale, and their rehashing, level by level across all tries.

use crate::ethereum::account::slot_rlp;
use crate::ethereum::arena::Arena;
use crate::ethereum::nibbles::PATH_LEN;
use crate::ethereum::node::{INLINE_BELOW, Reference, put_branch, put_extension, put_leaf};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::hash::Hash;
use crate::hash::keccak::blocks;
use crate::hash::simd::HashBackend;
use crate::hash::simd::keccak::KeccakLanes;

/// Encodings are hashed when they fill this: they and what they were made from are still in the first caches.
const BUFFER_BYTES: usize = 1 << 15;

/// Where the reference of a node goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parent {
    /// To the child `nibble` of a branch.
    Branch { branch: Ptr, nibble: u8 },
    /// To root number `index`: it is hashed, however short the node is.
    Root { index: u32 },
}

/// A node, or the extension above one.
#[derive(Clone, Copy, Debug)]
struct Entry {
    node: Ptr,
    parent: Parent,
    /// The nibbles above the node's position.
    depth: u8,
    is_extension: bool,
}

/// The stale references of a batch.
#[derive(Debug)]
pub(crate) struct DirtyNodes {
    lanes: KeccakLanes,
    leaves: Vec<Entry>,
    /// Branches and extensions by the number of nibbles above them: what is deeper is hashed earlier.
    levels: Vec<Vec<Entry>>,
    roots: Vec<Reference>,
    buffer: Buffer,
    /// How many permutations all messages so far took.
    pub(crate) permutations: u64,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Where each message ends, and where its hash goes.
    messages: Vec<(u32, Parent)>,
    hashes: Vec<Hash>,
    order: Vec<u32>,
    value: Vec<u8>,
}

impl DirtyNodes {
    pub(crate) fn new(backend: HashBackend) -> Self {
        Self {
            lanes: KeccakLanes::new(backend),
            leaves: Vec::new(),
            levels: vec![Vec::new(); PATH_LEN + 1],
            roots: Vec::new(),
            buffer: Buffer::default(),
            permutations: 0,
        }
    }

    /// Notes that a node at `depth` is to be hashed; its skip is final.
    pub(crate) fn mark(&mut self, arena: &Arena, node: Ptr, parent: Parent, depth: usize) {
        let entry = Entry { node, parent, depth: depth as u8, is_extension: false };
        if node.kind() != Kind::Branch {
            self.leaves.push(entry);
            return;
        }
        let skip = usize::from(arena.branch(node).head.skip);
        self.levels[depth + skip].push(entry);
        if skip > 0 {
            self.levels[depth].push(Entry { is_extension: true, ..entry });
        }
    }

    /// Notes that the node at the top of a trie is to be hashed, and gives the number of its root.
    pub(crate) fn mark_root(&mut self, arena: &Arena, node: Ptr) -> usize {
        let index = self.roots.len();
        self.roots.push(Reference::hash([0; 32]));
        self.mark(arena, node, Parent::Root { index: index as u32 }, 0);
        index
    }

    /// Hashes all that was noted and gives the roots in the order they were noted.
    pub(crate) fn rehash(&mut self, arena: &mut Arena) -> Vec<Hash> {
        let mut leaves = std::mem::take(&mut self.leaves);
        self.hash_all(arena, &leaves);
        leaves.clear();
        self.leaves = leaves;
        for depth in (0..=PATH_LEN).rev() {
            if !self.levels[depth].is_empty() {
                let mut level = std::mem::take(&mut self.levels[depth]);
                self.hash_all(arena, &level);
                level.clear();
                self.levels[depth] = level;
            }
        }
        let hash = |root: Reference| *root.bytes().first_chunk().expect("the top of a trie is hashed");
        self.roots.drain(..).map(hash).collect()
    }

    /// Hashes nodes none of which is below another.
    fn hash_all(&mut self, arena: &mut Arena, entries: &[Entry]) {
        for entry in entries {
            let start = self.buffer.bytes.len();
            self.encode(arena, entry);
            let encoding = &self.buffer.bytes[start..];
            let is_top = match entry.parent {
                Parent::Branch { .. } => false,
                Parent::Root { .. } => {
                    let is_branch = entry.node.kind() == Kind::Branch;
                    !is_branch || entry.is_extension || arena.branch(entry.node).head.skip == 0
                }
            };
            if encoding.len() < INLINE_BELOW && !is_top {
                match entry.parent {
                    Parent::Branch { branch, nibble } => {
                        arena.set_inline(branch, usize::from(nibble), encoding);
                    }
                    Parent::Root { index } => self.roots[index as usize] = Reference::of(encoding),
                }
                self.buffer.bytes.truncate(start);
                continue;
            }
            self.buffer.messages.push((self.buffer.bytes.len() as u32, entry.parent));
            if self.buffer.bytes.len() >= BUFFER_BYTES {
                self.flush(arena);
            }
        }
        self.flush(arena);
    }

    /// Appends the encoding of a node to the buffer.
    fn encode(&mut self, arena: &Arena, entry: &Entry) {
        let (depth, buffer) = (usize::from(entry.depth), &mut self.buffer);
        if entry.is_extension {
            let end = depth + usize::from(arena.branch(entry.node).head.skip);
            let branch = match entry.parent {
                Parent::Branch { branch, nibble } => arena.reference(branch, usize::from(nibble)),
                Parent::Root { index } => self.roots[index as usize],
            };
            put_extension(&mut buffer.bytes, &arena.path_below(entry.node), depth, end, &branch);
        } else {
            put_node(arena, entry.node, depth, &mut buffer.value, &mut buffer.bytes);
        }
    }

    fn flush(&mut self, arena: &mut Arena) {
        let Buffer { bytes, messages, hashes, order, .. } = &mut self.buffer;
        hashes.clear();
        hashes.resize(messages.len(), [0; 32]);
        let message = |i: usize| {
            let start = i.checked_sub(1).map_or(0, |before| messages[before].0);
            &bytes[start as usize..messages[i].0 as usize]
        };
        self.permutations += (0..messages.len()).map(|i| blocks(message(i).len()) as u64).sum::<u64>();
        self.lanes.hash(order, message, hashes);
        for ((_, parent), hash) in messages.iter().zip(hashes.iter()) {
            match parent {
                Parent::Branch { branch, nibble } => arena.set_hash(*branch, usize::from(*nibble), hash),
                Parent::Root { index } => self.roots[*index as usize] = Reference::hash(*hash),
            }
        }
        messages.clear();
        bytes.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        let entries: usize = self.levels.iter().map(Vec::capacity).sum::<usize>() + self.leaves.capacity();
        entries * size_of::<Entry>() + self.buffer.bytes.capacity()
    }
}

/// Appends the encoding of a leaf at `depth`, or of a branch, the extension above it left out. `value` is room for the
/// value of a leaf.
pub(crate) fn put_node(arena: &Arena, node: Ptr, depth: usize, value: &mut Vec<u8>, out: &mut Vec<u8>) {
    value.clear();
    match node.kind() {
        Kind::Nothing => {}
        Kind::Collapsed => unreachable!("the parent has the reference of a group"),
        Kind::Branch => {
            let branch = arena.branch(node);
            put_branch(out, branch.head.mask, branch.head.inlined, branch.references);
        }
        Kind::Slot => put_leaf(out, arena.path(node), depth, &slot_rlp(&arena.slot_value(node))),
        Kind::Account => {
            arena.account(node).account().write_rlp(value);
            put_leaf(out, arena.path(node), depth, value);
        }
    }
}
