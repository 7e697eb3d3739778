//! The files of a generation as the engine reads those of a disk. Nothing of it can be changed.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use icecore_segments::frame::{Header, Kind};
use parking_lot::RwLock;

use crate::error::{Error, Operation};
use crate::remote::bundle::Ends;
use crate::remote::cache::{Cache, CachedFile, Object};
use crate::remote::local::bytes_and_tail;
use crate::remote::manifest::{RemoteFile, RemoteManifest};
use crate::remote::names::{self, Hash};
use crate::remote::proof::Proof;
use crate::remote_error::RemoteError;
use crate::segment::live::LiveSegment;
use crate::storage::directory::Directory;
use crate::storage::{Access, DirLock, Mapping, ReadFile, SpoolFile, Storage, WriteFile, layout};

/// See the module.
pub(crate) struct BucketStorage {
    cache: Arc<Cache>,
    /// Whether every byte is compared with what the generation says of it.
    is_proven: bool,
    listing: RwLock<Arc<Listing>>,
}

/// The files of a generation.
struct Listing {
    /// What a copy has as its manifest.
    manifest: Vec<u8>,
    /// By the names that they have in a copy.
    files: HashMap<String, ListedFile>,
}

/// A file of a generation.
struct ListedFile {
    id: Hash,
    kind: Kind,
    ends: Ends,
    /// What its bytes must be, where only a key is believed.
    proof: Option<Arc<Proof>>,
}

impl Listing {
    fn of(manifest: &RemoteManifest, ends: Vec<Ends>, is_proven: bool) -> Arc<Self> {
        let name = |file: &RemoteFile<'_>| file.record.file_name(&manifest.archive.config, file.kind);
        let proof = |file: &RemoteFile<'_>| Proof::new(file.id, file.content(), file.content_len());
        let listed = |file: &RemoteFile<'_>, ends| ListedFile {
            id: file.id,
            kind: file.kind,
            ends,
            proof: is_proven.then(|| proof(file)),
        };
        let files = manifest.files().zip(ends).map(|(file, ends)| (name(&file), listed(&file, ends)));
        Arc::new(Self { manifest: manifest.archive.encode(), files: files.collect() })
    }

    fn file(&self, path: &Path) -> Option<&ListedFile> {
        self.files.get(path.file_name()?.to_str()?)
    }

    fn manifest_at(&self, path: &Path) -> Option<Vec<u8>> {
        path.file_name().is_some_and(|name| name == layout::MANIFEST).then(|| self.manifest.clone())
    }
}

impl BucketStorage {
    /// The files of a generation; `ends` are those of its bundle. With `is_proven` every byte of them is compared with what the
    /// generation says.
    pub(crate) fn new(
        manifest: &RemoteManifest,
        ends: Vec<Ends>,
        cache: &Arc<Cache>,
        is_proven: bool,
    ) -> Self {
        let listing = RwLock::new(Listing::of(manifest, ends, is_proven));
        Self { cache: Arc::clone(cache), is_proven, listing }
    }

    /// From now on has the files of another generation. Those that are mapped stay what they are.
    pub(crate) fn go_to(&self, manifest: &RemoteManifest, ends: Vec<Ends>) {
        *self.listing.write() = Listing::of(manifest, ends, self.is_proven);
    }

    /// Refuses a bundle that has more of a file than opening reads, or less: what is beyond the tail has to come from the object, where it
    /// is compared with what it must be.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`]; those of opening the files.
    pub(crate) fn check_tails(&self, directory: &Directory, segment: &LiveSegment) -> Result<(), Error> {
        let listing = self.listing();
        for kind in segment.record.kinds() {
            let path = segment.record.path(directory, kind);
            let listed = listing.file(&path).ok_or(Error::Missing { path })?;
            let (_, tail) = bytes_and_tail(segment, kind)?;
            if listed.ends.tail.len() as u64 != tail.end - tail.start {
                let object = self.cache.store.shown(&names::object(&listed.id, kind));
                let reason = "its bundle has more or less of it than opening reads";
                return Err(RemoteError::Damaged { object, reason }.into());
            }
        }
        Ok(())
    }

    fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.listing.read())
    }
}

impl std::fmt::Debug for BucketStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketStorage").field("files", &self.listing().files.len()).finish_non_exhaustive()
    }
}

/// What asks for a change gets.
fn refused<T>(operation: Operation, path: &Path) -> Result<T, Error> {
    let source = io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "an archive in a bucket is not changed there: pull it",
    );
    Err(Error::Io { operation, path: path.to_owned(), source })
}

impl Storage for BucketStorage {
    fn create_dir(&self, path: &Path) -> Result<(), Error> {
        refused(Operation::Create, path)
    }

    fn list(&self, _: &Path) -> Result<Option<Vec<String>>, Error> {
        let mut names: Vec<String> = self.listing().files.keys().cloned().collect();
        names.sort_unstable();
        Ok(Some(names))
    }

    fn len(&self, path: &Path) -> Result<Option<u64>, Error> {
        Ok(self.listing().file(path).map(|file| file.ends.len))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, Error> {
        refused(Operation::Create, path)
    }

    fn append(&self, path: &Path, _: Range<u64>) -> Result<Box<dyn WriteFile>, Error> {
        refused(Operation::Write, path)
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.listing().manifest_at(path))
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn ReadFile>>, Error> {
        Ok(self.listing().manifest_at(path).map(|bytes| Box::new(Bytes(bytes)) as Box<dyn ReadFile>))
    }

    fn map(&self, path: &Path, _: Access) -> Result<Mapping, Error> {
        let listing = self.listing();
        let ListedFile { id, kind, ends, proof } =
            listing.file(path).ok_or_else(|| Error::Missing { path: path.to_owned() })?;
        let header = Header::parse(&ends.header);
        let header = header.map_err(|source| Error::File { path: path.to_owned(), source })?;
        let tail_at = ends.len - ends.tail.len() as u64;
        let (salt, proof) = (header.salt(), proof.clone());
        let object = Object { id: *id, kind: *kind, len: ends.len, salt, proof };
        let known = [(0, &ends.header[..]), (tail_at, &ends.tail[..])];
        Arc::new(CachedFile::open(&self.cache, object, &known)?).map()
    }

    fn read_whole_max(&self) -> u64 {
        // Header and tail are here already, and the pages that a lookup needs come together.
        0
    }

    fn link(&self, _: &Path, to: &Path) -> Result<bool, Error> {
        refused(Operation::Create, to)
    }

    fn rename(&self, from: &Path, _: &Path) -> Result<(), Error> {
        refused(Operation::Rename, from)
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        refused(Operation::Remove, path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), Error> {
        refused(Operation::Sync, dir)
    }

    fn spool(&self, dir: &Path) -> Result<Box<dyn SpoolFile>, Error> {
        refused(Operation::Create, dir)
    }

    fn lock(&self, dir: &Path) -> Result<DirLock, Error> {
        refused(Operation::Lock, dir)
    }

    fn is_locked(&self, _: &Path) -> Result<bool, Error> {
        Ok(false)
    }
}

/// A small file in memory.
struct Bytes(Vec<u8>);

impl ReadFile for Bytes {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn is_at(&self, _: &Path) -> Result<bool, Error> {
        // A generation is never replaced.
        Ok(true)
    }
}
