//! The one way a trie changes: a sorted run of changes goes down from the top, and what it made stale is noted.

use crate::ethereum::arena::Arena;
use crate::ethereum::dirty::{DirtyNodes, Parent};
use crate::ethereum::nibbles::{KeyPath, PATH_LEN, common_nibbles, nibble};
use crate::ethereum::node::ones;
use crate::ethereum::ptr::{Kind, Ptr};

/// A leaf that is put, or taken away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) path: KeyPath,
    /// The new leaf; none: the path has no leaf afterwards. Where the old leaf holds the same, that one takes its place.
    pub(crate) leaf: Ptr,
    /// The leaf before, which whoever made the change frees; set by the update.
    pub(crate) old: Ptr,
}

impl Change {
    pub(crate) fn new(path: KeyPath, leaf: Ptr) -> Self {
        Self { path, leaf, old: Ptr::NONE }
    }

    /// Whether there is something else at the path than before.
    pub(crate) fn is_effective(&self) -> bool {
        self.leaf != self.old
    }
}

/// What stands at a position afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) node: Ptr,
    /// Whether its reference is stale.
    pub(crate) is_dirty: bool,
}

/// An update of one trie.
pub(crate) struct Update<'a> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) dirty: &'a mut DirtyNodes,
}

impl Update<'_> {
    /// Applies changes, ascending by path and each path once, to the trie whose top is `node`.
    pub(crate) fn run(&mut self, node: Ptr, changes: &mut [Change]) -> Placed {
        self.at(node, 0, changes)
    }

    fn at(&mut self, node: Ptr, depth: usize, run: &mut [Change]) -> Placed {
        match node.kind() {
            Kind::Branch => self.at_branch(node, depth, run),
            Kind::Nothing | Kind::Slot | Kind::Account => self.at_leaf(node, depth, run),
            Kind::Collapsed => unreachable!("a group is expanded before it is changed"),
        }
    }

    /// Changes where there was a leaf, or nothing.
    fn at_leaf(&mut self, leaf: Ptr, depth: usize, run: &mut [Change]) -> Placed {
        let mut kept = leaf;
        if leaf != Ptr::NONE {
            let path = self.arena.path(leaf);
            if let Ok(at) = run.binary_search_by(|change| change.path.cmp(path)) {
                let change = &mut run[at];
                (change.old, kept) = (leaf, Ptr::NONE);
                if change.leaf != Ptr::NONE && self.arena.leaves_equal(leaf, change.leaf) {
                    self.arena.free_node(change.leaf);
                    change.leaf = leaf;
                }
            }
        }
        let node = match run {
            [only] if kept == Ptr::NONE => only.leaf,
            _ => {
                let put = run.iter().filter(|change| change.leaf != Ptr::NONE);
                let mut leaves: Vec<(KeyPath, Ptr)> = put.map(|change| (change.path, change.leaf)).collect();
                if kept != Ptr::NONE {
                    let path = *self.arena.path(kept);
                    let at = leaves.partition_point(|(other, _)| *other < path);
                    leaves.insert(at, (path, kept));
                }
                self.build(&leaves, depth)
            }
        };
        Placed { node, is_dirty: node != leaf }
    }

    /// The trie of some leaves, whose references are all stale.
    pub(crate) fn build(&mut self, leaves: &[(KeyPath, Ptr)], depth: usize) -> Ptr {
        let (first, last) = match leaves {
            [] => return Ptr::NONE,
            [(_, only)] => return *only,
            [(first, _), .., (last, _)] => (first, last),
        };
        let end = common_nibbles(first, last);
        let (mut mask, mut children) = (0u16, [Ptr::NONE; 16]);
        for group in leaves.chunk_by(|(a, _), (b, _)| nibble(a, end) == nibble(b, end)) {
            children[mask.count_ones() as usize] = self.build(group, end + 1);
            mask |= 1 << nibble(&group[0].0, end);
        }
        let branch = self.arena.add_branch(mask, end - depth, children);
        self.mark_children(branch, mask, end + 1);
        branch
    }

    fn at_branch(&mut self, mut branch: Ptr, depth: usize, run: &mut [Change]) -> Placed {
        let (mut rest, mut end, mut stale) = (run, depth, 0u16);
        let skip = usize::from(self.arena.branch(branch).head.skip);
        if skip > 0 {
            let path = self.arena.path_below(branch);
            let put = rest.iter().filter(|change| change.leaf != Ptr::NONE);
            end = put.map(|change| common_nibbles(&change.path, &path)).fold(depth + skip, usize::min);
            if end < depth + skip {
                // A new leaf is beside what is skipped: another branch comes above this one.
                self.arena.set_skip(branch, depth + skip - end - 1);
                let above = nibble(&path, end);
                branch = self.arena.add_branch(1 << above, end - depth, [branch]);
                stale = 1 << above;
            }
            // What leaves the skipped nibbles elsewhere takes away what is not there.
            let inside = |change: &Change| common_nibbles(&change.path, &path) >= end;
            let start = rest.iter().position(inside).unwrap_or(rest.len());
            let count = rest[start..].iter().take_while(|change| inside(change)).count();
            rest = &mut rest[start..start + count];
        }
        let (mut removed, mut is_dirty) = (0u16, stale != 0);
        while let Some(first) = rest.first() {
            let at = nibble(&first.path, end);
            let count = rest.iter().take_while(|change| nibble(&change.path, end) == at).count();
            let (group, tail) = rest.split_at_mut(count);
            rest = tail;
            let child = self.arena.child(branch, at);
            let placed = self.at(child, end + 1, group);
            is_dirty |= placed.is_dirty;
            stale |= u16::from(placed.is_dirty) << at;
            if placed.node == child {
                continue;
            }
            match child {
                Ptr::NONE => branch = self.arena.insert_child(branch, at, placed.node),
                _ => self.arena.set_child(branch, at, placed.node),
            }
            removed |= u16::from(placed.node == Ptr::NONE) << at;
        }
        if !is_dirty {
            return Placed { node: branch, is_dirty };
        }
        let node = self.finish(branch, end, stale & !removed, removed);
        Placed { node, is_dirty }
    }

    /// Takes the children in `removed` out of a branch at `end`, and what remains of it.
    fn finish(&mut self, branch: Ptr, end: usize, stale: u16, removed: u16) -> Ptr {
        let head = self.arena.branch(branch).head;
        let mask = head.mask & !removed;
        if mask.count_ones() > 1 {
            let branch = if removed == 0 { branch } else { self.arena.retain_children(branch, mask) };
            self.mark_children(branch, stale, end + 1);
            return branch;
        }
        // One child takes the place of the branch.
        let child =
            if mask == 0 { Ptr::NONE } else { self.arena.child(branch, mask.trailing_zeros() as usize) };
        if child.kind() == Kind::Branch {
            let below = usize::from(self.arena.branch(child).head.skip);
            self.arena.set_skip(child, usize::from(head.skip) + 1 + below);
        }
        self.arena.free_node(branch);
        child
    }

    fn mark_children(&mut self, branch: Ptr, mask: u16, depth: usize) {
        debug_assert!(depth <= PATH_LEN, "a path has 64 nibbles");
        for nibble in ones(mask) {
            let parent = Parent::Branch { branch, nibble: nibble as u8 };
            let child = self.arena.child(branch, nibble);
            self.dirty.mark(self.arena, child, parent, depth);
        }
    }
}
