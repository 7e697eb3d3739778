//! Where the nodes of all tries of a state are: rows of one size in slabs, named by 32 bits.
//!
//! A branch has a row of exactly as many children as it has, from 1 (for a moment) to 16, and holds their references
//! beside the pointers to them: encoding a branch reads one place. A leaf has its whole path, so that a branch needs no
//! nibbles: those it skips are read off any leaf below it.

use std::fmt::Debug;

use crate::ethereum::account::{Account, EMPTY_CODE_HASH, EMPTY_ROOT};
use crate::ethereum::group::Group;
use crate::ethereum::nibbles::KeyPath;
use crate::ethereum::node::{Reference, ones};
use crate::ethereum::ptr::{BRANCH_BITS, GROUP_BITS, Kind, LEAF_BITS, Ptr};
use crate::ethereum::rlp;
use crate::ethereum::slab::Slab;
use crate::hash::Hash;

/// What a branch says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The nibbles that have children.
    pub(crate) mask: u16,
    /// Those of them whose node is inlined: the reference is its encoding, and zeros.
    pub(crate) inlined: u16,
    /// How many nibbles are between the position of the branch and the branch.
    pub(crate) skip: u8,
}

impl Head {
    /// Where in the row the child of `nibble` is, if there is one.
    pub(crate) fn place(self, nibble: usize) -> Option<usize> {
        (self.mask >> nibble & 1 == 1).then(|| self.before(nibble))
    }

    fn before(self, nibble: usize) -> usize {
        (self.mask & ((1 << nibble) - 1)).count_ones() as usize
    }
}

/// A branch, read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    pub(crate) head: Head,
    pub(crate) children: &'a [Ptr],
    pub(crate) references: &'a [Hash],
}

struct BranchMut<'a> {
    head: &'a mut Head,
    children: &'a mut [Ptr],
    references: &'a mut [Hash],
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct BranchRow<const N: usize> {
    head: Head,
    children: [Ptr; N],
    references: [Hash; N],
}

#[derive(Clone, Copy, Debug)]
struct SlotRow<const N: usize> {
    path: KeyPath,
    value: [u8; N],
}

/// An account with neither code nor storage whose balance fits 16 bytes: most of them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PlainRow {
    path: KeyPath,
    balance: [u8; 16],
    nonce: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct FullRow {
    path: KeyPath,
    leaf: AccountLeaf,
}

/// The storage of an account: its trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) root: Hash,
    /// The number of slots.
    pub(crate) len: u64,
    pub(crate) node: Ptr,
}

impl Storage {
    pub(crate) const EMPTY: Self = Self { node: Ptr::NONE, root: EMPTY_ROOT, len: 0 };
}

/// An account without its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) balance: [u8; 32],
    pub(crate) code_hash: Hash,
    pub(crate) nonce: u64,
}

/// What the leaf of an account holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountLeaf {
    pub(crate) body: Body,
    pub(crate) storage: Storage,
}

impl AccountLeaf {
    pub(crate) fn account(&self) -> Account {
        let Body { nonce, balance, code_hash } = self.body;
        Account { nonce, balance, code_hash, storage_root: self.storage.root }
    }
}

/// The branches of one number of children.
trait Branches: Debug + Send + Sync {
    fn get(&self, row: u32) -> Branch<'_>;
    fn get_mut(&mut self, row: u32) -> BranchMut<'_>;
    /// A row of which only the head is set.
    fn add(&mut self, head: Head) -> u32;
    fn free(&mut self, row: u32);
    fn rows(&self) -> u32;
    fn bytes(&self) -> (usize, usize);
}

impl<const N: usize> Branches for Slab<BranchRow<N>> {
    fn get(&self, row: u32) -> Branch<'_> {
        let row = Slab::get(self, row);
        Branch { head: row.head, children: &row.children, references: &row.references }
    }

    fn get_mut(&mut self, row: u32) -> BranchMut<'_> {
        let row = Slab::get_mut(self, row);
        BranchMut { head: &mut row.head, children: &mut row.children, references: &mut row.references }
    }

    fn add(&mut self, head: Head) -> u32 {
        Slab::add(self, BranchRow { head, children: [Ptr::NONE; N], references: [[0; 32]; N] })
    }

    fn free(&mut self, row: u32) {
        Slab::free(self, row);
    }

    fn rows(&self) -> u32 {
        Slab::rows(self)
    }

    fn bytes(&self) -> (usize, usize) {
        Slab::bytes(self)
    }
}

/// The slots whose values fit one size.
trait Slots: Debug + Send + Sync {
    fn get(&self, row: u32) -> (&KeyPath, &[u8]);
    fn add(&mut self, path: &KeyPath, value: &Hash) -> u32;
    fn free(&mut self, row: u32);
    fn rows(&self) -> u32;
    fn bytes(&self) -> (usize, usize);
}

impl<const N: usize> Slots for Slab<SlotRow<N>> {
    fn get(&self, row: u32) -> (&KeyPath, &[u8]) {
        let row = Slab::get(self, row);
        (&row.path, &row.value)
    }

    fn add(&mut self, path: &KeyPath, value: &Hash) -> u32 {
        let mut row = SlotRow { path: *path, value: [0; N] };
        row.value.copy_from_slice(&value[32 - N..]);
        Slab::add(self, row)
    }

    fn free(&mut self, row: u32) {
        Slab::free(self, row);
    }

    fn rows(&self) -> u32 {
        Slab::rows(self)
    }

    fn bytes(&self) -> (usize, usize) {
        Slab::bytes(self)
    }
}

/// All nodes of all tries.
#[derive(Debug)]
pub(crate) struct Arena {
    /// By the number of children, 1 to 16.
    branches: [Box<dyn Branches>; 16],
    /// By the size of the value: 8, 16, 24, 32 bytes.
    slots: [Box<dyn Slots>; 4],
    plain: Slab<PlainRow>,
    full: Slab<FullRow>,
    groups: Slab<Group>,
}

fn branches<const N: usize>() -> Box<dyn Branches> {
    Box::new(Slab::<BranchRow<N>>::new())
}

fn slots<const N: usize>() -> Box<dyn Slots> {
    Box::new(Slab::<SlotRow<N>>::new())
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            branches: [
                branches::<1>(),
                branches::<2>(),
                branches::<3>(),
                branches::<4>(),
                branches::<5>(),
                branches::<6>(),
                branches::<7>(),
                branches::<8>(),
                branches::<9>(),
                branches::<10>(),
                branches::<11>(),
                branches::<12>(),
                branches::<13>(),
                branches::<14>(),
                branches::<15>(),
                branches::<16>(),
            ],
            slots: [slots::<8>(), slots::<16>(), slots::<24>(), slots::<32>()],
            plain: Slab::new(),
            full: Slab::new(),
            groups: Slab::new(),
        }
    }

    /// Whether `nodes` more nodes are sure to find names.
    pub(crate) fn has_room(&self, nodes: usize) -> bool {
        let is_below = |rows: u32, bits: u32| rows as usize + nodes < (1 << bits) - 1;
        self.branches[1..].iter().all(|slab| is_below(slab.rows(), BRANCH_BITS))
            && is_below(self.branches[0].rows(), GROUP_BITS)
            && is_below(self.groups.rows(), GROUP_BITS)
            && self.slots.iter().all(|slab| is_below(slab.rows(), LEAF_BITS))
            && is_below(self.plain.rows(), LEAF_BITS)
            && is_below(self.full.rows(), LEAF_BITS)
    }

    #[inline]
    pub(crate) fn branch(&self, branch: Ptr) -> Branch<'_> {
        let (slab, row) = branch.branch_row();
        self.branches[slab].get(row)
    }

    fn branch_mut(&mut self, branch: Ptr) -> BranchMut<'_> {
        let (slab, row) = branch.branch_row();
        self.branches[slab].get_mut(row)
    }

    /// A branch of the given children, ascending, whose references are not known yet.
    pub(crate) fn add_branch(
        &mut self,
        mask: u16,
        skip: usize,
        children: impl IntoIterator<Item = Ptr>,
    ) -> Ptr {
        let slab = mask.count_ones() as usize - 1;
        let row = self.branches[slab].add(Head { mask, inlined: 0, skip: skip as u8 });
        let branch = self.branches[slab].get_mut(row);
        branch.children.iter_mut().zip(children).for_each(|(place, child)| *place = child);
        Ptr::branch(slab + 1, row)
    }

    pub(crate) fn set_skip(&mut self, branch: Ptr, skip: usize) {
        self.branch_mut(branch).head.skip = skip as u8;
    }

    pub(crate) fn child(&self, branch: Ptr, nibble: usize) -> Ptr {
        let branch = self.branch(branch);
        branch.head.place(nibble).map_or(Ptr::NONE, |place| branch.children[place])
    }

    /// Replaces a child that is there.
    pub(crate) fn set_child(&mut self, branch: Ptr, nibble: usize, child: Ptr) {
        let branch = self.branch_mut(branch);
        let place = branch.head.before(nibble);
        branch.children[place] = child;
    }

    /// Adds a child that is not there, and gives the branch a row that has room for it.
    pub(crate) fn insert_child(&mut self, branch: Ptr, nibble: usize, child: Ptr) -> Ptr {
        self.rearrange(branch, |mask| mask | 1 << nibble, Some((nibble, child)))
    }

    /// Keeps the children in `mask`, which are there, and gives the branch a row that has no room for more.
    pub(crate) fn retain_children(&mut self, branch: Ptr, mask: u16) -> Ptr {
        self.rearrange(branch, |_| mask, None)
    }

    fn rearrange(&mut self, old: Ptr, mask: impl Fn(u16) -> u16, added: Option<(usize, Ptr)>) -> Ptr {
        let from = self.branch(old);
        let mask = mask(from.head.mask);
        let (mut children, mut references) = ([Ptr::NONE; 16], [[0; 32]; 16]);
        for (to, nibble) in ones(mask).enumerate() {
            match (from.head.place(nibble), added) {
                (Some(place), _) => {
                    (children[to], references[to]) = (from.children[place], from.references[place]);
                }
                (None, Some((new, child))) if new == nibble => children[to] = child,
                (None, _) => {}
            }
        }
        let (inlined, skip) = (from.head.inlined & mask, usize::from(from.head.skip));
        self.free_node(old);
        let new = self.add_branch(mask, skip, children);
        let to = self.branch_mut(new);
        to.head.inlined = inlined;
        let count = to.references.len();
        to.references.copy_from_slice(&references[..count]);
        new
    }

    pub(crate) fn reference(&self, branch: Ptr, nibble: usize) -> Reference {
        let branch = self.branch(branch);
        let place = branch.head.before(nibble);
        Reference::from_parts(branch.references[place], branch.head.inlined >> nibble & 1 == 1)
    }

    #[inline]
    pub(crate) fn set_hash(&mut self, branch: Ptr, nibble: usize, hash: &Hash) {
        let branch = self.branch_mut(branch);
        let place = branch.head.before(nibble);
        branch.references[place] = *hash;
        branch.head.inlined &= !(1 << nibble);
    }

    /// Sets the reference of a child to its encoding, which is under 32 bytes.
    pub(crate) fn set_inline(&mut self, branch: Ptr, nibble: usize, encoding: &[u8]) {
        let branch = self.branch_mut(branch);
        let place = branch.head.before(nibble);
        branch.references[place] = [0; 32];
        branch.references[place][..encoding.len()].copy_from_slice(encoding);
        branch.head.inlined |= 1 << nibble;
    }

    pub(crate) fn add_slot(&mut self, path: &KeyPath, value: &Hash) -> Ptr {
        let size = rlp::trimmed(value).len().div_ceil(8).max(1) - 1;
        Ptr::slot(size, self.slots[size].add(path, value))
    }

    /// The value of a slot, perhaps with some of its leading zeros.
    pub(crate) fn slot(&self, slot: Ptr) -> (&KeyPath, &[u8]) {
        let (slab, row) = slot.leaf_row();
        self.slots[slab].get(row)
    }

    pub(crate) fn slot_value(&self, slot: Ptr) -> Hash {
        let (mut value, bytes) = ([0; 32], self.slot(slot).1);
        value[32 - bytes.len()..].copy_from_slice(bytes);
        value
    }

    pub(crate) fn add_account(&mut self, path: &KeyPath, leaf: &AccountLeaf) -> Ptr {
        let (high, low) = leaf.body.balance.as_chunks::<16>().0.split_at(1);
        if leaf.storage == Storage::EMPTY && leaf.body.code_hash == EMPTY_CODE_HASH && high[0] == [0; 16] {
            let row = PlainRow { path: *path, balance: low[0], nonce: leaf.body.nonce };
            return Ptr::account(false, self.plain.add(row));
        }
        Ptr::account(true, self.full.add(FullRow { path: *path, leaf: *leaf }))
    }

    pub(crate) fn account(&self, account: Ptr) -> AccountLeaf {
        let (slab, row) = account.leaf_row();
        if slab == 1 {
            return self.full.get(row).leaf;
        }
        let row = self.plain.get(row);
        let mut balance = [0; 32];
        balance[16..].copy_from_slice(&row.balance);
        let body = Body { nonce: row.nonce, balance, code_hash: EMPTY_CODE_HASH };
        AccountLeaf { body, storage: Storage::EMPTY }
    }

    /// Replaces the storage of an account that has one.
    pub(crate) fn set_storage(&mut self, account: Ptr, storage: Storage) {
        let (slab, row) = account.leaf_row();
        assert_eq!(slab, 1, "only rows of one size have room for a storage");
        self.full.get_mut(row).leaf.storage = storage;
    }

    /// The whole path of a leaf.
    pub(crate) fn path(&self, leaf: Ptr) -> &KeyPath {
        match (leaf.kind(), leaf.leaf_row()) {
            (Kind::Collapsed, _) => unreachable!("a group is expanded before its leaves are read"),
            (Kind::Slot, (slab, row)) => self.slots[slab].get(row).0,
            (_, (1, row)) => &self.full.get(row).path,
            (_, (_, row)) => &self.plain.get(row).path,
        }
    }

    /// The path of some leaf below a node, or of the leaf, as far down as to a collapsed group: zeros follow there.
    pub(crate) fn path_below(&self, mut node: Ptr) -> KeyPath {
        while node.kind() == Kind::Branch {
            // A child may be missing while a branch is changed.
            let children = self.branch(node).children;
            node = *children.iter().find(|child| **child != Ptr::NONE).expect("a branch has children");
        }
        if node.kind() == Kind::Collapsed { self.group(node).path() } else { *self.path(node) }
    }

    pub(crate) fn add_group(&mut self, group: Group) -> Ptr {
        Ptr::collapsed(self.groups.add(group))
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> u32 {
        self.groups.used()
    }

    pub(crate) fn group(&self, group: Ptr) -> Group {
        *self.groups.get(group.group_row())
    }

    /// Whether two leaves of one path hold the same.
    pub(crate) fn leaves_equal(&self, a: Ptr, b: Ptr) -> bool {
        match (a.kind(), b.kind()) {
            (Kind::Slot, Kind::Slot) => self.slot(a).1 == self.slot(b).1,
            (Kind::Account, Kind::Account) => self.account(a) == self.account(b),
            _ => false,
        }
    }

    /// Frees the row of a node; what is below it stays.
    pub(crate) fn free_node(&mut self, node: Ptr) {
        match node.kind() {
            Kind::Nothing => {}
            Kind::Branch => {
                let (slab, row) = node.branch_row();
                self.branches[slab].free(row);
            }
            Kind::Slot => {
                let (slab, row) = node.leaf_row();
                self.slots[slab].free(row);
            }
            Kind::Collapsed => self.groups.free(node.group_row()),
            Kind::Account => match node.leaf_row() {
                (1, row) => self.full.free(row),
                (_, row) => self.plain.free(row),
            },
        }
    }

    /// Bytes of all rows that hold something.
    pub(crate) fn node_bytes(&self) -> u64 {
        let (leaves, inner, _) = self.bytes();
        (leaves + inner) as u64
    }

    /// Bytes of leaves, of branches and collapsed groups, and of all that is allocated.
    pub(crate) fn bytes(&self) -> (usize, usize, usize) {
        let (mut leaves, mut inner, mut all) = (0, 0, 0);
        let slabs = self.slots.iter().map(|slab| slab.bytes());
        for (used, allocated) in slabs.chain([self.plain.bytes(), self.full.bytes()]) {
            (leaves, all) = (leaves + used, all + allocated);
        }
        let slabs = self.branches.iter().map(|slab| slab.bytes());
        for (used, allocated) in slabs.chain([self.groups.bytes()]) {
            (inner, all) = (inner + used, all + allocated);
        }
        (leaves, inner, all)
    }
}
