//! A segment without its bytes: which entries are in which page and after which restart, and what it offers to a sink.

#![allow(dead_code, reason = "each test uses its part")]

use icecore_index::{Density, Error, PivotBuilder, PivotSummary};
use icecore_segments::checksum::Checksum;
use icecore_segments::span::{PageSpan, Pivot, PivotSink, Separator};
use icecore_segments::step::{Step, StepRange};

/// The segment that every accessor of these tests describes.
pub(crate) const PARENT: Checksum = Checksum([0xA5; 32]);

pub(crate) fn steps() -> StepRange {
    StepRange::new(Step(4), Step(8)).unwrap()
}

pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A version: key and block.
pub(crate) type Entry = (Vec<u8>, u64);

pub(crate) struct Model {
    /// Key ascending, block descending, none twice.
    pub(crate) entries: Vec<Entry>,
    /// For each entry its page and the restart it is after.
    pub(crate) places: Vec<(u64, u16)>,
}

impl Model {
    /// Sorts the entries and lays them out: `page_len` gives the number of entries of the next page, `group_len` of the
    /// next group after a restart.
    pub(crate) fn new(
        mut entries: Vec<Entry>,
        mut page_len: impl FnMut() -> usize,
        mut group_len: impl FnMut() -> usize,
    ) -> Self {
        entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        entries.dedup();
        let mut places = Vec::new();
        let mut page = 0;
        while places.len() < entries.len() {
            let end = (places.len() + page_len().max(1)).min(entries.len());
            let mut restart = 0;
            while places.len() < end {
                let group_end = (places.len() + group_len().max(1)).min(end);
                places.resize(group_end, (page, restart));
                restart += 1;
            }
            page += 1;
        }
        Self { entries, places }
    }

    pub(crate) fn pages(&self) -> u64 {
        self.places.last().map_or(0, |&(page, _)| page + 1)
    }

    /// Offers every page beginning and every restart, as a segment builder does.
    pub(crate) fn offer(&self, sink: &mut impl PivotSink) -> Result<(), Error> {
        self.offer_until(usize::MAX, sink)
    }

    /// The same up to the entry `last`.
    pub(crate) fn offer_until(&self, last: usize, sink: &mut impl PivotSink) -> Result<(), Error> {
        for (i, &(page, restart)) in self.places.iter().enumerate().take_while(|(i, _)| *i <= last) {
            if i > 0 && self.places[i - 1] == (page, restart) {
                continue;
            }
            let separator = self.separator(i);
            sink.pivot(&Pivot { separator, page, restart, ordinal: i as u64 })?;
        }
        Ok(())
    }

    fn separator(&self, i: usize) -> Separator<'_> {
        let key = &self.entries[i].0[..];
        let Some((before, block)) = i.checked_sub(1).map(|i| &self.entries[i]) else {
            return Separator { key, before: None };
        };
        if before == key {
            return Separator { key, before: Some(*block) };
        }
        let shared = key.iter().zip(before).take_while(|(a, b)| a == b).count();
        Separator { key: &key[..=shared], before: None }
    }

    pub(crate) fn index(&self, m: u32) -> (PivotSummary, Vec<u8>) {
        let m = Density::new(m).unwrap();
        let mut builder = PivotBuilder::new(Vec::new(), "storage", steps(), m).unwrap();
        self.offer(&mut builder).unwrap();
        builder.finish(PARENT, self.pages(), self.entries.len() as u64).unwrap()
    }

    /// The entry that answers `(key, at)`: the newest version at or below.
    pub(crate) fn answer(&self, key: &[u8], at: u64) -> Option<usize> {
        let first = self.entries.partition_point(|(k, b)| (&k[..], !*b) < (key, !at));
        (self.entries.get(first)?.0 == key).then_some(first)
    }

    /// Whether the span holds the entry that answers, if there is one.
    pub(crate) fn allows(&self, span: PageSpan, key: &[u8], at: u64) -> bool {
        let Some(answer) = self.answer(key, at) else { return true };
        let (page, restart) = self.places[answer];
        span.first <= page && page <= span.last && (page > span.first || span.restart <= restart)
    }
}

/// Storage-like keys: few addresses, runs of neighbours, small numbers; now and then many versions.
pub(crate) fn storage_like(count: usize, seed: u64) -> Vec<Entry> {
    let mut rng = SplitMix64(seed);
    let mut entries = Vec::new();
    while entries.len() < count {
        let address = rng.bytes(20);
        let mut slot = rng.bytes(32);
        for i in 0..=rng.below(400) {
            match rng.below(4) {
                0 => slot = [vec![0; 30], (i as u16).to_be_bytes().to_vec()].concat(),
                1 => slot[31] = slot[31].wrapping_add(1),
                _ => slot = rng.bytes(32),
            }
            let key = [&address[..], &slot[..]].concat();
            let versions = if rng.below(200) == 0 { 300 } else { 1 };
            entries.extend((0..versions).map(|version| (key.clone(), 1000 + 7 * version)));
        }
    }
    entries.truncate(count);
    entries
}
