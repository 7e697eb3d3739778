//! What a bucket holds, and what of it nobody names any more.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::remote::bucket::Bucket;
use crate::remote::manifest::RemoteFile;
use crate::remote::names;
use crate::remote::push::{REUSE_AGE, range_of};
use crate::remote::store::Listed;
use crate::remote_error::RemoteError;

/// An archive in a bucket: an entry of [`list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteArchive {
    /// Its name.
    pub name: String,
    /// The newest generation.
    pub generation: u64,
    /// The heights that can be read from it, both included.
    pub range: Option<(BlockNumber, BlockNumber)>,
    /// Its domains.
    pub domains: Vec<String>,
    /// Segments, those of the archive's own domains included.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// The id of the key that signed it, as it says; [`BucketOptions::public_key`](crate::remote::BucketOptions::public_key) checks it.
    pub signer: Option<String>,
    /// Bytes of what opening it reads: the manifest and the bundle.
    pub opening_bytes: u64,
}

/// The archives that a bucket holds, by name.
///
/// # Errors
/// [`Error::Remote`].
pub fn list(bucket: &Bucket) -> Result<Vec<RemoteArchive>, Error> {
    let mut archives = Vec::new();
    for name in generations(bucket)?.into_keys() {
        let bucket = Bucket { archive: name.clone(), ..bucket.clone() };
        let Some(latest) = bucket.latest()? else { continue };
        let manifest = latest.published.manifest;
        archives.push(RemoteArchive {
            name,
            generation: manifest.generation(),
            range: range_of(&manifest.archive),
            domains: manifest.archive.config.declared().iter().map(|domain| domain.name.clone()).collect(),
            segments: manifest.archive.segments.len() as u64,
            bytes: manifest.files().map(|file| file.len()).sum(),
            signer: manifest.signer(),
            opening_bytes: manifest.encode().len() as u64 + manifest.bundle.len,
        });
    }
    Ok(archives)
}

/// The generations of all archives of a bucket.
fn generations(bucket: &Bucket) -> Result<BTreeMap<String, Vec<u64>>, RemoteError> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for object in bucket.store.list(names::MANIFESTS)? {
        if let Some((archive, generation)) = names::parse_manifest(&object.name) {
            found.entry(archive.to_owned()).or_default().push(generation);
        }
    }
    Ok(found)
}

/// What may be collected, and what stays.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcOptions {
    keep: usize,
    grace: Duration,
    dry_run: bool,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self { keep: 8, grace: Duration::from_secs(7 * 24 * 60 * 60), dry_run: false }
    }
}

impl GcOptions {
    /// Keeps what the newest 8 generations of each archive name, and what was written in the last 7 days.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many generations of each archive stay whole; at least one does. A reader that still uses an older one gets an error and
    /// has to go to the newest.
    pub fn keep(self, generations: usize) -> Self {
        Self { keep: generations.max(1), ..self }
    }

    /// Objects younger than this stay. It must be longer than a push takes, by an hour and what the clocks of store and machines
    /// differ: a push that is under way relies on objects that nothing names yet.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Only say what would go.
    pub fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }
}

/// What [`gc`] removed, or with [`GcOptions::dry_run`] would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcReport {
    /// Objects that stay, the generations not counted.
    pub kept: u64,
    /// Their bytes.
    pub bytes_kept: u64,
    /// Objects that nothing names and that are still young.
    pub young: u64,
    /// Objects removed.
    pub removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
}

/// Removes the objects that no kept generation of any archive of the bucket names and that are older than the grace period.
/// Generations themselves stay for ever: they are small, and a number is never used twice.
///
/// # Errors
/// [`Error::Remote`]; [`Error::Options`] for a grace period that a push may outlast.
pub fn gc(bucket: &Bucket, options: &GcOptions) -> Result<GcReport, Error> {
    if options.grace < 2 * REUSE_AGE && !options.dry_run {
        let reason = "at least two hours, longer than any push takes".to_owned();
        return Err(Error::Options { field: "grace", reason });
    }
    // First what there is, then what is named: what comes up meanwhile is not looked at.
    let mut objects = bucket.store.list(names::OBJECTS)?;
    objects.extend(bucket.store.list(names::HASHES)?);
    objects.extend(bucket.store.list(names::BUNDLES)?);
    let named = named_objects(bucket, options.keep)?;
    let (mut report, mut garbage) = (GcReport::default(), Vec::new());
    for object in objects.into_iter().filter(|object| names::is_content(&object.name)) {
        if named.contains(&object.name) {
            report.kept += 1;
            report.bytes_kept += object.len;
        } else if object.age < options.grace {
            report.young += 1;
        } else {
            garbage.push(object);
        }
    }
    if !options.dry_run {
        garbage = still_old(bucket, garbage, options.grace)?;
        let names: Vec<String> = garbage.iter().map(|object| object.name.clone()).collect();
        bucket.store.remove(&names)?;
    }
    report.removed = garbage.len() as u64;
    report.bytes_removed = garbage.iter().map(|object| object.len).sum();
    Ok(report)
}

fn named_objects(bucket: &Bucket, keep: usize) -> Result<HashSet<String>, RemoteError> {
    let mut named = HashSet::new();
    for (archive, mut numbers) in generations(bucket)? {
        // What a generation names stays, whoever signed it.
        let bucket = Bucket { archive, trust: None, ..bucket.clone() };
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        for number in numbers.into_iter().take(keep) {
            let object = || bucket.store.shown(&names::manifest(&bucket.archive, number));
            // What cannot be read may name anything, so nothing may go.
            let kept = bucket.generation(number)?.ok_or_else(|| RemoteError::Gone { object: object() })?;
            named.extend(kept.manifest.files().map(|file| file.object()));
            if kept.manifest.signature.is_some() {
                let hashed = kept.manifest.files().filter(RemoteFile::has_hashes);
                named.extend(hashed.map(|file| names::hashes(&file.id)));
            }
            named.insert(names::bundle(&kept.manifest.bundle.hash));
        }
    }
    Ok(named)
}

/// Those that no pusher has sent again since they were listed.
fn still_old(bucket: &Bucket, garbage: Vec<Listed>, grace: Duration) -> Result<Vec<Listed>, RemoteError> {
    let mut old = Vec::new();
    for object in garbage {
        if bucket.store.look(&object.name)?.is_some_and(|now| now.age >= grace) {
            old.push(object);
        }
    }
    Ok(old)
}
