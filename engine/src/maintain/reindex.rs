//! Reindex: a new pivot index, the block index where there is none, and on request all accessors, for an unchanged `.kv`, while readers go on.

use std::sync::Arc;

use icecore_index::density::{BUDGET_LEVELS, index_len_max};
use icecore_index::{Density, FilterBits};
use icecore_segments::EncodingRule;
use icecore_segments::frame::Kind;

use crate::domain::DomainId;
use crate::error::Error;
use crate::maintain::file_work::FileWork;
use crate::manifest::SegmentRecord;
use crate::options::{Config, DensityRule};
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::segment::block_tap::rebuild_block_index;
use crate::segment::live::LiveSegment;
use crate::segment::new_file::Progress;
use crate::segment::policy;
use crate::segment::writer::{rebuild_filter, rebuild_index};
use crate::storage::directory::Directory;
use crate::write::version_edit::VersionEdit;
use crate::write::writer::Writer;

/// Which accessors [`Archive::reindex`](crate::Archive::reindex) rebuilds, and by which density rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReindexRule {
    /// Those that do not match the archive's own rule, [`Archive::density_rule`](crate::Archive::density_rule).
    Current,
    /// Those that do not match this rule, which becomes the archive's own as by
    /// [`Archive::set_density_rule`](crate::Archive::set_density_rule).
    Rule(DensityRule),
    /// All of them, with the density that they have. Repairs damage.
    Rebuild,
}

/// One segment whose accessors [`Archive::reindex`](crate::Archive::reindex) rebuilt, or would rebuild. Pairs are before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReindexPlan {
    /// The name of the segment: `storage.0-64`.
    pub segment: String,
    /// The number of versions in it.
    pub entries: u64,
    /// Entries per pivot, before and after.
    pub m: (u32, u32),
    /// Bits of a fingerprint in the filter, before and after.
    pub filter_bits: (u8, u8),
    /// Bytes of the `.bt`: before, and after as built. In a plan the second is the most that it can take.
    pub bt_bytes: (u64, u64),
}

/// A segment and what its accessors are to become.
struct Job {
    segment: Arc<LiveSegment>,
    m: Density,
    filter_bits: FilterBits,
}

/// Makes `rule` the one that shapes segments from now on. Touches no file but the manifest.
///
/// # Errors
/// [`Error::Options`] for a budget that the sparsest indexes exceed.
pub(crate) fn keep_rule(writer: &Writer, rule: DensityRule) -> Result<(), Error> {
    rule.check()?;
    check_budget(rule, &writer.read_state().all_segments().cloned().collect::<Vec<_>>())?;
    store_rule(writer, rule)
}

fn store_rule(writer: &Writer, rule: DensityRule) -> Result<(), Error> {
    let mut guard = writer.lock();
    if guard.manifest().rule == rule {
        return Ok(());
    }
    guard.publish(VersionEdit::default(), |manifest, _| manifest.rule = rule)
}

/// Makes `encoding` the one that shapes segments of `domain` from now on. Touches no file but the manifest.
pub(crate) fn keep_encoding(writer: &Writer, domain: DomainId, encoding: EncodingRule) -> Result<(), Error> {
    let mut guard = writer.lock();
    if guard.manifest().config.domains[domain.index()].encoding == encoding {
        return Ok(());
    }
    guard.publish(VersionEdit::default(), |manifest, _| {
        manifest.config.domains[domain.index()].encoding = encoding;
    })
}

pub(crate) fn reindex(
    writer: &Writer,
    rule: ReindexRule,
    domain: Option<&str>,
    listener: &dyn ProgressListener,
) -> Result<Vec<ReindexPlan>, Error> {
    let work = FileWork::begin(writer);
    // No merge in between takes a segment that a job is about.
    let _long = work.begin_long();
    // Before the rule is kept: one that cannot be met, or for no domain, changes nothing.
    let jobs = jobs_now(writer, rule, domain)?;
    if let ReindexRule::Rule(rule) = rule {
        store_rule(writer, rule)?;
    }
    let mut done = Vec::new();
    for job in jobs {
        if !work.emit_pending()?.may_go_on() {
            break;
        }
        let mut plan = job.plan(&writer.shared.directory)?;
        listener.begin(&format!("reindex {}", plan.segment), Some(plan.entries));
        let mut reported = 0;
        let mut progress = |entries: u64| {
            reported += entries;
            listener.advance(entries);
            work.emit_pending().map(drop)
        };
        plan.bt_bytes.1 = rebuild(writer, &job, rule == ReindexRule::Rebuild, &mut progress)?;
        listener.advance(plan.entries.saturating_sub(reported));
        listener.end();
        done.push(plan);
    }
    Ok(done)
}

/// Builds, publishes and returns the length of the pivot index. One publication per segment: a crash loses at most one.
fn rebuild(writer: &Writer, job: &Job, everything: bool, progress: &mut Progress<'_>) -> Result<u64, Error> {
    let directory = &writer.shared.directory;
    let old = &job.segment;
    let mut record = old.record.clone();
    let new = build(writer, job, everything, &mut record, progress).inspect_err(|_| {
        for kind in record.kinds().filter(|kind| record.get(*kind) != old.record.get(*kind)) {
            // What cannot be removed now is garbage that the next opening removes.
            let _ = directory.storage.remove(&record.path(directory, kind));
        }
    })?;
    let bytes = record.file(Kind::PivotIndex).summary.len;
    let edit = VersionEdit { removed: vec![Arc::clone(old)], added: vec![Arc::new(new)], log: None };
    writer.lock().publish(edit, |_, _| {})?;
    Ok(bytes)
}

/// Builds the accessors and enters each into `record` as soon as its file is there.
fn build(
    writer: &Writer,
    job: &Job,
    everything: bool,
    record: &mut SegmentRecord,
    progress: &mut Progress<'_>,
) -> Result<LiveSegment, Error> {
    let directory = &writer.shared.directory;
    let old = &job.segment;
    if everything || record.m != job.m {
        record.bt = rebuild_index(directory, record, job.m, progress)?;
        record.m = job.m;
    }
    if everything || record.filter_bits != job.filter_bits {
        record.kvei =
            rebuild_filter(directory, record, job.filter_bits, writer.options.file_parallelism(), progress)?;
        record.filter_bits = job.filter_bits;
    }
    if directory.config.has_block_index(record.domain) && (everything || record.kvbi.is_none()) {
        record.kvbi = Some(rebuild_block_index(directory, record, progress)?);
    }
    let mut failed = None;
    let segment = old.hold_changed(directory, record.clone(), &mut |error| failed = Some(error));
    failed.map_or(Ok(()), Err)?;
    segment.open_all()?;
    Ok(segment)
}

fn jobs_now(writer: &Writer, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<Job>, Error> {
    let present = writer.lock().manifest().rule;
    jobs(&writer.shared.directory, &writer.read_state(), present, rule, domain)
}

/// What reindexing would do where `present` is the rule that the archive keeps.
pub(crate) fn plan_jobs(
    directory: &Directory,
    version: &ReadState,
    present: DensityRule,
    rule: ReindexRule,
    domain: Option<&str>,
) -> Result<Vec<ReindexPlan>, Error> {
    jobs(directory, version, present, rule, domain)?.iter().map(|job| job.plan(directory)).collect()
}

fn jobs(
    directory: &Directory,
    version: &ReadState,
    present: DensityRule,
    rule: ReindexRule,
    domain: Option<&str>,
) -> Result<Vec<Job>, Error> {
    let only = domain.map(|name| directory.config.domain(name)).transpose()?;
    let kept = match rule {
        ReindexRule::Rule(rule) => rule,
        ReindexRule::Current | ReindexRule::Rebuild => present,
    };
    let segments: Vec<_> = version.all_segments().cloned().collect();
    if let ReindexRule::Rule(rule) = rule {
        rule.check()?;
        check_budget(rule, &segments)?;
    }
    let choices = policy::choices(&directory.config, kept, version.head, &segments)?;
    let jobs = segments.into_iter().zip(choices).map(|(segment, choice)| match rule {
        ReindexRule::Rebuild => Job { m: segment.record.m, filter_bits: segment.record.filter_bits, segment },
        ReindexRule::Current | ReindexRule::Rule(_) => {
            Job { m: choice.m, filter_bits: choice.filter_bits, segment }
        }
    });
    let is_wanted = |job: &Job| {
        only.is_none_or(|only| only == job.segment.record.domain)
            && (rule == ReindexRule::Rebuild || !job.matches_policy(&directory.config))
    };
    Ok(jobs.filter(is_wanted).collect())
}

/// Refuses a budget that the sparsest indexes exceed.
fn check_budget(rule: DensityRule, segments: &[Arc<LiveSegment>]) -> Result<(), Error> {
    let DensityRule::Budget { bytes } = rule else { return Ok(()) };
    let sparsest = BUDGET_LEVELS[BUDGET_LEVELS.len() - 1];
    let lens = segments.iter().map(|segment| index_len(segment, sparsest));
    let least = lens.sum::<Result<u64, Error>>()?;
    if bytes >= least {
        return Ok(());
    }
    Err(Error::Options {
        field: "density",
        reason: format!(
            "{bytes} bytes are too few: the indexes of {} segments take up to {least} at the sparsest, merged ones take less",
            segments.len()
        ),
    })
}

/// The bytes of the pivot index of density `m`: what it has, or at the most would have.
fn index_len(segment: &LiveSegment, m: Density) -> Result<u64, Error> {
    if segment.record.m == m {
        return Ok(segment.record.bt.summary.len);
    }
    let summary = segment.summary()?;
    Ok(index_len_max(summary.entries, summary.pages, m))
}

impl Job {
    fn plan(&self, directory: &Directory) -> Result<ReindexPlan, Error> {
        let record = &self.segment.record;
        let summary = self.segment.summary()?;
        Ok(ReindexPlan {
            segment: record.stem(&directory.config),
            entries: summary.entries,
            m: (record.m.get(), self.m.get()),
            filter_bits: (record.filter_bits.get(), self.filter_bits.get()),
            bt_bytes: (record.bt.summary.len, index_len(&self.segment, self.m)?),
        })
    }

    fn matches_policy(&self, config: &Config) -> bool {
        let record = &self.segment.record;
        let has_block_index = record.kvbi.is_some() || !config.has_block_index(record.domain);
        record.m == self.m && record.filter_bits == self.filter_bits && has_block_index
    }
}
