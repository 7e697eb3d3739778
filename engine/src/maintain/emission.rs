//! Emission: a step that is complete and has left the reorg window leaves memory as one segment per domain.
//!
//! The tables of such steps no longer change, so they are written without holding up commits. Until the new manifest is
//! published, readers find the versions in memory; after it, in the segment; never in both, never in neither.
//!
//! Several small steps that are ready at once become one segment per domain, as a merge of them would.

use std::sync::Arc;

use icecore_segments::step::{Step, StepRange};
use icecore_segments::{Entry, Value};

use crate::domain::DomainId;
use crate::error::{Error, ErrorKind};
use crate::maintain::new_segment::options_of_new;
use crate::memtable::key_order::sort_by_key_bytes;
use crate::memtable::key_table::KeyNumber;
use crate::memtable::node_key::NodeVersion;
use crate::memtable::node_table::in_order;
use crate::memtable::step_memtable::StepMemtable;
use crate::progress::ProgressListener;
use crate::segment::live::LiveSegment;
use crate::segment::writer::SegmentOutput;
use crate::stats::MaintenanceTask;
use crate::write::version_edit::VersionEdit;
use crate::write::writer::{MaintenanceGuard, Writer};

/// Steps that become one segment per domain.
struct Batch {
    steps: StepRange,
    tables: Vec<Arc<StepMemtable>>,
}

/// Small steps go together, so that what a manifest and its syncs cost is shared: up to this many bytes of keys and values.
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// Where the segments of an emission may reach: the steps that are in none and are ready, and so many bytes of keys and values where
/// it is more than one step.
#[derive(Clone, Copy)]
struct Reach {
    emitted_to: Step,
    boundary: Step,
    span_max: u64,
    bytes_max: u64,
}

/// The batches that the next manifest publishes: all of a run of small steps, or one large step. `ready` is not empty.
fn batches(ready: &[Arc<StepMemtable>], reach: Reach) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let (mut at, mut bytes) = (0, 0);
    while at < ready.len() {
        let emitted_to = batches.last().map_or(reach.emitted_to, |batch| batch.steps.to());
        let batch = widest(&ready[at..], Reach { emitted_to, ..reach });
        bytes += batch.tables.iter().map(|table| table.bytes()).sum::<u64>();
        if bytes > reach.bytes_max && !batches.is_empty() {
            break;
        }
        at += batch.tables.len();
        batches.push(batch);
    }
    batches
}

/// The smallest aligned range with as many of the first tables as fit in one. It may begin before the first of them: heights with
/// gaps leave steps without a block, and no range that only begins at one with a block holds many of such.
fn widest(ready: &[Arc<StepMemtable>], reach: Reach) -> Batch {
    let first = ready[0].step();
    let mut batch = Batch { steps: StepRange::single(first), tables: vec![Arc::clone(&ready[0])] };
    let powers = reach.span_max.min(reach.boundary.0).checked_ilog2().unwrap_or(0);
    for span in (1..=powers).map(|power| 1u64 << power) {
        let from = Step(first.0 / span * span);
        let Some(steps) = StepRange::new(from, Step(from.0.saturating_add(span))) else { break };
        let tables: Vec<_> = ready.iter().take_while(|table| steps.contains(table.step())).cloned().collect();
        let bytes = tables.iter().map(|table| table.bytes()).sum::<u64>();
        if from < reach.emitted_to || steps.to() > reach.boundary || bytes > reach.bytes_max {
            break;
        }
        if tables.len() > batch.tables.len() {
            batch = Batch { steps, tables };
        }
    }
    batch
}

/// Emits every step that is ready now, oldest first, and records how that went. Who waits for an emission looks again.
pub(crate) fn emit_ready(
    writer: &Writer,
    _: &MaintenanceGuard<'_>,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let emitted = writer.recorded(MaintenanceTask::Emission, emit_all(writer, listener));
    writer.lock().end_emission_attempt();
    emitted
}

fn emit_all(writer: &Writer, listener: &dyn ProgressListener) -> Result<(), Error> {
    let config = &writer.shared.directory.config;
    let Some(head) = writer.read_state().head else { return Ok(()) };
    let boundary = config.step_len.emission_boundary(head, config.reorg_window);
    let mut bytes_max = BATCH_BYTES_MAX;
    loop {
        let version = writer.read_state();
        let ready = version.tables.partition_point(|table| table.step() < boundary);
        if ready == 0 {
            return Ok(());
        }
        if config.keeps_nodes() {
            // After opening, the tables have no nodes yet.
            writer.lock_unpoisoned()?.tree()?;
        }
        let (emitted_to, span_max) = (writer.lock().manifest().emitted_to, writer.options.merge_span_max);
        let reach = Reach { emitted_to, boundary, span_max, bytes_max };
        let batches = batches(&version.tables[..ready], reach);
        let steps = || batches.iter().flat_map(|batch| &batch.tables);
        match emit(writer, &batches, listener) {
            // The log of what is emitted is freed by the manifest, so that a part may fit where all of it does not.
            Err(error) if error.kind() == ErrorKind::NoSpace && steps().count() > 1 => {
                bytes_max = steps().map(|table| table.bytes()).sum::<u64>().min(bytes_max) / 2;
            }
            emitted => emitted?,
        }
        // A process that is killed finds what was emitted so far in it; blocks since then are in the log.
        writer.lock_unpoisoned()?.keep_tree(false);
    }
}

fn emit(writer: &Writer, batches: &[Batch], listener: &dyn ProgressListener) -> Result<(), Error> {
    let config = &writer.shared.directory.config;
    let mut edit = VersionEdit::default();
    for batch in batches {
        listener.begin(&format!("emit step {}", batch.steps), None);
        for domain in (0..config.domains.len()).map(|index| DomainId(index as u16)) {
            edit.added.extend(emit_domain(writer, batch, domain, listener)?.map(Arc::new));
        }
        listener.end();
    }
    let last = batches.iter().flat_map(|batch| &batch.tables).next_back().expect("a step is ready");
    let emitted_to = batches.last().expect("a step is ready").steps.to();
    let mut guard = writer.lock_unpoisoned()?;
    // The block that let the step go must be there as long as the emission is (E6): else, after a power loss, the next one
    // could come into a step that is in segments.
    guard.sync_log()?;
    let first_live = guard.first_log_file_needed(emitted_to);
    let first_block = writer.read_state().first;
    guard.publish(edit, |manifest, version| {
        manifest.emitted_to = emitted_to;
        manifest.emitted_head = last.last_height().or(manifest.emitted_head);
        manifest.first_block = manifest.first_block.or(first_block);
        manifest.wal_first = first_live;
        version.emitted_head = manifest.emitted_head;
        version.tables.retain(|kept| kept.step() >= emitted_to);
    })
}

fn emit_domain(
    writer: &Writer,
    batch: &Batch,
    domain: DomainId,
    listener: &dyn ProgressListener,
) -> Result<Option<LiveSegment>, Error> {
    if writer.shared.directory.config.nodes() == Some(domain) {
        let runs: Vec<_> = batch.tables.iter().flat_map(|table| table.nodes().runs()).collect();
        let versions = in_order(&runs);
        let keys: Vec<&[&NodeVersion]> = versions.chunk_by(|a, b| a.key == b.key).collect();
        let entries = keys.iter().flat_map(|versions| versions.iter().rev()).map(|version| Entry {
            key: version.key.as_bytes(),
            block: version.block,
            value: value(version.value.as_bytes()),
        });
        return emit_entries(writer, batch.steps, domain, keys.len() as u64, entries, listener);
    }
    // From the newest step on, so that its versions of a key come first: sorting keeps that.
    let tables: Vec<_> = batch.tables.iter().rev().map(|table| table.keys(domain)).collect();
    let numbers = |at: usize| (0..tables[at].len() as KeyNumber).map(move |number| (at as u32, number));
    let mut keys: Vec<(u32, KeyNumber)> = (0..tables.len()).flat_map(numbers).collect();
    let key = |(at, number): (u32, KeyNumber)| tables[at as usize].key(number);
    sort_by_key_bytes(&mut keys, key);
    let distinct = match tables.len() {
        1 => keys.len(),
        _ => keys.chunk_by(|a, b| key(*a) == key(*b)).count(),
    };
    let entries = keys.iter().flat_map(|&(at, number)| {
        let (key, versions) = (key((at, number)), tables[at as usize].versions(number));
        versions.map(move |(block, bytes)| Entry { key, block, value: value(bytes) })
    });
    emit_entries(writer, batch.steps, domain, distinct as u64, entries, listener)
}

/// Writes the segment of a domain; `None` where there is no entry.
pub(crate) fn emit_entries<'e>(
    writer: &Writer,
    steps: StepRange,
    domain: DomainId,
    keys: u64,
    entries: impl Iterator<Item = Entry<'e>>,
    listener: &dyn ProgressListener,
) -> Result<Option<LiveSegment>, Error> {
    if keys == 0 {
        return Ok(None);
    }
    let directory = &writer.shared.directory;
    let options = options_of_new(writer, domain, steps, keys)?;
    let mut output = SegmentOutput::create(directory, domain, steps, options, keys)?;
    let (first, last) = directory.config.step_len.blocks(steps);
    for entry in entries {
        debug_assert!(
            first <= entry.block && entry.block <= last,
            "E3: a segment has the versions of its steps"
        );
        output.push(entry)?;
        listener.advance(1);
    }
    output.finish()?.map(|record| LiveSegment::open_new(directory, record)).transpose()
}

fn value(bytes: Option<&[u8]>) -> Value<'_> {
    bytes.map_or(Value::Deletion, Value::Inline)
}
