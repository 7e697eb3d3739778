//! The content of the simulated disk, and what a power loss does to it. [`super::sim`] has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit that a disk writes as a whole.
const SECTOR: usize = 512;

/// A failure to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    at: u64,
    kind: ErrorKind,
    torn: Option<u64>,
    lasting: bool,
}

impl Fault {
    /// Operation number `at`, counted from 1, fails with an I/O error and does nothing.
    pub fn at(at: u64) -> Self {
        Self { at, kind: ErrorKind::Other, torn: None, lasting: false }
    }

    /// The error says that the disk is full.
    pub fn no_space(self) -> Self {
        Self { kind: ErrorKind::StorageFull, ..self }
    }

    /// A write that fails has written a part of its bytes, by the seed; another operation may have happened, although
    /// it reports the error.
    pub fn torn(self, seed: u64) -> Self {
        Self { torn: Some(seed), ..self }
    }

    /// All operations after it fail too.
    pub fn from_then_on(self) -> Self {
        Self { lasting: true, ..self }
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Dir,
    File(u64),
}

pub(super) type Names = BTreeMap<PathBuf, Entry>;

/// A change of names that no directory sync has covered. It happens as a whole or not at all.
#[derive(Clone)]
pub(super) struct NameChange {
    pub(super) sets: Vec<(PathBuf, Option<Entry>)>,
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        for (path, entry) in &self.sets {
            match entry {
                Some(entry) => names.insert(path.clone(), *entry),
                None => names.remove(path),
            };
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        self.sets.iter().any(|(path, _)| path.parent() == Some(dir))
    }
}

/// The content of a file, whatever its names.
#[derive(Clone, Default)]
pub(super) struct Node {
    /// As the system shows it.
    pub(super) bytes: Vec<u8>,
    /// How much of it was synced.
    synced: usize,
    /// The synced content before a cut that was not synced.
    uncut: Option<Vec<u8>>,
    /// What a failed sync dropped.
    dropped: Vec<Range<usize>>,
    /// A copy for mappings, made when first asked for.
    pub(super) mapped: Option<Arc<[u8]>>,
}

impl Node {
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.len(), bytes, ..Self::default() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.mapped = None;
    }

    pub(super) fn cut(&mut self, len: usize) {
        if len < self.synced {
            let synced = self.bytes[..self.synced].to_vec();
            self.uncut.get_or_insert(synced);
            self.synced = len;
        }
        self.bytes.truncate(len);
        self.dropped.retain(|range| range.end <= len);
        self.mapped = None;
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.bytes.len();
        self.uncut = None;
    }

    /// Bytes whose sync failed: a later one passes them over.
    pub(super) fn drop_unsynced(&mut self) {
        self.dropped.push(self.synced..self.bytes.len());
    }

    /// The bytes from here on are written again: what a failed sync dropped of them is for the next one.
    pub(super) fn write_again(&mut self, from: usize) {
        let again = self.dropped.extract_if(.., |range| from <= range.start);
        self.synced = again.fold(self.synced, |synced, range| synced.min(range.start));
    }

    fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        if let Some(uncut) = &self.uncut
            && random.coin()
        {
            return uncut.clone();
        }
        let mut bytes = self.bytes.clone();
        for range in &self.dropped {
            if random.coin() {
                bytes[range.clone()].fill(0);
            }
        }
        let unsynced = bytes.len() - self.synced;
        let kept = self.synced + random.below(unsynced + 1);
        let shown = kept + random.below(bytes.len() - kept + 1);
        match random.below(6) {
            0 => bytes.truncate(self.synced),
            1 => {}
            2 => bytes.truncate(kept),
            3 => {
                bytes.truncate(shown);
                bytes[kept..].fill(0);
            }
            4 => {
                bytes.truncate(shown);
                bytes[kept..].fill_with(|| random.next() as u8);
            }
            _ => lose_sectors(&mut bytes, self.synced, random),
        }
        bytes
    }
}

/// Zeroes sectors after `synced`, each or not.
fn lose_sectors(bytes: &mut [u8], synced: usize, random: &mut Random) {
    let mut start = synced;
    while start < bytes.len() {
        let end = (start / SECTOR * SECTOR + SECTOR).min(bytes.len());
        if random.coin() {
            bytes[start..end].fill(0);
        }
        start = end;
    }
}

/// Everything there is.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) nodes: BTreeMap<u64, Node>,
    next_node: u64,
    pub(super) names: Names,
    /// The names as a power loss leaves them at least.
    pub(super) durable_names: Names,
    pub(super) pending: Vec<NameChange>,
    pub(super) locks: BTreeSet<PathBuf>,
    pub(super) operations: u64,
    pub(super) fault: Option<Fault>,
    pub(super) film: Option<Film>,
}

/// Copies of the disk as it was before operations that a test asked for.
#[derive(Clone)]
pub(super) struct Film {
    /// The next operation to copy the disk before.
    pub(super) next: u64,
    /// Operations from one copy to the next.
    pub(super) every: u64,
    pub(super) frames: Vec<(u64, Disk)>,
}

/// How an operation goes: as it should, or not and then perhaps half.
pub(super) enum Outcome {
    Good,
    Bad(io::Error, Option<Random>),
}

impl Outcome {
    /// For an operation that only looks.
    pub(super) fn check(self) -> io::Result<()> {
        match self {
            Self::Good => Ok(()),
            Self::Bad(error, _) => Err(error),
        }
    }

    /// Whether an operation that happens as a whole happens, and what it reports.
    pub(super) fn whole(self) -> (bool, io::Result<()>) {
        match self {
            Self::Good => (true, Ok(())),
            Self::Bad(error, torn) => (torn.is_some_and(|mut random| random.coin()), Err(error)),
        }
    }
}

impl Disk {
    /// Counts one operation.
    pub(super) fn step(&mut self) -> Outcome {
        self.operations += 1;
        self.take_frame();
        match self.fault {
            Some(fault) if fault.at == self.operations || (fault.lasting && fault.at < self.operations) => {
                let error = io::Error::new(fault.kind, format!("injected at operation {}", self.operations));
                Outcome::Bad(error, fault.torn.map(|seed| Random(seed ^ self.operations)))
            }
            _ => Outcome::Good,
        }
    }

    fn take_frame(&mut self) {
        if let Some(mut film) = self.film.take() {
            if film.next == self.operations {
                film.next += film.every;
                film.frames.push((self.operations, self.clone()));
            }
            self.film = Some(film);
        }
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || path.as_os_str().is_empty() || self.names.get(path) == Some(&Entry::Dir)
    }

    pub(super) fn file(&self, path: &Path) -> Option<u64> {
        match self.names.get(path) {
            Some(Entry::File(node)) => Some(*node),
            _ => None,
        }
    }

    pub(super) fn expect_file(&mut self, path: &Path) -> &mut Node {
        let node = self.file(path).unwrap_or_else(|| panic!("no file {}", path.display()));
        self.node(node)
    }

    pub(super) fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a name or a handle stands for a node")
    }

    pub(super) fn change(&mut self, sets: Vec<(PathBuf, Option<Entry>)>) {
        let change = NameChange { sets };
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<u64> {
        if !self.is_dir(path.parent().unwrap_or(Path::new(""))) {
            return Err(ErrorKind::NotFound.into());
        }
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let node = self.next_node;
        self.next_node += 1;
        self.nodes.insert(node, Node::default());
        self.change(vec![(path.to_owned(), Some(Entry::File(node)))]);
        Ok(node)
    }

    pub(super) fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Ok(());
        }
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.create_dirs(path.parent().unwrap_or(Path::new("")))?;
        self.change(vec![(path.to_owned(), Some(Entry::Dir))]);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.file(from).ok_or(ErrorKind::NotFound)?;
        if !self.is_dir(to.parent().unwrap_or(Path::new(""))) {
            return Err(ErrorKind::NotFound.into());
        }
        if self.names.contains_key(to) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.change(vec![(to.to_owned(), Some(Entry::File(node)))]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.file(from).ok_or(ErrorKind::NotFound)?;
        if !self.is_dir(to.parent().unwrap_or(Path::new(""))) {
            return Err(ErrorKind::NotFound.into());
        }
        if self.is_dir(to) {
            return Err(ErrorKind::IsADirectory.into());
        }
        if from != to {
            self.change(vec![(from.to_owned(), None), (to.to_owned(), Some(Entry::File(node)))]);
        }
        Ok(())
    }

    pub(super) fn sync_names(&mut self, dir: &Path) {
        let (covered, rest) = mem::take(&mut self.pending).into_iter().partition(|change| change.is_in(dir));
        self.pending = rest;
        let covered: Vec<NameChange> = covered;
        for change in covered {
            change.apply(&mut self.durable_names);
        }
    }

    pub(super) fn after_power_loss(&self, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut names = self.durable_names.clone();
        // Most file systems keep the order of names: one seed in two does too.
        let in_order = random.coin();
        let first_lost = random.below(self.pending.len() + 1);
        for (i, change) in self.pending.iter().enumerate() {
            if if in_order { i < first_lost } else { random.coin() } {
                change.apply(&mut names);
            }
        }
        let mut disk = Self { next_node: self.next_node, ..Self::default() };
        // A directory sorts before what it holds.
        for (path, entry) in names {
            let parent = path.parent().unwrap_or(Path::new(""));
            if !disk.is_dir(parent) {
                continue;
            }
            if let Entry::File(node) = entry {
                let mut random = Random(seed ^ (node + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let bytes = || Node::durable(self.nodes[&node].after_power_loss(&mut random));
                disk.nodes.entry(node).or_insert_with(bytes);
            }
            disk.names.insert(path, entry);
        }
        disk.durable_names = disk.names.clone();
        disk
    }
}

/// SplitMix64: all that a seed decides.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
