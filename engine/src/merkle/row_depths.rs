//! At which depths a tree has rows: what stands at every position of a depth, kept at each block that changes it. Of the tries of Ethereum,
//! and of Icecore's tree where domains are by path: of that four levels are a nibble.
//!
//! A proof reads the rows on its way down and below the deepest the leaves, all that are under one position. So the depth follows
//! from the number of leaves: the deepest row is where a position has at most [`LEAVES_MAX`] of them, and there are rows above it
//! so that no row has more than 16^[`APART_MAX`] positions below one of the row above. A trie that grows or shrinks across a
//! limit gets its new rows whole at that block, and because the limits of growing and shrinking are apart, no trie does so at
//! every block.

use std::collections::HashMap;

use icecore_hot::ethereum::{KeyPath, TrieId};

/// The leaves below a position of the deepest row, on average, over which a trie gets a deeper one.
const LEAVES_MAX: u64 = 1 << 13;

/// The leaves below a position of the row above the deepest, on average, under which that one will do.
const LEAVES_MIN: u64 = 1 << 11;

/// The most nibbles between two rows.
const APART_MAX: usize = 3;

/// The depth of the deepest row of a trie, from which the others follow; 0 where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowDepth(u8);

impl RowDepth {
    /// No rows.
    pub(crate) const NONE: Self = Self(0);

    /// That of 2^61 leaves.
    pub(crate) const MAX: u8 = 12;

    /// Fewer leaves than this never have rows.
    pub(crate) const LEAVES_MIN: u64 = LEAVES_MIN;

    /// Reads a depth; `None` for what is none.
    pub(crate) fn decode(byte: u8) -> Option<Self> {
        (byte <= Self::MAX).then_some(Self(byte))
    }

    /// The number that stands for it in files.
    pub(crate) fn encode(self) -> u8 {
        self.0
    }

    /// Whether a row can be at a depth.
    pub(crate) fn is_of_row(depth: u8) -> bool {
        (1..=Self::MAX).contains(&depth)
    }

    /// The first row alone; `None` where there are no rows.
    pub(crate) fn top(self) -> Option<Self> {
        (self != Self::NONE).then_some(Self(1))
    }

    /// The depth for so many leaves, of a trie that had this one before.
    #[must_use]
    pub(crate) fn follow(self, leaves: u64) -> Self {
        let Self(mut depth) = self;
        while depth < Self::MAX && leaves >> (4 * depth) > LEAVES_MAX {
            depth += 1;
        }
        while depth > 0 && leaves >> (4 * (depth - 1)) < LEAVES_MIN {
            depth -= 1;
        }
        Self(depth)
    }

    /// The depths of all rows, ascending: the deepest, those [`APART_MAX`] above one another, and the first.
    pub(crate) fn rows(self) -> impl Iterator<Item = usize> {
        let deepest = usize::from(self.0);
        (1..=deepest).filter(move |depth| *depth == 1 || (deepest - depth).is_multiple_of(APART_MAX))
    }
}

/// The depths of all tries of a state.
#[derive(Debug, Default)]
pub(crate) struct RowDepths {
    accounts: RowDepth,
    /// Of the storages that have rows.
    storages: HashMap<KeyPath, RowDepth>,
}

/// A trie whose rows became others, with the depth that it had before.
pub(crate) type DepthChange = (TrieId, RowDepth);

impl RowDepths {
    /// That of a trie.
    pub(crate) fn of(&self, trie: &TrieId) -> RowDepth {
        match trie {
            TrieId::Accounts => self.accounts,
            TrieId::Storage(account) => self.storages.get(account).copied().unwrap_or_default(),
        }
    }

    /// Sets that of a trie.
    pub(crate) fn set(&mut self, trie: &TrieId, depth: RowDepth) {
        match trie {
            TrieId::Accounts => self.accounts = depth,
            TrieId::Storage(account) if depth == RowDepth::NONE => drop(self.storages.remove(account)),
            TrieId::Storage(account) => drop(self.storages.insert(*account, depth)),
        }
    }

    /// Follows a trie to its present number of leaves; gives what takes that back, where anything changed.
    pub(crate) fn follow(&mut self, trie: &TrieId, leaves: u64) -> Option<DepthChange> {
        let before = self.of(trie);
        let depth = before.follow(leaves);
        (depth != before).then(|| {
            self.set(trie, depth);
            (*trie, before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(depth: u8) -> Vec<usize> {
        RowDepth(depth).rows().collect()
    }

    #[test]
    fn no_row_is_far_below_the_one_above_it() {
        assert_eq!((rows(0), rows(1), rows(2), rows(3)), (vec![], vec![1], vec![1, 2], vec![1, 3]));
        assert_eq!((rows(4), rows(5), rows(6)), (vec![1, 4], vec![1, 2, 5], vec![1, 3, 6]));
        for depth in 0..=RowDepth::MAX {
            let rows = [vec![0], rows(depth)].concat();
            assert!(rows.windows(2).all(|pair| pair[1] - pair[0] <= APART_MAX), "{rows:?}");
            assert_eq!(rows.last(), Some(&usize::from(depth)));
        }
    }

    #[test]
    fn a_trie_that_goes_forth_and_back_keeps_its_rows() {
        let none = RowDepth::NONE;
        assert_eq!(none.follow(LEAVES_MAX), none);
        assert_eq!(none.follow(1 << 24), RowDepth(3));
        assert_eq!(none.follow(u64::MAX), RowDepth(RowDepth::MAX));
        let grown = none.follow(LEAVES_MAX + 1);
        assert_eq!(
            (grown, grown.follow(LEAVES_MIN), grown.follow(LEAVES_MIN - 1)),
            (RowDepth(1), RowDepth(1), none)
        );
        for leaves in (0..60).map(|bits| 1_u64 << bits) {
            let depth = none.follow(leaves);
            assert_eq!(depth.follow(leaves), depth);
            assert!(depth.0 == 0 || leaves >> (4 * (depth.0 - 1)) > LEAVES_MAX);
        }
    }

    #[test]
    fn depths_of_tries_are_followed_and_taken_back() {
        let (mut depths, storage) = (RowDepths::default(), TrieId::Storage([7; 32]));
        let changes: Vec<_> =
            [(storage, 1 << 14), (TrieId::Accounts, 1 << 24), (storage, 1 << 14), (storage, 0)]
                .iter()
                .filter_map(|(trie, leaves)| depths.follow(trie, *leaves))
                .collect();
        let expected = [(storage, RowDepth(0)), (TrieId::Accounts, RowDepth(0)), (storage, RowDepth(1))];
        assert_eq!(changes, expected);
        assert_eq!((depths.of(&TrieId::Accounts), depths.storages.len()), (RowDepth(3), 0));
        changes.iter().rev().for_each(|(trie, before)| depths.set(trie, *before));
        assert_eq!((depths.of(&TrieId::Accounts), depths.storages.len()), (RowDepth(0), 0));
    }
}
