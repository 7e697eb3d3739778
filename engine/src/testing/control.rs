//! Checks that a test can leave out of the whole process, to see whether it would notice.
//!
//! A test of faults that passes proves little before it has failed: with a check left out it must. Call sites ask by
//! `left_out!`, which is `false` in builds without the feature `testing`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A check of the engine or of a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The checksum of the manifest.
    ManifestChecksum,
    /// The checksum of a log record's header.
    LogHeaderChecksum,
    /// The checksum of a log record's body.
    LogBodyChecksum,
    /// Whether a bad record of the last log file was synced once: without it all damage reads as a torn tail.
    TornTail,
    /// The checksums of pages: of segments, pivot indexes and filters.
    PageChecksum,
    /// The content checksum in the manifest: of segments, pivot indexes and filters.
    FileIdentity,
    /// Whether the last log file has what the manifest says was synced.
    LogEnd,
    /// Whether the log goes on after the last file that the manifest names.
    LogIsLast,
    /// The segment that a pivot index or a filter says it belongs to.
    AccessorBinding,
    /// The number in the header of a log file.
    LogSequence,
    /// Whether a log file is of this archive.
    ArchiveId,
    /// Whether a sealed log file ends in an end record.
    SealedEnd,
    /// Whether the segments that a manifest names are there, before those that it does not name are removed.
    GarbageGuard,
    /// The refusal of writes after one failed.
    Poison,
}

/// The check left out, as its place in [`Check::ALL`]; none at first.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Check {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ManifestChecksum,
        Self::LogHeaderChecksum,
        Self::LogBodyChecksum,
        Self::TornTail,
        Self::PageChecksum,
        Self::FileIdentity,
        Self::LogEnd,
        Self::LogIsLast,
        Self::AccessorBinding,
        Self::LogSequence,
        Self::ArchiveId,
        Self::SealedEnd,
        Self::GarbageGuard,
        Self::Poison,
    ];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::ManifestChecksum => "manifest-checksum",
            Self::LogHeaderChecksum => "log-header-checksum",
            Self::LogBodyChecksum => "log-body-checksum",
            Self::TornTail => "torn-tail",
            Self::PageChecksum => "page-checksum",
            Self::FileIdentity => "file-identity",
            Self::LogEnd => "log-end",
            Self::LogIsLast => "log-is-last",
            Self::AccessorBinding => "accessor-binding",
            Self::LogSequence => "log-sequence",
            Self::ArchiveId => "archive-id",
            Self::SealedEnd => "sealed-end",
            Self::GarbageGuard => "garbage-guard",
            Self::Poison => "poison",
        }
    }

    /// From now on this process leaves it out, and no other.
    pub fn leave_out(self) {
        LEFT_OUT.store(self as usize, Ordering::Relaxed);
        icecore_segments::checksum::compare_pages(self != Self::PageChecksum);
    }

    /// Whether it is left out.
    pub(crate) fn is_left_out(self) -> bool {
        LEFT_OUT.load(Ordering::Relaxed) == self as usize
    }
}
