//! The reference dataset: `N` storage-like entries, 52-byte keys (address and slot), values of 1 to 32 bytes.
//!
//! The recipe, which binds every byte: [`SplitMix64`] from the seed `0xE21609`; `A` addresses, of which the
//! `i`-th has `C/(i+1) + 1` slots and the first one the rest (Zipf, exponent 1). `A` is 50,000 and `C = N * 4330 / 50000`;
//! a small dataset, for which that leaves the first address less than nothing, has `A = N / 100` and `C = N / 12`. An address is
//! `fill(20)`. A slot is, of 100 draws, 10 times a small counter (declared variables), 25 times the slot before plus one
//! (neighbours in a struct or array), else `fill(32)` (a hashed mapping key). A value has 1, 20, 6 to 12 or 32 bytes
//! (35, 25, 25 and 15 of 100) and no leading zero. All entries are sorted by key.
//!
//! Entries come in key order without the dataset ever being in memory: one pass over the generator notes its state
//! at each address, then the addresses are visited in order and one address at a time is generated again and
//! sorted. The generator can be advanced in constant time, so a slot is kept with the state before its value instead of
//! the value. An address of more slots than are held at once is generated once for each part of the order of slots.
//!
//! Memory: 40 bytes for each entry of the largest address (C of N, 8.7 %) but no more than about 180 MB, and 40 bytes for each
//! address. Cost: about 0.2 us an entry; at 10^9 entries generating parts adds a tenth.

use std::io::{self, Write};

use super::SplitMix64;

/// The length of every key: 20 bytes of address, 32 of slot.
pub const KEY_LEN: usize = 52;

/// From this many entries on a dataset has [`ADDRESSES`] addresses; a smaller one has a hundredth of its entries.
///
/// With 50,000 addresses the recipe has no dataset below 1,902,506 entries: the first address would have less than none.
pub const FULL_ENTRIES_MIN: u64 = 2_000_000;

/// The number of addresses of a dataset of full size.
pub const ADDRESSES: u64 = 50_000;

const ADDRESS_LEN: usize = 20;
const SLOT_LEN: usize = 32;
const VALUE_LEN_MAX: usize = 32;
const SEED: u64 = 0x00E2_1609;

/// About how many slots of an address are held at once.
const SLOTS_MAX: u64 = 1 << 22;

/// Of so many slots one is a small counter.
const COUNTER_SHARE: u64 = 10;

/// What the seeds of probe keys begin at; the number of the repetition is added.
const WARM_SEED: u64 = 42;
const COLD_SEED: u64 = 4242;
const ABSENT_SEED: u64 = 424_242;

/// How many keys one repetition of a warm measurement asks for.
pub const WARM_PROBES: usize = 100_000;

/// How many keys one repetition of a cold measurement asks for.
pub const COLD_PROBES: usize = 2_000;

/// One key with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    key: [u8; KEY_LEN],
    value: [u8; VALUE_LEN_MAX],
    value_len: u8,
}

impl Entry {
    /// Address and slot.
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
    }

    /// 1 to 32 bytes, the first not zero.
    pub fn value(&self) -> &[u8] {
        &self.value[..usize::from(self.value_len)]
    }
}

/// The dataset of a given size: knows where in the generator each address begins, holds no entry.
#[derive(Debug)]
pub struct StorageEntries {
    entries: u64,
    /// Ascending by address.
    groups: Vec<Group>,
    /// About how many slots are held at once.
    slots_max: u64,
}

/// The slots of one address.
#[derive(Debug)]
struct Group {
    address: [u8; ADDRESS_LEN],
    /// The generator right after the address was drawn.
    state: SplitMix64,
    slots: u64,
}

impl StorageEntries {
    /// Prepares the dataset of `entries` entries: one pass over the generator.
    ///
    /// # Panics
    /// If `entries` is zero, or if two addresses are equal.
    pub fn new(entries: u64) -> Self {
        let addresses = if entries < FULL_ENTRIES_MIN { (entries / 100).max(1) } else { ADDRESSES };
        Self::with_addresses(entries, addresses)
    }

    /// Prepares a dataset with another number of addresses than [`new`](Self::new) chooses.
    ///
    /// # Panics
    /// If this many addresses leave the first one less than no slots, or if two addresses are equal.
    pub fn with_addresses(entries: u64, addresses: u64) -> Self {
        let counts = slot_counts(entries, addresses);
        let mut random = SplitMix64::new(SEED);
        let mut groups = Vec::with_capacity(counts.len());
        for slots in counts {
            let mut address = [0; ADDRESS_LEN];
            random.fill(&mut address);
            groups.push(Group { address, state: random, slots });
            let mut walk = Slots::new(random);
            (0..slots).for_each(|_| walk.pass());
            random = walk.random;
        }
        groups.sort_unstable_by_key(|group| group.address);
        assert!(groups.windows(2).all(|pair| pair[0].address < pair[1].address), "two equal addresses");
        Self { entries, groups, slots_max: SLOTS_MAX }
    }

    /// The number of entries.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty dataset")]
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// All entries, ascending by key.
    ///
    /// # Panics
    /// The iterator panics on two equal keys, which the recipe forbids.
    pub fn iter(&self) -> Entries<'_> {
        let parts = self.groups.iter().flat_map(|group| group.parts(self.slots_max));
        Entries {
            parts: Box::new(parts),
            address: [0; ADDRESS_LEN],
            slots: Vec::new(),
            next: 0,
            left: self.entries,
        }
    }

    /// The entries of the given places in key order, in the order asked for. A place may be asked for twice.
    ///
    /// # Cost
    /// Generates only the addresses that are asked for; holds the answers.
    ///
    /// # Panics
    /// If a place is not below [`len`](Self::len).
    pub fn pick(&self, places: &[u64]) -> Vec<Entry> {
        let mut asked: Vec<usize> = (0..places.len()).collect();
        asked.sort_unstable_by_key(|&i| places[i]);
        let mut picked: Vec<Option<Entry>> = vec![None; places.len()];
        let (mut first, mut slots) = (0, Vec::new());
        let mut asked = asked.into_iter().peekable();
        for group in &self.groups {
            let (mut begin, end) = (first, first + group.slots);
            let mut parts = group.parts(self.slots_max);
            while asked.peek().is_some_and(|&i| places[i] < end) {
                let part = parts.next().expect("the parts of an address have all its slots");
                part.sorted_slots(&mut slots);
                let part_end = begin + slots.len() as u64;
                while let Some(i) = asked.next_if(|&i| places[i] < part_end) {
                    picked[i] = Some(slots[(places[i] - begin) as usize].entry(&group.address));
                }
                begin = part_end;
            }
            first = end;
        }
        picked.into_iter().map(|entry| entry.expect("places are below the number of entries")).collect()
    }

    /// The places that repetition `repetition` of a warm measurement asks for: seed 42 + repetition.
    pub fn warm_places(&self, repetition: u64, count: usize) -> Vec<u64> {
        self.places(WARM_SEED + repetition, count)
    }

    /// The places that repetition `repetition` of a cold measurement asks for: seed 4242 + repetition.
    pub fn cold_places(&self, repetition: u64, count: usize) -> Vec<u64> {
        self.places(COLD_SEED + repetition, count)
    }

    fn places(&self, seed: u64, count: usize) -> Vec<u64> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| random.below(self.entries)).collect()
    }

    /// Keys that are not in the dataset: the address of a random entry, then a random slot.
    ///
    /// Drawn from [`SplitMix64`] seeded with 424242 + repetition: for each key `below(N)` for the entry whose
    /// address is taken, then `fill(32)` for the slot. That one of them exists has a chance of N in 2^256.
    pub fn absent_keys(&self, repetition: u64, count: usize) -> Vec<[u8; KEY_LEN]> {
        let mut random = SplitMix64::new(ABSENT_SEED + repetition);
        let ends: Vec<u64> = self
            .groups
            .iter()
            .scan(0, |end, group| {
                *end += group.slots;
                Some(*end)
            })
            .collect();
        (0..count)
            .map(|_| {
                let place = random.below(self.entries);
                let group = &self.groups[ends.partition_point(|&end| end <= place)];
                let mut key = [0; KEY_LEN];
                key[..ADDRESS_LEN].copy_from_slice(&group.address);
                random.fill(&mut key[ADDRESS_LEN..]);
                key
            })
            .collect()
    }

    /// Writes the form in which implementations compare themselves: for each entry in key order
    /// the length of the key and of the value as little-endian `u16`, then key and value.
    pub fn write_serialised(&self, out: &mut impl Write) -> io::Result<()> {
        for entry in self {
            out.write_all(&(KEY_LEN as u16).to_le_bytes())?;
            out.write_all(&u16::from(entry.value_len).to_le_bytes())?;
            out.write_all(entry.key())?;
            out.write_all(entry.value())?;
        }
        Ok(())
    }
}

impl<'a> IntoIterator for &'a StorageEntries {
    type Item = Entry;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

/// How many slots each address has.
fn slot_counts(entries: u64, addresses: u64) -> Vec<u64> {
    assert!(entries > 0 && addresses > 0, "a dataset has an entry and an address");
    let share = if addresses == ADDRESSES {
        u64::try_from(u128::from(entries) * 4330 / 50_000).expect("a share of a u64")
    } else {
        entries / 12
    };
    let mut counts: Vec<u64> = (0..addresses).map(|i| share / (i + 1) + 1).collect();
    let rest = entries.checked_sub(counts.iter().sum());
    counts[0] += rest.unwrap_or_else(|| panic!("{addresses} addresses are too many for {entries} entries"));
    counts
}

/// Some slots of an address: those of a range, so that parts one after the other have all of them in order.
struct Part<'a> {
    group: &'a Group,
    from: [u8; SLOT_LEN],
    /// The first slot after the part, but for the last part.
    to: Option<[u8; SLOT_LEN]>,
}

impl Group {
    /// Parts of about `slots_max` slots. What is in a part follows from its bounds alone; that parts are of one size rests on the
    /// recipe: a tenth of the slots counts from zero, and the others are as good as random in their first bytes.
    fn parts(&self, slots_max: u64) -> impl Iterator<Item = Part<'_>> {
        let mut bounds = vec![[0; SLOT_LEN]];
        if self.slots > slots_max {
            let bound = |at: usize, number: u64| {
                let mut slot = [0; SLOT_LEN];
                slot[at..at + 8].copy_from_slice(&number.to_be_bytes());
                slot
            };
            let counters = (slots_max..self.slots / COUNTER_SHARE).step_by(slots_max as usize);
            bounds.extend(counters.map(|counter| bound(24, counter)));
            let hashed = self.slots.div_ceil(slots_max);
            bounds.push(bound(16, 1));
            bounds.extend((1..hashed).map(|part| bound(0, u64::MAX / hashed * part)));
        }
        (0..bounds.len()).map(move |i| Part { group: self, from: bounds[i], to: bounds.get(i + 1).copied() })
    }
}

impl Part<'_> {
    /// Generates the slots of the address again and keeps those of the part, ascending.
    fn sorted_slots(&self, slots: &mut Vec<Slot>) {
        slots.clear();
        let mut walk = Slots::new(self.group.state);
        let inside = |slot: &Slot| self.from <= slot.slot && self.to.is_none_or(|to| slot.slot < to);
        slots.extend((0..self.group.slots).map(|_| walk.next_slot()).filter(inside));
        slots.sort_unstable_by_key(|slot| slot.slot);
        assert!(slots.windows(2).all(|pair| pair[0].slot < pair[1].slot), "two equal keys");
    }
}

/// A slot, and the generator right before its value is drawn.
#[derive(Clone, Copy, Debug)]
struct Slot {
    slot: [u8; SLOT_LEN],
    state: SplitMix64,
}

impl Slot {
    fn entry(&self, address: &[u8; ADDRESS_LEN]) -> Entry {
        let mut key = [0; KEY_LEN];
        key[..ADDRESS_LEN].copy_from_slice(address);
        key[ADDRESS_LEN..].copy_from_slice(&self.slot);
        let mut random = self.state;
        let len = value_len(&mut random);
        let mut value = [0; VALUE_LEN_MAX];
        random.fill(&mut value[..len]);
        value[0] = value[0].max(1);
        Entry { key, value, value_len: len as u8 }
    }
}

fn value_len(random: &mut SplitMix64) -> usize {
    match random.below(100) {
        0..35 => 1,
        35..60 => 20,
        60..85 => 6 + random.below(7) as usize,
        _ => 32,
    }
}

/// The slots of one address in the order in which the recipe draws them.
struct Slots {
    random: SplitMix64,
    small: u64,
    previous: Option<[u8; SLOT_LEN]>,
}

impl Slots {
    fn new(random: SplitMix64) -> Self {
        Self { random, small: 0, previous: None }
    }

    fn next_slot(&mut self) -> Slot {
        let slot = match (self.random.below(100), &mut self.previous) {
            (0..10, _) => {
                let mut slot = [0; SLOT_LEN];
                slot[24..].copy_from_slice(&self.small.to_be_bytes());
                self.small += 1;
                slot
            }
            (10..35, Some(previous)) => {
                let last: [u8; 8] = previous[24..].try_into().expect("eight bytes");
                previous[24..].copy_from_slice(&u64::from_be_bytes(last).wrapping_add(1).to_be_bytes());
                *previous
            }
            (_, previous) => {
                let mut slot = [0; SLOT_LEN];
                self.random.fill(&mut slot);
                *previous = Some(slot);
                slot
            }
        };
        let state = self.random;
        self.pass_value();
        Slot { slot, state }
    }

    /// Draws what [`next_slot`](Self::next_slot) draws and makes nothing of it.
    fn pass(&mut self) {
        match (self.random.below(100), self.previous.is_some()) {
            (0..10, _) | (10..35, true) => {}
            _ => {
                self.random.skip_fill(SLOT_LEN);
                self.previous = Some([0; SLOT_LEN]);
            }
        }
        self.pass_value();
    }

    fn pass_value(&mut self) {
        let len = value_len(&mut self.random);
        self.random.skip_fill(len);
    }
}

/// Walks the dataset in key order. Made by [`StorageEntries::iter`].
pub struct Entries<'a> {
    parts: Box<dyn Iterator<Item = Part<'a>> + Send + 'a>,
    address: [u8; ADDRESS_LEN],
    slots: Vec<Slot>,
    next: usize,
    left: u64,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        while self.next == self.slots.len() {
            let part = self.parts.next()?;
            part.sorted_slots(&mut self.slots);
            self.address = part.group.address;
            self.next = 0;
        }
        let entry = self.slots[self.next].entry(&self.address);
        self.next += 1;
        self.left -= 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Entries<'_> {}

/// Which block an entry of the dataset belongs to, where a block is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRule {
    /// All entries of the file at one block.
    AllOne(u64),
    /// Entry `i`, counted in key order, at block `i mod 1024`.
    Mod1024,
}

impl BlockRule {
    /// The block of the entry at `place`.
    #[inline]
    pub fn block(self, place: u64) -> u64 {
        match self {
            Self::AllOne(block) => block,
            Self::Mod1024 => place % 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn five_million_entries_are_the_published_bytes() {
        let mut hasher = Sha256::new();
        StorageEntries::new(5_000_000).write_serialised(&mut hasher).unwrap();
        let digest = format!("{:x}", hasher.finalize());
        assert_eq!(digest, "27b9e86808f4772f0c94dd4ead94ea81b1442f320a37ba30b25f9cc016787fba");
    }

    #[test]
    fn picking_gives_what_iterating_gives() {
        let dataset = StorageEntries::new(30_000);
        let all: Vec<Entry> = dataset.iter().collect();
        assert_eq!(all.len() as u64, dataset.len());
        assert!(all.windows(2).all(|pair| pair[0].key < pair[1].key));
        let mut places = dataset.warm_places(0, 500);
        places.extend([0, dataset.len() - 1, 0]);
        for (entry, place) in dataset.pick(&places).iter().zip(&places) {
            assert_eq!(*entry, all[*place as usize]);
        }
    }

    #[test]
    fn parts_of_addresses_give_what_whole_addresses_give() {
        let whole = StorageEntries::new(200_000);
        let all: Vec<Entry> = whole.iter().collect();
        for slots_max in [10_000, 1000, 100] {
            let parted = StorageEntries { slots_max, ..StorageEntries::new(200_000) };
            let mut entries = parted.iter();
            let largest = all.iter().map(|entry| {
                assert_eq!(entries.next().as_ref(), Some(entry));
                entries.slots.len() as u64
            });
            let largest = largest.max().unwrap();
            assert!(
                (slots_max / 2..2 * slots_max).contains(&largest),
                "{largest} slots at once for {slots_max}"
            );
            assert_eq!(entries.next(), None);
            let places = [parted.warm_places(3, 200), vec![0, 199_999, 0]].concat();
            assert_eq!(parted.pick(&places), whole.pick(&places));
        }
    }

    #[test]
    fn absent_keys_share_an_address_and_are_absent() {
        let dataset = StorageEntries::new(30_000);
        let all: Vec<Entry> = dataset.iter().collect();
        for key in dataset.absent_keys(1, 300) {
            let place = all.binary_search_by_key(&&key, Entry::key).unwrap_err();
            let near = [place.saturating_sub(1), place.min(all.len() - 1)];
            assert!(near.iter().any(|&i| all[i].key[..ADDRESS_LEN] == key[..ADDRESS_LEN]));
        }
    }

    #[test]
    fn repetitions_ask_for_different_keys() {
        let dataset = StorageEntries::new(30_000);
        assert_ne!(dataset.warm_places(0, 9), dataset.warm_places(1, 9));
        assert_ne!(dataset.warm_places(0, 9), dataset.cold_places(0, 9));
    }
}
