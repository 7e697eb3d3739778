//! The keys of one domain of a step with their versions, found by hash.
//!
//! ```text
//! slots       [hash, key] ...           open addressing; a power of two of them, at most three of four in use
//! keys        [place, len, count, tail] in the order in which they came: every block adds an ascending run
//! versions    [v1] | [link][v2 v3] | [link][v4 v5 v6 v7] | ...     of one key; others are in between
//! arena       key, value, value, key, value ...
//! ```
//!
//! A key's versions are in lists that double, each with a link to the one before: one version costs one place, a key with a
//! version in every block is searched in two binary searches, and nothing is copied when it gets another.
//!
//! Adding a change that is not the first of its key takes one probe, one comparison and two copies. No order is kept: see
//! [`key_order`](super::key_order).

use std::hash::{BuildHasher, RandomState};

use icecore_segments::step::BlockNumber;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Found;
use super::byte_arena::{ByteArena, Place};
use crate::wal::ChangeRef;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyTable {
    /// Drawn anew for each table: who chooses keys must not choose where they go, or a block could make every probe long.
    seed: u64,
    slots: Vec<Slot>,
    keys: Vec<Key>,
    versions: Vec<Version>,
    arena: ByteArena,
    /// The blocks that changed the domain, ascending.
    blocks: Vec<BlockNumber>,
    /// The keys that each of them changed, block after block, and where in `changed` those of a block begin.
    changed: Vec<KeyNumber>,
    starts: Vec<u32>,
}

/// The number of a key in its table.
pub(crate) type KeyNumber = u32;

/// A key beside its hash, by which it is told from most others without a look at it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    key: KeyNumber,
}

const FREE: Slot = Slot { hash: 0, key: KeyNumber::MAX };

/// One key.
#[derive(Debug)]
struct Key {
    place: Place,
    len: u16,
    /// How many versions it has.
    count: u32,
    /// Where the last list of its versions begins.
    tail: u32,
}

/// One version, or before a list of versions the link: `block` is then where the list before begins.
#[derive(Clone, Copy, Debug)]
struct Version {
    place: Place,
    /// The length of the value, or [`DELETION`].
    len: u32,
    /// The place of its block among `blocks`.
    block: u32,
}

const DELETION: u32 = u32::MAX;

/// What a block did to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableChange<'t> {
    pub(crate) key: &'t [u8],
    /// The value before; `None` where the table has no older version.
    pub(crate) before: Option<Option<&'t [u8]>>,
    pub(crate) after: Option<&'t [u8]>,
}

/// The fewest slots of a table that has a key.
const SLOTS_MIN: usize = 32;

/// Changes whose keys are looked up together.
const GROUP: usize = 16;

impl KeyTable {
    pub(super) fn new() -> Self {
        Self {
            seed: RandomState::new().hash_one(0),
            slots: Vec::new(),
            keys: Vec::new(),
            versions: Vec::new(),
            arena: ByteArena::default(),
            blocks: Vec::new(),
            changed: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The newest block that changed the domain.
    pub(super) fn last_block(&self) -> Option<BlockNumber> {
        self.blocks.last().copied()
    }

    /// The bytes of a key.
    #[inline]
    pub(crate) fn key(&self, number: KeyNumber) -> &[u8] {
        let key = &self.keys[number as usize];
        self.arena.get(key.place, usize::from(key.len))
    }

    /// Adds a block above all others: changes of this domain, each key once.
    pub(super) fn add_block(&mut self, height: BlockNumber, changes: &[ChangeRef<'_>]) {
        debug_assert!(self.last_block().is_none_or(|last| last < height), "blocks are added in order");
        let block = u32::try_from(self.blocks.len()).expect("a step has fewer than 2^32 blocks");
        self.blocks.push(height);
        self.starts.push(u32::try_from(self.changed.len()).expect("a step has fewer than 2^32 versions"));
        for group in changes.chunks(GROUP) {
            self.add_group(block, group);
        }
    }

    /// Looks the keys up a step at a time for all of them: most of the time goes by waiting for memory, and so for several places of
    /// it at once.
    fn add_group(&mut self, block: u32, changes: &[ChangeRef<'_>]) {
        self.make_room(GROUP);
        let mut hashes = [0; GROUP];
        for (hash, change) in hashes.iter_mut().zip(changes) {
            *hash = self.hash(change.key);
        }
        let mut found = [FREE.key; GROUP];
        for (found, hash) in found.iter_mut().zip(&hashes[..changes.len()]) {
            let slot = self.slots[home(*hash, self.slots.len())];
            *found = if slot.hash == *hash { slot.key } else { FREE.key };
        }
        let key_of = |number: KeyNumber| self.keys.get(number as usize).map(|key| (key.place, key.len));
        let keys = found.map(key_of);
        for (at, change) in changes.iter().enumerate() {
            let is_found =
                keys[at].is_some_and(|(place, len)| self.arena.get(place, usize::from(len)) == change.key);
            let number = if is_found { found[at] } else { self.find_or_insert(hashes[at], change.key) };
            self.add_version(number, block, change.value);
            self.changed.push(number);
        }
    }

    fn add_version(&mut self, number: KeyNumber, block: u32, value: Option<&[u8]>) {
        let (place, len) = match value {
            Some(value) => (self.arena.push(value), value.len() as u32),
            None => (Place::default(), DELETION),
        };
        let version = Version { place, len, block };
        let key = &mut self.keys[number as usize];
        key.count += 1;
        let first = first_of_list(key.count);
        if key.count == first {
            if first > 1 {
                self.versions.push(Version { block: key.tail, ..version });
            }
            key.tail = u32::try_from(self.versions.len()).expect("a step has fewer than 2^32 versions");
            self.versions.push(version);
            self.versions.resize(self.versions.len() + first as usize - 1, version);
        } else {
            self.versions[(key.tail + key.count - first) as usize] = version;
        }
    }

    /// The number of a key that is there.
    fn find(&self, key: &[u8]) -> Option<KeyNumber> {
        if self.slots.is_empty() {
            return None;
        }
        let number = self.slots[self.probe(self.hash(key), key)].key;
        (number != FREE.key).then_some(number)
    }

    /// The number of a key, which is added where it is not there. There is room for it.
    fn find_or_insert(&mut self, hash: u32, key: &[u8]) -> KeyNumber {
        let place = self.probe(hash, key);
        let number = self.slots[place].key;
        if number != FREE.key {
            return number;
        }
        let number = u32::try_from(self.keys.len()).expect("a step has fewer than 2^32 keys");
        let len = u16::try_from(key.len()).expect("a key has at most 1024 bytes");
        self.keys.push(Key { place: self.arena.push(key), len, count: 0, tail: 0 });
        self.slots[place] = Slot { hash, key: number };
        number
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u32 {
        xxh3_64_with_seed(key, self.seed) as u32
    }

    /// The slot of a key, or the one where it would go. There is a free one.
    #[inline]
    fn probe(&self, hash: u32, key: &[u8]) -> usize {
        let mut at = home(hash, self.slots.len());
        loop {
            let slot = self.slots[at];
            if slot.key == FREE.key || (slot.hash == hash && self.key(slot.key) == key) {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Doubles the slots until there are enough for `more` keys. The new ones are filled from front to back: the order of hashes
    /// is kept.
    fn make_room(&mut self, more: usize) {
        while (self.keys.len() + more) * 4 > self.slots.len() * 3 {
            let len = (self.slots.len() * 2).max(SLOTS_MIN);
            let slots = std::mem::replace(&mut self.slots, vec![FREE; len]);
            for slot in slots.into_iter().filter(|slot| slot.key != FREE.key) {
                let mut at = home(slot.hash, len);
                while self.slots[at].key != FREE.key {
                    at = (at + 1) & (len - 1);
                }
                self.slots[at] = slot;
            }
        }
    }
}

/// Reading.
impl KeyTable {
    /// The newest version of `key` at or below `at`.
    pub(crate) fn get(&self, key: &[u8], at: BlockNumber) -> Option<Found> {
        let end = self.blocks_up_to(at);
        if end == 0 { None } else { self.find(key).and_then(|number| self.newest(number, end)) }
    }

    /// The versions of `key` at or below `at`, newest first.
    pub(super) fn history(&self, key: &[u8], at: BlockNumber) -> Vec<Found> {
        let end = self.blocks_up_to(at);
        let versions = self.find(key).into_iter().flat_map(|number| self.lists(number));
        let visible = versions.flat_map(|list| list[..visible(list, end)].iter().rev());
        visible.map(|version| self.found(version)).collect()
    }

    /// Appends the blocks of the versions of `key` at or below `at`, newest first.
    pub(super) fn change_blocks(&self, key: &[u8], at: BlockNumber, blocks: &mut Vec<BlockNumber>) {
        let end = self.blocks_up_to(at);
        let versions = self.find(key).into_iter().flat_map(|number| self.lists(number));
        let visible = versions.flat_map(|list| list[..visible(list, end)].iter().rev());
        blocks.extend(visible.map(|version| self.blocks[version.block as usize]));
    }

    /// How many of the blocks are at or below `at`: a version is when its block is among them.
    pub(super) fn blocks_up_to(&self, at: BlockNumber) -> u32 {
        // Most reads are at the head, or below all of the table.
        let end = match *self.blocks {
            [first, ..] if at < first => 0,
            [.., last] if at < last => self.blocks.partition_point(|block| *block <= at),
            _ => self.blocks.len(),
        };
        end as u32
    }

    /// The newest version of a key among the first `end` blocks.
    pub(super) fn newest(&self, number: KeyNumber, end: u32) -> Option<Found> {
        let newest = self.lists(number).find_map(|list| list[..visible(list, end)].last());
        newest.map(|version| self.found(version))
    }

    /// The blocks that changed the domain, ascending.
    pub(crate) fn blocks(&self) -> &[BlockNumber] {
        &self.blocks
    }

    /// Shows what the block of this height changed, by key: the key, what the table has of it before, and what it wrote.
    pub(crate) fn for_each_change<'t>(&'t self, height: BlockNumber, mut show: impl FnMut(TableChange<'t>)) {
        let Ok(block) = self.blocks.binary_search(&height) else { return };
        let end = self.starts.get(block + 1).map_or(self.changed.len(), |start| *start as usize);
        for &number in &self.changed[self.starts[block] as usize..end] {
            let lists = self.lists(number);
            let mut versions = lists
                .flat_map(|list| list[..visible(list, block as u32 + 1)].iter().rev())
                .map(|v| self.value(v));
            if let Some(after) = versions.next() {
                show(TableChange { key: self.key(number), before: versions.next(), after });
            }
        }
    }

    /// Whether the block of this height wrote or deleted a key.
    pub(crate) fn has_version(&self, number: KeyNumber, height: BlockNumber) -> bool {
        let Ok(block) = self.blocks.binary_search(&height) else { return false };
        let newest = self.lists(number).find_map(|list| list[..visible(list, block as u32 + 1)].last());
        newest.is_some_and(|version| version.block == block as u32)
    }

    /// The versions of a key, newest first.
    pub(crate) fn versions(&self, number: KeyNumber) -> impl Iterator<Item = (BlockNumber, Option<&[u8]>)> {
        let versions = self.lists(number).flat_map(|list| list.iter().rev());
        versions.map(|version| (self.blocks[version.block as usize], self.value(version)))
    }

    /// The lists of the versions of a key, newest first, each oldest first.
    fn lists(&self, number: KeyNumber) -> impl Iterator<Item = &[Version]> {
        let key = &self.keys[number as usize];
        let (mut count, mut begin) = (key.count, key.tail as usize);
        std::iter::from_fn(move || {
            if count == 0 {
                return None;
            }
            let first = first_of_list(count);
            let list = &self.versions[begin..][..(count - first + 1) as usize];
            count = first - 1;
            if count > 0 {
                begin = self.versions[begin - 1].block as usize;
            }
            Some(list)
        })
    }

    fn found(&self, version: &Version) -> Found {
        (self.blocks[version.block as usize], self.value(version).map(<[u8]>::to_vec))
    }

    fn value(&self, version: &Version) -> Option<&[u8]> {
        (version.len != DELETION).then(|| self.arena.get(version.place, version.len as usize))
    }

    /// A copy that has only the versions at or below `to`.
    pub(super) fn unwound(&self, to: BlockNumber) -> Self {
        let end = self.blocks_up_to(to);
        let mut copy = Self { blocks: self.blocks[..end as usize].to_vec(), ..Self::new() };
        // The keys that stay came before the others, so they keep their numbers.
        let changed = self.starts.get(end as usize).map_or(self.changed.len(), |start| *start as usize);
        copy.changed = self.changed[..changed].to_vec();
        copy.starts = self.starts[..end as usize].to_vec();
        for number in 0..self.keys.len() as KeyNumber {
            let lists: Vec<&[Version]> = self.lists(number).collect();
            let kept: Vec<&Version> =
                lists.iter().rev().flat_map(|list| &list[..visible(list, end)]).collect();
            if kept.is_empty() {
                continue;
            }
            copy.make_room(1);
            let target = copy.find_or_insert(copy.hash(self.key(number)), self.key(number));
            for version in kept {
                copy.add_version(target, version.block, self.value(version));
            }
        }
        copy
    }

    /// Bytes of keys and values held, a key counted with each of its versions.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |number| {
            let versions = self.versions(number);
            versions.map(move |(_, value)| (self.key(number).len() + value.map_or(0, <[u8]>::len)) as u64)
        };
        (0..self.keys.len() as KeyNumber).flat_map(bytes).sum()
    }
}

/// Where the search for a hash begins: slots are in the order of hashes, as far as there is room.
#[inline]
fn home(hash: u32, slots: usize) -> usize {
    ((u64::from(hash) * slots as u64) >> 32) as usize
}

/// Versions are counted from one, and each list begins with a power of two.
#[inline]
fn first_of_list(count: u32) -> u32 {
    1 << count.ilog2()
}

/// How many versions of a list are of the first `end` blocks.
#[inline]
fn visible(list: &[Version], end: u32) -> usize {
    match list.last() {
        Some(last) if end <= last.block => list.partition_point(|version| version.block < end),
        _ => list.len(),
    }
}
