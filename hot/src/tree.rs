//! The tree: the one mutating entry point, the split between workers, and the levels above the subtrees.

use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::arena::{Line, Lines, Pool};
use crate::batch::Batch;
use crate::hash::{KeyHash, Root, prefix};
use crate::heap::Heap;
use crate::levels::{Heaps, Levels};
use crate::load::Stage;
use crate::options::{Options, Parallelism};
use crate::path::PathProof;
use crate::simd::{HashBackend, Lanes};
use crate::subtree::Subtree;
use crate::undo::{Spares, Undo};
use crate::worker::{Means, Rec, Worker, subtree_of};

/// Batches below this are done by the calling thread: waking the others takes longer.
const PARALLEL_LEN_MIN: usize = 2048;
/// Shares per thread: more than one, so that a thread that is interrupted does not hold up the rest.
const SHARES_PER_THREAD: usize = 4;

/// The compact sparse Merkle tree of the whole latest state, in memory.
///
/// `Send` and `Sync`: many may read or prove, one may write.
#[derive(Debug)]
pub struct HotTree {
    options: Options,
    pool: Arc<Pool>,
    threads: OnceLock<rayon::ThreadPool>,
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
    levels: Levels,
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
        let threads = OnceLock::new();
        let (scratch, spares) = (Scratch::default(), Arc::default());
        Self { options, pool, threads, subtrees, top, len: 0, scratch, spares }
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

    /// The path to a key, or, where it is absent, the paths to its neighbours.
    ///
    /// # Cost
    /// One line per level, and the few hashes of one bucket. No lock, no other thread.
    pub fn prove(&self, key: &KeyHash) -> PathProof {
        crate::path::prove(self, key)
    }

    pub(crate) fn subtrees(&self) -> &[Subtree] {
        &self.subtrees
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn top(&self) -> &Heap {
        &self.top
    }

    /// Replaces the leaves of all subtrees: `stages[i]` holds those of subtree `i`, in the order they were given.
    pub(crate) fn fill(&mut self, stages: Vec<Stage>) {
        let means = self.means();
        let work = |(i, (subtree, stage)): (usize, (&mut Subtree, Stage))| {
            let leaves = stage.into_leaves();
            let mut worker = Worker::default();
            let index = |k: usize| u32::try_from(k).expect("a subtree has fewer than 2^32 leaves");
            let rec = |(k, leaf): (usize, &Line)| Rec { prefix: prefix(&leaf.halves[0]), index: index(k) };
            worker.recs = leaves.iter().enumerate().map(rec).collect();
            worker.sort(means.root_bits, &leaves);
            worker.run(means, std::slice::from_mut(subtree), i, &leaves);
            worker.added
        };
        let one = self.options.parallelism == Parallelism::Off;
        let mut subtrees = std::mem::take(&mut self.subtrees);
        let added: isize = if one {
            subtrees.iter_mut().zip(stages).enumerate().map(work).sum()
        } else {
            self.threads().install(|| subtrees.par_iter_mut().zip(stages).enumerate().map(work).sum())
        };
        self.subtrees = subtrees;
        self.len = self.len.checked_add_signed(added as i64).expect("a tree has no fewer than zero keys");
        let all: Vec<u32> = (0..self.subtrees.len() as u32).collect();
        self.lift(&all);
    }

    fn means(&self) -> Means {
        Means {
            lanes: Lanes::new(self.options.hash_backend),
            ahead: self.options.prefetch.distance(),
            root_bits: self.options.subtree_roots.bits(),
        }
    }

    /// Into how many shares a batch is split: a power of two, so that a share is a range of leading bits.
    fn shares(&self, changes: usize) -> usize {
        let threads = self.options.parallelism.threads();
        if threads == 1 || changes < PARALLEL_LEN_MIN {
            return 1;
        }
        (threads * SHARES_PER_THREAD).next_power_of_two().min(self.subtrees.len())
    }

    fn threads(&self) -> &rayon::ThreadPool {
        self.threads.get_or_init(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.options.parallelism.threads());
            builder.thread_name(|i| format!("hot-{i}")).build().expect("the system can start threads")
        })
    }

    fn for_each<T: Send>(
        &self,
        shares: usize,
        items: impl Iterator<Item = T> + Send,
        work: impl Fn(T) + Sync + Send,
    ) {
        if shares == 1 {
            items.for_each(work);
        } else {
            let items: Vec<T> = items.collect();
            self.threads().install(|| items.into_par_iter().with_max_len(1).for_each(work));
        }
    }

    /// Applies `len` changes; `write` gives those from a number on, hashed.
    fn change(
        &mut self,
        len: usize,
        write: impl Fn(Lanes, usize, &mut [Line]) + Sync + Send,
    ) -> (Root, Undo) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let (shares, means) = (self.shares(len), self.means());
        if scratch.changes.len() < len {
            scratch.changes = Lines::default();
            scratch.changes = self.pool.lines(len.next_power_of_two());
        }
        scratch.parts.resize_with(scratch.parts.len().max(shares), Part::default);
        scratch.parts.iter_mut().for_each(Part::clear);
        // Runs of whole lanes, as many as there are shares.
        let run = len.div_ceil(shares).max(1).next_multiple_of(crate::simd::LANES);
        let runs = scratch.changes[..len].chunks_mut(run).zip(&mut scratch.parts).enumerate();
        self.for_each(shares, runs, |(i, (out, part))| {
            write(means.lanes, i * run, out);
            part.fill(means, shares, i * run, out);
        });
        self.run(scratch, shares)
    }

    /// Applies the changes that lie in the scratch, split into `shares`.
    fn run(&mut self, mut scratch: Scratch, shares: usize) -> (Root, Undo) {
        let mut subtrees = std::mem::take(&mut self.subtrees);
        let mut replaced = self.spares.take(shares);
        scratch.workers.resize_with(scratch.workers.len().max(shares), Worker::default);
        let means = self.means();
        let per_share = subtrees.len() / shares;
        let (changes, parts) = (&scratch.changes, &scratch.parts);
        let workers = scratch.workers.iter_mut().zip(&mut replaced);
        let shared = subtrees.chunks_mut(per_share).zip(workers).enumerate();
        self.for_each(shares, shared, |(i, (subtrees, (worker, replaced)))| {
            worker.recs.clear();
            for part in parts.iter().filter_map(|part| part.shares.get(i)) {
                worker.recs.extend_from_slice(part);
            }
            worker.replaced = std::mem::take(replaced);
            worker.sort(shares.trailing_zeros(), changes);
            worker.run(means, subtrees, i * per_share, changes);
            *replaced = std::mem::take(&mut worker.replaced);
        });
        self.subtrees = subtrees;
        let mut touched = Vec::new();
        for worker in &scratch.workers[..shares] {
            touched.extend_from_slice(&worker.touched);
            self.len =
                self.len.checked_add_signed(worker.added as i64).expect("a tree has no fewer than zero keys");
        }
        self.scratch = scratch;
        self.lift(&touched);
        (self.root(), Undo { replaced, spares: Arc::clone(&self.spares) })
    }

    /// Brings the levels above the given subtrees, ascending, up to date.
    fn lift(&mut self, touched: &[u32]) {
        let (count, bits) = (self.subtrees.len(), self.options.subtree_roots.bits());
        for &subtree in touched {
            let node = count + subtree as usize;
            self.top.set(node, self.subtrees[subtree as usize].root());
            self.scratch.levels.mark(0, bits, node);
        }
        let means = self.means();
        let mut top = Top { heap: &mut self.top, subtrees: &self.subtrees };
        self.scratch.levels.lift(means.lanes, 0, &mut top);
    }
}

impl Part {
    fn clear(&mut self) {
        self.shares.iter_mut().for_each(Vec::clear);
    }

    /// Sorts hashed changes, the first of which is number `from`, by the share that each goes to.
    fn fill(&mut self, means: Means, shares: usize, from: usize, changes: &[Line]) {
        self.shares.resize_with(shares, Vec::new);
        self.clear();
        let shift = means.root_bits - shares.trailing_zeros();
        for (i, change) in changes.iter().enumerate() {
            let index = u32::try_from(from + i).expect("a batch has fewer than 2^32 changes");
            let rec = Rec { prefix: prefix(&change.halves[0]), index };
            self.shares[subtree_of(means, &rec) >> shift].push(rec);
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
