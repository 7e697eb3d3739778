//! One worker's share of a batch: sort the changes, place the leaves, hash level by level.
//!
//! A worker owns its subtrees while it runs, so it takes no lock; and it owns its buffers for good, so from the
//! second batch on it allocates nothing but what the subtrees grow by and what undo keeps.

use crate::hash::Line;
use crate::hash::simd::Lanes;
use crate::hash::{EMPTY, prefix};
use crate::memory::arena::prefetch;
use crate::memory::subtree::Subtree;
use crate::update::bucket_hasher::{BucketHasher, Target};
use crate::update::dirty_nodes::DirtyNodes;

/// Buckets that are hashed together: enough to fill the lanes at every level, few enough for the second cache.
const TILE_BUCKETS: usize = 512;
/// Changes after which the heaps are brought up to date before the next subtree is begun: what they touched is
/// then still in the second cache, with room for what is asked for meanwhile.
const GROUP_CHANGES: usize = 512;
/// Fewer changes of a subtree than this are never worth building it anew.
const MERGE_LEN_MIN: usize = 16;
/// How much farther ahead entries are asked for than leaves, which cannot be asked for before their entry is there.
pub(crate) const ENTRIES_PER_LEAF_DISTANCE: usize = 4;
/// How many bits one pass of the sort looks at.
const RADIX_BITS: u32 = 11;
/// Below this many changes a comparison sort is faster than the counters of two passes.
const RADIX_LEN_MIN: usize = 256;

/// A change as it is sorted: the first bits of its key hash, and where it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rec {
    pub(crate) prefix: u64,
    pub(crate) index: u32,
}

/// How a worker works; the same for all of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerConfig {
    pub(crate) lanes: Lanes,
    pub(crate) ahead: usize,
    /// Leading key hash bits that name a subtree.
    pub(crate) root_bits: u32,
}

/// Workers are side by side and are written all the time: each has its cache lines to itself, with the neighbouring line that
/// some processors fetch along.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Worker {
    pub(crate) recs: Vec<Rec>,
    sorting: Vec<Rec>,
    counters: Vec<u32>,
    bucket_hasher: BucketHasher,
    dirty_nodes: DirtyNodes,
    merged: Vec<Line>,
    /// For each change what it replaced, ascending by key hash: a buffer of the undo that is being made.
    pub(crate) replaced: Vec<Line>,
    /// The subtrees that changed, ascending.
    pub(crate) touched: Vec<u32>,
    /// Keys added, less keys deleted.
    pub(crate) added: isize,
}

impl Worker {
    /// Sorts `recs` by key hash, repeated keys in the order they were given. All share `skip` leading bits.
    pub(crate) fn sort(&mut self, skip: u32, changes: &[Line]) {
        if self.recs.len() < RADIX_LEN_MIN {
            self.recs.sort_unstable_by(|a, b| order(a, b, changes));
            return;
        }
        for pass in [2, 1] {
            let shift = 64 - (skip + pass * RADIX_BITS).min(64);
            self.radix_pass(shift);
        }
        let shift = 64 - (skip + 2 * RADIX_BITS).min(64);
        for run in self.recs.chunk_by_mut(|a, b| a.prefix >> shift == b.prefix >> shift) {
            if run.len() > 1 {
                run.sort_unstable_by(|a, b| order(a, b, changes));
            }
        }
    }

    fn radix_pass(&mut self, shift: u32) {
        let digit = |rec: &Rec| (rec.prefix >> shift) as usize & ((1 << RADIX_BITS) - 1);
        self.counters.clear();
        self.counters.resize(1 << RADIX_BITS, 0);
        for rec in &self.recs {
            self.counters[digit(rec)] += 1;
        }
        let mut sum = 0;
        for counter in &mut self.counters {
            sum += std::mem::replace(counter, sum);
        }
        self.sorting.resize(self.recs.len(), Rec::default());
        for rec in &self.recs {
            let counter = &mut self.counters[digit(rec)];
            self.sorting[*counter as usize] = *rec;
            *counter += 1;
        }
        std::mem::swap(&mut self.recs, &mut self.sorting);
    }

    /// Forgets what it did of the last batch.
    pub(crate) fn begin(&mut self) {
        self.touched.clear();
        self.added = 0;
    }

    /// Applies the sorted `recs` to the subtrees `first ..`.
    pub(crate) fn run(
        &mut self,
        config: WorkerConfig,
        subtrees: &mut [Subtree],
        first: usize,
        changes: &[Line],
    ) {
        self.replaced.reserve(self.recs.len());
        let recs = std::mem::take(&mut self.recs);
        let mut done = 0;
        let mut group = 0;
        while done < recs.len() {
            let subtree = subtree_of(config, &recs[done]) - first;
            let end = done + run_len(&recs[done..], |rec| subtree_of(config, rec) - first <= subtree);
            let before = subtrees[subtree].len();
            if end - done >= MERGE_LEN_MIN && 2 * (end - done) > before {
                self.merge(config, subtrees, subtree, &recs[done..end], changes);
                group += subtrees[subtree].len();
            } else {
                self.place(config, subtrees, (subtree, first), &recs, done..end, changes);
                group += end - done;
            }
            self.added += subtrees[subtree].len() as isize - before as isize;
            self.touched.push((first + subtree) as u32);
            done = end;
            if group >= GROUP_CHANGES {
                self.finish(config, subtrees);
                group = 0;
            }
        }
        self.finish(config, subtrees);
        self.recs = recs;
    }

    /// Places changes bucket by bucket.
    fn place(
        &mut self,
        config: WorkerConfig,
        subtrees: &mut [Subtree],
        (subtree, first): (usize, usize),
        recs: &[Rec],
        range: std::ops::Range<usize>,
        changes: &[Line],
    ) {
        let mut at = range.start;
        while at < range.end {
            let bucket = subtrees[subtree].bucket_of(recs[at].prefix);
            let mut is_dirty = false;
            while at < range.end && subtrees[subtree].bucket_of(recs[at].prefix) == bucket {
                prefetch_change(config, subtrees, first, recs, at, changes);
                let change = &changes[recs[at].index as usize];
                let is_last = recs.get(at + 1).is_none_or(|next| {
                    next.prefix != recs[at].prefix
                        || changes[next.index as usize].halves[0] != change.halves[0]
                });
                // Of several changes of one key the last counts; they are neighbours in order.
                if is_last {
                    let old = subtrees[subtree].change(bucket, change);
                    if old != change.halves[1] {
                        self.replaced.push(Line { halves: [change.halves[0], old] });
                        is_dirty = true;
                    }
                }
                at += 1;
            }
            if is_dirty {
                self.mark(config, subtrees, subtree, bucket);
            }
        }
        let depth = subtrees[subtree].depth();
        if subtrees[subtree].depth_wanted() != depth {
            self.flush(config, subtrees);
            self.dirty_nodes.forget(subtree, depth);
            let wanted = subtrees[subtree].depth_wanted();
            subtrees[subtree].relocate(wanted, 0);
            self.mark_all(config, subtrees, subtree);
        }
    }

    /// Merges changes that are many beside the leaves there are: the subtree is built anew.
    fn merge(
        &mut self,
        config: WorkerConfig,
        subtrees: &mut [Subtree],
        subtree: usize,
        recs: &[Rec],
        changes: &[Line],
    ) {
        let mut merged = std::mem::take(&mut self.merged);
        merged.clear();
        let mut leaves = subtrees[subtree].iter().peekable();
        for (i, rec) in recs.iter().enumerate() {
            let change = &changes[rec.index as usize];
            let [key, hash] = &change.halves;
            if recs.get(i + 1).is_some_and(|next| changes[next.index as usize].halves[0] == *key) {
                continue;
            }
            while let Some(leaf) = leaves.next_if(|leaf| leaf.halves[0] < *key) {
                merged.push(*leaf);
            }
            let old = leaves.next_if(|leaf| leaf.halves[0] == *key).map_or(EMPTY, |leaf| leaf.halves[1]);
            if old != *hash {
                self.replaced.push(Line { halves: [*key, old] });
            }
            if *hash != EMPTY {
                merged.push(*change);
            }
        }
        merged.extend(leaves);
        subtrees[subtree].replace(&merged);
        self.mark_all(config, subtrees, subtree);
        self.merged = merged;
    }

    fn mark_all(&mut self, config: WorkerConfig, subtrees: &mut [Subtree], subtree: usize) {
        for bucket in 0..subtrees[subtree].bucket_count() {
            self.mark(config, subtrees, subtree, bucket);
        }
    }

    /// Queues a bucket whose leaves changed, and everything above it.
    #[inline]
    fn mark(&mut self, config: WorkerConfig, subtrees: &mut [Subtree], at: usize, bucket: usize) {
        let subtree = &mut subtrees[at];
        let node = subtree.node_of(bucket);
        self.dirty_nodes.mark(at, subtree.depth(), node);
        match subtree.leaves(bucket) {
            [] => subtree.heap_mut().set(node, &EMPTY),
            [leaf] => {
                let hash = leaf.halves[1];
                subtree.heap_mut().set(node, &hash);
            }
            leaves => {
                let target = Target { subtree: at as u32, node: node as u32 };
                self.bucket_hasher.push(target, leaves, subtree.bucket_depth());
                if self.bucket_hasher.len() == TILE_BUCKETS {
                    self.flush(config, subtrees);
                }
            }
        }
    }

    /// What the buffers occupy, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        (self.recs.capacity() + self.sorting.capacity()) * size_of::<Rec>()
            + (self.merged.capacity() + self.replaced.capacity()) * size_of::<Line>()
    }

    fn flush(&mut self, config: WorkerConfig, subtrees: &mut [Subtree]) {
        self.bucket_hasher.flush(config.lanes, |Target { subtree, node }, hash| {
            subtrees[subtree as usize].heap_mut().set(node as usize, hash);
        });
    }

    fn finish(&mut self, config: WorkerConfig, subtrees: &mut [Subtree]) {
        self.flush(config, subtrees);
        self.dirty_nodes.rehash(config.lanes, config.ahead, subtrees);
    }
}

#[inline]
pub(crate) fn subtree_of(config: WorkerConfig, rec: &Rec) -> usize {
    // Two shifts, because a shift by all 64 bits is not one.
    (rec.prefix >> 1 >> (63 - config.root_bits)) as usize
}

/// How many of the first records pass, where none passes after one that does not. Looks no farther than twice as
/// far as that, so that it reads what is about to be used.
fn run_len(recs: &[Rec], pass: impl Fn(&Rec) -> bool) -> usize {
    let mut bound = 1;
    while bound < recs.len() && pass(&recs[bound]) {
        bound *= 2;
    }
    bound / 2 + recs[bound / 2..recs.len().min(bound)].partition_point(pass)
}

/// Asks for what the changes after `at` will touch: first the entry, which says where the leaves are, and
/// when that has come the leaves.
#[inline]
fn prefetch_change(
    config: WorkerConfig,
    subtrees: &[Subtree],
    first: usize,
    recs: &[Rec],
    at: usize,
    changes: &[Line],
) {
    if config.ahead == 0 {
        return;
    }
    if let Some(far) = recs.get(at + ENTRIES_PER_LEAF_DISTANCE * config.ahead) {
        prefetch(changes, far.index as usize);
        subtrees[subtree_of(config, far) - first].prefetch_entry(far.prefix);
    }
    if let Some(near) = recs.get(at + config.ahead) {
        subtrees[subtree_of(config, near) - first].prefetch_leaves(near.prefix);
    }
}

/// By key hash, then in the order given.
fn order(a: &Rec, b: &Rec, changes: &[Line]) -> std::cmp::Ordering {
    let key = |rec: &Rec| &changes[rec.index as usize].halves[0];
    debug_assert_eq!(a.prefix, prefix(key(a)), "a record carries the bits of its change");
    a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))).then(a.index.cmp(&b.index))
}
