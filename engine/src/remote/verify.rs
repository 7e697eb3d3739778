//! Whether every byte that a generation names is right.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, one_line};
use crate::progress::ProgressListener;
use crate::remote::blocks::{self, BlockHashes};
use crate::remote::bucket::{Bucket, Published};
use crate::remote::generations;
use crate::remote::jobs::for_each;
use crate::remote::manifest::RemoteFile;
use crate::remote::names;
use crate::remote::transfer::{ContentCheck, read_from};
use crate::remote_error::RemoteError;

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketReport {
    /// The generation that was checked.
    pub generation: u64,
    /// How many generations there are from the first to it, whose hashes were compared.
    pub generations: u64,
    /// Files read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The id of the key that signed the newest, as it says: checked where the bucket was opened with
    /// [`BucketOptions::public_key`](crate::remote::BucketOptions::public_key).
    pub signer: Option<String>,
    /// What is wrong, a line for each object. Empty: nothing is.
    pub problems: Vec<String>,
}

/// Reads every object that the newest generation names, compares it with its hashes, and follows the chain of generations back to
/// the first; and the hint. Those before the newest are known by their hashes, whoever signed them.
///
/// # Errors
/// [`Error::Remote`] where the store fails or refuses. Damage is no error but an entry of [`BucketReport::problems`].
pub fn verify(bucket: &Bucket, jobs: usize, listener: &dyn ProgressListener) -> Result<BucketReport, Error> {
    let published = bucket.require_latest()?.published;
    let manifest = &published.manifest;
    let (files, bytes, problems) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    let tell = |result: Result<(), Error>| match result {
        Err(error) if is_damage(&error) => {
            problems.lock().push(one_line(&error));
            Ok(())
        }
        other => other,
    };
    tell(bucket.bundle(manifest).map(drop).map_err(Error::from))?;
    check_names(bucket)?.into_iter().try_for_each(|problem| tell(Err(problem.into())))?;
    tell(check_object(bucket, &published).map_err(Error::from))?;
    let mut generations = 1;
    tell(check_chain(bucket, manifest.generation(), manifest.parent, &mut generations).map_err(Error::from))?;
    let all: Vec<RemoteFile<'_>> = manifest.files().collect();
    listener.begin("verify", Some(all.iter().map(RemoteFile::len).sum()));
    let checked = for_each(jobs, &all, |file| {
        let checked = check_file(bucket, file, listener);
        if manifest.signature.is_some() {
            tell(check_hashes(bucket, file).map_err(Error::from))?;
        }
        if checked.is_ok() {
            files.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(file.len(), Ordering::Relaxed);
        }
        tell(checked)
    });
    listener.end();
    checked?;
    let mut problems = problems.into_inner();
    problems.sort();
    // A generation that is missing is found by its name and by the one after it.
    problems.dedup();
    let (files, bytes) = (files.into_inner(), bytes.into_inner());
    let (generation, signer) = (manifest.generation(), manifest.signer());
    Ok(BucketReport { generation, generations, files, bytes, signer, problems })
}

fn is_damage(error: &Error) -> bool {
    use RemoteError::{Damaged, Gone};
    matches!(error, Error::Remote(Damaged { .. } | Gone { .. }))
}

fn check_file(bucket: &Bucket, file: &RemoteFile<'_>, listener: &dyn ProgressListener) -> Result<(), Error> {
    let (store, name) = (&bucket.store, file.object());
    let damaged = |reason| RemoteError::Damaged { object: store.shown(&name), reason };
    let found = store.look(&name)?.ok_or_else(|| RemoteError::Gone { object: store.shown(&name) })?;
    if found.len != file.len() {
        return Err(damaged("it has another length").into());
    }
    let mut check = ContentCheck::new(file.len());
    read_from(store, &name, 0, file.len(), |bytes| {
        check.update(bytes);
        listener.advance(bytes.len() as u64);
        Ok(())
    })?;
    if check.holds(file) { Ok(()) } else { Err(damaged("its bytes are not those that its name says").into()) }
}

fn check_hashes(bucket: &Bucket, file: &RemoteFile<'_>) -> Result<(), RemoteError> {
    if !file.has_hashes() {
        return Ok(());
    }
    let name = names::hashes(&file.id);
    let object = || bucket.store.shown(&name);
    let bytes = bucket
        .store
        .get(&name, 32 * blocks::count(file.content_len()))?
        .ok_or_else(|| RemoteError::Gone { object: object() })?;
    match BlockHashes::read(&bytes, file.content_len(), file.content()) {
        Some(_) => Ok(()),
        None => Err(RemoteError::Damaged { object: object(), reason: "they are not the hashes of its file" }),
    }
}

/// What is missing or damaged by its name, beside what the chain tells.
fn check_names(bucket: &Bucket) -> Result<Vec<RemoteError>, RemoteError> {
    let listed = bucket.store.list(&names::manifests(&bucket.archive))?;
    let numbers = listed.iter().filter_map(|found| Some(names::parse_manifest(&found.name)?.1));
    generations::problems(bucket, &numbers.collect::<Vec<_>>())
}

/// Whether the generation that was read, of which the hint is a copy, is there under its own name.
fn check_object(bucket: &Bucket, published: &Published) -> Result<(), RemoteError> {
    let generation = published.manifest.generation();
    let bucket = Bucket { trust: None, ..bucket.clone() };
    let object = || bucket.store.shown(&names::manifest(&bucket.archive, generation));
    let found = bucket.generation(generation)?.ok_or_else(|| RemoteError::Gone { object: object() })?;
    if found.hash == published.hash {
        return Ok(());
    }
    Err(RemoteError::Damaged { object: object(), reason: "it is another than its hint says" })
}

/// Follows the parents from `generation`, whose parent has this hash.
fn check_chain(
    bucket: &Bucket,
    mut generation: u64,
    mut parent: [u8; 32],
    seen: &mut u64,
) -> Result<(), RemoteError> {
    let bucket = Bucket { trust: None, ..bucket.clone() };
    while generation > 1 {
        generation -= 1;
        let object = || bucket.store.shown(&names::manifest(&bucket.archive, generation));
        let before = bucket.generation(generation)?.ok_or_else(|| RemoteError::Gone { object: object() })?;
        if before.hash != parent {
            return Err(RemoteError::Damaged {
                object: object(),
                reason: "the generation after it names another",
            });
        }
        parent = before.manifest.parent;
        *seen += 1;
    }
    Ok(())
}
