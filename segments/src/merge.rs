//! Several sorted inputs as one.
//!
//! A tree of losers: each inner node keeps the input that lost the comparison there, so that after the winner moved
//! on only its own path is played again, log2(k) comparisons.
//!
//! Keys are compared by *codes*: where a key leaves the one that came out last, and with which byte. Whatever is on the path of the
//! winner lost to it, so its code is about the same key; of two such codes the smaller one is the smaller key's, and the greater
//! one stays right about the new winner. Only keys of equal codes are looked at, from there on.
//!
//! Source: G. Graefe, *Offset-value coding in database query processing*, 2023.

use crate::bytes::shared_len;
use crate::entry::{Entry, EntrySource, KEY_LEN_MAX, describe};
use crate::error::Error;
use crate::step::BlockNumber;

/// Gives the entries of all its sources in one order. Pure: holds nothing of an entry.
pub struct MergeCursor<S> {
    sources: Vec<S>,
    /// `losers[0]` is the winner of all; node n has the children 2n and 2n + 1, source i the place `sources.len() + i`.
    losers: Vec<usize>,
    /// The code of each source: about the entry that came out last for the winner, else about what it lost to.
    codes: Vec<u32>,
}

/// The code of a source after its last entry: greater than any other.
const AT_END: u32 = u32::MAX;

/// How a key that shares `shared` bytes with a smaller one, or is the same, goes on after them. What shares more is smaller.
#[inline]
fn code(key: &[u8], shared: usize) -> u32 {
    let next = key.get(shared).map_or(0, |&byte| 1 + u32::from(byte));
    ((KEY_LEN_MAX - shared) as u32) << 9 | next
}

impl<S: EntrySource> MergeCursor<S> {
    /// Merges sources, each of which stands on its first entry (or after its last).
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] when two sources stand on the same key and block.
    pub fn new(sources: Vec<S>) -> Result<Self, Error> {
        let count = sources.len();
        // Nothing came out yet: each key shares nothing with it.
        let codes = sources.iter().map(|source| source.position().map_or(AT_END, |(key, _)| code(key, 0)));
        let codes = codes.collect();
        let mut this = Self { sources, losers: vec![0; count], codes };
        let mut winners = vec![0; 2 * count];
        for node in (1..2 * count).rev() {
            if node >= count {
                winners[node] = node - count;
                continue;
            }
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let is_left = this.precedes(left, right)?;
            (winners[node], this.losers[node]) = if is_left { (left, right) } else { (right, left) };
        }
        if count > 0 {
            this.losers[0] = winners[1];
        }
        Ok(this)
    }

    /// The sources back, each on its next entry.
    pub fn into_sources(self) -> Vec<S> {
        self.sources
    }

    /// The index of the source that the cursor moves on next, or that failed when it did.
    pub fn moved(&self) -> Option<usize> {
        self.losers.first().copied()
    }

    /// The source that the current entry comes from.
    #[inline]
    pub(crate) fn winner(&self) -> Option<&S> {
        self.sources.get(*self.losers.first()?)
    }

    /// The index of the source that the current entry comes from.
    pub fn source(&self) -> Option<usize> {
        self.position().map(|_| self.losers[0])
    }

    /// Whether source `left` comes out before source `right`. A source after its end comes last.
    #[inline]
    fn precedes(&mut self, left: usize, right: usize) -> Result<bool, Error> {
        let (a, b) = (self.codes[left], self.codes[right]);
        if a == b { self.precedes_from(left, right) } else { Ok(a < b) }
    }

    /// The same for equal codes; the code of the loser is then about the winner.
    fn precedes_from(&mut self, left: usize, right: usize) -> Result<bool, Error> {
        let (Some((a, block_a)), Some((b, block_b))) =
            (self.sources[left].position(), self.sources[right].position())
        else {
            return Ok(true);
        };
        let known = KEY_LEN_MAX - (self.codes[left] >> 9) as usize;
        let (rest_a, rest_b) = (a.get(known..), b.get(known..));
        let shared = known + shared_len(rest_a.unwrap_or_default(), rest_b.unwrap_or_default());
        let is_left = match (a.get(shared), b.get(shared)) {
            (None, None) if block_a == block_b => {
                return Err(Error::OutOfOrder { previous: describe(a, block_a), got: describe(b, block_b) });
            }
            (None, None) => block_a > block_b,
            (next_a, next_b) => next_a < next_b,
        };
        let (loser, key) = if is_left { (right, b) } else { (left, a) };
        self.codes[loser] = code(key, shared);
        Ok(is_left)
    }
}

impl<S: EntrySource> EntrySource for MergeCursor<S> {
    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.winner()?.entry()
    }

    #[inline]
    fn position(&self) -> Option<(&[u8], BlockNumber)> {
        self.winner()?.position()
    }

    #[inline]
    fn shared(&self) -> usize {
        self.losers.first().map_or(0, |&winner| KEY_LEN_MAX - (self.codes[winner] >> 9) as usize)
    }

    /// Moves the source of the current entry on.
    ///
    /// # Errors
    /// The source's own, or [`Error::OutOfOrder`] when two sources stand on the same key and block.
    #[inline]
    fn advance(&mut self) -> Result<(), Error> {
        let Some(&first) = self.losers.first() else { return Ok(()) };
        let mut winner = first;
        let source = &mut self.sources[winner];
        source.advance()?;
        self.codes[winner] = source.position().map_or(AT_END, |(key, _)| code(key, source.shared()));
        let mut node = (self.sources.len() + winner) >> 1;
        while node > 0 {
            if self.precedes(self.losers[node], winner)? {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node >>= 1;
        }
        self.losers[0] = winner;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Value;

    /// Keys of one byte, all at the block given with them.
    struct List(Vec<(u8, u64)>, usize);

    impl EntrySource for List {
        fn entry(&self) -> Option<Entry<'_>> {
            let (key, block) = self.0.get(self.1)?;
            Some(Entry { key: std::slice::from_ref(key), block: *block, value: Value::Deletion })
        }

        fn shared(&self) -> usize {
            let before = self.1.checked_sub(1).map(|before| self.0[before].0);
            usize::from(before == self.0.get(self.1).map(|entry| entry.0))
        }

        fn advance(&mut self) -> Result<(), Error> {
            self.1 += 1;
            Ok(())
        }
    }

    fn merged(lists: &[&[(u8, u64)]]) -> Result<Vec<(u8, u64)>, Error> {
        let mut cursor = MergeCursor::new(lists.iter().map(|list| List(list.to_vec(), 0)).collect())?;
        let mut all = Vec::new();
        while let Some(entry) = cursor.entry() {
            all.push((entry.key[0], entry.block));
            cursor.advance()?;
        }
        Ok(all)
    }

    #[test]
    fn any_number_of_inputs_comes_out_in_one_order() {
        assert_eq!(merged(&[]).unwrap(), []);
        assert_eq!(merged(&[&[]]).unwrap(), []);
        assert_eq!(merged(&[&[], &[(1, 1)], &[]]).unwrap(), [(1, 1)]);
        for count in 1..9u8 {
            let lists: Vec<Vec<(u8, u64)>> =
                (0..count).map(|i| (0..20).map(|key| (key * 7 % 11 + key, u64::from(i))).collect()).collect();
            let sorted: Vec<Vec<(u8, u64)>> = lists
                .iter()
                .map(|list| {
                    let mut list = list.clone();
                    list.sort_unstable();
                    list.dedup();
                    list
                })
                .collect();
            let mut expected: Vec<_> = sorted.concat();
            expected.sort_unstable_by_key(|&(key, block)| (key, std::cmp::Reverse(block)));
            let lists: Vec<_> = sorted.iter().map(Vec::as_slice).collect();
            assert_eq!(merged(&lists).unwrap(), expected, "{count} lists");
        }
    }

    #[test]
    fn one_version_in_two_inputs_is_refused() {
        let result = merged(&[&[(1, 5), (2, 5)], &[(1, 6), (2, 5)], &[(3, 1)]]);
        assert!(matches!(result, Err(Error::OutOfOrder { .. })));
    }
}
