//! Requests to a bucket: the one place that speaks to `object_store`.
//!
//! Lengths are compared here, because stores and what stands between return short bodies as whole ones; what
//! the bytes are is compared by those who know it.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{
    GetOptions, GetRange, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload,
};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::remote::fault::Fault;
use crate::remote::patience::{BACKOFF, PATIENCE, Patience, RETRIES, STALL, within};
use crate::remote::runtime::{Pending, Runtime};
use crate::remote_error::RemoteError;
use crate::storage::regular::is_other_than_file;

/// After this long an answer must have come at `RATE_MIN`.
const DRIP: Duration = Duration::from_secs(10);

/// Bytes a second that a line which works carries.
const RATE_MIN: u64 = 64 << 10;

/// The same of a line that carries requests.
const PUT_RATE_MIN: u64 = 256 << 10;

/// Ranges that are under way at a time: as many as fill a line, and no store minds.
const LANDINGS: usize = 32;

/// Objects removed in one request.
const REMOVE_MAX: usize = 1000;

/// What is known of an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Without the prefix of the bucket.
    pub(crate) name: String,
    pub(crate) len: u64,
    /// Since it was written, by the clocks of the store and of this machine.
    pub(crate) age: Duration,
}

/// The objects below a prefix. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store(Arc<Inner>);

struct Inner {
    objects: Arc<dyn ObjectStore>,
    /// The same, which repeats requests by itself: for uploads in parts, whose parts cannot be repeated from outside.
    patient: Arc<dyn ObjectStore>,
    folder: Option<Arc<LocalFileSystem>>,
    prefix: String,
    url: String,
    /// What errors must not repeat.
    secrets: Vec<String>,
    runtime: Runtime,
    /// The turns of [`Store::begin_landing`].
    landings: Semaphore,
    requests: AtomicU64,
    retries: AtomicU64,
    patience: Patience,
}

/// What connects to a store.
pub(crate) struct Connection {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) patient: Arc<dyn ObjectStore>,
    /// The same, where objects are files of this machine.
    pub(crate) folder: Option<Arc<LocalFileSystem>>,
    /// Of all names; in the store's own encoding.
    pub(crate) prefix: String,
    /// How errors name the bucket.
    pub(crate) url: String,
    /// The server that has it; empty where the URL says it.
    pub(crate) endpoint: String,
    pub(crate) secrets: Vec<String>,
    /// How long a request may take until its first byte, where somebody said it.
    pub(crate) timeout: Option<Duration>,
}

/// The bytes of a range, and what was got beside them.
pub(crate) type Landed<T> = (Vec<u8>, T);

/// An upload in parts, visible when it is complete.
pub(crate) struct Upload {
    store: Store,
    name: String,
    parts: Box<dyn MultipartUpload>,
}

impl Store {
    /// Objects below the prefix of a connection.
    ///
    /// # Errors
    /// [`RemoteError::Runtime`].
    pub(crate) fn new(connection: Connection) -> Result<Self, RemoteError> {
        let Connection { objects, patient, folder, prefix, url, secrets, timeout, .. } = connection;
        let (requests, retries) = (AtomicU64::new(0), AtomicU64::new(0));
        let runtime = Runtime::start()?;
        let landings = Semaphore::new(LANDINGS);
        let patience = Patience::new(timeout);
        let inner = Inner {
            objects,
            patient,
            folder,
            prefix,
            url,
            secrets,
            runtime,
            landings,
            requests,
            retries,
            patience,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// How errors name the bucket.
    pub(crate) fn url(&self) -> &str {
        &self.0.url
    }

    /// How errors name an object.
    pub(crate) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.0.url)
    }

    /// Requests made and requests repeated so far.
    pub(crate) fn requests(&self) -> (u64, u64) {
        (self.0.requests.load(Ordering::Relaxed), self.0.retries.load(Ordering::Relaxed))
    }

    /// A whole object of at most `max` bytes; `None` where there is none.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`]; [`RemoteError::Damaged`] for a longer one.
    pub(crate) fn get(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, RemoteError> {
        let (inner, path) = (Arc::clone(&self.0), self.path(name));
        let op = move || read(Arc::clone(&inner), path.clone(), None, max);
        match self.begin(op).wait()? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(fault) if fault.is_absent() => Ok(None),
            Err(fault) => Err(self.tell(fault, "get", name)),
        }
    }

    /// Begins to read a range of an object.
    pub(crate) fn begin_get(&self, name: &str, range: Range<u64>) -> PendingGet {
        let (inner, path) = (Arc::clone(&self.0), self.path(name));
        let op = move || read(Arc::clone(&inner), path.clone(), Some(range.clone()), u64::MAX);
        PendingGet { store: self.clone(), name: name.to_owned(), pending: self.begin(op) }
    }

    /// Begins to read a range of an object, whose bytes go to `land` on a thread of requests, with what is got `beside` them. So many are under way at a time that a
    /// line is full; the others wait for their turn.
    pub(crate) fn begin_landing<T: Send + 'static>(
        &self,
        name: &str,
        range: Range<u64>,
        beside: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
        land: impl FnOnce(Result<Landed<T>, RemoteError>) -> Result<(), RemoteError> + Send + 'static,
    ) -> Pending<Result<(), RemoteError>> {
        let (store, name) = (self.clone(), name.to_owned());
        self.0.runtime.begin(async move {
            let bytes = async {
                let _turn = store.0.landings.acquire().await;
                store.part(&name, range).await
            };
            land(try_join(bytes, beside).await)
        })
    }

    /// A range of an object, for what runs on a thread of requests.
    ///
    /// # Errors
    /// [`RemoteError::Gone`], [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) async fn part(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
        let (inner, path) = (&self.0, &self.path(name));
        let op = || read(Arc::clone(inner), path.clone(), Some(range.clone()), u64::MAX);
        self.0.repeat(op).await.map_err(|fault| self.tell(fault, "get", name))
    }

    /// Has something done on a thread of requests.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Pending<T> {
        self.0.runtime.begin(future)
    }

    /// Creates an object; `false` where there is one of that name.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, RemoteError> {
        match self.write(name, bytes, PutMode::Create)? {
            Ok(()) => Ok(true),
            Err(fault) if fault.is_present() => Ok(false),
            Err(fault) => Err(self.tell(fault, "put", name)),
        }
    }

    /// Writes an object, whether there is one of that name or not.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.write(name, bytes, PutMode::Overwrite)?.map_err(|fault| self.tell(fault, "put", name))
    }

    fn write(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<Result<(), Fault>, RemoteError> {
        let sending = Duration::from_secs(bytes.len() as u64 / PUT_RATE_MIN);
        let (inner, path, payload) = (Arc::clone(&self.0), self.path(name), PutPayload::from(bytes));
        let op = move || {
            let (inner, path, payload) = (Arc::clone(&inner), path.clone(), payload.clone());
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let limit = inner.patience.stall() + sending;
            async move { within(limit, inner.objects.put_opts(&path, payload, options)).await.map(drop) }
        };
        self.begin(op).wait()
    }

    /// Length and age of an object; `None` where there is none.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn look(&self, name: &str) -> Result<Option<Listed>, RemoteError> {
        let (inner, path) = (Arc::clone(&self.0), self.path(name));
        let op = move || {
            let (inner, path) = (Arc::clone(&inner), path.clone());
            async move {
                inner.check_file(&path)?;
                within(inner.patience.stall(), inner.objects.head(&path)).await
            }
        };
        match self.begin(op).wait()? {
            Ok(meta) => Ok(Some(listed(name.to_owned(), &meta))),
            Err(fault) if fault.is_absent() => Ok(None),
            Err(fault) => Err(self.tell(fault, "look at", name)),
        }
    }

    /// Whether the archives have a part of the bucket to themselves.
    pub(crate) fn has_prefix(&self) -> bool {
        !self.0.prefix.is_empty()
    }

    /// The objects whose names begin with `folder` and a slash, by name; all of them for no folder.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<Listed>, RemoteError> {
        let (inner, path) = (Arc::clone(&self.0), self.path(folder));
        let op = move || {
            let (inner, path) = (Arc::clone(&inner), path.clone());
            async move {
                let (mut pages, mut found) = (inner.objects.list(Some(&path)), Vec::new());
                let limit = inner.patience.stall().max(2 * STALL);
                while let Some(meta) = within(limit, pages.try_next()).await? {
                    found.push(meta);
                }
                Ok(found)
            }
        };
        let found = match self.begin(op).wait()? {
            Ok(found) => found,
            // A folder of the file system that is not there.
            Err(fault) if fault.is_absent() => Vec::new(),
            Err(fault) => return Err(self.tell(fault, "list", folder)),
        };
        let below = format!("{}/", self.0.prefix);
        let prefix = if self.0.prefix.is_empty() { "" } else { &below };
        let name = |meta: &ObjectMeta| Some(meta.location.as_ref().strip_prefix(prefix)?.to_owned());
        let mut listing: Vec<Listed> =
            found.iter().filter_map(|meta| Some(listed(name(meta)?, meta))).collect();
        listing.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Removes objects. One that is not there is not an error.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn remove(&self, names: &[String]) -> Result<(), RemoteError> {
        for some in names.chunks(REMOVE_MAX) {
            let (objects, paths) = (Arc::clone(&self.0.objects), some.iter().map(|name| self.path(name)));
            let paths: Vec<ObjectPath> = paths.collect();
            let op = move || {
                let (objects, paths) = (Arc::clone(&objects), paths.clone());
                async move {
                    let mut removed = objects.delete_stream(stream::iter(paths.into_iter().map(Ok)).boxed());
                    while let Some(one) = within(PATIENCE, async { Ok(removed.next().await) }).await? {
                        match one.map_err(Fault::from) {
                            Err(fault) if !fault.is_absent() => return Err(fault),
                            _ => {}
                        }
                    }
                    Ok(())
                }
            };
            self.begin(op).wait()?.map_err(|fault| self.tell(fault, "remove", &some[0]))?;
        }
        Ok(())
    }

    /// Begins an upload in parts.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn upload(&self, name: &str) -> Result<Upload, RemoteError> {
        let (objects, path) = (Arc::clone(&self.0.patient), self.path(name));
        let begun = self.0.runtime.begin(async move {
            within(PATIENCE, objects.put_multipart_opts(&path, PutMultipartOptions::default())).await
        });
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let parts = begun.wait()?.map_err(|fault| self.tell(fault, "put", name))?;
        Ok(Upload { store: self.clone(), name: name.to_owned(), parts })
    }

    fn path(&self, name: &str) -> ObjectPath {
        let whole =
            if self.0.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.0.prefix) };
        ObjectPath::parse(whole).expect("prefixes were checked, and names are composed by this crate")
    }

    fn tell(&self, fault: Fault, operation: &'static str, name: &str) -> RemoteError {
        fault.tell(operation, self.shown(name), &self.0.secrets)
    }

    /// Begins a request, and repeats it as long as that may help.
    fn begin<T, F>(&self, op: impl FnMut() -> F + Send + 'static) -> Pending<Result<T, Fault>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let inner = Arc::clone(&self.0);
        self.0.runtime.begin(async move { inner.repeat(op).await })
    }
}

impl Inner {
    /// Refuses what is no regular file in a folder that is a bucket: to open a pipe or to read a device may never end.
    fn check_file(&self, path: &ObjectPath) -> Result<(), Fault> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let is_other = is_other_than_file(&folder.path_to_filesystem(path)?);
        if is_other { Err(Fault::NoFile) } else { Ok(()) }
    }

    /// Makes a request, and repeats it as long as that may help.
    async fn repeat<T, F>(&self, mut op: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let (started, mut backoff) = (Instant::now(), BACKOFF);
        for attempt in 0.. {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let fault = match op().await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if let Fault::Stalled(_) = fault {
                self.patience.lengthen();
            }
            let is_late = started.elapsed() + backoff > PATIENCE;
            if !fault.is_transient() || attempt == RETRIES || is_late {
                return Err(fault);
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            sleep(backoff).await;
            backoff *= 2;
        }
        unreachable!("the last attempt returns")
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.url).finish()
    }
}

/// A range of an object that was asked for.
pub(crate) struct PendingGet {
    store: Store,
    name: String,
    pending: Pending<Result<Vec<u8>, Fault>>,
}

impl PendingGet {
    /// Waits for the bytes: as many as were asked for.
    ///
    /// # Errors
    /// [`RemoteError::Gone`], [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn wait(self) -> Result<Vec<u8>, RemoteError> {
        self.pending.wait()?.map_err(|fault| self.store.tell(fault, "get", &self.name))
    }
}

impl Upload {
    /// Begins to send the next part.
    pub(crate) fn begin_part(&mut self, bytes: Vec<u8>) -> Pending<Result<(), Fault>> {
        // The store repeats a part within its own patience.
        let limit = PATIENCE + Duration::from_secs(bytes.len() as u64 / PUT_RATE_MIN);
        let part = self.parts.put_part(bytes.into());
        self.store.0.requests.fetch_add(1, Ordering::Relaxed);
        self.store.0.runtime.begin(within(limit, part))
    }

    /// Waits for a part.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn end_part(&self, part: Pending<Result<(), Fault>>) -> Result<(), RemoteError> {
        part.wait()?.map_err(|fault| self.store.tell(fault, "put", &self.name))
    }

    /// Makes the object visible, all parts of which have been sent.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(crate) fn complete(mut self) -> Result<(), RemoteError> {
        let (store, name, mut parts) = (self.store.clone(), std::mem::take(&mut self.name), self.parts);
        store.0.requests.fetch_add(1, Ordering::Relaxed);
        let completed = store.0.runtime.begin(async move { within(DRIP, parts.complete()).await.map(drop) });
        completed.wait()?.map_err(|fault| store.tell(fault, "put", &name))
    }

    /// Gives the upload up. What the store keeps of it all the same, its rules for unfinished uploads remove.
    pub(crate) fn abort(self) {
        let (store, mut parts) = (self.store, self.parts);
        store.0.requests.fetch_add(1, Ordering::Relaxed);
        let _ = store.0.runtime.begin(async move { within(STALL, parts.abort()).await }).wait();
    }
}

/// Seconds that an object has, by two clocks that may differ: never less than none.
fn listed(name: String, meta: &ObjectMeta) -> Listed {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let written = Duration::from_secs(u64::try_from(meta.last_modified.timestamp()).unwrap_or(0));
    Listed { name, len: meta.size, age: now.saturating_sub(written) }
}

async fn read(
    inner: Arc<Inner>,
    path: ObjectPath,
    range: Option<Range<u64>>,
    max: u64,
) -> Result<Vec<u8>, Fault> {
    let started = Instant::now();
    let options = GetOptions { range: range.clone().map(GetRange::Bounded), ..GetOptions::default() };
    inner.check_file(&path)?;
    let answer = within(inner.patience.stall(), inner.objects.get_opts(&path, options)).await?;
    let range = range.unwrap_or(0..answer.meta.size);
    if answer.meta.size < range.end {
        return Err(Fault::TooShort);
    }
    let expected = range.end - range.start;
    if expected > max {
        return Err(Fault::TooLarge);
    }
    if answer.range != range {
        let found = answer.range.end.saturating_sub(answer.range.start);
        return Err(Fault::Length { expected, found });
    }
    let (mut body, mut bytes) = (answer.into_stream(), Vec::with_capacity(expected as usize));
    while let Some(some) = within(inner.patience.stall(), body.try_next()).await? {
        bytes.extend_from_slice(&some);
        if bytes.len() as u64 > expected {
            break;
        }
        let elapsed = started.elapsed();
        if elapsed > DRIP && (bytes.len() as u64) < elapsed.as_secs() * RATE_MIN {
            return Err(Fault::Slow);
        }
    }
    match bytes.len() as u64 {
        found if found == expected => Ok(bytes),
        found => Err(Fault::Length { expected, found }),
    }
}
