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
use icecore_tools::evict::PAGE_SIZE;
use icecore_tools::floor::clock_cost;
use icecore_tools::lookup::{Ask, Mode};
use icecore_tools::spread::Spread;
use icecore_tools::usage::thread_faults;
use icecore_tools::workload::SplitMix64;

use crate::measure::{EACH_SHARE, Plan, WARM_FACTOR};
use crate::progress::Progress;
use crate::report::{ArchiveReport, ArchiveSeries, Asked};
use crate::sample;

/// What is asked for, by whether it is there.
type AskSets = Vec<(Asked, Vec<Ask>)>;

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

/// The domains of an archive that have segments, or the one asked for.
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
        for (asked, asks) in progress.measure(format!("{name}: keys"), || self.asks(plan))? {
            for &mode in &plan.modes {
                for threads in readers(mode, plan) {
                    let what = format!("{name}: {mode:?}, {asked:?}, threads={threads}").to_lowercase();
                    let measured = progress.measure(what, || self.lookups(mode, threads, &asks, plan))?;
                    lookups.push((asked, mode, threads, measured));
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
    fn asks(&self, plan: &Plan) -> Result<AskSets, Box<dyn Error>> {
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
        hits.iter_mut().for_each(|ask| ask.at = ask.at.max(first));
        SplitMix64::new(plan.seed).shuffle(&mut hits);
        if !plan.misses {
            return Ok(vec![(Asked::Hits, hits)]);
        }
        let latest = Reader::open(&self.dir)?.latest()?;
        let find = |ask: &Ask| latest.lookup(&self.domain, &ask.key).map(|found| found.is_some());
        let misses = sample::absent(find, &hits, latest.height(), plan.seed)?;
        Ok(vec![(Asked::Hits, hits), (Asked::Misses, misses)])
    }

    fn lookups(
        &self,
        mode: Mode,
        threads: usize,
        asks: &[Ask],
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let cold = &asks[..asks.len().div_ceil(WARM_FACTOR)];
        let few = &cold[..cold.len().div_ceil(EACH_SHARE)];
        match mode {
            Mode::Resident => self.cold(cold, KV, ACCESSORS, plan),
            Mode::Once => self.cold(cold, ALL, 0..0, plan),
            Mode::Opened => self.cold_each(few, KV_BT, FILTER, plan),
            Mode::Each => self.cold_each(few, ALL, 0..0, plan),
            Mode::Warm => self.warm(asks, threads),
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
            plan.means.evict(&path)?;
        }
        Ok(Reader::open(&self.dir)?)
    }

    /// Lookups after one eviction.
    fn cold(
        &self,
        asks: &[Ask],
        evicted: Range<usize>,
        resident: Range<usize>,
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let reader = self.open_cold(evicted, resident, plan)?;
        let mut measured = Measured::default();
        for ask in asks {
            measured.lookup(&reader, &self.domain, ask)?;
        }
        Ok(measured)
    }

    /// Lookups with an eviction before each; neither that nor the opening is timed.
    fn cold_each(
        &self,
        asks: &[Ask],
        evicted: Range<usize>,
        resident: Range<usize>,
        plan: &Plan,
    ) -> Result<Measured, Box<dyn Error>> {
        let mut measured = Measured::default();
        for ask in asks {
            let reader = self.open_cold(evicted.clone(), resident.clone(), plan)?;
            measured.lookup(&reader, &self.domain, ask)?;
        }
        Ok(measured)
    }

    /// By `threads` readers at once, each with all keys from another place on.
    fn warm(&self, asks: &[Ask], threads: usize) -> Result<Measured, Box<dyn Error>> {
        let reader = Reader::open(&self.dir)?;
        for path in self.files(ALL) {
            let mapping = OsStorage.map(&path, Access::Sequential)?;
            mapping.as_ref().iter().step_by(PAGE_SIZE as usize).for_each(|byte| _ = black_box(*byte));
        }
        for ask in asks {
            black_box(reader.at(ask.at)?.lookup(&self.domain, &ask.key)?);
        }
        let clock_ns = clock_cost().quantile(0.5);
        let begin = Barrier::new(threads);
        let read = &|thread: usize| {
            let mut measured = Measured { clock_ns, ..Measured::default() };
            let (late, early) = asks.split_at(asks.len() * thread / threads);
            begin.wait();
            early.iter().chain(late).try_for_each(|ask| measured.lookup(&reader, &self.domain, ask))?;
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
    pub(crate) time: Spread,
    pub(crate) waits: Spread,
    pub(crate) pages: Spread,
}

impl Measured {
    fn lookup(&mut self, reader: &Reader, domain: &str, ask: &Ask) -> Result<(), icecore::Error> {
        let view = reader.at(ask.at)?;
        let before = thread_faults();
        let start = Instant::now();
        let found = black_box(view.lookup(domain, &ask.key)?);
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
