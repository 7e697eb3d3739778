//! How dense an accessor is: M, filter bits and page encoding of a segment, by recency or by a budget.
//!
//! Pure functions from what is known of the segments to a [`Choice`] for each. The engine applies them when it
//! emits, merges and reindexes. Fresh segments are read most and are small, so they get dense indexes; an old
//! segment is large and read rarely, so every byte of its index costs more than it brings.

use std::fmt;

use crate::filter::FilterBits;

/// M: how many entries of a segment share one pivot, on average. Small is dense, large is sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Density(u32);

impl Density {
    /// What fresh segments get.
    pub const DENSE: Self = Self(16);
    /// What segments get that are neither fresh nor old.
    pub const MEDIUM: Self = Self(64);
    /// What old segments get.
    pub const SPARSE: Self = Self(256);
    /// The largest M.
    pub const MAX: u32 = 65_536;

    /// M entries per pivot, or `None` outside 1..=[`Density::MAX`].
    pub fn new(m: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&m).then_some(Self(m))
    }

    /// M.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the rules know of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// How many steps it covers.
    pub span: u64,
    /// How many steps are between its end and the head.
    pub distance: u64,
    /// How many versions it holds.
    pub entries: u64,
    /// How many data pages it has.
    pub pages: u64,
}

impl SegmentFacts {
    /// How many steps the middle of the segment is below the head: a merged segment that reaches the head is mostly old.
    pub fn age(&self) -> u64 {
        self.distance.saturating_add(self.span / 2)
    }
}

/// How the pages of a segment are to be encoded. A hint: the segment's builder still measures a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncodingHint {
    /// Searched in place, no decompression.
    Plain,
    /// As small as possible.
    Compact,
}

/// What a segment gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The density of its pivot index.
    pub m: Density,
    /// The fingerprints of its filter.
    pub filter_bits: FilterBits,
    /// The encoding of its pages.
    pub encoding: EncodingHint,
}

/// The rule that makes the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DensityPolicy {
    /// By age alone: [`Density::DENSE`] below `fresh` steps, [`Density::MEDIUM`] below `old`, [`Density::SPARSE`] from there.
    Recency {
        /// The age in steps at which a segment stops to be fresh.
        fresh: u64,
        /// The age in steps at which a segment is old.
        old: u64,
    },
    /// All pivot indexes together take at most this many bytes; the freshest get the densest that fits.
    ///
    /// Every segment gets at least the sparsest of [`BUDGET_LEVELS`], also where that alone exceeds the budget.
    Budget {
        /// The bytes of all `.bt` files together.
        len_max: u64,
    },
}

impl Default for DensityPolicy {
    /// Fresh up to 32 steps, old from 512: with blocks of 12 s and 1024 blocks a step, five days and ten weeks.
    fn default() -> Self {
        Self::Recency { fresh: 32, old: 512 }
    }
}

/// The densities that a budget is spent on, densest first.
pub const BUDGET_LEVELS: [Density; 5] =
    [Density(16), Density(64), Density(256), Density(1024), Density(4096)];

impl DensityPolicy {
    /// One choice for each segment, in the order given.
    ///
    /// A fresher segment ([`SegmentFacts::age`]) never gets a sparser index than an older one. Filters have 8 bits whatever the age:
    /// a false *maybe* costs one page read in 256, twice the filter costs it in every probe of a filter that is not resident.
    pub fn choose(&self, segments: &[SegmentFacts]) -> Vec<Choice> {
        match *self {
            Self::Recency { fresh, old } => segments
                .iter()
                .map(|segment| match segment.age() {
                    age if age < fresh => choice(Density::DENSE),
                    age if age < old => choice(Density::MEDIUM),
                    _ => choice(Density::SPARSE),
                })
                .collect(),
            Self::Budget { len_max } => spend(len_max, segments),
        }
    }
}

fn choice(m: Density) -> Choice {
    let encoding = if m < Density::SPARSE { EncodingHint::Plain } else { EncodingHint::Compact };
    Choice { m, filter_bits: FilterBits::Eight, encoding }
}

/// Reserves the sparsest for everyone, then lets each, freshest first, take the densest that is left and not denser
/// than what a fresher one got.
fn spend(len_max: u64, segments: &[SegmentFacts]) -> Vec<Choice> {
    let sparsest = BUDGET_LEVELS[BUDGET_LEVELS.len() - 1];
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|&i| (segments[i].age(), i));
    let reserved: u64 = segments.iter().map(|s| index_len_max(s.entries, s.pages, sparsest)).sum();
    let mut left = len_max.saturating_sub(reserved);
    let mut level = 0;
    let mut choices = vec![choice(sparsest); segments.len()];
    for i in order {
        let SegmentFacts { entries, pages, .. } = segments[i];
        let len = |m| index_len_max(entries, pages, m);
        let extra = |m| len(m).saturating_sub(len(sparsest));
        while level + 1 < BUDGET_LEVELS.len() && extra(BUDGET_LEVELS[level]) > left {
            level += 1;
        }
        left = left.saturating_sub(extra(BUDGET_LEVELS[level]));
        choices[i] = choice(BUDGET_LEVELS[level]);
    }
    choices
}

/// Header, footer, a leaf that is not full, the padding of the top.
const FIXED_LEN: u64 = 4 * 4096;

/// The bytes that a `.bt` of density `m` over a segment of `entries` entries in `pages` pages takes, at the most.
///
/// Counts two bytes for each page that gets no pivot, and `6 + 2 log2 m` for each M entries: 14 at 16, 18 at 64, 22 at 256. The
/// reference dataset takes 6.3, 10 and 13: its pages hold 105 entries of 52-byte keys. The rest is for what is not known here. Pages of
/// a few entries less than M get a pivot each, up to half as many again; keys that agree for longer have longer separators. It holds
/// for the shapes of `tests/density.rs` at every M; keys of hundreds of bytes can exceed it. Where a file exists, its length is the
/// better number.
pub fn index_len_max(entries: u64, pages: u64, m: Density) -> u64 {
    let pivots = entries.div_ceil(u64::from(m.get()));
    let each = 6 + 2 * u64::from(m.get().next_power_of_two().ilog2());
    let fences = 2 * pages.saturating_sub(pivots);
    FIXED_LEN.saturating_add(pivots.saturating_mul(each)).saturating_add(fences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(span: u64, distance: u64, entries: u64) -> SegmentFacts {
        SegmentFacts { span, distance, entries, pages: entries.div_ceil(100) }
    }

    fn densities(rule: DensityPolicy, segments: &[SegmentFacts]) -> Vec<u32> {
        rule.choose(segments).iter().map(|choice| choice.m.get()).collect()
    }

    #[test]
    fn the_default_is_dense_for_fresh_and_sparse_for_old() {
        let rule = DensityPolicy::default();
        let segments =
            [facts(1, 0, 9), facts(16, 1, 9), facts(64, 0, 9), facts(256, 300, 9), facts(2048, 0, 9)];
        assert_eq!(densities(rule, &segments), [16, 16, 64, 64, 256]);
        let encodings: Vec<_> = rule.choose(&segments).iter().map(|choice| choice.encoding).collect();
        assert_eq!(encodings[3], EncodingHint::Plain);
        assert_eq!(encodings[4], EncodingHint::Compact);
    }

    #[test]
    fn a_budget_is_never_exceeded_and_goes_to_the_freshest() {
        let segments: Vec<_> = (0..40).map(|i| facts(1 << (i % 7), 17 * (40 - i), 1000 * (i + 1))).collect();
        let len = |choices: &[Choice]| -> u64 {
            segments.iter().zip(choices).map(|(s, c)| index_len_max(s.entries, s.pages, c.m)).sum()
        };
        let least = len(&DensityPolicy::Budget { len_max: 0 }.choose(&segments));
        let mut seen = std::collections::BTreeSet::new();
        for len_max in (least..least + 2_000_000).step_by(37_000) {
            let choices = DensityPolicy::Budget { len_max }.choose(&segments);
            assert!(len(&choices) <= len_max, "{len_max}");
            for (a, x) in segments.iter().zip(&choices) {
                for (b, y) in segments.iter().zip(&choices) {
                    assert!(a.age() >= b.age() || x.m <= y.m, "{a:?} {x:?} {b:?} {y:?}");
                }
            }
            seen.extend(choices.iter().map(|choice| choice.m));
        }
        assert_eq!(seen.len(), BUDGET_LEVELS.len(), "every level is used by some budget");
        let rich = DensityPolicy::Budget { len_max: u64::MAX }.choose(&segments);
        assert!(rich.iter().all(|choice| choice.m == BUDGET_LEVELS[0]));
    }

    #[test]
    fn densities_have_a_range() {
        assert_eq!((Density::new(0), Density::new(65_537)), (None, None));
        assert_eq!(Density::new(65_536).map(Density::get), Some(65_536));
    }
}
