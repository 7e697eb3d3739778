//! What every store holds and is asked: the reference dataset with several versions for a part of its keys, in the order of the
//! blocks, and questions with the answers that follow from the generator alone.
//!
//! The entry at place `p` has its first version at block `p mod 1024`. Of the rows of 1024 entries every fourth has a second version
//! 1024 blocks later, every eighth a third and every sixteenth a fourth: 1.4375 versions a key, 4096 blocks.

use icecore_tools::workload::storage::{BlockRule, Entry, KEY_LEN, StorageEntries};
use icecore_tools::workload::{SplitMix64, mix};

/// The blocks of one generation of versions.
const GENERATION: u64 = 1024;

/// A row of entries has a version in generation `g` where its number is a multiple of `ROWS[g]`.
const ROWS: [u64; 4] = [1, 4, 8, 16];

/// The number of blocks, which are numbered from 0.
pub(crate) const BLOCKS: u64 = GENERATION * ROWS.len() as u64;

const VALUE_LEN_MAX: usize = 32;

/// Seeds of questions, apart from those of the dataset.
const PAST_SEED: u64 = 0x0050_4153;
const EARLY_SEED: u64 = 0x0045_4152;

/// A key of the dataset.
pub(crate) type Key = [u8; KEY_LEN];

/// A value of 1 to 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    bytes: [u8; VALUE_LEN_MAX],
    len: u8,
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// One change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

/// A block: its changes ascend by key.
pub(crate) struct Block {
    pub(crate) height: u64,
    pub(crate) changes: Vec<Change>,
}

/// What is asked, and the only right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) key: Key,
    pub(crate) at: u64,
    pub(crate) expected: Option<Value>,
}

/// The dataset in memory.
pub(crate) struct Workload {
    dataset: StorageEntries,
    entries: Vec<Entry>,
}

impl Workload {
    /// The workload over `entries` keys.
    pub(crate) fn new(entries: u64) -> Self {
        let dataset = StorageEntries::new(entries);
        let entries = dataset.iter().collect();
        Self { dataset, entries }
    }

    /// The number of versions of all keys.
    pub(crate) fn versions(&self) -> u64 {
        (0..self.dataset.len()).map(|place| blocks_of(place).count() as u64).sum()
    }

    /// All blocks, ascending.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        (0..BLOCKS).map(|height| Block { height, changes: self.changes(height) })
    }

    fn changes(&self, height: u64) -> Vec<Change> {
        let (generation, column) = (height / GENERATION, height % GENERATION);
        let step = GENERATION * ROWS[generation as usize];
        let places = (column..self.dataset.len()).step_by(step as usize);
        places.map(|place| Change { key: self.key(place), value: self.value(place, generation) }).collect()
    }

    fn key(&self, place: u64) -> Key {
        *self.entries[place as usize].key()
    }

    /// The value of a version: that of the dataset in the first generation, later as many random bytes.
    fn value(&self, place: u64, generation: u64) -> Value {
        let first = self.entries[place as usize].value();
        let mut bytes = [0; VALUE_LEN_MAX];
        let value = &mut bytes[..first.len()];
        if generation == 0 {
            value.copy_from_slice(first);
        } else {
            SplitMix64::new(mix(place) ^ generation).fill(value);
            value[0] = value[0].max(1);
        }
        Value { bytes, len: first.len() as u8 }
    }

    /// Known keys in random order, each at a random block at or after its first version.
    pub(crate) fn past(&self, repetition: u64, count: usize) -> Vec<Question> {
        let mut random = SplitMix64::new(PAST_SEED + repetition);
        (0..count)
            .map(|_| {
                let place = random.below(self.dataset.len());
                self.ask_past(place, &mut random)
            })
            .collect()
    }

    /// The same of keys that are as far apart in key order as they can, so that hardly two of them share a page of a store.
    pub(crate) fn past_apart(&self, repetition: u64, count: usize) -> Vec<Question> {
        let mut random = SplitMix64::new(PAST_SEED ^ mix(repetition));
        self.places_apart(count, &mut random)
            .into_iter()
            .map(|place| self.ask_past(place, &mut random))
            .collect()
    }

    /// Known keys at blocks before their first version.
    pub(crate) fn early(&self, repetition: u64, count: usize) -> Vec<Question> {
        let mut random = SplitMix64::new(EARLY_SEED + repetition);
        let places = self.places_apart(count, &mut random).into_iter();
        // The entries of column 0 have a version at block 0; their right neighbours have not.
        let places = places.map(|place| if place % GENERATION == 0 { place + 1 } else { place });
        places
            .filter(|place| *place < self.dataset.len())
            .map(|place| {
                let first = BlockRule::Mod1024.block(place);
                Question { key: self.key(place), at: random.below(first), expected: None }
            })
            .collect()
    }

    /// Keys that no block has: the address of a known key, then a random slot.
    pub(crate) fn unknown(&self, repetition: u64, count: usize) -> Vec<Question> {
        let keys = self.dataset.absent_keys(repetition, count).into_iter();
        keys.map(|key| Question { key, at: BLOCKS - 1, expected: None }).collect()
    }

    fn ask_past(&self, place: u64, random: &mut SplitMix64) -> Question {
        let first = BlockRule::Mod1024.block(place);
        let at = first + random.below(BLOCKS - first);
        let newest = blocks_of(place).filter(|(_, block)| *block <= at).last();
        let expected = newest.map(|(generation, _)| self.value(place, generation));
        Question { key: self.key(place), at, expected }
    }

    /// One random place of each of `count` equal parts, in random order.
    fn places_apart(&self, count: usize, random: &mut SplitMix64) -> Vec<u64> {
        let (count, len) = (count as u64, self.dataset.len());
        let bound = |part: u64| (u128::from(part) * u128::from(len) / u128::from(count)) as u64;
        let mut places: Vec<u64> = (0..count)
            .map(|part| bound(part) + random.below((bound(part + 1) - bound(part)).max(1)))
            .collect();
        for last in (1..places.len()).rev() {
            places.swap(last, random.below(last as u64 + 1) as usize);
        }
        places
    }
}

/// The versions of the entry at a place, as (generation, block), oldest first.
fn blocks_of(place: u64) -> impl Iterator<Item = (u64, u64)> {
    let row = place / GENERATION;
    let column = BlockRule::Mod1024.block(place);
    (0..)
        .zip(ROWS)
        .filter(move |(_, rows)| row.is_multiple_of(*rows))
        .map(move |(generation, _)| (generation, generation * GENERATION + column))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ENTRIES: u64 = 40_000;

    #[test]
    fn the_answers_are_those_of_a_map_that_took_the_blocks() {
        let workload = Workload::new(ENTRIES);
        let mut map: BTreeMap<(Key, u64), Value> = BTreeMap::new();
        for block in workload.blocks() {
            assert!(block.changes.windows(2).all(|pair| pair[0].key < pair[1].key));
            map.extend(block.changes.iter().map(|change| ((change.key, block.height), change.value)));
        }
        assert_eq!(map.len() as u64, workload.versions());
        let questions = [
            workload.past(0, 3000),
            workload.past_apart(0, 3000),
            workload.early(0, 500),
            workload.unknown(0, 500),
        ];
        for question in questions.iter().flatten() {
            let found = map.range((question.key, 0)..=(question.key, question.at)).next_back();
            assert_eq!(found.map(|(_, value)| *value), question.expected);
        }
    }

    #[test]
    fn many_answers_are_not_the_newest_version() {
        let workload = Workload::new(ENTRIES);
        let newest = |question: &Question| {
            let place = workload.entries.binary_search_by_key(&&question.key, Entry::key).unwrap() as u64;
            blocks_of(place).last().is_none_or(|(_, block)| block <= question.at)
        };
        let past = workload.past(0, 4000);
        let old = past.iter().filter(|question| !newest(question)).count();
        assert!(old > 300, "{old}");
    }
}
