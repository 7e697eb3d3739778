//! A lookup in one segment, stage by stage, exactly as the engine goes: *filter says maybe, index says where, segment says what*.
//!
//! | [`Mode`] | what is in memory before a lookup | what the engine's promise says it waits for |
//! |---|---|---|
//! | [`Resident`](Mode::Resident) | the accessors as a whole | one data page |
//! | [`Opened`](Mode::Opened) | the filter, and of the index what opening loads; evicted before every lookup | a leaf, a data page |
//! | [`Once`](Mode::Once) | nothing at the beginning, then what earlier lookups brought | falls from 3 to 1 |
//! | [`Each`](Mode::Each) | nothing: all three files are evicted before every lookup | filter page, leaf, data page |
//! | [`Warm`](Mode::Warm) | everything, mapped by this process | nothing |
//!
//! *Faults* here are times that the disk was waited for ([`Faults::waits`]): a major fault is one, and so is a span that was
//! asked for as a whole, which the system does not count as a fault.
//!
//! Clocks: in the cold modes each stage is timed on its own and a lookup is their sum, the clock's cost (some 25 ns of 50,000)
//! left in. In the warm mode a lookup is timed as a whole, its stages in a pass of their own, and the cost of the clock (its p50
//! in the same run) is subtracted from each.

use std::collections::HashSet;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use icecore::storage::os::OsStorage;
use icecore::storage::{Access, Mapping, Storage};
use icecore_index::{ExistenceFilter, KeyHash, PivotIndex};
use icecore_segments::step::BlockNumber;
use icecore_segments::{PageBuf, Segment, Value};
use serde::Serialize;

use crate::measure::baseline::{ColdTouches, clock_cost, cold_touches};
use crate::measure::build::{Error, SegmentFiles};
use crate::measure::evict::{EvictMethod, PAGE_SIZE};
use crate::measure::faults::{Faults, thread_faults};
use crate::measure::histogram::{Histogram, Summary};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
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

/// A part of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hashing the key, asking for what comes next ahead, and asking the filter.
    Filter,
    /// Asking the pivot index.
    Pivot,
    /// Searching the pages and loading the value.
    Value,
}

/// Watches a lookup, stage by stage.
pub trait Meter {
    /// Does the work of a stage.
    fn stage<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T;
}

/// Watches nothing.
impl Meter for () {
    #[inline]
    fn stage<T>(&mut self, _: Stage, work: impl FnOnce() -> T) -> T {
        work()
    }
}

/// The cost of each stage of one lookup.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    times: [Option<u64>; 3],
    faults: [Faults; 3],
}

/// Asks for the time and for the faults around each stage; what asking for faults takes is not in the time.
struct CostMeter(Costs);

impl Meter for CostMeter {
    #[inline]
    fn stage<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let before = thread_faults();
        let start = Instant::now();
        let result = black_box(work());
        self.0.times[stage as usize] = Some(start.elapsed().as_nanos() as u64);
        self.0.faults[stage as usize] = thread_faults() - before;
        result
    }
}

/// Asks for the time alone, which costs little enough for stages below a microsecond.
struct TimeMeter<'s> {
    times: &'s mut [Histogram; 3],
    clock_ns: u64,
}

impl Meter for TimeMeter<'_> {
    #[inline]
    fn stage<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = black_box(work());
        let time = start.elapsed().as_nanos() as u64;
        self.times[stage as usize].record(time.saturating_sub(self.clock_ns));
        result
    }
}

/// A version that was found: its block, and its value or that it is a deletion.
pub type Found = (BlockNumber, Option<Vec<u8>>);

/// The three files of a segment, open.
pub struct Ladder {
    files: SegmentFiles,
    segment: Segment<Mapping>,
    index: PivotIndex<Mapping>,
    filter: ExistenceFilter<Mapping>,
    buf: PageBuf,
}

impl Ladder {
    /// Opens the files as an archive does: mapped, for random reading.
    ///
    /// # Errors
    /// A missing or damaged file; accessors of another segment.
    pub fn open(files: &SegmentFiles) -> Result<Self, Error> {
        let map = |path: &PathBuf| OsStorage.map(path, Access::Random);
        let segment = Segment::open(map(&files.kv)?).map_err(|source| Error::file(&files.kv, source))?;
        let parent = segment.summary().file.content;
        let index = PivotIndex::open(map(&files.bt)?, parent);
        let filter = ExistenceFilter::open(map(&files.kvei)?, parent);
        Ok(Self {
            segment,
            index: index.map_err(|source| Error::file(&files.bt, source))?,
            filter: filter.map_err(|source| Error::file(&files.kvei, source))?,
            buf: PageBuf::default(),
            files: files.clone(),
        })
    }

    /// The `.kv`.
    pub fn segment(&self) -> &Segment<Mapping> {
        &self.segment
    }

    /// The `.bt`.
    pub fn index(&self) -> &PivotIndex<Mapping> {
        &self.index
    }

    /// The `.kvei`.
    pub fn filter(&self) -> &ExistenceFilter<Mapping> {
        &self.filter
    }

    /// The newest version of a key at or below a height, as the engine's read ladder finds it.
    ///
    /// # Errors
    /// A damaged page.
    #[inline]
    pub fn find(&mut self, ask: &Ask, meter: &mut impl Meter) -> Result<Option<Found>, Error> {
        let Self { files, segment, index, filter, buf } = self;
        let summary = segment.summary();
        if ask.key < summary.first_key || summary.last_key < ask.key {
            return Ok(None);
        }
        let (maybe, leaf) = meter.stage(Stage::Filter, || {
            let hash = KeyHash::of(&ask.key);
            filter.data().ask_ahead(filter.ahead(hash));
            let leaf = index.leaf(&ask.key, ask.at);
            index.data().ask_ahead(index.ahead(leaf));
            (filter.may_contain(hash), leaf)
        });
        if !maybe.map_err(|source| Error::file(&files.kvei, source))? {
            return Ok(None);
        }
        let span = meter.stage(Stage::Pivot, || index.locate_in(leaf, &ask.key, ask.at));
        let span = span.map_err(|source| Error::file(&files.bt, source))?;
        let found = meter.stage(Stage::Value, || {
            if span.len() > 1 {
                segment.data().advise_fetch(segment.file_range(span));
            }
            let Some(version) = segment.get_in(span, &ask.key, ask.at, buf)? else { return Ok(None) };
            if let Value::Overflow(blob) = &version.value {
                segment.data().advise_fetch(blob.file_range());
            }
            Ok(Some((version.block, version.value.load()?.map(std::borrow::Cow::into_owned))))
        });
        found.map_err(|source| Error::file(&files.kv, source))
    }

    /// Brings the accessors into memory, maps every page of them, and has the pages checked that `asks` touch.
    fn heat(&self, asks: &[Ask]) -> Result<(), Error> {
        touch_pages(self.index.data());
        touch_pages(self.filter.data());
        for ask in asks {
            let maybe = self.filter.may_contain(KeyHash::of(&ask.key));
            black_box(maybe.map_err(|source| Error::file(&self.files.kvei, source))?);
            let span = self.index.locate(&ask.key, ask.at);
            black_box(span.map_err(|source| Error::file(&self.files.bt, source))?);
        }
        Ok(())
    }

    /// Keeps the asks none of whose pages an earlier one can touch, so that each lookup of them starts with a cold page.
    ///
    /// # Errors
    /// A damaged index.
    pub fn on_pages_of_their_own(&self, asks: Vec<Ask>) -> Result<Vec<Ask>, Error> {
        let mut seen = HashSet::new();
        let mut kept = Vec::with_capacity(asks.len());
        for ask in asks {
            let span = self.index.locate(&ask.key, ask.at);
            let span = span.map_err(|source| Error::file(&self.files.bt, source))?;
            if (span.first..=span.last).all(|page| !seen.contains(&page)) {
                seen.extend(span.first..=span.last);
                kept.push(ask);
            }
        }
        Ok(kept)
    }
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

/// Measures the lookups of `asks`, in their order, with what `mode` says in memory.
///
/// # Errors
/// A file that does not leave memory, which another mapping of it brings about; a damaged file.
pub fn measure(files: &SegmentFiles, mode: Mode, asks: &[Ask], method: EvictMethod) -> Result<Series, Error> {
    let mut series = Series::default();
    match mode {
        Mode::Warm => return warm(files, asks),
        Mode::Resident | Mode::Once => {
            let mut ladder = open_cold(files, mode, method)?;
            if mode == Mode::Resident {
                ladder.heat(asks)?;
            }
            for ask in asks {
                find_costed(&mut ladder, ask, &mut series)?;
            }
        }
        Mode::Opened | Mode::Each => {
            for ask in asks {
                let mut ladder = open_cold(files, mode, method)?;
                find_costed(&mut ladder, ask, &mut series)?;
            }
        }
    }
    Ok(series)
}

fn open_cold(files: &SegmentFiles, mode: Mode, method: EvictMethod) -> Result<Ladder, Error> {
    method.evict(&files.kv)?;
    if mode != Mode::Resident {
        method.evict(&files.bt)?;
    }
    if matches!(mode, Mode::Once | Mode::Each) {
        method.evict(&files.kvei)?;
    }
    let ladder = Ladder::open(files)?;
    if mode == Mode::Opened {
        // In memory method mapped too: the fault that maps a page which the system has takes some 10 us.
        touch_pages(ladder.filter.data());
    }
    Ok(ladder)
}

fn touch_pages(mapping: &Mapping) {
    mapping.as_ref().iter().step_by(PAGE_SIZE as usize).for_each(|byte| _ = black_box(*byte));
}

fn find_costed(ladder: &mut Ladder, ask: &Ask, series: &mut Series) -> Result<(), Error> {
    let mut meter = CostMeter(Costs::default());
    let found = ladder.find(ask, &mut meter)?;
    series.record(&meter.0, found.is_some());
    Ok(())
}

/// Measures cold lookups with the accessors in memory, and touches of as many random pages of the same evicted file.
///
/// The two take turns in `rounds` rounds, so that a disk whose speed drifts drifts for both. Pages of an earlier round are cold again.
///
/// # Errors
/// As [`measure`].
pub fn measure_beside_baseline(
    files: &SegmentFiles,
    asks: &[Ask],
    method: EvictMethod,
    rounds: usize,
) -> Result<(Series, ColdTouches), Error> {
    let mut series = Series::default();
    let mut baseline = ColdTouches { time: Histogram::default(), faults: Histogram::default() };
    for (round, part) in asks.chunks(asks.len().div_ceil(rounds).max(1)).enumerate() {
        let touched = cold_touches(&files.kv, method, part.len(), round as u64)?;
        baseline.time.add(&touched.time);
        baseline.faults.add(&touched.faults);
        series.add(&measure(files, Mode::Resident, part, method)?);
    }
    Ok((series, baseline))
}

/// One pass brings everything in and checks the pages, one times lookups, one times their stages.
fn warm(files: &SegmentFiles, asks: &[Ask]) -> Result<Series, Error> {
    let mut ladder = Ladder::open(files)?;
    ladder.heat(&[])?;
    touch_pages(ladder.segment.data());
    for ask in asks {
        black_box(ladder.find(ask, &mut ())?);
    }
    let clock_ns = clock_cost().quantile(0.5);
    let mut series = Series::default();
    let before = thread_faults();
    for ask in asks {
        let start = Instant::now();
        let found = black_box(ladder.find(ask, &mut ())?);
        let time = start.elapsed().as_nanos() as u64;
        series.time.record(time.saturating_sub(clock_ns));
        series.found += u64::from(found.is_some());
    }
    let major = (thread_faults() - before).major;
    series.faults.record(major / (asks.len() as u64).max(1));
    let mut times: [Histogram; 3] = Default::default();
    for ask in asks {
        black_box(ladder.find(ask, &mut TimeMeter { times: &mut times, clock_ns })?);
    }
    for (stage, time) in series.stages.iter_mut().zip(times) {
        stage.time = time;
    }
    Ok(series)
}
