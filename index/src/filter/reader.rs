//! Reads a `.kvei`: from the hash of a key to *no* or *maybe*.
//!
//! Cost of a probe: a guess and a short walk in the boundary table, one page of the file, three cells of it.

use std::ops::Range;

use icecore_segments::bytes::{u32_at, u64_at};
use icecore_segments::checksum::{Checksum, PageChecks, Salt, crc64, is_sealed};
use icecore_segments::error::{Corruption, Error, Part, Reason};
use icecore_segments::frame::{Frame, Kind, PAGE_SIZE};

use super::shard::{Shard, cell, usual_probe};
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

/// Where a filter is to be probed for a hash: from [`ExistenceFilter::plan`].
#[derive(Clone, Copy, Debug)]
pub struct ProbePlan {
    hash: FilterHash,
    /// The shards that can hold the hash, mostly one.
    shards: (u32, u32),
    /// Whether the first is the only one and was found usual: then its cells and the fingerprint are all that a probe needs.
    is_usual: bool,
    fingerprint: u16,
    cells: [u16; 3],
}

impl ProbePlan {
    /// The first byte of the page of the first shard.
    #[inline]
    fn page_at(&self) -> usize {
        (self.shards.0 as usize + 1) * PAGE_SIZE
    }
}

impl<D: AsRef<[u8]>> ExistenceFilter<D> {
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

    /// Whether the segment may have the key. `false` is certain.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    #[inline]
    pub fn may_contain(&self, hash: FilterHash) -> Result<bool, Error> {
        self.probe(&self.plan(hash))
    }

    /// Where to probe for a hash, found in memory alone.
    #[inline]
    pub fn plan(&self, hash: FilterHash) -> ProbePlan {
        let shards = self.shards(hash);
        let is_usual = shards.1 - shards.0 == 1 && self.usual.is_checked(u64::from(shards.0));
        let (fingerprint, cells) = usual_probe(hash.to_u64(), self.summary.bits);
        ProbePlan { hash, shards, is_usual, fingerprint, cells }
    }

    /// What to prefetch before the filter is probed: the three cells of a usual shard, the sizes of another, and the page of one
    /// that was not read yet.
    #[inline]
    pub fn prefetch_hint(&self, plan: &ProbePlan) -> PrefetchHint {
        let page = plan.page_at() as u64;
        if plan.is_usual {
            PrefetchHint::Lines(plan.cells.map(|at| page + u64::from(at)))
        } else if self.is_read(plan) {
            PrefetchHint::Lines([page; 3])
        } else {
            PrefetchHint::Page(page..page + PAGE_SIZE as u64)
        }
    }

    /// Whether the page that a probe looks at first was read since the file was opened, so that it is most likely in memory.
    #[inline]
    pub fn is_read(&self, plan: &ProbePlan) -> bool {
        plan.is_usual || self.checks.is_checked(u64::from(plan.shards.0))
    }

    /// What [`probe`](Self::probe) answers, where three cells of a page that was checked before say it, as nearly always; else
    /// `None`.
    #[inline]
    pub fn probe_cells(&self, plan: &ProbePlan) -> Option<bool> {
        if !plan.is_usual {
            return None;
        }
        let page = self.data.as_ref().get(plan.page_at()..plan.page_at() + PAGE_SIZE)?;
        let [first, second, third] = plan.cells.map(|at| cell(page, usize::from(at), self.summary.bits));
        Some(plan.fingerprint == first? ^ second? ^ third?)
    }

    /// Whether the segment may have the key of the hash that was planned for. `false` is certain. Touches one page.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the page is damaged, checked when it is touched for the first time after opening.
    #[inline]
    pub fn probe(&self, plan: &ProbePlan) -> Result<bool, Error> {
        self.probe_cells(plan).map_or_else(|| self.probe_shards(plan), Ok)
    }

    #[cold]
    fn probe_shards(&self, plan: &ProbePlan) -> Result<bool, Error> {
        for number in u64::from(plan.shards.0)..u64::from(plan.shards.1) {
            let shard = self.shard(number)?;
            let answer = shard.may_contain(plan.hash.to_u64(), self.summary.bits);
            if answer.ok_or_else(|| damaged(number, Reason::Field))? {
                return Ok(true);
            }
        }
        Ok(false)
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
        if !self.checks.ensure(number, || self.read_shard(number).is_ok()) {
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
