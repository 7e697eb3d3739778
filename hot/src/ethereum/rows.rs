//! For rows of nodes: what stands now at each position of a depth that a block changed.

use crate::ethereum::arena::Arena;
use crate::ethereum::descent::assert_outside;
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

/// The parts of one trie that a block changed.
struct Touched<'u> {
    /// Ascending.
    paths: Vec<&'u KeyPath>,
    /// The top of the storage that was wiped: it had positions that the present one may lack.
    wiped: Option<Ptr>,
}

impl StateTrie {
    /// The number of leaves of a trie: none where there is no such account.
    pub fn trie_len(&self, trie: &TrieId) -> u64 {
        match trie {
            TrieId::Accounts => self.accounts(),
            TrieId::Storage(account) => self.storage_len(account).unwrap_or(0),
        }
    }

    /// Tells what stands now at each position that the last block, that of `undo`, changed: the tries ascending, of each the
    /// depths that `depths` gives for it, of each depth the positions ascending. A position has as many nibbles as its depth is;
    /// with it goes the branch at or below it that all its leaves are under, or nothing where there is a leaf or none.
    ///
    /// # Cost
    /// A way down for each position, and a hash where nibbles are skipped. Of a wiped storage all positions of these
    /// depths are visited.
    ///
    /// # Panics
    /// When a depth is over 64.
    pub fn changed_nodes<D: IntoIterator<Item = usize>>(
        &self,
        undo: &Undo,
        mut depths: impl FnMut(&TrieId) -> D,
        mut visit: impl FnMut(&TrieId, &Nibbles, Option<NodeRef>),
    ) {
        let paths = undo.accounts.iter().map(|account| &account.path).collect();
        let mut tell = |trie: TrieId, touched: Touched<'_>| {
            let mut top = None;
            for depth in depths(&trie) {
                let top = *top.get_or_insert_with(|| self.top_of(&trie));
                for position in touched.positions(self.arena(), depth) {
                    visit(&trie, &position, node_at(self.arena(), top, &position));
                }
            }
        };
        tell(TrieId::Accounts, Touched { paths, wiped: None });
        for account in &undo.accounts {
            let wiped = account.wiped.as_ref().map(|wiped| wiped.storage().node);
            if wiped.is_some() || !account.slots.is_empty() {
                let paths = account.slots.iter().map(|(slot, _)| slot).collect();
                tell(TrieId::Storage(account.path), Touched { paths, wiped });
            }
        }
    }

    /// The branch at or below a position that all leaves under the position are under; nothing where there is a leaf or
    /// none.
    pub fn node_at(&self, trie: &TrieId, position: &Nibbles) -> Option<NodeRef> {
        node_at(self.arena(), self.top_of(trie), position)
    }

    pub(crate) fn top_of(&self, trie: &TrieId) -> Ptr {
        match trie {
            TrieId::Accounts => self.top(),
            TrieId::Storage(account) => {
                self.account_leaf(account).map_or(Ptr::NONE, |leaf| leaf.storage.node)
            }
        }
    }
}

impl Touched<'_> {
    /// The positions of a depth that changed, ascending.
    fn positions(&self, arena: &Arena, depth: usize) -> Vec<Nibbles> {
        let mut positions: Vec<Nibbles> = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            if !positions.last().is_some_and(|last| last.is_prefix_of(path)) {
                positions.push(Nibbles::prefix(path, depth));
            }
        }
        let Some(wiped) = self.wiped else { return positions };
        let mut open: Vec<(Ptr, usize)> = vec![(wiped, 0)];
        while let Some((node, at)) = open.pop() {
            if node == Ptr::NONE {
                continue;
            }
            let end = match node.kind() {
                Kind::Branch => at + usize::from(arena.branch(node).head.skip),
                Kind::Collapsed => at,
                Kind::Nothing | Kind::Slot | Kind::Account => depth,
            };
            if end >= depth {
                positions.push(Nibbles::prefix(&arena.path_below(node), depth));
            } else {
                assert!(node.kind() == Kind::Branch, "a group is expanded before it is wiped");
                open.extend(arena.branch(node).children.iter().map(|child| (*child, end + 1)));
            }
        }
        positions.sort_unstable_by(|a, b| a.padded().cmp(b.padded()));
        positions.dedup();
        positions
    }
}

fn node_at(arena: &Arena, mut node: Ptr, position: &Nibbles) -> Option<NodeRef> {
    let (mut depth, mut parent, mut is_on_way) = (0, None, true);
    while node.kind() == Kind::Branch {
        let end = depth + usize::from(arena.branch(node).head.skip);
        // Which nibbles are skipped, only a leaf below says.
        is_on_way &= end == depth;
        if end < position.len() {
            let nibble = nibble(position.padded(), end);
            parent = Some((node, nibble));
            node = arena.child(node, nibble);
            depth = end + 1;
            continue;
        }
        if let (Some((parent, nibble)), true) = (parent, is_on_way) {
            return Some(NodeRef { skipped: Nibbles::EMPTY, reference: arena.reference(parent, nibble) });
        }
        let path = arena.path_below(node);
        if common_nibbles(&path, position.padded()) < position.len() {
            return None;
        }
        let skipped = Nibbles::part(&path, position.len(), end - position.len());
        // The parent names an extension where nibbles are skipped, and the root is named by nobody.
        let mut encoding = Vec::new();
        put_node(arena, node, depth, &mut Vec::new(), &mut encoding);
        return Some(NodeRef { skipped, reference: Reference::of(&encoding) });
    }
    if node.kind() == Kind::Collapsed {
        assert_outside(arena, node, depth.min(position.len()), position.padded());
    }
    None
}
