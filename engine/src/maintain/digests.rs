//! Whether segments have what blocks wrote: the changes of each block beside the digest that was recorded with its root.
//!
//! Called by [`verify`](crate::maintain::verify) and [`Reader::verify_blocks`](crate::Reader::verify_blocks). The state at the head tells nothing
//! of versions that later ones hide, nor a file that is whole of one that a manifest left out.

use std::sync::Arc;

use crate::domain::{DomainId, RootRow, root_height, root_key};
use crate::error::Error;
use crate::progress::ProgressListener;
use crate::read::changes::{Changes, StateChange};
use crate::read::entries::{Entries, Entry};
use crate::read::pinned::Pinned;
use crate::read::scan_range::Scan;
use crate::read::shared::Shared;
use crate::wal::{ChangeDigest, ChangeRef};

/// Blocks between two words to the listener.
const PROGRESS_EVERY: u64 = 1 << 10;

/// Compares the changes of all blocks in segments with their digests, in their order, to the first that has others.
///
/// # Cost
/// Reads every entry in the order of blocks: see [`Changes`].
///
/// # Errors
/// [`Error::DigestMismatch`]; [`Error::RootMissing`] for a block that changed something and has no root; damage of a file.
pub(crate) fn check_digests(
    shared: &Arc<Shared>,
    version: &Pinned,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let state = version.state();
    let (Some(first), Some(last)) = (state.first, state.emitted_head) else { return Ok(()) };
    // What the lowest block of a pruned archive changed is not known any more.
    let from = first.saturating_add(state.is_pruned.into());
    if last < from {
        return Ok(());
    }
    listener.begin("verify blocks", Some(last - from));
    drop(state);
    let changes = Changes::new(Arc::clone(shared), version.clone(), &(from..=last))?;
    let mut changes = changes.without_before().stored().peekable();
    let mut told = from;
    let scan = Scan::all().from(&root_key(from)).to_included(&root_key(last));
    for row in Entries::new(version.clone(), DomainId::ROOTS, &scan, last) {
        let Entry { key, value, .. } = row?;
        let block = root_height(&key).ok_or(Error::RootMissing { block: last })?;
        let row = RootRow::decode(&value).ok_or(Error::RootMissing { block })?;
        let mut digest = ChangeDigest::default();
        let is_due =
            |change: &Result<StateChange, Error>| !matches!(change, Ok(change) if block < change.block);
        while let Some(change) = changes.next_if(is_due) {
            let change = change?;
            if change.block < block {
                return Err(Error::RootMissing { block: change.block });
            }
            // The first domain is the archive's own.
            let domain = change.domain as u16 + 1;
            digest.update(&ChangeRef { domain, key: &change.key, value: change.after.as_deref() });
        }
        if row.changes.is_some_and(|recorded| recorded != digest.finish()) {
            return Err(Error::DigestMismatch { block });
        }
        if block - told >= PROGRESS_EVERY {
            listener.advance(block - told);
            told = block;
        }
    }
    listener.end();
    match changes.next() {
        Some(change) => Err(Error::RootMissing { block: change?.block }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::archive::Archive;
    use crate::maintain::merge::MergeOptions;
    use crate::maintain::verify::{VerifyMode, verify};
    use crate::manifest::Manifest;
    use crate::open_options::{Maintenance, OpenOptions};
    use crate::options::Options;
    use crate::storage::layout;
    use crate::storage::os::OsStorage;

    /// Forty blocks of four keys each, the oldest of which later blocks write again.
    fn archive(dir: &Path, is_merged: bool) {
        let options = Options::new().domain("kv").domain("rare").blocks_per_step(4).reorg_window(0);
        let open = OpenOptions::new().maintenance(Maintenance::EmitOnly);
        let archive = Archive::create_with(dir, options, open).unwrap();
        for height in 1..=40_u64 {
            let mut block = archive.begin(height).unwrap();
            for key in 0..4 {
                block.put("kv", format!("key {key}").as_bytes(), &(height + key).to_le_bytes()).unwrap();
            }
            if height.is_multiple_of(9) {
                block.delete("rare", b"key").unwrap();
            }
            block.commit().unwrap();
        }
        archive.emit().unwrap();
        if is_merged {
            archive.merge(&MergeOptions::new().domain(Some("kv")), &()).unwrap();
        }
        archive.close().unwrap();
    }

    /// What is found of an archive whose manifest was written without one of its segments.
    fn without(dir: &Path, segment: usize, is_merged: bool) -> (String, Result<(), String>) {
        archive(dir, is_merged);
        let mut manifest = Manifest::load(&OsStorage, dir).unwrap();
        let gone = manifest.segments.remove(segment);
        manifest.store(&OsStorage, dir).unwrap();
        for kind in gone.kinds() {
            std::fs::remove_file(dir.join(gone.file_name(&manifest.config, kind))).unwrap();
        }
        let found = verify(dir, VerifyMode::Full, &()).map_err(|error| error.to_string());
        let found = found.and_then(|report| match report.problems.first() {
            Some(problem) => Err(problem.to_string()),
            None => Ok(()),
        });
        (gone.stem(&manifest.config), found)
    }

    #[test]
    fn no_segment_can_be_left_out_of_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        for is_merged in [false, true] {
            let whole = dir.path().join(format!("whole-{is_merged}.ice"));
            archive(&whole, is_merged);
            assert!(verify(&whole, VerifyMode::Full, &()).unwrap().problems.is_empty());
            for segment in 0..Manifest::load(&OsStorage, &whole).unwrap().segments.len() {
                let path = dir.path().join(format!("{segment}-{is_merged}.ice"));
                let (name, found) = without(&path, segment, is_merged);
                let error = found.expect_err(&name);
                told.push((name, error));
            }
        }
        let has = |stem: &str, text: &str| {
            told.iter().any(|(name, error)| name.starts_with(stem) && error.contains(text))
        };
        assert!(has("_roots", layout::MANIFEST), "at opening: {told:?}");
        assert!(has("_roots", "root"), "by its blocks, where the other domain was merged: {told:?}");
        assert!(has("kv", "the changes of block") && has("rare", "the changes of block"), "{told:?}");
    }

    /// Every object of such a bucket is what the manifest says, and the manifest leaves one out.
    #[cfg(feature = "object-store")]
    #[test]
    fn a_bucket_that_lacks_a_segment_is_found_by_its_blocks() {
        use crate::error::Error;
        use crate::reader::Reader;
        use crate::remote::{self, Bucket, PushOptions, RemoteOptions};

        let dir = tempfile::tempdir().unwrap();
        let push = |name: &str, path: &Path| {
            let bucket = Bucket::open(&format!("memory://digests-{name}")).unwrap();
            remote::push(path, &bucket, &PushOptions::new(), &()).unwrap();
            assert_eq!(remote::verify(&bucket, 2, &()).unwrap().problems, [""; 0], "{name}");
            let options = RemoteOptions::new(dir.path().join("cache")).cache_size(1 << 30);
            Reader::open_remote(&bucket, &options).unwrap().verify_blocks(&())
        };
        let whole = dir.path().join("whole.ice");
        archive(&whole, true);
        push("whole", &whole).unwrap();
        let manifest = Manifest::load(&OsStorage, &whole).unwrap();
        let segments = manifest.segments.iter().enumerate();
        let mut found = 0;
        for (segment, _) in segments.filter(|(_, record)| record.domain != crate::domain::DomainId::ROOTS) {
            let path = dir.path().join(format!("{segment}.ice"));
            assert!(without(&path, segment, true).1.is_err(), "{segment}");
            let error = push(&segment.to_string(), &path).unwrap_err();
            assert!(matches!(error, Error::DigestMismatch { .. }), "{segment}: {error}");
            found += 1;
        }
        assert!(found > 1);
    }
}
