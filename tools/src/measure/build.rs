//! Builds segment files outside an archive, through the builders and the storage that the engine uses.
//!
//! The engine's own output is private to it and writes into an archive; this is the same three builders in the same order: each
//! entry goes to the `.kv`, whose pages offer their pivots to the `.bt`, and the hash of each new key to the filter.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use icecore::storage::os::OsStorage;
use icecore::storage::{Access, Mapping, SpoolFile, Storage};
use icecore_index::{
    Density, FilterBits, FilterBuilder, FilterSummary, KeyHash, Parallelism, PivotBuilder, PivotSummary,
    Spool,
};
use icecore_segments::step::{Step, StepRange};
use icecore_segments::{EncodingRule, Entry, Segment, SegmentBuilder, SegmentSummary};

use crate::measure::evict;

/// What stops a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file would not leave memory.
    #[error(transparent)]
    Evict(#[from] evict::Error),
    /// A file cannot be read, or is damaged.
    #[error(transparent)]
    Engine(#[from] icecore::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, source: icecore_segments::Error) -> Self {
        Self::Engine(icecore::Error::File { path: path.to_owned(), source })
    }

    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        let operation = icecore::Operation::Write;
        Self::Engine(icecore::Error::Io { operation, path: path.to_owned(), source })
    }
}

/// The three files of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFiles {
    /// Keys and values.
    pub kv: PathBuf,
    /// The pivot index.
    pub bt: PathBuf,
    /// The existence filter.
    pub kvei: PathBuf,
}

impl SegmentFiles {
    /// The files named `name` in `dir`.
    pub fn named(dir: &Path, name: &str) -> Self {
        let file = |extension| dir.join(format!("{name}.{extension}"));
        Self { kv: file("kv"), bt: file("bt"), kvei: file("kvei") }
    }

    /// The same segment with another pivot index.
    pub fn with_index(&self, bt: PathBuf) -> Self {
        Self { bt, ..self.clone() }
    }
}

/// How a segment is built.
#[derive(Clone, Copy, Debug)]
pub struct BuildOptions<'a> {
    /// The domain that the files name.
    pub domain: &'a str,
    /// The density of the pivot index.
    pub m: Density,
    /// How pages are encoded.
    pub encoding: EncodingRule,
}

/// What was built, and how long it took.
#[derive(Clone, Debug)]
pub struct Built {
    /// Where.
    pub files: SegmentFiles,
    /// The `.kv`.
    pub segment: SegmentSummary,
    /// The `.bt`.
    pub index: PivotSummary,
    /// The `.kvei`.
    pub filter: FilterSummary,
    /// From the first entry until the system had every byte of the three files.
    pub pass: Duration,
    /// From there until every byte was on the disk.
    pub sync: Duration,
}

/// Builds the three files of a segment from entries in order. `keys_max` is an upper bound of their keys.
///
/// # Errors
/// Entries out of order; a file that exists; whatever the disk says.
pub fn build<'e>(
    files: &SegmentFiles,
    options: &BuildOptions<'_>,
    keys_max: u64,
    entries: impl Iterator<Item = Entry<'e>>,
) -> Result<Built, Error> {
    let (steps, disk) = (StepRange::single(Step(0)), OsStorage);
    let kv_error = |source| Error::file(&files.kv, source);
    let bt_error = |source| Error::file(&files.bt, source);
    let mut filter = filter_builder(&files.kvei, keys_max)?;
    let start = Instant::now();
    let pivots = PivotBuilder::new(disk.create(&files.bt)?, options.domain, steps, options.m);
    let kv = disk.create(&files.kv)?;
    let builder = SegmentBuilder::new(kv, options.domain, steps, options.encoding, pivots.map_err(bt_error)?);
    let mut builder = builder.map_err(kv_error)?;
    for entry in entries {
        if builder.push(entry).map_err(kv_error)? {
            filter.push(KeyHash::of(entry.key)).map_err(kv_error)?;
        }
    }
    let (segment, mut kv, pivots) = builder.finish().map_err(kv_error)?;
    let parent = segment.file.content;
    let (index, mut bt) = pivots.finish(parent, segment.pages, segment.entries).map_err(bt_error)?;
    let finished = filter.finish(disk.create(&files.kvei)?, options.domain, steps, parent);
    let (filter, mut kvei) = finished.map_err(|source| Error::file(&files.kvei, source))?;
    for (sink, path) in [(&mut kv, &files.kv), (&mut bt, &files.bt), (&mut kvei, &files.kvei)] {
        sink.flush().map_err(|source| Error::write(path, source))?;
    }
    let pass = start.elapsed();
    for sink in [&mut kv, &mut bt, &mut kvei] {
        sink.sync()?;
    }
    let sync = start.elapsed().saturating_sub(pass);
    Ok(Built { files: files.clone(), segment, index, filter, pass, sync })
}

/// Builds a pivot index of density `m` for a `.kv` into a new file, as a reindex does.
///
/// # Errors
/// A damaged `.kv`; a file that exists; whatever the disk says.
pub fn build_index(kv: &Path, bt: &Path, m: Density) -> Result<PivotSummary, Error> {
    let segment = open_segment(kv)?;
    let summary = segment.summary();
    let bt_error = |source| Error::file(bt, source);
    let sink = OsStorage.create(bt)?;
    let mut pivots = PivotBuilder::new(sink, &summary.domain, summary.steps, m).map_err(bt_error)?;
    segment.offer_pivots(&mut pivots).map_err(|source| Error::file(kv, source))?;
    let finished = pivots.finish(summary.file.content, summary.pages, summary.entries);
    let (index, mut sink) = finished.map_err(bt_error)?;
    sink.sync()?;
    Ok(index)
}

/// Builds a filter for a `.kv` into a new file, as a reindex does.
///
/// # Errors
/// A damaged `.kv`; a file that exists; whatever the disk says.
pub fn build_filter(kv: &Path, kvei: &Path) -> Result<FilterSummary, Error> {
    let segment = open_segment(kv)?;
    let summary = segment.summary();
    let mut filter = filter_builder(kvei, summary.keys)?;
    let keys = segment.for_each_key(|key| filter.push(KeyHash::of(key)));
    keys.map_err(|source| Error::file(kv, source))?;
    let sink = OsStorage.create(kvei)?;
    let finished = filter.finish(sink, &summary.domain, summary.steps, summary.file.content);
    let (summary, mut sink) = finished.map_err(|source| Error::file(kvei, source))?;
    sink.sync()?;
    Ok(summary)
}

/// Opens a `.kv` to be read from front to back.
fn open_segment(kv: &Path) -> Result<Segment<Mapping>, Error> {
    let mapping = OsStorage.map(kv, Access::Sequential)?;
    Segment::open(mapping).map_err(|source| Error::file(kv, source))
}

/// A filter builder that spools beside the filter.
fn filter_builder(kvei: &Path, keys_max: u64) -> Result<FilterBuilder<FileSpool>, Error> {
    let dir = kvei.parent().unwrap_or(Path::new("."));
    let spool = FileSpool(OsStorage.spool(dir)?);
    Ok(FilterBuilder::new(FilterBits::Eight, keys_max, spool, Parallelism::Rayon))
}

/// Lends a temporary file to a filter builder.
struct FileSpool(Box<dyn SpoolFile>);

impl Spool for FileSpool {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.0.append(bytes).map_err(io::Error::other)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf).map_err(io::Error::other)
    }
}
