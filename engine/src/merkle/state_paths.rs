//! The paths of a proof at a block that has neither snapshot nor rows: the tree is built from the whole state at the block.

use icecore_hot::{Entry, KeyHash, Parallelism, PathProof};
use icecore_segments::step::BlockNumber;

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, decode_preimage};
use crate::merkle::build::build_tree;
use crate::merkle::leaves::{Asked, Leaves, Paths, ProofCost, ProofSource};
use crate::merkle::tree_leaves::TreeLeaves;
use crate::options::Config;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::stats::Counters;

/// The state at a block.
pub(crate) struct StateAt<'v> {
    pub(crate) version: &'v ReadState,
    pub(crate) config: &'v Config,
    pub(crate) counters: &'v Counters,
    pub(crate) at: BlockNumber,
}

impl StateAt<'_> {
    fn get(&self, domain: DomainId, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let found = self.version.find(domain, key, self.at, self.counters.mine())?;
        Ok(found.and_then(|((_, value), _)| value))
    }

    /// The paths of keys that are there and of keys that are not.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when the state does not have the recorded root.
    pub(crate) fn paths(&self, asked: &[Asked<'_>], parallelism: Parallelism) -> Result<Paths, Error> {
        let mut leaves = Leaves::default();
        let mut options = icecore_hot::Options::default();
        options.parallelism = parallelism;
        let tree = build_tree(self.version, self.config, self.at, None, options, &())?.tree;
        self.version.check_root(self.at, tree.root())?;
        let mut cost = ProofCost { source: ProofSource::State, reads: 1, entries: tree.len() };
        let paths: Vec<PathProof> = asked.iter().map(|asked| tree.prove(&asked.hash)).collect();
        let mut wanted: Vec<KeyHash> = paths.iter().flat_map(PathProof::neighbours).copied().collect();
        for (asked, path) in asked.iter().zip(&paths) {
            if let PathProof::Present(_) = path {
                // The tree is that of this state, so it has the key only where the state does.
                let value = self.get(asked.id, asked.stored)?;
                let value = value.ok_or(Error::SnapshotDamaged { block: self.at })?;
                leaves.push(asked.hash, asked.entry(value));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        cost.reads += (asked.len() + wanted.len()) as u64;
        cost.entries += wanted.len() as u64;
        if self.config.is_by_path() {
            let &Self { version, config, at, .. } = self;
            TreeLeaves { version, config, at }.find(&wanted, &mut leaves)?;
        } else if !self.find_preimages(&wanted, &mut leaves)? {
            cost.entries += self.find_leaves(&wanted, &mut leaves)?;
        }
        leaves.order();
        Ok(Paths { of_keys: paths, leaves, cost })
    }

    /// Looks the keys with these hashes up among the nodes; `false` where not all are there: without snapshots, or at a
    /// block whose nodes were not made yet.
    fn find_preimages(&self, wanted: &[KeyHash], leaves: &mut Leaves) -> Result<bool, Error> {
        let Some(nodes) = self.config.nodes() else { return Ok(wanted.is_empty()) };
        for hash in wanted {
            let leaf = NodeKey::leaf(hash);
            let found = self.version.find(nodes, leaf.as_bytes(), self.at, self.counters.mine())?;
            let Some(preimage) = found.and_then(|((_, preimage), _)| preimage) else { return Ok(false) };
            let (id, key) = decode_preimage(&preimage).ok_or(Error::SnapshotDamaged { block: self.at })?;
            let domain = self.config.domains.get(id.index()).filter(|domain| domain.check_key(key).is_ok());
            let Some(domain) = domain else { return Ok(false) };
            let Some(value) = self.get(id, key)? else { return Ok(false) };
            leaves.push(*hash, Entry { domain: domain.name.clone(), key: key.to_vec(), value });
        }
        Ok(true)
    }

    /// Looks through the state for the keys with these hashes, which ascend. Returns the number of keys it looked at.
    fn find_leaves(&self, wanted: &[KeyHash], leaves: &mut Leaves) -> Result<u64, Error> {
        let (mut left, mut seen) = (wanted.len(), 0);
        for (id, domain) in self.config.declared_ids() {
            for entry in MergeScan::new(self.version, id, &Scan::all(), self.at)? {
                let (key, value) = entry?;
                seen += 1;
                let hash = KeyHash::of(&domain.name, &key);
                if wanted.binary_search(&hash).is_ok() {
                    leaves.push(hash, Entry { domain: domain.name.clone(), key, value });
                    left -= 1;
                }
                if left == 0 {
                    return Ok(seen);
                }
            }
        }
        Ok(seen)
    }
}
