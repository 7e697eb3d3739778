//! A block on its way in: its changes are collected here, and [`commit`](crate::write::commit) takes them.

use std::fmt;
use std::sync::atomic::Ordering;

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;
use icecore_segments::{KEY_LEN_MAX, VALUE_LEN_MAX};

use crate::domain::DomainId;
use crate::error::Error;
use crate::handle::{AsDomain, with_stored_key};
use crate::maintain::background::maintain_inline;
use crate::maintain::backpressure::wait_for_files;
use crate::write::changes::BlockChanges;
use crate::write::compare::Comparison;
use crate::write::writer::Writer;

/// A block on its way in: changes are collected in memory and take effect together at [`BlockWriter::commit`]. Dropping it without a
/// commit leaves no trace. [`Archive::begin`](crate::Archive::begin) makes one.
pub struct BlockWriter<'a> {
    pub(crate) writer: &'a Writer,
    height: BlockNumber,
    /// How many unwindings there had been when the block was begun.
    unwinds: u64,
    changes: BlockChanges,
    /// The root that the block must give.
    expected: Option<Root>,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(writer: &'a Writer, height: BlockNumber) -> Self {
        let unwinds = writer.unwinds.load(Ordering::Relaxed);
        Self { writer, height, unwinds, changes: writer.spare_buffers.take(), expected: None }
    }

    /// The height of the block.
    pub fn height(&self) -> BlockNumber {
        self.height
    }

    /// Sets the value of a key. The last write or deletion of a key in a block wins. An empty value is a value.
    ///
    /// # Cost
    /// Copies key and value into the memory of this block.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`] where the domain fixes another length; [`Error::TooLarge`] for a key over
    /// [`KEY_LEN_MAX`] (1024) bytes, 1016 in a domain [by path](crate::Domain::by_path), or a value over [`VALUE_LEN_MAX`] (1 GiB). The
    /// block stays as it was.
    pub fn put<D: AsDomain + ?Sized>(&mut self, domain: &D, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.push(domain, key, Some(value))
    }

    /// Deletes a key. Deleting an absent key is recorded as a version too, and [`View::history`](crate::View::history) shows it.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; [`Error::TooLarge`] for a key over [`KEY_LEN_MAX`] (1024) bytes.
    pub fn delete<D: AsDomain + ?Sized>(&mut self, domain: &D, key: &[u8]) -> Result<(), Error> {
        self.push(domain, key, None)
    }

    fn push<D: AsDomain + ?Sized>(
        &mut self,
        domain: &D,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Error> {
        check_len("key", key, KEY_LEN_MAX as u64)?;
        check_len("value", value.unwrap_or_default(), VALUE_LEN_MAX)?;
        with_stored_key(&self.writer.shared.directory.config, domain, key, |domain, stored| {
            let head = stored.len().saturating_sub(key.len());
            check_len("key", key, (KEY_LEN_MAX - head) as u64)?;
            self.changes.push(domain, stored, value);
            Ok(())
        })
    }

    /// Deletes a key that is given in the form in which it is stored.
    pub(crate) fn delete_stored(&mut self, domain: DomainId, key: &[u8]) {
        self.changes.push(domain, key, None);
    }

    /// Has [`BlockWriter::commit`] refuse the block where the state after it has another root, that of a header, say, and
    /// [`BlockWriter::compare`] where the block that is there has another one.
    pub fn expect_root(&mut self, root: Root) {
        self.expected = Some(root);
    }

    /// Commits the block and returns the root of the state after it. Readers of this process see it when this returns.
    ///
    /// `Ok` means committed and nothing else. Maintenance that follows inside the call and fails is reported by
    /// [`Stats::failures`](crate::Stats::failures); later commits and [`Archive::maintain`](crate::Archive::maintain) try it again.
    ///
    /// # Cost
    /// One append to the log, and one sync unless [`Durability`](crate::Durability) says otherwise; the Merkle tree hashes what changed and the path
    /// above it. The first commit after opening builds the tree from the whole latest state. With
    /// [`Maintenance::Inline`](crate::Maintenance::Inline) a step that becomes ready is emitted and merged before this returns.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] when the log failed: the block is committed or it is not, the archive refuses writes, and the
    /// head after reopening tells which.
    ///
    /// After any other error the block was not committed, and no later opening shows it. Begin it again, unless
    /// [`Archive::is_poisoned`](crate::Archive::is_poisoned):
    /// - [`Error::NotRising`] when another block was committed first;
    /// - [`Error::StaleBlock`] when blocks were unwound since this one was begun;
    /// - [`Error::UnexpectedRoot`] when the root is not the one that [`BlockWriter::expect_root`] was given;
    /// - [`Error::NoState`] when the changes are none of a state that the commitment of the archive is of;
    /// - [`Error::TooLarge`] for a block over 4 GiB;
    /// - [`Error::HeldUp`] when complete steps pile up in memory because files cannot be written.
    ///
    /// # Durability
    /// As [`Durability`](crate::Durability) says. In every mode the block survives the death of this process.
    pub fn commit(self) -> Result<Root, Error> {
        wait_for_files(self.writer)?;
        let root = self.writer.commit(self.height, self.unwinds, &self.changes.by_domain(), self.expected)?;
        maintain_inline(self.writer);
        Ok(root)
    }

    /// Compares this block with the one that the archive holds at its height. Commits nothing; an import that is given blocks
    /// again passes over those that are [`Comparison::Same`]. [`Archive::draft`](crate::Archive::draft) makes a block at a height
    /// that is taken.
    ///
    /// # Cost
    /// One lookup of the root and one hash over the changes where the blocks are the same. Where they differ, a lookup per
    /// change; where those find nothing, one pass over the segments that hold the block.
    ///
    /// # Errors
    /// Damage of a file that is read; [`Error::DigestMismatch`] where what the archive holds contradicts itself;
    /// [`Error::UnexpectedRoot`] when the block is the same and its root is not the one that [`BlockWriter::expect_root`] was given.
    pub fn compare(&self) -> Result<Comparison, Error> {
        let compared = self.writer.compare(self.height, &self.changes.by_domain())?;
        if let (Comparison::Same | Comparison::Contained, Some(expected)) = (&compared, self.expected) {
            let found = self.writer.read_state().root(self.height)?;
            if found != expected {
                let (expected, found) = (expected.to_string(), found.to_string());
                return Err(Error::UnexpectedRoot { block: self.height, expected, found });
            }
        }
        Ok(compared)
    }
}

impl Drop for BlockWriter<'_> {
    fn drop(&mut self) {
        self.writer.spare_buffers.keep(std::mem::take(&mut self.changes));
    }
}

fn check_len(what: &'static str, bytes: &[u8], max: u64) -> Result<(), Error> {
    let len = bytes.len() as u64;
    if len > max { Err(Error::TooLarge { what, len, max }) } else { Ok(()) }
}

impl fmt::Debug for BlockWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self.changes.len();
        f.debug_struct("BlockWriter")
            .field("height", &self.height)
            .field("changes", &changes)
            .finish_non_exhaustive()
    }
}
