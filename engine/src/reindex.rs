//! Reindex: a new pivot index, and where asked a new filter, for an unchanged `.kv`, while readers go on.

use std::sync::Arc;

use icecore_index::density::index_len_max;
use icecore_index::{Density, FilterBits};
use icecore_segments::frame::Kind;

use crate::core::{Core, FileChange};
use crate::error::Error;
use crate::live::LiveSegment;
use crate::manifest::{DensityRule, SegmentRecord};
use crate::observer::Observer;
use crate::output::{rebuild_filter, rebuild_index};

/// What to rebuild accessors to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReindexRule {
    /// The rule that the archive keeps, for what is not in line with it.
    Policy,
    /// A new rule, kept for segments to come.
    Rule(DensityRule),
    /// Every accessor again, to what it was: repairs damage.
    Rebuild,
}

/// What reindexing does, or would do, to one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReindexPlan {
    /// The segment: `storage.0-64`.
    pub segment: String,
    /// Its versions.
    pub entries: u64,
    /// Entries per pivot before and after.
    pub m: (u32, u32),
    /// Filter bits before and after.
    pub filter_bits: (u8, u8),
    /// Bytes of the `.bt` before and, as estimated or built, after.
    pub bt_bytes: (u64, u64),
}

/// A segment and what its accessors are to become.
struct Job {
    segment: Arc<LiveSegment>,
    m: Density,
    filter_bits: FilterBits,
}

impl Core {
    pub(crate) fn plan_reindex(
        &self,
        rule: ReindexRule,
        domain: Option<&str>,
    ) -> Result<Vec<ReindexPlan>, Error> {
        self.jobs(rule, domain)?.iter().map(|job| self.plan_of(job)).collect()
    }

    pub(crate) fn reindex(
        &self,
        rule: ReindexRule,
        domain: Option<&str>,
        observer: &dyn Observer,
    ) -> Result<Vec<ReindexPlan>, Error> {
        let structure = self.structure.lock();
        if let ReindexRule::Rule(kept) = rule {
            let mut state = self.state.lock();
            if state.manifest.rule != kept {
                self.publish(&mut state, FileChange::default(), |manifest, _| manifest.rule = kept)?;
            }
        }
        let mut done = Vec::new();
        for job in self.jobs(rule, domain)? {
            if !self.goes_on(&structure)? {
                break;
            }
            let mut plan = self.plan_of(&job)?;
            if rule == ReindexRule::Rebuild || !job.is_in_line() {
                observer.begin(&format!("reindex {}", plan.segment), Some(plan.entries));
                plan.bt_bytes.1 = self.rebuild(&job, rule == ReindexRule::Rebuild)?;
                observer.advance(plan.entries);
                observer.end();
            }
            done.push(plan);
        }
        Ok(done)
    }

    /// Builds, publishes and returns the length of the pivot index. One publication per segment: a crash loses at most one.
    fn rebuild(&self, job: &Job, everything: bool) -> Result<u64, Error> {
        let directory = &self.shared.directory;
        let old = &job.segment;
        let mut record = old.record.clone();
        let new = self.build(job, everything, &mut record).inspect_err(|_| {
            for kind in Kind::ALL.into_iter().filter(|kind| record.file(*kind) != old.record.file(*kind)) {
                // What cannot be removed now is garbage that the next opening removes.
                let _ = directory.storage.remove(&directory.file(&record, kind));
            }
        })?;
        let bytes = record.file(Kind::PivotIndex).summary.len;
        let change = FileChange { removed: vec![Arc::clone(old)], added: vec![Arc::new(new)] };
        self.publish(&mut self.state.lock(), change, |_, _| {})?;
        Ok(bytes)
    }

    /// Builds the accessors and enters each into `record` as soon as its file is there.
    fn build(&self, job: &Job, everything: bool, record: &mut SegmentRecord) -> Result<LiveSegment, Error> {
        let directory = &self.shared.directory;
        let old = &job.segment;
        let (mut bt, mut kvei) = (Arc::clone(&old.bt), Arc::clone(&old.kvei));
        if everything || record.m != job.m {
            record.bt = rebuild_index(directory, record, job.m)?;
            record.m = job.m;
            bt = directory.open_index(record)?;
        }
        if everything || record.filter_bits != job.filter_bits {
            record.kvei = rebuild_filter(directory, record, job.filter_bits)?;
            record.filter_bits = job.filter_bits;
            kvei = directory.open_filter(record)?;
        }
        Ok(LiveSegment::assemble(directory, record.clone(), Arc::clone(&old.kv), bt, kvei))
    }

    fn jobs(&self, rule: ReindexRule, domain: Option<&str>) -> Result<Vec<Job>, Error> {
        let directory = &self.shared.directory;
        let only = domain.map(|name| directory.domain(name)).transpose()?;
        let version = self.version();
        let kept = match rule {
            ReindexRule::Rule(rule) => rule,
            ReindexRule::Policy | ReindexRule::Rebuild => self.state.lock().manifest.rule,
        };
        let segments: Vec<_> = version.all_segments().cloned().collect();
        let choices = self.choices(kept, &segments)?;
        let jobs = segments.into_iter().zip(choices).map(|(segment, choice)| match rule {
            ReindexRule::Rebuild => {
                Job { m: segment.record.m, filter_bits: segment.record.filter_bits, segment }
            }
            ReindexRule::Policy | ReindexRule::Rule(_) => {
                Job { m: choice.m, filter_bits: choice.filter_bits, segment }
            }
        });
        Ok(jobs.filter(|job| only.is_none_or(|only| only == job.segment.record.domain)).collect())
    }

    fn plan_of(&self, job: &Job) -> Result<ReindexPlan, Error> {
        let record = &job.segment.record;
        let summary = job.segment.summary()?;
        let present = record.bt.summary.len;
        let estimated = index_len_max(summary.entries, summary.pages, job.m);
        let estimate = if record.m == job.m { present } else { estimated };
        Ok(ReindexPlan {
            segment: self.shared.directory.segment_name(record),
            entries: summary.entries,
            m: (record.m.get(), job.m.get()),
            filter_bits: (record.filter_bits.get(), job.filter_bits.get()),
            bt_bytes: (present, estimate),
        })
    }
}

impl Job {
    fn is_in_line(&self) -> bool {
        self.segment.record.m == self.m && self.segment.record.filter_bits == self.filter_bits
    }
}
