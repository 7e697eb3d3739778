//! Push: what an archive has in segments goes up, and becomes a generation of the bucket.
//!
//! Objects first, each under the name that its content gives it; then the bundle; then the manifest, created once, which makes the
//! generation visible; then the hint. A push that is killed anywhere left nothing visible and nothing wrong, and the next one
//! finds what is there by its name.
//!
//! What the newest generation names is listed before it is relied on, and what was sent is looked at when the generation is there: an
//! object that was lost, or that a collection removed meanwhile, is sent again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use icecore_segments::step::BlockNumber;
use parking_lot::Mutex;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::progress::ProgressListener;
use crate::remote::blocks::{self, BlockHashes};
use crate::remote::bucket::{Bucket, Latest};
use crate::remote::bundle;
use crate::remote::holdings::Holdings;
use crate::remote::jobs::{JOBS, for_each};
use crate::remote::local::{LocalArchive, LocalFile, emitted_part, range_of};
use crate::remote::manifest::{BundleRef, NO_PARENT, RemoteManifest};
use crate::remote::names;
use crate::remote::patience::TRIES;
use crate::remote::signature::SigningKey;
use crate::remote::store::{Store, Upload};
use crate::remote::succession::{self, MayGo};
use crate::remote_error::RemoteError;
use crate::storage::Storage;
use crate::storage::os::OsStorage;

/// An object that no generation names may be collected; one that was written more recently than this is taken as it is.
pub(crate) const REUSE_AGE: Duration = Duration::from_secs(60 * 60);

/// The longest object that goes up in one request.
const SINGLE_MAX: usize = 16 << 20;

/// A part of a longer one; stores want at least 5 MiB, and all parts but the last of one size.
const PUT_PART: usize = 8 << 20;

/// The most parts that stores take.
const PARTS_MAX: usize = 9_000;

/// Parts of one object under way.
const WINDOW: usize = 2;

/// How to push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushOptions {
    jobs: usize,
    dry_run: bool,
    may_go: MayGo,
    sign: Option<SigningKey>,
    allow_signer_change: bool,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self { jobs: JOBS, dry_run: false, may_go: MayGo::Nothing, sign: None, allow_signer_change: false }
    }
}

impl PushOptions {
    /// Eight objects at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many objects go up at once. Each needs up to 24 MiB of memory.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs, ..self }
    }

    /// Only say what would go up.
    pub fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Publish also where something of the newest generation goes: newer steps, after blocks were unwound that had been pushed; blocks that
    /// others took the place of; blocks that were pruned.
    pub fn allow_rewind(self, allow_rewind: bool) -> Self {
        Self { may_go: self.may_go.with(MayGo::Anything, allow_rewind), ..self }
    }

    /// Publish also where the archive begins at a higher block than the newest generation, because it was pruned.
    pub fn allow_pruned(self, allow_pruned: bool) -> Self {
        Self { may_go: self.may_go.with(MayGo::Pruned, allow_pruned), ..self }
    }

    /// Signs what is published, for readers that were given the public key
    /// ([`BucketOptions::public_key`](crate::remote::BucketOptions::public_key)). Once a generation is signed, a push that is not, or by another
    /// key, is refused.
    pub fn sign(self, key: SigningKey) -> Self {
        Self { sign: Some(key), ..self }
    }

    /// Publish also where another key signed the newest generation, or where it is signed and this push is not. Readers that have the
    /// public key of before then get an error.
    pub fn allow_signer_change(self, allow: bool) -> Self {
        Self { allow_signer_change: allow, ..self }
    }

    /// Whether a generation is signed as one of this push is.
    fn would_sign(&self, theirs: &RemoteManifest, archive: &str) -> Result<(), String> {
        match (&self.sign, &theirs.signature) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err("is not".to_owned()),
            (Some(key), _) => theirs
                .check_signature(key.public(), archive)
                .map_err(|reason| format!("by key {} ({reason})", key.public().id())),
        }
    }
}

/// What a push did, or with [`PushOptions::dry_run`] would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushReport {
    /// The generation that has what the archive has; `None` as long as no step was emitted, and for a dry run that would make one.
    pub generation: Option<u64>,
    /// Whether this push published it.
    pub is_new: bool,
    /// The heights that can be read from it, both included.
    pub range: Option<(BlockNumber, BlockNumber)>,
    /// Files that went up.
    pub files_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Files that the bucket had, named by its newest generation or left by a push that was interrupted.
    pub files_present: u64,
    /// Their bytes.
    pub bytes_present: u64,
}

/// Publishes what the archive at `path` has in segments. Beside its writer or without one; blocks that are in no segment yet stay
/// with the writer.
///
/// Repeating it is safe: what is there does not go up again. What the newest generation names and the bucket has lost goes up again, also where
/// nothing is new: finding that out is a listing, of a page for each 1000 objects, so three requests where a thousand are below the prefix.
///
/// What is published stays what it is: an archive that has other blocks than the newest generation, fewer, or begins at a higher one, is
/// refused unless [`PushOptions::allow_rewind`] says otherwise. Where segments of roots were merged since, their rows are read and hashed for
/// that, here and not in the bucket.
///
/// # Errors
/// [`Error::Remote`]; those of opening the archive, and damage of its files: damaged files are not published.
pub fn push(
    path: impl AsRef<Path>,
    bucket: &Bucket,
    options: &PushOptions,
    listener: &dyn ProgressListener,
) -> Result<PushReport, Error> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    push_from(&storage, path.as_ref(), bucket, options, listener)
}

/// The same from any storage.
pub(crate) fn push_from(
    storage: &Arc<dyn Storage>,
    path: &Path,
    bucket: &Bucket,
    options: &PushOptions,
    listener: &dyn ProgressListener,
) -> Result<PushReport, Error> {
    let manifest = Manifest::load(&**storage, path)?;
    manifest.check_whole(path)?;
    let Some(emitted) = emitted_part(&manifest) else {
        return Ok(PushReport::default());
    };
    let latest = bucket.latest()?;
    let mut holdings = Holdings::default();
    if let Some(latest) = &latest {
        let theirs = &latest.published.manifest;
        check_signer(bucket, theirs, options)?;
        succession::check_archive(bucket, &theirs.archive, &emitted, options.may_go)?;
        holdings = Holdings::list(bucket, &latest.published.manifest)?;
        if let Some(report) = nothing_new(bucket, latest, &holdings, emitted, options)? {
            return Ok(report);
        }
    }
    let Some(local) = LocalArchive::load(storage, path)? else { return Ok(PushReport::default()) };
    if let Some(latest) = &latest {
        succession::check_blocks(bucket, &latest.published.manifest, &local, options.may_go)?;
    }
    let mut plan = Plan::new(&local, latest.as_ref(), &holdings, options)?;
    let report = plan.report();
    if options.dry_run {
        return Ok(report);
    }
    if let Some(latest) = &latest {
        mend_names(bucket, latest, &holdings)?;
    } else {
        bucket.check_conditions()?;
    }
    let repaired = latest.filter(|latest| plan.is_that_of(&latest.published.manifest, bucket, options));
    if repaired.is_none()
        && let Some(key) = &options.sign
    {
        plan.manifest.sign(key, &bucket.archive)?;
    }
    let is_present = plan.send(&bucket.store, options, listener)?;
    let (generation, is_new) = match repaired {
        Some(latest) => (latest.published.manifest.generation(), false),
        None => {
            bucket.publish(&plan.manifest, options.sign.as_ref().map(SigningKey::public))?;
            plan.make_sure(bucket, options)?;
            (plan.manifest.generation(), true)
        }
    };
    Ok(PushReport {
        generation: Some(generation),
        is_new,
        files_sent: report.files_sent - is_present.0,
        bytes_sent: report.bytes_sent - is_present.1,
        files_present: report.files_present + is_present.0,
        bytes_present: report.bytes_present + is_present.1,
        ..report
    })
}

/// Puts the newest generation where its name or the hint is missing: a push that was interrupted left the hint behind, or one was lost.
fn mend_names(bucket: &Bucket, latest: &Latest, holdings: &Holdings) -> Result<(), RemoteError> {
    let theirs = &latest.published.manifest;
    if !holdings.has_generation {
        bucket.store.put(&names::manifest(&bucket.archive, theirs.generation()), theirs.encode())?;
    }
    if !latest.is_hinted {
        bucket.hint(theirs.encode())?;
    }
    Ok(())
}

/// Refuses to replace what somebody else signed.
fn check_signer(bucket: &Bucket, theirs: &RemoteManifest, options: &PushOptions) -> Result<(), RemoteError> {
    let (Some(signer), false) = (theirs.signer(), options.allow_signer_change) else { return Ok(()) };
    let same = options.would_sign(theirs, &bucket.archive);
    same.map_err(|ours| RemoteError::OtherSigner { bucket: bucket.store.url().to_owned(), signer, ours })
}

/// Where the newest generation has what the archive has, and the bucket all of that.
fn nothing_new(
    bucket: &Bucket,
    latest: &Latest,
    holdings: &Holdings,
    emitted: Manifest,
    options: &PushOptions,
) -> Result<Option<PushReport>, RemoteError> {
    let theirs = &latest.published.manifest;
    let emitted = Manifest { generation: theirs.generation(), ..emitted };
    let is_same = theirs.archive == emitted && options.would_sign(theirs, &bucket.archive).is_ok();
    if !is_same || !holdings.are_whole(theirs) {
        return Ok(None);
    }
    if !options.dry_run {
        mend_names(bucket, latest, holdings)?;
    }
    Ok(Some(PushReport {
        generation: Some(theirs.generation()),
        range: range_of(&emitted),
        files_present: theirs.ids.len() as u64,
        bytes_present: theirs.files().map(|file| file.len()).sum(),
        ..PushReport::default()
    }))
}

/// What is to go up.
struct Plan {
    manifest: RemoteManifest,
    bundle: Vec<u8>,
    /// Those that the newest generation does not name, or the bucket has lost.
    files: Vec<LocalFile>,
    /// Those that are there without the hashes of their blocks, where this push signs: the newest generation is not signed, or they were
    /// lost.
    unhashed: Vec<LocalFile>,
    /// Number and bytes of those that are there.
    present: (u64, u64),
}

impl Plan {
    fn new(
        local: &LocalArchive,
        latest: Option<&Latest>,
        holdings: &Holdings,
        options: &PushOptions,
    ) -> Result<Self, Error> {
        let before = latest.map(|latest| &latest.published);
        let (all, ends): (Vec<_>, Vec<_>) = local.files()?.into_iter().unzip();
        let bundle = bundle::encode(&ends);
        let manifest = RemoteManifest {
            parent: before.map_or(NO_PARENT, |it| it.hash),
            bundle: BundleRef { hash: *blake3::hash(&bundle).as_bytes(), len: bundle.len() as u64 },
            archive: Manifest {
                generation: before.map_or(1, |it| it.manifest.generation() + 1),
                ..local.manifest.clone()
            },
            ids: all.iter().map(|file| file.id).collect(),
            signature: None,
        };
        let mut present = (0, 0);
        let mut is_new = |file: &LocalFile| {
            let is_there = holdings.has(&names::object(&file.id, file.kind), file.len() as u64);
            present.0 += u64::from(is_there);
            present.1 += if is_there { file.len() as u64 } else { 0 };
            !is_there
        };
        let (mut files, mut unhashed): (Vec<_>, Vec<_>) = all.into_iter().partition(|file| is_new(file));
        let is_unhashed = |file: &LocalFile| {
            options.sign.is_some() && !holdings.has_hashes(&file.id, file.content_len() as u64)
        };
        unhashed.retain(is_unhashed);
        // The longest first: else the last of them goes alone.
        files.sort_by_key(|file| std::cmp::Reverse(file.len()));
        Ok(Self { manifest, bundle, files, unhashed, present })
    }

    fn report(&self) -> PushReport {
        PushReport {
            range: range_of(&self.manifest.archive),
            files_sent: self.files.len() as u64,
            bytes_sent: self.files.iter().map(|file| file.len() as u64).sum(),
            files_present: self.present.0,
            bytes_present: self.present.1,
            ..PushReport::default()
        }
    }

    /// Whether it is the newest generation, of which only something is missing.
    fn is_that_of(&self, theirs: &RemoteManifest, bucket: &Bucket, options: &PushOptions) -> bool {
        let archive = Manifest { generation: theirs.generation(), ..self.manifest.archive.clone() };
        archive == theirs.archive
            && (self.manifest.bundle, &self.manifest.ids) == (theirs.bundle, &theirs.ids)
            && options.would_sign(theirs, &bucket.archive).is_ok()
    }

    /// Sends again, once the generation is there, what a collection removed that had listed it as nobody's before: the next one sees it named.
    ///
    /// # Errors
    /// [`RemoteError::Gone`] where something does not stay.
    fn make_sure(&self, bucket: &Bucket, options: &PushOptions) -> Result<(), Error> {
        let store = &bucket.store;
        let is_there = |name: &str, len: usize| -> Result<bool, RemoteError> {
            Ok(store.look(name)?.is_some_and(|found| found.len == len as u64))
        };
        let mut last = String::new();
        for _ in 0..TRIES {
            let lost = Mutex::new(None);
            let tell = |name: &str| *lost.lock() = Some(store.shown(name));
            for_each(options.jobs, &self.files, |file| {
                let name = names::object(&file.id, file.kind);
                if !is_there(&name, file.len())? {
                    tell(&name);
                    send(store, file)?;
                }
                Ok::<(), Error>(())
            })?;
            if options.sign.is_some() {
                let hashed: Vec<&LocalFile> = self.files.iter().chain(&self.unhashed).collect();
                for_each(options.jobs, &hashed, |file| {
                    let (name, blocks) = (names::hashes(&file.id), blocks::count(file.content_len() as u64));
                    if blocks > 0 && !is_there(&name, blocks as usize * 32)? {
                        tell(&name);
                        send_hashes(store, file, None)?;
                    }
                    Ok::<(), Error>(())
                })?;
            }
            let name = names::bundle(&self.manifest.bundle.hash);
            if !is_there(&name, self.bundle.len())? {
                tell(&name);
                send_whole(store, &name, self.bundle.clone())?;
            }
            let Some(object) = lost.into_inner() else { return Ok(()) };
            last = object;
        }
        Err(RemoteError::Gone { object: last }.into())
    }

    /// Sends what is not there, but not the manifest. Returns number and bytes of the files that turned out to be there.
    fn send(
        &self,
        store: &Store,
        options: &PushOptions,
        listener: &dyn ProgressListener,
    ) -> Result<(u64, u64), Error> {
        listener.begin("push", Some(self.report().bytes_sent));
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let signs = options.sign.is_some();
        let sent = for_each(options.jobs, &self.files, |file| {
            let (is_sent, hashes) = send(store, file)?;
            if signs {
                send_hashes(store, file, hashes)?;
            }
            if !is_sent {
                files.fetch_add(1, Ordering::Relaxed);
                bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
            }
            listener.advance(file.len() as u64);
            Ok(())
        });
        let hashed = |()| for_each(options.jobs, &self.unhashed, |file| send_hashes(store, file, None));
        let sent = sent.and_then(hashed).and_then(|()| {
            let name = names::bundle(&self.manifest.bundle.hash);
            send_whole(store, &name, self.bundle.clone()).map(drop).map_err(Error::from)
        });
        listener.end();
        sent.map(|()| (files.into_inner(), bytes.into_inner()))
    }
}

/// Sends a file; `false` where it was there. Gives the hashes of its blocks where it was read for that.
fn send(store: &Store, file: &LocalFile) -> Result<(bool, Option<BlockHashes>), Error> {
    let name = names::object(&file.id, file.kind);
    if file.len() <= SINGLE_MAX {
        let mut bytes = Vec::with_capacity(file.len());
        let hashes = file.read_parts(PUT_PART, |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        return Ok((send_whole(store, &name, bytes)?, Some(hashes)));
    }
    if is_reusable(store, &name, file.len())? {
        return Ok((false, None));
    }
    let mut upload = store.upload(&name)?;
    match send_parts(&mut upload, file) {
        Ok(hashes) => {
            upload.complete()?;
            Ok((true, Some(hashes)))
        }
        Err(error) => {
            upload.abort();
            Err(error)
        }
    }
}

fn send_parts(upload: &mut Upload, file: &LocalFile) -> Result<BlockHashes, Error> {
    let part = PUT_PART.max((file.len() / PARTS_MAX).next_multiple_of(1 << 20));
    let mut pending = VecDeque::new();
    let hashes = file.read_parts(part, |bytes| {
        pending.push_back(upload.begin_part(bytes.to_vec()));
        if pending.len() >= WINDOW
            && let Some(first) = pending.pop_front()
        {
            upload.end_part(first)?;
        }
        Ok(())
    })?;
    pending.into_iter().try_for_each(|part| upload.end_part(part))?;
    Ok(hashes)
}

/// Sends the hashes of the blocks of a file, unless they are there or the file has one block. `hashes` are known where the file was read.
fn send_hashes(store: &Store, file: &LocalFile, hashes: Option<BlockHashes>) -> Result<(), Error> {
    let (name, blocks) = (names::hashes(&file.id), blocks::count(file.content_len() as u64));
    if blocks == 0 || (hashes.is_none() && is_reusable(store, &name, blocks as usize * 32)?) {
        return Ok(());
    }
    let hashes = hashes.map_or_else(|| file.read_parts(PUT_PART, |_| Ok(())), Ok)?;
    send_whole(store, &name, hashes.to_bytes())?;
    Ok(())
}

/// Sends an object in one request; `false` where it was there.
fn send_whole(store: &Store, name: &str, bytes: Vec<u8>) -> Result<bool, RemoteError> {
    let len = bytes.len();
    if store.create(name, bytes.clone())? {
        return Ok(true);
    }
    if is_reusable(store, name, len)? {
        return Ok(false);
    }
    store.put(name, bytes)?;
    Ok(true)
}

/// Whether an object is there and stays: one that no generation names and that is old may be collected any moment.
fn is_reusable(store: &Store, name: &str, len: usize) -> Result<bool, RemoteError> {
    let found = store.look(name)?;
    Ok(found.is_some_and(|found| found.len == len as u64 && found.age < REUSE_AGE))
}
