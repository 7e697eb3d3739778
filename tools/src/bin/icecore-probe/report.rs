//! What was measured, as tables for people and as JSON for programs.

use std::fmt;
use std::io::{self, Write};

use icecore_tools::machine::Conditions;
use icecore_tools::measure::baseline::Baseline;
use icecore_tools::measure::evict::EvictMethod;
use icecore_tools::measure::histogram::Summary;
use icecore_tools::measure::lookup::{Mode, SeriesSummary};
use icecore_tools::provenance::Provenance;
use serde::Serialize;

use crate::archive::Measured;

/// All of it.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) conditions: ProbeConditions,
    /// One for each file and density.
    pub(crate) files: Vec<FileReport>,
    /// One for each domain of each archive.
    pub(crate) archives: Vec<ArchiveReport>,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
pub(crate) struct ProbeConditions {
    pub(crate) run: Provenance,
    pub(crate) machine: Conditions,
    pub(crate) evicted_by: EvictMethod,
    pub(crate) keys: usize,
    pub(crate) seed: u64,
    pub(crate) clock: &'static str,
}

impl fmt::Display for ProbeConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.run, self.machine)?;
        writeln!(f, "eviction     {}, verified by mincore", self.evicted_by)?;
        writeln!(f, "keys         {} cold, seed {}", self.keys, self.seed)?;
        write!(f, "clock        {}", self.clock)
    }
}

/// One file with a pivot index of one density.
#[derive(Serialize)]
pub(crate) struct FileReport {
    pub(crate) file: String,
    pub(crate) domain: String,
    pub(crate) steps: String,
    pub(crate) encoding: String,
    pub(crate) entries: u64,
    pub(crate) keys: u64,
    pub(crate) pages: u64,
    pub(crate) kv_bytes: u64,
    pub(crate) kv_bytes_per_key: f64,
    pub(crate) filter_bytes: u64,
    pub(crate) m: u32,
    pub(crate) index_bytes: u64,
    pub(crate) index_bytes_per_key: f64,
    /// Whether the index was built for this measurement.
    pub(crate) is_index_built: bool,
    pub(crate) baseline: Baseline,
    pub(crate) lookups: Vec<ModeReport>,
}

/// Whether the keys that are looked up are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyKind {
    Hits,
    Misses,
}

/// The lookups of one mode.
#[derive(Serialize)]
pub(crate) struct ModeReport {
    pub(crate) mode: Mode,
    pub(crate) kind: KeyKind,
    /// What the lookups are compared with: p50 of one touch of a random page, warm of one dependent read of 64 bytes. Where the
    /// accessors are resident, touches and lookups took turns; else it is that of the file.
    pub(crate) baseline_ns: u64,
    /// p50 of a lookup over `baseline_ns`.
    pub(crate) baseline_ratio: f64,
    #[serde(flatten)]
    pub(crate) lookups: SeriesSummary,
    /// The distribution of the time, for drawing.
    #[serde(skip)]
    pub(crate) curve: Vec<(u64, f64)>,
}

/// A domain of an archive, read through the engine.
#[derive(Serialize)]
pub(crate) struct ArchiveReport {
    pub(crate) archive: String,
    pub(crate) domain: String,
    pub(crate) segments: usize,
    pub(crate) entries: u64,
    pub(crate) lookups: Vec<ArchiveSeries>,
}

/// The lookups in a domain of an archive in one mode, in which it is the files of all segments that are in memory or evicted.
#[derive(Serialize)]
pub(crate) struct ArchiveSeries {
    pub(crate) kind: KeyKind,
    pub(crate) in_memory: Mode,
    pub(crate) threads: usize,
    pub(crate) found: u64,
    pub(crate) time_ns: Summary,
    /// How often a lookup waited for the disk.
    pub(crate) faults: Summary,
    pub(crate) pages_read: Summary,
}

impl ArchiveSeries {
    pub(crate) fn new((kind, in_memory, threads, measured): (KeyKind, Mode, usize, Measured)) -> Self {
        let (found, time_ns) = (measured.found, measured.time.summary());
        let (faults, pages_read) = (measured.waits.summary(), measured.pages.summary());
        Self { kind, in_memory, threads, found, time_ns, faults, pages_read }
    }
}

impl FileReport {
    /// The lookups of known keys in one mode.
    pub(crate) fn hits(&self, mode: Mode) -> Option<&ModeReport> {
        self.lookups.iter().find(|lookups| lookups.mode == mode && lookups.kind == KeyKind::Hits)
    }

    /// The name of the file without its folder.
    pub(crate) fn short_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

/// The columns of the line of a file: heading and content.
pub(crate) fn columns(file: &FileReport) -> Vec<(&'static str, String)> {
    let time = |mode, quantile: fn(&SeriesSummary) -> u64| {
        file.hits(mode).map_or("-".into(), |hits| micros(quantile(&hits.lookups)))
    };
    let faults = |mode| file.hits(mode).map_or("-".into(), |hits| format!("{:.2}", hits.lookups.faults.mean));
    let cold = file.hits(Mode::Resident);
    let ratio = cold.map_or("-".into(), |hits| format!("{:.2}", hits.baseline_ratio));
    vec![
        ("file", file.short_name().to_owned()),
        ("entries", file.entries.to_string()),
        (".kv MB", format!("{:.1}", file.kv_bytes as f64 / 1e6)),
        ("M", file.m.to_string()),
        ("index MB", format!("{:.3}", file.index_bytes as f64 / 1e6)),
        ("B/key", format!("{:.3}", file.index_bytes_per_key)),
        ("cold us", time(Mode::Resident, |s| s.time_ns.p50)),
        ("p99", time(Mode::Resident, |s| s.time_ns.p99)),
        ("baseline us", cold.map_or("-".into(), |hits| micros(hits.baseline_ns))),
        ("/baseline", ratio),
        ("faults", faults(Mode::Resident)),
        ("evicted us", time(Mode::Each, |s| s.time_ns.p50)),
        ("faults", faults(Mode::Each)),
        ("warm us", time(Mode::Warm, |s| s.time_ns.p50)),
        ("p99", time(Mode::Warm, |s| s.time_ns.p99)),
    ]
}

/// The columns of the line of a mode.
pub(crate) fn mode_columns(file: &FileReport, mode: &ModeReport) -> Vec<(&'static str, String)> {
    let SeriesSummary { time_ns: time, faults, pages_read, filter, pivot, value, .. } = &mode.lookups;
    let split = |part: fn(&icecore_tools::measure::lookup::StageSummary) -> String| {
        [filter, pivot, value].map(part).join(" / ")
    };
    vec![
        ("file", file.short_name().to_owned()),
        ("M", file.m.to_string()),
        ("in memory", format!("{:?}", mode.mode).to_lowercase()),
        ("keys", format!("{} {:?}", time.count, mode.kind).to_lowercase()),
        ("mean us", micros(time.mean.round() as u64)),
        ("p50", micros(time.p50)),
        ("p90", micros(time.p90)),
        ("p99", micros(time.p99)),
        ("p99.9", micros(time.p999)),
        ("max", micros(time.max)),
        ("baseline us", micros(mode.baseline_ns)),
        ("/baseline", format!("{:.2}", mode.baseline_ratio)),
        ("faults mean", format!("{:.3}", faults.mean)),
        ("p99", faults.p99.to_string()),
        ("max", faults.max.to_string()),
        ("pages", format!("{:.2}", pages_read.mean)),
        ("p50 us filter / pivot / value", split(|stage| micros(stage.time_ns.p50))),
        ("faults filter / pivot / value", split(|stage| format!("{:.2}", stage.faults.mean))),
    ]
}

/// The columns of the line of an archive in one state.
pub(crate) fn archive_columns(
    archive: &ArchiveReport,
    series: &ArchiveSeries,
) -> Vec<(&'static str, String)> {
    let ArchiveSeries { time_ns: time, faults, pages_read: pages, .. } = series;
    vec![
        ("archive", archive.archive.rsplit('/').next().unwrap_or(&archive.archive).to_owned()),
        ("domain", archive.domain.clone()),
        ("segments", archive.segments.to_string()),
        ("in memory", format!("{:?}", series.in_memory).to_lowercase()),
        ("threads", series.threads.to_string()),
        ("keys", format!("{} {:?}", time.count, series.kind).to_lowercase()),
        ("mean us", micros(time.mean.round() as u64)),
        ("p50", micros(time.p50)),
        ("p90", micros(time.p90)),
        ("p99", micros(time.p99)),
        ("p99.9", micros(time.p999)),
        ("max", micros(time.max)),
        ("faults mean", format!("{:.3}", faults.mean)),
        ("p99", faults.p99.to_string()),
        ("max", faults.max.to_string()),
        ("pages", format!("{:.2}", pages.mean)),
    ]
}

/// The lines of all archives.
pub(crate) fn archive_lines(report: &Report) -> Vec<Vec<(&'static str, String)>> {
    let lines = |archive: &'_ ArchiveReport| -> Vec<_> {
        archive.lookups.iter().map(|series| archive_columns(archive, series)).collect()
    };
    report.archives.iter().flat_map(lines).collect()
}

/// Nanoseconds as microseconds, three digits.
pub(crate) fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    if micros < 10.0 { format!("{micros:.3}") } else { format!("{micros:.1}") }
}

impl Report {
    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            return writeln!(out, "{text}");
        }
        writeln!(out, "{}\n", self.conditions)?;
        table(&mut out, self.files.iter().map(columns).collect())?;
        writeln!(
            out,
            "\ncold: accessors in memory; evicted: nothing in memory; baseline: p50 of one touch of a random page, warm of one dependent \
             read from memory; /baseline: p50 over the baseline beside it\n"
        )?;
        let lines =
            self.files.iter().flat_map(|file| file.lookups.iter().map(|mode| mode_columns(file, mode)));
        table(&mut out, lines.collect())?;
        if self.archives.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nthrough the engine, all segments of a domain\n")?;
        table(&mut out, archive_lines(self))
    }
}

/// Prints lines under their headings, each column as wide as it needs.
fn table(out: &mut impl Write, lines: Vec<Vec<(&'static str, String)>>) -> io::Result<()> {
    let Some(first) = lines.first() else { return Ok(()) };
    let heads: Vec<String> = first.iter().map(|(head, _)| (*head).to_owned()).collect();
    let mut cells = vec![heads];
    cells.extend(lines.into_iter().map(|line| line.into_iter().map(|(_, cell)| cell).collect()));
    let width = |column: usize| cells.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..cells[0].len()).map(width).collect();
    for line in &cells {
        let padded = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
