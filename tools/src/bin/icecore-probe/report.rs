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
use crate::table::{Cell, Column, Table, cell};

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
    /// What `text` makes of the lookups of known keys in one mode, where that was measured.
    fn of_hits(&self, mode: Mode, text: fn(&ModeReport) -> String) -> String {
        let hits = self.lookups.iter().find(|lookups| lookups.mode == mode && lookups.kind == KeyKind::Hits);
        hits.map_or("-".into(), text)
    }

    /// The name of the file without its folder.
    pub(crate) fn short_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

/// A quantity of the table of files, for each density: its heading, and its text.
type Quantity = (&'static str, fn(&FileReport) -> String);

/// What the table of files has side by side for all densities.
const QUANTITIES: [Quantity; 6] = [
    ("index MB", |file| format!("{:.3}", file.index_bytes as f64 / 1e6)),
    ("cold p50 us", |file| file.of_hits(Mode::Resident, |hits| micros(hits.lookups.time_ns.p50))),
    ("cold p99 us", |file| file.of_hits(Mode::Resident, |hits| micros(hits.lookups.time_ns.p99))),
    ("cold p50 in baselines", |file| {
        file.of_hits(Mode::Resident, |hits| format!("{:.2}", hits.baseline_ratio))
    }),
    ("evicted p50 us", |file| file.of_hits(Mode::Each, |hits| micros(hits.lookups.time_ns.p50))),
    ("warm p50 us", |file| file.of_hits(Mode::Warm, |hits| micros(hits.lookups.time_ns.p50))),
];

/// One line for each file, the densities side by side.
fn file_line(densities: &[FileReport]) -> Vec<Cell> {
    let file = &densities[0];
    let mut line = vec![
        cell("file", file.short_name().to_owned()),
        cell("entries", file.entries.to_string()),
        cell(".kv MB", format!("{:.1}", file.kv_bytes as f64 / 1e6)),
    ];
    for (group, text) in QUANTITIES {
        let column = |file: &FileReport| Column { group, head: format!("M={}", file.m) };
        line.extend(densities.iter().map(|file| (column(file), text(file))));
    }
    line
}

/// The line of a mode.
fn mode_line(file: &FileReport, mode: &ModeReport) -> Vec<Cell> {
    let SeriesSummary { time_ns: time, faults, pages_read, filter, pivot, value, .. } = &mode.lookups;
    let split = |part: fn(&icecore_tools::measure::lookup::StageSummary) -> String| {
        [filter, pivot, value].map(part).join(" / ")
    };
    vec![
        cell("file", file.short_name().to_owned()),
        cell("M", file.m.to_string()),
        cell("in memory", format!("{:?}", mode.mode).to_lowercase()),
        cell("keys", format!("{} {:?}", time.count, mode.kind).to_lowercase()),
        cell("mean us", micros(time.mean.round() as u64)),
        cell("p50", micros(time.p50)),
        cell("p90", micros(time.p90)),
        cell("p99", micros(time.p99)),
        cell("p99.9", micros(time.p999)),
        cell("max", micros(time.max)),
        cell("baseline us", micros(mode.baseline_ns)),
        cell("/baseline", format!("{:.2}", mode.baseline_ratio)),
        cell("faults mean", format!("{:.3}", faults.mean)),
        cell("p99", faults.p99.to_string()),
        cell("max", faults.max.to_string()),
        cell("pages", format!("{:.2}", pages_read.mean)),
        cell("p50 us filter / pivot / value", split(|stage| micros(stage.time_ns.p50))),
        cell("faults filter / pivot / value", split(|stage| format!("{:.2}", stage.faults.mean))),
    ]
}

/// The line of an archive in one state.
fn archive_line(archive: &ArchiveReport, series: &ArchiveSeries) -> Vec<Cell> {
    let ArchiveSeries { time_ns: time, faults, pages_read: pages, .. } = series;
    vec![
        cell("archive", archive.archive.rsplit('/').next().unwrap_or(&archive.archive).to_owned()),
        cell("domain", archive.domain.clone()),
        cell("segments", archive.segments.to_string()),
        cell("in memory", format!("{:?}", series.in_memory).to_lowercase()),
        cell("threads", series.threads.to_string()),
        cell("keys", format!("{} {:?}", time.count, series.kind).to_lowercase()),
        cell("mean us", micros(time.mean.round() as u64)),
        cell("p50", micros(time.p50)),
        cell("p90", micros(time.p90)),
        cell("p99", micros(time.p99)),
        cell("p99.9", micros(time.p999)),
        cell("max", micros(time.max)),
        cell("faults mean", format!("{:.3}", faults.mean)),
        cell("p99", faults.p99.to_string()),
        cell("max", faults.max.to_string()),
        cell("pages", format!("{:.2}", pages.mean)),
    ]
}

/// Nanoseconds as microseconds, three digits.
pub(crate) fn micros(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    if micros < 10.0 { format!("{micros:.3}") } else { format!("{micros:.1}") }
}

impl Report {
    /// The reports of each file, one for each density.
    pub(crate) fn by_file(&self) -> impl Iterator<Item = &[FileReport]> {
        self.files.chunk_by(|a, b| a.file == b.file)
    }

    /// One line for each file.
    pub(crate) fn file_table(&self) -> Table {
        Table::new(self.by_file().map(file_line))
    }

    /// One line for each file, density, mode and kind of keys.
    pub(crate) fn mode_table(&self) -> Table {
        let of_file = |file: &'_ FileReport| -> Vec<_> {
            file.lookups.iter().map(|mode| mode_line(file, mode)).collect()
        };
        Table::new(self.files.iter().flat_map(of_file))
    }

    /// One line for each domain, mode, kind of keys and number of threads.
    pub(crate) fn archive_table(&self) -> Table {
        let of_archive = |archive: &'_ ArchiveReport| -> Vec<_> {
            archive.lookups.iter().map(|series| archive_line(archive, series)).collect()
        };
        Table::new(self.archives.iter().flat_map(of_archive))
    }

    pub(crate) fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            return writeln!(out, "{text}");
        }
        writeln!(out, "{}\n", self.conditions)?;
        self.file_table().print(&mut out)?;
        writeln!(
            out,
            "\ncold: accessors in memory; evicted: nothing in memory; baseline: p50 of one touch of a random page, warm of one dependent \
             read from memory; /baseline: p50 over the baseline beside it\n"
        )?;
        self.mode_table().print(&mut out)?;
        if self.archives.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nthrough the engine, all segments of a domain\n")?;
        self.archive_table().print(&mut out)
    }
}
