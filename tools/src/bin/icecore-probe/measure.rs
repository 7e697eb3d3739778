//! Measures one segment: its baseline once, then each density in each mode.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use icecore_index::Density;
use icecore_segments::SegmentSummary;
use icecore_tools::measure::baseline::{self, Baseline, BaselineOptions};
use icecore_tools::measure::build::{SegmentFiles, build_filter, build_index};
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::histogram::Summary;
use icecore_tools::measure::lookup::{Ask, Ladder, Mode, Series, measure, measure_beside_baseline};

use crate::progress::Progress;
use crate::report::{Asked, FileReport, ModeReport};
use crate::sample;
use crate::target::Target;

/// Where files are evicted before every lookup, one in so many keys is asked for.
pub(crate) const EACH_SHARE: usize = 10;

/// How many keys are asked for warm, in keys asked for cold.
pub(crate) const WARM_FACTOR: usize = 10;

/// In how many rounds lookups and touches of the baseline take turns.
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
    /// The kinds of keys that are asked for.
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

/// What is asked of a segment.
struct Asks {
    kind: Asked,
    cold: Vec<Ask>,
    warm: Vec<Ask>,
}

/// The reports of one segment, one for each density.
pub(crate) fn file(
    target: &Target,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<FileReport>, Box<dyn Error>> {
    let name = target.name();
    let own = accessors(target, &plan.temp)?;
    let (summary, own_m) = {
        let ladder = Ladder::open(&own)?;
        (ladder.segment().summary().clone(), ladder.index().summary().m)
    };
    if summary.entries == 0 {
        return Ok(Vec::new());
    }
    let asks = progress.measure(format!("{name}: keys"), || asks(&own, plan))?;
    let baseline = progress.measure(format!("{name}: baseline"), || {
        baseline::measure(&own.kv, plan.method, &plan.baselines())
    })?;
    let mut reports = Vec::new();
    for &m in &plan.densities {
        let is_own = m == own_m;
        let files = progress.measure(format!("{name}: index of M={m}"), || {
            if is_own { Ok(own.clone()) } else { indexed(&own, m, plan) }
        })?;
        let index_bytes = fs::metadata(&files.bt)?.len();
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
            filter_bytes: fs::metadata(&files.kvei)?.len(),
            m: m.get(),
            index_bytes,
            index_bytes_per_key: per_key(index_bytes, &summary),
            is_index_built: !is_own || own.bt != target.bt,
            baseline,
            lookups: Vec::new(),
        };
        for asked in &asks {
            for &mode in &plan.modes {
                let what = format!("{name}: M={m}, {mode:?}, {:?}", asked.kind).to_lowercase();
                let lookups = progress.measure(what, || lookups(&files, mode, asked, &baseline, plan))?;
                report.lookups.push(lookups);
            }
        }
        if files.bt != own.bt {
            fs::remove_file(&files.bt)?;
        }
        reports.push(report);
    }
    Ok(reports)
}

fn per_key(bytes: u64, summary: &SegmentSummary) -> f64 {
    bytes as f64 / summary.keys as f64
}

fn asks(files: &SegmentFiles, plan: &Plan) -> Result<Vec<Asks>, Box<dyn Error>> {
    let mut ladder = Ladder::open(files)?;
    let mut present = sample::present(ladder.segment(), plan.keys * WARM_FACTOR, plan.seed)?;
    let mut asks = Vec::new();
    if plan.misses {
        let find = |ask: &Ask| ladder.find(ask, &mut ()).map(|found| found.is_some());
        let warm = sample::absent(find, &present, u64::MAX, plan.seed)?;
        let cold = warm[..plan.keys.min(warm.len())].to_vec();
        asks.push(Asks { kind: Asked::Misses, cold, warm });
    }
    let warm = present.clone();
    present.truncate(plan.keys);
    asks.insert(0, Asks { kind: Asked::Hits, cold: present, warm });
    Ok(asks)
}

fn lookups(
    files: &SegmentFiles,
    mode: Mode,
    asks: &Asks,
    baseline: &Baseline,
    plan: &Plan,
) -> Result<ModeReport, Box<dyn Error>> {
    let few = &asks.cold[..asks.cold.len().div_ceil(EACH_SHARE)];
    let (series, baseline): (Series, Option<Summary>) = match mode {
        Mode::Resident => {
            let asks = Ladder::open(files)?.on_pages_of_their_own(asks.cold.clone())?;
            let (series, beside) = measure_beside_baseline(files, &asks, plan.method, ROUNDS)?;
            (series, Some(beside.time.summary()))
        }
        Mode::Once => (measure(files, mode, &asks.cold, plan.method)?, baseline.cold_touch_ns),
        Mode::Opened | Mode::Each => (measure(files, mode, few, plan.method)?, baseline.cold_touch_ns),
        Mode::Warm => (measure(files, mode, &asks.warm, plan.method)?, baseline.warm_read_ns),
    };
    let baseline_ns = baseline.expect("the baselines of all modes of the plan are measured").p50;
    let lookups = series.summary();
    let is_right = match asks.kind {
        Asked::Hits => lookups.found == lookups.time_ns.count,
        Asked::Misses => lookups.found == 0,
    };
    if !is_right {
        return Err(format!(
            "{}: {} of {} keys were found",
            files.kv.display(),
            lookups.found,
            lookups.time_ns.count
        )
        .into());
    }
    let baseline_ratio = lookups.time_ns.p50 as f64 / baseline_ns.max(1) as f64;
    Ok(ModeReport {
        mode,
        asked: asks.kind,
        baseline_ns,
        baseline_ratio,
        lookups,
        curve: series.time.curve(),
    })
}

/// The accessors of a segment: its own, or built where a single file lacks them.
fn accessors(target: &Target, temp: &Path) -> Result<SegmentFiles, Box<dyn Error>> {
    let own = SegmentFiles { kv: target.kv.clone(), bt: target.bt.clone(), kvei: target.kvei.clone() };
    match Ladder::open(&own) {
        Ok(_) => return Ok(own),
        Err(error) if target.is_archived => return Err(error.into()),
        Err(_) => {}
    }
    let name = target.kv.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let dir = tempfile::Builder::new().prefix(&name).tempdir_in(temp)?.keep();
    let built = SegmentFiles { kv: target.kv.clone(), ..SegmentFiles::named(&dir, &name) };
    build_filter(&built.kv, &built.kvei)?;
    build_index(&built.kv, &built.bt, Density::MEDIUM)?;
    Ok(built)
}

/// The segment with a pivot index of another density, built in the temporary folder.
fn indexed(own: &SegmentFiles, m: Density, plan: &Plan) -> Result<SegmentFiles, Box<dyn Error>> {
    let bt = plan.temp.join(format!("m{m}.bt"));
    build_index(&own.kv, &bt, m)?;
    Ok(own.with_index(bt))
}
