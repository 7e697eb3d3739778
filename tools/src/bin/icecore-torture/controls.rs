//! What can be taken out to see whether the campaign notices: one sync, or one check of the engine.

use std::time::Duration;

use clap::ValueEnum;

use crate::campaign::Campaign;
use crate::rig::{Failure, Rig};
use crate::syncs::SyncPoint;
use crate::trace::Class;

#[cfg(feature = "testing")]
pub(crate) use icecore::testing::control::Check;

/// The variable by which a child learns which check it leaves out.
pub(crate) const CHECK_VARIABLE: &str = "ICECORE_TORTURE_WITHOUT";

/// The checks that the engine can leave out: none in a build without the feature `testing`.
#[cfg(not(feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {}

#[cfg(not(feature = "testing"))]
impl Check {
    const ALL: [Self; 0] = [];

    pub(crate) fn name(self) -> &'static str {
        match self {}
    }

    fn leave_out(self) {
        match self {}
    }
}

/// One thing that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// A sync: taken out of the trace.
    Sync(SyncPoint),
    /// A check: the engine leaves it out.
    Check(Check),
}

impl Control {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let syncs = SyncPoint::value_variants().iter().copied().map(Self::Sync);
        syncs.chain(Check::ALL.into_iter().map(Self::Check))
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Sync(sync) => {
                sync.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
            }
            Self::Check(check) => check.name().to_owned(),
        }
    }

    /// Whether its absence shows only when a power loss follows another fault.
    pub(crate) fn needs_second_fault(self) -> bool {
        match self {
            Self::Sync(sync) => matches!(sync, SyncPoint::LogRecovery | SyncPoint::NameRecovery),
            Self::Check(check) => check.name() == "poison",
        }
    }

    /// Whether its absence shows only when a file is not the one that it should be.
    pub(crate) fn is_of_swaps(self) -> bool {
        let names = [
            "file-identity",
            "log-end",
            "log-is-last",
            "archive-id",
            "sealed-end",
            "garbage-guard",
            "accessor-binding",
            "log-sequence",
        ];
        matches!(self, Self::Check(check) if names.contains(&check.name()))
    }

    /// After which calls a kill leaves something that the sync of a recovery is for.
    pub(crate) fn kill_after(self) -> Option<Class> {
        match self {
            Self::Sync(SyncPoint::LogRecovery) => Some(Class::Write),
            Self::Sync(SyncPoint::NameRecovery) => Some(Class::Rename),
            _ => None,
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|control| control.name() == name)
    }
}

/// Leaves out, in a child, the check that its parent says.
pub(crate) fn apply() -> Result<(), Failure> {
    let Ok(name) = std::env::var(CHECK_VARIABLE) else { return Ok(()) };
    let check = Check::ALL.into_iter().find(|check| check.name() == name);
    check.ok_or_else(|| format!("this build cannot leave out {name}"))?.leave_out();
    Ok(())
}

/// Takes out one after another and runs the campaign until it notices. Returns whether each was noticed.
pub(crate) fn run(
    rig: &Rig,
    only: Option<&str>,
    time: Duration,
    seed: u64,
    jobs: usize,
) -> Result<bool, Failure> {
    if Check::ALL.is_empty() {
        println!("syncs only: checks can be left out in a build with `--features testing`");
    }
    let (mut caught, mut tried) = (0, 0);
    for control in Control::all().filter(|control| only.is_none_or(|name| control.name() == name)) {
        let campaign = Campaign::new(rig, time, Some(control));
        campaign.run(seed, jobs)?;
        let (report, found) = campaign.into_report();
        tried += 1;
        match found {
            Some((case, verdict)) => {
                caught += 1;
                println!(
                    "{:<20} caught after {:>5} runs, {}: {}",
                    control.name(),
                    report.runs(),
                    verdict.kind,
                    verdict.why
                );
                println!("{:<20} {case}", "");
            }
            None => println!("{:<20} NOT caught in {} runs", control.name(), report.runs()),
        }
    }
    println!("{caught} of {tried} controls caught");
    Ok(caught == tried && tried > 0)
}
