//! Lookups in one segment through the engine's read ladder, stage by stage: *filter says maybe, index says where, segment says
//! what*.
//!
//! | [`Mode`] | what is in memory before a lookup | how often it waits for the disk |
//! |---|---|---|
//! | [`Resident`](Mode::Resident) | the accessors as a whole | once: a data page |
//! | [`Opened`](Mode::Opened) | the filter, and of the index what opening loads; evicted before every lookup | twice: a leaf, a data page |
//! | [`Once`](Mode::Once) | nothing at the beginning, then what earlier lookups brought | falls from 3 to 1 |
//! | [`Each`](Mode::Each) | nothing: all three files are evicted before every lookup | 3 times: filter page, leaf, data page |
//! | [`Warm`](Mode::Warm) | everything, mapped by this process | never |
//!
//! Opening reads a small accessor as a whole, so a segment that has one waits less often.
//!
//! *Faults* here are times that the disk was waited for ([`Faults::waits`]): a major fault is one, and so is a span that was
//! fetched as a whole, which the system does not count as a fault.
//!
//! Clocks: in the cold modes each stage is timed on its own and a lookup is their sum, the clock's cost (some 25 ns of 50,000)
//! left in. In the warm mode a lookup is timed as a whole, its stages in a pass of their own, and the cost of the clock (its p50
//! in the same run) is subtracted from each.

use std::cell::Cell;
use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use icecore::measure::{LoneSegment, SegmentReader, Stage};
use icecore::storage::Mapping;
use icecore_index::FilterHash;
use icecore_segments::step::BlockNumber;
use serde::Serialize;

use crate::measure::baseline::{ColdTouches, clock_cost, cold_touches};
use crate::measure::evict::{self, EvictMethod, PAGE_SIZE};
use crate::measure::faults::{Faults, thread_faults};
use crate::measure::histogram::{Histogram, Summary};

/// What stops a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file did not leave memory.
    #[error(transparent)]
    Evict(#[from] evict::Error),
    /// A file cannot be read, or is damaged.
    #[error(transparent)]
    Engine(#[from] icecore::Error),
}

/// A key to look up at a height.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The key.
    pub key: Vec<u8>,
    /// The height.
    pub at: BlockNumber,
}

/// What is in memory before a lookup. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The accessors.
    Resident,
    /// The filter, and of the index what opening loads.
    Opened,
    /// Nothing before the first lookup.
    Once,
    /// Nothing before each lookup.
    Each,
    /// Everything.
    Warm,
}

/// The cost of each stage of one lookup.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    times: [Option<u64>; 3],
    faults: [Faults; 3],
}

/// The stage that a lookup is in.
#[derive(Clone, Copy)]
struct Mark {
    stage: Stage,
    start: Instant,
    faults: Faults,
}

/// Takes the time of each stage, and its faults where they are counted; what counting them takes is not in the time.
#[derive(Default)]
struct StageMeter {
    counts_faults: bool,
    mark: Cell<Option<Mark>>,
    costs: Cell<Costs>,
}

impl StageMeter {
    fn new(counts_faults: bool) -> Self {
        Self { counts_faults, ..Self::default() }
    }

    /// Ends the stage before.
    #[inline]
    fn begin(&self, stage: Option<Stage>) {
        let now = Instant::now();
        let faults = if self.counts_faults { thread_faults() } else { Faults::default() };
        if let Some(mark) = self.mark.get() {
            let (mut costs, stage) = (self.costs.get(), mark.stage as usize);
            let before = costs.times[stage].unwrap_or(0);
            costs.times[stage] = Some(before + (now - mark.start).as_nanos() as u64);
            costs.faults[stage] = costs.faults[stage] + (faults - mark.faults);
            self.costs.set(costs);
        }
        let start = if self.counts_faults { Instant::now() } else { now };
        self.mark.set(stage.map(|stage| Mark { stage, start, faults }));
    }

    /// Looks a key up; returns the costs and whether there is a version.
    #[inline]
    fn lookup(&self, reader: &SegmentReader, query: &Query) -> Result<(Costs, bool), Error> {
        self.costs.set(Costs::default());
        let found = black_box(reader.find(&query.key, query.at, |stage| self.begin(Some(stage)))?);
        self.begin(None);
        Ok((self.costs.get(), found.is_some()))
    }
}

/// Keeps the queries none of whose pages an earlier one can touch, so that each lookup of them starts with a cold page.
///
/// # Errors
/// A damaged index.
pub fn on_distinct_pages(segment: &LoneSegment, queries: Vec<Query>) -> Result<Vec<Query>, Error> {
    let reader = segment.reader()?;
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(queries.len());
    for query in queries {
        let span = reader.index()?.locate(&query.key, query.at);
        let span =
            span.map_err(|source| icecore::Error::File { path: segment.files()[1].clone(), source })?;
        if (span.first..=span.last).all(|page| !seen.contains(&page)) {
            seen.extend(span.first..=span.last);
            kept.push(query);
        }
    }
    Ok(kept)
}

/// What a number of lookups took and touched.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// How many found a version.
    pub found: u64,
    /// The time of a lookup, in nanoseconds.
    pub time: Histogram,
    /// How often a lookup waited for the disk. In the warm mode the mean alone is known, and it is of major faults.
    pub faults: Histogram,
    /// The pages that a lookup had read.
    pub pages: Histogram,
    /// The same for filter, pivot navigation and value; of the lookups that came so far.
    pub stages: [StageSeries; 3],
}

/// What one stage took and touched.
#[derive(Clone, Debug, Default)]
pub struct StageSeries {
    /// In nanoseconds.
    pub time: Histogram,
    /// As in [`Series::faults`].
    pub faults: Histogram,
}

/// The figures of a [`Series`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeriesSummary {
    /// How many found a version.
    pub found: u64,
    /// The time of a lookup, in nanoseconds.
    pub time_ns: Summary,
    /// How often a lookup waited for the disk.
    pub faults: Summary,
    /// The pages that a lookup had read.
    pub pages_read: Summary,
    /// The filter.
    pub filter: StageSummary,
    /// Pivot navigation.
    pub pivot: StageSummary,
    /// The value.
    pub value: StageSummary,
}

/// The figures of a [`StageSeries`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StageSummary {
    /// In nanoseconds.
    pub time_ns: Summary,
    /// How often it waited for the disk.
    pub faults: Summary,
}

impl Series {
    /// Counts the lookups of another series too.
    pub fn add(&mut self, other: &Self) {
        self.found += other.found;
        self.time.add(&other.time);
        self.faults.add(&other.faults);
        self.pages.add(&other.pages);
        for (stage, more) in self.stages.iter_mut().zip(&other.stages) {
            stage.time.add(&more.time);
            stage.faults.add(&more.faults);
        }
    }

    /// The figures.
    pub fn summary(&self) -> SeriesSummary {
        let [filter, pivot, value] = self
            .stages
            .each_ref()
            .map(|stage| StageSummary { time_ns: stage.time.summary(), faults: stage.faults.summary() });
        SeriesSummary {
            found: self.found,
            time_ns: self.time.summary(),
            faults: self.faults.summary(),
            pages_read: self.pages.summary(),
            filter,
            pivot,
            value,
        }
    }

    fn record(&mut self, costs: &Costs, found: bool) {
        self.found += u64::from(found);
        self.time.record(costs.times.iter().flatten().sum());
        self.faults.record(costs.faults.iter().map(|faults| faults.waits()).sum());
        self.pages.record(costs.faults.iter().map(|faults| faults.pages_read.max(faults.major)).sum());
        for (stage, (time, faults)) in self.stages.iter_mut().zip(costs.times.iter().zip(&costs.faults)) {
            if let Some(time) = time {
                stage.time.record(*time);
                stage.faults.record(faults.waits());
            }
        }
    }
}

/// Measures the lookups of `queries`, in their order, with what `mode` says in memory.
///
/// # Errors
/// A file that does not leave memory, which another mapping of it brings about; a damaged file.
pub fn measure(
    segment: &LoneSegment,
    mode: Mode,
    queries: &[Query],
    method: EvictMethod,
) -> Result<Series, Error> {
    let (mut series, meter) = (Series::default(), StageMeter::new(true));
    match mode {
        Mode::Warm => return warm(segment, queries),
        Mode::Resident | Mode::Once => {
            let reader = open_cold(segment, mode, method)?;
            if mode == Mode::Resident {
                heat(segment, &reader, queries)?;
            }
            for query in queries {
                let (costs, found) = meter.lookup(&reader, query)?;
                series.record(&costs, found);
            }
        }
        Mode::Opened | Mode::Each => {
            for query in queries {
                let reader = open_cold(segment, mode, method)?;
                let (costs, found) = meter.lookup(&reader, query)?;
                series.record(&costs, found);
            }
        }
    }
    Ok(series)
}

fn open_cold(segment: &LoneSegment, mode: Mode, method: EvictMethod) -> Result<SegmentReader, Error> {
    let [kv, bt, kvei] = segment.files();
    method.evict(&kv)?;
    if mode != Mode::Resident {
        method.evict(&bt)?;
    }
    if matches!(mode, Mode::Once | Mode::Each) {
        method.evict(&kvei)?;
    }
    let reader = segment.reader()?;
    if mode == Mode::Opened {
        // In memory means mapped too: the fault that maps a page which the system has takes some 10 us.
        touch_pages(reader.filter()?.data());
    }
    Ok(reader)
}

fn touch_pages(mapping: &Mapping) {
    mapping.as_ref().iter().step_by(PAGE_SIZE as usize).for_each(|byte| _ = black_box(*byte));
}

/// Brings the accessors into memory, maps every page of them, and has the pages checked that `queries` touch.
fn heat(segment: &LoneSegment, reader: &SegmentReader, queries: &[Query]) -> Result<(), Error> {
    let (index, filter) = (reader.index()?, reader.filter()?);
    touch_pages(index.data());
    touch_pages(filter.data());
    let [_, bt, kvei] = segment.files();
    for query in queries {
        let maybe = filter.may_contain(FilterHash::of(&query.key));
        black_box(maybe.map_err(|source| icecore::Error::File { path: kvei.clone(), source })?);
        let span = index.locate(&query.key, query.at);
        black_box(span.map_err(|source| icecore::Error::File { path: bt.clone(), source })?);
    }
    Ok(())
}

/// Measures cold lookups with the accessors in memory, and touches of as many random pages of the same evicted file.
///
/// The two take turns in `rounds` rounds, so that a disk whose speed drifts drifts for both. Pages of an earlier round are cold again.
///
/// # Errors
/// As [`measure`].
pub fn measure_beside_baseline(
    segment: &LoneSegment,
    queries: &[Query],
    method: EvictMethod,
    rounds: usize,
) -> Result<(Series, ColdTouches), Error> {
    let mut series = Series::default();
    let mut baseline = ColdTouches { time: Histogram::default(), faults: Histogram::default() };
    let [kv, ..] = segment.files();
    for (round, part) in queries.chunks(queries.len().div_ceil(rounds).max(1)).enumerate() {
        let touched = cold_touches(&kv, method, part.len(), round as u64)?;
        baseline.time.add(&touched.time);
        baseline.faults.add(&touched.faults);
        series.add(&measure(segment, Mode::Resident, part, method)?);
    }
    Ok((series, baseline))
}

/// One pass brings everything in and checks the pages, one times lookups, one times their stages.
fn warm(segment: &LoneSegment, queries: &[Query]) -> Result<Series, Error> {
    let reader = segment.reader()?;
    heat(segment, &reader, &[])?;
    touch_pages(reader.kv()?.data());
    for query in queries {
        black_box(reader.find(&query.key, query.at, |_| {})?);
    }
    let clock_ns = clock_cost().quantile(0.5);
    let mut series = Series::default();
    let before = thread_faults();
    for query in queries {
        let start = Instant::now();
        let found = black_box(reader.find(&query.key, query.at, |_| {})?);
        let time = start.elapsed().as_nanos() as u64;
        series.time.record(time.saturating_sub(clock_ns));
        series.found += u64::from(found.is_some());
    }
    let major = (thread_faults() - before).major;
    series.faults.record(major / (queries.len() as u64).max(1));
    let meter = StageMeter::new(false);
    for query in queries {
        let (costs, _) = meter.lookup(&reader, query)?;
        for (stage, time) in series.stages.iter_mut().zip(costs.times) {
            if let Some(time) = time {
                stage.time.record(time.saturating_sub(clock_ns));
            }
        }
    }
    Ok(series)
}
