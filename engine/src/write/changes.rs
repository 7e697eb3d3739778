//! The changes of a block on its way in, one after the other in two buffers. The buffers of a block that is gone serve the next one.

use parking_lot::Mutex;

use crate::domain::DomainId;
use crate::memtable::key_order::sort_by_key_bytes;
use crate::wal::ChangeRef;

/// Buffers that grew larger are given back; smaller ones are still large enough that the system would clear their pages anew.
const BUFFERS_KEPT: usize = 1 << 20;

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

/// The buffers of the last block, for the next.
#[derive(Default)]
pub(crate) struct SpareBuffers(Mutex<BlockChanges>);

impl SpareBuffers {
    /// Buffers for the changes of a block.
    pub(crate) fn take(&self) -> BlockChanges {
        std::mem::take(&mut *self.0.lock())
    }

    /// Keeps the buffers of a block that is gone.
    pub(crate) fn keep(&self, changes: BlockChanges) {
        *self.0.lock() = changes.emptied();
    }
}

/// Changes in the order in which they came.
#[derive(Default)]
pub(crate) struct BlockChanges {
    bytes: Vec<u8>,
    changes: Vec<Pending>,
}

impl BlockChanges {
    /// Adds a change of a key that is no longer than a key may be, with a value no longer than a value may be.
    pub(crate) fn push(&mut self, domain: DomainId, key: &[u8], value: Option<&[u8]>) {
        let (from, value_len) = (self.bytes.len(), value.map(|value| value.len() as u32));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.changes.push(Pending { from, value_len, key_len: key.len() as u16, domain });
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The changes by domain and key, of each key the last.
    ///
    /// # Cost
    /// One pass where each domain's changes ascend by key, as they do when they come from another archive or a sorted list.
    pub(crate) fn by_domain(&self) -> Vec<ChangeRef<'_>> {
        let bytes = &self.bytes;
        let change = |change: &Pending| ChangeRef {
            domain: change.domain.0,
            key: change.key(bytes),
            value: change.value(bytes),
        };
        let mut changes: Vec<_> = self.changes.iter().map(change).collect();
        changes.sort_by_key(|change| change.domain);
        let mut is_settled = true;
        for of_domain in changes.chunk_by_mut(|a, b| a.domain == b.domain) {
            if !of_domain.is_sorted_by(|a, b| a.key < b.key) {
                is_settled = false;
                // Stable, so that of equal keys the last written stays last.
                sort_by_key_bytes(of_domain, |change| change.key);
            }
        }
        if !is_settled {
            changes.dedup_by(|later, kept| {
                let is_same = (later.domain, later.key) == (kept.domain, kept.key);
                if is_same {
                    *kept = *later;
                }
                is_same
            });
        }
        changes
    }

    /// The same buffers without changes; fresh ones where they grew too large to keep.
    pub(crate) fn emptied(mut self) -> Self {
        if self.bytes.capacity() + self.changes.capacity() * size_of::<Pending>() > BUFFERS_KEPT {
            return Self::default();
        }
        self.bytes.clear();
        self.changes.clear();
        self
    }
}
