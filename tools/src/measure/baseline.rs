//! What one random read costs on this machine without any of our code: the baseline that every figure is held against.
//!
//! | baseline | what is done | held against |
//! |---|---|---|
//! | [`cold_touches`] | one byte of a random 4 KiB page of an evicted file, mapped with `MADV_RANDOM` | a cold lookup |
//! | [`deep_reads`] | positioned 4 KiB reads of an evicted file by many threads at once | a cold `multi_get` |
//! | [`warm_reads`] | random 64-byte lines of a mapped file in memory, each place known only from the line before | a warm lookup |
//!
//! Measure them on the file of the lookups and in the same run: the ratio is then free of the machine. Each of the cold ones evicts the
//! file first and fails where that fails (see [`crate::measure::evict`]): the caller lets go of its own mappings before.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::measure::evict::{Error, EvictMethod, Mapping, PAGE_SIZE, advise_random};
use crate::measure::faults::thread_faults;
use crate::measure::histogram::{Histogram, Summary};
use crate::workload::{SplitMix64, mix};

/// How many dependent reads one sample of [`warm_reads`] holds: enough that the clock's own cost vanishes in them.
const READS_PER_SAMPLE: usize = 32;

const LINE: usize = 64;

/// How much is measured; of what is zero nothing, so that a warm measurement needs no file that can be evicted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BaselineOptions {
    /// How many pages are touched one after the other.
    pub touches: usize,
    /// How many pages are read by many threads at once.
    pub deep_reads: usize,
    /// How many threads read at once.
    pub depth: usize,
    /// How many lines are read from memory.
    pub warm_reads: usize,
    /// Another seed touches other places.
    pub seed: u64,
}

impl Default for BaselineOptions {
    fn default() -> Self {
        Self { touches: 2_000, deep_reads: 20_000, depth: 32, warm_reads: 1_000_000, seed: 1 }
    }
}

/// The baselines of one file, those that were asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Baseline {
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// One random touch of an evicted page, in nanoseconds.
    pub cold_touch_ns: Option<Summary>,
    /// Major faults of one touch.
    pub cold_touch_faults: Option<Summary>,
    /// Reads at depth.
    pub deep: Option<DeepReads>,
    /// One dependent random 64-byte read from memory, in nanoseconds.
    pub warm_read_ns: Option<Summary>,
    /// What asking for the time before and after an operation adds to it, in nanoseconds: p50.
    pub clock_ns: u64,
}

/// Touches of an evicted file, one after the other.
#[derive(Clone, Debug)]
pub struct ColdTouches {
    /// The time of each touch, in nanoseconds.
    pub time: Histogram,
    /// The major faults of each touch.
    pub faults: Histogram,
}

/// Reads of an evicted file by many threads at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeepReads {
    /// How many threads read.
    pub depth: usize,
    /// How many pages were read, no page twice.
    pub reads: usize,
    /// Pages read per second by all threads together.
    pub per_second: f64,
    /// The time of one read, in nanoseconds.
    pub time_ns: Summary,
}

/// Measures the baselines of one file. After the warm one the file is in memory as a whole.
///
/// # Errors
/// [`Error::Stayed`] where the file cannot be evicted, [`Error::TooSmall`] for less than one page.
pub fn measure(path: &Path, method: EvictMethod, options: &BaselineOptions) -> Result<Baseline, Error> {
    let BaselineOptions { touches, deep_reads: deep, depth, warm_reads: warm, seed } = *options;
    let cold = (touches > 0).then(|| cold_touches(path, method, touches, seed)).transpose()?;
    let deep = (deep > 0).then(|| deep_reads(path, method, depth, deep, seed)).transpose()?;
    let warm = (warm > 0).then(|| warm_reads(path, warm, seed)).transpose()?;
    Ok(Baseline {
        file_bytes: full_pages(path)?.1,
        cold_touch_ns: cold.as_ref().map(|touched| touched.time.summary()),
        cold_touch_faults: cold.map(|touched| touched.faults.summary()),
        deep,
        warm_read_ns: warm.map(|histogram| histogram.summary()),
        clock_ns: clock_cost().quantile(0.5),
    })
}

/// Evicts a file, then touches random pages of it through a fresh mapping with `MADV_RANDOM`, no page twice.
///
/// Touches as many pages as the file has where it has fewer than `touches`.
pub fn cold_touches(
    path: &Path,
    method: EvictMethod,
    touches: usize,
    seed: u64,
) -> Result<ColdTouches, Error> {
    let pages = distinct_pages(full_pages(path)?.0, touches, seed);
    method.evict(path)?;
    let mapping = Mapping::open(path)?;
    mapping.advise_random()?;
    let mut touched = ColdTouches { time: Histogram::default(), faults: Histogram::default() };
    for page in pages {
        let offset = (page * PAGE_SIZE) as usize;
        let before = thread_faults();
        let start = Instant::now();
        black_box(mapping.byte(offset));
        let time = start.elapsed();
        touched.faults.record((thread_faults() - before).major);
        touched.time.record_time(time);
    }
    Ok(touched)
}

/// Evicts a file, then reads random pages of it by `depth` threads, each with one positioned read at a time, no page twice.
///
/// Reads as many pages as the file has where it has fewer than `reads`.
pub fn deep_reads(
    path: &Path,
    method: EvictMethod,
    depth: usize,
    reads: usize,
    seed: u64,
) -> Result<DeepReads, Error> {
    let pages = distinct_pages(full_pages(path)?.0, reads, seed.wrapping_add(1));
    method.evict(path)?;
    let file = File::open(path).map_err(Error::io("open", path))?;
    advise_random(&file, path)?;
    let (next, begin) = (AtomicUsize::new(0), Barrier::new(depth + 1));
    let read_pages = || {
        let (mut time, mut buf) = (Histogram::default(), vec![0; PAGE_SIZE as usize]);
        begin.wait();
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            file.read_exact_at(&mut buf, page * PAGE_SIZE).map_err(Error::io("read", path))?;
            time.record_time(start.elapsed());
        }
        Ok(time)
    };
    let (histograms, wall) = thread::scope(|scope| {
        let workers: Vec<_> = (0..depth).map(|_| scope.spawn(read_pages)).collect();
        begin.wait();
        let start = Instant::now();
        let results = workers.into_iter().map(|worker| worker.join().expect("a reader does not panic"));
        let histograms = results.collect::<Result<Vec<Histogram>, Error>>();
        (histograms, start.elapsed())
    });
    let mut time = Histogram::default();
    histograms?.iter().for_each(|histogram| time.add(histogram));
    let per_second = pages.len() as f64 / wall.as_secs_f64();
    Ok(DeepReads { depth, reads: pages.len(), per_second, time_ns: time.summary() })
}

/// Brings a file into memory, then reads random 64-byte lines of it, each place computed from the line read before.
///
/// The chain keeps the processor from reading ahead, so this is the latency of memory (and of the address translation of a
/// file's 4 KiB pages), not its throughput. A sample is the mean of 32 reads, since the clock costs as much as a read.
pub fn warm_reads(path: &Path, reads: usize, seed: u64) -> Result<Histogram, Error> {
    let mapping = Mapping::open(path)?;
    let lines = mapping.len() / LINE;
    if lines == 0 {
        return Err(Error::TooSmall {
            path: path.to_owned(),
            len: mapping.len() as u64,
            needed: LINE as u64,
        });
    }
    for offset in (0..mapping.len()).step_by(PAGE_SIZE as usize) {
        black_box(mapping.byte(offset));
    }
    let mut histogram = Histogram::default();
    let mut state = seed;
    for _ in 0..reads.div_ceil(READS_PER_SAMPLE) {
        let start = Instant::now();
        for _ in 0..READS_PER_SAMPLE {
            let line = scale(state, lines as u64);
            state = mix(state.wrapping_add(1) ^ mapping.line(line as usize));
        }
        histogram.record_time(start.elapsed() / READS_PER_SAMPLE as u32);
    }
    black_box(state);
    Ok(histogram)
}

/// What two questions for the time cost, in nanoseconds: part of every operation that is timed on its own.
pub fn clock_cost() -> Histogram {
    let mut histogram = Histogram::default();
    for _ in 0..10_000 {
        let start = Instant::now();
        let time: Duration = start.elapsed();
        histogram.record_time(time);
    }
    histogram
}

/// The number of whole pages of a file, and its length.
fn full_pages(path: &Path) -> Result<(u64, u64), Error> {
    let len = path.metadata().map_err(Error::io("open", path))?.len();
    if len < PAGE_SIZE {
        return Err(Error::TooSmall { path: path.to_owned(), len, needed: PAGE_SIZE });
    }
    Ok((len / PAGE_SIZE, len))
}

/// `count` different numbers below `total`, or all of them, in random order. Costs one bit of memory for each page.
fn distinct_pages(total: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut random = SplitMix64::new(seed);
    let count = count.min(total as usize);
    if count * 2 > total as usize {
        let mut all: Vec<u64> = (0..total).collect();
        for i in 0..count {
            all.swap(i, i + random.below(total - i as u64) as usize);
        }
        all.truncate(count);
        return all;
    }
    let mut seen = vec![0u64; total.div_ceil(64) as usize];
    let mut pages = Vec::with_capacity(count);
    while pages.len() < count {
        let page = random.below(total);
        let (word, bit) = (&mut seen[(page / 64) as usize], 1 << (page % 64));
        if *word & bit == 0 {
            *word |= bit;
            pages.push(page);
        }
    }
    pages
}

/// Maps 64 random bits to a number below `bound` by multiplication, which is faster than a remainder.
#[inline]
fn scale(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(len: usize) -> tempfile::NamedTempFile {
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
        let mut bytes = vec![0; len];
        SplitMix64::new(3).fill(&mut bytes);
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn pages_are_distinct_whether_few_or_all_are_asked_for() {
        for (total, count) in [(1000, 10), (1000, 499), (1000, 900), (1000, 5000), (1, 1)] {
            let mut pages = distinct_pages(total, count, 5);
            assert_eq!(pages.len(), count.min(total as usize));
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), count.min(total as usize));
            assert!(pages.iter().all(|page| *page < total));
        }
    }

    #[test]
    fn all_baselines_of_a_small_file() {
        let file = file_of(4 << 20);
        let options = BaselineOptions {
            touches: 100,
            deep_reads: 500,
            warm_reads: 10_000,
            ..BaselineOptions::default()
        };
        let baseline = match measure(file.path(), EvictMethod::Fadvise, &options) {
            Err(Error::Stayed { path, .. }) => {
                println!("skipped: pages of {} do not leave memory", path.display());
                return;
            }
            baseline => baseline.unwrap(),
        };
        let (cold, warm) = (baseline.cold_touch_ns.unwrap(), baseline.warm_read_ns.unwrap());
        assert_eq!(
            (baseline.file_bytes, cold.count, baseline.deep.unwrap().time_ns.count),
            (4 << 20, 100, 500)
        );
        assert!((0.9..=1.0).contains(&baseline.cold_touch_faults.unwrap().mean), "{baseline:?}");
        assert!(cold.p50 > warm.p50, "{baseline:?}");
        assert_eq!(warm.count, 313);
    }

    #[test]
    fn a_file_without_a_page_is_refused() {
        let file = file_of(4095);
        let refused = cold_touches(file.path(), EvictMethod::Fadvise, 1, 1).unwrap_err();
        assert!(matches!(refused, Error::TooSmall { len: 4095, needed: 4096, .. }), "{refused}");
    }
}
