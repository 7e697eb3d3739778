//! What a merge, prune, unwind or reindex would do: computed from what a reader sees, without the lock of the writer.

use std::sync::Arc;

use icecore_segments::step::{BlockNumber, Step, StepRange};

use crate::domain::DomainId;
use crate::error::Error;
use crate::maintain::merge::MergeOptions;
use crate::maintain::prune::{Visible, reaching};
use crate::maintain::reindex::{ReindexPlan, ReindexRule, plan_jobs};
use crate::manifest::Manifest;
use crate::read::read_state::ReadState;
use crate::read::shared::Shared;
use crate::segment::live::{LiveSegment, entries_of};
use crate::segment::merge_plan::{Bounds, Piece, pieces, plan};
use crate::segment::rewrite::for_each_entry;
use crate::storage::directory::Directory;
use crate::storage::layout;

/// One segment that a merge, prune or unwinding would write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewritePlan {
    /// Its name: `storage.0-64`.
    pub segment: String,
    /// The names of the segments that it would replace.
    pub inputs: Vec<String>,
    /// The number of versions in the inputs.
    pub entries: u64,
    /// Bytes of `.kv` files that would be read.
    pub bytes_read: u64,
    /// Bytes of disk space needed at most before the inputs are removed, temporary files included.
    pub bytes_needed: u64,
}

/// What [`Archive::merge`](crate::Archive::merge) would do. [`Reader::plan_merge`](crate::Reader::plan_merge) makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergePlan {
    /// The segments it would write, in this order. One may be the input of a later one.
    pub merges: Vec<RewritePlan>,
    /// Bytes free on the file system; `None` where the storage does not tell.
    pub free_space: Option<u64>,
}

/// What [`Archive::prune`](crate::Archive::prune) would do. [`Reader::plan_prune`](crate::Reader::plan_prune) makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunePlan {
    /// The lowest height that could be read afterwards.
    pub floor: BlockNumber,
    /// How many blocks could no longer be read.
    pub blocks_dropped: u64,
    /// How many versions would be dropped, those of the archive's own domains left out.
    pub versions_dropped: u64,
    /// The names of the segments that would be dropped whole, before anything is written.
    pub segments_dropped: Vec<String>,
    /// The segments it would write, one after another.
    pub rewrites: Vec<RewritePlan>,
    /// Bytes free on the file system; `None` where the storage does not tell.
    pub free_space: Option<u64>,
}

/// What [`Archive::unwind`](crate::Archive::unwind) would do. [`Reader::plan_unwind`](crate::Reader::plan_unwind) makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnwindPlan {
    /// The head now.
    pub head: BlockNumber,
    /// The head afterwards.
    pub new_head: BlockNumber,
    /// How many blocks would be taken back.
    pub blocks_dropped: u64,
    /// How many of them are in segments already. Where there are any, segments are rewritten; else one log record does it.
    pub emitted_blocks_dropped: u64,
    /// The names of the segments that would be dropped whole.
    pub segments_dropped: Vec<String>,
    /// The segments that would be rewritten without the blocks taken back.
    pub rewrites: Vec<RewritePlan>,
    /// Bytes free on the file system; `None` where the storage does not tell.
    pub free_space: Option<u64>,
}

/// What [`Archive::merge`](crate::Archive::merge) would do now.
pub(crate) fn plan_merge(shared: &Shared, options: &MergeOptions) -> Result<MergePlan, Error> {
    let (version, directory) = (shared.read_state(), &shared.directory);
    version.check_head()?;
    check_whole(shared)?;
    let only = options.domain.as_deref().map(|name| directory.config.domain(name)).transpose()?;
    let emitted_to = manifest(shared)?.emitted_to;
    let (from, span_max, room) = (Step(0), options.span_max, u64::MAX);
    let bounds = Bounds { from, emitted_to, span_max, room };
    let mut merges = Vec::new();
    for domain in domains(&version).filter(|domain| only.is_none_or(|only| only == *domain)) {
        let mut planned: Vec<(Piece, RewritePlan)> = version
            .domain(domain)
            .iter()
            .map(|segment| {
                let plan = rewrite_plan(directory, segment.record.steps, &[Arc::clone(segment)])?;
                Ok((Piece::of(segment, &directory.config), plan))
            })
            .collect::<Result<_, Error>>()?;
        loop {
            let at_hand: Vec<Piece> = planned.iter().map(|(piece, _)| *piece).collect();
            let Some(next) = plan(&at_hand, bounds) else { break };
            let at = at_hand.partition_point(|piece| piece.steps.from() < next.range.from());
            let inputs: Vec<_> = planned.drain(at..at + next.inputs).collect();
            let merge = RewritePlan {
                segment: layout::segment_stem(directory.config.name(domain), next.range),
                inputs: inputs.iter().map(|(_, plan)| plan.segment.clone()).collect(),
                entries: inputs.iter().map(|(_, plan)| plan.entries).sum(),
                bytes_read: inputs.iter().map(|(_, plan)| plan.bytes_read).sum(),
                bytes_needed: next.bytes,
            };
            let merged: Vec<Piece> = inputs.iter().map(|(piece, _)| *piece).collect();
            planned.insert(at, (Piece::merged(&merged, next.range), merge.clone()));
            merges.push(merge);
        }
    }
    Ok(MergePlan { merges, free_space: directory.storage.free_space(&directory.path)? })
}

/// What [`Archive::prune`](crate::Archive::prune) would do now.
pub(crate) fn plan_prune(shared: &Shared, before: BlockNumber) -> Result<PrunePlan, Error> {
    let (version, directory) = (shared.read_state(), &shared.directory);
    version.check_head()?;
    check_whole(shared)?;
    version.check(before)?;
    let (floor, _) = version.newest_root(before)?;
    let first = version.first.unwrap_or(floor);
    let blocks_dropped = floor.checked_sub(1).map_or(Ok(0), |last| version.count_blocks(first, last))?;
    let free_space = directory.storage.free_space(&directory.path)?;
    let (segments_dropped, rewrites) = (Vec::new(), Vec::new());
    let mut plan =
        PrunePlan { floor, blocks_dropped, versions_dropped: 0, segments_dropped, rewrites, free_space };
    let Some(kept) = version.floor_kept(&directory.config, floor)? else { return Ok(plan) };
    for domain in domains(&version) {
        let (dropped, rewritten): (Vec<_>, Vec<_>) = reaching(&version, domain, kept)
            .into_iter()
            .partition(|segment| domain == DomainId::ROOTS && segment.blocks.1 < kept);
        plan.segments_dropped.extend(dropped.iter().map(|segment| segment.record.stem(&directory.config)));
        let is_own = domain == DomainId::ROOTS || Some(domain) == directory.config.nodes();
        let mut visible = Visible::new(domain, kept);
        let mut shrunk = vec![false; rewritten.len()];
        for_each_entry(directory, rewritten.iter().map(|segment| &**segment), |entry| {
            if !visible.keeps(entry) {
                plan.versions_dropped += u64::from(!is_own);
                let at = rewritten.partition_point(|segment| segment.blocks.1 < entry.block);
                shrunk.get_mut(at).into_iter().for_each(|shrunk| *shrunk = true);
            }
            Ok(true)
        })?;
        for at in (0..rewritten.len()).filter(|at| shrunk[*at]) {
            let steps = rewritten[at].record.steps;
            let rewrite = rewrite_plan(directory, steps, &rewritten[at..=at])?;
            let bytes_read = rewritten[at..].iter().map(|segment| segment.record.kv.summary.len).sum();
            plan.rewrites.push(RewritePlan { bytes_read, ..rewrite });
        }
    }
    Ok(plan)
}

/// What [`Archive::unwind`](crate::Archive::unwind) would do now.
pub(crate) fn plan_unwind(shared: &Shared, to: BlockNumber) -> Result<UnwindPlan, Error> {
    let (version, directory) = (shared.read_state(), &shared.directory);
    version.check_head()?;
    check_whole(shared)?;
    version.check(to)?;
    let (to, _) = version.newest_root(to)?;
    let head = version.head.unwrap_or(to);
    let emitted = version.emitted_head.unwrap_or(0);
    let mut plan = UnwindPlan {
        head,
        new_head: to,
        blocks_dropped: version.count_blocks(to.saturating_add(1), head)?,
        emitted_blocks_dropped: version.count_blocks(to.saturating_add(1), emitted)?,
        segments_dropped: Vec::new(),
        rewrites: Vec::new(),
        free_space: directory.storage.free_space(&directory.path)?,
    };
    if plan.emitted_blocks_dropped == 0 {
        return Ok(plan);
    }
    let boundary = directory.config.step_len.step_of(to);
    for segment in version.all_segments().filter(|segment| segment.record.steps.to() > boundary) {
        match StepRange::new(segment.record.steps.from(), boundary) {
            Some(steps) => plan.rewrites.push(rewrite_plan(directory, steps, &[Arc::clone(segment)])?),
            None => plan.segments_dropped.push(segment.record.stem(&directory.config)),
        }
    }
    Ok(plan)
}

/// What [`Archive::reindex`](crate::Archive::reindex) would do now.
pub(crate) fn plan_reindex(
    shared: &Shared,
    rule: ReindexRule,
    domain: Option<&str>,
) -> Result<Vec<ReindexPlan>, Error> {
    let version = shared.read_state();
    version.check_head()?;
    check_whole(shared)?;
    plan_jobs(&shared.directory, &version, manifest(shared)?.rule, rule, domain)
}

/// A partial copy cannot be opened for writing, so nothing is planned there.
fn check_whole(shared: &Shared) -> Result<(), Error> {
    manifest(shared)?.check_whole(&shared.directory.path)
}

fn manifest(shared: &Shared) -> Result<Manifest, Error> {
    let directory = &shared.directory;
    Manifest::load(&*directory.storage, &directory.path)
}

fn domains(version: &ReadState) -> impl Iterator<Item = DomainId> {
    (0..version.segments.len()).map(|index| DomainId(index as u16))
}

fn rewrite_plan(
    directory: &Directory,
    steps: StepRange,
    inputs: &[Arc<LiveSegment>],
) -> Result<RewritePlan, Error> {
    let domain = inputs.first().map_or(DomainId::ROOTS, |input| input.record.domain);
    Ok(RewritePlan {
        segment: layout::segment_stem(directory.config.name(domain), steps),
        inputs: inputs.iter().map(|input| input.record.stem(&directory.config)).collect(),
        entries: entries_of(inputs)?,
        bytes_read: inputs.iter().map(|input| input.record.kv.summary.len).sum(),
        bytes_needed: Piece::merged(&pieces(inputs, &directory.config), steps).room(),
    })
}
