//! Paths, nibble by nibble: whole paths of 32 bytes, and parts of them.

use std::fmt;

/// A whole path: the Keccak-256 of an address or of a slot.
pub type KeyPath = [u8; 32];

/// The nibbles of a whole path.
pub(crate) const PATH_LEN: usize = 64;

/// Nibble `index` of a whole path.
#[inline]
pub(crate) fn nibble(path: &KeyPath, index: usize) -> usize {
    usize::from(path[index / 2] >> (4 - 4 * (index % 2)) & 15)
}

/// How many leading nibbles two paths share.
#[inline]
pub(crate) fn common_nibbles(a: &KeyPath, b: &KeyPath) -> usize {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        None => PATH_LEN,
        Some(at) => 2 * at + usize::from(a[at] >> 4 == b[at] >> 4),
    }
}

/// Up to 64 nibbles: the position of a node, counted from the root, or a run of nibbles inside a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nibbles {
    /// Two nibbles a byte, the first in the high half; zeros from `len` on.
    packed: KeyPath,
    len: u8,
}

impl Nibbles {
    /// No nibble: the position of the root.
    pub const EMPTY: Self = Self { packed: [0; 32], len: 0 };

    /// The first `len` nibbles of a whole path.
    ///
    /// # Panics
    /// When `len` is more than 64.
    pub fn prefix(path: &KeyPath, len: usize) -> Self {
        Self::part(path, 0, len)
    }

    /// The `len` nibbles of a whole path from `start` on.
    pub(crate) fn part(path: &KeyPath, start: usize, len: usize) -> Self {
        assert!(start + len <= PATH_LEN, "a path has 64 nibbles");
        let mut part = Self::EMPTY;
        (start..start + len).for_each(|i| part.push(nibble(path, i)));
        part
    }

    /// Nibbles one by one; `None` where one is above 15 or there are more than 64.
    pub fn from_nibbles(nibbles: &[u8]) -> Option<Self> {
        if nibbles.len() > PATH_LEN || nibbles.iter().any(|nibble| *nibble > 15) {
            return None;
        }
        let mut all = Self::EMPTY;
        nibbles.iter().for_each(|nibble| all.push(usize::from(*nibble)));
        Some(all)
    }

    /// Nibbles two a byte, the last byte filled with a zero; `None` where there is another number of bytes than `len` nibbles take, or
    /// something else than a zero after the last.
    pub(crate) fn from_packed(bytes: &[u8], len: usize) -> Option<Self> {
        let mut packed = [0; 32];
        packed.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let read = Self::prefix(&packed, len.min(PATH_LEN));
        (read.len() == len && read.packed() == bytes).then_some(read)
    }

    /// The number of nibbles.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Nibble `index`, 0 to 15.
    ///
    /// # Panics
    /// When there are no more than `index`.
    pub fn get(&self, index: usize) -> u8 {
        assert!(index < self.len(), "nibble {index} of {}", self.len);
        nibble(&self.packed, index) as u8
    }

    /// The nibbles in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Two nibbles a byte, the last byte filled with a zero.
    pub fn packed(&self) -> &[u8] {
        &self.packed[..self.len().div_ceil(2)]
    }

    /// Whether a whole path starts with these.
    pub fn is_prefix_of(&self, path: &KeyPath) -> bool {
        common_nibbles(&self.packed, path) >= self.len()
    }

    /// These and then `more`; `None` where there would be more than 64.
    pub(crate) fn join(&self, more: &Self) -> Option<Self> {
        (self.len() + more.len() <= PATH_LEN).then(|| {
            let mut all = *self;
            more.iter().for_each(|nibble| all.push(usize::from(nibble)));
            all
        })
    }

    /// All runs of `len` nibbles that start with these, ascending; none where `len` is less than there are.
    ///
    /// # Panics
    /// When `len` is over 64 or the runs are more than 2^60.
    pub fn extended_to(&self, len: usize) -> impl Iterator<Item = Self> + '_ {
        let more = len.checked_sub(self.len());
        assert!(len <= PATH_LEN && more.is_none_or(|more| more <= 15), "too many nibbles: {len}");
        (0..more.map_or(0, |more| 1_u64 << (4 * more))).map(move |number| {
            let mut run = *self;
            (self.len()..len)
                .rev()
                .for_each(|at| run.push((number >> (4 * (at - self.len())) & 15) as usize));
            run
        })
    }

    /// The first and the last whole path that start with these.
    pub fn paths(&self) -> (KeyPath, KeyPath) {
        let mut last = self.packed;
        for at in self.len()..PATH_LEN {
            last[at / 2] |= 0x0F << (4 - 4 * (at % 2));
        }
        (self.packed, last)
    }

    /// The path of zeros that starts with these.
    pub(crate) fn padded(&self) -> &KeyPath {
        &self.packed
    }

    pub(crate) fn push(&mut self, nibble: usize) {
        let index = self.len();
        self.packed[index / 2] |= (nibble as u8) << (4 - 4 * (index % 2));
        self.len += 1;
    }
}

impl fmt::Display for Nibbles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|nibble| write!(f, "{nibble:x}"))
    }
}

impl fmt::Debug for Nibbles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_are_its_nibbles() {
        let path: KeyPath = std::array::from_fn(|i| (i as u8).wrapping_mul(0x1D));
        let part = Nibbles::part(&path, 3, 6);
        assert_eq!(
            part.iter().map(usize::from).collect::<Vec<_>>(),
            (3..9).map(|i| nibble(&path, i)).collect::<Vec<_>>()
        );
        assert_eq!(part.packed().len(), 3);
        let (head, whole) = (Nibbles::prefix(&path, 3), Nibbles::prefix(&path, 64));
        assert_eq!(head.join(&part), Some(Nibbles::prefix(&path, 9)));
        assert_eq!(whole.join(&head), None);
        assert!(head.is_prefix_of(&path) && whole.is_prefix_of(&path));
        let mut other = path;
        other[1] ^= 0x10;
        assert!(!head.is_prefix_of(&other) && Nibbles::prefix(&path, 2).is_prefix_of(&other));
        other[1] ^= 0x11;
        assert_eq!((common_nibbles(&path, &other), common_nibbles(&path, &path)), (3, 64));
        assert_eq!(Nibbles::from_nibbles(&[1, 0, 15]).map(|n| n.to_string()), Some("10f".to_owned()));
        let runs: Vec<_> = head.extended_to(5).collect();
        assert_eq!((runs.len(), runs[0].len(), runs.is_sorted_by_key(|run| *run.padded())), (256, 5, true));
        assert!(
            runs.iter().all(|run| run.padded()[..2] == head.padded()[..2]
                || run.padded()[1] >> 4 == head.padded()[1] >> 4)
        );
        assert_eq!((head.extended_to(3).collect::<Vec<_>>(), head.extended_to(2).count()), (vec![head], 0));
        let (first, last) = head.paths();
        assert!(head.is_prefix_of(&first) && head.is_prefix_of(&last));
        assert_eq!((first[1] & 0x0F, first[2], last[1] & 0x0F, last[2]), (0, 0, 0x0F, 0xFF));
        assert_eq!(whole.paths(), (path, path));
        assert_eq!((Nibbles::from_nibbles(&[16]), Nibbles::from_nibbles(&[0; 65])), (None, None));
    }
}
