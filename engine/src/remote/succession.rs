//! Whether what a push is about to publish goes on from the newest generation: blocks that were published stay what they are.
//!
//! The roots of both sides are compared. What the manifests alone show costs nothing; where segments of roots were merged here or there, the
//! local rows are built into the file that they would be, in memory of one page. Only where that is another file is the published one
//! read: it says which block differs.

use std::io;
use std::ops::RangeInclusive;

use icecore_segments::checksum::Checksum;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;
use icecore_segments::{EncodingRule, Entry, FileBytes, Segment, SegmentBuilder, Value};

use crate::domain::{DomainId, ROOTS_NAME, RootRow, root_key};
use crate::error::Error;
use crate::manifest::Manifest;
use crate::remote::bucket::Bucket;
use crate::remote::local::{LocalArchive, range_of};
use crate::remote::manifest::{RemoteFile, RemoteManifest};
use crate::remote::transfer::{ContentCheck, read_from};
use crate::remote_error::RemoteError;
use crate::segment::live::LiveSegment;

/// What of the newest generation may not be in the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MayGo {
    /// Every block stays what it is.
    Nothing,
    /// Blocks below the first of the archive.
    Pruned,
    /// Any block.
    Anything,
}

impl MayGo {
    /// The same, with leave for `what` given or taken back.
    pub(super) fn with(self, what: Self, is_allowed: bool) -> Self {
        match is_allowed {
            true => self.max(what),
            false if self == what => Self::Nothing,
            false => self,
        }
    }
}

/// Refuses to replace another archive, or a newer state of this one.
///
/// # Errors
/// [`RemoteError::OtherArchive`], [`RemoteError::Behind`].
pub(super) fn check_archive(
    bucket: &Bucket,
    theirs: &Manifest,
    ours: &Manifest,
    may_go: MayGo,
) -> Result<(), RemoteError> {
    let url = || bucket.store.url().to_owned();
    if theirs.config.id != ours.config.id {
        return Err(RemoteError::OtherArchive { bucket: url(), archive: bucket.archive.clone() });
    }
    if theirs.emitted_to > ours.emitted_to && may_go < MayGo::Anything {
        let (theirs, ours) = (theirs.emitted_to.0, ours.emitted_to.0);
        return Err(RemoteError::Behind { bucket: url(), theirs, ours });
    }
    Ok(())
}

/// Refuses a push that replaces blocks of the newest generation, or leaves the first of them out, unless the options allow it.
///
/// # Errors
/// [`RemoteError::Pruned`], [`RemoteError::Diverged`]; those of reading segments of roots.
pub(super) fn check_blocks(
    bucket: &Bucket,
    theirs: &RemoteManifest,
    local: &LocalArchive,
    may_go: MayGo,
) -> Result<(), Error> {
    let (published, ours) = (range_of(&theirs.archive), range_of(&local.manifest));
    let (Some(published), Some(ours), false) = (published, ours, may_go == MayGo::Anything) else {
        return Ok(());
    };
    let url = || bucket.store.url().to_owned();
    if ours.0 > published.0 && may_go < MayGo::Pruned {
        return Err(RemoteError::Pruned { bucket: url(), theirs: published.0, ours: ours.0 }.into());
    }
    let common = ours.0.max(published.0)..=published.1;
    let of_roots =
        |file: &RemoteFile<'_>| file.record.domain == DomainId::ROOTS && file.kind == Kind::Segment;
    // Blocks that the newest generation has no segment of roots for are no blocks of it.
    let mut next = *common.start();
    for file in theirs.files().filter(of_roots) {
        let (from, to) = local.manifest.config.step_len.blocks(file.record.steps);
        let added = if next < from { first_root(local, &(next..=from - 1))? } else { None };
        next = next.max(to.saturating_add(1));
        let is_same = || {
            Ok::<_, Error>(
                local.has_content(file.record)
                    || content_of(local, &file, published.1)? == file.record.kv.summary.content,
            )
        };
        let other = match added {
            None if is_same()? => None,
            None => first_difference(bucket, local, &file, &common)?,
            added => added,
        };
        if let Some(block) = other {
            return Err(RemoteError::Diverged { bucket: url(), block }.into());
        }
    }
    Ok(())
}

/// The lowest of some heights that has a block here.
fn first_root(
    local: &LocalArchive,
    heights: &RangeInclusive<BlockNumber>,
) -> Result<Option<BlockNumber>, Error> {
    let mut first = None;
    for_each_root(local, heights, |entry| {
        first = first.or(Some(entry.block));
        Ok(())
    })?;
    Ok(first)
}

/// What the file of roots would hash to that has the steps of `file` and the local blocks up to `last`: a file is a function of its entries.
fn content_of(local: &LocalArchive, file: &RemoteFile<'_>, last: BlockNumber) -> Result<Checksum, Error> {
    let (steps, rule) = (file.record.steps, EncodingRule::Plain);
    let told = |source| Error::File { path: file.record.stem(&local.manifest.config).into(), source };
    let mut builder = SegmentBuilder::new(io::sink(), ROOTS_NAME, steps, rule, ()).map_err(told)?;
    let (from, to) = local.manifest.config.step_len.blocks(steps);
    for_each_root(local, &(from..=to.min(last)), |entry| builder.push(entry).map(drop).map_err(told))?;
    let (summary, ..) = builder.finish().map_err(told)?;
    Ok(summary.file.content)
}

/// The lowest height inside `common` that has another block there than here, or a block on one side only.
fn first_difference(
    bucket: &Bucket,
    local: &LocalArchive,
    file: &RemoteFile<'_>,
    common: &RangeInclusive<BlockNumber>,
) -> Result<Option<BlockNumber>, Error> {
    let name = file.object();
    let damaged = |reason| RemoteError::Damaged { object: bucket.store.shown(&name), reason };
    let (mut bytes, mut check) = (Vec::new(), ContentCheck::new(file.len()));
    read_from(&bucket.store, &name, 0, file.len(), |some| {
        bytes.extend_from_slice(some);
        check.update(some);
        Ok(())
    })?;
    if !check.holds(file) {
        return Err(damaged("its bytes are not those that the generation names").into());
    }
    let (from, to) = local.manifest.config.step_len.blocks(file.record.steps);
    let heights = from.max(*common.start())..=to.min(*common.end());
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let segment = Segment::open(bytes);
    let read = segment.and_then(|segment| for_each_in(&segment, &heights, |entry| keep(&mut theirs, &entry)));
    read.map_err(|_| damaged("it is no segment of roots"))?;
    for_each_root(local, &heights, |entry| {
        keep(&mut ours, &entry);
        Ok(())
    })?;
    let both = theirs.iter().zip(&ours);
    let same = both.take_while(|(theirs, ours)| theirs == ours).count();
    Ok([theirs.get(same), ours.get(same)].into_iter().flatten().map(|(height, _)| *height).min())
}

/// A block and its root, where an entry is one of roots.
fn keep(rows: &mut Vec<(BlockNumber, Option<RootRow>)>, entry: &Entry<'_>) {
    let value = match entry.value {
        Value::Inline(value) => RootRow::decode(value),
        Value::Deletion | Value::Overflow(_) => None,
    };
    rows.push((entry.block, value));
}

/// Shows the local roots of some heights, ascending.
fn for_each_root(
    local: &LocalArchive,
    heights: &RangeInclusive<BlockNumber>,
    mut show: impl FnMut(Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let has_some =
        |segment: &&LiveSegment| segment.blocks.0 <= *heights.end() && *heights.start() <= segment.blocks.1;
    for segment in local.segments(DomainId::ROOTS).filter(has_some) {
        let kv = segment.kv.get()?;
        let mut shown = Ok(());
        let read = for_each_in(kv.view(), heights, |entry| {
            if shown.is_ok() {
                shown = show(entry);
            }
        });
        read.map_err(|error| kv.error(error))?;
        shown?;
    }
    Ok(())
}

/// Shows the roots of some heights that a segment has.
fn for_each_in<D: FileBytes>(
    segment: &Segment<D>,
    heights: &RangeInclusive<BlockNumber>,
    mut show: impl FnMut(Entry<'_>),
) -> Result<(), icecore_segments::Error> {
    let mut cursor = segment.cursor();
    cursor.seek(&root_key(*heights.start()), BlockNumber::MAX)?;
    while let Some(entry) = cursor.entry().filter(|entry| entry.block <= *heights.end()) {
        show(entry);
        cursor.next()?;
    }
    Ok(())
}
