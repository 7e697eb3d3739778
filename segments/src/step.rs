//! Heights, steps and step ranges: the algebra of *when*.
//!
//! Used by file names, headers, merge planning and every read. How many blocks a step has is a
//! decision of the archive, so the conversion between the two lives in the engine.

use std::fmt;

/// The height of a block. Heights rise strictly along a chain and may skip.
pub type BlockNumber = u64;

/// The ordinal of a step: a fixed number of blocks, the unit of emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(pub u64);

impl Step {
    /// The step after this one.
    ///
    /// # Panics
    /// At the last step of the 64-bit range, which no chain reaches.
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a step below the last one"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A half-open range of steps, `[from, to)`, never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRange {
    from: Step,
    to: Step,
}

impl StepRange {
    /// The range `[from, to)`, or `None` where it would be empty.
    pub fn new(from: Step, to: Step) -> Option<Self> {
        (from < to).then_some(Self { from, to })
    }

    /// The range of one step.
    pub fn single(step: Step) -> Self {
        Self { from: step, to: step.next() }
    }

    /// The first step inside.
    pub fn from(self) -> Step {
        self.from
    }

    /// The first step after the range.
    pub fn to(self) -> Step {
        self.to
    }

    /// The number of steps inside, at least one.
    pub fn span(self) -> u64 {
        self.to.0 - self.from.0
    }

    /// Whether `step` is inside.
    pub fn contains(self, step: Step) -> bool {
        self.from <= step && step < self.to
    }

    /// Whether every step of `other` is inside.
    pub fn covers(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// Whether the two share a step.
    pub fn overlaps(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// Written as in file names: `0-64`.
impl fmt::Display for StepRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64) -> StepRange {
        StepRange::new(Step(from), Step(to)).unwrap()
    }

    #[test]
    fn ranges_are_half_open_and_never_empty() {
        assert_eq!(StepRange::new(Step(3), Step(3)), None);
        assert_eq!(StepRange::new(Step(4), Step(3)), None);
        let r = range(2, 4);
        assert!(!r.contains(Step(1)) && r.contains(Step(2)) && r.contains(Step(3)) && !r.contains(Step(4)));
        assert_eq!((r.span(), r.to_string().as_str()), (2, "2-4"));
        assert_eq!(StepRange::single(Step(7)), range(7, 8));
    }

    #[test]
    fn covering_and_overlapping() {
        for (a, b, covers, overlaps) in [
            (range(0, 4), range(1, 2), true, true),
            (range(0, 4), range(0, 4), true, true),
            (range(0, 4), range(3, 5), false, true),
            (range(0, 4), range(4, 5), false, false),
        ] {
            assert_eq!(a.covers(b), covers, "{a} {b}");
            assert_eq!(a.overlaps(b), overlaps, "{a} {b}");
            assert_eq!(b.overlaps(a), overlaps, "{a} {b}");
        }
    }
}
