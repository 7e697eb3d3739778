//! A table of a step answers as a plain map does, whatever was added, read and unwound before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_segments::step::Step;

use super::Direction;
use super::Found;
use super::key_order::sort_by_key_bytes;
use super::step_memtable::StepMemtable;
use crate::domain::{DomainId, root_key};
use crate::wal::ChangeRef;

const DOMAINS: usize = 3;

/// The versions of each key, oldest first.
type Keys = BTreeMap<Vec<u8>, Vec<Found>>;

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Keys that are hard to tell apart: one is the beginning of another, they end in zeros, they differ late or early.
    fn key(&mut self) -> Vec<u8> {
        let number = self.below(40);
        match self.below(5) {
            0 => vec![0; number as usize % 20],
            1 => [vec![0xAA; 20], (number % 20).to_be_bytes().repeat(4)].concat(),
            2 => [vec![number as u8; 3], vec![0xFF; self.below(9) as usize]].concat(),
            3 => [vec![0xAA; 8 + self.below(3) as usize * 8], vec![0; number as usize % 9]].concat(),
            _ => (number * 0x0101_0101_0107).to_le_bytes().repeat(3),
        }
    }

    fn value(&mut self) -> Option<Vec<u8>> {
        match self.below(40) {
            0..8 => None,
            8..12 => Some(Vec::new()),
            12 => Some(vec![7; 70_000 + self.below(1000) as usize]),
            len => Some(vec![len as u8; len as usize]),
        }
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }
}

/// A table and what it must answer.
struct Pair {
    table: StepMemtable,
    model: Vec<Keys>,
    heights: BTreeSet<u64>,
}

impl Pair {
    fn new() -> Self {
        let table = StepMemtable::empty(Step(0), DOMAINS);
        Self { table, model: vec![Keys::new(); DOMAINS], heights: BTreeSet::new() }
    }

    fn add_block(&mut self, height: u64, random: &mut Random) {
        for domain in 1..DOMAINS {
            let changes = if random.below(8) == 0 { random.below(300) } else { random.below(12) };
            let changes: BTreeMap<_, _> = (0..changes).map(|_| (random.key(), random.value())).collect();
            self.add(domain, height, changes);
        }
        self.add(0, height, BTreeMap::from([(root_key(height).to_vec(), Some(vec![height as u8; 64]))]));
        self.heights.insert(height);
    }

    fn add(&mut self, domain: usize, height: u64, changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        let id = DomainId(domain as u16);
        let refs =
            changes.iter().map(|(key, value)| ChangeRef { domain: id.0, key, value: value.as_deref() });
        let refs: Vec<ChangeRef<'_>> = refs.collect();
        self.table.add(id, height, &refs);
        for (key, value) in changes {
            self.model[domain].entry(key).or_default().push((height, value));
        }
    }

    /// The part that is left of both.
    fn unwound(&self, to: u64) -> Self {
        let mut model = self.model.clone();
        for keys in &mut model {
            keys.values_mut().for_each(|versions| versions.retain(|(block, _)| *block <= to));
            keys.retain(|_, versions| !versions.is_empty());
        }
        let heights = self.heights.range(..=to).copied().collect();
        Self { table: self.table.unwound(to, true), model, heights }
    }

    fn check_key(&self, domain: usize, key: &[u8], at: u64) {
        let versions = self.model[domain].get(key).map_or(&[][..], Vec::as_slice);
        let mut visible: Vec<Found> = versions.iter().filter(|found| found.0 <= at).cloned().collect();
        visible.reverse();
        let id = DomainId(domain as u16);
        assert_eq!(self.table.get(id, key, at), visible.first().cloned(), "{key:?} at {at}");
        assert_eq!(self.table.history(id, key, at), visible, "{key:?} at {at}");
    }

    fn check_range(&self, random: &mut Random, at: u64) {
        let domain = random.below(DOMAINS as u64) as usize;
        let (lower, upper) = (random.bound(), random.bound());
        let limit = [1, 3, 10, usize::MAX][random.below(4) as usize];
        let is_inside = |key: &[u8]| {
            (match &lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => lower.as_slice() <= key,
                Bound::Excluded(lower) => lower.as_slice() < key,
            }) && match &upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
            }
        };
        let newest = |versions: &[Found]| versions.iter().rfind(|found| found.0 <= at).cloned();
        let inside = self.model[domain].iter().filter(|(key, _)| is_inside(key));
        let mut wanted: Vec<(Vec<u8>, Found)> =
            inside.filter_map(|(key, versions)| Some((key.clone(), newest(versions)?))).collect();
        let borrowed = |bound: &'_ Bound<Vec<u8>>| bound.clone();
        let (low, high) = (borrowed(&lower), borrowed(&upper));
        let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        for direction in [Direction::Forward, Direction::Backward] {
            let found = self.table.range(DomainId(domain as u16), bounds, at, direction, limit);
            assert_eq!(found, wanted[..limit.min(wanted.len())], "{bounds:?} at {at} {direction:?}");
            wanted.reverse();
        }
    }

    /// Everything, in order.
    fn check_all(&self) {
        let mut bytes = 0;
        for (domain, model) in self.model.iter().enumerate() {
            assert_eq!(in_order(&self.table, DomainId(domain as u16)), *model);
            let lens = |(key, versions): (&Vec<u8>, &Vec<Found>)| {
                let values = versions.iter().map(|(_, value)| value.as_ref().map_or(0, Vec::len));
                values.map(|len| (key.len() + len) as u64).sum::<u64>()
            };
            bytes += model.iter().map(lens).sum::<u64>();
        }
        assert_eq!(self.table.bytes(), bytes);
        assert_eq!(self.table.blocks(), self.heights.len() as u64);
        assert_eq!(self.table.last_height(), self.heights.last().copied());
    }
}

/// The keys of a domain with their versions, oldest first, as emission orders them.
fn in_order(table: &StepMemtable, domain: DomainId) -> Keys {
    let keys = table.keys(domain);
    let mut numbers: Vec<u32> = (0..keys.len() as u32).collect();
    sort_by_key_bytes(&mut numbers, |number| keys.key(number));
    assert!(numbers.is_sorted_by(|a, b| keys.key(*a) < keys.key(*b)));
    let owned = |(block, value): (u64, Option<&[u8]>)| (block, value.map(<[u8]>::to_vec));
    let versions = numbers.into_iter().map(|number| {
        let mut versions: Vec<Found> = keys.versions(number).map(owned).collect();
        versions.reverse();
        (keys.key(number).to_vec(), versions)
    });
    versions.collect()
}

fn run(seed: u64, blocks: u64, checks: u64) {
    let (mut random, mut pair, mut height) = (Random(seed), Pair::new(), 0);
    for _ in 0..blocks {
        height += 1 + random.below(3);
        pair.add_block(height, &mut random);
        for _ in 0..random.below(checks) {
            let at = random.below(height + 2);
            pair.check_key(random.below(DOMAINS as u64) as usize, &random.key(), at);
            pair.check_range(&mut random, at);
        }
        if random.below(20) == 0 {
            let copy = pair.unwound(random.below(height + 2));
            copy.check_all();
            pair.check_all();
            if random.below(2) == 0 {
                pair = copy;
            }
        }
    }
    pair.check_all();
    for domain in 0..DOMAINS {
        pair.model[domain].keys().for_each(|key| pair.check_key(domain, key, random.below(height + 2)));
    }
}

#[test]
fn a_table_answers_as_a_map() {
    (0..40).for_each(|seed| run(seed, 60, 8));
}

#[test]
fn a_table_of_many_blocks_answers_as_a_map() {
    run(1000, 1500, 3);
    run(1001, 1500, 1);
}

#[test]
fn readers_see_whole_blocks_while_the_writer_adds() {
    const BLOCKS: u64 = 600;
    const KEYS: u64 = 64;
    let key = |number: u64| [vec![9; 12], number.to_be_bytes().to_vec()].concat();
    let (table, head) = (StepMemtable::empty(Step(0), DOMAINS), AtomicU64::new(0));
    let domain = DomainId(1);
    let read = |seed: u64| {
        let mut random = Random(seed);
        loop {
            let at = head.load(Ordering::Acquire);
            let all = (Bound::Unbounded, Bound::Unbounded);
            let found = table.range(domain, all, at, Direction::Forward, usize::MAX);
            // Block n adds keys up to n and writes every key below KEYS again.
            assert_eq!(found.len() as u64, if at == 0 { 0 } else { KEYS + at });
            for (place, (bytes, version)) in found.iter().enumerate() {
                let block = if (place as u64) < KEYS { at } else { place as u64 + 1 - KEYS };
                assert_eq!((bytes, version.0), (&key(place as u64), block));
            }
            let number = random.below(KEYS);
            let past = random.below(at + 1);
            assert_eq!(
                table.get(domain, &key(number), past).map(|found| found.0),
                (past > 0).then_some(past)
            );
            if at == BLOCKS {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|seed| drop(scope.spawn(move || read(seed))));
        for height in 1..=BLOCKS {
            let mut keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
            keys.push(key(KEYS + height - 1));
            let change = |key| ChangeRef { domain: domain.0, key, value: Some(&b"value"[..]) };
            table.add(domain, height, &keys.iter().map(|key| change(key)).collect::<Vec<_>>());
            head.store(height, Ordering::Release);
        }
    });
}
