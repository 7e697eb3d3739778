//! Work split between threads, for what waits for reads: the threads overlap the waits.

use std::thread;

use crate::error::Error;

/// Does `work` on this many threads, each with its number, and returns what they give in that order. One is the caller's own
/// thread.
///
/// # Errors
/// That of the lowest number.
pub(crate) fn on_threads<R: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<Vec<R>, Error> + Sync,
) -> Result<Vec<R>, Error> {
    if threads == 1 {
        return work(0);
    }
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (1..threads).map(|number| scope.spawn(move || work(number))).collect();
        let mut results = work(0)?;
        for worker in workers {
            results.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(results)
    })
}

/// Does `work` on runs of about equal length, as many as there are threads, the results in order.
///
/// # Errors
/// That of the first run.
pub(crate) fn in_runs<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&[T]) -> Result<Vec<R>, Error> + Sync,
) -> Result<Vec<R>, Error> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let runs: Vec<&[T]> = items.chunks(items.len().div_ceil(threads)).collect();
    on_threads(runs.len(), |number| work(runs[number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..10).collect();
        for threads in [1, 3, 4, 20] {
            let doubled = in_runs(threads, &items, |run| Ok(run.iter().map(|item| item * 2).collect()));
            assert_eq!(doubled.unwrap(), (0..10).map(|item| item * 2).collect::<Vec<_>>(), "{threads}");
        }
        assert!(in_runs(4, &items[..0], |_| Ok(vec![0])).unwrap().is_empty());
    }

    #[test]
    fn the_first_failure_is_the_error() {
        let failing = |height| Err::<Vec<()>, _>(Error::RootMissing { block: height });
        let failed = on_threads(4, |number| if number < 2 { Ok(Vec::new()) } else { failing(number as u64) });
        assert!(matches!(failed, Err(Error::RootMissing { block: 2 })));
    }
}
