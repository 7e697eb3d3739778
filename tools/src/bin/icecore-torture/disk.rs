//! What a power loss leaves of a directory: built from the trace of the processes that worked in it.
//!
//! The rules are those of the engine's simulated disk, `engine/src/testing/sim.rs`, here on what real processes did. Synced
//! bytes stay. Of those after them: any prefix, perhaps with zeros or garbage after it, or single sectors. A cut that was not
//! synced may not have happened. Bytes whose sync failed may be gone although a later sync succeeded. Each name created,
//! renamed or removed since its directory was synced may be as before, a rename as a whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use icecore_tools::workload::SplitMix64;

use crate::syncs::SyncPoint;
use crate::trace::Change;

const SECTOR: usize = 512;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    File(usize),
}

type Names = BTreeMap<String, Entry>;

/// A change of names that no sync of a directory has covered.
struct NameChange {
    sets: Vec<(String, Option<Entry>)>,
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

    fn is_in(&self, dir: &str) -> bool {
        self.sets.iter().any(|(path, _)| parent(path) == dir)
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The content of a file, whatever its names.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) bytes: Vec<u8>,
    /// How much of it was synced.
    pub(crate) synced: usize,
    /// The synced content before a change of it that was not synced.
    before: Option<Vec<u8>>,
    /// What a failed sync dropped.
    dropped: Vec<Range<usize>>,
}

impl Node {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.unsync_from(offset);
        self.dropped.retain(|range| range.start < offset || offset + bytes.len() < range.end);
        if self.bytes.len() < offset + bytes.len() {
            self.bytes.resize(offset + bytes.len(), 0);
        }
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn cut(&mut self, len: usize) {
        self.unsync_from(len);
        self.bytes.resize(len, 0);
        self.dropped.retain(|range| range.end <= len);
    }

    fn unsync_from(&mut self, at: usize) {
        if at < self.synced {
            let synced = self.bytes[..self.synced].to_vec();
            self.before.get_or_insert(synced);
            self.synced = at;
        }
    }

    fn sync(&mut self) {
        self.synced = self.bytes.len();
        self.before = None;
    }

    fn after_power_loss(&self, loss: Loss, random: &mut SplitMix64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if loss.is_sparing() {
            return bytes;
        }
        if let Some(before) = &self.before
            && (loss.is_total() || coin(random))
        {
            return before.clone();
        }
        for range in &self.dropped {
            if loss.is_total() || coin(random) {
                bytes[range.clone()].fill(0);
            }
        }
        let kept = self.synced + random.below((bytes.len() - self.synced) as u64 + 1) as usize;
        let shown = kept + random.below((bytes.len() - kept) as u64 + 1) as usize;
        match if loss.is_total() { 0 } else { random.below(6) } {
            0 => bytes.truncate(self.synced),
            1 => {}
            2 => bytes.truncate(kept),
            3 => {
                bytes.truncate(shown);
                bytes[kept..].fill(0);
            }
            4 => {
                bytes.truncate(shown);
                random.fill(&mut bytes[kept..]);
            }
            _ => lose_sectors(&mut bytes, self.synced, random),
        }
        bytes
    }
}

fn coin(random: &mut SplitMix64) -> bool {
    random.below(2) == 0
}

/// Zeroes sectors after `synced`, each or not.
fn lose_sectors(bytes: &mut [u8], synced: usize, random: &mut SplitMix64) {
    let mut start = synced;
    while start < bytes.len() {
        let end = (start / SECTOR * SECTOR + SECTOR).min(bytes.len());
        if coin(random) {
            bytes[start..end].fill(0);
        }
        start = end;
    }
}

/// How much a power loss takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All bytes that were not synced, no name.
    Bytes,
    /// All that was not synced.
    Everything,
    /// All names that were not synced, no byte.
    Names,
    /// Any of it.
    Some,
}

impl Loss {
    /// The first images of a point are the extremes: most of what can go wrong shows there.
    fn of(image: u64) -> Self {
        match image {
            0 => Self::Bytes,
            1 => Self::Everything,
            2 => Self::Names,
            _ => Self::Some,
        }
    }

    fn is_total(self) -> bool {
        matches!(self, Self::Bytes | Self::Everything)
    }

    fn is_sparing(self) -> bool {
        self == Self::Names
    }
}

/// What an open descriptor stands for.
enum Handle {
    Dir(String),
    File(usize),
}

/// The directory as the system shows it, and what of it is on the disk.
#[derive(Default)]
pub(crate) struct Disk {
    nodes: Vec<Node>,
    names: Names,
    durable: Names,
    pending: Vec<NameChange>,
    handles: HashMap<i32, Handle>,
    /// The syncs that are left out.
    without: Option<SyncPoint>,
    /// What the present process synced, created or changed the names in: a recovery's first syncs are of their own kind.
    touched: HashSet<String>,
}

impl Disk {
    /// An empty directory on which syncs of one kind do nothing.
    pub(crate) fn without(without: Option<SyncPoint>) -> Self {
        Self { without, ..Self::default() }
    }

    /// Takes the next change of the trace.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Nothing | Change::Ack { .. } => {}
            Change::Start => {
                self.handles.clear();
                self.touched.clear();
            }
            Change::Open { fd, path, created, nameless } => self.open(*fd, path, *created, *nameless),
            Change::Close { fd } => drop(self.handles.remove(fd)),
            Change::Write { fd, offset, bytes } => {
                if let Some(node) = self.node(*fd) {
                    node.write(*offset as usize, bytes);
                }
            }
            Change::Cut { fd, len } => {
                if let Some(node) = self.node(*fd) {
                    node.cut(*len as usize);
                }
            }
            Change::Sync { fd, failed } => self.sync(*fd, *failed),
            Change::Rename { from, to } => {
                let entry = self.names.get(from).copied();
                self.rename(vec![(from.clone(), None), (to.clone(), entry)]);
            }
            Change::Remove { path } => self.rename(vec![(path.clone(), None)]),
            Change::Link { from, to } => {
                let entry = self.names.get(from).copied();
                self.rename(vec![(to.clone(), entry)]);
            }
            Change::MakeDir { path } => self.rename(vec![(path.clone(), Some(Entry::Dir))]),
        }
    }

    /// The files below a directory, as the system shows them at this moment.
    pub(crate) fn files<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.names.iter().filter_map(move |(path, entry)| match entry {
            Entry::File(node) => Some((path.strip_prefix(dir)?, &self.nodes[*node].bytes[..])),
            Entry::Dir => None,
        })
    }

    fn open(&mut self, fd: i32, path: &str, created: bool, nameless: bool) {
        let handle = match self.names.get(path) {
            _ if created => {
                self.nodes.push(Node::default());
                let node = self.nodes.len() - 1;
                if !nameless {
                    self.rename(vec![(path.to_owned(), Some(Entry::File(node)))]);
                    self.touched.insert(path.to_owned());
                }
                Handle::File(node)
            }
            Some(Entry::File(node)) => Handle::File(*node),
            Some(Entry::Dir) | None => Handle::Dir(path.to_owned()),
        };
        self.handles.insert(fd, handle);
    }

    fn rename(&mut self, sets: Vec<(String, Option<Entry>)>) {
        for (path, _) in &sets {
            self.touched.insert(parent(path).to_owned());
        }
        let change = NameChange { sets };
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn node(&mut self, fd: i32) -> Option<&mut Node> {
        match self.handles.get(&fd) {
            Some(Handle::File(node)) => Some(&mut self.nodes[*node]),
            _ => None,
        }
    }

    fn sync(&mut self, fd: i32, failed: bool) {
        let point = self.sync_point(fd);
        if self.without.is_some() && self.without == point {
            return;
        }
        match self.handles.get(&fd) {
            None => {}
            Some(Handle::File(node)) => {
                let node = &mut self.nodes[*node];
                if failed {
                    node.dropped.push(node.synced..node.bytes.len());
                } else {
                    node.sync();
                }
            }
            Some(Handle::Dir(_)) if failed => {}
            Some(Handle::Dir(dir)) => {
                let (covered, rest) = self.pending.drain(..).partition(|change| change.is_in(dir));
                self.pending = rest;
                let covered: Vec<NameChange> = covered;
                covered.iter().for_each(|change| change.apply(&mut self.durable));
            }
        }
    }

    /// Which sync of the engine a descriptor's sync is.
    fn sync_point(&mut self, fd: i32) -> Option<SyncPoint> {
        match self.handles.get(&fd)? {
            Handle::Dir(dir) => {
                let is_first = self.touched.insert(dir.clone());
                let renamed = |change: &NameChange| change.sets.len() == 2 && change.is_in(dir);
                SyncPoint::of_dir(dir, is_first, self.pending.iter().any(renamed))
            }
            Handle::File(node) => {
                let name = self.names.iter().find(|(_, entry)| **entry == Entry::File(*node))?.0;
                let is_first = self.touched.insert(name.clone());
                SyncPoint::of_file(name, is_first, &self.nodes[*node])
            }
        }
    }

    /// Makes, in an existing empty directory, what a power loss at this moment leaves. Another image, another outcome.
    pub(crate) fn power_loss(&self, image: u64, root: &Path) -> io::Result<()> {
        let (loss, mut random) = (Loss::of(image), SplitMix64::new(image));
        let mut names = self.durable.clone();
        // Most file systems keep the order of names: one image in two does too.
        let (in_order, first_lost) =
            (coin(&mut random), random.below(self.pending.len() as u64 + 1) as usize);
        for (i, change) in self.pending.iter().enumerate() {
            let happened = match loss {
                Loss::Bytes => true,
                Loss::Everything | Loss::Names => false,
                Loss::Some if in_order => i < first_lost,
                Loss::Some => coin(&mut random),
            };
            if happened {
                change.apply(&mut names);
            }
        }
        let mut made: HashSet<&str> = HashSet::from([""]);
        let mut contents: HashMap<usize, Vec<u8>> = HashMap::new();
        // A directory sorts before what it holds; what a lost directory held is lost with it.
        for (path, entry) in &names {
            if !made.contains(parent(path)) {
                continue;
            }
            let target = root.join(&path[1..]);
            match entry {
                Entry::Dir => {
                    fs::create_dir(&target)?;
                    made.insert(path);
                }
                Entry::File(node) => {
                    let after = || self.nodes[*node].after_power_loss(loss, &mut random);
                    fs::write(&target, contents.entry(*node).or_insert_with(after))?;
                }
            }
        }
        Ok(())
    }
}
