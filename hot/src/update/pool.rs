//! The threads of a tree: the one that brings a batch, and helpers that wait for the next.
//!
//! The caller takes its share of the work itself. A pool that does all of it puts the caller to sleep and wakes one
//! thread that wakes the next; on an idle machine with two processors the system then often ran both on one of them
//! for some milliseconds, half of a batch. A caller that stays where it is leaves the other processors to the helpers.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::options::Parallelism;

#[derive(Debug)]
pub(crate) struct WorkerPool {
    parallelism: Parallelism,
    /// One thread fewer than take part; started when there first is something for them to do.
    helpers: OnceLock<rayon::ThreadPool>,
}

impl WorkerPool {
    pub(crate) fn new(parallelism: Parallelism) -> Self {
        Self { parallelism, helpers: OnceLock::new() }
    }

    /// The number of threads, the caller's included.
    pub(crate) fn len(&self) -> usize {
        self.parallelism.threads()
    }

    /// Does the work for every item. Each thread has one of the `states` to itself, of which there are at least as
    /// many as threads. Whoever is done takes the next item, so that a thread that starts late or is interrupted does
    /// not hold up the rest for longer than one item takes.
    pub(crate) fn for_each<T: Send, S: Send>(
        &self,
        states: &mut [S],
        mut items: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(&mut S, T) + Sync,
    ) {
        let (own, others) =
            states.split_first_mut().expect("the caller takes part, so there is a state for it");
        let helpers = self.len().min(items.len()).saturating_sub(1);
        if helpers == 0 {
            items.for_each(|item| work(own, item));
            return;
        }
        let items = Mutex::new(&mut items);
        let drain = |state: &mut S| {
            let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(item) = next() {
                work(state, item);
            }
        };
        self.helpers().in_place_scope(|scope| {
            let drain = &drain;
            others[..helpers].iter_mut().for_each(|state| scope.spawn(move |_| drain(state)));
            drain(own);
        });
    }

    fn helpers(&self) -> &rayon::ThreadPool {
        self.helpers.get_or_init(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.len() - 1);
            builder.thread_name(|i| format!("hot-{i}")).build().expect("the system can start threads")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn worker_pool(threads: usize) -> WorkerPool {
        WorkerPool::new(NonZeroUsize::new(threads).map_or(Parallelism::Off, Parallelism::Threads))
    }

    #[test]
    fn every_item_is_done_once() {
        for threads in 0..5 {
            let worker_pool = worker_pool(threads);
            for len in [0, 1, 2, 3, 1000] {
                let mut done = vec![Vec::new(); worker_pool.len()];
                worker_pool.for_each(&mut done, 0..len, Vec::push);
                let mut done = done.concat();
                done.sort_unstable();
                assert!(done.into_iter().eq(0..len), "{threads} threads, {len} items");
            }
        }
    }

    #[test]
    fn the_helpers_take_part() {
        // Each of two items waits for the other, so one thread alone would wait for ever.
        let both = std::sync::Barrier::new(2);
        let mut done = [0, 0];
        worker_pool(2).for_each(&mut done, 0..2, |done, _| {
            both.wait();
            *done += 1;
        });
        assert_eq!(done, [1, 1]);
    }
}
