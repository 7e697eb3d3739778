//! The heights of a log: they rise from block to block, and fall only where blocks are unwound.

use icecore_segments::step::{BlockNumber, Step};

use super::record::Record;
use crate::steps::StepLen;

/// Follows the newest block through all records of a log, over the boundaries of its files.
///
/// A log begins in the midst of a chain, so anything may come first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heights {
    newest: Option<BlockNumber>,
    step_len: StepLen,
    emitted_to: Step,
    /// The newest of the emitted blocks that the log still tells of: replay leaves them to segments.
    emitted: Option<BlockNumber>,
}

impl Heights {
    /// Before the first record of the log of an archive whose steps before `emitted_to` are in segments.
    pub(crate) fn new(step_len: StepLen, emitted_to: Step) -> Self {
        Self { newest: None, step_len, emitted_to, emitted: None }
    }

    /// The boundary moved, as it does for who follows a log: `newest` is the newest block before it in the log so far.
    pub(crate) fn emit_to(&mut self, emitted_to: Step, newest: Option<BlockNumber>) {
        self.emitted_to = emitted_to;
        self.emitted = self.emitted.max(newest);
    }

    /// Whether segments hold every block that the log leaves to them, of which `emitted_head` is the newest. `head` is that of the
    /// archive after replay: without any block, no step was emitted.
    ///
    /// # Errors
    /// What does not agree. The manifest says too much.
    pub(crate) fn check_emitted(
        &self,
        emitted_head: Option<BlockNumber>,
        head: Option<BlockNumber>,
    ) -> Result<(), &'static str> {
        if self.emitted > emitted_head {
            return Err("a block of a step that is said to be in segments is in none");
        }
        if head.is_none() && self.emitted_to > Step(0) {
            return Err("steps are said to be in segments and there is no block");
        }
        Ok(())
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// Why no writer appended it to those before it.
    pub(crate) fn follow(&mut self, record: &Record) -> Result<(), &'static str> {
        match record {
            Record::Block(block) => self.rise(block.height),
            Record::Unwind { to } => self.fall(*to),
        }
    }

    /// Takes a block at a height.
    ///
    /// # Errors
    /// As those of [`Self::follow`].
    pub(crate) fn rise(&mut self, height: BlockNumber) -> Result<(), &'static str> {
        if self.newest.is_some_and(|newest| height <= newest) {
            return Err("a block does not rise above the one before it");
        }
        self.stand_at(height);
        Ok(())
    }

    /// Takes an unwinding to a height.
    ///
    /// # Errors
    /// As those of [`Self::follow`].
    pub(crate) fn fall(&mut self, to: BlockNumber) -> Result<(), &'static str> {
        if self.newest.is_some_and(|newest| to >= newest) {
            return Err("an unwind to a block that is not below the newest");
        }
        self.stand_at(to);
        Ok(())
    }

    fn stand_at(&mut self, newest: BlockNumber) {
        self.newest = Some(newest);
        if self.step_len.step_of(newest) < self.emitted_to {
            self.emitted = Some(newest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::record::BlockRecord;
    use super::*;

    fn block(height: BlockNumber) -> Record {
        Record::Block(BlockRecord { height, root: [0; 32], changes: Vec::new() })
    }

    /// In steps of ten, of which the first two were emitted.
    fn follow(records: &[Record]) -> Option<Heights> {
        let mut heights = Heights::new(StepLen(NonZeroU64::new(10).unwrap()), Step(2));
        records.iter().all(|record| heights.follow(record).is_ok()).then_some(heights)
    }

    fn follows(records: &[Record]) -> bool {
        follow(records).is_some()
    }

    #[test]
    fn heights_rise_but_for_unwinds() {
        let unwind = |to| Record::Unwind { to };
        assert!(follows(&[block(3), block(5), unwind(3), block(4)]));
        assert!(follows(&[unwind(7), block(8)]), "what was before the log is not known");
        assert!(follows(&[block(3), block(9), unwind(1), unwind(0), block(1)]));
        for bad in [[block(3), block(3)], [block(3), block(2)], [block(3), unwind(3)], [unwind(4), block(4)]]
        {
            assert!(!follows(&bad), "{bad:?}");
        }
    }

    #[test]
    fn the_newest_emitted_block_is_one_that_was_not_unwound() {
        let unwind = |to| Record::Unwind { to };
        let emitted = |records: &[Record]| follow(records).unwrap().emitted;
        assert_eq!(emitted(&[block(20), block(35)]), None);
        assert_eq!(emitted(&[block(3), block(19), block(20)]), Some(19));
        assert_eq!(emitted(&[block(3), block(19), block(25), unwind(20)]), Some(19));
        assert_eq!(emitted(&[block(3), block(19), block(25), unwind(3), block(30)]), Some(3));
        assert_eq!(emitted(&[block(25), unwind(12), block(21)]), Some(12));
    }

    #[test]
    fn a_block_that_is_in_no_segment_is_missed() {
        let check = |records: &[Record], emitted_head, head| {
            follow(records).unwrap().check_emitted(emitted_head, head).is_ok()
        };
        assert!(check(&[block(19), block(25)], Some(19), Some(25)));
        assert!(check(&[block(25)], Some(7), Some(25)));
        assert!(!check(&[block(19), block(25)], Some(18), Some(25)));
        assert!(!check(&[block(19), block(25)], None, Some(25)));
        assert!(check(&[block(25)], None, Some(25)), "after unwinding to the first step with a block");
        assert!(!check(&[], None, None));
    }
}
