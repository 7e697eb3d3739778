//! The level above the leaves: one separator for each leaf, in memory.
//!
//! In the file the separators share prefixes with their predecessors, as in a leaf; in memory they are whole, in one buffer, with
//! the first eight bytes of each in an array of its own: most searches are decided there.

use icecore_segments::bytes::{put_varint, shared_len, take_varint};
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

/// The separators of all leaves.
pub(super) struct Top {
    /// The first eight bytes of each separator as a big-endian number, zeros after a shorter one.
    heads: Box<[u64]>,
    /// Where each separator ends in `keys`, and the block before it, if it is between two versions.
    ends: Box<[(u32, Option<BlockNumber>)]>,
    keys: Box<[u8]>,
}

impl Top {
    const LEAF_LEN: u64 = (size_of::<u64>() + size_of::<(u32, Option<BlockNumber>)>()) as u64;

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
            heads.push(head(key));
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
        Ok(Self { heads: heads.into(), ends: ends.into(), keys: keys.into() })
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

    /// The last leaf whose boundary is not after `(key, at)`; 0 where there is none.
    #[inline]
    pub(super) fn leaf(&self, key: &[u8], at: BlockNumber) -> usize {
        let wanted = head(key);
        let mut low = self.heads.partition_point(|&head| head < wanted);
        let mut high = low;
        if self.heads.get(low) == Some(&wanted) {
            high += self.heads[low..].partition_point(|&head| head == wanted);
        }
        while low < high {
            let middle = low.midpoint(high);
            if self.separator(middle).side(key, at).is_gt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
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

/// Zeros after a shorter key keep the order of different heads; equal heads say nothing.
#[inline]
fn head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
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
