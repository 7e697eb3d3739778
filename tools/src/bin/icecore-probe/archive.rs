//! Measures lookups in a domain of an archive as a whole, through the engine: what a hit and a miss cost over all its segments, cold
//! and warm, by one reader and by many.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use icecore::storage::os::OsStorage;
use icecore::storage::{Access, Storage};
use icecore::{Reader, SegmentInfo};
use icecore_segments::Segment;
use icecore_tools::measure::baseline::clock_cost;
use icecore_tools::measure::evict::PAGE_SIZE;
use icecore_tools::measure::faults::thread_faults;
use icecore_tools::measure::histogram::Histogram;
use icecore_tools::measure::lookup::{Mode, Query};
use icecore_tools::workload::SplitMix64;

use crate::measure::{EACH_SHARE, Plan, WARM_FACTOR};
use crate::progress::Progress;
use crate::report::{ArchiveReport, ArchiveSeries, KeyKind};
use crate::sample;

/// The queries by the kind of their keys.
type QuerySets = Vec<(KeyKind, Vec<Query>)>;

/// The files of a segment, by their place in [`SegmentInfo::files`].
const KV: Range<usize> = 0..1;
const KV_BT: Range<usize> = 0..2;
const ALL: Range<usize> = 0..3;
const ACCESSORS: Range<usize> = 1..3;
const FILTER: Range<usize> = 2..3;

/// A domain of an archive.
pub(crate) struct Probed {
    dir: PathBuf,
    domain: String,
    segments: Vec<SegmentInfo>,
}

/// The domains of an archive that have segments, or the one that is named.
pub(crate) fn domains(dir: &Path, only: Option<&str>) -> Result<Vec<Probed>, icecore::Error> {
    let reader = Reader::open(dir)?;
    let names = reader.domains().iter().map(|domain| domain.name.clone());
    let names: Vec<String> = names.filter(|name| only.is_none_or(|only| only == name)).collect();
    let segments = reader.segments();
    let probed = names.into_iter().map(|domain| {
        let of_domain = segments.iter().filter(|segment| segment.domain == domain && segment.entries > 0);
        Probed { dir: dir.to_owned(), segments: of_domain.cloned().collect(), domain }
    });
    Ok(probed.filter(|probed| !probed.segments.is_empty()).collect())
}

/// How many measurements [`Probed::measure`] takes: the keys, and for each kind its modes.
pub(crate) fn measurements(plan: &Plan) -> usize {
    1 + plan.kinds() * plan.modes.iter().map(|mode| readers(*mode, plan).len()).sum::<usize>()
}

/// How many read at once: cold ones would wait for each other's pages, so only what is in memory is read by many.
fn readers(mode: Mode, plan: &Plan) -> Vec<usize> {
    if mode == Mode::Warm && plan.threads > 1 { vec![1, plan.threads] } else { vec![1] }
}

impl Probed {
    /// The report of the domain.
    pub(crate) fn measure(&self, plan: &Plan, progress: &Progress) -> Result<ArchiveReport, Box<dyn Error>> {
        let name = format!("all of {}", self.domain);
        let mut lookups = Vec::new();
        for (kind, queries) in progress.measure(format!("{name}: keys"), || self.queries(plan))? {
            for &mode in &plan.modes {
                for threads in readers(mode, plan) {
                    let what = format!("{name}: {mode:?}, {kind:?}, threads={threads}").to_lowercase();
                    let measured = progress.measure(what, || self.lookups(mode, threads, &queries, plan))?;
                    lookups.push((kind, mode, threads, measured));
                }
            }
        }
        Ok(ArchiveReport {
            archive: self.dir.display().to_string(),
            domain: self.domain.clone(),
            segments: self.segments.len(),
            entries: self.segments.iter().map(|segment| segment.entries).sum(),
            lookups: lookups.into_iter().map(ArchiveSeries::new).collect(),
        })
    }

    /// Keys of all segments, of each as many as its share of the entries; and keys that no segment has.
    fn queries(&self, plan: &Plan) -> Result<QuerySets, Box<dyn Error>> {
        let count = plan.keys * WARM_FACTOR;
        let entries: u64 = self.segments.iter().map(|segment| segment.entries).sum();
        let mut hits = Vec::with_capacity(count);
        let first = Reader::open(&self.dir)?.range().map_or(0, |(first, _)| first);
        for (number, segment) in self.segments.iter().enumerate() {
            let share = (count as u64 * segment.entries).div_ceil(entries) as usize;
            let mapping = OsStorage.map(&self.dir.join(&segment.files[0]), Access::Random)?;
            hits.extend(sample::present(&Segment::open(mapping)?, share, plan.seed + number as u64)?);
        }
        // Pruning keeps versions that are older than the first block that is answered.
        hits.iter_mut().for_each(|query| query.at = query.at.max(first));
        SplitMix64::new(plan.seed).shuffle(&mut hits);
        if !plan.misses {
            return Ok(vec![(KeyKind::Hits, hits)]);
        }
        let latest = Reader::open(&self.dir)?.latest()?;
        let find = |query: &Query| latest.lookup(&self.domain, &query.key).map(|found| found.is_some());
        let misses = sample::absent(find, &hits, latest.height(), plan.seed)?;
        Ok(vec![(KeyKind::Hits, hits), (KeyKind::Misses, misses)])
    }

    fn lookups(
        &self,
        mode: Mode,
        threads: usize,
        queries: &[Query],
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let cold = &queries[..queries.len().div_ceil(WARM_FACTOR)];
        let few = &cold[..cold.len().div_ceil(EACH_SHARE)];
        match mode {
            Mode::Resident => self.cold(cold, KV, ACCESSORS, plan),
            Mode::Once => self.cold(cold, ALL, 0..0, plan),
            Mode::Opened => self.cold_each(few, KV_BT, FILTER, plan),
            Mode::Each => self.cold_each(few, ALL, 0..0, plan),
            Mode::Warm => self.warm(queries, threads),
        }
    }

    /// The files of some kinds of all segments.
    fn files(&self, kinds: Range<usize>) -> impl Iterator<Item = PathBuf> {
        let files = self.segments.iter().flat_map(move |segment| &segment.files[kinds.clone()]);
        files.map(|file| self.dir.join(file))
    }

    /// Evicts the files of some kinds, brings those of others into memory, and opens the archive, which may read a little of each.
    fn open_cold(
        &self,
        evicted: Range<usize>,
        resident: Range<usize>,
        plan: &Plan,
    ) -> Result<Reader, Box<dyn Error>> {
        for path in self.files(resident) {
            black_box(fs::read(path)?);
        }
        for path in self.files(evicted) {
            plan.method.evict(&path)?;
        }
        Ok(Reader::open(&self.dir)?)
    }

    /// Lookups after one eviction.
    fn cold(
        &self,
        queries: &[Query],
        evicted: Range<usize>,
        resident: Range<usize>,
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let reader = self.open_cold(evicted, resident, plan)?;
        let mut measured = Measured::default();
        for query in queries {
            measured.lookup(&reader, &self.domain, query)?;
        }
        Ok(measured)
    }

    /// Lookups with an eviction before each; neither that nor the opening is timed.
    fn cold_each(
        &self,
        queries: &[Query],
        evicted: Range<usize>,
        resident: Range<usize>,
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let mut measured = Measured::default();
        for query in queries {
            let reader = self.open_cold(evicted.clone(), resident.clone(), plan)?;
            measured.lookup(&reader, &self.domain, query)?;
        }
        Ok(measured)
    }

    /// By `threads` readers at once, each with all keys from another place on.
    fn warm(&self, queries: &[Query], threads: usize) -> Result<Measured, Box<dyn Error>> {
        let reader = Reader::open(&self.dir)?;
        for path in self.files(ALL) {
            let mapping = OsStorage.map(&path, Access::Sequential)?;
            mapping.as_ref().iter().step_by(PAGE_SIZE as usize).for_each(|byte| _ = black_box(*byte));
        }
        for query in queries {
            black_box(reader.at(query.at)?.lookup(&self.domain, &query.key)?);
        }
        let clock_ns = clock_cost().quantile(0.5);
        let begin = Barrier::new(threads);
        let read = &|thread: usize| {
            let mut measured = Measured { clock_ns, ..Measured::default() };
            let (late, early) = queries.split_at(queries.len() * thread / threads);
            begin.wait();
            early.iter().chain(late).try_for_each(|query| measured.lookup(&reader, &self.domain, query))?;
            Ok::<_, icecore::Error>(measured)
        };
        let mut all = Measured::default();
        thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || read(thread))).collect();
            readers.into_iter().try_for_each(|reader| {
                all.add(&reader.join().expect("a reader does not panic")?);
                Ok::<_, icecore::Error>(())
            })
        })?;
        Ok(all)
    }
}

/// Lookups through the engine.
#[derive(Default)]
pub(crate) struct Measured {
    clock_ns: u64,
    pub(crate) found: u64,
    pub(crate) time: Histogram,
    pub(crate) waits: Histogram,
    pub(crate) pages: Histogram,
}

impl Measured {
    fn lookup(&mut self, reader: &Reader, domain: &str, query: &Query) -> Result<(), icecore::Error> {
        let view = reader.at(query.at)?;
        let before = thread_faults();
        let start = Instant::now();
        let found = black_box(view.lookup(domain, &query.key)?);
        let time = start.elapsed().as_nanos() as u64;
        let faults = thread_faults() - before;
        self.found += u64::from(found.is_some());
        self.time.record(time.saturating_sub(self.clock_ns));
        self.waits.record(faults.waits());
        self.pages.record(faults.pages_read.max(faults.major));
        Ok(())
    }

    fn add(&mut self, other: &Self) {
        self.found += other.found;
        self.time.add(&other.time);
        self.waits.add(&other.waits);
        self.pages.add(&other.pages);
    }
}
