//! The heights of a log: they rise from block to block, and fall only where blocks are unwound.

use icecore_segments::step::BlockNumber;

use super::record::Record;

/// Follows the newest block through all records of a log, over the borders of its files.
///
/// A log begins in the midst of a chain, so anything may come first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heights {
    newest: Option<BlockNumber>,
}

impl Heights {
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
        self.newest = Some(height);
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
        self.newest = Some(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::BlockRecord;
    use super::*;

    fn block(height: BlockNumber) -> Record {
        Record::Block(BlockRecord { height, root: [0; 32], changes: Vec::new() })
    }

    fn follows(records: &[Record]) -> bool {
        let mut heights = Heights::default();
        records.iter().all(|record| heights.follow(record).is_ok())
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
}
