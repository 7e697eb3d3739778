//! The outline of a state: groups of leaves, each with its reference, and the few leaves that are in no group. A trie is put together of
//! it again without a look at the leaves; those come back when a block [expands](crate::ethereum::expand) their group.

use crate::ethereum::account::Account;
use crate::ethereum::arena::Arena;
use crate::ethereum::group::Group;
use crate::ethereum::nibbles::{KeyPath, Nibbles};
use crate::ethereum::node::{Reference, ones};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::rows::TrieId;
use crate::ethereum::sweep::{GROUP_LEAVES, SMALL_STORAGE, leaves_below};
use crate::ethereum::trie::StateTrie;

/// A part of the outline of a trie: what is at one position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutlinePart {
    /// Leaves of which nothing but the reference is told.
    Group {
        /// The nibbles that all of them begin with: at least one, 16 at most.
        position: Nibbles,
        /// How the branch above names them.
        reference: Reference,
        /// How many they are, those of storages not counted; not 0.
        leaves: u32,
    },
    /// An account, in the trie of accounts.
    Account {
        /// Its path.
        path: KeyPath,
        /// The account, with its storage root.
        account: Account,
        /// What is told of its storage.
        storage: StorageOutline,
    },
    /// A slot, in a storage.
    Slot {
        /// Its path.
        path: KeyPath,
        /// Its value, not zero.
        value: [u8; 32],
    },
}

/// What the outline of an account tells of its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageOutline {
    /// It has none.
    None,
    /// Its root, which is that of the account, and how many slots are known of: 0 where that is not known.
    Closed(u64),
    /// The parts that follow the account, and how many slots there are.
    Open(u64),
}

impl OutlinePart {
    /// The first path that it may be of.
    pub fn path(&self) -> &KeyPath {
        match self {
            Self::Group { position, .. } => position.padded(),
            Self::Account { path, .. } | Self::Slot { path, .. } => path,
        }
    }
}

impl StateTrie {
    /// Shows the outline, groups as large as a block reads them: the parts of the trie of accounts ascending, after an account with an
    /// [open](StorageOutline::Open) storage those of the storage.
    ///
    /// # Cost
    /// Visits all branches, and leaves as far as they are not collapsed.
    ///
    /// # Errors
    /// That of `visit`.
    pub fn outline<E>(&self, mut visit: impl FnMut(&TrieId, &OutlinePart) -> Result<(), E>) -> Result<(), E> {
        Outline { arena: self.arena(), visit: &mut visit }.node(&TrieId::Accounts, Nibbles::EMPTY, self.top())
    }
}

struct Outline<'a, V> {
    arena: &'a Arena,
    visit: &'a mut V,
}

impl<E, V: FnMut(&TrieId, &OutlinePart) -> Result<(), E>> Outline<'_, V> {
    /// Shows what is at a position and is no group.
    fn node(&mut self, trie: &TrieId, mut position: Nibbles, node: Ptr) -> Result<(), E> {
        match node.kind() {
            Kind::Nothing => return Ok(()),
            Kind::Slot => {
                let (path, value) = (*self.arena.path(node), self.arena.slot_value(node));
                return (self.visit)(trie, &OutlinePart::Slot { path, value });
            }
            Kind::Account => return self.account(node),
            Kind::Collapsed => unreachable!("a group has a branch above it, or is a storage"),
            Kind::Branch => {}
        }
        let branch = self.arena.branch(node);
        if branch.head.skip > 0 {
            position =
                Nibbles::prefix(&self.arena.path_below(node), position.len() + usize::from(branch.head.skip));
        }
        for (nibble, child) in ones(branch.head.mask).zip(branch.children) {
            let mut below = position;
            below.push(nibble);
            match self.group(below.len(), *child) {
                Some(leaves) => {
                    let reference = self.arena.reference(node, nibble);
                    (self.visit)(trie, &OutlinePart::Group { position: below, reference, leaves })?;
                }
                None => self.node(trie, below, *child)?,
            }
        }
        Ok(())
    }

    /// The leaves of what can be told as one group.
    fn group(&self, depth: usize, node: Ptr) -> Option<u32> {
        match node.kind() {
            Kind::Collapsed => Some(self.arena.group(node).leaves),
            _ if depth > Group::DEPTH_MAX => None,
            _ => leaves_below(self.arena, node, GROUP_LEAVES).map(|leaves| leaves as u32),
        }
    }

    fn account(&mut self, node: Ptr) -> Result<(), E> {
        let (path, leaf) = (*self.arena.path(node), self.arena.account(node));
        let is_open = leaf.storage.node.kind() == Kind::Branch && leaf.storage.len > SMALL_STORAGE;
        let storage = match leaf.storage {
            storage if storage.node == Ptr::NONE => StorageOutline::None,
            storage if is_open => StorageOutline::Open(storage.len),
            storage => StorageOutline::Closed(storage.len),
        };
        let part = OutlinePart::Account { path, account: leaf.account(), storage };
        (self.visit)(&TrieId::Accounts, &part)?;
        if is_open { self.node(&TrieId::Storage(path), Nibbles::EMPTY, leaf.storage.node) } else { Ok(()) }
    }
}
