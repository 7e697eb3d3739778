//! What a [`Reader`] tells of blocks: see [`Changes`].

use std::ops::RangeBounds;
use std::sync::Arc;

use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::maintain::digests::check_digests;
use crate::progress::ProgressListener;
use crate::read::changes::Changes;
use crate::reader::Reader;

impl Reader {
    /// What the blocks of a range changed, in their order, each change with the value before and after.
    ///
    /// Every block that can be read has its changes, but for the lowest one of an archive that was pruned: what it changed is no longer
    /// known. A range that ends nowhere ends at the head of this moment, so the changes that came since a height can be followed:
    ///
    /// ```
    /// # use icecore::{Archive, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
    /// # let mut block = archive.begin(1)?;
    /// # block.put("accounts", b"alice", b"100")?;
    /// # block.commit()?;
    /// let reader = archive.reader();
    /// let first: Vec<_> = reader.changes(..)?.collect::<Result<_, _>>()?;
    /// assert_eq!((first[0].before.as_deref(), first[0].after.as_deref()), (None, Some(&b"100"[..])));
    /// # let mut block = archive.begin(2)?;
    /// # block.delete("accounts", b"alice")?;
    /// # block.commit()?;
    /// // Block 2 was committed. In another process: `reader.refresh()?`
    /// let next = reader.changes(2..)?.next().expect("a change")?;
    /// assert_eq!((next.before.as_deref(), next.after), (Some(&b"100"[..]), None));
    /// assert!(reader.changes(3..)?.next().is_none(), "nothing yet");
    /// # Ok::<(), icecore::Error>(())
    /// ```
    ///
    /// # Cost
    /// That of [`Changes`], as far as it is consumed.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a range that begins below the lowest block whose changes are known, ends above the head, or, without an
    /// end, begins more than one block above it: blocks were taken back then. Damage of the log, where the range reaches above what is in
    /// segments.
    pub fn changes(&self, range: impl RangeBounds<BlockNumber>) -> Result<Changes, Error> {
        Changes::new(Arc::clone(&self.shared), self.pin()?, &range)
    }

    /// Compares what each block in segments changed with the digest that was recorded with its root, to the first block that has other
    /// changes: versions that later ones hide tell nothing of a list of files that leaves some out. [`verify`](crate::verify()) does so for an
    /// archive in a directory; this is for one in a bucket, too.
    ///
    /// # Cost
    /// Reads every entry in the order of blocks: see [`Changes`].
    ///
    /// # Errors
    /// [`Error::DigestMismatch`]; [`Error::RootMissing`] for a block that changed something and has no root; damage of a file;
    /// [`Error::NotHeld`] of a partial copy.
    pub fn verify_blocks(&self, listener: &dyn ProgressListener) -> Result<(), Error> {
        check_digests(&self.shared, &self.pin()?, listener)
    }
}
