//! The sweeps that [collapse](crate::ethereum::collapse) groups of leaves.
//!
//! A sweep goes over the tries in the order of paths, again and again, and collapses groups of some leaves until what is left is small
//! enough; the next one goes on where it stopped. So no node needs to know when it was used last: one that is used all the time is
//! collapsed once in a round, and [expanded](crate::ethereum::expand) by the next block.

use crate::ethereum::arena::{Arena, Storage};
use crate::ethereum::group::Group;
use crate::ethereum::nibbles::{KeyPath, Nibbles, PATH_LEN, common_nibbles, nibble};
use crate::ethereum::node::ones;
use crate::ethereum::ptr::{Kind, Ptr};

/// A group is a subtree of at most so many leaves: reading them is a page or two, and their hashes are few.
pub(crate) const GROUP_LEAVES: u64 = 64;

/// The same where groups so small do not fit the memory.
const GROUP_LEAVES_MAX: u64 = 1 << 13;

/// The storage of an account that has at most so many slots collapses with the account.
pub(crate) const SMALL_STORAGE: u64 = 256;

/// Groups between two looks at what is left.
const LOOK_EVERY: u32 = 8;

/// A place in the order of all leaves: an account, and a slot of it.
pub(crate) type Place = (KeyPath, KeyPath);

const FIRST: Place = ([0; 32], [0; 32]);

/// How far sweeps have come.
#[derive(Debug)]
pub(crate) struct Sweep {
    from: Place,
    group_leaves: u64,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { from: FIRST, group_leaves: GROUP_LEAVES }
    }
}

/// One way of a sweep over the tries.
struct Walk<'a> {
    arena: &'a mut Arena,
    bytes_max: u64,
    from: Place,
    limit: Option<Place>,
    group_leaves: u64,
    /// Groups that were collapsed since the last look at what is left.
    since: u32,
    /// Where the next sweep begins.
    stop: Option<Place>,
}

/// The part of a trie that a walk has come to.
#[derive(Clone, Copy)]
struct Spot {
    /// Whose storage it is; `None` for the accounts.
    account: Option<KeyPath>,
    /// The nibbles above the position.
    depth: usize,
    /// Whether all nibbles so far are those of the place where the walk begins, and of that where it must end.
    at_from: bool,
    at_limit: bool,
}

impl Spot {
    /// The path of a place in this trie.
    fn path_in(&self, place: &Place) -> KeyPath {
        if self.account.is_none() { place.0 } else { place.1 }
    }
}

impl Sweep {
    /// Goes on until the nodes take at most `bytes_max`; of the leaves before `limit` alone, if there is one. `node` is the top of the
    /// accounts.
    pub(crate) fn run(&mut self, arena: &mut Arena, node: Ptr, bytes_max: u64, limit: Option<Place>) {
        // One that begins in the middle goes round, and once more with each size of groups.
        let mut is_whole = false;
        while arena.node_bytes() > bytes_max {
            is_whole |= self.from == FIRST;
            let &mut Self { from, group_leaves } = self;
            let mut walk =
                Walk { arena: &mut *arena, bytes_max, from, limit, group_leaves, since: 0, stop: None };
            walk.trie(None, node);
            if let Some(stop) = walk.stop {
                self.from = stop;
                return;
            }
            self.from = FIRST;
            if limit.is_some() || (is_whole && group_leaves == GROUP_LEAVES_MAX) {
                return;
            }
            if is_whole {
                self.group_leaves = (16 * group_leaves).min(GROUP_LEAVES_MAX);
            }
        }
    }
}

impl Walk<'_> {
    fn trie(&mut self, account: Option<KeyPath>, node: Ptr) {
        let at = |place: &Place| account.is_none_or(|account| account == place.0);
        let (at_from, at_limit) = (at(&self.from), self.limit.as_ref().is_some_and(at));
        self.node(Spot { account, depth: 0, at_from, at_limit }, node);
    }

    /// Walks over what is at and below a position.
    fn node(&mut self, mut spot: Spot, node: Ptr) {
        match node.kind() {
            Kind::Nothing | Kind::Slot | Kind::Collapsed => return,
            Kind::Account => return self.storage(node),
            Kind::Branch => {}
        }
        let head = self.arena.branch(node).head;
        let end = spot.depth + usize::from(head.skip);
        if head.skip > 0 && (spot.at_from || spot.at_limit) {
            let path = self.arena.path_below(node);
            let (from, limit) = (spot.path_in(&self.from), self.limit.map(|limit| spot.path_in(&limit)));
            if spot.at_from && common_nibbles(&path, &from) < end {
                if path < from {
                    return;
                }
                spot.at_from = false;
            }
            if let Some(limit) = limit.filter(|limit| spot.at_limit && common_nibbles(&path, limit) < end) {
                if path > limit {
                    return;
                }
                spot.at_limit = false;
            }
        }
        let from = if spot.at_from { nibble(&spot.path_in(&self.from), end) } else { 0 };
        let limit =
            self.limit.filter(|_| spot.at_limit).map_or(15, |limit| nibble(&spot.path_in(&limit), end));
        for at in ones(head.mask).filter(|at| (from..=limit).contains(at)) {
            let child = self.arena.child(node, at);
            let below = Spot {
                depth: end + 1,
                at_from: spot.at_from && at == from,
                at_limit: spot.at_limit && at == limit,
                ..spot
            };
            if !self.collapse_child(below, node, at, child) {
                self.node(below, child);
            }
            if self.stop.is_some() {
                return;
            }
        }
    }

    /// Collapses what is below a child, if that is a group.
    fn collapse_child(&mut self, spot: Spot, branch: Ptr, at: usize, child: Ptr) -> bool {
        if spot.depth > Group::DEPTH_MAX || spot.at_limit {
            return false;
        }
        if child.kind() == Kind::Collapsed {
            return true;
        }
        let Some(leaves) = leaves_below(self.arena, child, self.group_leaves) else { return false };
        let path = self.arena.path_below(child);
        let group = Group::new(&Nibbles::prefix(&path, spot.depth), leaves as u32);
        free_below(self.arena, child);
        let group = self.arena.add_group(group);
        self.arena.set_child(branch, at, group);
        let (_, mut next) = Nibbles::prefix(&path, spot.depth).paths();
        // The walk goes on after this group; there is none after the last.
        next.iter_mut().rev().any(|byte| {
            *byte = byte.wrapping_add(1);
            *byte != 0
        });
        let next = spot.account.map_or((next, [0; 32]), |account| (account, next));
        self.look(next);
        true
    }

    /// Walks over the storage of an account that does not collapse itself.
    fn storage(&mut self, account: Ptr) {
        let storage = self.arena.account(account).storage;
        if matches!(storage.node.kind(), Kind::Nothing | Kind::Collapsed) {
            return;
        }
        let path = *self.arena.path(account);
        if storage.len > SMALL_STORAGE {
            return self.trie(Some(path), storage.node);
        }
        if self.limit.is_some_and(|limit| limit.0 <= path) {
            return;
        }
        let node = self.arena.add_group(Group::new(&Nibbles::EMPTY, storage.len as u32));
        free_below(self.arena, storage.node);
        self.arena.set_storage(account, Storage { node, ..storage });
        self.look((path, [0xFF; 32]));
    }

    /// Looks now and then whether there is room enough; the next sweep begins at `next` then.
    fn look(&mut self, next: Place) {
        self.since += 1;
        if self.since == LOOK_EVERY {
            self.since = 0;
            self.stop = Some(next).filter(|_| self.arena.node_bytes() <= self.bytes_max);
        }
    }
}

/// How many leaves a group would have, those of storages not counted; `None` where there are more than `max`, or the storage of one is
/// too large to collapse with it.
pub(crate) fn leaves_below(arena: &Arena, node: Ptr, max: u64) -> Option<u64> {
    match node.kind() {
        Kind::Nothing => Some(0),
        Kind::Slot => Some(1),
        Kind::Account => {
            let storage = arena.account(node).storage;
            (storage.node.kind() != Kind::Branch || storage.len <= SMALL_STORAGE).then_some(1)
        }
        Kind::Collapsed => Some(u64::from(arena.group(node).leaves)).filter(|leaves| *leaves <= max),
        Kind::Branch => arena.branch(node).children.iter().try_fold(0, |sum, child| {
            let sum = sum + leaves_below(arena, *child, max - sum)?;
            (sum <= max).then_some(sum)
        }),
    }
}

/// Frees the rows of a node and of all that is below it, storages with their accounts.
pub(crate) fn free_below(arena: &mut Arena, node: Ptr) {
    match node.kind() {
        Kind::Branch => {
            let (mut children, count) = ([Ptr::NONE; 16], arena.branch(node).children.len());
            children[..count].copy_from_slice(arena.branch(node).children);
            children[..count].iter().for_each(|child| free_below(arena, *child));
        }
        Kind::Account => free_below(arena, arena.account(node).storage.node),
        Kind::Nothing | Kind::Slot | Kind::Collapsed => {}
    }
    arena.free_node(node);
}

const _: () = assert!(Group::DEPTH_MAX < PATH_LEN, "groups have leaves below them");
