//! The nodes of the heaps whose children changed, hashed level by level from the deepest up.

use crate::hash::Line;
use crate::hash::simd::{LANES, Lanes};
use crate::hash::{EMPTY, Hash};
use crate::memory::heap::Heap;
use crate::memory::subtree::Subtree;

/// The distance of [`Prefetch`](crate::Prefetch) is told in changes, of which each touches some lines.
const LINES_PER_CHANGE: usize = 3;

/// A node of a heap that must be computed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dirty {
    heap: u32,
    node: u32,
}

/// Dirty nodes by level. Level `l` holds the nodes `2^(l-1) .. 2^l`.
#[derive(Debug, Default)]
pub(crate) struct DirtyNodes {
    lists: Vec<Vec<Dirty>>,
}

/// One heap or several, and what is below them.
pub(crate) trait Heaps {
    fn heap(&self, heap: usize) -> &Heap;
    fn heap_mut(&mut self, heap: usize) -> &mut Heap;
    /// Whether exactly one leaf is below a node at the bottom of the heap.
    fn is_leaf_below(&self, heap: usize, node: usize) -> bool;
}

impl Heaps for [Subtree] {
    fn heap(&self, heap: usize) -> &Heap {
        self[heap].heap()
    }

    fn heap_mut(&mut self, heap: usize) -> &mut Heap {
        self[heap].heap_mut()
    }

    fn is_leaf_below(&self, heap: usize, node: usize) -> bool {
        let subtree = &self[heap];
        subtree.leaves(node - subtree.bucket_count()).len() == 1
    }
}

/// Whether a node that is not empty stands for exactly one leaf. Ends at the first line with two children.
fn is_leaf<H: Heaps + ?Sized>(heaps: &H, heap: usize, mut node: usize) -> bool {
    let inner = heaps.heap(heap);
    while inner.has_children(node) {
        let [left, right] = &inner.children(node).halves;
        if *left != EMPTY && *right != EMPTY {
            return false;
        }
        node = 2 * node + usize::from(*left == EMPTY);
    }
    heaps.is_leaf_below(heap, node)
}

/// The hash of a node that has at most one leaf below it, so that it is not hashed: `H2`.
#[inline]
fn lone<H: Heaps + ?Sized>(heaps: &H, heap: usize, node: usize) -> Option<Hash> {
    let [left, right] = &heaps.heap(heap).children(node).halves;
    match (*left == EMPTY, *right == EMPTY) {
        (false, false) => None,
        (true, true) => Some(EMPTY),
        (true, false) => is_leaf(heaps, heap, 2 * node + 1).then_some(*right),
        (false, true) => is_leaf(heaps, heap, 2 * node).then_some(*left),
    }
}

impl DirtyNodes {
    /// Marks the parent of a node at the bottom of a heap of `depth` levels. Marks of one heap must come in
    /// ascending order: a node that is marked twice in a row is hashed once.
    #[inline]
    pub(crate) fn mark(&mut self, heap: usize, depth: u32, node: usize) {
        if depth == 0 {
            return;
        }
        while self.lists.len() <= depth as usize {
            self.lists.push(Vec::new());
        }
        push(&mut self.lists[depth as usize], Dirty { heap: heap as u32, node: (node >> 1) as u32 });
    }

    /// Forgets the marks of a heap, which must be the last that was marked at this depth.
    pub(crate) fn forget(&mut self, heap: usize, depth: u32) {
        if let Some(list) = self.lists.get_mut(depth as usize) {
            while list.last().is_some_and(|dirty| dirty.heap as usize == heap) {
                list.pop();
            }
        }
    }

    /// Computes everything above the marks and forgets them.
    pub(crate) fn rehash<H: Heaps + ?Sized>(&mut self, lanes: Lanes, ahead: usize, heaps: &mut H) {
        for level in (1..self.lists.len()).rev() {
            let mut list = std::mem::take(&mut self.lists[level]);
            let mut waiting = [Dirty { heap: 0, node: 0 }; LANES];
            let mut count = 0;
            for (i, &dirty) in list.iter().enumerate() {
                if ahead > 0
                    && let Some(next) = list.get(i + LINES_PER_CHANGE * ahead)
                {
                    let heap = heaps.heap(next.heap as usize);
                    heap.prefetch(next.node as usize);
                    // The hash goes into the parent's line: a store too waits for its line, and all that follow.
                    heap.prefetch(next.node as usize >> 1);
                }
                let (heap, node) = (dirty.heap as usize, dirty.node as usize);
                if let Some(hash) = lone(heaps, heap, node) {
                    heaps.heap_mut(heap).set(node, &hash);
                } else {
                    waiting[count] = dirty;
                    count += 1;
                }
                if count == LANES {
                    hash_waiting(lanes, &waiting, count, heaps);
                    count = 0;
                }
                if level > 1 {
                    push(&mut self.lists[level - 1], Dirty { node: dirty.node >> 1, ..dirty });
                }
            }
            if count > 0 {
                // The lanes that are left over repeat the first node; nobody reads what they give.
                let first = waiting[0];
                waiting[count..].fill(first);
                hash_waiting(lanes, &waiting, count, heaps);
            }
            list.clear();
            self.lists[level] = list;
        }
    }
}

#[inline]
fn push(list: &mut Vec<Dirty>, dirty: Dirty) {
    if list.last() != Some(&dirty) {
        list.push(dirty);
    }
}

#[inline]
fn hash_waiting<H: Heaps + ?Sized>(lanes: Lanes, waiting: &[Dirty; LANES], count: usize, heaps: &mut H) {
    let mut out = [EMPTY; LANES];
    let input: [&Line; LANES] =
        std::array::from_fn(|i| heaps.heap(waiting[i].heap as usize).children(waiting[i].node as usize));
    lanes.gathered(&input, &mut out);
    for (dirty, hash) in waiting[..count].iter().zip(&out) {
        heaps.heap_mut(dirty.heap as usize).set(dirty.node as usize, hash);
    }
}
