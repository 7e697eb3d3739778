//! One segment outside an archive, for measuring: written, indexed and read by the code that does so in an archive.
//!
//! Built with the feature `measure`; no part of the engine, and not covered by its promises of stability.

use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_index::{BuildParallelism, Density, ExistenceFilter, FilterBits, PivotIndex};
use icecore_segments::frame::Kind;
use icecore_segments::step::{BlockNumber, StepRange};
use icecore_segments::{EncodingRule, Entry, Segment};

use crate::commitment::Commitment;
use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::manifest::{FileRecord, Manifest, SegmentRecord};
use crate::options::{ArchiveId, Config};
use crate::read::read_state::ReadState;
use crate::segment::live::LiveSegment;
use crate::segment::rewrite::rewrite;
use crate::segment::writer::{SegmentOptions, SegmentOutput, rebuild_filter, rebuild_index};
use crate::stats::{Count, Event, Tally};
use crate::steps::StepLen;
use crate::storage::directory::Directory;
use crate::storage::layout;
use crate::storage::{Access, Mapping, Storage};

/// The one domain of the directory.
const DOMAIN: DomainId = DomainId(0);

const FILTER_BITS: FilterBits = FilterBits::Eight;

/// How a segment is built.
#[derive(Clone, Copy, Debug)]
pub struct SegmentSpec<'a> {
    /// The domain that the files name.
    pub domain: &'a str,
    /// The steps that the files name.
    pub steps: StepRange,
    /// The density of the pivot index.
    pub m: Density,
    /// How pages are encoded.
    pub encoding: EncodingRule,
}

impl SegmentSpec<'_> {
    fn options(&self) -> SegmentOptions {
        let Self { m, encoding, .. } = *self;
        SegmentOptions { m, filter_bits: FILTER_BITS, encoding, parallelism: BuildParallelism::Rayon }
    }
}

/// The three files of a segment in a directory without a manifest.
#[derive(Clone, Debug)]
pub struct LoneSegment {
    directory: Directory,
    record: SegmentRecord,
}

impl LoneSegment {
    /// The names of `.kv`, `.bt` and `.kvei` of a segment that has not been reindexed.
    pub fn file_names(domain: &str, steps: StepRange) -> [String; 3] {
        Kind::LOOKUP.map(|kind| layout::segment_file(domain, steps, 0, kind))
    }

    /// Writes the entries that `feed` pushes, in the order of a segment, as three synced files. `keys_max` is an upper bound of their
    /// keys. `None` where there is no entry.
    ///
    /// # Errors
    /// Entries out of order; whatever the storage or `feed` reports.
    pub fn write(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        spec: &SegmentSpec<'_>,
        keys_max: u64,
        feed: impl FnOnce(&mut dyn FnMut(Entry<'_>) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<Option<Self>, Error> {
        let directory = directory(storage, dir, spec.domain);
        let mut output = SegmentOutput::create(&directory, DOMAIN, spec.steps, spec.options(), keys_max)?;
        feed(&mut |entry| output.push(entry))?;
        let record = output.finish()?;
        Ok(record.map(|record| Self { directory, record }))
    }

    /// The entries of segments of one directory as one segment beside them, as a merge writes it. `None` where there is no segment.
    ///
    /// # Errors
    /// Damage; whatever the storage reports.
    pub fn merge(inputs: &[Self], spec: &SegmentSpec<'_>) -> Result<Option<Self>, Error> {
        let Some(Self { directory, .. }) = inputs.first() else { return Ok(None) };
        let held = |input: &Self| LiveSegment::hold(directory, input.record.clone(), &mut |_| {});
        let held: Vec<LiveSegment> = inputs.iter().map(held).collect();
        let record = rewrite(directory, DOMAIN, &held, spec.steps, spec.options(), |_| Ok(true), |_| true)?;
        Ok(record.map(|record| Self { directory: directory.clone(), record }))
    }

    /// The files in `dir` that are named as [`file_names`](Self::file_names) says.
    ///
    /// # Errors
    /// A file that is missing or damaged; accessors of another segment.
    pub fn open(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        domain: &str,
        steps: StepRange,
    ) -> Result<Self, Error> {
        let this = Self::without_accessors(storage, dir, domain, steps)?;
        let Self { directory, mut record } = this;
        let parent = record.kv.summary.content;
        let map = |kind| {
            let path = record.path(&directory, kind);
            directory.storage.map(&path, Access::Random).map(|mapping| (path, mapping))
        };
        let (path, mapping) = map(Kind::PivotIndex)?;
        let index = PivotIndex::open(mapping, parent).map_err(|source| Error::File { path, source })?;
        let (path, mapping) = map(Kind::ExistenceFilter)?;
        let filter = ExistenceFilter::open(mapping, parent).map_err(|source| Error::File { path, source })?;
        let (index, filter) = (index.summary(), filter.summary());
        record.bt.summary = index.file;
        record.kvei.summary = filter.file;
        (record.m, record.filter_bits) = (index.m, filter.bits);
        Ok(Self { directory, record })
    }

    /// The `.kv` in `dir` with accessors that are built for it, as a reindex does.
    ///
    /// # Errors
    /// A `.kv` that is missing or damaged; whatever the storage reports.
    pub fn reindex(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        domain: &str,
        steps: StepRange,
        m: Density,
    ) -> Result<Self, Error> {
        let mut this = Self::without_accessors(storage, dir, domain, steps)?.with_index(m)?;
        let Self { directory, record } = &mut this;
        record.kvei =
            rebuild_filter(directory, record, FILTER_BITS, BuildParallelism::Rayon, &mut |_| Ok(()))?;
        Ok(this)
    }

    /// The same segment with a pivot index of density `m` in a file beside the old one, as a reindex builds it.
    ///
    /// # Errors
    /// A damaged `.kv`; whatever the storage reports.
    pub fn with_index(&self, m: Density) -> Result<Self, Error> {
        let bt = rebuild_index(&self.directory, &self.record, m, &mut |_| Ok(()))?;
        Ok(Self { directory: self.directory.clone(), record: SegmentRecord { bt, m, ..self.record.clone() } })
    }

    /// The paths of `.kv`, `.bt` and `.kvei`.
    pub fn files(&self) -> [PathBuf; 3] {
        Kind::LOOKUP.map(|kind| self.record.path(&self.directory, kind))
    }

    /// The density of the pivot index.
    pub fn m(&self) -> Density {
        self.record.m
    }

    /// Opens the three files as the first lookup in a segment of an archive does: a small accessor is read, the rest is mapped.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn reader(&self) -> Result<SegmentReader, Error> {
        let segment = LiveSegment::hold(&self.directory, self.record.clone(), &mut |_| {});
        segment.open_all()?;
        let segment = Arc::new(segment);
        let config = &self.directory.config;
        let empty = Manifest::new((**config).clone());
        let state = ReadState::of_segments(config, &empty, [Arc::clone(&segment)]);
        Ok(SegmentReader { state, segment })
    }

    /// The `.kv`, with records of accessors that have its place until there are some.
    fn without_accessors(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        domain: &str,
        steps: StepRange,
    ) -> Result<Self, Error> {
        let directory = directory(storage, dir, domain);
        let path = dir.join(layout::segment_file(domain, steps, 0, Kind::Segment));
        let mapping = storage.map(&path, Access::Random)?;
        let segment = Segment::open(mapping).map_err(|source| Error::File { path, source })?;
        let kv = FileRecord { revision: 0, summary: segment.summary().file };
        let (m, filter_bits) = (Density::MEDIUM, FILTER_BITS);
        let record = SegmentRecord {
            domain: DOMAIN,
            steps,
            kv,
            bt: kv,
            kvei: kv,
            kvbi: None,
            m,
            filter_bits,
            is_held: true,
        };
        Ok(Self { directory, record })
    }
}

/// A directory of one domain, whose steps have one block.
fn directory(storage: &Arc<dyn Storage>, dir: &Path, domain: &str) -> Directory {
    let config = Config {
        id: ArchiveId::default(),
        domains: vec![Domain::new(domain)],
        step_len: StepLen(NonZeroU64::MIN),
        reorg_window: 0,
        snapshots: None,
        commitment: Commitment::Icecore,
        keeps_rows: false,
    };
    Directory::new(storage, dir, &config)
}

/// A part of a lookup in one segment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Finding the segment, prefetching, and probing the filter.
    Filter,
    /// Searching the pivot index.
    Index,
    /// Searching the pages and loading the value.
    Page,
}

/// A version that was found: its block, and its value or that it is a deletion.
pub type Found = (BlockNumber, Option<Vec<u8>>);

/// An archive's state of one segment and nothing else.
pub struct SegmentReader {
    state: ReadState,
    segment: Arc<LiveSegment>,
}

impl fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentReader").field(&self.segment.record).finish()
    }
}

/// Reports the stages of a lookup, which begin where the engine counts what it does.
struct Stages<F>(F);

impl<F: Fn(Stage)> Count for Stages<F> {
    #[inline]
    fn count(&self, event: Event) {
        match event {
            Event::Lookup | Event::FilterProbe => self.0(Stage::Filter),
            Event::IndexProbe => self.0(Stage::Index),
            Event::Page => self.0(Stage::Page),
            Event::Memory | Event::FalsePositive => {}
        }
    }
}

impl SegmentReader {
    /// The newest version of a key at or below a height, by the read ladder of the engine. `begin` is called when a stage begins, or goes on after another.
    ///
    /// # Errors
    /// A damaged page of the `.kv`.
    #[inline]
    pub fn find(&self, key: &[u8], at: BlockNumber, begin: impl Fn(Stage)) -> Result<Option<Found>, Error> {
        let found = self.state.find(DOMAIN, key, at, &Stages(begin))?;
        Ok(found.map(|(found, _)| found))
    }

    /// The values of many keys at a height, in the order asked; `None` for a deletion too.
    ///
    /// # Errors
    /// A damaged page of the `.kv`.
    pub fn multi_get(&self, keys: &[&[u8]], at: BlockNumber) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.state.multi_get(DOMAIN, keys, at, &Tally::default())
    }

    /// The `.kv`.
    ///
    /// # Errors
    /// Damage.
    pub fn kv(&self) -> Result<&Segment<Mapping>, Error> {
        Ok(self.segment.kv.get()?.view())
    }

    /// The `.bt`.
    ///
    /// # Errors
    /// Damage.
    pub fn index(&self) -> Result<&PivotIndex<Mapping>, Error> {
        Ok(self.segment.bt.get()?.view())
    }

    /// The `.kvei`.
    ///
    /// # Errors
    /// Damage.
    pub fn filter(&self) -> Result<&ExistenceFilter<Mapping>, Error> {
        Ok(self.segment.kvei.get()?.view())
    }
}
