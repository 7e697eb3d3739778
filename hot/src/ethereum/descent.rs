//! From the root of a trie down to leaves: of one path, of many at once, or of any path with a prefix.

use crate::ethereum::arena::{Arena, Branch};
use crate::ethereum::nibbles::{KeyPath, PATH_LEN, common_nibbles, nibble};
use crate::ethereum::ptr::{Kind, Ptr};

/// Paths that are looked up together: about as many as a core keeps cache misses in flight.
const GROUP: usize = 16;

/// How far down its path a lookup is.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: Ptr,
    depth: usize,
}

impl Step {
    /// Descends one branch; whether there was one.
    #[inline]
    fn descend(&mut self, arena: &Arena, path: &KeyPath) -> bool {
        if self.node.kind() != Kind::Branch {
            return false;
        }
        let Branch { head, children, .. } = arena.branch(self.node);
        let end = self.depth + usize::from(head.skip);
        let place = head.place(nibble(path, end.min(PATH_LEN - 1)));
        *self = Self { node: place.map_or(Ptr::NONE, |place| children[place]), depth: end + 1 };
        true
    }

    /// The leaf that was reached, if it is the one of `path`: skipped nibbles were not compared.
    #[inline]
    fn leaf(&self, arena: &Arena, path: &KeyPath) -> Option<Ptr> {
        if self.node.kind() == Kind::Collapsed {
            assert_outside(arena, self.node, self.depth, path);
            return None;
        }
        (self.node != Ptr::NONE && arena.path(self.node) == path).then_some(self.node)
    }
}

/// What is in a group is not known, but that a path is elsewhere is.
pub(crate) fn assert_outside(arena: &Arena, group: Ptr, depth: usize, path: &KeyPath) {
    let shared = common_nibbles(&arena.path_below(group), path);
    assert!(shared < depth, "a group is expanded before its leaves are read");
}

/// The leaf of a path below the root `node`, if there is one.
pub(crate) fn find(arena: &Arena, node: Ptr, path: &KeyPath) -> Option<Ptr> {
    let mut step = Step { node, depth: 0 };
    while step.descend(arena, path) {}
    step.leaf(arena, path)
}

/// The leaf of each path below the root `node`, if there is one.
///
/// All of a group descend together, so that their cache misses overlap.
pub(crate) fn find_all(arena: &Arena, node: Ptr, paths: &[KeyPath]) -> Vec<Option<Ptr>> {
    let mut found = Vec::with_capacity(paths.len());
    for group in paths.chunks(GROUP) {
        let mut steps = [Step { node, depth: 0 }; GROUP];
        let mut descending = true;
        while descending {
            descending = false;
            for (step, path) in steps.iter_mut().zip(group) {
                descending |= step.descend(arena, path);
            }
        }
        found.extend(steps.iter().zip(group).map(|(step, path)| step.leaf(arena, path)));
    }
    found
}

/// The path of a leaf that shares the first `len` nibbles with `path`, if any does; else that of any leaf, or of none, or nothing.
pub(crate) fn find_near(arena: &Arena, mut node: Ptr, path: &KeyPath, len: usize) -> Option<KeyPath> {
    let mut depth = 0;
    while node.kind() == Kind::Branch {
        let branch = arena.branch(node);
        depth += usize::from(branch.head.skip);
        node = if depth < len { arena.child(node, nibble(path, depth)) } else { *branch.children.first()? };
        depth += 1;
    }
    if node.kind() == Kind::Collapsed {
        assert_outside(arena, node, depth.min(len), path);
        return None;
    }
    (node != Ptr::NONE).then(|| *arena.path(node))
}
