//! The syncs of the engine, told apart by what they are of, so that each can be taken out of a trace: then the campaign must
//! find that something is lost.

use clap::ValueEnum;

use crate::disk::Node;

/// A kind of sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyncPoint {
    /// Of a log file after records or a mark.
    LogRecord,
    /// Of a log file after its end record.
    LogSeal,
    /// Of a new log file.
    LogHeader,
    /// Of the directory of the log.
    LogName,
    /// Of the log by a writer that opens.
    LogRecovery,
    /// Of the next manifest before it takes the name.
    Manifest,
    /// Of the archive's directory after the manifest took its name.
    ManifestName,
    /// Of the archive's directory before the manifest.
    SegmentName,
    /// Of the archive's directory by a writer that opens.
    NameRecovery,
    /// Of a `.kv`.
    Segment,
    /// Of a `.bt`.
    Index,
    /// Of a `.kvei`.
    Filter,
    /// Of a `.kvbi`.
    BlockIndex,
    /// Of the directory that holds a new archive.
    Parent,
}

/// The length of the header of a log file, and of that of a record, in bytes.
const LOG_HEADER: usize = 64;
const RECORD_HEADER: usize = 32;

impl SyncPoint {
    pub(crate) fn of_dir(dir: &str, is_first: bool, manifest_took_its_name: bool) -> Option<Self> {
        match dir {
            "" => Some(Self::Parent),
            "/archive/wal" => Some(Self::LogName),
            "/archive" if is_first => Some(Self::NameRecovery),
            "/archive" if manifest_took_its_name => Some(Self::ManifestName),
            "/archive" => Some(Self::SegmentName),
            _ => None,
        }
    }

    pub(crate) fn of_file(path: &str, is_first: bool, node: &Node) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name.rsplit('.').next()? {
            "new" => Some(Self::Manifest),
            "kv" => Some(Self::Segment),
            "bt" => Some(Self::Index),
            "kvei" => Some(Self::Filter),
            "kvbi" => Some(Self::BlockIndex),
            "wal" if is_first => Some(Self::LogRecovery),
            "wal" if node.bytes.len() == LOG_HEADER => Some(Self::LogHeader),
            "wal" => Some(Self::of_record(node)),
            _ => None,
        }
    }

    /// By the last record: its kind says whether it is an end.
    fn of_record(node: &Node) -> Self {
        let last = node.bytes.len().checked_sub(RECORD_HEADER).map(|at| &node.bytes[at..]);
        let kind = last.map(|record| u32::from_le_bytes([record[20], record[21], record[22], record[23]]));
        match kind {
            Some(4) => Self::LogSeal,
            _ => Self::LogRecord,
        }
    }
}
