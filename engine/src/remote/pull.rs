//! Pull: a generation becomes an archive on disk.
//!
//! Each file is written under a name of its own, compared with its hashes as it comes, synced, and renamed; so a file that has its
//! name is whole. The manifest comes last. Until it is there, a file named `PULL` says that the copy is not finished, and the next
//! pull to that place goes on where this one ended, in the midst of a file too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_segments::checksum::PAGE_SIZE;
use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;

use crate::error::{Error, Operation};
use crate::manifest::{Manifest, had_content};
use crate::progress::ProgressListener;
use crate::read::shared::Shared;
use crate::remote::bucket::{Bucket, Published};
use crate::remote::jobs::{JOBS, for_each};
use crate::remote::manifest::{RemoteFile, RemoteManifest};
use crate::remote::transfer::{ContentCheck, read_from};
use crate::remote_error::RemoteError;
use crate::storage::directory::Directory;
use crate::storage::os::OsStorage;
use crate::storage::{Storage, layout};
use crate::wal::log::create_file;

/// Bytes of an unfinished file that are read at once when a pull goes on.
const READ_LEN: usize = 1 << 20;

/// How to pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PullOptions {
    jobs: usize,
    generation: Option<u64>,
    accessors: Accessors,
}

/// Which accessors come with a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Accessors {
    /// None: some 4 % less to transfer. Lookups in the copy are right and slow until it is opened for writing, or reindexed, which
    /// builds them again.
    None,
    /// The pivot indexes, without which a lookup searches a whole segment.
    Bt,
    /// All: the copy is as fast as the archive.
    #[default]
    All,
}

impl Accessors {
    pub(crate) fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Segment => true,
            Kind::PivotIndex => self != Self::None,
            Kind::ExistenceFilter | Kind::BlockIndex => self == Self::All,
        }
    }
}

impl Default for PullOptions {
    fn default() -> Self {
        Self { jobs: JOBS, generation: None, accessors: Accessors::All }
    }
}

impl PullOptions {
    /// Eight files at once, of the newest generation.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many files come at once. Each needs up to 16 MiB of memory.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs, ..self }
    }

    /// Which accessors come; all unless it is set.
    pub fn accessors(self, accessors: Accessors) -> Self {
        Self { accessors, ..self }
    }

    /// An older generation. Its objects may have been collected.
    pub fn generation(self, generation: u64) -> Self {
        Self { generation: Some(generation), ..self }
    }
}

/// What a pull did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PullReport {
    /// The generation that the copy is of.
    pub generation: u64,
    /// The heights that can be read in the copy, both included.
    pub range: Option<(BlockNumber, BlockNumber)>,
    /// Files that came.
    pub files_pulled: u64,
    /// Bytes that came: less than the files have where a pull went on in the midst of one.
    pub bytes_pulled: u64,
    /// Files that an interrupted pull had left.
    pub files_present: u64,
}

/// Makes a copy of the archive in `bucket` at `path`, which must not exist, be empty, or be what an interrupted pull left.
///
/// The copy is an archive of its own, which can be read, and written where nobody else continues it. Every byte was compared
/// with its hash and is durable when this returns.
///
/// # Errors
/// [`Error::Remote`]; [`Error::Exists`]; those of writing files.
pub fn pull(
    bucket: &Bucket,
    path: impl AsRef<Path>,
    options: &PullOptions,
    listener: &dyn ProgressListener,
) -> Result<PullReport, Error> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage);
    let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
    let place = Place::look(&*storage, &path)?;
    if place == Place::Whole {
        return already_whole(&storage, &path);
    }
    let manifest = bucket.chosen(options.generation)?.manifest;
    place.begin(&*storage, &path)?;
    let pull = Pull {
        storage: &storage,
        bucket,
        path: &path,
        listener,
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let files_present = pull.fetch_all(&manifest, options)?;
    finish(&storage, &path, &manifest.archive)?;
    Ok(PullReport {
        generation: manifest.generation(),
        range: Shared::open(&storage, &path)?.read_state().range(),
        files_pulled: pull.files.into_inner(),
        bytes_pulled: pull.bytes.into_inner(),
        files_present,
    })
}

impl Bucket {
    /// A generation by its number, or the newest.
    ///
    /// # Errors
    /// [`RemoteError::NoArchive`], [`RemoteError::NoGeneration`]; damage.
    pub(crate) fn chosen(&self, generation: Option<u64>) -> Result<Published, RemoteError> {
        let latest = self.require_latest()?.published;
        let newest = latest.manifest.generation();
        match generation {
            None => Ok(latest),
            Some(wanted) if wanted == newest => Ok(latest),
            Some(wanted) => self.generation(wanted)?.ok_or_else(|| {
                let bucket = self.store.url().to_owned();
                RemoteError::NoGeneration { bucket, generation: wanted, newest }
            }),
        }
    }
}

/// What is where the copy is to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing.
    Vacant,
    /// What a pull left that was interrupted.
    Unfinished,
    /// The same, and nothing was left to do but to say that it is finished.
    Whole,
}

impl Place {
    /// # Errors
    /// [`Error::Exists`] for anything else.
    fn look(storage: &dyn Storage, path: &Path) -> Result<Self, Error> {
        let names = storage.list(path)?.unwrap_or_default();
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        match (has(layout::PULL), has(layout::MANIFEST)) {
            (true, true) => Ok(Self::Whole),
            (true, false) => Ok(Self::Unfinished),
            (false, _) if names.is_empty() && !had_content(storage, path)? => Ok(Self::Vacant),
            (false, _) => Err(Error::Exists { path: path.to_owned() }),
        }
    }

    /// Makes the directory, and says that it is not finished.
    fn begin(self, storage: &dyn Storage, path: &Path) -> Result<(), Error> {
        storage.create_dir(path)?;
        storage.create_dir(&layout::wal_dir(path))?;
        if self == Self::Vacant {
            storage.create(&path.join(layout::PULL))?.sync()?;
            storage.sync_dir(path)?;
        }
        Ok(())
    }
}

/// What is left to do after a kill between the manifest and the end.
fn already_whole(storage: &Arc<dyn Storage>, path: &Path) -> Result<PullReport, Error> {
    let manifest = Manifest::load(&**storage, path)?;
    remove_marker(&**storage, path)?;
    let range = Shared::open(storage, path)?.read_state().range();
    let files_present = manifest.file_names().len() as u64;
    Ok(PullReport { generation: manifest.generation, range, files_present, ..PullReport::default() })
}

/// What writes the files of a copy.
struct Pull<'a> {
    storage: &'a Arc<dyn Storage>,
    bucket: &'a Bucket,
    path: &'a Path,
    listener: &'a dyn ProgressListener,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Pull<'_> {
    /// Gets the files that are not there. Returns how many were.
    fn fetch_all(&self, manifest: &RemoteManifest, options: &PullOptions) -> Result<u64, Error> {
        let config = &manifest.archive.config;
        let (mut wanted, mut present) = (Vec::new(), 0);
        for file in manifest.files().filter(|file| options.accessors.has(file.kind)) {
            let name = file.record.file_name(config, file.kind);
            if self.is_whole(&name, &file)? {
                present += 1;
            } else {
                wanted.push((name, file));
            }
        }
        // The longest first: else the last of them comes alone.
        wanted.sort_by_key(|(_, file)| std::cmp::Reverse(file.len()));
        self.listener.begin("pull", Some(wanted.iter().map(|(_, file)| file.len()).sum()));
        let fetched = for_each(options.jobs, &wanted, |(name, file)| self.fetch(name, file));
        self.listener.end();
        fetched.map(|()| present)
    }

    /// Whether an interrupted pull left the file. One that has its name was compared and synced before it got it; the footer says
    /// that it is of this generation.
    fn is_whole(&self, name: &str, file: &RemoteFile<'_>) -> Result<bool, Error> {
        let Some(found) = self.storage.open(&self.path.join(name))? else { return Ok(false) };
        let mut footer = [0; PAGE_SIZE];
        if found.len()? != file.len() {
            return Ok(false);
        }
        let read = found.read_at(file.len().saturating_sub(PAGE_SIZE as u64), &mut footer)?;
        Ok(read == PAGE_SIZE && *blake3::hash(&footer).as_bytes() == file.id)
    }

    fn fetch(&self, name: &str, file: &RemoteFile<'_>) -> Result<(), Error> {
        let path = self.path.join(name);
        let part = layout::part_of(&path);
        let mut check = ContentCheck::new(file.len());
        let from = self.take_up(&part, file.len(), &mut check)?;
        self.listener.advance(from);
        let mut out = match from {
            0 => self.storage.create(&part)?,
            from => self.storage.append(&part, from..from)?,
        };
        let (store, object) = (&self.bucket.store, file.object());
        read_from(store, &object, from, file.len(), |bytes| {
            let (operation, path) = (Operation::Write, part.clone());
            out.write_all(bytes).map_err(|source| Error::Io { operation, path, source })?;
            check.update(bytes);
            self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.listener.advance(bytes.len() as u64);
            Ok(())
        })?;
        let result = out.sync();
        drop(out);
        if result.is_err() || !check.holds(file) {
            // Nothing of it can be relied on.
            self.storage.remove(&part)?;
            let reason = "its bytes are not those that its name says";
            result?;
            return Err(RemoteError::Damaged { object: store.shown(&object), reason }.into());
        }
        self.storage.rename(&part, &path)?;
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads what an interrupted pull left of a file, and returns how much that is.
    fn take_up(&self, part: &Path, len: u64, check: &mut ContentCheck) -> Result<u64, Error> {
        let Some(found) = self.storage.open(part)? else { return Ok(0) };
        let had = found.len()?;
        if had >= len {
            self.storage.remove(part)?;
            return Ok(0);
        }
        let (mut buffer, mut at) = (vec![0; READ_LEN], 0);
        while at < had {
            let wanted = READ_LEN.min((had - at) as usize);
            let read = found.read_at(at, &mut buffer[..wanted])?;
            if read == 0 {
                break;
            }
            check.update(&buffer[..read]);
            at += read as u64;
        }
        if at == 0 {
            self.storage.remove(part)?;
        }
        Ok(at)
    }
}

/// Makes an archive of the files: an empty log, then the manifest.
fn finish(storage: &Arc<dyn Storage>, path: &Path, manifest: &Manifest) -> Result<(), Error> {
    let directory = Directory::new(storage, path, &manifest.config);
    let (named, wal) = (manifest.file_names(), layout::wal_dir(path));
    // What a pull of another generation left.
    for name in storage.list(path)?.unwrap_or_default() {
        if layout::is_ours(&name) && name != layout::PULL && !named.contains(&name) {
            storage.remove(&path.join(name))?;
        }
    }
    storage.remove(&layout::wal_file(path, manifest.wal_first))?;
    create_file(&directory, manifest.wal_first)?;
    storage.sync_dir(&wal)?;
    storage.sync_dir(path)?;
    storage.sync_dir(path.parent().unwrap_or(Path::new("")))?;
    manifest.store(&**storage, path)?;
    remove_marker(&**storage, path)
}

fn remove_marker(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    storage.remove(&path.join(layout::PULL))?;
    storage.sync_dir(path)
}
