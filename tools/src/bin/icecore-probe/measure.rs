//! Measures one segment: its baseline once, then each density in each mode.
//!
//! The files of a segment may be anywhere: they are linked into a temporary directory, in which what is missing is built.

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore::measure::LoneSegment;
use icecore::storage::os::OsStorage;
use icecore::storage::{Access, Storage};
use icecore_index::Density;
use icecore_segments::{Segment, SegmentSummary};
use icecore_tools::measure::baseline::{self, Baseline, BaselineOptions};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::histogram::Summary;
use icecore_tools::measure::lookup::{
    Mode, Query, Series, measure, measure_beside_baseline, on_distinct_pages,
};

use crate::progress::Progress;
use crate::report::{FileReport, KeyKind, ModeReport};
use crate::sample;
use crate::target::Target;

/// Where files are evicted before every lookup, one in this many keys is looked up.
pub(crate) const EACH_SHARE: usize = 10;

/// Warm lookups for each cold one.
pub(crate) const WARM_FACTOR: usize = 10;

/// The rounds in which lookups and touches of the baseline take turns.
const ROUNDS: usize = 10;

/// What is measured of every segment.
pub(crate) struct Plan {
    pub(crate) densities: Vec<Density>,
    pub(crate) keys: usize,
    pub(crate) modes: Vec<Mode>,
    pub(crate) misses: bool,
    /// How many read an archive at once.
    pub(crate) threads: usize,
    pub(crate) seed: u64,
    pub(crate) method: EvictMethod,
    /// Where accessors are built.
    pub(crate) temp: PathBuf,
}

impl Plan {
    /// How many kinds of keys are looked up.
    pub(crate) fn kinds(&self) -> usize {
        if self.misses { 2 } else { 1 }
    }

    /// How many measurements [`file()`] takes: keys and baseline, the densities, and for each its modes.
    pub(crate) fn measurements(&self) -> usize {
        2 + self.densities.len() * (1 + self.modes.len() * self.kinds())
    }

    /// The baselines that the modes are compared with. Only those: a warm measurement evicts nothing.
    fn baselines(&self) -> BaselineOptions {
        let all = BaselineOptions { touches: self.keys, seed: self.seed, ..BaselineOptions::default() };
        let is_cold = self.modes.iter().any(|mode| *mode != Mode::Warm);
        let cold = if is_cold { all } else { BaselineOptions { touches: 0, deep_reads: 0, ..all } };
        if self.modes.contains(&Mode::Warm) { cold } else { BaselineOptions { warm_reads: 0, ..cold } }
    }
}

/// The keys of one kind.
struct KeySet {
    kind: KeyKind,
    cold: Vec<Query>,
    warm: Vec<Query>,
}

/// The reports of one segment, one for each density.
pub(crate) fn file(
    target: &Target,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<FileReport>, Box<dyn Error>> {
    let name = target.name();
    let (own, is_built) = segment(target, &plan.temp)?;
    let summary = own.reader()?.kv()?.summary().clone();
    if summary.entries == 0 {
        return Ok(Vec::new());
    }
    let [kv, ..] = own.files();
    let sets = progress.measure(format!("{name}: keys"), || key_sets(&own, plan))?;
    let baseline = progress
        .measure(format!("{name}: baseline"), || baseline::measure(&kv, plan.method, &plan.baselines()))?;
    let mut reports = Vec::new();
    for &m in &plan.densities {
        let is_own = m == own.m();
        let indexed = progress.measure(format!("{name}: index of M={m}"), || {
            if is_own { Ok(own.clone()) } else { own.with_index(m) }
        })?;
        let [_, bt, kvei] = indexed.files();
        let index_bytes = fs::metadata(&bt)?.len();
        let mut report = FileReport {
            file: target.kv.display().to_string(),
            domain: summary.domain.clone(),
            steps: summary.steps.to_string(),
            encoding: format!("{:?}", summary.encoding).to_lowercase(),
            entries: summary.entries,
            keys: summary.keys,
            pages: summary.pages,
            kv_bytes: summary.file.len,
            kv_bytes_per_key: per_key(summary.file.len, &summary),
            filter_bytes: fs::metadata(&kvei)?.len(),
            m: m.get(),
            index_bytes,
            index_bytes_per_key: per_key(index_bytes, &summary),
            is_index_built: !is_own || is_built,
            baseline,
            lookups: Vec::new(),
        };
        for keys in &sets {
            for &mode in &plan.modes {
                let what = format!("{name}: M={m}, {mode:?}, {:?}", keys.kind).to_lowercase();
                let lookups = progress.measure(what, || lookups(&indexed, mode, keys, &baseline, plan))?;
                report.lookups.push(lookups);
            }
        }
        if !is_own {
            fs::remove_file(&bt)?;
        }
        reports.push(report);
    }
    Ok(reports)
}

fn per_key(bytes: u64, summary: &SegmentSummary) -> f64 {
    bytes as f64 / summary.keys as f64
}

fn key_sets(segment: &LoneSegment, plan: &Plan) -> Result<Vec<KeySet>, Box<dyn Error>> {
    let reader = segment.reader()?;
    let mut present = sample::present(reader.kv()?, plan.keys * WARM_FACTOR, plan.seed)?;
    let mut sets = Vec::new();
    if plan.misses {
        let find = |query: &Query| reader.find(&query.key, query.at, |_| {}).map(|found| found.is_some());
        let warm = sample::absent(find, &present, u64::MAX, plan.seed)?;
        let cold = warm[..plan.keys.min(warm.len())].to_vec();
        sets.push(KeySet { kind: KeyKind::Misses, cold, warm });
    }
    let warm = present.clone();
    present.truncate(plan.keys);
    sets.insert(0, KeySet { kind: KeyKind::Hits, cold: present, warm });
    Ok(sets)
}

fn lookups(
    segment: &LoneSegment,
    mode: Mode,
    keys: &KeySet,
    baseline: &Baseline,
    plan: &Plan,
) -> Result<ModeReport, Box<dyn Error>> {
    let few = &keys.cold[..keys.cold.len().div_ceil(EACH_SHARE)];
    let (series, baseline): (Series, Option<Summary>) = match mode {
        Mode::Resident => {
            let queries = on_distinct_pages(segment, keys.cold.clone())?;
            let (series, beside) = measure_beside_baseline(segment, &queries, plan.method, ROUNDS)?;
            (series, Some(beside.time.summary()))
        }
        Mode::Once => (measure(segment, mode, &keys.cold, plan.method)?, baseline.cold_touch_ns),
        Mode::Opened | Mode::Each => (measure(segment, mode, few, plan.method)?, baseline.cold_touch_ns),
        Mode::Warm => (measure(segment, mode, &keys.warm, plan.method)?, baseline.warm_read_ns),
    };
    let baseline_ns = baseline.expect("the baselines of all modes of the plan are measured").p50;
    let lookups = series.summary();
    let is_right = match keys.kind {
        KeyKind::Hits => lookups.found == lookups.time_ns.count,
        KeyKind::Misses => lookups.found == 0,
    };
    if !is_right {
        let kv = &segment.files()[0];
        let (found, count) = (lookups.found, lookups.time_ns.count);
        return Err(format!("{}: {found} of {count} keys were found", kv.display()).into());
    }
    let baseline_ratio = lookups.time_ns.p50 as f64 / baseline_ns.max(1) as f64;
    Ok(ModeReport { mode, kind: keys.kind, baseline_ns, baseline_ratio, lookups, curve: series.time.curve() })
}

/// The segment in a directory below `temp`, and whether accessors had to be built because a single file lacks them.
fn segment(target: &Target, temp: &Path) -> Result<(LoneSegment, bool), Box<dyn Error>> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    let mapping = storage.map(&target.kv, Access::Random)?;
    let opened = Segment::open(mapping).map_err(|error| format!("{}: {error}", target.kv.display()))?;
    let SegmentSummary { domain, steps, .. } = opened.summary();
    let dir = tempfile::Builder::new().prefix(domain).tempdir_in(temp)?.keep();
    let [kv, bt, kvei] = LoneSegment::file_names(domain, *steps);
    for (file, name) in [(&target.kv, kv), (&target.bt, bt), (&target.kvei, kvei)] {
        if let Ok(path) = file.canonicalize() {
            symlink(path, dir.join(name))?;
        }
    }
    match LoneSegment::open(&storage, &dir, domain, *steps) {
        Ok(segment) => Ok((segment, false)),
        Err(error) if target.is_archived => Err(error.into()),
        Err(_) => Ok((LoneSegment::reindex(&storage, &dir, domain, *steps, Density::MEDIUM)?, true)),
    }
}
