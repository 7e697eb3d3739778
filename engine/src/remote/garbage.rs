//! What a bucket holds, and what of it nobody names any more.

use std::collections::HashSet;
use std::time::Duration;

use icecore_segments::step::BlockNumber;
use parking_lot::Mutex;

use crate::error::Error;
use crate::remote::bucket::Bucket;
use crate::remote::generations::{Generations, generations, problems};
use crate::remote::jobs::{JOBS, for_each};
use crate::remote::local::range_of;
use crate::remote::manifest::RemoteFile;
use crate::remote::names;
use crate::remote::push::REUSE_AGE;
use crate::remote::store::Listed;
use crate::remote_error::RemoteError;

/// Objects that are removed at a time, right after they were looked at: so few that a push that sends one of them again finds hardly a
/// moment between.
const REMOVED_AT_ONCE: usize = 64;

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
/// [`Error::Remote`], also where a generation or the hint of one of them is missing or damaged.
pub fn list(bucket: &Bucket) -> Result<Vec<RemoteArchive>, Error> {
    let mut archives = Vec::new();
    for (name, numbers) in generations(bucket)? {
        let bucket = Bucket { archive: name.clone(), ..bucket.clone() };
        check_names(&bucket, &numbers)?;
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

/// The first of the [`problems`] of an archive.
fn check_names(bucket: &Bucket, numbers: &[u64]) -> Result<(), RemoteError> {
    problems(bucket, numbers)?.into_iter().next().map_or(Ok(()), Err)
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
/// It may run beside pushes. What a push sends again or publishes meanwhile stays: objects are looked at again right before they are removed,
/// and the generations are listed again. Where a push was quicker than even that, both know: the push sends again what it finds missing when it
/// has published, and the collection fails with [`RemoteError::Collected`] where a generation that came up meanwhile names what it removed.
///
/// # Errors
/// [`Error::Remote`]; nothing was removed where the bucket has no generation, or where one or a hint is missing or damaged.
/// [`Error::Options`] for a grace period that a push may outlast.
pub fn gc(bucket: &Bucket, options: &GcOptions) -> Result<GcReport, Error> {
    if options.grace < 2 * REUSE_AGE && !options.dry_run {
        let reason = "at least two hours, longer than any push takes".to_owned();
        return Err(Error::Options { field: "grace", reason });
    }
    // First what there is, then what is named: what comes up meanwhile is not looked at.
    let mut objects = bucket.store.list(names::OBJECTS)?;
    objects.extend(bucket.store.list(names::HASHES)?);
    objects.extend(bucket.store.list(names::BUNDLES)?);
    let mut named = Named::read(bucket, options.keep)?;
    if named.generations.is_empty() {
        // Everything would be garbage: rather the URL is wrong, or the generations are lost.
        let (bucket, archive) = (bucket.store.url().to_owned(), bucket.archive.clone());
        return Err(RemoteError::NoArchive { bucket, archive }.into());
    }
    let (mut report, mut garbage) = (GcReport::default(), Vec::new());
    for object in objects.into_iter().filter(|object| names::is_content(&object.name)) {
        if named.objects.contains(&object.name) {
            report.kept += 1;
            report.bytes_kept += object.len;
        } else if object.age < options.grace {
            report.young += 1;
        } else {
            garbage.push(object);
        }
    }
    if !options.dry_run {
        garbage = remove(bucket, options, &mut named, garbage)?;
    }
    report.removed = garbage.len() as u64;
    report.bytes_removed = garbage.iter().map(|object| object.len).sum();
    Ok(report)
}

/// Removes what of the garbage is garbage still, and returns that.
fn remove(
    bucket: &Bucket,
    options: &GcOptions,
    named: &mut Named,
    garbage: Vec<Listed>,
) -> Result<Vec<Listed>, RemoteError> {
    let mut removed = Vec::new();
    for some in garbage.chunks(REMOVED_AT_ONCE) {
        named.read_again(bucket, options.keep)?;
        let old = still_old(bucket, some, options.grace)?;
        let old: Vec<Listed> =
            old.into_iter().filter(|object| !named.objects.contains(&object.name)).collect();
        let names: Vec<String> = old.iter().map(|object| object.name.clone()).collect();
        bucket.store.remove(&names)?;
        removed.extend(old);
    }
    named.read_again(bucket, options.keep)?;
    match removed.iter().filter(|object| named.objects.contains(&object.name)).count() as u64 {
        0 => Ok(removed),
        objects => Err(RemoteError::Collected { bucket: bucket.store.url().to_owned(), objects }),
    }
}

/// What the kept generations of all archives name.
struct Named {
    generations: Generations,
    objects: HashSet<String>,
}

impl Named {
    fn read(bucket: &Bucket, keep: usize) -> Result<Self, RemoteError> {
        let (generations, mut objects) = (generations(bucket)?, HashSet::new());
        for (archive, numbers) in &generations {
            // What a generation names stays, whoever signed it.
            let bucket = Bucket { archive: archive.clone(), trust: None, ..bucket.clone() };
            // What cannot be read may name anything, so nothing may go.
            check_names(&bucket, numbers)?;
            for number in numbers.iter().rev().take(keep) {
                let object = || bucket.store.shown(&names::manifest(&bucket.archive, *number));
                let kept =
                    bucket.generation(*number)?.ok_or_else(|| RemoteError::Gone { object: object() })?;
                objects.extend(kept.manifest.files().map(|file| file.object()));
                if kept.manifest.signature.is_some() {
                    let hashed = kept.manifest.files().filter(RemoteFile::has_hashes);
                    objects.extend(hashed.map(|file| names::hashes(&file.id)));
                }
                objects.insert(names::bundle(&kept.manifest.bundle.hash));
            }
        }
        Ok(Self { generations, objects })
    }

    /// Adds what was published since. What was named stays named: another push may have taken it for kept.
    fn read_again(&mut self, bucket: &Bucket, keep: usize) -> Result<(), RemoteError> {
        if generations(bucket)? != self.generations {
            let Self { generations, objects } = Self::read(bucket, keep)?;
            self.generations = generations;
            self.objects.extend(objects);
        }
        Ok(())
    }
}

/// Those that no pusher has sent again since they were listed: then they would be much younger than they were, whatever the clocks say.
fn still_old(bucket: &Bucket, garbage: &[Listed], grace: Duration) -> Result<Vec<Listed>, RemoteError> {
    let old = Mutex::new(Vec::new());
    for_each(JOBS, garbage, |object| {
        let now = bucket.store.look(&object.name)?;
        if now.is_some_and(|now| now.age >= grace && now.age + REUSE_AGE >= object.age) {
            old.lock().push(object.clone());
        }
        Ok(())
    })?;
    Ok(old.into_inner())
}
