//! The names of the files of an archive. No other module composes or takes apart a file name.
//!
//! ```text
//! DIR/MANIFEST                     the live files; replaced as a whole
//! DIR/PULL                         stands in a copy that a pull has not finished
//! DIR/LOCK                         held by the writer
//! DIR/RESERVE                      space to give up when the disk is full
//! DIR/TREE                         the outline of a tree that is larger than its memory; derived
//! DIR/TREE.new                     the next one while it is written
//! DIR/storage.0-64.kv              a segment ...
//! DIR/storage.0-64.bt              ... and its accessors
//! DIR/storage.0-64.kvei
//! DIR/storage.0-64.kvbi            and, in declared domains, the index of its blocks
//! DIR/storage.0-64.1.bt            revision 1: a second file for the same range, after a reindex
//! DIR/storage.0-64.kv.part         one that a pull has not finished
//! DIR/wal/0000000000000001.wal     the write-ahead log, one file after another
//! DIR/wal/0000000000000001.wal.damaged   a file of the log that was given up because of damage
//! ```

use std::path::{Path, PathBuf};

use icecore_segments::frame::Kind;
use icecore_segments::step::StepRange;

/// The name of the manifest.
pub(crate) const MANIFEST: &str = "MANIFEST";

/// Where a new manifest is written before it takes the name.
pub(crate) const MANIFEST_NEW: &str = "MANIFEST.new";

/// The outline of the tree, from which a writer begins: see [`tree_file`](crate::merkle::tree_file).
pub(crate) const TREE: &str = "TREE";

/// Where a new one is written before it takes the name.
pub(crate) const TREE_NEW: &str = "TREE.new";

/// Carries the writer's lock. It stays when the lock is gone: removing it would let two hold it.
pub(crate) const LOCK: &str = "LOCK";

/// Stands in a copy that a checkpoint has not finished.
pub(crate) const CHECKPOINT: &str = "CHECKPOINT";

/// Stands in a copy that a pull has not finished.
pub(crate) const PULL: &str = "PULL";

/// What the name of a file ends with as long as a pull has not finished it.
const PART: &str = ".part";

/// Where a pull writes a file of a segment before it takes its name.
#[cfg(feature = "object-store")]
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// The space that is given up when the disk is full.
pub(crate) fn reserve(dir: &Path) -> PathBuf {
    dir.join("RESERVE")
}

/// The directory of the log.
pub(crate) fn wal_dir(dir: &Path) -> PathBuf {
    dir.join("wal")
}

/// A file of the log.
pub(crate) fn wal_file(dir: &Path, sequence: u64) -> PathBuf {
    wal_dir(dir).join(format!("{sequence:016x}.wal"))
}

/// Where a file of the log is kept that was given up because of damage. No other module looks at it again.
pub(crate) fn wal_file_set_aside(dir: &Path, sequence: u64) -> PathBuf {
    wal_file(dir, sequence).with_extension("wal.damaged")
}

/// The sequence number of a file of the log; `None` for other names.
pub(crate) fn parse_wal_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal").filter(|digits| digits.len() == 16)?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (format!("{sequence:016x}") == digits).then_some(sequence)
}

/// What the names of the files of a segment begin with.
pub(crate) fn segment_stem(domain: &str, steps: StepRange) -> String {
    format!("{domain}.{steps}")
}

/// The name of a file of a segment. Revision 0 is not written.
pub(crate) fn segment_file(domain: &str, steps: StepRange, revision: u32, kind: Kind) -> String {
    let stem = segment_stem(domain, steps);
    match revision {
        0 => format!("{stem}.{kind}"),
        _ => format!("{stem}.{revision}.{kind}"),
    }
}

/// Whether a name is one that [`segment_file`] or the replacement of the manifest or the outline makes: what recovery may remove when no
/// manifest names it. A stranger's file stays, whatever its extension.
pub(crate) fn is_ours(name: &str) -> bool {
    let whole = name.strip_suffix(PART).unwrap_or(name);
    [MANIFEST_NEW, TREE_NEW, CHECKPOINT, PULL].contains(&name) || parse_segment_name(whole).is_some()
}

/// Takes a name of [`segment_file`] apart as far as needed to know it again.
fn parse_segment_name(name: &str) -> Option<()> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = name.split('.');
    let (domain, steps) = (parts.next()?, parts.next()?);
    let (from, to) = steps.split_once('-')?;
    let rest: Vec<&str> = parts.collect();
    let kind = match rest[..] {
        [kind] => kind,
        [revision, kind] if is_number(revision) => kind,
        _ => return None,
    };
    let known = Kind::ALL.iter().any(|known| known.extension() == kind);
    (known && !domain.is_empty() && is_number(from) && is_number(to)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_segments::step::Step;

    #[test]
    fn names_are_what_the_picture_says() {
        let steps = StepRange::new(Step(0), Step(64)).unwrap();
        assert_eq!(segment_file("storage", steps, 0, Kind::Segment), "storage.0-64.kv");
        assert_eq!(segment_file("storage", steps, 1, Kind::PivotIndex), "storage.0-64.1.bt");
        assert_eq!(wal_file(Path::new("d"), 1), Path::new("d/wal/0000000000000001.wal"));
        assert_eq!(wal_file_set_aside(Path::new("d"), 1), Path::new("d/wal/0000000000000001.wal.damaged"));
        assert_eq!(parse_wal_name("00000000000000ff.wal"), Some(255));
        for name in [
            "00000000000000FF.wal",
            "ff.wal",
            "00000000000000ff",
            "0x000000000000ff.wal",
            "00000000000000ff.wal.damaged",
        ] {
            assert_eq!(parse_wal_name(name), None, "{name}");
        }
        assert!(
            is_ours("a.0-1.kv") && is_ours("MANIFEST.new") && !is_ours("MANIFEST") && !is_ours("notes.txt")
        );
        assert!(
            is_ours("TREE.new") && !is_ours("TREE"),
            "the one is garbage, and the other of use to the next writer"
        );
        assert!(is_ours("a.0-1.2.bt.part") && !is_ours("notes.part") && !is_ours("MANIFEST.part"));
    }
}
