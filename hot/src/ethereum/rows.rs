//! For rows of nodes: what stands now at each position of a depth that some blocks changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::ethereum::arena::Arena;
use crate::ethereum::dirty::put_node;
use crate::ethereum::nibbles::{KeyPath, Nibbles, common_nibbles, nibble};
use crate::ethereum::node::{NodeRef, Reference};
use crate::ethereum::ptr::{Kind, Ptr};
use crate::ethereum::trie::StateTrie;
use crate::ethereum::undo::Undo;

/// One of the tries of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrieId {
    /// That of the accounts.
    Accounts,
    /// That of the storage of the account with this path.
    Storage(KeyPath),
}

/// The parts of one trie that some blocks changed.
#[derive(Default)]
struct Touched<'u> {
    paths: BTreeSet<&'u KeyPath>,
    /// The tops of storages that were wiped: they had positions that the present one may lack.
    wiped: Vec<Ptr>,
}

impl StateTrie {
    /// The number of leaves of a trie: none where there is no such account.
    pub fn trie_len(&self, trie: &TrieId) -> u64 {
        match trie {
            TrieId::Accounts => self.accounts(),
            TrieId::Storage(account) => self.storage_len(account).unwrap_or(0),
        }
    }

    /// Tells what stands now at each position that the blocks of `undos` changed: the tries ascending, of each the depths
    /// that `depths` gives for it, of each depth the positions ascending. A position has as many nibbles as its depth is;
    /// with it goes the branch at or below it that all its leaves are under, or nothing where there is a leaf or none.
    ///
    /// # Cost
    /// A way down for each position, and a hash where nibbles are skipped. Of a wiped storage all positions of these
    /// depths are visited.
    ///
    /// # Panics
    /// When a depth is over 64.
    pub fn changed_nodes<'u, D: IntoIterator<Item = usize>>(
        &self,
        undos: impl IntoIterator<Item = &'u Undo>,
        mut depths: impl FnMut(&TrieId) -> D,
        mut visit: impl FnMut(&TrieId, &Nibbles, Option<NodeRef>),
    ) {
        let mut tries: BTreeMap<TrieId, Touched<'u>> = BTreeMap::new();
        for account in undos.into_iter().flat_map(|undo| &undo.accounts) {
            tries.entry(TrieId::Accounts).or_default().paths.insert(&account.path);
            if account.wiped.is_some() || !account.slots.is_empty() {
                let touched = tries.entry(TrieId::Storage(account.path)).or_default();
                touched.paths.extend(account.slots.iter().map(|(slot, _)| slot));
                touched.wiped.extend(account.wiped.iter().map(|wiped| wiped.storage().node));
            }
        }
        for (trie, touched) in &tries {
            let top = match trie {
                TrieId::Accounts => self.top(),
                TrieId::Storage(account) => {
                    self.account_leaf(account).map_or(Ptr::NONE, |leaf| leaf.storage.node)
                }
            };
            for depth in depths(trie) {
                for position in touched.positions(self.arena(), depth) {
                    visit(trie, &position, node_at(self.arena(), top, &position));
                }
            }
        }
    }

    /// The branch at or below a position that all leaves under the position are under; nothing where there is a leaf or
    /// none.
    pub fn node_at(&self, trie: &TrieId, position: &Nibbles) -> Option<NodeRef> {
        let top = match trie {
            TrieId::Accounts => self.top(),
            TrieId::Storage(account) => self.account_leaf(account)?.storage.node,
        };
        node_at(self.arena(), top, position)
    }
}

impl Touched<'_> {
    /// The positions of a depth that changed, ascending.
    fn positions(&self, arena: &Arena, depth: usize) -> Vec<Nibbles> {
        let mut positions: Vec<Nibbles> =
            self.paths.iter().map(|path| Nibbles::prefix(path, depth)).collect();
        let mut open: Vec<(Ptr, usize)> = self.wiped.iter().map(|top| (*top, 0)).collect();
        while let Some((node, at)) = open.pop() {
            if node == Ptr::NONE {
                continue;
            }
            let end = match node.kind() {
                Kind::Branch => at + usize::from(arena.branch(node).head.skip),
                _ => depth,
            };
            if end >= depth {
                positions.push(Nibbles::prefix(arena.path_below(node), depth));
            } else {
                open.extend(arena.branch(node).children.iter().map(|child| (*child, end + 1)));
            }
        }
        positions.sort_unstable_by(|a, b| a.padded().cmp(b.padded()));
        positions.dedup();
        positions
    }
}

fn node_at(arena: &Arena, mut node: Ptr, position: &Nibbles) -> Option<NodeRef> {
    let mut depth = 0;
    while node.kind() == Kind::Branch {
        let end = depth + usize::from(arena.branch(node).head.skip);
        if end >= position.len() {
            let path = arena.path_below(node);
            let skipped = end - position.len();
            return (common_nibbles(path, position.padded()) >= position.len()).then(|| {
                let skipped = Nibbles::part(path, position.len(), skipped);
                let mut encoding = Vec::new();
                put_node(arena, node, depth, &mut Vec::new(), &mut encoding);
                NodeRef { skipped, reference: Reference::of(&encoding) }
            });
        }
        node = arena.child(node, nibble(position.padded(), end));
        depth = end + 1;
    }
    None
}
