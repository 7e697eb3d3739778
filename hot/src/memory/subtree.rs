//! One subtree: leaves in small sorted buckets, and above the buckets a dense heap of sibling pairs.
//!
//! ```text
//!   heap:    node 1 is the root of the subtree; node i has its children 2i and 2i + 1 in one line
//!   buckets: nodes 2^depth .. 2^(depth + 1); the few inner nodes inside a bucket are computed, not kept
//!   slab:    [ leaf leaf .  .  | leaf leaf leaf . | ... ]   a leaf is a line: key hash, leaf hash
//! ```
//!
//! The slab is a list of blocks of one size, so that a subtree grows block by block without copying, and what one
//! subtree gives back fits any other. Leaves are copied only when a level is added, or when the slots that were
//! given back but fit nobody are an eighth of the slab.
//!
//! Invariants:
//! - `H1`: a bucket's leaves are in a row, ascending by key hash, in `capacity(len)` lines of the slab.
//! - `H2`: node `2^depth + b` is the canonical hash of bucket `b`; every other node that of its two children:
//!   empty when both are, the one leaf when there is but one below, else `BLAKE3(left || right)`.
//! - `H3`: the depth follows from the number of leaves alone, so an adversary who mines keys that share bits
//!   makes long buckets and not deep heaps.
//!
//! `H2` makes the root a function of the leaves, whatever the depth: a node's hash does not say whether it was
//! kept or computed.

use std::sync::Arc;

use crate::hash::Line;
use crate::hash::{EMPTY, Hash, prefix};
use crate::memory::arena::{Bucket, Entries, Lines, Pool, prefetch, prefetch_element};
use crate::memory::heap::Heap;
use crate::options::{Options, RadixShape};

/// Leaves per bucket at which the first subtree grows; the last one at twice as many, see [`Subtree::new`].
const LEAVES_PER_BUCKET: f64 = 2.0;
/// Free slots up to this many lines are kept for reuse; larger ones wait for the next relocation.
const REUSED_LINES_MAX: usize = 64;
/// The lines of a block, as a power of two: 32 KiB, of which a subtree wastes half on average.
const BLOCK_BITS: u32 = 9;
pub(crate) const BLOCK: usize = 1 << BLOCK_BITS;
/// The levels of the heap that are asked for with the leaves.
const HEAP_LEVELS_AHEAD: u32 = 3;
/// The leaves of a bucket that are asked for in any case, and at most.
const LEAVES_AHEAD: usize = 4;
const LEAVES_AHEAD_MAX: usize = 12;
/// A subtree is copied together when one line in this many is free.
const FREE_SHARE: usize = 8;

#[derive(Debug)]
pub(crate) struct Subtree {
    pool: Arc<Pool>,
    /// How many leading bits of a key hash are spent on naming the subtree.
    root_bits: u32,
    /// Leaves per bucket beyond which a level is added.
    fill: f64,
    len: usize,
    /// As deep as there are bits that name a bucket.
    heap: Heap,
    shape: RadixShape,
    buckets: Entries,
    slab: Slab,
}

/// The blocks that hold the leaves, and what is free in them.
#[derive(Debug, Default)]
struct Slab {
    /// Each of `BLOCK` lines, but that the only one of a small subtree is shorter, and one that holds nothing
    /// but the leaves of one long bucket is longer. Line `l` of block `b` is known as `b * BLOCK + l`.
    blocks: Vec<Lines>,
    /// Lines used of the last block.
    used: usize,
    /// Free slots, by their length in lines.
    free: Vec<Vec<u32>>,
    free_lines: usize,
    lines: usize,
}

impl Slab {
    #[inline]
    fn get(&self, Bucket { start, len }: Bucket) -> &[Line] {
        if len == 0 {
            return &[];
        }
        let at = start as usize % BLOCK;
        &self.blocks[start as usize >> BLOCK_BITS][at..at + len as usize]
    }

    #[inline]
    fn get_mut(&mut self, Bucket { start, len }: Bucket) -> &mut [Line] {
        if len == 0 {
            return &mut [];
        }
        let at = start as usize % BLOCK;
        &mut self.blocks[start as usize >> BLOCK_BITS][at..at + len as usize]
    }

    /// A slot of `lines`, in a new block if need be.
    fn slot(&mut self, pool: &Arc<Pool>, lines: usize) -> usize {
        if let Some(start) = self.free.get_mut(lines).and_then(Vec::pop) {
            self.free_lines -= lines;
            // The next one to be handed out was given back long ago: its lines take as long to come as any.
            if let Some(&next) = self.free[lines].last() {
                for leaf in self.get(Bucket { start: next, len: lines as u32 }) {
                    prefetch_element(leaf);
                }
            }
            return start as usize;
        }
        if self.blocks.last().is_none_or(|block| self.used + lines > block.len()) {
            // What is left of the last block is free too, though in no list.
            self.free_lines += self.blocks.last().map_or(0, |block| block.len() - self.used);
            self.add_block(pool, lines.max(BLOCK));
        }
        self.used += lines;
        (self.blocks.len() - 1) * BLOCK + self.used - lines
    }

    fn add_block(&mut self, pool: &Arc<Pool>, lines: usize) {
        self.blocks.push(pool.lines(lines));
        self.lines += lines;
        self.used = 0;
    }

    fn release(&mut self, start: usize, lines: usize) {
        self.free_lines += lines;
        if (1..=REUSED_LINES_MAX).contains(&lines) {
            if self.free.is_empty() {
                self.free.resize(REUSED_LINES_MAX + 1, Vec::new());
            }
            self.free[lines].push(start as u32);
        }
    }

    /// Copies leaves to another slot.
    fn copy(&mut self, from: Bucket, to: usize) {
        let (block, to_block) = (from.start as usize >> BLOCK_BITS, to >> BLOCK_BITS);
        let (at, len, to) = (from.start as usize % BLOCK, from.len as usize, to % BLOCK);
        match self.blocks.get_disjoint_mut([block, to_block]) {
            Ok([source, target]) => target[to..to + len].copy_from_slice(&source[at..at + len]),
            Err(_) => self.blocks[block].copy_within(at..at + len, to),
        }
    }

    /// Whether a slot of `lines` can be had without another block.
    fn has_room(&self, lines: usize) -> bool {
        self.free.get(lines).is_some_and(|slots| !slots.is_empty())
            || self.blocks.last().is_some_and(|block| self.used + lines <= block.len())
    }
}

/// The lines that a bucket of `len` leaves occupies: as many up to 16, then steps of an eighth.
fn capacity(len: usize) -> usize {
    if len <= 16 { len } else { len.next_multiple_of(len.next_power_of_two() / 8) }
}

impl Subtree {
    /// An empty subtree. `share` in `0.0..1.0` spreads growth: subtrees with different shares add their
    /// levels at different sizes, so that they never all grow in the same batch.
    pub(crate) fn new(pool: &Arc<Pool>, options: &Options, share: f64) -> Self {
        let (root_bits, shape) = (options.subtree_roots.bits(), options.radix_shape);
        Self {
            pool: Arc::clone(pool),
            root_bits,
            fill: LEAVES_PER_BUCKET * share.exp2(),
            len: 0,
            heap: Heap::new(pool, shape, root_bits, 0),
            shape,
            buckets: Entries::new(pool, 1),
            slab: Slab::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn depth(&self) -> u32 {
        self.heap.depth()
    }

    /// The bits of a key hash above the leaves of a bucket.
    pub(crate) fn bucket_depth(&self) -> u32 {
        self.root_bits + self.depth()
    }

    #[inline]
    pub(crate) fn bucket_of(&self, prefix: u64) -> usize {
        // Two shifts, because a shift by all 64 bits is not one.
        ((prefix << self.root_bits) >> 1 >> (63 - self.depth())) as usize
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(crate) fn heap_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }

    /// The heap node of a bucket.
    #[inline]
    pub(crate) fn node_of(&self, bucket: usize) -> usize {
        (1 << self.depth()) + bucket
    }

    pub(crate) fn root(&self) -> &Hash {
        self.heap.get(1)
    }

    #[inline]
    pub(crate) fn leaves(&self, bucket: usize) -> &[Line] {
        self.slab.get(self.buckets[bucket])
    }

    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// All leaves, ascending by key hash.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Line> {
        (0..self.buckets.len()).flat_map(|bucket| self.leaves(bucket))
    }

    /// Asks for the entry of the bucket that `prefix` falls into.
    #[inline]
    pub(crate) fn prefetch_entry(&self, prefix: u64) {
        prefetch(&self.buckets, self.bucket_of(prefix));
    }

    /// Asks for the leaves of the bucket that `prefix` falls into, and for its place in the heap with the levels
    /// next above, which few other changes of the batch share.
    #[inline]
    pub(crate) fn prefetch_leaves(&self, prefix: u64) {
        let bucket = self.bucket_of(prefix);
        let leaves = self.leaves(bucket);
        // How many leaves there are cannot be guessed, so the first lines are asked for without a branch. A bucket
        // of mined keys can be long; the lines after those are not worth a hint.
        if let Some(last) = leaves.len().checked_sub(1) {
            for i in 0..LEAVES_AHEAD {
                prefetch_element(&leaves[i.min(last)]);
            }
            leaves.iter().take(LEAVES_AHEAD_MAX).skip(LEAVES_AHEAD).for_each(prefetch_element);
        }
        let node = self.node_of(bucket);
        for above in 1..=HEAP_LEVELS_AHEAD {
            self.heap.prefetch(node >> above);
        }
    }

    /// Puts a leaf (or, with an empty leaf hash, deletes it) and returns the leaf hash that it replaced,
    /// empty when there was none. The heap is left as it was.
    #[inline]
    pub(crate) fn change(&mut self, bucket: usize, change: &Line) -> Hash {
        let leaves = self.slab.get_mut(self.buckets[bucket]);
        let wanted = prefix(&change.halves[0]);
        // Counting without a branch: where a random key falls cannot be guessed.
        let mut at: usize = leaves.iter().map(|leaf| usize::from(prefix(&leaf.halves[0]) < wanted)).sum();
        // Leaves that share 64 bits with the change, the same key aside, are compared in full.
        while leaves.get(at).is_some_and(|leaf| {
            prefix(&leaf.halves[0]) == wanted
                && leaf.halves[0] != change.halves[0]
                && leaf.halves[0] < change.halves[0]
        }) {
            at += 1;
        }
        match leaves.get_mut(at) {
            Some(leaf) if leaf.halves[0] == change.halves[0] => {
                let replaced = leaf.halves[1];
                if change.halves[1] == EMPTY {
                    leaves.copy_within(at + 1.., at);
                    self.shrink_bucket(bucket);
                } else {
                    leaf.halves[1] = change.halves[1];
                }
                replaced
            }
            _ => {
                if change.halves[1] != EMPTY {
                    self.insert(bucket, at, change);
                }
                EMPTY
            }
        }
    }

    fn insert(&mut self, bucket: usize, at: usize, leaf: &Line) {
        let len = self.buckets[bucket].len as usize;
        if len == capacity(len) {
            self.move_bucket(bucket);
        }
        let entry = &mut self.buckets[bucket];
        entry.len += 1;
        let leaves = self.slab.get_mut(*entry);
        leaves.copy_within(at..len, at + 1);
        leaves[at] = *leaf;
        self.len += 1;
    }

    /// Gives a full bucket a slot for one leaf more.
    fn move_bucket(&mut self, bucket: usize) {
        let len = self.buckets[bucket].len as usize;
        let wanted = capacity(len + 1);
        if !self.slab.has_room(wanted) {
            let is_small = self.slab.lines < BLOCK;
            if is_small || self.slab.free_lines > self.slab.lines / FREE_SHARE {
                self.relocate(self.depth(), wanted);
            }
        }
        let to = self.slab.slot(&self.pool, wanted);
        let from = self.buckets[bucket];
        self.buckets[bucket].start = u32::try_from(to).expect("a subtree has fewer than 2^32 lines");
        if len > 0 {
            self.slab.copy(from, to);
            self.slab.release(from.start as usize, capacity(len));
        }
    }

    /// Takes the last leaf off a bucket and gives back the lines it no longer needs.
    fn shrink_bucket(&mut self, bucket: usize) {
        let entry = &mut self.buckets[bucket];
        entry.len -= 1;
        self.len -= 1;
        let (start, len) = (entry.start as usize, entry.len as usize);
        let (had, kept) = (capacity(len + 1), capacity(len));
        if kept < had {
            self.slab.release(start + kept, had - kept);
        }
    }

    /// The depth for the present number of leaves: kept while it is about right, so that a few changes back
    /// and forth do not grow and shrink a subtree again and again.
    pub(crate) fn depth_wanted(&self) -> u32 {
        let fitting = self.depth_for(self.len);
        if fitting > self.depth() || fitting + 1 < self.depth() { fitting } else { self.depth() }
    }

    fn depth_for(&self, len: usize) -> u32 {
        (len as f64 / self.fill).log2().ceil().max(0.0) as u32
    }

    /// Moves the leaves to a new slab, ordered by bucket of `depth`, with room for `extra` lines at least.
    ///
    /// With another depth than before the heap is empty afterwards and must be computed.
    pub(crate) fn relocate(&mut self, depth: u32, extra: usize) {
        let old_slab = std::mem::take(&mut self.slab);
        let old_buckets = std::mem::take(&mut self.buckets);
        let leaves = old_buckets.iter().flat_map(|bucket| old_slab.get(*bucket));
        self.fill_slab(depth, extra, leaves);
    }

    /// Replaces all leaves, which must be ascending by key hash; the heap must be computed afterwards.
    pub(crate) fn replace(&mut self, sorted: &[Line]) {
        self.slab = Slab::default();
        self.len = sorted.len();
        self.fill_slab(self.depth_wanted(), 0, sorted.iter());
    }

    fn fill_slab<'a>(&mut self, depth: u32, extra: usize, sorted: impl Iterator<Item = &'a Line> + Clone) {
        if depth != self.depth() {
            let heap = |depth| Heap::new(&self.pool, self.shape, self.root_bits, depth);
            // The old one is given back first: the new one may fit in its place.
            self.heap = heap(0);
            self.heap = heap(depth);
        }
        let mut buckets = Entries::new(&self.pool, 1 << depth);
        let mut lines = extra;
        for leaf in sorted.clone() {
            let len = &mut buckets[self.bucket_of(prefix(&leaf.halves[0]))].len;
            lines += capacity(*len as usize + 1) - capacity(*len as usize);
            *len += 1;
        }
        let mut slab = Slab::default();
        if lines < BLOCK {
            // A small subtree gets one short block, most of which it uses.
            let step = lines.next_power_of_two().min(BLOCK / 8);
            slab.add_block(&self.pool, lines.next_multiple_of(step));
        }
        let mut sorted = sorted;
        for bucket in buckets.iter_mut().filter(|bucket| bucket.len > 0) {
            let start = slab.slot(&self.pool, capacity(bucket.len as usize));
            bucket.start = u32::try_from(start).expect("a subtree has fewer than 2^32 lines");
            let slot = slab.get_mut(*bucket).iter_mut();
            slot.zip(&mut sorted).for_each(|(line, leaf)| *line = *leaf);
        }
        self.slab = slab;
        self.buckets = buckets;
    }

    /// Bytes by purpose: heap, leaves in use, everything else.
    pub(crate) fn bytes(&self) -> (usize, usize, usize) {
        let slab = &self.slab;
        let lists: usize = slab.free.iter().map(|slots| slots.capacity() * 4 + size_of::<Vec<u32>>()).sum();
        let heap = self.heap.bytes();
        let leaves = self.len * size_of::<Line>();
        let spare = slab.lines * size_of::<Line>() - leaves;
        let entries = self.buckets.bytes();
        let blocks = slab.blocks.capacity() * size_of::<Lines>();
        (heap, leaves, spare + lists + entries + blocks + size_of::<Self>())
    }
}
