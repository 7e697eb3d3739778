//! The blocks that are in no segment yet, as a reader of another process has them: where each is in the log.
//!
//! Each block has a fingerprint of every key that it changes, so a lookup goes through those in memory, from the newest
//! block, and reads the one block of the log that has the key. A reader that goes on asking, or asks for a range, gets the
//! same tables that the writer has; from then on they grow with the log.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use icecore_segments::step::{BlockNumber, Step};
use parking_lot::Mutex;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::Found;
use crate::memtable::step_memtable::{StepMemtable, add_block, unwound};
use crate::options::Config;
use crate::wal::{ChangeRef, LogBlock, digest, fingerprint};

/// Lookups that go by fingerprints before the log is put in order, which takes as long as some thousands of them.
const LOOKUPS_MAX: u32 = 512;

thread_local! {
    // The bytes of one block, so that going through the log allocates nothing.
    static BODY: RefCell<Vec<u8>> = RefCell::default();
}

/// See the module. Blocks ascend by height.
pub(crate) struct LogTail {
    config: Arc<Config>,
    blocks: Vec<Arc<LogBlock>>,
    lookups: AtomicU32,
    tables: OnceLock<Vec<Arc<StepMemtable>>>,
    /// Held by who puts the log in order: there is one at a time.
    ordering: Mutex<()>,
}

impl LogTail {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let (lookups, tables, ordering) = (AtomicU32::new(0), OnceLock::new(), Mutex::default());
        Self { config, blocks: Vec::new(), lookups, tables, ordering }
    }

    /// The tables of all blocks, by step ascending.
    ///
    /// # Cost
    /// The first call reads every block.
    pub(crate) fn tables(&self) -> Result<&[Arc<StepMemtable>], Error> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let _ordering = self.ordering.lock();
        if self.tables.get().is_none() {
            let mut tables = Vec::new();
            self.blocks.iter().try_for_each(|block| add_log_block(&self.config, &mut tables, block))?;
            let _ = self.tables.set(tables);
        }
        Ok(self.tables.get().expect("the tables were just set"))
    }

    /// The newest version of `key` at or below `at`.
    #[inline]
    pub(crate) fn find(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        match self.blocks.first() {
            Some(oldest) if oldest.height <= at => self.find_in_blocks(domain, key, at),
            _ => Ok(None),
        }
    }

    /// The same where there are blocks to look at.
    fn find_in_blocks(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Result<Option<Found>, Error> {
        if let Some(blocks) = self.blocks_with(domain, key, at) {
            return blocks
                .map(|block| self.version_in(block, domain, key))
                .find_map(Result::transpose)
                .transpose();
        }
        Ok(self.tables()?.iter().rev().find_map(|table| table.get(domain, key, at)))
    }

    /// The versions of `key` at or below `at`, newest first.
    pub(crate) fn history(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Result<Vec<Found>, Error> {
        if let Some(blocks) = self.blocks_with(domain, key, at) {
            return blocks
                .map(|block| self.version_in(block, domain, key))
                .filter_map(Result::transpose)
                .collect();
        }
        Ok(self.tables()?.iter().rev().flat_map(|table| table.history(domain, key, at)).collect())
    }

    /// The blocks at or below `at` that may have changed a key, newest first; `None` when the tables are to be asked.
    fn blocks_with(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
    ) -> Option<impl Iterator<Item = &LogBlock>> {
        let is_early = self.tables.get().is_none()
            && self.lookups.fetch_add(1, Ordering::Relaxed) < LOOKUPS_MAX
            && self.config.declared_domain(domain).is_some();
        is_early.then(|| {
            let fingerprint = fingerprint(domain.0, key);
            let blocks = self.up_to(at).iter().rev().map(|block| &**block);
            blocks.filter(move |block| block.may_have(fingerprint))
        })
    }

    /// The version of a key that a block wrote.
    fn version_in(&self, block: &LogBlock, domain: DomainId, key: &[u8]) -> Result<Option<Found>, Error> {
        BODY.with_borrow_mut(|body| {
            let mut found = None;
            block.for_each_change(&self.config, body, |change| {
                if change.domain == domain.0 && change.key == key {
                    found = Some((block.height, change.value.map(<[u8]>::to_vec)));
                }
            })?;
            Ok(found)
        })
    }

    /// The newest block at or below `at` and its root.
    pub(crate) fn newest_block(&self, at: BlockNumber) -> Option<(BlockNumber, [u8; 32])> {
        self.up_to(at).last().map(|block| (block.height, block.root))
    }

    /// The oldest block.
    pub(crate) fn first(&self) -> Option<BlockNumber> {
        self.blocks.first().map(|block| block.height)
    }

    /// How many steps the blocks are of.
    pub(crate) fn steps(&self) -> usize {
        let step = |block: &Arc<LogBlock>| self.config.step_len.step_of(block.height);
        self.blocks.chunk_by(|a, b| step(a) == step(b)).count()
    }

    /// Bytes of the blocks in the log.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes()).sum()
    }

    fn up_to(&self, at: BlockNumber) -> &[Arc<LogBlock>] {
        &self.blocks[..self.blocks.partition_point(|block| block.height <= at)]
    }
}

/// A tail that is being changed; the one it was made from stays what it was.
pub(crate) struct NewTail(LogTail);

impl NewTail {
    /// Begins with what is in `old` from a step on.
    pub(crate) fn from_step(old: &LogTail, step: Step) -> Self {
        let len = old.config.step_len;
        let from = old.blocks.partition_point(|block| len.step_of(block.height) < step);
        let blocks = old.blocks[from..].to_vec();
        let tables = old
            .tables
            .get()
            .map(|tables| tables.iter().filter(|table| table.step() >= step).cloned().collect::<Vec<_>>());
        let lookups = AtomicU32::new(old.lookups.load(Ordering::Relaxed));
        let tables = tables.map_or_else(OnceLock::new, OnceLock::from);
        Self(LogTail { config: Arc::clone(&old.config), blocks, lookups, tables, ordering: Mutex::default() })
    }

    /// Adds a block above all others.
    pub(crate) fn push(&mut self, block: Arc<LogBlock>) -> Result<(), Error> {
        if let Some(tables) = self.0.tables.get_mut() {
            add_log_block(&self.0.config, tables, &block)?;
        }
        self.0.blocks.push(block);
        Ok(())
    }

    /// Forgets the blocks above a height.
    pub(crate) fn unwind(&mut self, to: BlockNumber) {
        self.0.blocks.truncate(self.0.up_to(to).len());
        if let Some(tables) = self.0.tables.get_mut() {
            *tables = unwound(tables, to, false);
        }
    }

    pub(crate) fn finish(self) -> LogTail {
        self.0
    }
}

fn add_log_block(
    config: &Config,
    tables: &mut Vec<Arc<StepMemtable>>,
    block: &LogBlock,
) -> Result<(), Error> {
    BODY.with_borrow_mut(|body| {
        let mut changes: Vec<ChangeRef<'_>> = Vec::new();
        block.for_each_change(config, body, |change| changes.push(change))?;
        add_block(tables, config, block.height, &block.root, digest(&changes), &changes);
        Ok(())
    })
}
