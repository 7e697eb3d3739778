//! Ranges of paths of leaves, which are below positions of a trie.

use icecore_hot::ethereum::{KeyPath, Nibbles};

/// All whole paths from one to another, both inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafRange {
    pub(crate) first: KeyPath,
    pub(crate) last: KeyPath,
}

impl LeafRange {
    /// Those that begin with a position.
    pub(crate) fn below(position: &Nibbles) -> Self {
        let (first, last) = position.paths();
        Self { first, last }
    }

    /// Whether nothing is between this one and a later one.
    pub(crate) fn touches(&self, later: &Self) -> bool {
        let mut next = self.last;
        for byte in next.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return next == later.first;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_touch_where_nothing_is_between() {
        let below = |nibbles: &[u8]| LeafRange::below(&Nibbles::from_nibbles(nibbles).unwrap());
        assert!(below(&[1]).touches(&below(&[2])) && below(&[1, 15]).touches(&below(&[2, 0])));
        assert!(!below(&[1]).touches(&below(&[3])) && !below(&[15]).touches(&below(&[0])));
    }
}
