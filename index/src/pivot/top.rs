//! The level above the leaves: one separator for each leaf, in memory.
//!
//! In the file the separators share prefixes with their predecessors, as in a leaf; in memory they are whole, in one buffer, with
//! the first eight bytes of each in an array of its own: most searches are decided there. Where several separators have the
//! same first eight bytes, as those of one large address do, another array has eight bytes after all that these have in common.

use icecore_segments::bytes::{key_head, put_varint, shared_len, take_varint};
use icecore_segments::error::Reason;
use icecore_segments::span::Separator;
use icecore_segments::step::BlockNumber;

use super::packer::SEPARATOR_LEN_MAX;

/// Collects the boundary before each leaf.
#[derive(Default)]
pub(super) struct TopBuilder {
    bytes: Vec<u8>,
    newest: Vec<u8>,
    leaves: u64,
    keys_len: u64,
}

impl TopBuilder {
    pub(super) fn push(&mut self, separator: &Separator<'_>) {
        let shared = shared_len(separator.key, &self.newest);
        put_varint(&mut self.bytes, (shared as u64) << 1 | u64::from(separator.before.is_some()));
        put_varint(&mut self.bytes, (separator.key.len() - shared) as u64);
        if let Some(before) = separator.before {
            put_varint(&mut self.bytes, before);
        }
        self.bytes.extend_from_slice(&separator.key[shared..]);
        separator.key.clone_into(&mut self.newest);
        self.leaves += 1;
        self.keys_len += separator.key.len() as u64;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn leaves(&self) -> u64 {
        self.leaves
    }

    /// What [`Top::memory`] will say.
    pub(super) fn memory(&self) -> u64 {
        self.leaves * Top::LEAF_LEN + self.keys_len
    }
}

/// What tells separators with one head apart.
#[derive(Clone, Copy)]
struct Tie {
    /// The eight bytes after those that all of them share; where they are one key, the block before, inverted.
    head: u64,
    /// The leaf after the last with this head.
    end: u32,
    /// How many bytes all of them share.
    shared: u16,
    /// How many bytes the separator has of the eight that are its head, and of the eight that are the one here: zeros stand for the others.
    lens: [u8; 2],
}

/// The separators of all leaves.
pub(super) struct Top {
    /// The first eight bytes of each separator as a big-endian number, zeros after a shorter one.
    heads: Box<[u64]>,
    /// Of each separator whose head another has too, what tells these apart.
    ties: Box<[Tie]>,
    /// Where each separator ends in `keys`, and the block before it, if it is between two versions.
    ends: Box<[(u32, Option<BlockNumber>)]>,
    keys: Box<[u8]>,
}

impl Top {
    const LEAF_LEN: u64 =
        (size_of::<u64>() + size_of::<Tie>() + size_of::<(u32, Option<BlockNumber>)>()) as u64;

    /// Reads the separators of `leaves` leaves and checks that they ascend and that none is longer than a leaf holds: each has
    /// a leaf in the file, so memory is less than the file (P4).
    pub(super) fn parse(bytes: &[u8], leaves: u64) -> Result<Self, Reason> {
        // A separator takes two bytes at least, so a wrong count cannot ask for much.
        let leaves =
            usize::try_from(leaves).ok().filter(|&leaves| leaves <= bytes.len()).ok_or(Reason::Count)?;
        let (mut keys, mut offset) = (Vec::new(), 0);
        let (mut heads, mut ends) = (Vec::with_capacity(leaves), Vec::with_capacity(leaves));
        let mut newest = 0;
        for number in 0..leaves {
            let mut take = || take_varint(bytes, &mut offset).ok_or(Reason::Overrun);
            let (shared, len) = (take()?, take()? as usize);
            let before = if shared & 1 == 1 { Some(take()?) } else { None };
            let shared = (shared >> 1) as usize;
            let end = offset.checked_add(len).ok_or(Reason::Overrun)?;
            let suffix = bytes.get(offset..end).ok_or(Reason::Overrun)?;
            offset = end;
            let from = keys.len();
            if shared > from - newest {
                return Err(Reason::Overrun);
            }
            if shared + len > SEPARATOR_LEN_MAX {
                return Err(Reason::Length);
            }
            keys.extend_from_within(newest..newest + shared);
            keys.extend_from_slice(suffix);
            let key = &keys[from..];
            heads.push(key_head(key));
            let key_end = u32::try_from(keys.len()).map_err(|_| Reason::Length)?;
            let (previous, this) = (&keys[newest..from], Separator { key, before });
            let previous = Separator { key: previous, before: ends.last().and_then(|&(_, before)| before) };
            if number > 0 && !ascends(&previous, &this) {
                return Err(Reason::Order);
            }
            ends.push((key_end, before));
            newest = from;
        }
        if offset != bytes.len() {
            return Err(Reason::Length);
        }
        let mut top =
            Self { heads: heads.into(), ties: Box::default(), ends: ends.into(), keys: keys.into() };
        top.ties = top.find_ties()?;
        Ok(top)
    }

    /// The bytes of memory it takes.
    pub(super) fn memory(&self) -> u64 {
        self.heads.len() as u64 * Self::LEAF_LEN + self.keys.len() as u64
    }

    /// The boundary before a leaf.
    pub(super) fn separator(&self, leaf: usize) -> Separator<'_> {
        let from = leaf.checked_sub(1).map_or(0, |previous| self.ends[previous].0 as usize);
        let (to, before) = self.ends[leaf];
        Separator { key: &self.keys[from..to as usize], before }
    }

    fn find_ties(&self) -> Result<Box<[Tie]>, Reason> {
        let mut ties = Vec::with_capacity(self.heads.len());
        for run in self.heads.chunk_by(|a, b| a == b) {
            let (from, end) = (ties.len(), ties.len() + run.len());
            let (first, last) = (self.separator(from).key, self.separator(end - 1).key);
            // They ascend: what first and last share, all share.
            let shared = shared_len(first, last);
            let end = u32::try_from(end).map_err(|_| Reason::Count)?;
            for leaf in from..end as usize {
                let Separator { key, before } = self.separator(leaf);
                let rest = &key[shared..];
                let head =
                    if last.len() == shared { before.map_or(0, |before| !before) } else { key_head(rest) };
                let lens = [key, rest].map(|bytes| bytes.len().min(size_of::<u64>()) as u8);
                ties.push(Tie { head, end, shared: shared as u16, lens });
            }
        }
        Ok(ties.into())
    }

    /// The last leaf whose boundary is not after `(key, at)`, and how many bytes that boundary and the key share; 0 where there is none.
    #[inline]
    pub(super) fn leaf(&self, key: &[u8], at: BlockNumber) -> (usize, usize) {
        let wanted = key_head(key);
        let next = self.heads.partition_point(|&head| head < wanted);
        if self.heads.get(next) == Some(&wanted) {
            return self.tied_leaf(key, at, next);
        }
        self.leaf_before(next, wanted)
    }

    /// The leaf before `next`, which has another head than the key.
    #[inline]
    fn leaf_before(&self, next: usize, wanted: u64) -> (usize, usize) {
        let leaf = next.saturating_sub(1);
        let (Some(head), Some(tie)) = (self.heads.get(leaf), self.ties.get(leaf)) else { return (0, 0) };
        (leaf, agreeing(*head, wanted).min(usize::from(tie.lens[0])))
    }

    /// The same where the head of `first`, and perhaps of those after it, is that of the key.
    fn tied_leaf(&self, key: &[u8], at: BlockNumber, first: usize) -> (usize, usize) {
        let ties = &self.ties[first..self.ties[first].end as usize];
        let Tie { shared, .. } = ties[0];
        let shared = usize::from(shared);
        let prefix = &self.separator(first).key[..shared];
        let is_one_key = ties[ties.len() - 1].lens[1] == 0;
        if is_one_key || !key.starts_with(prefix) {
            return self.leaf_beside(key, at, first, prefix);
        }
        let wanted = key_head(&key[shared..]);
        let next = ties.partition_point(|tie| tie.head < wanted);
        if ties.get(next).is_some_and(|tie| tie.head == wanted) {
            return self.leaf_by_keys(key, at, first + next, first + ties.len());
        }
        match next.checked_sub(1) {
            Some(before) => {
                let tie = ties[before];
                (first + before, shared + agreeing(tie.head, wanted).min(usize::from(tie.lens[1])))
            }
            None => self.leaf_before(first, key_head(key)),
        }
    }

    /// The same where those with the head of the key all have `prefix`, which the key does not have or which is a whole key.
    fn leaf_beside(&self, key: &[u8], at: BlockNumber, first: usize, prefix: &[u8]) -> (usize, usize) {
        let ties = &self.ties[first..self.ties[first].end as usize];
        let agrees = shared_len(prefix, key);
        let next = if agrees < prefix.len() {
            let is_after = key.get(agrees).is_some_and(|byte| *byte > prefix[agrees]);
            if is_after { ties.len() } else { 0 }
        } else if key.len() > agrees {
            ties.len()
        } else {
            // Versions of the key. The boundary before all of them is not after any.
            let older = ties.partition_point(|tie| tie.head < !at);
            older.max(usize::from(self.ends[first].1.is_none()))
        };
        if next == 0 { self.leaf_before(first, key_head(key)) } else { (first + next - 1, agrees) }
    }

    /// The same where no head tells those from `low` to `high` from the key: whole separators do.
    #[cold]
    fn leaf_by_keys(&self, key: &[u8], at: BlockNumber, low: usize, high: usize) -> (usize, usize) {
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low.midpoint(high);
            if self.separator(middle).side(key, at).is_gt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let leaf = low.saturating_sub(1);
        (leaf, shared_len(self.separator(leaf).key, key))
    }
}

/// How many of the eight bytes of two heads agree, counted from the first.
#[inline]
fn agreeing(head: u64, other: u64) -> usize {
    (head ^ other).leading_zeros() as usize / 8
}

/// Whether `after` is strictly after `before` in the order of a segment.
pub(super) fn ascends(before: &Separator<'_>, after: &Separator<'_>) -> bool {
    before.key < after.key
        || before.key == after.key
            && match (before.before, after.before) {
                (None, Some(_)) => true,
                (Some(newer), Some(older)) => older < newer,
                _ => false,
            }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The top of leaves that all share one long separator and differ after it.
    fn shared(len: usize, leaves: u8) -> Vec<u8> {
        let mut top = TopBuilder::default();
        for last in 0..leaves {
            let key = [vec![7; len - 1], vec![last]].concat();
            top.push(&Separator { key: &key, before: None });
        }
        top.bytes().to_vec()
    }

    #[test]
    fn a_separator_that_no_leaf_holds_is_refused() {
        let long = shared(SEPARATOR_LEN_MAX, 100);
        let top = Top::parse(&long, 100).unwrap();
        assert!(top.memory() < 100 * 4096, "less than the leaves");
        assert_eq!(Top::parse(&shared(SEPARATOR_LEN_MAX + 1, 100), 100).err(), Some(Reason::Length));
        assert_eq!(Top::parse(&shared(1 << 20, 100), 100).err(), Some(Reason::Length), "100 MB from 1 MB");
    }
}
