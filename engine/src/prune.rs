//! Prune: the versions that no block at or above a height can see are forgotten; the state at that height stays whole.
//!
//! Of the versions of a key at or below the height only the newest can still be seen, and not even that when it is a
//! deletion. The segments that reach below the height are rewritten into one per domain, in one streaming pass.

use std::sync::Arc;

use icecore_segments::step::{BlockNumber, StepRange};
use icecore_segments::{Entry, Value};

use crate::core::{Core, FileChange};
use crate::domain::{DomainId, root_height};
use crate::error::Error;
use crate::live::{LiveSegment, entries_of};
use crate::manifest::DensityRule;
use crate::observer::Observer;
use crate::options::Config;
use crate::rewrite::{pace, rewrite};
use crate::version::Version;

impl Core {
    /// Forgets what only blocks below `before` could see. Lower heights are out of range from then on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a height above the head or below the range.
    pub(crate) fn prune(&self, before: BlockNumber, observer: &dyn Observer) -> Result<(), Error> {
        let _structure = self.structure.lock();
        let version = self.version();
        version.check(before)?;
        // Between two blocks the state is that of the lower one, whose root must stay.
        let (floor, _) = version.newest_root(before)?;
        let rule = self.state.lock().manifest.rule;
        let mut change = FileChange::default();
        if let Some(floor) = version.floor_kept(&self.shared.directory.config, floor)? {
            for domain in (0..version.segments.len()).map(|index| DomainId(index as u16)) {
                self.prune_domain(&version, rule, domain, floor, observer, &mut change)?;
            }
        }
        let mut state = self.state.lock();
        // With the new manifest the roots below the floor are gone, so the block there must be durable, and readers must
        // know that it is.
        let settled = state.log.settle();
        state.poisoned(settled)?;
        self.publish(&mut state, change, |manifest, next| {
            manifest.pruned_before = manifest.pruned_before.max(before);
            next.first = next.first.max(Some(before));
        })
    }

    fn prune_domain(
        &self,
        version: &Version,
        rule: DensityRule,
        domain: DomainId,
        floor: BlockNumber,
        observer: &dyn Observer,
        change: &mut FileChange,
    ) -> Result<(), Error> {
        let directory = &self.shared.directory;
        let reaching: Vec<Arc<LiveSegment>> =
            version.domain(domain).iter().filter(|segment| segment.blocks.0 <= floor).cloned().collect();
        let (Some(first), Some(last)) = (reaching.first(), reaching.last()) else { return Ok(()) };
        let steps =
            StepRange::new(first.record.steps.from(), last.record.steps.to()).expect("segments ascend");
        let entries = entries_of(&reaching)?;
        let name = &directory.config.domains[domain.index()].name;
        observer.begin(&format!("prune {name}.{steps}"), Some(entries));
        let shape = self.shape_of_new(rule, domain, steps, entries)?;
        let inputs = reaching.iter().map(|segment| &**segment);
        let mut visible = Visible::new(domain, floor);
        let record =
            rewrite(directory, domain, inputs, steps, shape, pace(observer), |entry| visible.keeps(entry))?;
        observer.end();
        let added = record.map(|record| LiveSegment::open_new(directory, record)).transpose()?;
        change.added.extend(added.map(Arc::new));
        change.removed.extend(reaching);
        Ok(())
    }
}

impl Version {
    /// The block below which versions may go when nobody asks for states below `floor`; `None` when all must stay.
    ///
    /// With snapshots the tree is built from the newest state in segments, and what changed there since the last snapshot
    /// must be known. Unwinding to `floor` can take the whole step of `floor` out of segments, so both are those before it.
    fn floor_kept(&self, config: &Config, floor: BlockNumber) -> Result<Option<BlockNumber>, Error> {
        if config.snapshots.is_none() {
            return Ok(Some(floor));
        }
        let step = config.step_len.first_block(config.step_len.step_of(floor));
        let (Some(before), Some(emitted)) = (step.checked_sub(1), self.emitted_head) else { return Ok(None) };
        let Some((base, _)) = self.newest_block(before.min(emitted))? else { return Ok(None) };
        self.last_snapshot(config, base)
    }
}

/// Decides, entry by entry in order, what blocks at or above the floor can see.
struct Visible {
    domain: DomainId,
    floor: BlockNumber,
    /// The key whose newest version at or below the floor went by.
    settled: Option<Vec<u8>>,
}

impl Visible {
    fn new(domain: DomainId, floor: BlockNumber) -> Self {
        Self { domain, floor, settled: None }
    }

    fn keeps(&mut self, entry: &Entry<'_>) -> bool {
        if self.domain == DomainId::ROOTS {
            return root_height(entry.key).is_none_or(|height| height >= self.floor);
        }
        if entry.block > self.floor {
            return true;
        }
        if self.settled.as_deref() == Some(entry.key) {
            return false;
        }
        let settled = self.settled.get_or_insert_default();
        settled.clear();
        settled.extend_from_slice(entry.key);
        !matches!(entry.value, Value::Deletion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_floor_or_a_later_block_sees_stays() {
        let mut visible = Visible::new(DomainId(1), 10);
        let mut keeps = |key: &[u8], block, value| visible.keeps(&Entry { key, block, value });
        let value = Value::Inline(b"v");
        assert!(keeps(b"a", 12, value));
        assert!(keeps(b"a", 10, value), "the state at the floor");
        assert!(!keeps(b"a", 9, value));
        assert!(keeps(b"b", 11, Value::Deletion));
        assert!(!keeps(b"b", 10, Value::Deletion), "absent is deleted when nothing older is left");
        assert!(!keeps(b"b", 3, value));
        assert!(keeps(b"c", 1, value));
    }
}
