//! Putting a trie together of its [outline](crate::ethereum::outline), part by part in the order of paths.

use crate::ethereum::account::EMPTY_ROOT;
use crate::ethereum::arena::{AccountLeaf, Arena, Body, Storage};
use crate::ethereum::dirty::{DirtyNodes, Parent};
use crate::ethereum::group::Group;
use crate::ethereum::nibbles::{KeyPath, Nibbles, common_nibbles, nibble};
use crate::ethereum::node::{Reference, ones};
use crate::ethereum::outline::{OutlinePart, StorageOutline};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::rows::TrieId;
use crate::ethereum::trie::StateTrie;
use crate::hash::Hash;
use crate::hash::simd::HashBackend;

/// Parts between two times that what is known is hashed, and room is looked for.
const RUN: usize = 1 << 14;

/// A part makes a leaf or a group, and a branch at most.
const NODES_PER_PART: usize = 2;

/// Parts that are the outline of no trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no outline of a state: {0}")]
pub struct OutlineError(&'static str);

/// Takes the parts of an outline, as [`StateTrie::outline`] shows them.
///
/// # Cost
/// Linear: each branch is hashed once, by lanes. No leaf of a group is looked at: that each group has the leaves of its reference shows
/// when it is [expanded](StateTrie::expand), and that all of them are those of a state follows from its root.
#[derive(Debug)]
pub struct OutlineLoader {
    trie: StateTrie,
    accounts: OpenTrie,
    /// The account whose storage is being taken in.
    open: Option<OpenAccount>,
    /// The storage roots that are hashed next, as their accounts have them.
    roots: Vec<Hash>,
    /// Accounts so far.
    len: u64,
    /// Parts since the last time.
    since: usize,
}

#[derive(Debug)]
struct OpenAccount {
    path: KeyPath,
    leaf: AccountLeaf,
    slots: OpenTrie,
    /// Slots so far.
    len: u64,
}

impl OutlineLoader {
    /// That of a state without accounts so far.
    pub fn new(backend: HashBackend) -> Self {
        Self {
            trie: StateTrie::new(backend),
            accounts: OpenTrie::default(),
            open: None,
            roots: Vec::new(),
            len: 0,
            since: 0,
        }
    }

    /// Takes the next part, of the given trie.
    ///
    /// # Errors
    /// It cannot follow those before it.
    pub fn push(&mut self, trie: &TrieId, part: &OutlinePart) -> Result<(), OutlineError> {
        self.since += 1;
        if self.since >= RUN {
            self.since = 0;
            self.rehash()?;
            if !self.trie.arena().has_room(NODES_PER_PART * RUN) {
                return Err(OutlineError("there is no room for it"));
            }
        }
        match trie {
            TrieId::Accounts => self.push_account_part(part),
            TrieId::Storage(account) => self.push_storage_part(account, part),
        }
    }

    /// The trie, of a state with so many slots.
    ///
    /// # Errors
    /// The parts are not all of a trie; there is another number of accounts.
    pub fn finish(mut self, accounts: u64, slots: u64) -> Result<StateTrie, OutlineError> {
        self.close_account()?;
        if self.len != accounts {
            return Err(OutlineError("it has another number of accounts"));
        }
        let (arena, dirty) = self.trie.parts_mut();
        let node = std::mem::take(&mut self.accounts).finish(arena, dirty)?;
        let mut root = EMPTY_ROOT;
        if node == Ptr::NONE {
            self.rehash()?;
        } else {
            let index = dirty.mark_root(arena, node);
            let roots = dirty.rehash(arena);
            compare(&roots[..index], &self.roots)?;
            root = roots[index];
        }
        self.trie.set_top(node, root, accounts, slots);
        Ok(self.trie)
    }

    fn push_account_part(&mut self, part: &OutlinePart) -> Result<(), OutlineError> {
        self.close_account()?;
        match part {
            OutlinePart::Group { position, reference, leaves } => {
                self.len += u64::from(*leaves);
                let (arena, dirty) = self.trie.parts_mut();
                let item = group(arena, position, *reference, *leaves)?;
                self.accounts.push(arena, dirty, item)
            }
            OutlinePart::Account { path, account, storage } => {
                self.len += 1;
                let body =
                    Body { balance: account.balance, code_hash: account.code_hash, nonce: account.nonce };
                let (arena, _) = self.trie.parts_mut();
                let root = account.storage_root;
                let storage = match *storage {
                    StorageOutline::None if root == EMPTY_ROOT => Storage::EMPTY,
                    StorageOutline::Closed(len) if root != EMPTY_ROOT => {
                        let node = arena.add_group(Group::new(&Nibbles::EMPTY, len.max(1) as u32));
                        Storage { root, len, node }
                    }
                    StorageOutline::Open(len) if root != EMPTY_ROOT => Storage { root, len, node: Ptr::NONE },
                    _ => return Err(OutlineError("the storage of an account is not that of its root")),
                };
                let leaf = AccountLeaf { body, storage };
                self.open = Some(OpenAccount { path: *path, leaf, slots: OpenTrie::default(), len: 0 });
                Ok(())
            }
            OutlinePart::Slot { .. } => Err(OutlineError("a slot is in no storage")),
        }
    }

    fn push_storage_part(&mut self, account: &KeyPath, part: &OutlinePart) -> Result<(), OutlineError> {
        let open = self.open.as_mut().filter(|open| {
            open.path == *account
                && open.leaf.storage.node == Ptr::NONE
                && open.leaf.storage.root != EMPTY_ROOT
        });
        let open = open.ok_or(OutlineError("a storage does not follow its account"))?;
        let (arena, dirty) = self.trie.parts_mut();
        open.len += if let OutlinePart::Group { leaves, .. } = part { u64::from(*leaves) } else { 1 };
        let item = match part {
            OutlinePart::Group { position, reference, leaves } => {
                group(arena, position, *reference, *leaves)?
            }
            OutlinePart::Slot { path, value } if *value != [0; 32] => {
                Item { path: *path, depth: None, node: arena.add_slot(path, value), reference: None }
            }
            _ => return Err(OutlineError("what is in a storage is no slot")),
        };
        open.slots.push(arena, dirty, item)
    }

    /// Makes the account whose storage is complete.
    fn close_account(&mut self) -> Result<(), OutlineError> {
        let Some(OpenAccount { path, mut leaf, slots, len }) = self.open.take() else { return Ok(()) };
        let (arena, dirty) = self.trie.parts_mut();
        if leaf.storage.node == Ptr::NONE && leaf.storage.root != EMPTY_ROOT {
            leaf.storage.node = slots.finish(arena, dirty)?;
            if leaf.storage.node.kind() != Kind::Branch || leaf.storage.len != len {
                return Err(OutlineError("an open storage has another number of slots"));
            }
            dirty.mark_root(arena, leaf.storage.node);
            self.roots.push(leaf.storage.root);
        }
        let node = arena.add_account(&path, &leaf);
        self.accounts.push(arena, dirty, Item { path, depth: None, node, reference: None })
    }

    fn rehash(&mut self) -> Result<(), OutlineError> {
        let (arena, dirty) = self.trie.parts_mut();
        let roots = dirty.rehash(arena);
        let compared = compare(&roots, &self.roots);
        self.roots.clear();
        compared
    }
}

fn compare(found: &[Hash], recorded: &[Hash]) -> Result<(), OutlineError> {
    if found == recorded {
        Ok(())
    } else {
        Err(OutlineError("a storage has another root than its account says"))
    }
}

fn group(
    arena: &mut Arena,
    position: &Nibbles,
    reference: Reference,
    leaves: u32,
) -> Result<Item, OutlineError> {
    if !(1..=Group::DEPTH_MAX).contains(&position.len()) || leaves == 0 {
        return Err(OutlineError("a group is where none can be"));
    }
    let node = arena.add_group(Group::new(position, leaves));
    Ok(Item { path: *position.padded(), depth: Some(position.len()), node, reference: Some(reference) })
}

/// What is at a position: a leaf, or a group.
#[derive(Debug)]
struct Item {
    path: KeyPath,
    /// The nibbles of the position, of a group.
    depth: Option<usize>,
    node: Ptr,
    reference: Option<Reference>,
}

/// A branch whose last child is not known yet.
#[derive(Debug)]
struct OpenBranch {
    /// The nibbles above its children's own.
    end: usize,
    mask: u16,
    children: [Ptr; 16],
    references: [Option<Reference>; 16],
}

/// A trie of which the part before a path is complete.
#[derive(Debug, Default)]
struct OpenTrie {
    /// Those on the way to the last item, each deeper than the one before.
    branches: Vec<OpenBranch>,
    last: Option<Item>,
}

impl OpenTrie {
    fn push(&mut self, arena: &mut Arena, dirty: &mut DirtyNodes, item: Item) -> Result<(), OutlineError> {
        if let Some(last) = self.last.take() {
            if last.path >= item.path {
                return Err(OutlineError("its parts do not ascend"));
            }
            let end = common_nibbles(&last.path, &item.path);
            self.place(arena, dirty, &last, Some(end))?;
        }
        self.last = Some(item);
        Ok(())
    }

    /// The top; nothing where there was no part.
    fn finish(mut self, arena: &mut Arena, dirty: &mut DirtyNodes) -> Result<Ptr, OutlineError> {
        let Some(last) = self.last.take() else { return Ok(Ptr::NONE) };
        if self.branches.is_empty() {
            return if last.depth.is_none() { Ok(last.node) } else { Err(MISPLACED) };
        }
        self.place(arena, dirty, &last, None)
    }

    /// Hangs an item on the branch that it is a child of. The next item leaves its path after `next` nibbles: branches below are complete.
    /// Gives the top of the trie if there is no next one.
    fn place(
        &mut self,
        arena: &mut Arena,
        dirty: &mut DirtyNodes,
        item: &Item,
        next: Option<usize>,
    ) -> Result<Ptr, OutlineError> {
        let deepest = self.branches.last().map(|branch| branch.end).max(next).expect("a branch is above");
        if item.depth.is_some_and(|depth| depth != deepest + 1) {
            return Err(MISPLACED);
        }
        let (mut node, mut reference) = (item.node, item.reference);
        loop {
            let end = self.branches.last().map(|branch| branch.end);
            if next.is_some() && end < next {
                self.branches.push(OpenBranch::at(next.unwrap_or_default()));
            }
            let Some(branch) = self.branches.last_mut() else { return Ok(node) };
            branch.add(nibble(&item.path, branch.end), node, reference.take());
            if next == Some(branch.end) {
                return Ok(node);
            }
            let branch = self.branches.pop().expect("there is one");
            let above = self.branches.last().map(|above| above.end).max(next);
            node = branch.close(arena, dirty, above);
        }
    }
}

const MISPLACED: OutlineError = OutlineError("a group is not where its neighbours leave it");

impl OpenBranch {
    fn at(end: usize) -> Self {
        Self { end, mask: 0, children: [Ptr::NONE; 16], references: [None; 16] }
    }

    fn add(&mut self, nibble: usize, child: Ptr, reference: Option<Reference>) {
        self.mask |= 1 << nibble;
        (self.children[nibble], self.references[nibble]) = (child, reference);
    }

    /// Makes the branch, below one whose children follow `above` nibbles, and notes what is to be hashed of its children.
    fn close(self, arena: &mut Arena, dirty: &mut DirtyNodes, above: Option<usize>) -> Ptr {
        let skip = self.end - above.map_or(0, |above| above + 1);
        let node = arena.add_branch(self.mask, skip, ones(self.mask).map(|nibble| self.children[nibble]));
        for nibble in ones(self.mask) {
            match self.references[nibble] {
                Some(reference) => {
                    let (bytes, is_inline) = reference.parts();
                    if is_inline {
                        arena.set_inline(node, nibble, reference.bytes());
                    } else {
                        arena.set_hash(node, nibble, bytes);
                    }
                }
                None => {
                    let parent = Parent::Branch { branch: node, nibble: nibble as u8 };
                    dirty.mark(arena, self.children[nibble], parent, self.end + 1);
                }
            }
        }
        node
    }
}
