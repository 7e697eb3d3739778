//! What the criterion studies have in common: how long they measure, and what criterion made of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use criterion::Criterion;
use serde::Serialize;

use crate::{Outcome, chain};

/// How many samples criterion takes of a series: the fewest it allows, since slow series take seconds.
const SAMPLES: usize = 10;

/// How long, and where to.
#[derive(Args)]
pub(crate) struct TimingArgs {
    /// Seconds that each series is timed.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Where the HTML reports go.
    #[arg(long, default_value = "target/criterion")]
    reports: PathBuf,
}

impl TimingArgs {
    /// Criterion as these arguments have it.
    pub(crate) fn criterion(&self) -> Outcome<Criterion> {
        fs::create_dir_all(&self.reports)?;
        Ok(Criterion::default()
            .output_directory(&self.reports)
            .sample_size(SAMPLES)
            .warm_up_time(Duration::from_secs_f64(self.seconds / 4.0))
            .measurement_time(Duration::from_secs_f64(self.seconds)))
    }

    /// What criterion made of a series, from where it keeps it: `series` is its place below the reports.
    pub(crate) fn estimate(&self, series: &Path) -> Outcome<Time> {
        let path = self.reports.join(series).join("new/estimates.json");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let estimates: serde_json::Value = serde_json::from_slice(&bytes)?;
        let median = &estimates["median"];
        let number = |value: &serde_json::Value| value.as_f64().ok_or("an estimate without a number");
        let interval = &median["confidence_interval"];
        Ok(Time {
            median_ns: number(&median["point_estimate"])?,
            lower_ns: number(&interval["lower_bound"])?,
            upper_ns: number(&interval["upper_bound"])?,
        })
    }
}

/// Nanoseconds of a call: the median, and the bounds of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Time {
    pub(crate) median_ns: f64,
    pub(crate) lower_ns: f64,
    pub(crate) upper_ns: f64,
}

/// Ends the program where something fails inside of a series, from where criterion lets no error out.
pub(crate) fn must<T>(result: Outcome<T>) -> T {
    result.unwrap_or_else(|error| panic!("{}", chain(&*error)))
}
