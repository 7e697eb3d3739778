//! Which density, filter and encoding a segment gets: the archive's rule applied to its segments.
//!
//! The rules themselves are pure functions of `icecore-index`; here they meet the live segments.

use std::sync::Arc;

use icecore_index::{BuildParallelism, Choice, EncodingHint, FilterBits, SegmentFacts};
use icecore_segments::EncodingRule;
use icecore_segments::step::{BlockNumber, Step, StepRange};

use crate::domain::DomainId;
use crate::error::Error;
use crate::options::Config;
use crate::options::DensityRule;
use crate::segment::live::LiveSegment;
use crate::segment::writer::SegmentOptions;

/// The entries of a page where there is none to count: fewer than most have, so that a budget is not exceeded.
const FRESH_PAGE_ENTRIES: u64 = 32;

/// A segment that is about to be written.
pub(crate) struct NewSegment {
    pub(crate) domain: DomainId,
    pub(crate) steps: StepRange,
    pub(crate) entries: u64,
    /// What its domain says of the encoding.
    pub(crate) declared: EncodingRule,
}

impl NewSegment {
    /// How it is to be built beside those that are `live`.
    pub(crate) fn options<'s>(
        &self,
        config: &Config,
        rule: DensityRule,
        head: Option<BlockNumber>,
        live: impl Iterator<Item = &'s Arc<LiveSegment>>,
        parallelism: BuildParallelism,
    ) -> Result<SegmentOptions, Error> {
        let &Self { domain, steps, entries, declared } = self;
        let head = head_step(config, head);
        let replaced =
            |segment: &LiveSegment| segment.record.domain == domain && steps.overlaps(segment.record.steps);
        let (old, others): (Vec<_>, Vec<_>) = live.partition(|segment| replaced(segment));
        // Only a budget is shared. A segment that cannot be read takes no part of it and stops no other from being written.
        let shares = matches!(rule, DensityRule::Budget { .. });
        let others = others.into_iter().filter(|_| shares);
        let mut facts: Vec<_> = others.filter_map(|segment| facts_of(segment, head).ok()).collect();
        let fresh = facts_at(steps, head, entries);
        // As many pages as there were; a fresh segment has none yet.
        let pages = old.iter().map(|segment| Ok(segment.summary()?.pages)).sum::<Result<u64, Error>>()?;
        facts.push(if old.is_empty() { fresh } else { SegmentFacts { pages, ..fresh } });
        let choice = choose(rule, &facts).pop().expect("one choice per segment");
        let encoding = encoding_by_span(steps, entries);
        Ok(SegmentOptions {
            m: choice.m,
            filter_bits: choice.filter_bits,
            parallelism,
            encoding: match (declared, encoding) {
                // Where the domain leaves it open, fresh segments are searched in place and old ones are made small.
                (EncodingRule::Auto, EncodingHint::Plain) => EncodingRule::Plain,
                (declared, _) => declared,
            },
        })
    }
}

/// What the rule says of live segments, in their order.
pub(crate) fn choices(
    config: &Config,
    rule: DensityRule,
    head: Option<BlockNumber>,
    segments: &[Arc<LiveSegment>],
) -> Result<Vec<Choice>, Error> {
    let head = head_step(config, head);
    let facts: Vec<_> =
        segments.iter().map(|segment| facts_of(segment, head)).collect::<Result<_, Error>>()?;
    Ok(choose(rule, &facts))
}

fn head_step(config: &Config, head: Option<BlockNumber>) -> Step {
    head.map_or(Step(0), |head| config.step_len.step_of(head))
}

fn facts_of(segment: &LiveSegment, head: Step) -> Result<SegmentFacts, Error> {
    let summary = segment.summary()?;
    Ok(SegmentFacts { pages: summary.pages, ..facts_at(segment.record.steps, head, summary.entries) })
}

fn facts_at(steps: StepRange, head: Step, entries: u64) -> SegmentFacts {
    let distance = head.0.saturating_sub(steps.to().0.saturating_sub(1));
    SegmentFacts { span: steps.span(), distance, entries, pages: entries.div_ceil(FRESH_PAGE_ENTRIES) }
}

/// How a segment is to be encoded, whatever rule chooses its accessors.
///
/// By its length alone: an accessor can be rebuilt by the rule later, a `.kv` cannot, and its bytes must not depend on where
/// the head stood when it was written. With aligned merges a long segment is an old one.
fn encoding_by_span(steps: StepRange, entries: u64) -> EncodingHint {
    let facts = facts_at(steps, Step(0), entries);
    let choice = icecore_index::DensityPolicy::default().choose(&[facts]).pop();
    choice.expect("one choice per segment").encoding
}

fn choose(rule: DensityRule, facts: &[SegmentFacts]) -> Vec<Choice> {
    match rule {
        DensityRule::Recency => icecore_index::DensityPolicy::default().choose(facts),
        DensityRule::Budget { bytes } => {
            icecore_index::DensityPolicy::Budget { len_max: bytes }.choose(facts)
        }
        DensityRule::Fixed(m) => {
            let recency = icecore_index::DensityPolicy::default().choose(facts);
            recency.into_iter().map(|choice| Choice { m, filter_bits: FilterBits::Eight, ..choice }).collect()
        }
    }
}
