//! What a reader has to do with buckets: it may read one, and publish to one.

use std::sync::Arc;

use crate::error::Error;
use crate::progress::ProgressListener;
use crate::reader::Reader;
use crate::remote::open::open;
use crate::remote::push::push_from;
use crate::remote::{Bucket, PushOptions, PushReport, RemoteCost, RemoteOptions};

impl Reader {
    /// Opens the archive of a bucket where it is. What is read is kept in a cache on disk, each page compared with its checksum
    /// before that; a page that is there costs what it costs in an archive on disk, one that is not a ranged GET.
    ///
    /// It sees one generation: the segments, without the newest blocks, which stay with the writer. [`Reader::refresh`] goes to the newest
    /// one; its cost is a request for each generation since, one that finds no further, and the bundle where there is a newer one.
    /// A view stays in its generation.
    ///
    /// # Cost
    /// Three requests: the newest generation, a look at the one after it, and the bundle. For each file a sparse one in the cache.
    ///
    /// # Errors
    /// [`Error::Remote`]; [`Error::Io`] of the cache; [`Error::Options`].
    pub fn open_remote(bucket: &Bucket, options: &RemoteOptions) -> Result<Self, Error> {
        let (shared, bucket) = open(bucket, options)?;
        let mut reader = Self::of(shared);
        reader.bucket = Some(Arc::new(bucket));
        Ok(reader)
    }

    /// What reading from a bucket cost so far, opening included; `None` for an archive on disk.
    pub fn remote_cost(&self) -> Option<RemoteCost> {
        self.bucket.as_ref().map(|bucket| bucket.cost())
    }

    /// The generation of the bucket that is read; `None` for an archive on disk.
    pub fn remote_generation(&self) -> Option<u64> {
        self.bucket.as_ref().map(|bucket| bucket.generation())
    }

    /// Goes to the newest generation, where the archive is in a bucket.
    pub(crate) fn follow_bucket(&self) -> Result<(), Error> {
        self.bucket.as_ref().map_or(Ok(()), |bucket| bucket.follow(&self.shared))
    }

    /// Publishes what the archive has in segments as the next generation of a bucket: [`remote::push`](crate::remote::push()) of this
    /// archive.
    ///
    /// # Errors
    /// Those of [`remote::push`](crate::remote::push()).
    pub fn push(
        &self,
        bucket: &Bucket,
        options: &PushOptions,
        listener: &dyn ProgressListener,
    ) -> Result<PushReport, Error> {
        let directory = &self.shared.directory;
        push_from(&directory.storage, &directory.path, bucket, options, listener)
    }
}
