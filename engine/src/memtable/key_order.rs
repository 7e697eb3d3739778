//! Keys in order: sorting many at once, and the order of a table as far as readers wanted it.
//!
//! A table finds keys by hash and keeps no order while it is written. A range sorts the keys that came since the last one into
//! a run of their own, and merges runs so that each is at least twice as long as the next: there are few, and a key is
//! merged as often as the number of keys has bits at most, however commits and ranges take turns. Emission sorts all at once.

use std::ops::Bound;
use std::sync::Arc;

use icecore_segments::bytes::key_head;
use parking_lot::RwLockReadGuard;

use super::key_table::{KeyNumber, KeyTable};
use super::{Direction, Found};

/// Groups no larger than this are sorted by comparing what is left of their keys.
const SMALL_GROUP: usize = 16;

/// Keys that are sorted or merged before a writer that waits for the table has its turn.
const TURN: usize = 1 << 12;

/// An item beside the eight bytes of its key that are compared.
#[derive(Clone, Copy)]
struct Headed<T> {
    head: u64,
    /// How many bytes of the key are in the head.
    len: u8,
    item: T,
}

/// Sorts items by their keys, those of one key staying in order.
///
/// # Cost
/// Numbers are compared, eight bytes of the keys at a time, and only the keys that have those in common are compared further.
/// Items that are in order take one pass for each eight bytes that neighbours share.
pub(crate) fn sort_by_key_bytes<'k, T: Copy>(items: &mut [T], key: impl Fn(T) -> &'k [u8] + Copy) {
    let mut headed: Vec<Headed<T>> =
        items.iter().map(|item| Headed { head: 0, len: 0, item: *item }).collect();
    sort_from(&mut headed, 0, key);
    for (item, headed) in items.iter_mut().zip(headed) {
        *item = headed.item;
    }
}

/// Sorts items whose keys have the first `depth` bytes in common.
fn sort_from<'k, T: Copy>(items: &mut [Headed<T>], depth: usize, key: impl Fn(T) -> &'k [u8] + Copy) {
    if items.len() <= SMALL_GROUP {
        items.sort_by(|a, b| key(a.item)[depth..].cmp(&key(b.item)[depth..]));
        return;
    }
    for item in &mut *items {
        (item.head, item.len) = head(&key(item.item)[depth..]);
    }
    // A key that ends in the head is before those that go on with zeros.
    items.sort_by_key(|item| (item.head, item.len));
    let is_open = |item: &Headed<T>| usize::from(item.len) == size_of::<u64>();
    for group in items.chunk_by_mut(|a, b| (a.head, a.len) == (b.head, b.len)) {
        if group.len() > 1 && is_open(&group[0]) {
            sort_from(group, depth + size_of::<u64>(), key);
        }
    }
}

/// The head of a key, and how many of its bytes the key has.
#[inline]
fn head(bytes: &[u8]) -> (u64, u8) {
    (key_head(bytes), bytes.len().min(size_of::<u64>()) as u8)
}

/// A key of a table beside its first bytes, which tell it from most others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered {
    head: u64,
    key: KeyNumber,
}

/// The order of the keys of a table. See the module.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    /// Ascending by key, each at least twice as long as the next.
    runs: Vec<Run>,
    /// How many keys of the table are in runs.
    keys: usize,
}

pub(super) type Run = Arc<[Ordered]>;

impl KeyOrder {
    /// Orders the keys that came to the table since the last time. All runs together then have all its keys.
    ///
    /// Lock the order before the table: a writer that waits for the table has its turn in between.
    pub(super) fn extend(&mut self, table: &mut RwLockReadGuard<'_, KeyTable>) -> Vec<Run> {
        while self.keys < table.len() {
            let end = table.len().min(self.keys + TURN);
            let mut keys: Vec<KeyNumber> = (self.keys as KeyNumber..end as KeyNumber).collect();
            sort_by_key_bytes(&mut keys, |number| table.key(number));
            let ordered = |key| Ordered { head: head(table.key(key)).0, key };
            self.runs.push(keys.into_iter().map(ordered).collect());
            self.keys = end;
            while let [.., long, short] = &self.runs[..]
                && long.len() < 2 * short.len()
            {
                let merged = merge(table, long, short);
                self.runs.truncate(self.runs.len() - 2);
                self.runs.push(merged);
            }
            RwLockReadGuard::bump(table);
        }
        self.runs.clone()
    }
}

fn merge(table: &mut RwLockReadGuard<'_, KeyTable>, mut a: &[Ordered], mut b: &[Ordered]) -> Run {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    while let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) {
        if is_before(table, first_a, first_b) {
            merged.push(*first_a);
            a = rest_a;
        } else {
            merged.push(*first_b);
            b = rest_b;
        }
        if merged.len().is_multiple_of(TURN) {
            RwLockReadGuard::bump(table);
        }
    }
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    merged.into()
}

fn is_before(table: &KeyTable, a: &Ordered, b: &Ordered) -> bool {
    a.head < b.head || (a.head == b.head && table.key(a.key) < table.key(b.key))
}

/// Up to `limit` keys of all runs inside `bounds`, which admit a key, that have a version among the first `end` blocks, each with
/// the newest such version, in the direction given.
pub(super) fn range(
    table: &KeyTable,
    runs: &[Run],
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    end: u32,
    direction: Direction,
    limit: usize,
) -> Vec<(Vec<u8>, Found)> {
    let mut rest: Vec<&[Ordered]> = runs.iter().map(|run| inside(table, run, bounds)).collect();
    let mut found = Vec::new();
    while found.len() < limit {
        rest.retain(|run| !run.is_empty());
        let next = match direction {
            Direction::Forward => take_first(table, &mut rest),
            Direction::Backward => take_last(table, &mut rest),
        };
        let Some(key) = next else { break };
        found.extend(table.newest(key, end).map(|version| (table.key(key).to_vec(), version)));
    }
    found
}

/// Takes the lowest key from runs that are not empty.
fn take_first(table: &KeyTable, runs: &mut [&[Ordered]]) -> Option<KeyNumber> {
    let lowest = runs.iter_mut().reduce(|a, b| if is_before(table, &b[0], &a[0]) { b } else { a })?;
    let (first, rest) = lowest.split_first()?;
    *lowest = rest;
    Some(first.key)
}

/// Takes the highest key from runs that are not empty.
fn take_last(table: &KeyTable, runs: &mut [&[Ordered]]) -> Option<KeyNumber> {
    let is_higher = |a: &[Ordered], b: &[Ordered]| is_before(table, &b[b.len() - 1], &a[a.len() - 1]);
    let highest = runs.iter_mut().reduce(|a, b| if is_higher(b, a) { b } else { a })?;
    let (last, rest) = highest.split_last()?;
    *highest = rest;
    Some(last.key)
}

/// The part of a run inside bounds that admit a key.
fn inside<'r>(
    table: &KeyTable,
    run: &'r [Ordered],
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> &'r [Ordered] {
    let search = |key: &[u8], with_equal: bool| {
        let head = head(key).0;
        run.partition_point(|ordered| {
            ordered.head < head
                || (ordered.head == head
                    && (table.key(ordered.key) < key || (with_equal && table.key(ordered.key) == key)))
        })
    };
    let from = match lower {
        Bound::Unbounded => 0,
        Bound::Included(key) => search(key, false),
        Bound::Excluded(key) => search(key, true),
    };
    let to = match upper {
        Bound::Unbounded => run.len(),
        Bound::Included(key) => search(key, true),
        Bound::Excluded(key) => search(key, false),
    };
    &run[from..to]
}

#[cfg(test)]
mod tests {
    use parking_lot::RwLock;

    use super::*;
    use crate::wal::ChangeRef;

    /// A table to which keys of a few groups are added, some in each block and always the same.
    fn add_block(table: &RwLock<KeyTable>, height: u64) {
        let key = |number: u64| {
            let mixed = (height * 50 + number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            [[(mixed % 7) as u8; 20].as_slice(), &mixed.to_le_bytes()].concat()
        };
        let keys: Vec<Vec<u8>> = (0..50).map(key).collect();
        let changes = keys.iter().map(|key| ChangeRef { domain: 1, key, value: None });
        table.write().add_block(height, &changes.collect::<Vec<_>>());
    }

    #[test]
    fn commits_and_ranges_in_turn_merge_a_key_seldom() {
        const BLOCKS: u64 = 2000;
        let (table, mut order) = (RwLock::new(KeyTable::new()), KeyOrder::default());
        let (mut written, mut before) = (0, Vec::new());
        for height in 1..=BLOCKS {
            add_block(&table, height);
            let runs = order.extend(&mut table.read());
            let is_new = |run: &&Run| !before.iter().any(|old| Arc::ptr_eq(old, run));
            written += runs.iter().filter(is_new).map(|run| run.len() as u64).sum::<u64>();
            before = runs;
        }
        let keys = table.read().len() as u64;
        assert_eq!(keys, BLOCKS * 50);
        // 17 bits. A range that ordered everything anew would have written a thousand times as many.
        assert!(written < 17 * keys, "{written} for {keys}");
        assert!(before.len() <= 17, "{}", before.len());
        assert!(before.windows(2).all(|pair| pair[0].len() >= 2 * pair[1].len()));
    }

    #[test]
    fn many_keys_at_once_are_ordered_as_one_by_one() {
        let (table, mut at_once, mut in_turn) =
            (RwLock::new(KeyTable::new()), KeyOrder::default(), KeyOrder::default());
        for height in 1..=400 {
            add_block(&table, height);
            in_turn.extend(&mut table.read());
        }
        let mut table = table.read();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let answers = [at_once.extend(&mut table), in_turn.extend(&mut table)]
            .map(|runs| range(&table, &runs, all, 399, Direction::Forward, usize::MAX));
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[0].len(), 399 * 50, "the newest block is not seen");
        assert!(answers[0].is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn sorting_compares_whole_keys_and_keeps_equal_ones_in_order() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for number in 0..3000u64 {
            let zeros = vec![0; (number * 31 % 40) as usize];
            let end = (number % 13).to_be_bytes();
            keys.push([&[(number % 3) as u8; 9], &zeros[..], &end[..(number % 9) as usize]].concat());
        }
        let mut numbers: Vec<usize> = (0..keys.len()).collect();
        let mut wanted = numbers.clone();
        wanted.sort_by_key(|number| (&keys[*number], *number));
        sort_by_key_bytes(&mut numbers, |number| &keys[number]);
        assert_eq!(numbers, wanted);
        sort_by_key_bytes(&mut numbers, |number| &keys[number]);
        assert_eq!(numbers, wanted);
    }
}
