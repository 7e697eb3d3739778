//! Which archive a reader reads, and where: in the process of the writer, beside a writer of another process, or in a bucket.

use std::time::Duration;

#[cfg(feature = "object-store")]
use crate::error::Error;
use crate::read::pinned::Pinned;
use crate::reader::Reader;

/// Between two looks of a reader that waits for a writer of another process: at first, and in the end.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));

/// The same where the archive is in a bucket and each look is a request: a month of waiting costs 260,000.
#[cfg(feature = "object-store")]
const PAUSES_OF_BUCKET: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

impl Reader {
    /// What tells the archive from all others, also of the same options: drawn when it was created, the same in its checkpoints, in buckets
    /// and in what was pulled from them. Zeros in archives from before there was one.
    pub fn id(&self) -> [u8; 16] {
        self.shared.directory.config.id.0
    }

    /// What a view pins now.
    ///
    /// # Errors
    /// [`Error::Io`] of the cache.
    #[cfg(feature = "object-store")]
    pub(crate) fn pin(&self) -> Result<Pinned, Error> {
        match &self.bucket {
            Some(bucket) => bucket.pin(),
            None => Ok(Pinned::Here(self.shared.read_state())),
        }
    }

    /// What a view pins now.
    #[cfg(not(feature = "object-store"))]
    #[expect(clippy::unnecessary_wraps, reason = "a bucket may refuse")]
    pub(crate) fn pin(&self) -> Result<Pinned, crate::error::Error> {
        Ok(Pinned::Here(self.shared.read_state()))
    }

    /// How long a reader that waits lets pass between two looks, at first and in the end; `None` where it is woken.
    pub(crate) fn pauses(&self) -> Option<(Duration, Duration)> {
        #[cfg(feature = "object-store")]
        if self.bucket.is_some() {
            return Some(PAUSES_OF_BUCKET);
        }
        self.shared.follower.is_some().then_some(PAUSES)
    }
}
