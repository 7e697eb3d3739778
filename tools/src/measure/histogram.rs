//! The distribution of measured values: a histogram of three significant digits, and the quantiles that reports quote.

use std::time::Duration;

use hdrhistogram::Histogram as HdrHistogram;
use serde::Serialize;

/// Values of one unit (nanoseconds, faults), counted.
#[derive(Clone, Debug)]
pub struct Histogram(HdrHistogram<u64>);

/// The figures of a [`Histogram`], in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many values there are.
    pub count: u64,
    /// Their mean, exact to three digits.
    pub mean: f64,
    /// The smallest.
    pub min: u64,
    /// Half of the values are no greater.
    pub p50: u64,
    /// 90 of 100 values are no greater.
    pub p90: u64,
    /// 99 of 100 values are no greater.
    pub p99: u64,
    /// 999 of 1000 values are no greater.
    pub p999: u64,
    /// The greatest.
    pub max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self(HdrHistogram::new(3).expect("three digits are allowed"))
    }
}

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.0.record(value).expect("the histogram grows to any value");
    }

    /// Counts a time in nanoseconds.
    #[inline]
    pub fn record_time(&mut self, time: Duration) {
        self.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts the values of another histogram too.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows to any value");
    }

    /// The figures.
    pub fn summary(&self) -> Summary {
        Summary {
            count: self.0.len(),
            mean: self.0.mean(),
            min: self.0.min(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.0.max(),
        }
    }

    /// The value that `fraction` of all values do not exceed.
    pub fn quantile(&self, fraction: f64) -> u64 {
        self.0.value_at_quantile(fraction)
    }

    /// The distribution for a drawing: ascending (value, fraction of all values up to it).
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let total = self.0.len().max(1) as f64;
        self.0
            .iter_recorded()
            .scan(0, |sum, step| {
                *sum += step.count_since_last_iteration();
                Some((step.value_iterated_to(), *sum as f64 / total))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_hundred_values() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|value| histogram.record(value));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.min, summary.max), (100, 1, 100));
        assert_eq!((summary.p50, summary.p90, summary.p99), (50, 90, 99));
        assert!((summary.mean - 50.5).abs() < 0.01);
        assert_eq!(histogram.curve().last(), Some(&(100, 1.0)));
    }

    #[test]
    fn adding_counts_both_and_long_times_fit() {
        let mut histogram = Histogram::default();
        histogram.record_time(Duration::from_secs(3600));
        let mut other = Histogram::default();
        other.record(1);
        other.add(&histogram);
        assert_eq!(other.summary().count, 2);
        assert!(other.summary().max >= 3_600_000_000_000);
    }
}
