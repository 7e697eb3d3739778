//! The tree: the one mutating entry point, the split between workers, and the levels above the subtrees.

pub(crate) mod batch;
pub(crate) mod dirty_keys;
pub(crate) mod loader;
pub(crate) mod prove;
pub(crate) mod undo;

use std::sync::Arc;

use crate::hash::Line;
use crate::hash::simd::{HashBackend, LANES, Lanes};
use crate::hash::{Root, prefix};
use crate::memory::arena::{Lines, Pool};
use crate::memory::heap::Heap;
use crate::memory::stage::Stage;
use crate::memory::subtree::Subtree;
use crate::options::Options;
use crate::tree::batch::Batch;
use crate::tree::undo::{Spares, Undo};
use crate::update::dirty_nodes::{DirtyNodes, Heaps};
use crate::update::pool::WorkerPool;
use crate::update::worker::{Rec, Worker, WorkerConfig, subtree_of};

/// The most changes of a share, on average: sorted and placed together, they and what says where they are are in the
/// second cache.
const SHARE_LEN_MAX: usize = 4096;
/// The fewest where threads split a batch: for less than two of these it takes longer to wake another thread.
const SHARE_LEN_MIN: usize = 512;
/// Shares per thread: a thread that starts late or is interrupted holds up the rest for one share at most.
const SHARES_PER_THREAD: usize = 16;

/// The compact sparse Merkle tree of the whole latest state, in memory.
///
/// `Send` and `Sync`: many may read or prove, one may write.
#[derive(Debug)]
pub struct HotTree {
    options: Options,
    pool: Arc<Pool>,
    worker_pool: WorkerPool,
    subtrees: Vec<Subtree>,
    top: Heap,
    len: u64,
    scratch: Scratch,
    spares: Arc<Spares>,
}

/// Buffers that are kept from batch to batch.
#[derive(Debug, Default)]
struct Scratch {
    /// On huge pages too: the sorted changes are read in the order of their hashes, which is at random.
    changes: Lines,
    parts: Vec<Part>,
    workers: Vec<Worker>,
    dirty_nodes: DirtyNodes,
}

/// A run of the changes, split by the worker that each goes to.
#[derive(Debug, Default)]
struct Part {
    shares: Vec<Vec<Rec>>,
}

/// What the tree occupies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Leaves: 64 bytes each.
    pub leaves: u64,
    /// Sibling pairs above the buckets, and above the subtrees.
    pub nodes: u64,
    /// Bucket entries, and room in buckets and slabs that no leaf occupies.
    pub spare: u64,
    /// Mapped and not cut into runs.
    pub free: u64,
    /// Buffers kept for the next batch.
    pub buffers: u64,
    /// The number of keys.
    pub keys: u64,
    /// Whether the system took the wish for 2 MiB pages for every map so far.
    pub huge_pages: bool,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.leaves + self.nodes + self.spare + self.free + self.buffers
    }

    /// Bytes per key, buffers left out: they follow the size of the batches and not that of the tree.
    pub fn bytes_per_key(&self) -> f64 {
        (self.total() - self.buffers) as f64 / self.keys.max(1) as f64
    }
}

/// The levels above the subtrees, whose roots are the nodes at the bottom.
struct Top<'a> {
    heap: &'a mut Heap,
    subtrees: &'a [Subtree],
}

impl Heaps for Top<'_> {
    fn heap(&self, _: usize) -> &Heap {
        self.heap
    }

    fn heap_mut(&mut self, _: usize) -> &mut Heap {
        self.heap
    }

    fn is_leaf_below(&self, _: usize, node: usize) -> bool {
        self.subtrees[node - self.subtrees.len()].len() == 1
    }
}

impl HotTree {
    /// The tree of the state without keys.
    ///
    /// # Cost
    /// Some hundred bytes per subtree; threads are started when a batch first needs them.
    pub fn new(options: Options) -> Self {
        let pool = Pool::new(options.huge_pages);
        let (count, bits) = (options.subtree_roots.count(), options.subtree_roots.bits());
        // The share is the index with its bits reversed, so that neighbours grow far apart.
        let share = |i: usize| ((i as u64).reverse_bits() >> 11) as f64 / (1u64 << 53) as f64;
        let subtrees = (0..count).map(|i| Subtree::new(&pool, &options, share(i))).collect();
        let top = Heap::new(&pool, options.radix_shape, 0, bits);
        let worker_pool = WorkerPool::new(options.parallelism);
        let (scratch, spares) = (Scratch::default(), Arc::default());
        Self { options, pool, worker_pool, subtrees, top, len: 0, scratch, spares }
    }

    /// The commitment to the present state.
    pub fn root(&self) -> Root {
        Root(*self.top.get(1))
    }

    /// The number of keys.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The options the tree was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The instructions that hash on this CPU.
    pub fn hash_backend(&self) -> HashBackend {
        self.options.hash_backend.resolve()
    }

    /// Applies the changes of a block and returns the new root, and what takes them back.
    ///
    /// # Cost
    /// Proportional to the changes: three hashes for key, value and leaf, some three in the leaf's bucket, one per
    /// level above as far as the batch does not share it. A subtree that is full is rebuilt, a few milliseconds.
    pub fn apply(&mut self, batch: &Batch) -> (Root, Undo) {
        self.change(batch.len(), |lanes, from, out| batch.hash(lanes, from, out))
    }

    /// Takes back the last batch that was applied and not yet undone, and returns the root before it.
    ///
    /// # Cost
    /// Proportional to what the batch changed.
    ///
    /// An undo of another state is not detected: its keys get the leaves they had before its batch.
    #[expect(clippy::needless_pass_by_value, reason = "an undo is used up: it fits no other state")]
    pub fn undo(&mut self, undo: Undo) -> Root {
        self.change(undo.len(), |_, from, out| undo.copy(from, out)).0
    }

    /// Takes back several batches, the newest first, and returns the root before the last of them.
    ///
    /// # Cost
    /// Small batches are taken back together: a key that many of them changed costs once, and so does the path above it.
    pub fn undo_all(&mut self, newest_first: impl IntoIterator<Item = Undo>) -> Root {
        let (mut joined, mut len) = (Undo::default(), 0);
        for undo in newest_first {
            if len > 0 && len + undo.len() > SHARE_LEN_MAX {
                self.undo(std::mem::take(&mut joined));
                len = 0;
            }
            len += undo.len();
            joined.append(undo);
        }
        self.undo(joined)
    }

    /// What the tree occupies.
    pub fn memory(&self) -> Memory {
        let pool = self.pool.bytes();
        let mut memory = Memory {
            leaves: 0,
            nodes: self.top.bytes() as u64,
            spare: 0,
            free: pool.free as u64,
            buffers: (self.scratch.bytes() + self.spares.bytes()) as u64,
            keys: self.len,
            huge_pages: pool.huge,
        };
        for subtree in &self.subtrees {
            let (heap, leaves, spare) = subtree.bytes();
            memory.nodes += heap as u64;
            memory.leaves += leaves as u64;
            memory.spare += spare as u64;
        }
        memory
    }

    pub(crate) fn subtrees(&self) -> &[Subtree] {
        &self.subtrees
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The changes that were applied last, hashed, in the order they were given. What is after them is older.
    pub(crate) fn hashed(&self) -> &[Line] {
        &self.scratch.changes
    }

    pub(crate) fn top(&self) -> &Heap {
        &self.top
    }

    /// Replaces the leaves of all subtrees: `stages[i]` holds those of subtree `i`, in the order they were given.
    pub(crate) fn fill(&mut self, stages: Vec<Stage>) {
        let config = self.worker_config();
        // Not the workers of the scratch: their buffers would stay as large as a subtree.
        let mut workers: Vec<Worker> =
            std::iter::repeat_with(Worker::default).take(self.worker_pool.len()).collect();
        let items = self.subtrees.iter_mut().zip(stages).enumerate();
        self.worker_pool.for_each(&mut workers, items, |worker, (i, (subtree, stage))| {
            let leaves = stage.into_leaves();
            let index = |k: usize| u32::try_from(k).expect("a subtree has fewer than 2^32 leaves");
            let rec = |(k, leaf): (usize, &Line)| Rec { prefix: prefix(&leaf.halves[0]), index: index(k) };
            worker.recs.clear();
            worker.recs.extend(leaves.iter().enumerate().map(rec));
            worker.sort(config.root_bits, &leaves);
            worker.replaced.clear();
            worker.run(config, std::slice::from_mut(subtree), i, &leaves);
        });
        self.count(&workers);
        let all: Vec<u32> = (0..self.subtrees.len() as u32).collect();
        self.rehash(&all);
    }

    fn worker_config(&self) -> WorkerConfig {
        WorkerConfig {
            lanes: Lanes::new(self.options.hash_backend),
            ahead: self.options.prefetch.distance(),
            root_bits: self.options.subtree_roots.bits(),
        }
    }

    /// Into how many shares a batch is split: a power of two, so that a share is a range of leading bits.
    fn shares(&self, changes: usize) -> usize {
        let for_threads = match self.worker_pool.len() {
            1 => 1,
            threads => (threads * SHARES_PER_THREAD).min(changes / SHARE_LEN_MIN),
        };
        for_threads.max(changes / SHARE_LEN_MAX).max(1).next_power_of_two().min(self.subtrees.len())
    }

    /// Adds what the workers added to the number of keys.
    fn count(&mut self, workers: &[Worker]) {
        let added: isize = workers.iter().map(|worker| worker.added).sum();
        self.len = self.len.checked_add_signed(added as i64).expect("a tree has no fewer than zero keys");
    }

    /// Applies `len` changes; `write` gives those from a number on, hashed.
    fn change(
        &mut self,
        len: usize,
        write: impl Fn(Lanes, usize, &mut [Line]) + Sync + Send,
    ) -> (Root, Undo) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (shares, config) = (self.shares(len), self.worker_config());
        if scratch.changes.len() < len {
            scratch.changes = Lines::default();
            scratch.changes = self.pool.lines(len.next_power_of_two());
        }
        // Hashed in runs of whole lanes: one, or as many as there would be shares for the threads.
        let threads = self.worker_pool.len();
        let runs = if threads == 1 { 1 } else { shares.min(threads * SHARES_PER_THREAD) };
        let run_len = len.div_ceil(runs).max(1).next_multiple_of(LANES);
        scratch.parts.resize_with(len.div_ceil(run_len), Part::default);
        scratch.workers.resize_with(threads, Worker::default);
        let runs = scratch.changes[..len].chunks_mut(run_len).zip(&mut scratch.parts).enumerate();
        self.worker_pool.for_each(&mut scratch.workers, runs, |_, (i, (out, part))| {
            write(config.lanes, i * run_len, out);
            part.fill(config, shares, i * run_len, out);
        });
        self.run(scratch, shares)
    }

    /// Applies the changes that are in the scratch, split into `shares`.
    fn run(&mut self, mut scratch: Scratch, shares: usize) -> (Root, Undo) {
        let mut replaced = self.spares.take(shares);
        let config = self.worker_config();
        let per_share = self.subtrees.len() / shares;
        let (changes, parts) = (&scratch.changes, &scratch.parts);
        scratch.workers.iter_mut().for_each(Worker::begin);
        let items = self.subtrees.chunks_mut(per_share).zip(&mut replaced).enumerate();
        self.worker_pool.for_each(&mut scratch.workers, items, |worker, (i, (subtrees, replaced))| {
            worker.recs.clear();
            for part in parts {
                worker.recs.extend_from_slice(&part.shares[i]);
            }
            worker.sort(shares.trailing_zeros(), changes);
            std::mem::swap(&mut worker.replaced, replaced);
            worker.run(config, subtrees, i * per_share, changes);
            std::mem::swap(&mut worker.replaced, replaced);
        });
        self.count(&scratch.workers);
        let mut touched: Vec<u32> =
            scratch.workers.iter().flat_map(|worker| &worker.touched).copied().collect();
        touched.sort_unstable();
        self.scratch = scratch;
        self.rehash(&touched);
        (self.root(), Undo { replaced, spares: Arc::clone(&self.spares) })
    }

    /// Brings the levels above the given subtrees, ascending, up to date.
    fn rehash(&mut self, touched: &[u32]) {
        let (count, bits) = (self.subtrees.len(), self.options.subtree_roots.bits());
        for &subtree in touched {
            let node = count + subtree as usize;
            self.top.set(node, self.subtrees[subtree as usize].root());
            self.scratch.dirty_nodes.mark(0, bits, node);
        }
        let config = self.worker_config();
        let mut top = Top { heap: &mut self.top, subtrees: &self.subtrees };
        self.scratch.dirty_nodes.rehash(config.lanes, 0, &mut top);
    }
}

impl Part {
    /// Sorts hashed changes, the first of which is number `from`, by the share that each goes to.
    fn fill(&mut self, config: WorkerConfig, shares: usize, from: usize, changes: &[Line]) {
        self.shares.iter_mut().for_each(Vec::clear);
        self.shares.resize_with(shares, Vec::new);
        let shift = config.root_bits - shares.trailing_zeros();
        for (i, change) in changes.iter().enumerate() {
            let index = u32::try_from(from + i).expect("a batch has fewer than 2^32 changes");
            let rec = Rec { prefix: prefix(&change.halves[0]), index };
            self.shares[subtree_of(config, &rec) >> shift].push(rec);
        }
    }
}

impl Scratch {
    fn bytes(&self) -> usize {
        let recs: usize = self
            .parts
            .iter()
            .flat_map(|part| &part.shares)
            .map(|recs| recs.capacity() * size_of::<Rec>())
            .sum();
        let workers: usize = self.workers.iter().map(Worker::bytes).sum();
        self.changes.len() * size_of::<Line>() + recs + workers
    }
}
