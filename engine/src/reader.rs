//! Reading: a [`Reader`] follows an archive, a [`View`] is the state at one block.
//!
//! Readers share nothing mutable but counters. A view pins the version it was made from: whatever is committed,
//! merged, pruned or unwound meanwhile, it answers the same.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use icecore_hot::Root;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;
use parking_lot::RwLock;

use crate::domain::{Domain, DomainId, root_height, root_key};
use crate::error::Error;
use crate::info::SegmentInfo;
use crate::live::Directory;
use crate::read::Origin;
use crate::recovery;
use crate::scan::{Entries, Scan};
use crate::stats::{Counters, Stats};
use crate::storage::Storage;
use crate::storage::os::OsStorage;
use crate::version::Version;

/// What a reader and its views share.
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    pub(crate) version: RwLock<Arc<Version>>,
    pub(crate) counters: Counters,
}

impl Shared {
    pub(crate) fn new(directory: Directory, version: Version) -> Arc<Self> {
        Arc::new(Self { directory, version: RwLock::new(Arc::new(version)), counters: Counters::default() })
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.read())
    }
}

/// Reads an archive. Cheap to clone; any number of threads may read at once.
#[derive(Clone)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The block that wrote it.
    pub block: BlockNumber,
    /// The value, or `None` for a deletion.
    pub value: Option<Vec<u8>>,
}

/// Where an answer came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The versions in memory.
    Memory,
    /// A segment, named as in the directory without its extension: `storage.0-64`.
    Segment(String),
}

/// The answer to a lookup, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The version that answers.
    pub change: Change,
    /// Where it was found.
    pub source: Source,
}

impl Reader {
    /// Opens an archive for reading, beside a writer or without one. Sees what was committed when it opened.
    ///
    /// # Cost
    /// Header, footer and resident parts of every segment; the write-ahead log. Neither the lock nor the Merkle tree.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(Arc::new(OsStorage), path)
    }

    /// The same on any storage.
    pub fn open_with(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self, Error> {
        let (directory, version) = recovery::open_for_reading(storage, path.as_ref())?;
        Ok(Self { shared: Shared::new(directory, version) })
    }

    /// The newest block.
    pub fn head(&self) -> Option<BlockNumber> {
        self.shared.version().head
    }

    /// The heights that can be read, both inside; `None` before the first block.
    pub fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        self.shared.version().range()
    }

    /// The declared domains.
    pub fn domains(&self) -> &[Domain] {
        self.shared.directory.config.declared()
    }

    /// The number of blocks in a step.
    pub fn blocks_per_step(&self) -> u64 {
        self.shared.directory.config.step_len.0.get()
    }

    /// The blocks behind the head that stay in memory.
    pub fn reorg_window(&self) -> u64 {
        self.shared.directory.config.reorg_window
    }

    /// The heights between two snapshots, `None` where there are none. See [`Options::snapshot_period`](crate::Options).
    pub fn snapshot_period(&self) -> Option<NonZeroU64> {
        self.shared.directory.config.snapshots.map(|snapshots| snapshots.period)
    }

    /// The state at the end of block `height`; between two blocks, at the end of the lower one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] above the head, below the first block, or below what prune kept.
    pub fn at(&self, height: BlockNumber) -> Result<View, Error> {
        let version = self.shared.version();
        version.check(height)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at: height })
    }

    /// The state at the head.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] before the first block.
    pub fn latest(&self) -> Result<View, Error> {
        let version = self.shared.version();
        let at = version.head.unwrap_or(0);
        version.check(at)?;
        Ok(View { shared: Arc::clone(&self.shared), version, at })
    }

    /// The root of the state at the end of block `height`.
    pub fn root(&self, height: BlockNumber) -> Result<Root, Error> {
        self.at(height)?.root()
    }

    /// All versions of a key, newest first. After pruning the oldest may be the one that the pruned height saw.
    ///
    /// # Cost
    /// One filter page per segment; for each segment that has the key, an index page and the pages of its versions.
    pub fn history(&self, domain: &str, key: &[u8]) -> Result<Vec<Change>, Error> {
        let version = self.shared.version();
        let domain = self.shared.directory.domain(domain)?;
        let found = version.history(domain, key, self.shared.counters.mine())?;
        Ok(found.into_iter().map(|(block, value)| Change { block, value }).collect())
    }

    /// The live segments, by domain and step.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let version = self.shared.version();
        version
            .all_segments()
            .map(|segment| SegmentInfo::new(&self.shared.directory.config, segment))
            .collect()
    }

    /// What the archive holds and what reads touched.
    pub fn stats(&self) -> Stats {
        let version = self.shared.version();
        let mut stats = Stats { head: version.head, first: version.first, ..Stats::default() };
        let nodes = self.shared.directory.config.nodes();
        for segment in version.all_segments() {
            stats.segments += 1;
            let record = &segment.record;
            if Some(record.domain) == nodes {
                stats.node_bytes += Kind::ALL.iter().map(|kind| record.file(*kind).summary.len).sum::<u64>();
            } else if record.domain != DomainId::ROOTS {
                stats.entries += segment.kv.view().summary().entries;
            }
            stats.kv_bytes += record.kv.summary.len;
            stats.bt_bytes += record.bt.summary.len;
            stats.kvei_bytes += record.kvei.summary.len;
            stats.resident_bytes += segment.resident_bytes();
        }
        stats.steps_in_memory = version.tables.len() as u64;
        stats.memory_bytes = version.tables.iter().map(|table| table.bytes()).sum();
        stats.reads = self.shared.counters.reads();
        stats
    }
}

/// The state at the end of one block. Pins what it reads from; drop it to let obsolete files go.
#[derive(Clone)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) version: Arc<Version>,
    pub(crate) at: BlockNumber,
}

impl View {
    /// The height asked for.
    pub fn block(&self) -> BlockNumber {
        self.at
    }

    /// The value of a key, `None` when it is absent or deleted.
    ///
    /// # Cost
    /// From memory none; else a filter page per segment down to the one that has the key, there an index page and a data page.
    pub fn get(&self, domain: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let domain = self.shared.directory.domain(domain)?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.and_then(|((_, value), _)| value))
    }

    /// The version that answers for a key, deletions included, and where it was found.
    pub fn lookup(&self, domain: &str, key: &[u8]) -> Result<Option<Lookup>, Error> {
        let domain = self.shared.directory.domain(domain)?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.map(|((block, value), origin)| {
            let source = match origin {
                Origin::Memory => Source::Memory,
                Origin::Segment(segment) => {
                    Source::Segment(self.shared.directory.segment_name(&segment.record))
                }
            };
            Lookup { change: Change { block, value }, source }
        }))
    }

    /// The values of many keys, in the order asked. Pages are planned first and fetched together, so that a cold call
    /// keeps the disk busy.
    pub fn multi_get(&self, domain: &str, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let domain = self.shared.directory.domain(domain)?;
        self.version.multi_get(domain, keys, self.at, self.shared.counters.mine())
    }

    /// Keys and values in order.
    pub fn scan(&self, domain: &str, scan: &Scan) -> Result<Entries<'_>, Error> {
        let domain = self.shared.directory.domain(domain)?;
        Entries::new(&self.version, domain, scan, self.at)
    }

    /// The root of this state.
    pub fn root(&self) -> Result<Root, Error> {
        self.version.root(self.at)
    }

    /// The height of the block whose state this is: the newest at or below [`View::block`].
    pub fn height(&self) -> Result<BlockNumber, Error> {
        self.version.newest_root(self.at).map(|(height, _)| height)
    }
}

impl Version {
    /// The newest block at or below `at` and its root.
    pub(crate) fn newest_root(&self, at: BlockNumber) -> Result<(BlockNumber, Root), Error> {
        self.newest_block(at)?.ok_or_else(|| self.check(at).err().unwrap_or(Error::RootMissing { block: at }))
    }

    /// The same, `None` where there is none.
    pub(crate) fn newest_block(&self, at: BlockNumber) -> Result<Option<(BlockNumber, Root)>, Error> {
        let scan = Scan::all().to_included(&root_key(at)).backward();
        let newest = Entries::new(self, DomainId::ROOTS, &scan, at)?.next().transpose()?;
        Ok(newest.and_then(|(key, value)| Some((root_height(&key)?, Root(value.try_into().ok()?)))))
    }

    pub(crate) fn root(&self, at: BlockNumber) -> Result<Root, Error> {
        self.newest_root(at).map(|(_, root)| root)
    }
}

impl Directory {
    /// The number of a declared domain.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the names there are.
    pub(crate) fn domain(&self, name: &str) -> Result<DomainId, Error> {
        match self.config.declared_ids().find(|(_, domain)| domain.name == name) {
            Some((id, _)) => Ok(id),
            None => {
                let declared = self.config.declared();
                let names: Vec<_> = declared.iter().map(|domain| domain.name.as_str()).collect();
                Err(Error::UnknownDomain { name: name.to_owned(), declared: names.join(", ") })
            }
        }
    }
}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<Reader>();
    shareable::<View>();
};
