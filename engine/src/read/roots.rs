//! What the domain `_roots` knows: which blocks there are, their roots, and which of them are snapshots.

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;

use crate::domain::{DomainId, RootRow, root_height, root_key};
use crate::error::Error;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;

impl ReadState {
    /// The newest block at or below `at` and its root.
    pub(crate) fn newest_root(&self, at: BlockNumber) -> Result<(BlockNumber, Root), Error> {
        self.newest_block(at)?.ok_or_else(|| self.check(at).err().unwrap_or(Error::RootMissing { block: at }))
    }

    /// The same, `None` where there is none.
    pub(crate) fn newest_block(&self, at: BlockNumber) -> Result<Option<(BlockNumber, Root)>, Error> {
        if let Some((height, root)) = self.log.as_ref().and_then(|log| log.newest_block(at)) {
            return Ok(Some((height, Root(root))));
        }
        let scan = Scan::all().to_included(&root_key(at)).backward();
        let newest = MergeScan::new(self, DomainId::ROOTS, &scan, at)?.next().transpose()?;
        Ok(newest.and_then(|(key, value)| Some((root_height(&key)?, RootRow::decode(&value)?.root))))
    }

    pub(crate) fn root(&self, at: BlockNumber) -> Result<Root, Error> {
        self.newest_root(at).map(|(_, root)| root)
    }

    /// The last snapshot at or below a block: without snapshots none.
    pub(crate) fn last_snapshot(
        &self,
        config: &Config,
        at: BlockNumber,
    ) -> Result<Option<BlockNumber>, Error> {
        let Some(snapshots) = config.snapshots else { return Ok(None) };
        let scan = Scan::all().from(&root_key(snapshots.last_from(at)));
        let first = MergeScan::new(self, DomainId::ROOTS, &scan, at)?.next().transpose()?;
        let height = first.and_then(|(key, _)| root_height(&key));
        height.map(Some).ok_or(Error::RootMissing { block: at })
    }

    /// Compares a root that the state gave with the one that was recorded.
    pub(crate) fn check_root(&self, at: BlockNumber, found: Root) -> Result<(), Error> {
        let (block, expected) = self.newest_root(at)?;
        if expected == found {
            return Ok(());
        }
        Err(Error::RootMismatch { block, expected: expected.to_string(), found: found.to_string() })
    }

    /// How many blocks there are from a height to another, both inside.
    pub(crate) fn count_blocks(&self, from: BlockNumber, to: BlockNumber) -> Result<u64, Error> {
        if to < from {
            return Ok(0);
        }
        let scan = Scan::all().from(&root_key(from)).to_included(&root_key(to));
        let mut blocks = 0;
        for root in MergeScan::new(self, DomainId::ROOTS, &scan, to)? {
            root?;
            blocks += 1;
        }
        Ok(blocks)
    }

    /// The block below which versions may go when nobody asks for states below `floor`; `None` when all must stay.
    ///
    /// Where nodes are kept the tree is built from the newest state in segments, whose root must be known and with snapshots what
    /// changed since the last of them. Unwinding to `floor` can take the whole step of `floor` out of segments, so that state is the
    /// one before it.
    pub(crate) fn floor_kept(
        &self,
        config: &Config,
        floor: BlockNumber,
    ) -> Result<Option<BlockNumber>, Error> {
        if !config.keeps_nodes() {
            return Ok(Some(floor));
        }
        let step = config.step_len.first_block(config.step_len.step_of(floor));
        let (Some(before), Some(emitted)) = (step.checked_sub(1), self.emitted_head) else { return Ok(None) };
        let Some((base, _)) = self.newest_block(before.min(emitted))? else { return Ok(None) };
        if config.snapshots.is_none() { Ok(Some(base)) } else { self.last_snapshot(config, base) }
    }
}
