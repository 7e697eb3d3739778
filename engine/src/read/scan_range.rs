//! What a scan is asked to read: bounds, direction and limit.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use crate::memtable::Direction;

/// Which keys of a domain [`View::scan`](crate::View::scan) reads, in which direction, and how many at most. Keys order bytewise.
///
/// Bounds and limits only narrow: each call leaves the keys that all calls so far allow.
///
/// A domain that is kept [by path](crate::Domain::by_path) gives its keys in the order of their paths. A prefix picks from all of them there,
/// which are passed; and a range, which only an order of keys has, is an error.
///
/// A page at a time, each continued after the last key of the one before:
/// ```
/// # use icecore::{Archive, Options, Scan};
/// # let dir = tempfile::tempdir().unwrap();
/// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
/// # let mut block = archive.begin(1)?;
/// # for key in [b"a1", b"a2", b"a3", b"b1"] {
/// #     block.put("accounts", key, b"100")?;
/// # }
/// # block.commit()?;
/// let view = archive.at(1)?;
/// let (scan, mut last) = (Scan::prefix(b"a").backward().limit(2), None::<Vec<u8>>);
/// let mut keys = Vec::new();
/// loop {
///     let page = last.as_ref().map_or(scan.clone(), |last| scan.clone().after(last));
///     let page: Vec<_> = view.scan("accounts", &page)?.collect::<Result<_, _>>()?;
///     let Some(entry) = page.last() else { break };
///     last = Some(entry.key.clone());
///     keys.extend(page.into_iter().map(|entry| entry.key));
/// }
/// assert_eq!(keys, [b"a3", b"a2", b"a1"]);
/// # Ok::<(), icecore::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// Keys up to this one, in the direction of the scan, were read before.
    after: Option<Vec<u8>>,
    pub(crate) direction: Direction,
    pub(crate) limit: Option<u64>,
}

impl Default for Scan {
    fn default() -> Self {
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        Self { lower, upper, after: None, direction: Direction::Forward, limit: None }
    }
}

impl Scan {
    /// All keys of the domain, ascending.
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys that begin with `prefix`, ascending.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self {
            lower: Bound::Included(prefix.to_vec()),
            upper: after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded),
            ..Self::default()
        }
    }

    /// The keys inside `bounds`, ascending: any range of anything that is bytes.
    ///
    /// Where the bounds are a pair of [`Bound`]s of slices, the type of the keys must be named:
    /// ```
    /// # use icecore::Scan;
    /// use std::ops::Bound;
    ///
    /// let (low, high): (&[u8], Vec<u8>) = (b"a", b"b".to_vec());
    /// assert_eq!(Scan::range(low..&high), Scan::all().from(low).to(&high));
    /// let after_low = Scan::range::<&[u8]>((Bound::Excluded(low), Bound::Excluded(&high[..])));
    /// assert_ne!(after_low, Scan::range("a".."b"));
    /// ```
    pub fn range<K: AsRef<[u8]>>(bounds: impl RangeBounds<K>) -> Self {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self { lower: owned(bounds.start_bound()), upper: owned(bounds.end_bound()), ..Self::default() }
    }

    /// Leaves the keys at or above `key`, in either direction.
    pub fn from(mut self, key: &[u8]) -> Self {
        if lower_order(&self.lower, key) == Ordering::Less {
            self.lower = Bound::Included(key.to_vec());
        }
        self
    }

    /// Leaves the keys below `key`, in either direction.
    pub fn to(mut self, key: &[u8]) -> Self {
        let narrower = match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
        };
        if narrower {
            self.upper = Bound::Excluded(key.to_vec());
        }
        self
    }

    /// Only keys at or below `key`; for the archive's own reads.
    pub(crate) fn to_included(mut self, key: &[u8]) -> Self {
        self.upper = Bound::Included(key.to_vec());
        self
    }

    /// The first and the last key, where both ends are given and inside.
    pub(crate) fn ends(&self) -> Option<(&[u8], &[u8])> {
        match (&self.lower, &self.upper) {
            (Bound::Included(first), Bound::Included(last)) if self.after.is_none() => Some((first, last)),
            _ => None,
        }
    }

    /// Leaves the keys that come after `key` in the direction of the scan: above it, or with [`Scan::backward`] below it. The order
    /// of the two calls does not matter. To read a page at a time, give the last key of each page; a later call replaces an
    /// earlier one.
    pub fn after(mut self, key: &[u8]) -> Self {
        self.after = Some(key.to_vec());
        self
    }

    /// Reads in descending order instead of ascending.
    pub fn backward(mut self) -> Self {
        self.direction = Direction::Backward;
        self
    }

    /// Ends the scan after this many keys that have a value.
    pub fn limit(mut self, keys: u64) -> Self {
        self.limit = Some(self.limit.map_or(keys, |limit| limit.min(keys)));
        self
    }

    /// Whether it is of all keys, or of those with a prefix, which it gives; `None` of a range.
    pub(crate) fn as_prefix(&self) -> Option<&[u8]> {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, Bound::Unbounded) => Some(&[]),
            (Bound::Included(prefix), upper) => {
                let end = after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
                (*upper == end).then_some(prefix)
            }
            _ => None,
        }
    }

    /// The same direction and limit without bounds, after the key that `after` makes of the one that this is after.
    pub(crate) fn unbounded(&self, after: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        let after = self.after.as_deref().map(after);
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, after, ..self.clone() }
    }

    /// The bounds of what is left to read.
    pub(crate) fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (mut lower, mut upper) = (self.lower.clone(), self.upper.clone());
        match (&self.after, self.direction) {
            (Some(key), Direction::Forward) if lower_order(&lower, key) != Ordering::Greater => {
                lower = Bound::Excluded(key.clone());
            }
            (Some(key), Direction::Backward) if upper_order(&upper, key) != Ordering::Less => {
                upper = Bound::Excluded(key.clone());
            }
            _ => {}
        }
        (lower, upper)
    }
}

fn lower_order(lower: &Bound<Vec<u8>>, key: &[u8]) -> Ordering {
    match lower {
        Bound::Unbounded => Ordering::Less,
        Bound::Included(lower) | Bound::Excluded(lower) => lower.as_slice().cmp(key),
    }
}

fn upper_order(upper: &Bound<Vec<u8>>, key: &[u8]) -> Ordering {
    match upper {
        Bound::Unbounded => Ordering::Greater,
        Bound::Included(upper) | Bound::Excluded(upper) => upper.as_slice().cmp(key),
    }
}

/// The first key that sorts after all keys with this prefix; `None` when there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut after = prefix[..=end].to_vec();
    after[end] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_no_key_can_have_it() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xFF"), None);
        assert_eq!(after_prefix(b""), None);
    }

    #[test]
    fn a_prefix_is_told_from_a_range() {
        for prefix in [&b""[..], b"a", b"a\xFF", b"\xFF"] {
            assert_eq!(Scan::prefix(prefix).after(b"b").backward().as_prefix(), Some(prefix));
        }
        assert_eq!(Scan::all().as_prefix(), Some(&[][..]));
        for range in [Scan::all().from(b"a"), Scan::all().to(b"b"), Scan::range("a"..="b")] {
            assert_eq!(range.as_prefix(), None, "{range:?}");
        }
        assert_eq!(Scan::range("a".."b"), Scan::prefix(b"a"), "the same keys");
    }

    #[test]
    fn bounds_only_narrow() {
        let scan = Scan::prefix(b"m").from(b"a").to(b"z");
        assert_eq!(scan, Scan::prefix(b"m"));
        assert_eq!(Scan::all().limit(2).limit(5), Scan::all().limit(2));
        let scan = Scan::prefix(b"m").from(b"mb").to(b"mx");
        assert_eq!(
            (scan.lower, scan.upper),
            (Bound::Included(b"mb".to_vec()), Bound::Excluded(b"mx".to_vec()))
        );
    }

    #[test]
    fn what_was_read_before_is_left_out_in_either_direction() {
        let included = |key: &[u8]| Bound::Included(key.to_vec());
        let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
        let scan = Scan::range("b"..="y");
        for (key, forward, backward) in [
            (&b"a"[..], (included(b"b"), included(b"y")), (included(b"b"), excluded(b"a"))),
            (b"b", (excluded(b"b"), included(b"y")), (included(b"b"), excluded(b"b"))),
            (b"m", (excluded(b"m"), included(b"y")), (included(b"b"), excluded(b"m"))),
            (b"y", (excluded(b"y"), included(b"y")), (included(b"b"), excluded(b"y"))),
            (b"z", (excluded(b"z"), included(b"y")), (included(b"b"), included(b"y"))),
        ] {
            assert_eq!(scan.clone().after(key).bounds(), forward, "{key:?}");
            assert_eq!(scan.clone().after(key).backward().bounds(), backward, "{key:?}");
            assert_eq!(scan.clone().backward().after(b"?").after(key).bounds(), backward, "{key:?}");
        }
        assert_eq!(Scan::all().after(b"m").bounds(), (excluded(b"m"), Bound::Unbounded));
        assert_eq!(Scan::all().after(b"m").backward().bounds(), (Bound::Unbounded, excluded(b"m")));
    }
}
