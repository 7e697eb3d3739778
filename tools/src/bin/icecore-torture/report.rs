//! What a campaign found, by kind of fault.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use crate::check::{Kind, Verdict};

/// Families of faults, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Nothing,
    Kill,
    Errno,
    PowerLoss,
    RecoveryLoss,
    ErrnoLoss,
    Flip,
    Swap,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "no fault",
            Self::Kill => "kill at a call",
            Self::Errno => "a call fails or is short",
            Self::PowerLoss => "power loss",
            Self::RecoveryLoss => "kill, power loss in recovery",
            Self::ErrnoLoss => "a call fails, power loss",
            Self::Flip => "flipped bit",
            Self::Swap => "stale or exchanged file",
        })
    }
}

/// The runs of a family.
#[derive(Default)]
struct Row {
    /// Script and place of what was hit.
    points: HashSet<String>,
    runs: u64,
    kinds: BTreeMap<Kind, u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Report(BTreeMap<Family, Row>);

/// What counts as a failure, in the order of the columns.
const FAILURES: [Kind; 5] = [Kind::Lost, Kind::Unseen, Kind::Wrong, Kind::Unopenable, Kind::Panicked];

impl Report {
    /// Adds a run at a point.
    pub(crate) fn add(&mut self, family: Family, point: String, verdict: &Verdict) {
        let row = self.0.entry(family).or_default();
        row.points.insert(point);
        row.runs += 1;
        *row.kinds.entry(verdict.kind).or_default() += 1;
    }

    /// Whether nothing failed.
    pub(crate) fn is_clean(&self) -> bool {
        self.0.values().all(|row| row.kinds.keys().all(|kind| *kind == Kind::Good))
    }

    /// All runs.
    pub(crate) fn runs(&self) -> u64 {
        self.0.values().map(|row| row.runs).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<30}{:>9}{:>9}", "", "points", "runs")?;
        FAILURES.iter().try_for_each(|kind| write!(f, "{:>12}", kind.to_string()))?;
        let mut total = (0, 0, BTreeMap::<Kind, u64>::new());
        for (family, row) in &self.0 {
            write!(f, "\n{family:<30}{:>9}{:>9}", row.points.len(), row.runs)?;
            for kind in FAILURES {
                let count = row.kinds.get(&kind).copied().unwrap_or(0);
                write!(f, "{count:>12}")?;
                *total.2.entry(kind).or_default() += count;
            }
            total = (total.0 + row.points.len(), total.1 + row.runs, total.2);
        }
        write!(f, "\n{:<30}{:>9}{:>9}", "all", total.0, total.1)?;
        FAILURES.iter().try_for_each(|kind| write!(f, "{:>12}", total.2.get(kind).copied().unwrap_or(0)))
    }
}
