//! Ranges of the tree, and of the domain of [`node_key`](crate::memtable::node_key) that keeps it.

use icecore_hot::KeyHash;

use crate::memtable::node_key::NodeKey;
use crate::read::scan_range::Scan;

/// All places that begin with the same bits: the first and the last key hash there can be among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: KeyHash,
    pub(crate) last: KeyHash,
}

impl Span {
    /// Everything.
    pub(crate) const ALL: Self = Self { first: KeyHash([0; 32]), last: KeyHash([0xFF; 32]) };

    /// What is below the node at `depth` on the way to a key.
    pub(crate) fn below(depth: usize, key: &KeyHash) -> Self {
        let (mut first, mut last) = (key.0, key.0);
        for at in 0..32 {
            let own = 0xFF_u8.checked_shl(8 - depth.saturating_sub(at * 8).min(8) as u32).unwrap_or(0);
            first[at] &= own;
            last[at] |= !own;
        }
        Self { first: KeyHash(first), last: KeyHash(last) }
    }

    /// Whether a key is in it.
    pub(crate) fn contains(&self, key: &KeyHash) -> bool {
        self.first <= *key && *key <= self.last
    }

    /// The nodes of the row at `depth` in it.
    pub(crate) fn row(&self, depth: usize) -> Scan {
        Scan::all()
            .from(NodeKey::row(depth, &self.first).as_bytes())
            .to_included(NodeKey::row(depth, &self.last).as_bytes())
    }

    /// The leaves in it.
    pub(crate) fn leaves(&self) -> Scan {
        Scan::all()
            .from(NodeKey::leaf(&self.first).as_bytes())
            .to_included(NodeKey::leaf(&self.last).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyHash = KeyHash([0b1011_0110; 32]);

    #[test]
    fn a_span_is_all_that_begins_alike() {
        let span = Span::below(12, &KEY);
        assert_eq!(span.first.0[..3], [0b1011_0110, 0b1011_0000, 0]);
        assert_eq!(span.last.0[..3], [0b1011_0110, 0b1011_1111, 0xFF]);
        assert!(span.contains(&KEY) && !span.contains(&KeyHash([0; 32])));
        assert_eq!(Span::below(0, &KEY), Span::ALL);
        assert_eq!(Span::below(256, &KEY), Span { first: KEY, last: KEY });
        assert_eq!(
            span.row(16),
            Scan::all().from(&[16, 0b1011_0110, 0b1011_0000]).to_included(&[16, 0b1011_0110, 0b1011_1111])
        );
    }
}
