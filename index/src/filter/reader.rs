//! Reads a `.kvei`: from the hash of a key to *no* or *maybe*.
//!
//! Cost of a probe: a guess and a short walk in the boundary table, one page of the file, three cells of it.

use std::ops::Range;

use icecore_segments::FileBytes;
use icecore_segments::bytes::{u32_at, u64_at};
use icecore_segments::checksum::{Checksum, PageChecks, Salt, crc64, is_sealed};
use icecore_segments::error::{Corruption, Error, Part, Reason};
use icecore_segments::frame::{Frame, Kind, PAGE_SIZE};

use super::probe::{FilterProbe, UsualShard};
use super::shard::Shard;
use super::{BITS_AT, FilterBits, FilterSummary, PAYLOAD_LEN};
use crate::hash::FilterHash;
use crate::prefetch::PrefetchHint;

/// How far the walk from the guess goes before it gives way to a binary search.
const WALK_MAX: usize = 16;

/// An existence filter over the bytes of its file. Shared by any number of threads.
pub struct ExistenceFilter<D> {
    data: D,
    salt: Salt,
    /// The top 32 bits of the first hash of each shard; ascending (F4).
    boundaries: Box<[u32]>,
    checks: PageChecks,
    /// The shards that were checked and found usual: their cells are all that a probe reads.
    usual: PageChecks,
    summary: FilterSummary,
}

impl<D: FileBytes> ExistenceFilter<D> {
    /// Opens the filter of the segment whose content checksum is `parent`. Reads header, footer and boundary table.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when it describes another segment, [`Error::Corrupt`] and [`Error::Unsupported`] as in `FORMAT.md`.
    pub fn open(data: D, parent: Checksum) -> Result<Self, Error> {
        let bytes = data.as_ref();
        let frame = Frame::parse(bytes, Kind::ExistenceFilter)?;
        crate::check_parent(frame.parent, parent)?;
        let header = Corruption { part: Part::Header, offset: 0, reason: Reason::Field };
        let bits = FilterBits::from_bits(frame.header.params[BITS_AT]).ok_or(header)?;
        let (salt, file) = (frame.salt, frame.summary);
        let footer = |reason| Corruption { part: Part::Footer, offset: file.len - PAGE_SIZE as u64, reason };
        if frame.payload.len() != PAYLOAD_LEN {
            return Err(footer(Reason::Length).into());
        }
        let field = |number: usize| u64_at(frame.payload, 8 * number).ok_or(footer(Reason::Length));
        let (keys, shards, table_offset, table_sum) = (field(0)?, field(1)?, field(2)?, field(3)?);
        // F1: header, shards, boundary table, footer, and nothing else.
        let pages = file.len / PAGE_SIZE as u64;
        let fits = shards < pages && table_offset == (shards + 1) * PAGE_SIZE as u64;
        if !fits || shards + 2 + (4 * shards).div_ceil(PAGE_SIZE as u64) != pages || keys < shards {
            return Err(footer(Reason::Count).into());
        }
        let table = &bytes[table_offset as usize..][..4 * shards as usize];
        let damaged = |reason| Corruption { part: Part::ShardTable, offset: table_offset, reason };
        if crc64(table) != table_sum {
            return Err(damaged(Reason::Checksum).into());
        }
        let boundaries: Box<[u32]> = (0..shards as usize).filter_map(|i| u32_at(table, 4 * i)).collect();
        if !boundaries.is_sorted() {
            return Err(damaged(Reason::Order).into());
        }
        let summary = FilterSummary { file, bits, keys, shards, top_bytes: 4 * shards };
        let (checks, usual) = (PageChecks::new(shards), PageChecks::new(shards));
        Ok(Self { data, salt, boundaries, checks, usual, summary })
    }

    /// Whether the segment may have the key. `false` is certain. Touches one page.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the page is damaged, checked when it is touched for the first time after opening.
    #[inline]
    pub fn may_contain(&self, hash: FilterHash) -> Result<bool, Error> {
        let probe = FilterProbe::new(hash);
        self.usual_shard(&probe)
            .map_or_else(|| self.probe_shards(hash), |shard| Ok(shard.may_contain(&probe)))
    }

    #[cold]
    fn probe_shards(&self, hash: FilterHash) -> Result<bool, Error> {
        let (first, end) = self.shards(hash);
        for number in u64::from(first)..u64::from(end) {
            let answer = self.shard(number)?.may_contain(hash.to_u64(), self.summary.bits);
            if answer.ok_or_else(|| damaged(number, Reason::Field))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The page that answers a probe by three cells, as nearly all do that were read before. `None`: ask
    /// [`may_contain`](Self::may_contain). Found in memory alone.
    #[expect(clippy::inline_always, reason = "a call for each segment costs a fifth of its probe: callgrind")]
    #[inline(always)]
    pub fn usual_shard(&self, probe: &FilterProbe) -> Option<UsualShard<'_>> {
        let (number, end) = self.shards(probe.hash());
        if end - number != 1 || !self.usual.is_checked(u64::from(number)) {
            return None;
        }
        let from = (number as usize + 1) * PAGE_SIZE;
        let page = self.data.as_ref().get(from..)?.first_chunk()?;
        Some(UsualShard::new(page, self.summary.bits))
    }

    /// What to prefetch for a key of which [`usual_shard`](Self::usual_shard) knows no page: the sizes of a shard that was read before, the
    /// page of one that was not.
    pub fn prefetch_hint(&self, hash: FilterHash) -> PrefetchHint {
        let number = u64::from(self.shards(hash).0);
        let page = (number + 1) * PAGE_SIZE as u64;
        if self.checks.is_checked(number) {
            PrefetchHint::Line(page)
        } else {
            PrefetchHint::Page(page..page + PAGE_SIZE as u64)
        }
    }

    /// The bytes of the file that [`may_contain`](Self::may_contain) will touch, computed from memory alone: what to fetch ahead.
    ///
    /// One page; more only where more than a page's worth of keys agree in 32 bits of their hash; none in a filter without keys.
    pub fn page_range(&self, hash: FilterHash) -> Range<u64> {
        let (first, end) = self.shards(hash);
        if first == end {
            return 0..0;
        }
        let page = PAGE_SIZE as u64;
        (u64::from(first) + 1) * page..(u64::from(end) + 1) * page
    }

    /// What the file says of itself.
    pub fn summary(&self) -> &FilterSummary {
        &self.summary
    }

    /// What opening reads besides the header: boundary table and footer, to the end of the file.
    pub fn tail(&self) -> Range<u64> {
        (self.summary.shards + 1) * PAGE_SIZE as u64..self.summary.file.len
    }

    /// The bytes of the file.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Reads the whole file and checks everything that can be checked without the segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the part that is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        let bytes = self.data.as_ref();
        let mut keys = 0;
        for number in 0..self.summary.shards {
            keys += self.read_shard(number)?.keys();
        }
        Frame::parse(bytes, Kind::ExistenceFilter)?.verify_content(bytes, &mut |_| {})?;
        if keys != self.summary.keys {
            let offset = self.summary.file.len - PAGE_SIZE as u64;
            return Err(Corruption { part: Part::Footer, offset, reason: Reason::Count }.into());
        }
        Ok(())
    }

    /// The shards that can hold `hash` (F4), the first and the one after the last: the last shard whose boundary is not above the
    /// hash, and those before that share its boundary when the hash has it too.
    #[inline]
    fn shards(&self, hash: FilterHash) -> (u32, u32) {
        let boundaries = &self.boundaries;
        let wanted = (hash.to_u64() >> 32) as u32;
        // Hashes are spread evenly, so the guess is right or nearly so.
        let guess = ((u64::from(wanted) * boundaries.len() as u64) >> 32) as usize;
        match (boundaries.get(guess), boundaries.get(guess + 1)) {
            (Some(from), Some(to)) if *from < wanted && wanted < *to => (guess as u32, guess as u32 + 1),
            _ => self.shards_from(guess, wanted),
        }
    }

    /// The same, from a guess that is not right for certain.
    fn shards_from(&self, guess: usize, wanted: u32) -> (u32, u32) {
        let boundaries = &self.boundaries;
        let (mut at, mut steps) = (guess, 0);
        while at > 0 && boundaries[at] > wanted && steps < WALK_MAX {
            (at, steps) = (at - 1, steps + 1);
        }
        while at + 1 < boundaries.len() && boundaries[at + 1] <= wanted && steps < WALK_MAX {
            (at, steps) = (at + 1, steps + 1);
        }
        if steps == WALK_MAX {
            at = boundaries.partition_point(|&boundary| boundary <= wanted).saturating_sub(1);
        }
        let end = boundaries.len().min(at + 1);
        while at > 0 && boundaries[at] == wanted && boundaries[at - 1] == wanted {
            at -= 1;
        }
        (at as u32, end as u32)
    }

    /// The shard, its page checked if nobody did so before.
    #[inline]
    fn shard(&self, number: u64) -> Result<Shard<'_>, Error> {
        let page = self.page(number);
        if !self.checks.ensure(number, || self.data.has_page(number + 1) && self.read_shard(number).is_ok()) {
            self.data.bring_page(number + 1)?;
            self.read_shard(number)?;
        }
        let shard = Shard::read(page).ok_or_else(|| damaged(number, Reason::Length))?;
        self.usual.ensure(number, || shard.is_usual(self.summary.bits));
        Ok(shard)
    }

    /// The shard, its page checked now.
    fn read_shard(&self, number: u64) -> Result<Shard<'_>, Error> {
        let page = self.page(number);
        if !is_sealed(page, number + 1, self.salt) {
            return Err(damaged(number, Reason::Checksum));
        }
        let shard = Shard::read(page).ok_or_else(|| damaged(number, Reason::Length))?;
        if !shard.is_valid(self.summary.bits) {
            return Err(damaged(number, Reason::Field));
        }
        Ok(shard)
    }

    /// Empty when the data is no longer as long as it was, which nothing but its owner can bring about.
    #[inline]
    fn page(&self, number: u64) -> &[u8] {
        let from = (number as usize + 1) * PAGE_SIZE;
        self.data.as_ref().get(from..from + PAGE_SIZE).unwrap_or_default()
    }
}

#[cold]
fn damaged(number: u64, reason: Reason) -> Error {
    Corruption { part: Part::Shard, offset: (number + 1) * PAGE_SIZE as u64, reason }.into()
}
