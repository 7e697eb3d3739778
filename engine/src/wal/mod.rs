//! The write-ahead log: every committed block, in order, until segments hold it.
//!
//! A log is a sequence of numbered files. [`WalWriter`] appends to the last one; the others are sealed.
//! [`WalReader`] checks a whole file before it yields the first record; [`WalFollower`] reads one that grows. The manifest names the first and the last
//! file, so that a missing one is noticed. `FORMAT.md` has the tables, `record` is their one home in code.
//!
//! ```text
//! file header | record | record | mark | record | mark | ... | end      a sealed file
//! file header | record | mark | record | torn?                          the last file
//! ```
//!
//! # What is torn and what is damaged
//!
//! An append that a crash interrupts leaves less than was written: a shorter file, zeros or foreign bytes where data
//! never reached the disk, even a hole with sound records after it, because the system writes pages
//! in any order. All of this happens only to bytes that were never synced. So each record says how far the file was
//! durable when the record was written, and a *mark*, a record with nothing in it, is written after each sync. Then:
//!
//! * Sealed files end in an *end* record and are synced before the manifest names a successor. Anything wrong in one
//!   is damage.
//! * In the last file, a bad record is **damage** if any sound record header after it, at whatever offset, says that
//!   the place was durable; otherwise it is the **torn tail**, and is cut with everything after it.
//!
//! Checksums cover the place (file and offset), so that stale or copied records are not sound.
//!
//! # What this cannot distinguish
//!
//! * A flipped bit in the last synced record is seen as damage because the mark after it says so. If a power loss
//!   took the mark, which is not synced itself, that record reads as torn. The window closes with the next sync, or
//!   when the system writes the mark out on its own.
//!   [`WalWriter::sync_marker`] syncs the mark as well; flushing and pruning end with it.
//! * Bytes never synced carry no such protection, in the relaxed mode as many as were appended since the last sync:
//!   damage to them reads as a torn tail, which is what that mode says it may lose.
//! * After a sync that failed, the system may show bytes that it will not write any more. The process that saw the
//!   failure refuses to go on; one that opens the archive afterwards cannot know, and marks them as durable. If a power
//!   loss then takes them, the mark makes that damage, not a silent loss.
//! * A last file that someone cut at or before a mark looks like one whose append was interrupted there.
//! * Whoever can write values and knows file and offset to come can store bytes that look like a mark. A torn tail
//!   may then be reported as damage; never the reverse.
//!
//! The cost of the judgement is one pass over the bytes after the bad record, with a checksum of 24 bytes at
//! those offsets where the fields make sense.

mod follower;
mod header;
mod heights;
pub(crate) mod log;
mod reader;
mod record;
mod writer;

pub(crate) use follower::{LogBlock, LogEvent, WalFollower};
pub(crate) use header::{FILE_HEADER_LEN, MAGIC, VERSION};
pub(crate) use heights::Heights;
pub use reader::LogInfo;
pub(crate) use reader::{Position, Tail, WalReader, whole_blocks};
pub(crate) use record::{BODY_LEN_MAX, BlockRecord, ChangeRef, Record, RecordRef, fingerprint};
pub(crate) use writer::WalWriter;

use icecore_segments::checksum::{Checksum, ContentHasher};
use record::encode_changes;

/// The digest of what a block changes: BLAKE3 of the changes as the log has them. `changes` are ordered by domain, then key.
pub(crate) fn digest(changes: &[ChangeRef<'_>]) -> Checksum {
    digest_of_encoded(&encode_changes(changes))
}

/// The same of changes that come one by one.
#[derive(Default)]
pub(crate) struct ChangeDigest(ContentHasher);

impl ChangeDigest {
    /// Takes the next change.
    pub(crate) fn update(&mut self, change: &ChangeRef<'_>) {
        self.0.update(&encode_changes(std::slice::from_ref(change)));
    }

    /// The digest of the changes that were taken.
    pub(crate) fn finish(&self) -> Checksum {
        self.0.finish()
    }
}

/// The same of changes as a body has them.
fn digest_of_encoded(changes: &[u8]) -> Checksum {
    let mut hasher = ContentHasher::default();
    hasher.update(changes);
    hasher.finish()
}

#[cfg(test)]
mod tests;
