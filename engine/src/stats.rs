//! Counters of what reads touch. Each thread adds to a stripe of its own, so that counting costs readers nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 16;

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

/// What a read did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A key was looked up at a height.
    Lookup,
    /// A lookup was answered by the versions in memory.
    Memory,
    /// An existence filter was asked.
    FilterProbe,
    /// A filter said maybe and the segment had no version to give.
    FalsePositive,
    /// A pivot index was asked.
    IndexProbe,
    /// A data page was searched.
    Page,
}

const EVENTS: usize = 6;

#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; EVENTS]);

/// The counters of one archive.
#[derive(Default)]
pub(crate) struct Counters([Stripe; STRIPES]);

impl Counters {
    /// Adds one. A relaxed add to a cache line that other threads rarely touch.
    #[inline]
    pub(crate) fn count(&self, event: Event) {
        let stripe = STRIPE.with(|stripe| {
            if stripe.get() == usize::MAX {
                stripe.set(NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES);
            }
            stripe.get()
        });
        self.0[stripe].0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self, event: Event) -> u64 {
        self.0.iter().map(|stripe| stripe.0[event as usize].load(Ordering::Relaxed)).sum()
    }

    /// The sums now. Not a consistent cut while readers go on.
    pub(crate) fn reads(&self) -> ReadStats {
        ReadStats {
            lookups: self.sum(Event::Lookup),
            memory_hits: self.sum(Event::Memory),
            filter_probes: self.sum(Event::FilterProbe),
            filter_false_positives: self.sum(Event::FalsePositive),
            index_probes: self.sum(Event::IndexProbe),
            pages_searched: self.sum(Event::Page),
        }
    }
}

/// What the reads of this process touched since the archive was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Keys looked up.
    pub lookups: u64,
    /// Lookups answered from memory.
    pub memory_hits: u64,
    /// Existence filters asked: one page each.
    pub filter_probes: u64,
    /// Filters that said maybe where the segment had nothing to give.
    pub filter_false_positives: u64,
    /// Pivot indexes asked: one page each.
    pub index_probes: u64,
    /// Page spans of `.kv` files searched.
    pub pages_searched: u64,
}

/// What an archive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The newest block.
    pub head: Option<u64>,
    /// The lowest height that is answered.
    pub first: Option<u64>,
    /// Live segments.
    pub segments: u64,
    /// Versions in segments, those of roots left out.
    pub entries: u64,
    /// Bytes of `.kv` files.
    pub kv_bytes: u64,
    /// Bytes of `.bt` files.
    pub bt_bytes: u64,
    /// Bytes of `.kvei` files.
    pub kvei_bytes: u64,
    /// Bytes of index and filter parts held in memory.
    pub resident_bytes: u64,
    /// Steps in memory, not yet emitted.
    pub steps_in_memory: u64,
    /// Bytes of keys and values in memory.
    pub memory_bytes: u64,
    /// What reads touched.
    pub reads: ReadStats,
}
