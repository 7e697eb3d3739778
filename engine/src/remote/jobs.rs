//! Work on many objects at once, by threads that mostly wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// How many objects are worked on at once, unless the caller says.
pub(crate) const JOBS: usize = 8;

/// The most: each has a thread and some buffers.
const JOBS_MAX: usize = 256;

/// Calls `work` for each item, as many at once as `jobs` says, and none any more after a failure. Returns the first one.
pub(crate) fn for_each<T: Sync, E: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, failed, failure) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            if let Err(error) = work(item) {
                failed.store(true, Ordering::Relaxed);
                failure.lock().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        // Where the system gives no further thread, there are fewer.
        for _ in 1..jobs.clamp(1, JOBS_MAX).min(items.len().max(1)) {
            let _ = thread::Builder::new().name("icecore-job".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn each_item_is_worked_on_once_and_a_failure_ends_it() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 7, 1000] {
            let sum = AtomicU64::new(0);
            let add = |item: &u64| {
                sum.fetch_add(*item, Ordering::Relaxed);
                Ok::<(), ()>(())
            };
            for_each(jobs, &items, add).unwrap();
            assert_eq!(sum.into_inner(), 4950, "{jobs} jobs");
        }
        let done = AtomicU64::new(0);
        let failed = for_each(1, &items, |item| {
            done.fetch_add(1, Ordering::Relaxed);
            if *item == 3 { Err("no") } else { Ok(()) }
        });
        assert_eq!((failed, done.into_inner()), (Err("no"), 4));
    }
}
