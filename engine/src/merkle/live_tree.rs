//! What the writer asks of a tree, whichever [`Commitment`] the archive has, and the window of blocks that a tree can take back.
//!
//! [`live_build`](crate::merkle::live_build) is the one place that tells commitments apart for writing.

use std::collections::VecDeque;

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::memtable::node_key::NodeVersion;
use crate::memtable::step_memtable::StepMemtable;
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::storage::directory::Directory;
use crate::wal::ChangeRef;

/// What a block did to the tree.
pub(crate) struct Applied {
    /// The root of the state after it.
    pub(crate) root: Root,
    /// What it writes among the nodes, ascending.
    pub(crate) nodes: Vec<NodeVersion>,
}

/// The state that a block is applied to: the tree's own.
#[derive(Clone, Copy)]
pub(crate) struct Parent<'v> {
    /// What has it.
    pub(crate) version: &'v ReadState,
    /// The block that left it.
    pub(crate) block: Option<BlockNumber>,
    /// The newest block, at or below it, of which `version` has the nodes.
    pub(crate) with_nodes: Option<BlockNumber>,
}

/// The tree of the latest state, beside the writer.
pub(crate) trait LiveTree: Send {
    /// Applies a block, its changes ordered by domain and key.
    ///
    /// # Errors
    /// The changes are none that the commitment has a state for, or what the tree keeps out of memory cannot be read: the tree is as it
    /// was.
    fn apply(
        &mut self,
        config: &Config,
        parent: Parent<'_>,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<Applied, Error>;

    /// The root of the state that it is of.
    fn root(&self) -> Root;

    /// Takes the blocks above `to`, the height of a block, back; `version` still has them. `false` when it no longer knows how: it may
    /// be in between then.
    fn rewind(&mut self, version: &ReadState, to: BlockNumber) -> bool;

    /// Writes what the next opening can begin with, where that saves it reading the state. `head` is the newest block, whose tree it is. Unless
    /// the archive `closes`, only where so much changed since it was last written that it is worth it.
    ///
    /// # Errors
    /// Nothing is lost: the next opening reads the state.
    fn keep(&mut self, directory: &Directory, head: BlockNumber, closes: bool) -> Result<(), Error> {
        let _ = (directory, head, closes);
        Ok(())
    }
}

/// Applies the blocks in memory, all above `base`, to the tree, that of `base`, and gives the tables their nodes.
pub(crate) fn replay(
    tree: &mut impl LiveTree,
    version: &ReadState,
    config: &Config,
    base: Option<BlockNumber>,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let mut previous = base;
    let mut made: Vec<(&StepMemtable, Vec<NodeVersion>)> = Vec::new();
    listener.begin("apply the blocks in memory", None);
    for table in &version.tables {
        table.for_each_block(config, |height, recorded, changes| {
            let Applied { root, nodes } =
                tree.apply(config, Parent { version, block: previous, with_nodes: base }, height, changes)?;
            made.push((table, nodes));
            previous = Some(height);
            listener.advance(1);
            if root == recorded {
                return Ok(());
            }
            let (expected, found) = (recorded.to_string(), root.to_string());
            Err(Error::RootMismatch { block: height, expected, found })
        })?;
    }
    listener.end();
    // Only now, so that an error leaves the tables as they were.
    for (table, nodes) in made {
        table.add_nodes(nodes);
    }
    Ok(())
}

/// The newest blocks of a tree, with what takes each back: at most a reorg window of them.
pub(crate) struct UndoWindow<U> {
    /// Oldest first.
    blocks: VecDeque<(BlockNumber, U)>,
    /// The newest block before the window: the lowest that the tree can go back to. `None`: the state before any block.
    base: Option<BlockNumber>,
}

impl<U> UndoWindow<U> {
    /// That of a tree of the state at `base`.
    pub(crate) fn new(base: Option<BlockNumber>) -> Self {
        Self { blocks: VecDeque::new(), base }
    }

    /// Adds a block.
    pub(crate) fn push(&mut self, height: BlockNumber, undo: U) {
        self.blocks.push_back((height, undo));
    }

    /// The blocks, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &U> + ExactSizeIterator {
        self.blocks.iter().map(|(_, undo)| undo)
    }

    /// Takes the blocks out that have left a window of `len`, oldest first.
    pub(crate) fn trim(&mut self, len: u64) -> impl Iterator<Item = U> {
        std::iter::from_fn(move || {
            if self.blocks.len() as u64 <= len {
                return None;
            }
            let (height, undo) = self.blocks.pop_front()?;
            self.base = Some(height);
            Some(undo)
        })
    }

    /// Takes the blocks above `to` out, newest first; `None` where blocks that have left the window would have to go.
    pub(crate) fn rewind(&mut self, to: BlockNumber) -> Option<impl Iterator<Item = U>> {
        if self.base.is_some_and(|base| to < base) {
            return None;
        }
        let kept = self.blocks.partition_point(|(height, _)| *height <= to);
        Some(self.blocks.drain(kept..).rev().map(|(_, undo)| undo))
    }
}
