//! Pull: a generation, or a [part](crate::remote::selection) of it, becomes an archive on disk.
//!
//! Each file is written under a name of its own, compared with its hashes as it comes, synced, and renamed; so a file that has its
//! name is whole. The manifest comes last. Until it is there, a file named `PULL` says that the copy is not finished, and the next
//! pull to that place goes on where this one ended, in the midst of a file too.
//!
//! A copy can be extended, and moves on to later generations. It stays the archive that it was until the new manifest takes the place of the old one: nothing that the
//! old one names is written or removed before.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_segments::checksum::PAGE_SIZE;
use icecore_segments::step::BlockNumber;

use crate::error::{Error, Operation};
use crate::manifest::{Manifest, SegmentRecord, had_content};
use crate::progress::ProgressListener;
use crate::read::shared::Shared;
use crate::remote::bucket::{Bucket, Published};
use crate::remote::jobs::for_each;
use crate::remote::manifest::{RemoteFile, RemoteManifest};
use crate::remote::pull_options::PullOptions;
use crate::remote::selection::Selection;
use crate::remote::transfer::{ContentCheck, read_from};
use crate::remote_error::RemoteError;
use crate::storage::directory::Directory;
use crate::storage::os::OsStorage;
use crate::storage::{DirLock, ReadFile, Storage, layout};
use crate::wal::FILE_HEADER_LEN;
use crate::wal::log::create_file;

/// Bytes of an unfinished file that are read at once when a pull goes on.
const READ_LEN: usize = 1 << 20;

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
    /// Files that were there: of an interrupted pull, or of the copy that was extended.
    pub files_present: u64,
    /// Segments of the archive, those of its own domains included.
    pub segments: u64,
    /// Of these the ones that the copy holds.
    pub segments_held: u64,
    /// Of those the ones that the options leave out, and that the copy holds because it had them, or some of their steps, before.
    pub segments_kept: u64,
}

/// Makes a copy of the archive in `bucket` at `path`, which must not exist, be empty, be what an interrupted pull left, or be a copy
/// of the same archive: a partial one, which is extended, or a whole one that nobody wrote to since, which moves on.
///
/// The copy is an archive of its own, which can be read, and written where it is whole and nobody else continues it. Every byte was
/// compared with its hash and is durable when this returns.
///
/// A copy of some domains or blocks is *partial*: it names every segment of the archive and holds some, so its heights and roots are those
/// of the archive, and what needs another segment is [`Error::NotHeld`]. It is for reading. To extend it, pull again with other options:
/// what it held stays, whatever they leave out. Where the bucket has a newer generation the copy moves on to it, and readers of the
/// copy take it over when they refresh.
///
/// # Errors
/// [`Error::Remote`]; [`Error::Exists`]; [`Error::UnknownDomain`]; [`Error::OutOfRange`] where the archive has none of the blocks;
/// [`Error::Options`] for a range of no blocks, and for a generation before that of the copy; [`Error::Locked`] while another pull extends
/// it; those of writing files.
pub fn pull(
    bucket: &Bucket,
    path: impl AsRef<Path>,
    options: &PullOptions,
    listener: &dyn ProgressListener,
) -> Result<PullReport, Error> {
    let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
    pull_on(&(Arc::new(OsStorage) as Arc<dyn Storage>), bucket, &path, options, listener)
}

/// The same to any storage.
pub(crate) fn pull_on(
    storage: &Arc<dyn Storage>,
    bucket: &Bucket,
    path: &Path,
    options: &PullOptions,
    listener: &dyn ProgressListener,
) -> Result<PullReport, Error> {
    let mut place = Place::look(&**storage, path)?;
    if place == Place::Finished && bucket.trust.is_some() {
        // With a key every file is compared again: it may have come without one.
        place = Place::Unfinished;
    } else if place == Place::Finished {
        // After a kill the manifest may be visible and not durable.
        storage.sync_dir(path)?;
        remove_marker(&**storage, path)?;
        let manifest = Manifest::load(&**storage, path)?;
        if manifest.is_whole() && !options.check {
            let files_present = manifest.file_names().len() as u64;
            return report(storage, path, &manifest, PullReport { files_present, ..PullReport::default() });
        }
        place = Place::Copy;
    }
    let former = (place == Place::Copy).then(|| take_up_copy(&**storage, path, bucket)).transpose()?;
    let manifest = bucket.chosen(options.generation)?.manifest;
    let selection = Selection::new(&options.domains, options.blocks, &manifest.archive)?;
    let held = former.as_ref().map(|(_, held)| held);
    if let Some(held) = held {
        check_succession(bucket, held, &manifest.archive)?;
    }
    let copy = selection.copy_of(&manifest.archive, held);
    place.begin(&**storage, path)?;
    let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let checks = options.check || bucket.trust.is_some();
    let pull = Pull { storage, bucket, path, checks, listener, files, bytes };
    let files_present = pull.fetch_all(&manifest, &copy, options)?;
    match held {
        None => finish(storage, path, &copy)?,
        Some(held) => replace(&**storage, path, held, &copy)?,
    }
    let config = &copy.config;
    let is_kept = |record: &&SegmentRecord| record.is_held && !selection.wants(config, record);
    let counted = PullReport {
        files_pulled: pull.files.into_inner(),
        bytes_pulled: pull.bytes.into_inner(),
        files_present,
        segments_kept: copy.segments.iter().filter(is_kept).count() as u64,
        ..PullReport::default()
    };
    report(storage, path, &copy, counted)
}

/// Takes the lock of a copy, and reads what it holds.
///
/// # Errors
/// [`Error::Locked`]; [`Error::Exists`] for an archive that is not, or no longer, the copy of a generation of the bucket.
fn take_up_copy(storage: &dyn Storage, path: &Path, bucket: &Bucket) -> Result<(DirLock, Manifest), Error> {
    let lock = storage.lock(path)?;
    let manifest = Manifest::load(storage, path)?;
    if manifest.is_whole() && !is_copy(storage, path, &manifest, bucket)? {
        return Err(Error::Exists { path: path.to_owned() });
    }
    // After a kill it may be visible and not durable. Nothing that the one before it names may go until it is.
    storage.sync_dir(path)?;
    Ok((lock, manifest))
}

/// Whether a whole archive is what a pull of its generation left: with the same segments, and no block in its log.
fn is_copy(storage: &dyn Storage, path: &Path, manifest: &Manifest, bucket: &Bucket) -> Result<bool, Error> {
    let log = storage.len(&layout::wal_file(path, manifest.wal_last))?;
    if manifest.wal_first != manifest.wal_last || log != Some(FILE_HEADER_LEN as u64) {
        return Ok(false);
    }
    let Some(published) = bucket.generation(manifest.generation)? else { return Ok(false) };
    let all = Selection::new(&[], None, &published.manifest.archive)?;
    Ok(all.copy_of(&published.manifest.archive, Some(manifest)) == *manifest)
}

/// Adds to what was counted what the copy is.
fn report(
    storage: &Arc<dyn Storage>,
    path: &Path,
    copy: &Manifest,
    counted: PullReport,
) -> Result<PullReport, Error> {
    Ok(PullReport {
        generation: copy.generation,
        range: Shared::open(storage, path)?.read_state().range(),
        segments: copy.segments.len() as u64,
        segments_held: copy.segments.iter().filter(|record| record.is_held).count() as u64,
        ..counted
    })
}

/// Refuses to extend a copy by another archive, or by an older state of its own.
fn check_succession(bucket: &Bucket, former: &Manifest, next: &Manifest) -> Result<(), Error> {
    if !former.config.is_same_archive(&next.config) {
        let (bucket, archive) = (bucket.store.url().to_owned(), bucket.archive.clone());
        return Err(RemoteError::OtherArchive { bucket, archive }.into());
    }
    if next.generation < former.generation {
        let reason = format!("the copy is of generation {} and does not go back", former.generation);
        return Err(Error::Options { field: "generation", reason });
    }
    Ok(())
}

impl Bucket {
    /// A generation by its number, or the newest.
    ///
    /// # Errors
    /// [`RemoteError::NoArchive`], [`RemoteError::NoGeneration`]; damage.
    pub(crate) fn chosen(&self, generation: Option<u64>) -> Result<Published, RemoteError> {
        let Some(wanted) = generation else { return Ok(self.require_latest()?.published) };
        if let Some(found) = self.generation(wanted)? {
            return Ok(found);
        }
        let newest = self.require_latest()?.published.manifest.generation();
        let bucket = self.store.url().to_owned();
        Err(RemoteError::NoGeneration { bucket, generation: wanted, newest })
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
    Finished,
    /// An archive that is, or may be, a copy.
    Copy,
}

impl Place {
    /// # Errors
    /// [`Error::Exists`] for anything else.
    fn look(storage: &dyn Storage, path: &Path) -> Result<Self, Error> {
        let names = storage.list(path)?.unwrap_or_default();
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        match (has(layout::PULL), has(layout::MANIFEST)) {
            (true, true) => Ok(Self::Finished),
            (true, false) => Ok(Self::Unfinished),
            (false, true) => Ok(Self::Copy),
            (false, _) if names.is_empty() && !had_content(storage, path)? => Ok(Self::Vacant),
            (false, _) => Err(Error::Exists { path: path.to_owned() }),
        }
    }

    /// Makes the directory, and says that it is not finished. A copy stays finished.
    fn begin(self, storage: &dyn Storage, path: &Path) -> Result<(), Error> {
        if self == Self::Copy {
            return Ok(());
        }
        storage.create_dir(path)?;
        storage.create_dir(&layout::wal_dir(path))?;
        if self == Self::Vacant {
            storage.create(&path.join(layout::PULL))?.sync()?;
            storage.sync_dir(path)?;
        }
        Ok(())
    }
}

/// What writes the files of a copy.
struct Pull<'a> {
    storage: &'a Arc<dyn Storage>,
    bucket: &'a Bucket,
    path: &'a Path,
    /// Whether files that are there are compared with their hashes.
    checks: bool,
    listener: &'a dyn ProgressListener,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Pull<'_> {
    /// Gets the files that are not there. Returns how many were.
    fn fetch_all(
        &self,
        manifest: &RemoteManifest,
        copy: &Manifest,
        options: &PullOptions,
    ) -> Result<u64, Error> {
        let (mut wanted, mut present) = (Vec::new(), 0);
        for file in manifest.files() {
            let record = &copy.segments[file.segment];
            if !record.is_held {
                continue;
            }
            let name = record.file_name(&copy.config, file.kind);
            if !options.accessors.has(file.kind) {
                // One that came without a key would be read.
                if self.checks && !self.is_whole(&name, &file)? {
                    self.storage.remove(&self.path.join(name))?;
                }
            } else if self.is_whole(&name, &file)? {
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
    /// that it is of this generation. With a key it is compared again: that pull may have had none, and its manifest any hash.
    fn is_whole(&self, name: &str, file: &RemoteFile<'_>) -> Result<bool, Error> {
        let Some(found) = self.storage.open(&self.path.join(name))? else { return Ok(false) };
        let mut footer = [0; PAGE_SIZE];
        if found.len()? != file.len() {
            return Ok(false);
        }
        let read = found.read_at(file.len().saturating_sub(PAGE_SIZE as u64), &mut footer)?;
        let has_footer = read == PAGE_SIZE && *blake3::hash(&footer).as_bytes() == file.id;
        if !has_footer || !self.checks {
            return Ok(has_footer);
        }
        let mut check = ContentCheck::new(file.len());
        read_left(&*found, file.len(), &mut check)?;
        Ok(check.holds(file))
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
            // What an interrupted pull left was not synced: after a power loss it may be anything.
            if from > 0 {
                return self.fetch(name, file);
            }
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
        let at = read_left(&*found, had, check)?;
        if at == 0 {
            self.storage.remove(part)?;
        }
        Ok(at)
    }
}

/// Reads the first `len` bytes of a file that an interrupted pull left, and returns how many it has of them.
fn read_left(file: &dyn ReadFile, len: u64, check: &mut ContentCheck) -> Result<u64, Error> {
    let (mut buffer, mut at) = (vec![0; READ_LEN], 0);
    while at < len {
        let wanted = READ_LEN.min((len - at) as usize);
        let read = file.read_at(at, &mut buffer[..wanted])?;
        if read == 0 {
            break;
        }
        check.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(at)
}

/// Makes an archive of the files: an empty log, then the manifest.
fn finish(storage: &Arc<dyn Storage>, path: &Path, manifest: &Manifest) -> Result<(), Error> {
    let directory = Directory::new(storage, path, &manifest.config);
    let wal = layout::wal_dir(path);
    // What a pull of another generation left.
    remove_unnamed(&**storage, path, manifest)?;
    storage.remove(&layout::wal_file(path, manifest.wal_first))?;
    create_file(&directory, manifest.wal_first)?;
    storage.sync_dir(&wal)?;
    storage.sync_dir(path)?;
    storage.sync_dir(path.parent().unwrap_or(Path::new("")))?;
    manifest.store(&**storage, path)?;
    remove_marker(&**storage, path)
}

/// Puts a manifest in the place of that of a copy, and removes what only the former one named: what was merged since.
fn replace(storage: &dyn Storage, path: &Path, former: &Manifest, copy: &Manifest) -> Result<(), Error> {
    // The names of files that came, accessors that the former one names among them.
    storage.sync_dir(path)?;
    if copy != former {
        copy.store(storage, path)?;
    }
    remove_unnamed(storage, path, copy)
}

fn remove_unnamed(storage: &dyn Storage, path: &Path, manifest: &Manifest) -> Result<(), Error> {
    let named = manifest.file_names();
    for name in storage.list(path)?.unwrap_or_default() {
        if layout::is_ours(&name) && name != layout::PULL && !named.contains(&name) {
            storage.remove(&path.join(name))?;
        }
    }
    Ok(())
}

fn remove_marker(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
    storage.remove(&path.join(layout::PULL))?;
    storage.sync_dir(path)
}
