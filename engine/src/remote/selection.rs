//! Which segments a copy holds: those that a pull asks for, and those that the copy held before.
//!
//! The unit is the segment, because that is what has accessors and checksums of its own. The manifest of a partial copy is that of its
//! generation, which names every segment, with a word for each whether it is held. So heights, roots and the bounds of what is missing are
//! known, a read that needs what is missing can say so, and a copy is extended by adding files.

use std::collections::HashMap;

use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;

use crate::domain::{DomainId, NODES_NAME};
use crate::error::{Available, Error};
use crate::manifest::{FileRecord, Manifest, SegmentRecord};
use crate::options::Config;
use crate::remote::local::range_of;

/// What a pull asks for.
pub(crate) struct Selection {
    /// All where there are none.
    domains: Option<Vec<DomainId>>,
    /// Both included; all where there are none.
    blocks: Option<(BlockNumber, BlockNumber)>,
}

impl Selection {
    /// These domains of an archive, its nodes among them where they are named, all where none is, and these blocks, both included.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::Options`] for a range of no blocks; [`Error::OutOfRange`] where the archive has none of them.
    pub(crate) fn new(
        domains: &[String],
        blocks: Option<(BlockNumber, BlockNumber)>,
        archive: &Manifest,
    ) -> Result<Self, Error> {
        let domains = domains.iter().map(|name| match archive.config.nodes() {
            Some(nodes) if name == NODES_NAME => Ok(nodes),
            _ => archive.config.domain(name),
        });
        let domains: Vec<DomainId> = domains.collect::<Result<_, _>>()?;
        if let Some((from, to)) = blocks {
            if from > to {
                return Err(Error::Options {
                    field: "blocks",
                    reason: "there is no block in them".to_owned(),
                });
            }
            let available = range_of(archive).map_or(Available::Nothing, |(a, b)| Available::Blocks(a, b));
            match available {
                Available::Blocks(first, head) if from <= head && first <= to => {}
                _ => return Err(Error::OutOfRange { asked: from, available }),
            }
        }
        // With all domains come their nodes, whether they were named or not.
        let is_all = domains.is_empty() || archive.config.declared_ids().all(|(id, _)| domains.contains(&id));
        Ok(Self { domains: (!is_all).then_some(domains), blocks })
    }

    /// Whether a segment is asked for. The roots always are: opening needs them.
    pub(crate) fn wants(&self, config: &Config, record: &SegmentRecord) -> bool {
        let (first, last) = config.step_len.blocks(record.steps);
        let is_of_domains = self.domains.as_ref().is_none_or(|domains| domains.contains(&record.domain));
        let has_blocks = self.blocks.is_none_or(|(from, to)| first <= to && from <= last);
        record.domain == DomainId::ROOTS || is_of_domains && has_blocks
    }

    /// The manifest of a copy of `archive` that holds this, and every step that `former`, the manifest that the copy had, says it held.
    pub(crate) fn copy_of(&self, archive: &Manifest, former: Option<&Manifest>) -> Manifest {
        let mut copy = archive.clone();
        let of_copy = || former.into_iter().flat_map(|former| &former.segments).filter(|old| old.is_held);
        let held: HashMap<_, _> = of_copy().map(|old| ((old.domain, old.steps), old)).collect();
        for record in &mut copy.segments {
            let (domain, steps) = (record.domain, record.steps);
            let has_steps = |old: &SegmentRecord| {
                old.domain == domain && old.steps.from() < steps.to() && steps.from() < old.steps.to()
            };
            record.is_held = self.wants(&archive.config, record) || of_copy().any(has_steps);
            if let Some(old) = held.get(&(domain, steps)) {
                keep_names(record, old);
            }
        }
        copy
    }
}

/// Lets the files of a segment that a copy has keep their names, and gives others none of these: they are named, and read, until the new
/// manifest is there. Two archives give one name to different files where blocks were unwound in between.
fn keep_names(record: &mut SegmentRecord, old: &SegmentRecord) {
    // Accessors of different segments may have the same content, and differ in whose they are.
    let is_same = old.kv.summary == record.kv.summary;
    let renamed = |file: FileRecord, kind: Kind| {
        let Some(old) = old.get(kind) else { return file };
        let is_taken = old.revision == file.revision;
        let other = if is_taken { file.revision.wrapping_add(1) } else { file.revision };
        FileRecord {
            revision: if is_same && old.summary == file.summary { old.revision } else { other },
            ..file
        }
    };
    record.kv = renamed(record.kv, Kind::Segment);
    record.bt = renamed(record.bt, Kind::PivotIndex);
    record.kvei = renamed(record.kvei, Kind::ExistenceFilter);
    record.kvbi = record.kvbi.map(|file| renamed(file, Kind::BlockIndex));
}
