//! The oracle of the engine's tests: a plain map of versions, and the questions that an archive and the map must answer
//! alike.

#![allow(dead_code, reason = "each test uses the part it needs")]

pub(crate) mod ethereum;
pub(crate) mod script;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use icecore::{
    Archive, Changes, Commitment, Domain, DomainOrder, Error, Reader, Root, Scan, StateChange, View,
};

/// The domains of every test archive that is not for Ethereum.
pub(crate) const DOMAINS: [&str; 2] = ["kv", "code"];

/// The domains of an archive, in the order of their places in [`Change`].
pub(crate) fn domains(commitment: Commitment) -> &'static [&'static str] {
    if commitment == Commitment::Ethereum { &ethereum::DOMAINS } else { &DOMAINS }
}

/// One change: domain index, key, value or deletion.
pub(crate) type Change = (usize, Vec<u8>, Option<Vec<u8>>);

/// The versions of one key, by height.
type Versions = BTreeMap<u64, Option<Vec<u8>>>;

/// All versions of everything, by height.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// That of the archive.
    commitment: Commitment,
    /// Whether the domains are by path.
    is_by_path: bool,
    versions: BTreeMap<(usize, Vec<u8>), Versions>,
    pub(crate) roots: BTreeMap<u64, Root>,
    /// The first block, or the newest at or below the height that was pruned to.
    pub(crate) first: Option<u64>,
    /// Whether what the first block changed may be gone.
    is_pruned: bool,
    /// The lowest blocks, each when it was unwound.
    floors: BTreeSet<u64>,
}

impl Oracle {
    /// That of an empty archive.
    pub(crate) fn of(commitment: Commitment) -> Self {
        Self { commitment, ..Self::default() }
    }

    /// That of an empty archive that is there.
    pub(crate) fn of_archive(reader: &Reader) -> Self {
        let is_by_path = reader.domains()[0].order == DomainOrder::PathThenKey;
        Self { is_by_path, ..Self::of(reader.commitment()) }
    }

    /// That of the same archive when it was empty.
    pub(crate) fn before_any_block(&self) -> Self {
        Self { is_by_path: self.is_by_path, ..Self::of(self.commitment) }
    }

    /// The domains of the archive.
    pub(crate) fn domains(&self) -> &'static [&'static str] {
        domains(self.commitment)
    }

    /// Compares keys in the form in which they are scanned.
    fn compare(&self, domain: usize, a: &[u8], b: &[u8]) -> Ordering {
        if self.is_by_path { Domain::new(DOMAINS[domain]).by_path().compare(a, b) } else { a.cmp(b) }
    }

    /// The form in which a key is scanned.
    fn stored(&self, domain: usize, key: &[u8]) -> Vec<u8> {
        match self.commitment {
            Commitment::Ethereum => ethereum::stored(domain, key),
            _ => key.to_vec(),
        }
    }

    /// Draws the changes of a block that follows.
    pub(crate) fn draw(&self, random: &mut Random, max: u64) -> Vec<Change> {
        match self.commitment {
            Commitment::Ethereum => ethereum::changes(self, &ethereum::draw(random, self, max)),
            _ => random.changes(max),
        }
    }

    /// Changes that no newest state has.
    pub(crate) fn sure_change(&self) -> Vec<Change> {
        match self.commitment {
            Commitment::Ethereum => ethereum::changes(self, &ethereum::sure_change(self)),
            _ => vec![(0, b"after".to_vec(), Some(b"the crash".to_vec()))],
        }
    }

    pub(crate) fn head(&self) -> Option<u64> {
        self.roots.last_key_value().map(|(height, _)| *height)
    }

    /// The heights that are answered, both inside.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let head = self.head()?;
        Some((self.first?.min(head), head))
    }

    /// Adds a block of an archive, and checks its root where the oracle knows how.
    pub(crate) fn commit(&mut self, height: u64, changes: &[Change], root: Root) {
        self.write(height, changes, root);
        match self.commitment {
            Commitment::None => assert_eq!(root, Root::EMPTY),
            Commitment::Ethereum => assert_eq!(root, ethereum::root(self, height), "the root of {height}"),
            _ => {}
        }
    }

    /// Adds a block.
    fn write(&mut self, height: u64, changes: &[Change], root: Root) {
        for (domain, key, value) in changes {
            self.versions.entry((*domain, key.clone())).or_default().insert(height, value.clone());
        }
        self.roots.insert(height, root);
        self.first = self.first.or(Some(height));
    }

    pub(crate) fn unwind(&mut self, to: u64) {
        self.floors.extend(self.range().map(|(first, _)| first));
        for versions in self.versions.values_mut() {
            versions.retain(|block, _| *block <= to);
        }
        self.roots.retain(|block, _| *block <= to);
    }

    pub(crate) fn prune(&mut self, before: u64) {
        let floor = self.roots.range(..=before).next_back().map(|(height, _)| *height);
        self.first = self.first.max(floor);
        self.is_pruned |= floor.is_some();
    }

    pub(crate) fn get(&self, domain: usize, key: &[u8], at: u64) -> Option<Vec<u8>> {
        let versions = self.versions.get(&(domain, key.to_vec()))?;
        versions.range(..=at).next_back().and_then(|(_, value)| value.clone())
    }

    /// All keys with a value at a height, as they are scanned, in order.
    pub(crate) fn state(&self, domain: usize, at: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let plain = self.plain_state(domain, at).into_iter();
        let mut state: Vec<_> = plain.map(|(key, value)| (self.stored(domain, &key), value)).collect();
        state.sort_by(|(a, _), (b, _)| self.compare(domain, a, b));
        state
    }

    /// All keys with a value at a height, as callers know them, in order.
    fn plain_state(&self, domain: usize, at: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys = self.versions.keys().filter(|(d, _)| *d == domain);
        keys.filter_map(|(_, key)| Some((key.clone(), self.get(domain, key, at)?))).collect()
    }

    /// Versions, newest first.
    pub(crate) fn history(&self, domain: usize, key: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
        let versions = self.versions.get(&(domain, key.to_vec()));
        versions.into_iter().flatten().rev().map(|(block, value)| (*block, value.clone())).collect()
    }

    /// Keys worth asking for: all that were ever written, and some that were not.
    pub(crate) fn keys(&self) -> BTreeSet<(usize, Vec<u8>)> {
        let mut keys: BTreeSet<_> = self.versions.keys().cloned().collect();
        if self.commitment == Commitment::Ethereum {
            let absent = self.versions.keys().map(|(domain, key)| (*domain, ethereum::absent(key)));
            keys.extend(absent);
            return keys;
        }
        for (domain, key) in keys.clone() {
            let mut longer = key.clone();
            longer.push(0);
            keys.insert((1 - domain, key));
            keys.insert((domain, longer));
        }
        keys.insert((0, Vec::new()));
        keys.insert((1, vec![0xFF; 40]));
        keys
    }

    /// Heights worth asking at: around every block, thinned out to `max`.
    pub(crate) fn heights(&self, max: usize) -> Vec<u64> {
        let Some((first, head)) = self.range() else { return Vec::new() };
        let around = self.roots.keys().flat_map(|h| [h.saturating_sub(1), *h, h + 1]);
        let all: BTreeSet<u64> = around.filter(|h| (first..=head).contains(h)).collect();
        let skip = all.len().div_ceil(max).max(1);
        let mut heights: Vec<u64> = all.into_iter().rev().step_by(skip).collect();
        heights.push(first);
        heights
    }

    /// Asks everything.
    pub(crate) fn check(&self, reader: &Reader) {
        assert_eq!(reader.head(), self.head());
        assert_eq!(reader.range(), self.range());
        let Some((first, head)) = reader.range() else {
            assert!(matches!(reader.at(0), Err(Error::OutOfRange { .. })));
            return;
        };
        assert!(matches!(reader.at(head + 1), Err(Error::OutOfRange { .. })));
        if let Some(below) = first.checked_sub(1) {
            assert!(matches!(reader.at(below), Err(Error::OutOfRange { .. })));
        }
        let keys = self.keys();
        for at in self.heights(12) {
            self.check_view(&reader.at(at).unwrap(), &keys, at);
        }
        for (domain, key) in &keys {
            self.read_history(reader, *domain, key).unwrap();
        }
        self.read_changes(reader).unwrap();
    }

    pub(crate) fn check_view(&self, view: &View, keys: &BTreeSet<(usize, Vec<u8>)>, at: u64) {
        let root = self.roots.range(..=at).next_back();
        assert_eq!(Some((view.block().unwrap(), self.root_of(view).unwrap())), root.map(|(h, r)| (*h, *r)));
        for (domain, key) in keys {
            let expected = self.get(*domain, key, at);
            assert_eq!(view.get(self.domains()[*domain], key).unwrap(), expected, "{domain} {key:?} at {at}");
        }
        for (domain, name) in self.domains().iter().enumerate() {
            let state = self.state(domain, at);
            let asked: Vec<&[u8]> = keys.iter().filter(|(d, _)| *d == domain).map(|(_, k)| &k[..]).collect();
            let expected: Vec<_> = asked.iter().map(|key| self.get(domain, key, at)).collect();
            assert_eq!(view.multi_get(name, &asked).unwrap(), expected);
            check_scan(view, name, &Scan::all(), &state);
            if let Some((key, _)) = state.get(state.len() / 2) {
                let prefix = &key[..key.len().min(1)];
                let within: Vec<_> = state.iter().filter(|(k, _)| k.starts_with(prefix)).cloned().collect();
                check_scan(view, name, &Scan::prefix(prefix), &within);
                if self.is_by_path {
                    let refused = view.scan(name, &Scan::all().to(key)).map(drop);
                    assert!(matches!(refused, Err(Error::NoRange { .. })));
                    continue;
                }
                let from: Vec<_> = state.iter().filter(|(k, _)| k >= key).cloned().collect();
                check_scan(view, name, &Scan::all().from(key), &from);
                let below: Vec<_> = state.iter().filter(|(k, _)| k < key).cloned().collect();
                check_scan(view, name, &Scan::all().to(key), &below);
            }
        }
    }
}

impl Oracle {
    /// The root of a view, as [`Oracle::roots`] has it: there is none without a commitment.
    fn root_of(&self, view: &View) -> Result<Root, Error> {
        if self.commitment != Commitment::None {
            return view.root();
        }
        assert!(matches!(view.root(), Err(Error::Commitment { .. })));
        Ok(Root::EMPTY)
    }

    /// Reads at a few heights through every path of reading. A wrong answer panics, an error comes back.
    ///
    /// # Panics
    /// When an answer differs from the map's.
    pub(crate) fn read_all(&self, reader: &Reader, heights: usize) -> Result<(), Error> {
        assert_eq!(reader.range(), self.range());
        let keys = self.keys();
        for at in self.heights(heights) {
            let view = reader.at(at)?;
            let root = self.roots.range(..=at).next_back().map(|(height, root)| (*height, *root));
            assert_eq!(Some((view.block()?, self.root_of(&view)?)), root, "root at {at}");
            for (domain, name) in self.domains().iter().enumerate() {
                let state = self.state(domain, at);
                let found = pairs(view.scan(name, &Scan::all())?)?;
                assert_eq!(found, state, "{name} at {at}");
                let mut found = pairs(view.scan(name, &Scan::all().backward())?)?;
                found.reverse();
                assert_eq!(found, state, "{name} backward at {at}");
                let asked: Vec<&[u8]> =
                    keys.iter().filter(|(d, _)| *d == domain).map(|(_, k)| &k[..]).collect();
                let expected: Vec<_> = asked.iter().map(|key| self.get(domain, key, at)).collect();
                assert_eq!(view.multi_get(name, &asked)?, expected, "{name} at {at}");
                for (key, expected) in asked.iter().zip(&expected) {
                    assert_eq!(view.get(name, key)?, *expected, "{name} {key:?} at {at}");
                }
            }
        }
        for (domain, key) in &keys {
            self.read_history(reader, *domain, key)?;
        }
        self.read_changes(reader)
    }

    /// The changes of a range of blocks, in order.
    pub(crate) fn changes(&self, from: u64, to: u64) -> Vec<StateChange> {
        let mut changes = Vec::new();
        for ((domain, key), versions) in &self.versions {
            for (block, after) in versions.iter().filter(|(block, _)| (from..=to).contains(*block)) {
                let before = block.checked_sub(1).and_then(|before| self.get(*domain, key, before));
                let (key, after) = (self.stored(*domain, key), after.clone());
                changes.push(StateChange { block: *block, domain: *domain, key, before, after });
            }
        }
        changes.sort_by(|a, b| {
            let by_key = || self.compare(a.domain, &a.key, &b.key);
            (a.block, a.domain).cmp(&(b.block, b.domain)).then_with(by_key)
        });
        changes
    }

    /// All changes, those of some blocks in the middle, of one block and of one domain.
    pub(crate) fn read_changes(&self, reader: &Reader) -> Result<(), Error> {
        let Some((first, head)) = self.range() else { return Ok(()) };
        let lowest = first + u64::from(self.is_pruned);
        let all = |changes: Changes| changes.collect::<Result<Vec<_>, _>>();
        assert!(all(reader.changes(..)?)? == self.changes(lowest, head), "all changes");
        if self.is_pruned {
            assert!(matches!(reader.changes(first..), Err(Error::OutOfRange { .. })));
        }
        assert!(matches!(reader.changes(..=head + 1), Err(Error::OutOfRange { .. })));
        let len = (head + 1).saturating_sub(lowest);
        for (from, to) in [(lowest + len / 3, lowest + 2 * len / 3), (head, head)] {
            if (lowest..=head).contains(&from) && to <= head {
                let expected = self.changes(from, to);
                assert!(all(reader.changes(from..=to)?)? == expected, "changes of {from} to {to}");
                let of_code = expected.into_iter().filter(|change| change.domain == 1).collect::<Vec<_>>();
                let found = all(reader
                    .changes((Bound::Excluded(from - 1), Bound::Included(to)))?
                    .of_domain(self.domains()[1])?)?;
                assert!(found == of_code, "changes of a domain from {from} to {to}");
            }
        }
        Ok(())
    }

    fn read_history(&self, reader: &Reader, domain: usize, key: &[u8]) -> Result<(), Error> {
        let found = reader.history(self.domains()[domain], key)?;
        let found = found.map(|change| change.map(|change| (change.block, change.value)));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let all = self.history(domain, key);
        // The lowest block sees one version at or below it, and none where that is a deletion by an older block.
        let first = self.range().map_or(0, |range| range.0);
        let above = all.iter().filter(|(block, _)| *block > first);
        let seen = all.iter().find(|(block, _)| *block <= first);
        let seen = seen.filter(|(block, value)| *block == first || value.is_some());
        let expected: Vec<_> = above.chain(seen).cloned().collect();
        // Deep unwinding to the step of the lowest block makes that block the writer of what older ones left; that block may have been
        // pruned since.
        let floors = self.floors.iter().filter(|floor| **floor <= first);
        let is_found_from = |floor: u64| {
            let moved = expected.iter().map(|(block, value)| ((*block).max(floor), value));
            moved.eq(found.iter().map(|(block, value)| (*block, value)))
        };
        let is_right = floors.copied().chain([0]).any(is_found_from);
        assert!(is_right, "{domain} {key:?}: {found:?} for {expected:?}");
        self.read_change_blocks(reader, domain, key)
    }

    /// The blocks without values are those of the history, at every height; the newest is what a lookup finds.
    fn read_change_blocks(&self, reader: &Reader, domain: usize, key: &[u8]) -> Result<(), Error> {
        let name = self.domains()[domain];
        for at in self.heights(3) {
            let view = reader.at(at)?;
            let expected: Vec<u64> = view
                .history(name, key)?
                .map(|change| change.map(|change| change.block))
                .collect::<Result<_, _>>()?;
            let blocks = view.change_blocks(name, key)?.collect::<Result<Vec<_>, _>>()?;
            assert_eq!(blocks, expected, "{domain} {key:?} at {at}");
            let mut blocks = Vec::new();
            assert_eq!(view.change_blocks(name, key)?.read_to_end(&mut blocks)?, expected.len());
            assert_eq!(blocks, expected, "{domain} {key:?} at {at}");
            let found = view.lookup(name, key)?.map(|found| found.change.block);
            assert_eq!(view.last_change(name, key)?, found, "{domain} {key:?} at {at}");
        }
        Ok(())
    }
}

/// A key with its value.
type Pair = (Vec<u8>, Vec<u8>);

/// The keys and values of a scan.
fn pairs(entries: icecore::Entries) -> Result<Vec<Pair>, Error> {
    entries.map(|entry| entry.map(|entry| (entry.key, entry.value))).collect()
}

fn check_scan(view: &View, domain: &str, scan: &Scan, expected: &[(Vec<u8>, Vec<u8>)]) {
    let forward = pairs(view.scan(domain, scan).unwrap()).unwrap();
    assert_eq!(forward, expected, "{scan:?}");
    let mut backward = pairs(view.scan(domain, &scan.clone().backward()).unwrap()).unwrap();
    backward.reverse();
    assert_eq!(backward, expected, "{scan:?} backward");
}

/// Commits a block to both.
pub(crate) fn commit(archive: &Archive, oracle: &mut Oracle, height: u64, changes: &[Change]) {
    oracle.commit(height, changes, write(archive, height, changes).unwrap());
}

/// Commits a block to an archive.
pub(crate) fn write(archive: &Archive, height: u64, changes: &[Change]) -> Result<Root, Error> {
    let domains = domains(archive.reader().commitment());
    let mut block = archive.begin(height)?;
    for (domain, key, value) in changes {
        match value {
            Some(value) => block.put(domains[*domain], key, value)?,
            None => block.delete(domains[*domain], key)?,
        }
    }
    block.commit()
}

/// A small generator, so that every test names its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
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

    /// A key from few prefixes, so that keys collide and are prefixes of each other.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        let prefix: &[u8] = [&b""[..], b"a", b"ab", b"abc\xFF", b"\xFF\xFF"][self.below(5) as usize];
        let mut key = prefix.to_vec();
        key.extend((0..self.below(3)).map(|_| b"abz\0\xFF"[(self.0 >> 7) as usize % 5]));
        key
    }

    pub(crate) fn value(&mut self) -> Option<Vec<u8>> {
        match self.below(12) {
            0..=2 => None,
            3 => Some(Vec::new()),
            4 => Some(vec![self.next() as u8; 1500 + self.below(4000) as usize]),
            _ => Some(self.next().to_le_bytes()[..=(self.below(8) as usize)].to_vec()),
        }
    }

    pub(crate) fn changes(&mut self, max: u64) -> Vec<Change> {
        let count = self.below(max + 1);
        (0..count).map(|_| (self.below(2) as usize, self.key(), self.value())).collect()
    }
}
