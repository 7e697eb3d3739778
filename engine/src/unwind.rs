//! Unwinding: the blocks above a height are forgotten, as a chain reorganisation asks.
//!
//! Blocks that are still in memory go by one record in the log. Deeper, the step that holds the height goes back into memory and
//! into a fresh log file, segments before it stay or are cut to the steps before it, and one manifest makes it so.

use std::collections::BTreeMap;
use std::sync::Arc;

use icecore_segments::EntrySource;
use icecore_segments::step::{BlockNumber, Step, StepRange};

use crate::core::{Core, FileChange, State};
use crate::domain::{DomainId, RootRow, root_height};
use crate::error::Error;
use crate::live::LiveSegment;
use crate::manifest::DensityRule;
use crate::observer::Observer;
use crate::rewrite::{pace, rewrite};
use crate::version::Version;
use crate::wal::{ChangeRef, RecordRef};

/// The blocks of one step, taken out of segments: by height the root and the changes.
type Blocks = BTreeMap<BlockNumber, TakenBlock>;

#[derive(Default)]
struct TakenBlock {
    root: [u8; 32],
    changes: Vec<(DomainId, Vec<u8>, Option<Vec<u8>>)>,
}

impl Core {
    /// Forgets the blocks above `to`; a height between two blocks stands for the lower one.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height that cannot be read: what lies below it is not there to go back to.
    pub(crate) fn unwind(&self, to: BlockNumber, observer: &dyn Observer) -> Result<(), Error> {
        let _structure = self.structure.lock();
        let mut state = self.state.lock();
        state.check_poison()?;
        let version = self.version();
        version.check(to)?;
        // The next block may take any height above the one that remains, so that one decides which steps stay emitted.
        let (to, _) = version.newest_root(to)?;
        if version.head == Some(to) {
            return Ok(());
        }
        let emitted = self.shared.directory.config.step_len.first_block(state.manifest.emitted_to);
        if to.saturating_add(1) >= emitted {
            self.unwind_memory(&mut state, &version, to)?;
        } else {
            self.unwind_segments(&mut state, &version, to, observer)?;
        }
        self.changed.notify_all();
        Ok(())
    }

    fn unwind_memory(&self, state: &mut State, version: &Version, to: BlockNumber) -> Result<(), Error> {
        let logged = state.log.append(&RecordRef::Unwind { to }, None).and_then(|()| state.log.settle());
        state.poisoned(logged)?;
        let mut next = version.clone();
        let is_rewound = state.live.as_mut().is_some_and(|live| live.rewind(to));
        if !is_rewound {
            state.live = None;
        }
        // Without the tree the tables have no nodes: with it they are made again.
        next.unwind_tables(to, is_rewound);
        self.shared.install(next);
        Ok(())
    }

    fn unwind_segments(
        &self,
        state: &mut State,
        version: &Version,
        to: BlockNumber,
        observer: &dyn Observer,
    ) -> Result<(), Error> {
        let border = self.shared.directory.config.step_len.step_of(to);
        let blocks = self.take_blocks(version, border, to)?;
        let mut change = FileChange::default();
        for segment in version.all_segments().filter(|segment| segment.record.steps.to() > border) {
            change.removed.push(Arc::clone(segment));
            if let Some(kept) = self.cut(segment, state.manifest.rule, border, observer)? {
                change.added.push(Arc::new(kept));
            }
        }
        let emitted_head = self.head_before(version, border)?;
        // From here on the log is ahead of the manifest: a failure poisons.
        let relogged = self.relog(state, &blocks);
        state.poisoned(relogged)?;
        let first_file = state.log.last();
        let config = Arc::clone(&self.shared.directory.config);
        state.live = None;
        self.publish(state, change, |manifest, next| {
            manifest.emitted_to = border;
            manifest.emitted_head = emitted_head;
            manifest.wal_first = first_file;
            manifest.wal_last = first_file;
            next.tables.clear();
            next.emitted_head = emitted_head;
            next.head = emitted_head;
            for (height, block) in &blocks {
                next.add_block(&config, *height, &block.root, &block.as_refs());
            }
        })?;
        let trimmed = state.log.trim(first_file);
        state.poisoned(trimmed)
    }

    /// The blocks of step `border` up to `to`, from whatever segments have them.
    fn take_blocks(&self, version: &Version, border: Step, to: BlockNumber) -> Result<Blocks, Error> {
        let from = self.shared.directory.config.step_len.first_block(border);
        let mut blocks = Blocks::new();
        // Nodes are not logged: they are made again with the tree.
        let nodes = self.shared.directory.config.nodes();
        let segments = version.all_segments().filter(|segment| Some(segment.record.domain) != nodes);
        for segment in segments.filter(|segment| segment.record.steps.contains(border)) {
            let file = self.shared.directory.open_for_pass(&segment.record)?;
            let mut cursor = file.view().cursor();
            cursor.seek_first().map_err(|e| file.error(e))?;
            while let Some(entry) = EntrySource::entry(&cursor) {
                if from <= entry.block && entry.block <= to {
                    let value =
                        entry.value.load().map_err(|e| file.error(e))?.map(std::borrow::Cow::into_owned);
                    let block = blocks.entry(entry.block).or_default();
                    match (segment.record.domain, value) {
                        (DomainId::ROOTS, Some(row)) => {
                            block.root = RootRow::decode(&row).map(|row| row.root.0).unwrap_or_default();
                        }
                        (domain, value) => block.changes.push((domain, entry.key.to_vec(), value)),
                    }
                }
                cursor.advance().map_err(|e| file.error(e))?;
            }
        }
        Ok(blocks)
    }

    /// What remains of a segment when the steps from `border` on go.
    fn cut(
        &self,
        segment: &LiveSegment,
        rule: DensityRule,
        border: Step,
        observer: &dyn Observer,
    ) -> Result<Option<LiveSegment>, Error> {
        let directory = &self.shared.directory;
        let Some(steps) = StepRange::new(segment.record.steps.from(), border) else { return Ok(None) };
        let domain = segment.record.domain;
        let end = directory.config.step_len.first_block(border);
        let summary = segment.summary()?;
        let shape = self.shape_of_new(rule, domain, steps, summary.entries)?;
        observer.begin(&format!("cut {}", directory.segment_name(&segment.record)), Some(summary.entries));
        let record =
            rewrite(directory, domain, [segment], steps, shape, pace(observer), |entry| entry.block < end)?;
        observer.end();
        record.map(|record| LiveSegment::open_new(directory, record)).transpose()
    }

    /// Writes the blocks that go back into memory to a log file of their own, durably.
    fn relog(&self, state: &mut State, blocks: &Blocks) -> Result<(), Error> {
        state.log.start_file()?;
        for (height, block) in blocks {
            let step = self.shared.directory.config.step_len.step_of(*height);
            let changes = block.as_refs();
            let record = RecordRef::Block { height: *height, root: &block.root, changes: &changes };
            state.log.append(&record, Some(step))?;
        }
        state.log.settle()
    }

    /// The newest block before a step.
    fn head_before(&self, version: &Version, border: Step) -> Result<Option<BlockNumber>, Error> {
        let first = self.shared.directory.config.step_len.first_block(border);
        let Some(at) = first.checked_sub(1) else { return Ok(None) };
        let mut newest = None;
        for segment in
            version.domain(DomainId::ROOTS).iter().filter(|segment| segment.record.steps.from() < border)
        {
            let kv = segment.kv.get()?;
            let mut cursor = kv.view().cursor();
            cursor.seek_first().map_err(|e| kv.error(e))?;
            while let Some(entry) = cursor.entry() {
                newest = newest.max(root_height(entry.key).filter(|height| *height <= at));
                cursor.next().map_err(|e| kv.error(e))?;
            }
        }
        Ok(newest)
    }
}

impl TakenBlock {
    /// Ordered by domain and key, as segments gave them.
    fn as_refs(&self) -> Vec<ChangeRef<'_>> {
        let refs = self.changes.iter().map(|(domain, key, value)| ChangeRef {
            domain: domain.0,
            key,
            value: value.as_deref(),
        });
        refs.collect()
    }
}
