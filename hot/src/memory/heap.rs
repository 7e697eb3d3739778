//! Sibling pairs of a full binary tree in a row of lines, and where in the row each is: the radix shape.
//!
//! ```text
//!   node i has its children 2i and 2i + 1 in one line; node 1 is the root, and is alone in line 0
//!   breadth first:     line 1: [ 2 , 3 ]   line 2: [ 4 , 5 ]   line 3: [ 6 , 7 ]   line 4: [ 8 , 9 ]  ...
//!   levels of 2 bits:  [2,3] [4,5] [6,7] | [8,9] [16,17] [18,19] | [10,11] [20,21] [22,23] | ...
//! ```
//!
//! A level of `w` bits keeps the `2^w - 1` lines of each of its radix nodes together, breadth first inside; the
//! radix nodes of a level follow each other, and so do the levels. No line is left out, whatever the shape. One
//! level over all is the breadth-first heap, whose lines are numbered as their nodes are.
//!
//! Nodes are always known by their number `i`; lines are nobody else's business.

use std::sync::Arc;

use crate::hash::Hash;
use crate::hash::Line;
use crate::memory::arena::{Lines, Pool, prefetch};
use crate::options::RadixShape;

/// The deepest heap: lines are counted in 32 bits.
const DEPTH_MAX: usize = 32;

/// The levels of a heap whose nodes carry hashes.
#[derive(Debug)]
pub(crate) struct Heap {
    lines: Lines,
    depth: u32,
    /// For each depth where its radix level begins and how many bits it has; nothing where lines are nodes.
    rows: Option<Box<[Row; DEPTH_MAX]>>,
}

/// The radix level that a depth belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    start: u8,
    bits: u8,
}

impl Heap {
    /// A heap of empty nodes with `depth` levels below its root. The root is `above` levels below that of the
    /// tree, from which the shape counts; a radix level in which it falls is cut there.
    pub(crate) fn new(pool: &Arc<Pool>, shape: RadixShape, above: u32, depth: u32) -> Self {
        Self { lines: pool.zeroed(1 << depth), depth, rows: rows(shape, above, depth) }
    }

    /// The number of levels below the root.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Whether a node has its children in here.
    #[inline]
    pub(crate) fn has_children(&self, node: usize) -> bool {
        node < self.lines.len()
    }

    /// The children of a node.
    #[inline]
    pub(crate) fn children(&self, node: usize) -> &Line {
        &self.lines[self.line_of(node)]
    }

    /// The hash of a node.
    #[inline]
    pub(crate) fn get(&self, node: usize) -> &Hash {
        &self.children(node >> 1).halves[node & 1]
    }

    /// Writes the hash of a node.
    #[inline]
    pub(crate) fn set(&mut self, node: usize, hash: &Hash) {
        let line = self.line_of(node >> 1);
        self.lines[line].halves[node & 1] = *hash;
    }

    /// Asks for the line of a node's children.
    #[inline]
    pub(crate) fn prefetch(&self, node: usize) {
        prefetch(&self.lines, self.line_of(node));
    }

    /// Where the children of a node are.
    #[inline]
    fn line_of(&self, node: usize) -> usize {
        match &self.rows {
            None => node,
            Some(rows) => radix_line(rows, node),
        }
    }
}

#[inline]
fn radix_line(rows: &[Row; DEPTH_MAX], node: usize) -> usize {
    let Some(depth) = node.checked_ilog2() else { return 0 };
    let Row { start, bits } = rows[depth as usize % DEPTH_MAX];
    // How far the node is below the root of its radix node, and the number of that one in its level.
    let below = depth - u32::from(start);
    let (first, own) = (1 << start, 1 << below);
    let radix = (node >> below) - first;
    let inside = own + (node & (own - 1));
    first + (radix << bits) - radix + inside - 1
}

/// The radix level of each depth of a heap; nothing for one level over all of them.
fn rows(shape: RadixShape, above: u32, depth: u32) -> Option<Box<[Row; DEPTH_MAX]>> {
    let mut rows = Box::new([Row::default(); DEPTH_MAX]);
    let (mut end, mut start) = (0, 0);
    let mut levels = shape.levels().iter();
    while start < depth {
        // Below the last level of the shape there is one more, of all that is left.
        end = levels.next().map_or(u32::MAX, |&bits| end + u32::from(bits));
        let stop = end.saturating_sub(above).min(depth);
        for row in &mut rows[start as usize..stop.max(start) as usize] {
            *row = Row { start: start as u8, bits: (stop - start) as u8 };
        }
        start = stop.max(start);
    }
    (u32::from(rows[0].bits) < depth).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::HugePages;

    const SHAPES: [&[u8]; 7] = [&[], &[2, 2, 2], &[1, 5, 3], &[4; 13], &[3], &[16, 16], &[0, 7, 0, 40]];

    #[test]
    fn every_shape_gives_every_node_a_line_of_its_own() {
        for levels in SHAPES {
            for (above, depth) in [(0, 0), (0, 1), (0, 9), (3, 8), (8, 10), (20, 4)] {
                let heap = Heap::new(&Pool::new(HugePages::Off), RadixShape::of_levels(levels), above, depth);
                let mut lines: Vec<usize> = (0..1 << depth).map(|node| heap.line_of(node)).collect();
                lines.sort_unstable();
                assert!(lines.into_iter().eq(0..1 << depth), "{levels:?} {above} {depth}");
            }
        }
    }

    #[test]
    fn a_radix_node_lies_together() {
        let heap = Heap::new(&Pool::new(HugePages::Off), RadixShape::of_levels(&[2; 3]), 0, 6);
        let lines = [2, 3, 4, 8, 9, 5, 10, 11].map(|node| heap.line_of(node));
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(Heap::new(&Pool::new(HugePages::Off), RadixShape::default(), 8, 12).rows.is_none());
    }

    #[test]
    fn nodes_keep_what_they_are_given() {
        for levels in SHAPES {
            let mut heap = Heap::new(&Pool::new(HugePages::Off), RadixShape::of_levels(levels), 2, 7);
            let hash = |node: usize| [node as u8; 32];
            (1..256).for_each(|node| heap.set(node, &hash(node)));
            assert!((1..256).all(|node| *heap.get(node) == hash(node)), "{levels:?}");
            assert!((1..128).all(|n| heap.children(n).halves == [hash(2 * n), hash(2 * n + 1)]));
        }
    }
}
