//! How long a request may take, and how often it is repeated.
//!
//! One that stalls is given up after 2 seconds and repeated, 5 times at most; nothing is begun after 8 seconds, so that every failure is told
//! within 15. Where one stalled, those after it are given twice as long, up to 8 seconds: a store may be slow and well. Who says how long it
//! may take gets just that.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use crate::remote::fault::Fault;

/// How often a request is repeated.
pub(crate) const RETRIES: u32 = 5;

/// How often something is asked for whose bytes are wrong.
pub(crate) const TRIES: usize = 3;

/// After this long without a byte a request is given up, at first, and of a slow store.
pub(crate) const STALL: Duration = Duration::from_secs(2);
const STALL_MAX: Duration = Duration::from_secs(8);

/// After this long a request is not repeated any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// Before the first repetition; twice as long before each further one.
pub(crate) const BACKOFF: Duration = Duration::from_millis(100);

/// How long the requests to a store may stall: see the module.
pub(crate) struct Patience {
    /// Milliseconds without a byte after which a request is given up, and the most that they become.
    stall: AtomicU64,
    stall_max: u64,
}

impl Patience {
    /// With a limit that somebody set, or the usual one.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let stall = AtomicU64::new(millis(timeout.unwrap_or(STALL)));
        Self { stall, stall_max: millis(timeout.unwrap_or(STALL_MAX)) }
    }

    /// How long a request may be without a byte.
    pub(crate) fn stall(&self) -> Duration {
        Duration::from_millis(self.stall.load(Ordering::Relaxed))
    }

    /// Gives those that come more time, after one stalled.
    pub(crate) fn lengthen(&self) {
        let longer = self.stall.load(Ordering::Relaxed).saturating_mul(2).min(self.stall_max);
        self.stall.fetch_max(longer, Ordering::Relaxed);
    }
}

/// Gives up what takes longer.
pub(crate) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, object_store::Error>>,
) -> Result<T, Fault> {
    match timeout(limit, future).await {
        Ok(answer) => answer.map_err(Fault::from),
        Err(_) => Err(Fault::Stalled(limit.as_secs())),
    }
}
