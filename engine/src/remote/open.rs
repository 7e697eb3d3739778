//! Opening an archive where it is: its files are mapped as those of a disk, and their pages come when they are needed.
//!
//! Opening reads the generation and its bundle. The bundle has header and tail of each file, which is all that opening a file reads;
//! everything else a [`CachedFile`] brings. So a reader of a bucket is a reader like any other.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_segments::checksum::PAGE_SIZE;
use icecore_segments::frame::Kind;
use parking_lot::Mutex;

use crate::error::Error;
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::renewal::{self, Renewable, Renewal};
use crate::read::shared::Shared;
use crate::remote::blocks::BLOCK;
use crate::remote::bucket::{Bucket, Published};
use crate::remote::bundle::Ends;
use crate::remote::cache::{Cache, RemoteCost};
use crate::remote::local::range_of;
use crate::remote::manifest::RemoteManifest;
use crate::remote::pull_options::Accessors;
use crate::remote::room::Room;
use crate::remote::storage::BucketStorage;
use crate::remote_error::RemoteError;
use crate::segment::live::LiveSegment;
use crate::storage::directory::Directory;
use crate::storage::{Mapping, Storage};

/// How an archive in a bucket is read in place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteOptions {
    cache: PathBuf,
    cache_size: u64,
    fetch: u64,
    warm: Accessors,
    generation: Option<u64>,
}

/// The longest aligned piece that one page brings with it.
const FETCH_MAX: u64 = 4 << 20;

impl RemoteOptions {
    /// Keeps what was read in a folder on disk, such as [`default_cache`]. Processes may share it; it may go when nobody reads.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            cache_size: 20 << 30,
            fetch: 64 << 10,
            warm: Accessors::None,
            generation: None,
        }
    }

    /// How many bytes the cache may take, of all processes that share it and give the same size, but for some requests that each has under
    /// way and the headers and tails of files that it exchanges; 20 GiB unless it is set. What was opened
    /// longest ago goes first. A reader that fills it by itself begins anew with empty files; only one read that needs more at once,
    /// such as a proof at a block without a snapshot, gets an error.
    pub fn cache_size(self, bytes: u64) -> Self {
        Self { cache_size: bytes, ..self }
    }

    /// What is asked for where one page is needed: an aligned piece of so many bytes, a power of two from 4 KiB to 4 MiB; 64 KiB unless
    /// it is set. Less where each byte is paid for; not less than 64 KiB where the bucket was opened with a key
    /// ([`BucketOptions::public_key`](crate::remote::BucketOptions::public_key)), which is what can be checked by itself.
    pub fn fetch(self, bytes: u64) -> Self {
        Self { fetch: bytes, ..self }
    }

    /// Which accessors are read at opening, so that a lookup waits for data only; none unless it is set.
    pub fn warm(self, accessors: Accessors) -> Self {
        Self { warm: accessors, ..self }
    }

    /// An older generation than the newest. Its objects may have been collected.
    pub fn generation(self, generation: u64) -> Self {
        Self { generation: Some(generation), ..self }
    }

    fn check(&self) -> Result<(), Error> {
        let is_right = self.fetch.is_power_of_two() && (PAGE_SIZE as u64..=FETCH_MAX).contains(&self.fetch);
        if is_right {
            return Ok(());
        }
        let reason = "a power of two from 4 KiB to 4 MiB".to_owned();
        Err(Error::Options { field: "fetch", reason })
    }
}

/// Where what was read of buckets is kept unless another folder is chosen: `icecore` in the folder for caches of the user, or in that
/// for temporary files where there is no user.
pub fn default_cache() -> PathBuf {
    let of_user = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    folder.or_else(of_user).unwrap_or_else(env::temp_dir).join("icecore")
}

/// What a reader of a bucket has besides what every reader has.
pub(crate) struct OpenBucket {
    bucket: Bucket,
    cache: Arc<Cache>,
    directory: Directory,
    storage: Arc<BucketStorage>,
    options: RemoteOptions,
    /// The generation that is read. Held by who goes to another.
    published: Mutex<Published>,
    /// Its read state.
    present: Mutex<Arc<Renewable>>,
    renewal: Arc<Renewal>,
}

impl OpenBucket {
    /// What reading cost so far.
    pub(crate) fn cost(&self) -> RemoteCost {
        self.cache.cost()
    }

    /// The generation that is read.
    pub(crate) fn generation(&self) -> u64 {
        self.published.lock().manifest.generation()
    }

    /// Goes to the newest generation, unless one was chosen. Never to an older one: each names the one before it.
    ///
    /// # Errors
    /// [`Error::Remote`]; [`Error::Io`] of the cache. What is read stays what it was then.
    pub(crate) fn follow(&self, shared: &Shared) -> Result<(), Error> {
        if self.options.generation.is_some() {
            return Ok(());
        }
        let mut published = self.published.lock();
        let newest = self.bucket.newest_after(published.clone())?;
        if newest.manifest.generation() == published.manifest.generation() {
            return Ok(());
        }
        if !self.directory.config.is_same_archive(&newest.manifest.archive.config) {
            let (bucket, archive) = (self.bucket.store.url().to_owned(), self.bucket.archive.clone());
            return Err(RemoteError::OtherArchive { bucket, archive }.into());
        }
        self.storage.go_to(&newest.manifest, self.bucket.bundle(&newest.manifest)?);
        let known = shared.read_state();
        let state = read_state(&self.storage, &self.directory, &newest.manifest, Some(&known))?;
        warm(&state, self.options.warm)?;
        shared.install(state);
        *self.present.lock() = self.renewal.add(shared.read_state());
        *published = newest;
        Ok(())
    }

    /// What a view of the generation that is read pins.
    ///
    /// # Errors
    /// [`Error::Io`] of the cache.
    pub(crate) fn pin(&self) -> Result<Pinned, Error> {
        self.renewal.make_room()?;
        Ok(Pinned::Elsewhere(Arc::clone(&self.present.lock())))
    }
}

/// Opens a generation of a bucket.
///
/// # Errors
/// [`Error::Remote`]; [`Error::Io`] of the cache; [`Error::Options`].
pub(crate) fn open(bucket: &Bucket, options: &RemoteOptions) -> Result<(Arc<Shared>, OpenBucket), Error> {
    options.check()?;
    let room = Room::open(&options.cache, options.cache_size)?;
    let published = bucket.chosen(options.generation)?;
    let manifest = &published.manifest;
    let ends = bucket.bundle(manifest)?;
    room.check_opening(ends.iter().map(Ends::kept).sum())?;
    let is_proven = bucket.trust.is_some();
    let fetch = if is_proven { options.fetch.max(BLOCK) } else { options.fetch };
    let cache = Arc::new(Cache::new(bucket, room, fetch));
    let storage = Arc::new(BucketStorage::new(manifest, ends, &cache, is_proven));
    let as_storage: Arc<dyn Storage> = Arc::<BucketStorage>::clone(&storage);
    let directory = Directory::new(&as_storage, Path::new(bucket.store.url()), &manifest.archive.config);
    let state = read_state(&storage, &directory, manifest, None)?;
    warm(&state, options.warm)?;
    let shared = Shared::new(directory.clone(), state);
    let room: Arc<dyn renewal::Room> = Arc::<Room>::clone(&cache.room);
    let renewal = Renewal::new(directory.clone(), room, &shared);
    let present = Mutex::new(renewal.add(shared.read_state()));
    let (bucket, options, published) = (bucket.clone(), options.clone(), Mutex::new(published));
    Ok((shared, OpenBucket { bucket, cache, directory, storage, options, published, present, renewal }))
}

/// The segments of a generation, opened; those that `before` has are taken over.
fn read_state(
    storage: &BucketStorage,
    directory: &Directory,
    manifest: &RemoteManifest,
    before: Option<&ReadState>,
) -> Result<ReadState, Error> {
    let known: HashMap<_, _> = before
        .into_iter()
        .flat_map(ReadState::all_segments)
        .map(|segment| ((segment.record.domain, segment.record.steps), segment))
        .collect();
    let mut segments = Vec::with_capacity(manifest.archive.segments.len());
    for record in &manifest.archive.segments {
        let known = known.get(&(record.domain, record.steps));
        if let Some(same) = known.filter(|segment| segment.record == *record) {
            segments.push(Arc::clone(same));
            continue;
        }
        let mut failure = None;
        let segment = LiveSegment::hold(directory, record.clone(), &mut |error| failure = Some(error));
        failure.map_or(Ok(()), Err)?;
        segment.open_all()?;
        storage.check_tails(directory, &segment)?;
        segments.push(Arc::new(segment));
    }
    let first = range_of(&manifest.archive).map(|(first, _)| first);
    Ok(ReadState { first, ..ReadState::of_segments(&directory.config, &manifest.archive, segments) })
}

/// Reads accessors as a whole.
fn warm(state: &ReadState, which: Accessors) -> Result<(), Error> {
    let mut files: Vec<&Mapping> = Vec::new();
    for segment in state.all_segments() {
        if which.has(Kind::PivotIndex) {
            files.push(segment.bt.get()?.view().data());
        }
        if which.has(Kind::ExistenceFilter) {
            files.push(segment.kvei.get()?.view().data());
        }
    }
    // All are under way before the first is waited for.
    files.iter().for_each(|file| file.will_need(0..file.as_ref().len() as u64));
    Ok(files.into_iter().try_for_each(Mapping::bring_all)?)
}
