//! What an [`Archive`] of Ethereum does about its rows: see [`maintain::rows`](crate::maintain::rows).

use crate::archive::Archive;
use crate::error::Error;
use crate::ethereum;
use crate::maintain::rows::{PIECE_BYTES, RowsReport, RowsRule, build_rows};
use crate::progress::ProgressListener;

impl Archive {
    /// Gives an archive of [Ethereum](crate::Commitment::Ethereum) that was made without rows the rows of all its blocks, and keeps them from
    /// then on: afterwards proofs at past blocks read some pages, as if [`Options::keep_rows`](crate::Options::keep_rows) had been on from the
    /// beginning. One that has them is left as it is, or with [`RowsRule::Again`] gets them anew.
    ///
    /// Every block that can be read gets rows; of a pruned archive the state at its lowest block is where they begin. Blocks that are not in
    /// segments yet have theirs when the writer builds its tree. Reads, proofs and commits go on meanwhile; proofs are fast where the
    /// work has come by.
    ///
    /// # Atomicity
    /// Rows come in pieces of a step or more, each published by itself. After an error or a crash the archive answers and proves as
    /// before, and the same call goes on after the last piece.
    ///
    /// # Cost
    /// Every block is applied again to a trie of the whole state, about 110 bytes of memory for each account and slot, and the changes of
    /// one step. What is written takes about 40 bytes of disk for each account or slot that a block changes.
    ///
    /// # Errors
    /// [`Error::Commitment`] in archives that are not for Ethereum; [`Error::RootMismatch`] at the first block whose changes do not give the
    /// root that was recorded; damage of a file that is read; a write that fails; [`Error::Poisoned`].
    ///
    /// # Durability
    /// When this returns `Ok` the rows, and that they are kept, survive a power loss.
    pub fn build_rows(&self, rule: RowsRule, listener: &dyn ProgressListener) -> Result<RowsReport, Error> {
        ethereum::check(&self.writer.shared.directory.config, "rows of tries")?;
        build_rows(&self.writer, rule, PIECE_BYTES, listener)
    }
}
