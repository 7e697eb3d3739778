//! From a state to its tree: every key at a height is read, hashed and loaded.
//!
//! The keys of a domain are cut into parts where pages of its largest segment begin, and as many threads as the tree may use
//! read and hash one part after another; one loader takes the leaves of all. Reading takes most of the time, so it grows
//! with the threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use icecore_hot::{HotTree, LeafHasher, Loader};
use icecore_segments::span::PageSpan;
use icecore_segments::step::BlockNumber;
use parking_lot::Mutex;

use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::merkle::parallel::on_threads;
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::segment::live::KvFile;

/// Leaves that a thread gathers before it locks the loader: enough to make the lock cheap.
const LEAVES_GATHERED: usize = 1 << 12;

/// Fewer keys than this are read by the calling thread alone.
const PARALLEL_KEYS_MIN: u64 = 1 << 16;

/// Parts for each thread, so that uneven ones do not leave a thread waiting.
const PARTS_PER_THREAD: usize = 8;

/// The tree of a state.
pub(crate) struct Built {
    pub(crate) tree: HotTree,
    /// The keys whose newest version, a deletion too, is above the given height; by domain.
    pub(crate) written: Vec<(DomainId, Vec<u8>)>,
}

/// Some keys of a domain.
struct Part<'c> {
    id: DomainId,
    domain: &'c Domain,
    scan: Scan,
}

/// What the threads share.
struct Load<'v> {
    version: &'v ReadState,
    at: BlockNumber,
    newer_than: Option<BlockNumber>,
    options: icecore_hot::Options,
    listener: &'v dyn ProgressListener,
    loader: Mutex<Loader>,
}

/// Builds the tree of the state at `at`, and tells which keys were written above `newer_than`.
///
/// # Cost
/// Reads the newest version of every key.
pub(crate) fn build_tree(
    version: &ReadState,
    config: &Config,
    at: BlockNumber,
    newer_than: Option<BlockNumber>,
    options: icecore_hot::Options,
    listener: &dyn ProgressListener,
) -> Result<Built, Error> {
    let mut keys = 0;
    for (domain, _) in config.declared_ids() {
        keys += keys_to_pass(version, domain, at)?;
    }
    let threads = if keys < PARALLEL_KEYS_MIN { 1 } else { options.parallelism.threads() };
    let parts = parts(version, config, at, threads)?;
    listener.begin(&format!("build the tree of block {at}"), Some(keys));
    let loader = Mutex::new(Loader::new(options));
    let load = Load { version, at, newer_than, options, listener, loader };
    let mut written = load.all(&parts, threads)?;
    written.sort_unstable();
    let tree = load.loader.into_inner().finish();
    listener.end();
    Ok(Built { tree, written })
}

/// The keys that a scan of a whole domain passes, those of several tables and segments counted as often.
fn keys_to_pass(version: &ReadState, domain: DomainId, at: BlockNumber) -> Result<u64, Error> {
    let mut keys = version.memory_up_to(at)?.iter().map(|table| table.keys(domain).len() as u64).sum();
    for segment in version.domain(domain).iter().filter(|segment| segment.blocks.0 <= at) {
        keys += segment.summary()?.keys;
    }
    Ok(keys)
}

/// Cuts the keys of every domain into parts.
fn parts<'c>(
    version: &ReadState,
    config: &'c Config,
    at: BlockNumber,
    threads: usize,
) -> Result<Vec<Part<'c>>, Error> {
    let mut parts = Vec::new();
    for (id, domain) in config.declared_ids() {
        let mut scan = Scan::all();
        let boundaries = if threads == 1 { Vec::new() } else { boundaries(version, id, at, threads)? };
        for boundary in boundaries {
            parts.push(Part { id, domain, scan: scan.to(&boundary) });
            scan = Scan::all().from(&boundary);
        }
        parts.push(Part { id, domain, scan });
    }
    Ok(parts)
}

/// Keys that cut a domain into parts of about one size.
fn boundaries(
    version: &ReadState,
    domain: DomainId,
    at: BlockNumber,
    threads: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut largest: Option<&KvFile> = None;
    for segment in version.domain(domain).iter().filter(|segment| segment.blocks.0 <= at) {
        let kv = segment.kv.get()?;
        if largest.is_none_or(|largest| largest.view().summary().keys < kv.view().summary().keys) {
            largest = Some(kv);
        }
    }
    let Some(largest) = largest else { return Ok(Vec::new()) };
    let (parts, pages) = ((threads * PARTS_PER_THREAD) as u64, largest.view().summary().pages);
    let mut cursor = largest.view().cursor();
    let mut boundaries = Vec::new();
    for part in 1..parts {
        let page = PageSpan::page(pages * part / parts);
        cursor.seek_in(page, b"", BlockNumber::MAX).map_err(|e| largest.error(e))?;
        boundaries.extend(cursor.entry().map(|entry| entry.key.to_vec()));
    }
    boundaries.dedup();
    Ok(boundaries)
}

impl Load<'_> {
    /// Loads all parts: each thread takes the next one until none is left.
    fn all(&self, parts: &[Part<'_>], threads: usize) -> Result<Vec<(DomainId, Vec<u8>)>, Error> {
        let next = AtomicUsize::new(0);
        on_threads(threads, |_| {
            let mut written = Vec::new();
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.part(part, &mut written)?;
            }
            Ok(written)
        })
    }

    fn part(&self, part: &Part<'_>, written: &mut Vec<(DomainId, Vec<u8>)>) -> Result<(), Error> {
        let mut hasher = LeafHasher::new(&self.options);
        let mut entries = MergeScan::new(self.version, part.id, &part.scan, self.at)?;
        let mut reported = 0;
        while let Some((key, (block, value))) = entries.next_version()? {
            if let Some(value) = value {
                let shown = part.domain.order.shown(&key).ok_or_else(|| part.domain.damaged_key())?;
                hasher.push(&part.domain.name, shown, &value);
            }
            if self.newer_than.is_some_and(|newer_than| block > newer_than) {
                written.push((part.id, key));
            }
            if hasher.len() == LEAVES_GATHERED {
                self.loader.lock().take(&mut hasher);
                self.listener.advance(entries.passed() - reported);
                reported = entries.passed();
            }
        }
        self.loader.lock().take(&mut hasher);
        self.listener.advance(entries.passed() - reported);
        Ok(())
    }
}
