//! An archive's place in a bucket: which generation is the newest, and how the next one is published.

use crate::error::Error;
use crate::remote::bundle::{self, Ends, Named};
use crate::remote::connect::{BucketOptions, connect};
use crate::remote::location::Location;
use crate::remote::manifest::{self, NO_PARENT, RemoteManifest};
use crate::remote::names::{self, Hash};
use crate::remote::signature::PublicKey;
use crate::remote::store::Store;
use crate::remote_error::RemoteError;

/// The name of an archive that was given none.
const ARCHIVE: &str = "main";

/// What the marker says.
const MARKER_TEXT: &[u8] = b"icecore bucket 1\n";

/// The place of one archive in object storage. Cheap to clone.
///
/// | URL | is |
/// |---|---|
/// | `s3://BUCKET/PREFIX` | S3, or a server that speaks its protocol: see [`BucketOptions::endpoint`] |
/// | `file:///FOLDER` | a folder with the same layout |
/// | `memory://NAME/PREFIX` | the memory of this process, for tests |
///
/// Credentials, region and endpoint come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`,
/// `AWS_REGION`, `AWS_ENDPOINT_URL`, roles of a machine) or else from the profile that `AWS_PROFILE` names.
///
/// ```
/// # fn main() -> Result<(), icecore::Error> {
/// use icecore::remote::{Bucket, PullOptions, PushOptions, pull, push};
/// # use icecore::{Archive, Options, Reader};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, copy) = (dir.path().join("state.ice"), dir.path().join("copy.ice"));
/// # let archive = Archive::create(&path, Options::new().domain("accounts").blocks_per_step(4).reorg_window(0))?;
/// # for height in 1..=20 {
/// #     let mut block = archive.begin(height)?;
/// #     block.put("accounts", b"alice", &height.to_le_bytes())?;
/// #     block.commit()?;
/// # }
/// # archive.emit()?;
/// let bucket = Bucket::open("memory://chain")?;
/// let pushed = push(&path, &bucket, &PushOptions::new(), &())?;
/// assert_eq!(pushed.generation, Some(1));
///
/// let pulled = pull(&bucket, &copy, &PullOptions::new(), &())?;
/// let reader = Reader::open(&copy)?; // the segments; the newest blocks stay with the writer
/// assert_eq!(reader.range(), pulled.range);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bucket {
    pub(crate) store: Store,
    /// The server that has it; empty where the URL says it.
    pub(crate) endpoint: String,
    pub(crate) archive: String,
    /// Who must have signed a generation.
    pub(crate) trust: Option<PublicKey>,
}

/// A generation that was read from the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) manifest: RemoteManifest,
    /// What the next generation names as its parent.
    pub(crate) hash: Hash,
}

/// The newest generation.
pub(crate) struct Latest {
    pub(crate) published: Published,
    /// Whether the hint names it.
    pub(crate) is_hinted: bool,
}

impl Bucket {
    /// The bucket of a URL, reached as the environment says. No request is made.
    ///
    /// # Errors
    /// [`Error::Remote`] for a URL that names none.
    pub fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, &BucketOptions::new())
    }

    /// The same with options.
    ///
    /// # Errors
    /// Those of [`Bucket::open`].
    pub fn open_with(url: &str, options: &BucketOptions) -> Result<Self, Error> {
        let archive = options.archive.clone().unwrap_or_else(|| ARCHIVE.to_owned());
        if !names::is_archive_name(&archive) {
            let reason = "the name of an archive has 1 to 64 ASCII letters, digits, - and _".to_owned();
            return Err(RemoteError::Url { reason }.into());
        }
        let connection = connect(&Location::parse(url)?, options)?;
        let endpoint = connection.endpoint.clone();
        let store = Store::new(connection)?;
        Ok(Self { store, endpoint, archive, trust: options.public_key.clone() })
    }

    /// Requests made through this handle and its clones, and how many of them repeated another.
    pub fn requests(&self) -> (u64, u64) {
        self.store.requests()
    }

    /// Refuses a store that lets two requests create one object. Marks the prefix.
    pub(crate) fn check_conditions(&self) -> Result<(), RemoteError> {
        let create = || self.store.create(names::MARKER, MARKER_TEXT.to_vec());
        // The first may be repeated by the request before it, whose answer was lost; what counts is the second.
        if create()? && create()? {
            return Err(RemoteError::Unconditional { bucket: self.store.url().to_owned() });
        }
        Ok(())
    }

    /// The newest generation; `None` before the first.
    ///
    /// Two requests where the hint is right: it, and the generation after it, which is not there.
    pub(crate) fn latest(&self) -> Result<Option<Latest>, RemoteError> {
        let hint = self.store.get(&names::head(&self.archive), manifest::LEN_MAX)?;
        // A hint that cannot be read is worth as much as none.
        let hint = hint.and_then(|bytes| self.read(&bytes, &names::head(&self.archive)).ok());
        let hinted = hint.as_ref().map(|published| published.manifest.generation());
        let Some(published) = hint.map_or_else(|| self.newest_listed(), |hint| Ok(Some(hint)))? else {
            return Ok(None);
        };
        let published = self.newest_after(published)?;
        let is_hinted = hinted == Some(published.manifest.generation());
        Ok(Some(Latest { published, is_hinted }))
    }

    /// The last of the generations that follow one by one: one request for each, and one that finds nothing.
    pub(crate) fn newest_after(&self, mut published: Published) -> Result<Published, RemoteError> {
        loop {
            let next = published.manifest.generation() + 1;
            let Some(after) = self.generation(next)? else { return Ok(published) };
            if after.manifest.parent != published.hash {
                let object = self.store.shown(&names::manifest(&self.archive, next));
                return Err(RemoteError::Damaged {
                    object,
                    reason: "it does not follow the generation before it",
                });
            }
            published = after;
        }
    }

    /// The newest generation, or what a caller gets who needs one.
    pub(crate) fn require_latest(&self) -> Result<Latest, RemoteError> {
        self.latest()?.ok_or_else(|| RemoteError::NoArchive {
            bucket: self.store.url().to_owned(),
            archive: self.archive.clone(),
        })
    }

    fn newest_listed(&self) -> Result<Option<Published>, RemoteError> {
        let listing = self.store.list(&names::manifests(&self.archive))?;
        let generations = listing.iter().filter_map(|found| names::parse_manifest(&found.name));
        match generations.map(|(_, generation)| generation).max() {
            Some(generation) => self.generation(generation),
            None => Ok(None),
        }
    }

    /// A generation; `None` where there is none of that number.
    pub(crate) fn generation(&self, generation: u64) -> Result<Option<Published>, RemoteError> {
        let name = names::manifest(&self.archive, generation);
        let Some(bytes) = self.store.get(&name, manifest::LEN_MAX)? else { return Ok(None) };
        let published = self.read(&bytes, &name)?;
        if published.manifest.generation() != generation {
            let object = self.store.shown(&name);
            return Err(RemoteError::Damaged { object, reason: "it is another generation" });
        }
        Ok(Some(published))
    }

    /// A generation from its bytes; `name` is for errors.
    pub(crate) fn read(&self, bytes: &[u8], name: &str) -> Result<Published, RemoteError> {
        let manifest = RemoteManifest::decode(bytes, &self.store.shown(name))?;
        let is_first = manifest.generation() == 1;
        if is_first != (manifest.parent == NO_PARENT) || manifest.generation() == 0 {
            let object = self.store.shown(name);
            return Err(RemoteError::Damaged {
                object,
                reason: "it does not follow the generation before it",
            });
        }
        if let Some(key) = &self.trust {
            let checked = manifest.check_signature(key, &self.archive);
            let object = || self.store.shown(name);
            checked.map_err(|reason| RemoteError::Untrusted { object: object(), reason })?;
        }
        Ok(Published { manifest, hash: *blake3::hash(bytes).as_bytes() })
    }

    /// What opening reads of each file of a generation, in the order of its files.
    pub(crate) fn bundle(&self, manifest: &RemoteManifest) -> Result<Vec<Ends>, RemoteError> {
        let name = names::bundle(&manifest.bundle.hash);
        let object = || self.store.shown(&name);
        let damaged = |reason| RemoteError::Damaged { object: object(), reason };
        let max = manifest.bundle.len.min(bundle::LEN_MAX);
        let bytes = self.store.get(&name, max)?.ok_or_else(|| RemoteError::Gone { object: object() })?;
        if bytes.len() as u64 != manifest.bundle.len
            || *blake3::hash(&bytes).as_bytes() != manifest.bundle.hash
        {
            return Err(damaged("its bytes are not those that its name says"));
        }
        let files: Vec<_> = manifest.files().map(|file| Named { len: file.len(), id: file.id }).collect();
        bundle::decode(&bytes, &files).map_err(damaged)
    }

    /// Publishes a generation whose objects are there. It is visible when its manifest is.
    ///
    /// # Errors
    /// [`RemoteError::Lost`] where another one of that number is there.
    pub(crate) fn publish(
        &self,
        manifest: &RemoteManifest,
        signer: Option<&PublicKey>,
    ) -> Result<(), RemoteError> {
        let (name, bytes) = (names::manifest(&self.archive, manifest.generation()), manifest.encode());
        if !manifest.archive.is_countable() {
            let object = self.store.shown(&names::head(&self.archive));
            return Err(RemoteError::Damaged { object, reason: "its number is too high to go on from" });
        }
        if self.store.create(&name, bytes.clone())? {
            return self.hint(bytes);
        }
        match self.store.get(&name, manifest::LEN_MAX)? {
            // Our own request was answered twice, or another pusher had the same to say: with a signature of its own, where it is signed.
            Some(theirs) if theirs == bytes || self.says_the_same(&theirs, manifest, signer) => {
                self.hint(theirs)
            }
            _ => {
                let (bucket, generation) = (self.store.url().to_owned(), manifest.generation());
                Err(RemoteError::Lost { bucket, generation })
            }
        }
    }

    /// Whether the bytes of a generation are those of `ours` with another signature of the same key.
    fn says_the_same(&self, theirs: &[u8], ours: &RemoteManifest, signer: Option<&PublicKey>) -> bool {
        let theirs = RemoteManifest::decode(theirs, "");
        theirs.is_ok_and(|theirs| {
            theirs.signed_part() == ours.signed_part()
                && signer.is_some_and(|key| theirs.check_signature(key, &self.archive).is_ok())
        })
    }

    /// Has the hint name a generation, given by its bytes.
    pub(crate) fn hint(&self, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.store.put(&names::head(&self.archive), bytes)
    }
}
