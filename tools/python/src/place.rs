//! Opening an archive: in a directory, or where it is in object storage.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use icecore::remote::{Accessors, Bucket, BucketOptions, PublicKey, RemoteOptions, default_cache};
use icecore::{ReadOptions, Reader};
use pyo3::prelude::*;

use crate::archive::Archive;
use crate::arguments::Count;
use crate::failure::Failure;
use crate::process::interruptible;

/// Opens the archive at a path or URL for reading.
///
/// A path is a directory that ``icecore ingest`` or the Rust library made; a writer may be at work on it. A URL is
/// ``s3://BUCKET/PREFIX``, or ``file:///FOLDER`` for a shared disk, where ``icecore push`` published it; pages come when they are
/// needed and are kept in a cache on disk. Credentials come from the usual environment (``AWS_*``) or profile, never from a URL.
///
/// Args:
///     place: the directory, or the URL.
///     resident_budget: of a directory, the most bytes of indexes and filters that are read in the background at opening;
///         an eighth of the memory unless it is given. 0 for a process that does a single lookup.
///     archive: of a bucket, the name among its archives; ``main`` unless it is given.
///     endpoint: another server than that of AWS, such as ``http://localhost:7070``.
///     region: the region of the bucket.
///     cache: the folder for what was read; ``icecore`` in the cache folder of the user unless it is given.
///     cache_size: bytes that the cache may take; 20 GiB unless it is given.
///     fetch: bytes of an aligned piece that are asked for where one page is needed, a power of two; 64 KiB unless it is given.
///     warm: which accessors are read beforehand: ``"none"``, ``"bt"`` or ``"all"``.
///     generation: an older generation than the newest, which ``refresh`` stays in.
///     pubkey: believe only what this key signed with ``icecore push --sign``: a public key of minisign, or the file that has it.
///
/// Raises:
///     NotFoundError: there is no archive.
///     CorruptError, UnsupportedError: its list of files is damaged, is not signed by ``pubkey``, or is of a newer format.
///     StorageError: the system or the store refused.
///     MisuseError: an option makes no sense, or does not belong to such a place.
///
/// >>> archive = icecore.open("chain.ice")
/// >>> archive.get("kv", b"alice", at=1)
/// b'100'
#[pyfunction]
#[pyo3(signature = (place, *, resident_budget=None, archive=None, endpoint=None, region=None, cache=None, cache_size=None,
                    fetch=None, warm=None, generation=None, pubkey=None))]
#[expect(clippy::too_many_arguments, reason = "each is an option by name in Python")]
pub(crate) fn open(
    py: Python<'_>,
    place: PathBuf,
    resident_budget: Option<Count>,
    archive: Option<String>,
    endpoint: Option<String>,
    region: Option<String>,
    cache: Option<PathBuf>,
    cache_size: Option<Count>,
    fetch: Option<Count>,
    warm: Option<&str>,
    generation: Option<Count>,
    pubkey: Option<PathBuf>,
) -> PyResult<Archive> {
    let options =
        BucketPlace { archive, endpoint, region, cache, cache_size, fetch, warm, generation, pubkey };
    let reader = match place.to_str().filter(|text| text.contains("://")) {
        Some(url) => {
            if resident_budget.is_some() {
                return Err(misplaced("resident_budget", "a directory").into());
            }
            let (url, bucket, options) = (url.to_owned(), options.bucket()?, options.reading()?);
            interruptible(py, move || Ok(Reader::open_remote(&Bucket::open_with(&url, &bucket)?, &options)?))?
        }
        None => {
            options.refuse_any()?;
            let options = ReadOptions::new();
            let options = resident_budget.map_or(options, |bytes| options.resident_budget(bytes.0));
            let path = place.clone();
            interruptible(py, move || Ok(Reader::open_with(path, options)?))?
        }
    };
    Ok(Archive::new(reader, place))
}

fn misplaced(option: &str, of: &str) -> Failure {
    Failure::Misuse(format!("{option} is an option of {of}, which this place is not"))
}

/// What only a bucket takes.
struct BucketPlace<'a> {
    archive: Option<String>,
    endpoint: Option<String>,
    region: Option<String>,
    cache: Option<PathBuf>,
    cache_size: Option<Count>,
    fetch: Option<Count>,
    warm: Option<&'a str>,
    generation: Option<Count>,
    pubkey: Option<PathBuf>,
}

impl BucketPlace<'_> {
    /// # Errors
    /// Names an option that was given.
    fn refuse_any(&self) -> Result<(), Failure> {
        let given = [
            ("archive", self.archive.is_some()),
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("cache", self.cache.is_some()),
            ("cache_size", self.cache_size.is_some()),
            ("fetch", self.fetch.is_some()),
            ("warm", self.warm.is_some()),
            ("generation", self.generation.is_some()),
            ("pubkey", self.pubkey.is_some()),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map_or(Ok(()), |(name, _)| Err(misplaced(name, "a bucket")))
    }

    /// # Errors
    /// There is no key where one was named.
    fn bucket(&self) -> Result<BucketOptions, Failure> {
        let mut options = BucketOptions::new();
        if let Some(endpoint) = &self.endpoint {
            options = options.endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            options = options.region(region);
        }
        if let Some(archive) = &self.archive {
            options = options.archive(archive);
        }
        if let Some(key) = &self.pubkey {
            options = options.public_key(public_key(key)?);
        }
        Ok(options)
    }

    fn reading(self) -> Result<RemoteOptions, Failure> {
        let mut options = RemoteOptions::new(self.cache.unwrap_or_else(default_cache));
        if let Some(bytes) = self.cache_size {
            options = options.cache_size(bytes.0);
        }
        if let Some(bytes) = self.fetch {
            options = options.fetch(bytes.0);
        }
        if let Some(generation) = self.generation {
            options = options.generation(generation.0);
        }
        Ok(options.warm(match self.warm {
            None | Some("none") => Accessors::None,
            Some("bt") => Accessors::Bt,
            Some("all") => Accessors::All,
            Some(_) => return Err(Failure::Misuse("warm is \"none\", \"bt\" or \"all\"".to_owned())),
        }))
    }
}

/// No file with a key is as long, in bytes.
const KEY_FILE_MAX: u64 = 1 << 16;

/// The key itself, or the file that has it.
fn public_key(given: &Path) -> Result<PublicKey, Failure> {
    if let Some(key) = given.to_str().and_then(|text| text.parse().ok()) {
        return Ok(key);
    }
    let mut text = String::new();
    let read = File::open(given).and_then(|file| file.take(KEY_FILE_MAX).read_to_string(&mut text));
    read.map_err(|error| {
        let reason = "is neither a public key of minisign nor a file with one";
        Failure::Misuse(format!("pubkey: {} {reason}: {error}", given.display()))
    })?;
    Ok(text.parse()?)
}
