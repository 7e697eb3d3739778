//! A block on its way in: its changes are gathered here, and [`commit`](crate::write::commit) takes them.

use std::fmt;

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;
use icecore_segments::{KEY_LEN_MAX, VALUE_LEN_MAX};

use crate::domain::DomainId;
use crate::error::Error;
use crate::handle::{AsDomain, id_for_keys};
use crate::maintain::background::maintain_inline;
use crate::maintain::backpressure::wait_for_files;
use crate::memtable::key_order::sort_by_key_bytes;
use crate::wal::ChangeRef;
use crate::write::compare::Comparison;
use crate::write::writer::Writer;

/// One change: its key and after it its value, among the bytes of the block.
#[derive(Clone, Copy)]
struct Pending {
    from: usize,
    value_len: Option<u32>,
    key_len: u16,
    domain: DomainId,
}

impl Pending {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.from..][..usize::from(self.key_len)]
    }

    fn value(self, bytes: &[u8]) -> Option<&[u8]> {
        self.value_len.map(|len| &bytes[self.from + usize::from(self.key_len)..][..len as usize])
    }
}

/// The block being written. Dropping it without [`BlockWriter::commit`] leaves no trace.
pub struct BlockWriter<'a> {
    pub(crate) writer: &'a Writer,
    height: BlockNumber,
    bytes: Vec<u8>,
    changes: Vec<Pending>,
}

/// The buffers of a block that is gone, for the next one: they are large enough that the system would clear their pages anew.
#[derive(Default)]
pub(crate) struct BlockBuffers {
    bytes: Vec<u8>,
    changes: Vec<Pending>,
}

/// Buffers that grew larger are given back.
const BUFFERS_KEPT: usize = 1 << 20;

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(writer: &'a Writer, height: BlockNumber) -> Self {
        let BlockBuffers { bytes, changes } = std::mem::take(&mut *writer.spare_buffers.lock());
        Self { writer, height, bytes, changes }
    }

    /// The height of the block.
    pub fn height(&self) -> BlockNumber {
        self.height
    }

    /// Writes a key. The last write or deletion of a key in a block wins.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; [`Error::TooLarge`] for a key over 1024 bytes or a value over 1 GiB.
    pub fn put<D: AsDomain + ?Sized>(&mut self, domain: &D, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.push(domain, key, Some(value))
    }

    /// Deletes a key. Deleting a key that is absent is recorded as a version too.
    pub fn delete<D: AsDomain + ?Sized>(&mut self, domain: &D, key: &[u8]) -> Result<(), Error> {
        self.push(domain, key, None)
    }

    fn push<D: AsDomain + ?Sized>(
        &mut self,
        domain: &D,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Error> {
        let domain = id_for_keys(&self.writer.shared.directory.config, domain, [key])?;
        check_len("key", key, KEY_LEN_MAX as u64)?;
        check_len("value", value.unwrap_or_default(), VALUE_LEN_MAX)?;
        let (from, value_len) = (self.bytes.len(), value.map(|value| value.len() as u32));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.changes.push(Pending { from, value_len, key_len: key.len() as u16, domain });
        Ok(())
    }

    /// Commits the block and returns the root of the state after it.
    ///
    /// `Ok` means committed and nothing else; maintenance that follows inside the call and fails is in
    /// [`Stats::failures`](crate::Stats::failures) and is tried again by later commits or by
    /// [`Archive::maintain`](crate::Archive::maintain).
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] when the log failed: the block is committed or not, the archive refuses writes, and opening it
    /// again tells which by its head.
    ///
    /// After any other error the block was not committed, and no later opening shows it. It can be tried again unless
    /// [`Archive::is_poisoned`](crate::Archive::is_poisoned).
    ///
    /// [`Error::NotRising`] when another block got ahead; [`Error::TooLarge`] for a block over 4 GiB; [`Error::HeldUp`] when
    /// complete steps pile up in memory because files cannot be written: try again when the cause is gone.
    ///
    /// # Durability
    /// As [`Durability`](crate::Durability) says. In every mode the block survives the death of this process.
    pub fn commit(mut self) -> Result<Root, Error> {
        self.settle();
        wait_for_files(self.writer)?;
        let root = self.writer.commit(self.height, &self.changes_by_domain())?;
        maintain_inline(self.writer);
        Ok(root)
    }

    /// Compares what was gathered with the block that the archive has at this height, instead of committing it. For imports
    /// that are given blocks again: begin those with [`Archive::gather`](crate::Archive::gather).
    ///
    /// # Cost
    /// A lookup among the roots and a hash of what was gathered. Where the blocks differ a lookup for each change, and
    /// where those find nothing, the segments of the block's step from front to back.
    pub fn compare(mut self) -> Result<Comparison, Error> {
        self.settle();
        self.writer.compare(self.height, &self.changes_by_domain())
    }

    /// Orders the changes by domain and key and keeps the last of each key.
    ///
    /// # Cost
    /// One pass where each domain's changes ascend by key, as they do when they come from another archive or a sorted list.
    pub(crate) fn settle(&mut self) {
        let bytes = &self.bytes;
        self.changes.sort_by_key(|change| change.domain);
        let mut is_settled = true;
        for changes in self.changes.chunk_by_mut(|a, b| a.domain == b.domain) {
            if !changes.is_sorted_by(|a, b| a.key(bytes) < b.key(bytes)) {
                is_settled = false;
                // Stable, so that of equal keys the last written stays last.
                sort_by_key_bytes(changes, |change| change.key(bytes));
            }
        }
        if !is_settled {
            self.changes.dedup_by(|later, kept| {
                let is_same = (later.domain, later.key(bytes)) == (kept.domain, kept.key(bytes));
                if is_same {
                    *kept = *later;
                }
                is_same
            });
        }
    }

    pub(crate) fn changes_by_domain(&self) -> Vec<ChangeRef<'_>> {
        let bytes = &self.bytes;
        let change = |change: &Pending| ChangeRef {
            domain: change.domain.0,
            key: change.key(bytes),
            value: change.value(bytes),
        };
        self.changes.iter().map(change).collect()
    }
}

impl Drop for BlockWriter<'_> {
    fn drop(&mut self) {
        let (mut bytes, mut changes) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.changes));
        if bytes.capacity() + changes.capacity() * size_of::<Pending>() <= BUFFERS_KEPT {
            bytes.clear();
            changes.clear();
            *self.writer.spare_buffers.lock() = BlockBuffers { bytes, changes };
        }
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
