//! A segment on its way to disk: one pass of entries makes the `.kv`, its pivot index and its filter.
//!
//! Emission, merge, prune and unwinding all end here. Memory is bounded by the builders' constants. Files appear
//! under their final names but count for nothing until a manifest names them; an output that is dropped unfinished
//! removes them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::{BuildParallelism, Density, FilterBits, FilterBuilder, FilterHash, PivotBuilder, Spool};
use icecore_segments::Entry;
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::{FileSummary, Kind};
use icecore_segments::span::{Pivot, PivotSink};
use icecore_segments::step::StepRange;
use icecore_segments::{EncodingRule, SegmentBuilder};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::{FileRecord, SegmentRecord};
use crate::segment::live::KvFile;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::storage::write_behind::WriteBehind;
use crate::storage::{Mapping, SpoolFile, Storage, WriteFile};

type Sink = Box<dyn WriteFile>;

/// How a segment and its accessors are to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentOptions {
    pub(crate) m: Density,
    pub(crate) filter_bits: FilterBits,
    pub(crate) encoding: EncodingRule,
    pub(crate) parallelism: BuildParallelism,
}

/// A file that is being written under its final name; removed when it is dropped before [`SyncedFile::keep`].
struct NewFile {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    revision: u32,
    kept: bool,
}

impl NewFile {
    /// Creates the file under the first revision that no file on disk has, nor the one that the manifest names for this range:
    /// that one may be missing, but a named file is never written again.
    fn create(
        directory: &Directory,
        domain: DomainId,
        steps: StepRange,
        kind: Kind,
        named: Option<FileRecord>,
    ) -> Result<(Self, Sink), Error> {
        let name = directory.config.name(domain);
        let mut revision = 0;
        let path = loop {
            let path = directory.path.join(layout::segment_file(name, steps, revision, kind));
            let is_named = named.is_some_and(|named| named.revision == revision);
            if !is_named && directory.storage.len(&path)?.is_none() {
                break path;
            }
            revision += 1;
        };
        // Before the attempt: one that fails may have made the name.
        let this = Self { storage: Arc::clone(&directory.storage), path, revision, kept: false };
        let sink = directory.storage.create(&this.path)?;
        Ok((this, sink))
    }

    fn error(&self, source: icecore_segments::Error) -> Error {
        file_error(&self.path, source)
    }

    /// Makes the bytes durable. The name becomes durable when the manifest's directory is synced.
    fn sync(self, mut sink: Sink, summary: FileSummary) -> Result<SyncedFile, Error> {
        sink.sync()?;
        let record = FileRecord { revision: self.revision, summary };
        Ok(SyncedFile { file: self, record })
    }
}

/// A file that is complete and still goes with the others when one of them fails.
struct SyncedFile {
    file: NewFile,
    record: FileRecord,
}

impl SyncedFile {
    fn keep(mut self) -> FileRecord {
        self.file.kept = true;
        self.record
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed now is garbage that the next opening removes.
            let _ = self.storage.remove(&self.path);
        }
    }
}

fn file_error(path: &Path, source: icecore_segments::Error) -> Error {
    Error::File { path: path.to_owned(), source }
}

/// Lends a temporary file to a filter builder.
struct EngineSpool(Box<dyn SpoolFile>);

impl Spool for EngineSpool {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.0.append(bytes).map_err(io::Error::other)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf).map_err(io::Error::other)
    }
}

fn filter_builder(
    directory: &Directory,
    bits: FilterBits,
    keys_max: u64,
    parallelism: BuildParallelism,
) -> Result<FilterBuilder<EngineSpool>, Error> {
    let spool = EngineSpool(directory.storage.spool(&directory.path)?);
    Ok(FilterBuilder::new(bits, keys_max, spool, parallelism))
}

/// Up to this many entries a second thread takes longer to start than it saves.
pub(crate) const ONE_THREAD_MAX: u64 = 1 << 14;

/// See the module.
pub(crate) struct SegmentOutput<'d> {
    directory: &'d Directory,
    domain: DomainId,
    steps: StepRange,
    options: SegmentOptions,
    kv: NewFile,
    bt: NewFile,
    builder: SegmentBuilder<Sink, PivotBuilder<Sink>>,
    filter: FilterBuilder<EngineSpool>,
}

impl<'d> SegmentOutput<'d> {
    /// Creates the `.kv` and the `.bt`. `keys_max` is an upper bound of the keys to come.
    pub(crate) fn create(
        directory: &'d Directory,
        domain: DomainId,
        steps: StepRange,
        options: SegmentOptions,
        keys_max: u64,
    ) -> Result<Self, Error> {
        let name = directory.config.name(domain);
        let (kv, kv_sink) = NewFile::create(directory, domain, steps, Kind::Segment, None)?;
        let (bt, bt_sink) = NewFile::create(directory, domain, steps, Kind::PivotIndex, None)?;
        let pivots = PivotBuilder::new(bt_sink, name, steps, options.m).map_err(|e| bt.error(e))?;
        let kv_sink = match options.parallelism {
            BuildParallelism::Rayon if keys_max > ONE_THREAD_MAX => {
                Box::new(WriteBehind::new(&kv.path, kv_sink)) as Sink
            }
            BuildParallelism::Rayon | BuildParallelism::Off => kv_sink,
        };
        let builder =
            SegmentBuilder::new(kv_sink, name, steps, options.encoding, pivots).map_err(|e| kv.error(e))?;
        let filter = filter_builder(directory, options.filter_bits, keys_max, options.parallelism)?;
        Ok(Self { directory, domain, steps, options, kv, bt, builder, filter })
    }

    /// Takes the next entry, in the order of a segment.
    pub(crate) fn push(&mut self, entry: Entry<'_>) -> Result<(), Error> {
        if self.builder.push(entry).map_err(|e| self.kv.error(e))? {
            self.filter.push(FilterHash::of(entry.key)).map_err(|e| self.kv.error(e))?;
        }
        Ok(())
    }

    /// Writes what is left of the three files and syncs them. Without an entry there is no segment.
    pub(crate) fn finish(self) -> Result<Option<SegmentRecord>, Error> {
        let Self { directory, domain, steps, options, kv, bt, builder, filter } = self;
        let (summary, kv_sink, pivots) = builder.finish().map_err(|e| kv.error(e))?;
        if summary.entries == 0 {
            return Ok(None);
        }
        let parent = summary.file.content;
        let (pivot_summary, bt_sink) =
            pivots.finish(parent, summary.pages, summary.entries).map_err(|e| bt.error(e))?;
        let kvei = write_filter(directory, (domain, steps, None), filter, parent)?;
        let bt = bt.sync(bt_sink, pivot_summary.file)?;
        let kv = kv.sync(kv_sink, summary.file)?;
        let (kv, bt, kvei) = (kv.keep(), bt.keep(), kvei.keep());
        let (m, filter_bits) = (options.m, options.filter_bits);
        Ok(Some(SegmentRecord { domain, steps, kv, bt, kvei, m, filter_bits }))
    }
}

fn write_filter(
    directory: &Directory,
    (domain, steps, named): (DomainId, StepRange, Option<FileRecord>),
    filter: FilterBuilder<EngineSpool>,
    parent: Checksum,
) -> Result<SyncedFile, Error> {
    let name = directory.config.name(domain);
    let (file, sink) = NewFile::create(directory, domain, steps, Kind::ExistenceFilter, named)?;
    let (summary, sink) = filter.finish(sink, name, steps, parent).map_err(|e| file.error(e))?;
    file.sync(sink, summary.file)
}

/// Builds a pivot index of density `m` for an unchanged `.kv`: a new file beside the old one.
pub(crate) fn rebuild_index(
    directory: &Directory,
    record: &SegmentRecord,
    m: Density,
    progress: &mut Progress<'_>,
) -> Result<FileRecord, Error> {
    let name = directory.config.name(record.domain);
    let kv = KvFile::open_for_pass(directory, record)?;
    let segment = kv.view();
    let (file, sink) =
        NewFile::create(directory, record.domain, record.steps, Kind::PivotIndex, Some(record.bt))?;
    let pivots = PivotBuilder::new(sink, name, record.steps, m).map_err(|e| file.error(e))?;
    let mut pivots = Releasing { inner: pivots, mapping: segment.data(), seen: 0, progress, stopped: Ok(()) };
    let offered = segment.offer_pivots(&mut pivots);
    std::mem::replace(&mut pivots.stopped, Ok(()))?;
    offered.map_err(|e| kv.error(e))?;
    let summary = segment.summary();
    let (pivots, sink) = pivots
        .inner
        .finish(summary.file.content, summary.pages, summary.entries)
        .map_err(|e| file.error(e))?;
    Ok(file.sync(sink, pivots.file)?.keep())
}

/// Builds a filter for an unchanged `.kv`: a new file beside the old one.
pub(crate) fn rebuild_filter(
    directory: &Directory,
    record: &SegmentRecord,
    bits: FilterBits,
    parallelism: BuildParallelism,
    progress: &mut Progress<'_>,
) -> Result<FileRecord, Error> {
    let kv = KvFile::open_for_pass(directory, record)?;
    let segment = kv.view();
    let summary = segment.summary();
    let mut filter = filter_builder(directory, bits, summary.keys, parallelism)?;
    let mut seen = 0u64;
    let mut stopped = Ok(());
    let pushed = segment.for_each_key(|key| {
        seen += 1;
        if seen.is_multiple_of(RELEASE_EVERY) {
            segment.data().advise_dont_need();
            stopped = progress(RELEASE_EVERY);
            if stopped.is_err() {
                return Err(stop());
            }
        }
        filter.push(FilterHash::of(key))
    });
    stopped?;
    pushed.map_err(|e| kv.error(e))?;
    let named = (record.domain, record.steps, Some(record.kvei));
    Ok(write_filter(directory, named, filter, summary.file.content)?.keep())
}

/// Entries (or keys, or pivots) of a sequential pass between two releases of what was read: about 50 MB of pages.
pub(crate) const RELEASE_EVERY: u64 = 1 << 20;

/// Is called with the entries of a pass as it goes; an error of it ends the pass.
pub(crate) type Progress<'p> = dyn FnMut(u64) -> Result<(), Error> + 'p;

/// Ends a pass of a floor whose caller knows why.
fn stop() -> icecore_segments::Error {
    icecore_segments::Error::Write(io::ErrorKind::Interrupted.into())
}

/// Passes pivots on and keeps the pass over their segment from filling memory with its pages.
struct Releasing<'m, 'p, P> {
    inner: P,
    mapping: &'m Mapping,
    seen: u64,
    progress: &'m mut Progress<'p>,
    stopped: Result<(), Error>,
}

impl<P: PivotSink> PivotSink for Releasing<'_, '_, P> {
    fn pivot(&mut self, pivot: &Pivot<'_>) -> Result<(), icecore_segments::Error> {
        if pivot.ordinal - self.seen >= RELEASE_EVERY {
            self.seen = pivot.ordinal;
            self.mapping.advise_dont_need();
            self.stopped = (self.progress)(RELEASE_EVERY);
            if self.stopped.is_err() {
                return Err(stop());
            }
        }
        self.inner.pivot(pivot)
    }
}
