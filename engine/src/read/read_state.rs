//! The immutable set of tables and segments that a reader pins: what the archive is at one moment.
//!
//! Every commit and every published change of files makes a new one; the old one lives as long as somebody
//! reads from it. Tables cover the steps that were not emitted, segments those that were; no step is in both.

use std::path::PathBuf;
use std::sync::Arc;

use icecore_segments::checksum::Checksum;
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::{Available, Error};
use crate::manifest::Manifest;
use crate::memtable::Found;
use crate::memtable::log_tail::LogTail;
use crate::memtable::step_memtable::{StepMemtable, add_block, unwound};
use crate::options::Config;
use crate::segment::live::LiveSegment;
use crate::wal::ChangeRef;

/// The live segments of every domain, by step ascending.
pub(crate) type SegmentSet = Vec<Vec<Arc<LiveSegment>>>;

/// See the module.
#[derive(Clone)]
pub(crate) struct ReadState {
    pub(crate) segments: Arc<SegmentSet>,
    /// The steps that are in no segment, ascending; with a writer in this process.
    pub(crate) tables: Vec<Arc<StepMemtable>>,
    /// The same for a reader of another process.
    pub(crate) log: Option<Arc<LogTail>>,
    /// Why the log of another process cannot be read: blocks that are in no segment are not known then.
    pub(crate) log_fault: Option<LogFault>,
    /// The lowest height that is answered.
    pub(crate) first: Option<BlockNumber>,
    /// Whether versions below it, or of it, were pruned.
    pub(crate) is_pruned: bool,
    /// The newest block.
    pub(crate) head: Option<BlockNumber>,
    /// The newest block that is in segments.
    pub(crate) emitted_head: Option<BlockNumber>,
    /// Whether all blocks in segments have rows of the tries of Ethereum, and blocks to come get them.
    pub(crate) keeps_rows: bool,
}

/// What is wrong with a log.
#[derive(Clone, Debug)]
pub(crate) enum LogFault {
    Damaged { path: PathBuf, offset: u64, reason: &'static str },
    Missing { path: PathBuf },
    Unsupported { path: PathBuf, found: u64, supported: u64 },
}

impl LogFault {
    /// Remembers an error that is in the file.
    ///
    /// # Errors
    /// Those that are elsewhere are returned: they may be gone the next time.
    pub(crate) fn of(error: Error) -> Result<Self, Error> {
        match error {
            Error::Damaged { path, offset, reason } => Ok(Self::Damaged { path, offset, reason }),
            Error::Missing { path } => Ok(Self::Missing { path }),
            Error::Unsupported { path, found, supported } => Ok(Self::Unsupported { path, found, supported }),
            error => Err(error),
        }
    }

    /// The error, as often as it is asked for.
    pub(crate) fn error(&self) -> Error {
        match self.clone() {
            Self::Damaged { path, offset, reason } => Error::Damaged { path, offset, reason },
            Self::Missing { path } => Error::Missing { path },
            Self::Unsupported { path, found, supported } => Error::Unsupported { path, found, supported },
        }
    }
}

impl ReadState {
    /// What the manifest names without the log.
    pub(crate) fn of_segments(
        config: &Config,
        manifest: &Manifest,
        segments: impl IntoIterator<Item = Arc<LiveSegment>>,
    ) -> Self {
        Self {
            segments: Arc::new(by_domain(config.domains.len(), segments)),
            tables: Vec::new(),
            log: None,
            log_fault: None,
            first: manifest.first_block,
            is_pruned: manifest.pruned_before > 0,
            head: manifest.emitted_head,
            emitted_head: manifest.emitted_head,
            keeps_rows: manifest.config.keeps_rows,
        }
    }

    /// The blocks that are in no segment, as tables by step ascending.
    ///
    /// # Cost
    /// For a reader of another process, the first call reads them from the log.
    pub(crate) fn memory(&self) -> Result<&[Arc<StepMemtable>], Error> {
        self.log.as_ref().map_or(Ok(&self.tables[..]), |log| log.tables())
    }

    /// The same of those at or below `at`: none, and nothing is read for it, where all are above.
    pub(crate) fn memory_up_to(&self, at: BlockNumber) -> Result<&[Arc<StepMemtable>], Error> {
        match &self.log {
            Some(log) if log.newest_block(at).is_none() => Ok(&[]),
            _ => self.memory(),
        }
    }

    /// The newest version of a key at or below `at` among the blocks that are in no segment.
    pub(crate) fn find_in_memory(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
    ) -> Result<Option<Found>, Error> {
        match &self.log {
            Some(log) => log.find(domain, key, at),
            None => Ok(self.tables.iter().rev().find_map(|table| table.get(domain, key, at))),
        }
    }

    /// The heights that can be read, both inside; `None` before the first block.
    pub(crate) fn range(&self) -> Option<(BlockNumber, BlockNumber)> {
        let (first, head) = (self.first?, self.head?);
        // With a log that cannot be read, all that was not pruned may be in it.
        (self.log_fault.is_none() || first <= head).then_some((first.min(head), head))
    }

    /// Checks that the newest block is known.
    pub(crate) fn check_head(&self) -> Result<(), Error> {
        self.log_fault.as_ref().map_or(Ok(()), |fault| Err(fault.error()))
    }

    /// Checks that a height can be read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the heights that can.
    pub(crate) fn check(&self, asked: BlockNumber) -> Result<(), Error> {
        let may_be_in_log = self.range().is_none_or(|(_, head)| head < asked);
        if let Some(fault) = self.log_fault.as_ref().filter(|_| may_be_in_log) {
            return Err(fault.error());
        }
        match self.range() {
            Some((first, head)) if first <= asked && asked <= head => Ok(()),
            Some((first, head)) => {
                Err(Error::OutOfRange { asked, available: Available::Blocks(first, head) })
            }
            None => Err(Error::OutOfRange { asked, available: Available::Nothing }),
        }
    }

    /// Adds a block to the table of its step, which it returns, and makes it the head. `changes` are ordered by domain, then
    /// key, and `digest` is theirs.
    pub(crate) fn add_block(
        &mut self,
        config: &Config,
        height: BlockNumber,
        root: &[u8; 32],
        digest: Checksum,
        changes: &[ChangeRef<'_>],
    ) -> &StepMemtable {
        self.first = self.first.or(Some(height));
        self.head = Some(height);
        add_block(&mut self.tables, config, height, root, digest, changes)
    }

    /// Forgets the blocks above `to` that are in tables, and unless told otherwise what they have of nodes. Tables are copied,
    /// never changed: readers may hold them.
    pub(crate) fn unwind_tables(&mut self, to: BlockNumber, with_nodes: bool) {
        self.tables = unwound(&self.tables, to, with_nodes);
        self.head = self.tables.last().and_then(|table| table.last_height()).or(self.emitted_head);
    }

    /// The segments of a domain.
    pub(crate) fn domain(&self, domain: DomainId) -> &[Arc<LiveSegment>] {
        &self.segments[domain.index()]
    }

    /// All segments, by domain and step.
    pub(crate) fn all_segments(&self) -> impl Iterator<Item = &Arc<LiveSegment>> {
        self.segments.iter().flatten()
    }
}

/// Sorts segments into the lists of a read state.
pub(crate) fn by_domain(domains: usize, segments: impl IntoIterator<Item = Arc<LiveSegment>>) -> SegmentSet {
    let mut set: SegmentSet = vec![Vec::new(); domains];
    for segment in segments {
        set[segment.record.domain.index()].push(segment);
    }
    for list in &mut set {
        list.sort_by_key(|segment| segment.record.steps);
    }
    set
}
