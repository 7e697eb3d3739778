//! Getting back the leaves that [collapsed](crate::ethereum::collapse): which groups a block will meet, and putting their leaves in.
//!
//! Whoever has a block asks first which groups of accounts it meets, reads their leaves from where they are kept, and expands them;
//! then the same of the storages. What is put in must have the reference that the group had, so that wrong leaves do not pass.

use crate::ethereum::account::{Account, EMPTY_ROOT};
use crate::ethereum::arena::{AccountLeaf, Arena, Body, Storage};
use crate::ethereum::descent;
use crate::ethereum::dirty::Parent;
use crate::ethereum::group::Group;
use crate::ethereum::nibbles::{KeyPath, Nibbles, common_nibbles, nibble};
use crate::ethereum::node::{Reference, ones};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::rows::TrieId;
use crate::ethereum::sweep::free_below;
use crate::ethereum::trie::StateTrie;
use crate::ethereum::undo::Undo;
use crate::ethereum::update::Update;

/// A path of a trie that will be read or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The path.
    pub path: KeyPath,
    /// Whether the leaf may go away: a branch that is left with one child takes that child up, so that it must be known.
    pub may_vanish: bool,
}

/// The leaves of a group, ascending by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupLeaves {
    /// Accounts, with their storage roots.
    Accounts(Vec<(KeyPath, Account)>),
    /// Slots and their values, none of them zero.
    Slots(Vec<(KeyPath, [u8; 32])>),
}

/// A collapsed group and what is put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// The trie that the group is of.
    pub trie: TrieId,
    /// Where it is: all its leaves begin so.
    pub position: Nibbles,
    /// Its leaves.
    pub leaves: GroupLeaves,
}

/// The leaves that were given are not those of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the leaves at {position} are not those that the trie was built from")]
pub struct ExpandError {
    /// The trie.
    pub trie: TrieId,
    /// The position of the group.
    pub position: Nibbles,
}

/// Where a group hangs.
#[derive(Clone, Copy)]
enum Place {
    Branch { branch: Ptr, nibble: usize },
    Storage { account: Ptr },
}

/// A group that leaves were put in for, and what it was.
struct Expanded {
    place: Place,
    group: Group,
    node: Ptr,
    reference: Reference,
    /// The number of its root, where it is a whole storage.
    root: Option<usize>,
}

impl StateTrie {
    /// The positions of the collapsed groups of a trie that a block meets which touches these paths, ascending.
    ///
    /// # Cost
    /// A way down for each path.
    pub fn collapsed_below(&self, trie: &TrieId, touched: &[Touched]) -> Vec<Nibbles> {
        let mut met = Vec::new();
        if self.has_collapsed() && !touched.is_empty() {
            meet(self.arena(), self.top_of(trie), 0, touched, &mut met);
            met.sort_unstable_by(|a, b| a.padded().cmp(b.padded()));
            met.dedup();
        }
        met
    }

    /// The positions of the collapsed groups of a trie that are at `depth` or above.
    ///
    /// # Cost
    /// All branches above `depth` are visited.
    pub fn collapsed_above(&self, trie: &TrieId, depth: usize) -> Vec<Nibbles> {
        let (mut found, mut open) = (Vec::new(), vec![(self.top_of(trie), 0)]);
        while let Some((node, at)) = open.pop().filter(|_| self.has_collapsed()) {
            match node.kind() {
                Kind::Collapsed if at <= depth => {
                    found.push(Nibbles::prefix(&self.arena().path_below(node), at));
                }
                Kind::Branch if at < depth => {
                    let branch = self.arena().branch(node);
                    let below = at + usize::from(branch.head.skip) + 1;
                    open.extend(branch.children.iter().map(|child| (*child, below)));
                }
                _ => {}
            }
        }
        found
    }

    /// Puts leaves in the place of collapsed groups.
    ///
    /// # Errors
    /// Leaves are not those of their group: it stays collapsed, and the others are expanded.
    ///
    /// # Panics
    /// When there is no group at a position.
    pub fn expand(&mut self, expansions: &[Expansion]) -> Result<(), ExpandError> {
        let refused =
            |expansion: &Expansion| ExpandError { trie: expansion.trie, position: expansion.position };
        if let Some(wrong) =
            expansions.iter().find(|expansion| !expansion.leaves.are_below(&expansion.position))
        {
            return Err(refused(wrong));
        }
        let expanded: Vec<Expanded> = expansions.iter().map(|expansion| self.put(expansion)).collect();
        let (arena, dirty) = self.parts_mut();
        let roots = dirty.rehash(arena);
        let mut outcome = Ok(());
        for (expansion, expanded) in expansions.iter().zip(expanded) {
            let found = match (expanded.place, expanded.root) {
                (Place::Branch { branch, nibble }, _) => arena.reference(branch, nibble),
                (_, Some(root)) => Reference::hash(roots[root]),
                _ => unreachable!("a storage has a root"),
            };
            if found != expanded.reference {
                expanded.take_back(arena);
                outcome = outcome.and(Err(refused(expansion)));
            }
        }
        outcome
    }

    /// Puts the leaves of a group in, and notes what is to be hashed.
    fn put(&mut self, expansion: &Expansion) -> Expanded {
        let (place, node) = self.place_of(&expansion.trie, &expansion.position);
        assert_eq!(node.kind(), Kind::Collapsed, "what is expanded is collapsed");
        let (arena, dirty) = self.parts_mut();
        let (group, depth) = (arena.group(node), expansion.position.len());
        arena.free_node(node);
        let leaves = expansion.leaves.add(arena);
        let node = Update { arena: &mut *arena, dirty: &mut *dirty }.build(&leaves, depth);
        let (reference, mut root) = (place.reference(arena), None);
        match place {
            Place::Branch { branch, nibble } => {
                arena.set_child(branch, nibble, node);
                dirty.mark(arena, node, Parent::Branch { branch, nibble: nibble as u8 }, depth);
            }
            Place::Storage { account } => {
                let storage = arena.account(account).storage;
                arena.set_storage(account, Storage { node, len: leaves.len() as u64, ..storage });
                root = Some(dirty.mark_root(arena, node));
            }
        }
        Expanded { place, group, node, reference, root }
    }

    /// Where the node at a position hangs, and the node.
    fn place_of(&self, trie: &TrieId, position: &Nibbles) -> (Place, Ptr) {
        let arena = self.arena();
        let (mut node, mut depth) = (self.top(), 0);
        let mut place = None;
        if let TrieId::Storage(account) = trie {
            let account = descent::find(arena, node, account).expect("only an account has a storage");
            node = arena.account(account).storage.node;
            place = Some(Place::Storage { account });
        }
        while depth < position.len() && node.kind() == Kind::Branch {
            let end = depth + usize::from(arena.branch(node).head.skip);
            let at = nibble(position.padded(), end);
            place = Some(Place::Branch { branch: node, nibble: at });
            (node, depth) = (arena.child(node, at), end + 1);
        }
        (place.expect("the top of the accounts does not collapse"), node)
    }
}

impl Place {
    fn reference(self, arena: &Arena) -> Reference {
        match self {
            Self::Branch { branch, nibble } => arena.reference(branch, nibble),
            Self::Storage { account } => Reference::hash(arena.account(account).storage.root),
        }
    }
}

impl Expanded {
    /// Collapses it again.
    fn take_back(&self, arena: &mut Arena) {
        free_below(arena, self.node);
        let node = arena.add_group(self.group);
        match self.place {
            Place::Branch { branch, nibble } => {
                arena.set_child(branch, nibble, node);
                let (bytes, is_inline) = self.reference.parts();
                if is_inline {
                    arena.set_inline(branch, nibble, self.reference.bytes());
                } else {
                    arena.set_hash(branch, nibble, bytes);
                }
            }
            Place::Storage { account } => {
                let storage = arena.account(account).storage;
                arena.set_storage(account, Storage { node, ..storage });
            }
        }
    }
}

impl GroupLeaves {
    /// Whether they ascend, and begin as their position says; a group has leaves.
    fn are_below(&self, position: &Nibbles) -> bool {
        fn are_below<T>(leaves: &[(KeyPath, T)], position: &Nibbles) -> bool {
            !leaves.is_empty()
                && leaves.iter().all(|(path, _)| position.is_prefix_of(path))
                && leaves.is_sorted_by(|(a, _), (b, _)| a < b)
        }
        match self {
            Self::Accounts(accounts) => are_below(accounts, position),
            Self::Slots(slots) => {
                are_below(slots, position) && slots.iter().all(|(_, value)| *value != [0; 32])
            }
        }
    }

    /// Makes the leaves; the storages of accounts are collapsed.
    fn add(&self, arena: &mut Arena) -> Vec<(KeyPath, Ptr)> {
        match self {
            Self::Accounts(accounts) => {
                let leaves = accounts.iter().map(|(path, account)| {
                    let &Account { nonce, balance, code_hash, storage_root } = account;
                    let mut storage = Storage::EMPTY;
                    if storage_root != EMPTY_ROOT {
                        let node = arena.add_group(Group::new(&Nibbles::EMPTY, 1));
                        storage = Storage { root: storage_root, len: 0, node };
                    }
                    let body = Body { balance, code_hash, nonce };
                    (*path, arena.add_account(path, &AccountLeaf { body, storage }))
                });
                leaves.collect()
            }
            Self::Slots(slots) => {
                slots.iter().map(|(path, value)| (*path, arena.add_slot(path, value))).collect()
            }
        }
    }
}

/// Adds the groups below a node that are met on the way to paths, and tells whether the node may vanish.
fn meet(arena: &Arena, node: Ptr, depth: usize, touched: &[Touched], met: &mut Vec<Nibbles>) -> bool {
    match node.kind() {
        Kind::Nothing => false,
        Kind::Slot | Kind::Account => touched.iter().any(|touched| touched.may_vanish),
        Kind::Collapsed => {
            met.push(Nibbles::prefix(&touched[0].path, depth));
            touched.iter().any(|touched| touched.may_vanish)
        }
        Kind::Branch => {
            let branch = arena.branch(node);
            let end = depth + usize::from(branch.head.skip);
            let mut rest = touched;
            if end > depth {
                // Paths that leave the skipped nibbles meet nothing below.
                let path = arena.path_below(node);
                let inside = |touched: &Touched| common_nibbles(&touched.path, &path) >= end;
                let start = rest.iter().position(inside).unwrap_or(rest.len());
                let count = rest[start..].iter().take_while(|touched| inside(touched)).count();
                rest = &rest[start..start + count];
            }
            let mut may_vanish = 0u16;
            while let Some(first) = rest.first() {
                let at = nibble(&first.path, end);
                let count = rest.iter().take_while(|touched| nibble(&touched.path, end) == at).count();
                let (group, tail) = rest.split_at(count);
                rest = tail;
                let vanishes = meet(arena, arena.child(node, at), end + 1, group, met);
                may_vanish |= u16::from(vanishes) << at;
            }
            let staying = branch.head.mask & !may_vanish;
            if may_vanish != 0 && staying.is_power_of_two() {
                let at = ones(staying).next().expect("one bit is set");
                let child = arena.child(node, at);
                if child.kind() == Kind::Collapsed {
                    met.push(Nibbles::prefix(&arena.path_below(child), end + 1));
                }
            }
            staying == 0
        }
    }
}

impl Undo {
    /// The accounts that taking the batch back reads or changes, ascending.
    pub fn touched_accounts(&self) -> Vec<Touched> {
        let touched = |path: &KeyPath, is_there: bool| Touched { path: *path, may_vanish: !is_there };
        self.accounts.iter().map(|account| touched(&account.path, account.body.is_some())).collect()
    }

    /// The storages that it reads or changes, ascending by account, with the slots.
    pub fn touched_slots(&self) -> impl Iterator<Item = (KeyPath, Vec<Touched>)> + '_ {
        self.accounts.iter().filter(|account| account.wiped.is_some() || !account.slots.is_empty()).map(
            |account| {
                // One that gives way to the storage before it is counted: the whole of it must be known, if it is small.
                let any = account.wiped.is_some().then_some(Touched { path: [0; 32], may_vanish: false });
                let slots = account.slots.iter().filter(|_| account.wiped.is_none());
                let slots = slots.map(|(path, value)| Touched { path: *path, may_vanish: *value == [0; 32] });
                (account.path, any.into_iter().chain(slots).collect())
            },
        )
    }
}
