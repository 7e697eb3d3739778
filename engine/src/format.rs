#![doc = include_str!("../FORMAT.md")]

use icecore_segments::frame::Kind;

/// One version of a file format: an entry of [`HISTORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormatVersion {
    /// The format: `kv`, `bt`, `kvei`, `kvbi`, `manifest` or `log`.
    pub format: &'static str,
    /// The version number in the file.
    pub version: u32,
    /// What it added.
    pub brings: &'static str,
}

const fn version(format: &'static str, version: u32, brings: &'static str) -> FormatVersion {
    FormatVersion { format, version, brings }
}

/// Every version that a file format ever had: one format after another, the oldest version first. This build reads all of them and
/// writes the last of each; of manifests it writes the oldest of 5 to 8 that can say what there is to say. The repository keeps an archive of every retired one in `engine/tests/testdata`.
pub const HISTORY: &[FormatVersion] = &[
    version("kv", 1, "the first"),
    version("kv", 2, "plain pages in columns, with fingerprints"),
    version("bt", 1, "the first"),
    version("bt", 2, "groups of pivots in a leaf, with a directory"),
    version("kvei", 1, "the first"),
    version("kvbi", 1, "the first"),
    version("manifest", 1, "the first; no snapshot period, there are no snapshots"),
    version("manifest", 2, "the snapshot period"),
    version(
        "manifest",
        3,
        "the length of a domain's keys; the digest beside each root; how far the last log file had been synced",
    ),
    version("manifest", 4, "the identity"),
    version("manifest", 5, "block indexes"),
    version(
        "manifest",
        6,
        "which segments are held; written of partial copies only, others are of version 5",
    ),
    version(
        "manifest",
        7,
        "the commitment, and the order of each domain; written where either is not that of versions before",
    ),
    version("manifest", 8, "the order by path and key; written where a domain has it"),
    version("log", 1, "the first; a block has neither number, fingerprints nor checksum before its changes"),
    version("log", 2, "fingerprints, and a checksum of what stands before the changes"),
    version("log", 3, "the identity in the header"),
];

/// The file formats with the versions that new archives have.
pub fn versions() -> [(&'static str, u32); 6] {
    let [kv, bt, kvei, kvbi] = Kind::ALL.map(|kind| (kind.extension(), u32::from(kind.version())));
    [
        kv,
        bt,
        kvei,
        kvbi,
        ("manifest", crate::manifest::VERSION_OF_WHOLE),
        ("log", u32::from(crate::wal::VERSION)),
    ]
}

/// The document, for the tests that compare it with the code.
#[cfg(test)]
pub(crate) const DOC: icecore_segments::format_doc::FormatDoc =
    icecore_segments::format_doc::FormatDoc::new(include_str!("../FORMAT.md"));

#[cfg(test)]
mod tests {
    use std::path::Path;

    use icecore_segments::step::{Step, StepRange};

    use super::*;
    use crate::storage::layout;

    fn history(format: &str) -> Vec<(u32, &'static str)> {
        let entries = HISTORY.iter().filter(|entry| entry.format == format);
        entries.map(|entry| (entry.version, entry.brings)).collect()
    }

    #[test]
    fn the_history_ends_with_what_is_written() {
        for (format, written) in versions() {
            let numbers: Vec<u32> = history(format).iter().map(|entry| entry.0).collect();
            // The newest manifests are those of partial copies and of other commitments.
            let newest = if format == "manifest" { crate::manifest::VERSION } else { written };
            assert_eq!(numbers, (1..=newest).collect::<Vec<_>>(), "{format}");
        }
        assert!(HISTORY.iter().all(|entry| versions().iter().any(|(format, _)| *format == entry.format)));
    }

    #[test]
    fn the_document_lists_the_history() {
        DOC.check_versions("## The manifest: `MANIFEST`", &history("manifest"));
        DOC.check_versions("### History", &history("log"));
    }

    #[test]
    fn the_document_names_the_files() {
        let steps = StepRange::new(Step(0), Step(64)).unwrap();
        let (dir, segment) = (Path::new("DIR"), |domain, revision, kind| {
            Path::new("DIR").join(layout::segment_file(domain, steps, revision, kind))
        });
        let files = [
            dir.join(layout::MANIFEST),
            dir.join(layout::MANIFEST_NEW),
            dir.join(layout::CHECKPOINT),
            dir.join(layout::PULL),
            dir.join(layout::LOCK),
            layout::reserve(dir),
            dir.join(layout::TREE),
            dir.join(layout::TREE_NEW),
            segment("storage", 0, Kind::Segment),
            segment("storage", 0, Kind::PivotIndex),
            segment("storage", 0, Kind::ExistenceFilter),
            segment("storage", 0, Kind::BlockIndex),
            segment("storage", 1, Kind::PivotIndex),
            Path::new("DIR/storage.0-64.kv.part").to_owned(),
            segment(crate::domain::ROOTS_NAME, 0, Kind::Segment),
            segment(crate::domain::NODES_NAME, 0, Kind::Segment),
            layout::wal_file(dir, 1),
            layout::wal_file_set_aside(dir, 1),
        ];
        let listed: Vec<&Path> = DOC
            .section("## The directory")
            .lines()
            .filter(|line| line.starts_with("DIR/"))
            .map(|line| Path::new(line.split(' ').next().unwrap_or(line)))
            .collect();
        assert_eq!(listed, files);
    }
}
