//! Leaves on their way into a tree that is built at once.

use std::sync::Arc;

use crate::hash::Line;
use crate::memory::arena::{Lines, Pool};
use crate::memory::subtree::BLOCK;

/// The leaves of one subtree, in the order they were given, in blocks of the pool that the subtrees are built
/// from: what the stage gives back the tree takes, and loading needs little more than the tree itself.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    blocks: Vec<Lines>,
    len: usize,
}

impl Stage {
    pub(crate) fn push(&mut self, pool: &Arc<Pool>, leaf: Line) {
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push(pool.lines(BLOCK));
        }
        self.blocks[self.len / BLOCK][self.len % BLOCK] = leaf;
        self.len += 1;
    }

    /// The leaves in a row; the blocks are given back one by one.
    pub(crate) fn into_leaves(self) -> Vec<Line> {
        let mut leaves = Vec::with_capacity(self.len);
        for block in self.blocks {
            let len = BLOCK.min(self.len - leaves.len());
            leaves.extend_from_slice(&block[..len]);
        }
        leaves
    }
}
