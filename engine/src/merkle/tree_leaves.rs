//! The leaves of Icecore's tree at a block, read by ranges of their paths where domains are kept by path: for proofs from
//! [rows](crate::merkle::tree_rows), and for the neighbours that a proof of absence shows.
//!
//! A stored key begins with the first bytes of its path, so what is below a position of a row is one range of each domain. Keys whose paths
//! begin with the same bytes are ordered by themselves there, and put into the order of their paths when they are hashed.

use icecore_hot::{KeyHash, LeafHasher};
use icecore_segments::KEY_LEN_MAX;
use icecore_segments::step::BlockNumber;

use crate::commitment::PATH_HEAD_LEN;
use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::memtable::Direction;
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::leaves::Leaves;
use crate::merkle::parallel::in_runs;
use crate::merkle::prefetch;
use crate::merkle::row_depths::RowDepth;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;

const _: () =
    assert!(RowDepth::MAX as usize <= 2 * PATH_HEAD_LEN, "a position of a row is a range of stored keys");

/// The state at a block of an archive whose domains are by path.
#[derive(Clone, Copy)]
pub(crate) struct TreeLeaves<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) config: &'v Config,
    pub(crate) at: BlockNumber,
}

/// A leaf without its value.
pub(crate) struct TreeLeaf {
    pub(crate) path: KeyHash,
    /// The leaf hash.
    pub(crate) hash: [u8; 32],
    pub(crate) domain: DomainId,
    /// As it is stored.
    pub(crate) key: Vec<u8>,
}

impl TreeLeaves<'_> {
    /// The leaves of ranges that begin and end where the first bytes of paths do, and are in no other: ascending.
    ///
    /// # Errors
    /// [`Error::Damaged`] of a key that is stored under another path; damage of a file.
    pub(crate) fn read(&self, ranges: &[LeafRange], workers: usize) -> Result<Vec<TreeLeaf>, Error> {
        let domains: Vec<(DomainId, &Domain)> = self.config.declared_ids().collect();
        let scans: Vec<Scan> = ranges.iter().map(scan_of).collect();
        for (id, _) in &domains {
            prefetch::request(self.version, *id, &scans, self.at)?;
        }
        let parts: Vec<_> =
            domains.iter().flat_map(|domain| ranges.iter().map(|range| (*domain, range))).collect();
        let mut leaves = in_runs(workers, &parts, |parts| {
            let mut leaves = Vec::new();
            for (domain, range) in parts {
                self.read_range(*domain, range, &mut leaves)?;
            }
            Ok(leaves)
        })?;
        leaves.sort_unstable_by_key(|leaf| leaf.path);
        Ok(leaves)
    }

    fn read_range(
        &self,
        (id, domain): (DomainId, &Domain),
        range: &LeafRange,
        leaves: &mut Vec<TreeLeaf>,
    ) -> Result<(), Error> {
        let (mut hasher, mut keys) = (LeafHasher::new(&icecore_hot::Options::default()), Vec::new());
        for entry in MergeScan::new(self.version, id, &scan_of(range), self.at)? {
            let (key, value) = entry?;
            let shown = domain.order.shown(&key).ok_or_else(|| domain.damaged_key())?;
            hasher.push(&domain.name, shown, &value);
            keys.push(key);
        }
        for (key, (path, hash)) in keys.into_iter().zip(hasher.take()) {
            if !key.starts_with(&path.0[..PATH_HEAD_LEN]) {
                return Err(domain.damaged_key());
            }
            leaves.push(TreeLeaf { path, hash, domain: id, key });
        }
        Ok(())
    }

    /// The leaf next to a path that has none, before or after it; `None` where there is none on that side.
    pub(crate) fn neighbour(&self, path: &KeyHash, side: Direction) -> Result<Option<KeyHash>, Error> {
        let mut nearest: Option<KeyHash> = None;
        let is_nearer = |one: &KeyHash, other: &KeyHash| match side {
            Direction::Forward => one < other,
            Direction::Backward => one > other,
        };
        for (id, domain) in self.config.declared_ids() {
            let scan = match side {
                Direction::Forward => Scan::all().from(head_of(path)),
                Direction::Backward => Scan::all().to_included(&last_with(head_of(path))).backward(),
            };
            for entry in MergeScan::new(self.version, id, &scan, self.at)? {
                let found = path_of(domain, &entry?.0)?;
                // Of keys with the same first bytes of their paths any may be the next.
                if nearest.is_some_and(|nearest| is_nearer(&head(&nearest), &head(&found))) {
                    break;
                }
                let is_on_side = is_nearer(path, &found);
                if is_on_side && nearest.is_none_or(|nearest| is_nearer(&found, &nearest)) {
                    nearest = Some(found);
                }
            }
        }
        Ok(nearest)
    }

    /// Adds the leaves with these paths, which are there.
    pub(crate) fn find(&self, paths: &[KeyHash], leaves: &mut Leaves) -> Result<(), Error> {
        for path in paths {
            let scan = Scan::all().from(head_of(path)).to_included(&last_with(head_of(path)));
            for (id, domain) in self.config.declared_ids() {
                for entry in MergeScan::new(self.version, id, &scan, self.at)? {
                    let (key, value) = entry?;
                    if path_of(domain, &key)? == *path {
                        let (domain, key) = (domain.name.clone(), domain.shown(key)?);
                        leaves.push(*path, icecore_hot::Entry { domain, key, value });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The path of a stored key.
///
/// # Errors
/// [`Error::Damaged`] where it is stored under another one.
fn path_of(domain: &Domain, stored: &[u8]) -> Result<KeyHash, Error> {
    let shown = domain.order.shown(stored).ok_or_else(|| domain.damaged_key())?;
    let path = KeyHash::of(&domain.name, shown);
    if stored.starts_with(head_of(&path)) { Ok(path) } else { Err(domain.damaged_key()) }
}

/// What stored keys with a path begin with.
fn head_of(path: &KeyHash) -> &[u8] {
    &path.0[..PATH_HEAD_LEN]
}

/// The same as the first path with it.
fn head(path: &KeyHash) -> KeyHash {
    let mut head = [0; 32];
    head[..PATH_HEAD_LEN].copy_from_slice(head_of(path));
    KeyHash(head)
}

/// The last key there can be among those that begin with these bytes.
fn last_with(head: &[u8]) -> Vec<u8> {
    let mut last = head.to_vec();
    last.resize(KEY_LEN_MAX, 0xFF);
    last
}

/// The stored keys of a range.
fn scan_of(range: &LeafRange) -> Scan {
    Scan::all().from(&range.first[..PATH_HEAD_LEN]).to_included(&last_with(&range.last[..PATH_HEAD_LEN]))
}
