//! Emission: a step that is complete and has left the reorg window leaves memory as one segment per domain.
//!
//! The tables of such steps no longer change, so they are written without holding up commits. Until the new manifest is
//! published, readers find the versions in memory; after it, in the segment; never in both, never in neither.
//!
//! A merge that takes an hour must not hold up commits for an hour, so whoever merges or reindexes emits in between.

use std::sync::Arc;

use icecore_segments::step::{Step, StepRange};
use icecore_segments::{Entry, Value};
use parking_lot::MutexGuard;

use crate::core::{Core, FileChange};
use crate::domain::DomainId;
use crate::error::Error;
use crate::live::LiveSegment;
use crate::manifest::DensityRule;
use crate::node_table::in_order;
use crate::nodes::NodeVersion;
use crate::observer::Observer;
use crate::output::SegmentOutput;
use crate::table::StepTable;

impl Core {
    /// Emits every step that is ready, oldest first.
    pub(crate) fn emit_ready(&self, observer: &dyn Observer) -> Result<(), Error> {
        self.emit_ready_beside(&self.structure.lock(), observer)
    }

    /// Lets emission go on in the middle of other long work, since commits wait for it. `false` when the archive is closed:
    /// what can be done again later is then left.
    pub(crate) fn goes_on(&self, structure: &MutexGuard<'_, ()>) -> Result<bool, Error> {
        let (closing, waiting) = {
            let state = self.state.lock();
            (state.closing, self.steps_waiting(&state))
        };
        if waiting > 0 && !closing {
            self.emit_ready_beside(structure, &())?;
        }
        Ok(!closing)
    }

    /// The same as [`Self::emit_ready`], by whoever has the lock of the structure.
    fn emit_ready_beside(&self, _: &MutexGuard<'_, ()>, observer: &dyn Observer) -> Result<(), Error> {
        let config = &self.shared.directory.config;
        loop {
            let version = self.version();
            let Some(head) = version.head else { return Ok(()) };
            let border = config.step_len.emission_border(head, config.reorg_window);
            let Some(table) = version.tables.first().filter(|table| table.step() < border) else {
                return Ok(());
            };
            if config.snapshots.is_some() {
                // After opening, the tables have no nodes yet.
                let mut state = self.state.lock();
                state.check_poison()?;
                self.ensure_tree(&mut state)?;
            }
            self.emit(table, observer)?;
        }
    }

    fn emit(&self, table: &Arc<StepTable>, observer: &dyn Observer) -> Result<(), Error> {
        let config = &self.shared.directory.config;
        observer.begin(&format!("emit step {}", table.step()), None);
        let rule = self.state.lock().manifest.rule;
        let mut change = FileChange::default();
        for domain in (0..config.domains.len()).map(|index| DomainId(index as u16)) {
            change.added.extend(self.emit_domain(table, rule, domain, observer)?.map(Arc::new));
        }
        observer.end();
        let emitted_to = table.step().next();
        let mut state = self.state.lock();
        let first_live = state.log.first_needed(emitted_to);
        let first_block = self.version().first;
        self.publish(&mut state, change, |manifest, version| {
            manifest.emitted_to = emitted_to;
            manifest.emitted_head = table.last_height().or(manifest.emitted_head);
            manifest.first_block = manifest.first_block.or(first_block);
            manifest.wal_first = first_live;
            version.emitted_head = manifest.emitted_head;
            version.tables.retain(|kept| kept.step() >= emitted_to);
        })?;
        let trimmed = state.log.trim(first_live);
        state.poisoned(trimmed)
    }

    fn emit_domain(
        &self,
        table: &StepTable,
        rule: DensityRule,
        domain: DomainId,
        observer: &dyn Observer,
    ) -> Result<Option<LiveSegment>, Error> {
        if self.shared.directory.config.nodes() == Some(domain) {
            let runs = table.nodes().runs();
            let versions = in_order(&runs);
            let keys: Vec<&[&NodeVersion]> = versions.chunk_by(|a, b| a.key == b.key).collect();
            let entries = keys.iter().flat_map(|versions| versions.iter().rev()).map(|version| Entry {
                key: version.key.as_bytes(),
                block: version.block,
                value: value(version.value.as_bytes()),
            });
            return self.emit_entries(table.step(), rule, domain, keys.len() as u64, entries, observer);
        }
        let keys = table.keys(domain);
        let entries = keys.iter().flat_map(|(key, versions)| {
            versions.iter().rev().map(|(block, bytes)| Entry {
                key,
                block: *block,
                value: value(bytes.as_deref()),
            })
        });
        self.emit_entries(table.step(), rule, domain, keys.len() as u64, entries, observer)
    }

    fn emit_entries<'e>(
        &self,
        step: Step,
        rule: DensityRule,
        domain: DomainId,
        keys: u64,
        entries: impl Iterator<Item = Entry<'e>>,
        observer: &dyn Observer,
    ) -> Result<Option<LiveSegment>, Error> {
        if keys == 0 {
            return Ok(None);
        }
        let directory = &self.shared.directory;
        let steps = StepRange::single(step);
        let shape = self.shape_of_new(rule, domain, steps, keys)?;
        let mut output = SegmentOutput::create(directory, domain, steps, shape, keys)?;
        for entry in entries {
            output.push(entry)?;
            observer.advance(1);
        }
        output.finish()?.map(|record| LiveSegment::open_new(directory, record)).transpose()
    }
}

fn value(bytes: Option<&[u8]>) -> Value<'_> {
    bytes.map_or(Value::Deletion, Value::Inline)
}
