//! What requests to a store take without any of our code: the baseline of every figure of a bucket.
//!
//! The client is the one that Icecore uses, `object_store`, in a runtime of its own. Nothing is checked, cached or repeated.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as ObjectPath;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::{Builder, Runtime};

/// Requests that are under way at once, where there are many.
pub const DEPTH: usize = 32;

/// Bytes of one request of [`RawClient::copy`].
const PART: u64 = 4 << 20;

/// A client of a store.
#[derive(Debug)]
pub struct RawClient {
    store: AmazonS3,
    runtime: Runtime,
}

/// An object and its length.
pub type Sized<'a> = (&'a str, u64);

fn io_error(error: object_store::Error) -> io::Error {
    io::Error::other(error)
}

impl RawClient {
    /// A client of a server that speaks S3, with an access key and its secret. A bucket must have been opened before, which chooses the
    /// cryptography of this process.
    ///
    /// # Errors
    /// The endpoint is none; the system gives no threads.
    pub fn connect(endpoint: &str, bucket: &str, (key, secret): (&str, &str)) -> io::Result<Self> {
        let options = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_bucket_name(bucket)
            .with_access_key_id(key)
            .with_secret_access_key(secret)
            .with_client_options(options)
            .with_retry(retry);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { store: builder.build().map_err(io_error)?, runtime })
    }

    /// The time of one ranged GET, one after the other.
    ///
    /// # Errors
    /// The request failed.
    pub fn get(&self, name: &str, range: Range<u64>) -> io::Result<Duration> {
        let (path, begun) = (ObjectPath::from(name), Instant::now());
        let bytes = self.runtime.block_on(self.store.get_range(&path, range.clone())).map_err(io_error)?;
        let time = begun.elapsed();
        if bytes.len() as u64 == range.end - range.start {
            Ok(time)
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// The time of many ranged GETs of one object, [`DEPTH`] at once.
    ///
    /// # Errors
    /// A request failed.
    pub fn get_many(&self, name: &str, ranges: &[Range<u64>]) -> io::Result<Duration> {
        let (path, begun) = (ObjectPath::from(name), Instant::now());
        self.runtime.block_on(async {
            let gets = ranges.iter().map(|range| self.store.get_range(&path, range.clone()));
            let mut answers = stream::iter(gets).buffer_unordered(DEPTH);
            while let Some(answer) = answers.next().await {
                answer.map_err(io_error)?;
            }
            io::Result::Ok(())
        })?;
        Ok(begun.elapsed())
    }

    /// The time of copying objects into files of `dir`, in parts, [`DEPTH`] at once, each file synced in the end.
    ///
    /// # Errors
    /// A request failed, or a write.
    pub fn copy(&self, objects: &[Sized<'_>], dir: &Path) -> io::Result<Duration> {
        let begun = Instant::now();
        let create = |number: usize| File::create(dir.join(number.to_string()));
        let files = (0..objects.len()).map(create).collect::<io::Result<Vec<File>>>()?;
        let parts = objects.iter().zip(&files).flat_map(|((name, len), file)| {
            (0..*len).step_by(PART as usize).map(move |from| (*name, from..(from + PART).min(*len), file))
        });
        let store: &dyn ObjectStore = &self.store;
        self.runtime.block_on(async {
            let gets = parts.map(|(name, range, file)| async move {
                let bytes = store.get_range(&ObjectPath::from(name), range.clone()).await;
                bytes.map_err(io_error).and_then(|bytes| file.write_all_at(&bytes, range.start))
            });
            let mut written = stream::iter(gets).buffer_unordered(DEPTH);
            while let Some(part) = written.next().await {
                part?;
            }
            io::Result::Ok(())
        })?;
        files.iter().try_for_each(File::sync_all)?;
        Ok(begun.elapsed())
    }
}
