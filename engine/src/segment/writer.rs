//! A segment on its way to disk: one pass of entries makes the `.kv`, its pivot index, its filter and its block index.
//!
//! Emission, merge, prune and unwinding all end here. Memory is bounded by the builders' constants. Files appear
//! under their final names but count for nothing until a manifest names them; an output that is dropped unfinished
//! removes them.

use std::io;

use icecore_index::{BuildParallelism, Density, FilterBits, FilterBuilder, FilterHash, PivotBuilder};
use icecore_segments::Entry;
use icecore_segments::checksum::Checksum;
use icecore_segments::frame::Kind;
use icecore_segments::span::{Pivot, PivotSink};
use icecore_segments::step::StepRange;
use icecore_segments::{EncodingRule, SegmentBuilder};

use crate::domain::DomainId;
use crate::error::Error;
use crate::manifest::{FileRecord, SegmentRecord};
use crate::segment::block_tap::{BlockTap, block_index_builder, write_block_index};
use crate::segment::live::KvFile;
use crate::segment::new_file::{EngineSpool, NewFile, Progress, RELEASE_EVERY, Sink, SyncedFile};
use crate::storage::Mapping;
use crate::storage::directory::Directory;
use crate::storage::write_behind::WriteBehind;

/// How a segment and its accessors are to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentOptions {
    pub(crate) m: Density,
    pub(crate) filter_bits: FilterBits,
    pub(crate) encoding: EncodingRule,
    pub(crate) parallelism: BuildParallelism,
}

fn filter_builder(
    directory: &Directory,
    bits: FilterBits,
    keys_max: u64,
    parallelism: BuildParallelism,
) -> Result<FilterBuilder<EngineSpool>, Error> {
    Ok(FilterBuilder::new(bits, keys_max, EngineSpool::create(directory)?, parallelism))
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
    builder: SegmentBuilder<Sink, BlockTap<PivotBuilder<Sink>>>,
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
        let blocks = directory.config.has_block_index(domain).then(|| block_index_builder(directory));
        let pivots = BlockTap::new(pivots, blocks.transpose()?);
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
        // Before the page that it ends up in can be finished.
        self.builder.pivots().expect(entry.block);
        if self.builder.push(entry).map_err(|e| self.kv.error(e))? {
            self.filter.push(FilterHash::of(entry.key)).map_err(|e| self.kv.error(e))?;
        }
        Ok(())
    }

    /// Writes what is left of the files and syncs them. Without an entry there is no segment.
    pub(crate) fn finish(self) -> Result<Option<SegmentRecord>, Error> {
        let Self { directory, domain, steps, options, kv, bt, builder, filter } = self;
        let (summary, kv_sink, tap) = builder.finish().map_err(|e| kv.error(e))?;
        if summary.entries == 0 {
            return Ok(None);
        }
        let (pivots, blocks) = tap.finish().map_err(|e| kv.error(e))?;
        let parent = summary.file.content;
        let (pivot_summary, bt_sink) =
            pivots.finish(parent, summary.pages, summary.entries).map_err(|e| bt.error(e))?;
        let kvei = write_filter(directory, (domain, steps, None), filter, parent)?;
        let of = (domain, steps, None);
        let blocks = blocks.map(|blocks| write_block_index(directory, of, blocks, parent, summary.pages));
        let kvbi = blocks.transpose()?;
        let bt = bt.sync(bt_sink, pivot_summary.file)?;
        let kv = kv.sync(kv_sink, summary.file)?;
        let (kv, bt, kvei, kvbi) = (kv.keep(), bt.keep(), kvei.keep(), kvbi.map(SyncedFile::keep));
        let (m, filter_bits) = (options.m, options.filter_bits);
        Ok(Some(SegmentRecord { domain, steps, kv, bt, kvei, kvbi, m, filter_bits, is_held: true }))
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
