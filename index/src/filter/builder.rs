//! Builds a `.kvei` from the hashes of keys in any order, in bounded memory.
//!
//! While all hashes fit [`MEMORY_KEYS`] they stay in one buffer. For more, they are partitioned by their top bits: each bucket
//! has a small buffer, and a full buffer goes to the spool as one chunk that names the chunk before it, so that nothing
//! in memory grows with the number of keys. At the end one bucket after another is loaded, sorted and cut into shards.
//! Shards are cut from the sorted sequence of all hashes, whatever the buckets, so the bytes depend on the set alone.
//!
//! Cost: 8 bytes a key up to 64 MiB, else 32 MiB of buffers and then about 16 MiB for a bucket; a few shards in flight.

use std::io::Write;

use icecore_segments::bytes::u64_at;
use icecore_segments::checksum::{Checksum, crc64};
use icecore_segments::error::Error;
use icecore_segments::frame::{FrameWriter, Header, Kind, PAGE_SIZE};
use icecore_segments::step::StepRange;
use rayon::prelude::*;

use super::shard::{self, keys_max};
use super::{BITS_AT, BuildParallelism, FilterBits, FilterSummary, PAYLOAD_LEN, Spool};
use crate::hash::FilterHash;

/// Up to here one buffer holds all hashes: 64 MiB.
pub const MEMORY_KEYS: u64 = 8 << 20;

/// What a bucket is to hold, on average: 16 MiB.
const BUCKET_KEYS: u64 = 2 << 20;

/// 2^12 buckets of 2^21 keys hold 8.6 billion; beyond that the buckets grow.
const BUCKET_BITS_MAX: u32 = 12;

/// The buffers of all buckets together: 32 MiB.
const BUFFERED_KEYS: usize = 4 << 20;

/// Shards built at once: 1 MiB of pages.
const BATCH: usize = 256;

/// Collects hashes and writes the filter.
pub struct FilterBuilder<S: Spool> {
    bits: FilterBits,
    keys_max: u64,
    pushed: u64,
    last: Option<FilterHash>,
    spool: S,
    parallelism: BuildParallelism,
    /// The bucket of a hash is what its top bits say; 0 bits for one bucket.
    bucket_bits: u32,
    /// When a bucket's buffer goes to the spool; never where there is one bucket.
    chunk_keys: usize,
    buckets: Vec<Bucket>,
}

#[derive(Default)]
struct Bucket {
    buffer: Vec<u64>,
    /// The newest of its chunks in the spool.
    chunk: Option<u64>,
    spooled: u64,
}

impl<S: Spool> FilterBuilder<S> {
    /// A builder for at most `keys_max` hashes, equal ones counted too unless they follow each other.
    pub fn new(bits: FilterBits, keys_max: u64, spool: S, parallelism: BuildParallelism) -> Self {
        Self::with_memory(bits, keys_max, spool, parallelism, MEMORY_KEYS)
    }

    /// The same, with a bound on the one buffer of one's own: how tests reach the spool with few keys.
    pub(crate) fn with_memory(
        bits: FilterBits,
        keys_max: u64,
        spool: S,
        parallelism: BuildParallelism,
        memory_keys: u64,
    ) -> Self {
        let one = keys_max <= memory_keys;
        let wanted = keys_max.div_ceil(BUCKET_KEYS.min(memory_keys)).max(2).next_power_of_two().ilog2();
        let bucket_bits = if one { 0 } else { wanted.min(BUCKET_BITS_MAX) };
        let buffered = BUFFERED_KEYS.min(memory_keys as usize);
        let chunk_keys = if one { usize::MAX } else { (buffered >> bucket_bits).max(1) };
        let mut buckets: Vec<Bucket> = (0..1usize << bucket_bits).map(|_| Bucket::default()).collect();
        if one {
            buckets[0].buffer.reserve_exact(keys_max as usize);
        }
        let (pushed, last) = (0, None);
        Self { bits, keys_max, pushed, last, spool, parallelism, bucket_bits, chunk_keys, buckets }
    }

    /// Takes the hash of a key; the order does not matter, and neither does how often it comes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when more come than `new` was told of; a failed spool.
    #[inline]
    pub fn push(&mut self, hash: FilterHash) -> Result<(), Error> {
        if self.last == Some(hash) {
            return Ok(());
        }
        if self.pushed == self.keys_max {
            return Err(Error::TooLarge { what: "number of keys", len: self.pushed + 1, max: self.keys_max });
        }
        self.last = Some(hash);
        self.pushed += 1;
        let hash = hash.to_u64();
        let number = hash.checked_shr(64 - self.bucket_bits).unwrap_or(0) as usize;
        let bucket = &mut self.buckets[number];
        bucket.buffer.push(hash);
        if bucket.buffer.len() >= self.chunk_keys {
            bucket.spill(&mut self.spool)?;
        }
        Ok(())
    }

    /// Writes the file: header, a page for each shard, boundary table, footer.
    ///
    /// `parent` is the content checksum of the `.kv` that holds the keys.
    ///
    /// # Errors
    /// A failed spool or writer; [`Error::TooLarge`] for a domain name that does not fit.
    pub fn finish<W: Write>(
        self,
        sink: W,
        domain: &str,
        steps: StepRange,
        parent: Checksum,
    ) -> Result<(FilterSummary, W), Error> {
        let Self { bits, mut spool, parallelism, buckets, chunk_keys, .. } = self;
        let mut header = Header::new(Kind::ExistenceFilter, domain, steps)?;
        header.params[BITS_AT] = bits.get();
        let frame = FrameWriter::new(sink, &header)?;
        let mut shards = ShardWriter { frame, bits, parallelism, boundaries: Vec::new(), keys: 0 };
        let mut hashes = Vec::new();
        let last = buckets.len() - 1;
        for (number, bucket) in buckets.into_iter().enumerate() {
            let from = hashes.len();
            bucket.load(&mut spool, chunk_keys, &mut hashes)?;
            match parallelism {
                BuildParallelism::Off => hashes[from..].sort_unstable(),
                BuildParallelism::Rayon => hashes[from..].par_sort_unstable(),
            }
            hashes.dedup();
            let done = shards.write(&hashes, number == last)?;
            hashes.drain(..done);
        }
        shards.finish(parent)
    }
}

impl Bucket {
    fn spill(&mut self, spool: &mut impl Spool) -> Result<(), Error> {
        let mut chunk = Vec::with_capacity(8 + 8 * self.buffer.len());
        chunk.extend_from_slice(&self.chunk.unwrap_or(u64::MAX).to_le_bytes());
        for hash in &self.buffer {
            chunk.extend_from_slice(&hash.to_le_bytes());
        }
        self.chunk = Some(spool.append(&chunk)?);
        self.spooled += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Appends all hashes of the bucket to `out`, in no particular order.
    fn load(mut self, spool: &mut impl Spool, chunk_keys: usize, out: &mut Vec<u64>) -> Result<(), Error> {
        if out.is_empty() && self.chunk.is_none() {
            *out = self.buffer;
            return Ok(());
        }
        out.reserve(self.spooled as usize + self.buffer.len());
        out.append(&mut self.buffer);
        drop(self.buffer);
        let mut chunk = if self.chunk.is_some() { vec![0; 8 + 8 * chunk_keys] } else { Vec::new() };
        while let Some(offset) = self.chunk {
            spool.read_at(offset, &mut chunk)?;
            self.chunk = u64_at(&chunk, 0).filter(|&previous| previous != u64::MAX);
            out.extend((1..=chunk_keys).filter_map(|i| u64_at(&chunk, 8 * i)));
        }
        Ok(())
    }
}

/// The part of a hash that the boundary table keeps.
fn boundary(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// How many of the sorted, distinct `hashes` the next shard takes: as many as fit, less those that would share
/// their boundary with the shard after. Only where more than a shard's worth share one boundary, they do (F4).
///
/// Looks at one hash more than fits and at no other, so the cut does not depend on how many are there.
fn cut(hashes: &[u64], bits: FilterBits) -> usize {
    let max = keys_max(bits);
    let Some(&next) = hashes.get(max) else { return hashes.len() };
    let same = hashes[..max].iter().rev().take_while(|&&hash| boundary(hash) == boundary(next)).count();
    if same == max { max } else { max - same }
}

struct ShardWriter<W> {
    frame: FrameWriter<W>,
    bits: FilterBits,
    parallelism: BuildParallelism,
    boundaries: Vec<u32>,
    keys: u64,
}

impl<W: Write> ShardWriter<W> {
    /// Writes the shards of `hashes` that are certain, all if these are the last, and returns how many hashes they took.
    fn write(&mut self, hashes: &[u64], last: bool) -> Result<usize, Error> {
        let mut done = 0;
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let rest = &hashes[done..];
            if batch.len() == BATCH || rest.is_empty() || (!last && rest.len() <= keys_max(self.bits)) {
                self.write_batch(&batch)?;
                if batch.len() < BATCH {
                    return Ok(done);
                }
                batch.clear();
                continue;
            }
            let shard = &rest[..cut(rest, self.bits)];
            done += shard.len();
            batch.push(shard);
        }
    }

    fn write_batch(&mut self, batch: &[&[u64]]) -> Result<(), Error> {
        let bits = self.bits;
        let mut write = |hashes: &[u64], mut page: Box<[u8; PAGE_SIZE]>| {
            self.boundaries.push(boundary(hashes[0]));
            self.keys += hashes.len() as u64;
            self.frame.write_page(&mut page[..])
        };
        match self.parallelism {
            BuildParallelism::Off => {
                for hashes in batch {
                    write(hashes, shard::build(hashes, bits))?;
                }
            }
            BuildParallelism::Rayon => {
                let pages: Vec<_> = batch.par_iter().map(|hashes| shard::build(hashes, bits)).collect();
                for (hashes, page) in batch.iter().zip(pages) {
                    write(hashes, page)?;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, parent: Checksum) -> Result<(FilterSummary, W), Error> {
        let shards = self.boundaries.len() as u64;
        let table: Vec<u8> = self.boundaries.iter().flat_map(|boundary| boundary.to_le_bytes()).collect();
        let table_offset = self.frame.position();
        self.frame.write_raw(&table)?;
        let mut payload = [0; PAYLOAD_LEN];
        for (field, value) in [self.keys, shards, table_offset, crc64(&table)].into_iter().enumerate() {
            payload[8 * field..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let (file, sink) = self.frame.finish(parent, &payload)?;
        let top_bytes = table.len() as u64;
        Ok((FilterSummary { file, bits: self.bits, keys: self.keys, shards, top_bytes }, sink))
    }
}

#[cfg(test)]
mod tests {
    use icecore_segments::step::Step;

    use super::*;
    use crate::filter::{ExistenceFilter, MemorySpool};

    fn mix(i: u64) -> u64 {
        FilterHash::of(&i.to_le_bytes()).to_u64()
    }

    fn build(hashes: &[u64], memory_keys: u64) -> Vec<u8> {
        let (bits, count) = (FilterBits::Eight, hashes.len() as u64);
        let mut builder = FilterBuilder::with_memory(
            bits,
            count,
            MemorySpool::default(),
            BuildParallelism::Off,
            memory_keys,
        );
        for &hash in hashes {
            builder.push(FilterHash::from_u64(hash)).unwrap();
        }
        let steps = StepRange::single(Step(0));
        builder.finish(Vec::new(), "storage", steps, Checksum([1; 32])).unwrap().1
    }

    #[test]
    fn spooled_and_unspooled_bytes_are_the_same() {
        let hashes: Vec<u64> = (0..60_000).map(mix).collect();
        let bytes = build(&hashes, u64::MAX);
        for memory_keys in [59_999, 20_000, 4096, 700, 30] {
            assert!(build(&hashes, memory_keys) == bytes, "{memory_keys}");
        }
    }

    #[test]
    fn more_keys_with_one_boundary_than_fit_a_shard_are_all_found() {
        let mut hashes: Vec<u64> = (0..20_000).map(mix).collect();
        hashes.extend((0..7000).map(|i| 0x8000_0001_0000_0000 | (mix(i) >> 32)));
        hashes.extend((0..50).map(|i| 0x8000_0002_0000_0000 | (mix(i) >> 32)));
        let bytes = build(&hashes, u64::MAX);
        assert!(build(&hashes, 1000) == bytes);
        let filter = ExistenceFilter::open(bytes, Checksum([1; 32])).unwrap();
        filter.verify().unwrap();
        for hash in hashes {
            assert!(filter.may_contain(FilterHash::from_u64(hash)).unwrap(), "{hash:#x}");
        }
    }

    #[test]
    fn a_builder_refuses_more_keys_than_it_was_told_of() {
        let mut builder =
            FilterBuilder::new(FilterBits::Eight, 1, MemorySpool::default(), BuildParallelism::Off);
        builder.push(FilterHash::from_u64(7)).unwrap();
        builder.push(FilterHash::from_u64(7)).unwrap();
        assert!(matches!(builder.push(FilterHash::from_u64(8)), Err(Error::TooLarge { len: 2, max: 1, .. })));
    }
}
