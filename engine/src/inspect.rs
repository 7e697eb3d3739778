//! What one file says of itself, without the archive that it belongs to.
//!
//! Headers, footers and the structures that a reader keeps in memory are checked against their checksums; data pages are not
//! read. A log and a manifest are checked whole.

use std::io;
use std::num::NonZeroU64;
use std::path::Path;

pub use icecore_index::{BlockIndexSummary, FilterSummary, PivotSummary};
pub use icecore_segments::SegmentSummary;
pub use icecore_segments::checksum::Checksum;

use icecore_index::{BlockIndex, ExistenceFilter, PivotIndex};
use icecore_segments::Segment;
use icecore_segments::bytes::{u32_at, u64_at};
use icecore_segments::frame::{self, FileSummary, Frame, Header, Kind};
use icecore_segments::step::{BlockNumber, Step, StepRange};

use crate::commitment::Commitment;
use crate::domain::Domain;
use crate::error::{Error, Operation};
use crate::manifest::{self, Manifest, SegmentRecord};
use crate::options::DensityRule;
use crate::storage::{Access, Mapping, Storage, layout, os::OsStorage};
use crate::wal::{self, WalReader};

pub use crate::wal::LogInfo;

/// What a file of an archive is, and what it says of itself: the answer of [`inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileInfo {
    /// A `.kv`.
    Segment(SegmentSummary),
    /// A `.bt`.
    PivotIndex {
        /// The segment that it belongs to.
        of: Described,
        /// Its counts and sizes.
        summary: PivotSummary,
    },
    /// A `.kvei`.
    ExistenceFilter {
        /// The segment that it belongs to.
        of: Described,
        /// Its counts and sizes.
        summary: FilterSummary,
    },
    /// A `.kvbi`.
    BlockIndex {
        /// The segment that it belongs to.
        of: Described,
        /// Its counts and sizes.
        summary: BlockIndexSummary,
    },
    /// A manifest.
    Manifest(ManifestInfo),
    /// A file of the write-ahead log.
    Log(LogInfo),
}

/// The segment that an accessor belongs to: part of [`FileInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The name of the domain.
    pub domain: String,
    /// The steps that the segment covers.
    pub steps: StepRange,
    /// The content checksum of the `.kv`.
    pub content: Checksum,
}

/// Reads what the file at `path` says of itself; `None` where it does not begin like a file of an archive.
///
/// # Cost
/// The header, the footer and the resident part of a segment file; a manifest or log file whole.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read; [`Error::File`] or [`Error::Damaged`] for damage; a version newer than this build.
pub fn inspect(path: impl AsRef<Path>) -> Result<Option<FileInfo>, Error> {
    let path = path.as_ref();
    let mut magic = frame::MAGIC;
    let file = OsStorage.open(path)?.ok_or_else(|| absent(path))?;
    let len = file.read_at(0, &mut magic)?;
    Ok(match magic {
        _ if len < magic.len() => None,
        frame::MAGIC => Some(in_envelope(path)?),
        manifest::MAGIC => Some(FileInfo::Manifest(ManifestInfo::decode(&whole(path)?, path)?)),
        wal::MAGIC => Some(FileInfo::Log(log(path)?)),
        _ => None,
    })
}

fn absent(path: &Path) -> Error {
    let (operation, source) = (Operation::Open, io::ErrorKind::NotFound.into());
    Error::Io { operation, path: path.to_owned(), source }
}

fn whole(path: &Path) -> Result<Vec<u8>, Error> {
    OsStorage.read(path)?.ok_or_else(|| absent(path))
}

fn in_envelope(path: &Path) -> Result<FileInfo, Error> {
    let data = OsStorage.map(path, Access::Random)?;
    of_kind(&data).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn of_kind(data: &Mapping) -> Result<FileInfo, icecore_segments::Error> {
    let kind = Header::parse(data.as_ref())?.kind;
    let frame = Frame::parse(data.as_ref(), kind)?;
    let parent = frame.parent;
    let of = || Described { domain: frame.header.domain.clone(), steps: frame.header.steps, content: parent };
    Ok(match kind {
        Kind::Segment => FileInfo::Segment(Segment::open(data)?.summary().clone()),
        Kind::PivotIndex => {
            FileInfo::PivotIndex { of: of(), summary: *PivotIndex::open(data, parent)?.summary() }
        }
        Kind::ExistenceFilter => {
            FileInfo::ExistenceFilter { of: of(), summary: *ExistenceFilter::open(data, parent)?.summary() }
        }
        Kind::BlockIndex => {
            FileInfo::BlockIndex { of: of(), summary: *BlockIndex::open(data, parent)?.summary() }
        }
    })
}

fn log(path: &Path) -> Result<LogInfo, Error> {
    let bytes = whole(path)?;
    // A copy may have any name; one that looks like that of a log file must be its own.
    let name = path.file_name().and_then(|name| name.to_str());
    let sequence = name.and_then(layout::parse_wal_name);
    WalReader::inspect(path, &bytes, sequence)
}

/// What a manifest says: part of [`FileInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestInfo {
    /// The version of its format.
    pub version: u32,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-64/NVME of everything before the checksum.
    pub checksum: u64,
    /// Rises with every manifest of the archive.
    pub generation: u64,
    /// The length of a step in heights.
    pub blocks_per_step: u64,
    /// The length of the reorg window in heights.
    pub reorg_window: u64,
    /// The snapshot period in heights; `None` without snapshots.
    pub snapshot_period: Option<NonZeroU64>,
    /// What the roots commit to.
    pub commitment: Commitment,
    /// The declared domains.
    pub domains: Vec<Domain>,
    /// The density rule.
    pub rule: DensityRule,
    /// Every step before this one is in segments, none at or after it.
    pub emitted_to: Step,
    /// The first block ever committed.
    pub first_block: Option<BlockNumber>,
    /// The newest block in segments.
    pub emitted_head: Option<BlockNumber>,
    /// Blocks below this one were pruned.
    pub pruned_before: BlockNumber,
    /// The first and the last file of the log.
    pub log: (u64, u64),
    /// The files of live segments, by domain and step; of a partial copy those that are here.
    pub files: Vec<NamedFile>,
    /// The names of the segments that a partial copy does not hold.
    pub not_held: Vec<String>,
}

/// A file that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its name in the directory of the archive.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its content checksum.
    pub content: Checksum,
}

impl ManifestInfo {
    /// Reads the bytes of a manifest.
    ///
    /// # Errors
    /// It is damaged, or of a version that this build does not read.
    fn decode(bytes: &[u8], path: &Path) -> Result<Self, Error> {
        let manifest = Manifest::decode(bytes, path)?;
        let named = |segment: &SegmentRecord, kind| {
            let FileSummary { len, content } = segment.file(kind).summary;
            NamedFile { name: segment.file_name(&manifest.config, kind), len, content }
        };
        let of_segment =
            |segment: &SegmentRecord| segment.kinds().map(|kind| named(segment, kind)).collect::<Vec<_>>();
        Ok(Self {
            version: u32_at(bytes, 8).unwrap_or(0),
            len: bytes.len() as u64,
            checksum: u64_at(bytes, bytes.len() - manifest::SUM_LEN).unwrap_or(0),
            generation: manifest.generation,
            blocks_per_step: manifest.config.step_len.0.get(),
            reorg_window: manifest.config.reorg_window,
            snapshot_period: manifest.config.snapshots.map(|snapshots| snapshots.period),
            commitment: manifest.config.commitment,
            domains: manifest.config.declared().to_vec(),
            rule: manifest.rule,
            emitted_to: manifest.emitted_to,
            first_block: manifest.first_block,
            emitted_head: manifest.emitted_head,
            pruned_before: manifest.pruned_before,
            log: (manifest.wal_first, manifest.wal_last),
            files: manifest.segments.iter().flat_map(of_segment).collect(),
            not_held: manifest.not_held(),
        })
    }
}
