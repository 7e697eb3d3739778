//! Proofs at any block.
//!
//! A proof is a path in the tree of its block, with the keys and values of the leaves that it shows. Where the path comes
//! from is the one thing that differs: at a snapshot from the [`rows`](crate::merkle::rows) that were kept, at any other block from
//! the tree, rebuilt from the state at the block. Both give the same bytes, and both are compared with the recorded root.

use icecore_hot::{BatchProof, Entry, KeyHash, Parallelism, PathProof, Proof};

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, decode_owner};
use crate::merkle::rows::Rows;
use crate::read::scan::{Entries, Scan};
use crate::reader::View;

/// Fewer keys than this are proved by the calling thread: starting others takes longer.
const PARALLEL_KEYS_MIN: usize = 2048;

/// What proofs were made from, and what that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofCost {
    /// Where the paths came from.
    pub source: ProofSource,
    /// Ranges and keys that were looked up.
    pub reads: u64,
    /// Nodes, leaf entries and values that were read.
    pub entries: u64,
}

/// Where the paths of proofs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofSource {
    /// From the nodes that were kept at the block: a few reads a proof.
    Snapshot,
    /// From the tree, rebuilt from the whole state at the block.
    State,
}

/// The leaves whose entries are known, by key hash.
#[derive(Default)]
pub(crate) struct Leaves(Vec<(KeyHash, Entry)>);

impl Leaves {
    /// Adds an entry; [`order`](Self::order) must follow before the next question.
    pub(crate) fn push(&mut self, hash: KeyHash, entry: Entry) {
        self.0.push((hash, entry));
    }

    pub(crate) fn order(&mut self) {
        self.0.sort_by_key(|(hash, _)| *hash);
        self.0.dedup_by(|later, first| later.0 == first.0);
    }

    pub(crate) fn get(&self, hash: &KeyHash) -> Option<&Entry> {
        self.0.binary_search_by(|(known, _)| known.cmp(hash)).ok().map(|at| &self.0[at].1)
    }

    /// Ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(KeyHash, Entry)> {
        self.0.iter()
    }
}

/// A key to prove.
struct Asked<'k> {
    id: DomainId,
    domain: &'k str,
    key: &'k [u8],
    hash: KeyHash,
}

impl View {
    /// Proves the value of a key at this block, or its absence, against [`View::root`].
    ///
    /// # Cost
    /// At a snapshot a few dozen nodes and leaves, found in one range each row of the tree. At any other block the tree is
    /// rebuilt: the state at the block is read once, and about 120 bytes of memory per key are taken for the time; for an
    /// absent key the state is read twice where there are no snapshots. [`View::prove_counted`] tells.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when what was read does not have the recorded root.
    pub fn prove(&self, domain: &str, key: &[u8]) -> Result<Proof, Error> {
        let (mut batch, _) = self.prove_counted(&[(domain, key)], Parallelism::Off)?;
        Ok(batch.proofs.pop().expect("one key was asked for"))
    }

    /// Proves many keys of any domains at this block, in the order asked.
    ///
    /// # Cost
    /// At a snapshot the rows are read from the root down, each for all keys at once, its pages asked for together and split
    /// between the threads that `parallelism` allows. At any other block the tree is rebuilt once, by as many.
    ///
    /// # Errors
    /// As [`View::prove`].
    pub fn prove_batch(&self, keys: &[(&str, &[u8])], parallelism: Parallelism) -> Result<BatchProof, Error> {
        self.prove_counted(keys, parallelism).map(|(batch, _)| batch)
    }

    /// The same, and what it took.
    ///
    /// # Errors
    /// As [`View::prove`].
    pub fn prove_counted(
        &self,
        keys: &[(&str, &[u8])],
        parallelism: Parallelism,
    ) -> Result<(BatchProof, ProofCost), Error> {
        let directory = &self.shared.directory;
        let asked = keys.iter().map(|&(domain, key)| {
            Ok(Asked { id: directory.domain_of(domain, [key])?, domain, key, hash: KeyHash::of(domain, key) })
        });
        let asked: Vec<Asked<'_>> = asked.collect::<Result<_, Error>>()?;
        let counters = &self.shared.counters;
        let workers = if keys.len() < PARALLEL_KEYS_MIN { 1 } else { parallelism.threads() };
        let rows = Rows::of(&self.version, &directory.config, counters, self.at, workers)?;
        let mut leaves = Leaves::default();
        let (paths, cost) = match rows {
            Some(rows) => self.paths_of_rows(&rows, &asked, &mut leaves)?,
            None => self.paths_of_state(&asked, &mut leaves, parallelism)?,
        };
        let proofs = paths.into_iter().zip(&asked).map(|(path, asked)| {
            let proof = path.complete(asked.domain, asked.key, |hash| leaves.get(hash).cloned());
            proof.map_err(|_| Error::SnapshotDamaged { block: self.at })
        });
        Ok((BatchProof { proofs: proofs.collect::<Result<_, _>>()? }, cost))
    }

    fn paths_of_rows(
        &self,
        rows: &Rows<'_>,
        asked: &[Asked<'_>],
        leaves: &mut Leaves,
    ) -> Result<(Vec<PathProof>, ProofCost), Error> {
        let mut cost = ProofCost { source: ProofSource::Snapshot, reads: 1, entries: 1 };
        let keys: Vec<_> = asked.iter().map(|asked| (asked.id, asked.key)).collect();
        let mut targets = Vec::with_capacity(asked.len());
        for (asked, value) in asked.iter().zip(rows.values(&keys, &mut cost)?) {
            if let Some(value) = value {
                targets.push(asked.hash);
                leaves.push(asked.hash, asked.entry(value));
            } else {
                targets.extend(rows.neighbours(&asked.hash, &mut cost)?);
            }
        }
        leaves.order();
        targets.sort_unstable();
        targets.dedup();
        let tree = rows.open(&targets, leaves, &mut cost)?;
        let hashes: Vec<KeyHash> = asked.iter().map(|asked| asked.hash).collect();
        let (root, paths) = tree.prove(&hashes);
        self.version.check_root(self.at, root)?;
        let paths: Option<Vec<_>> = paths.into_iter().collect();
        Ok((paths.ok_or(Error::SnapshotDamaged { block: self.at })?, cost))
    }

    fn paths_of_state(
        &self,
        asked: &[Asked<'_>],
        leaves: &mut Leaves,
        parallelism: Parallelism,
    ) -> Result<(Vec<PathProof>, ProofCost), Error> {
        let config = &self.shared.directory.config;
        let mut options = icecore_hot::Options::default();
        options.parallelism = parallelism;
        let tree = self.version.build_tree(config, self.at, None, options, &())?.tree;
        self.version.check_root(self.at, tree.root())?;
        let mut cost = ProofCost { source: ProofSource::State, reads: 1, entries: tree.len() };
        let paths: Vec<PathProof> = asked.iter().map(|asked| tree.prove(&asked.hash)).collect();
        let mut wanted: Vec<KeyHash> = paths.iter().flat_map(PathProof::neighbours).copied().collect();
        for (asked, path) in asked.iter().zip(&paths) {
            if let PathProof::Present(_) = path {
                // The tree is that of this state, so it has the key only where the state does.
                let value = self.get(asked.domain, asked.key)?;
                let value = value.ok_or(Error::SnapshotDamaged { block: self.at })?;
                leaves.push(asked.hash, asked.entry(value));
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        cost.reads += (asked.len() + wanted.len()) as u64;
        cost.entries += wanted.len() as u64;
        if !self.find_owners(&wanted, leaves)? {
            cost.entries += self.find_leaves(&wanted, leaves)?;
        }
        leaves.order();
        Ok((paths, cost))
    }

    /// Looks the keys with these hashes up among the nodes; `false` where not all are there: without snapshots, or at a
    /// block whose nodes were not made yet.
    fn find_owners(&self, wanted: &[KeyHash], leaves: &mut Leaves) -> Result<bool, Error> {
        let config = &self.shared.directory.config;
        let Some(nodes) = config.nodes() else { return Ok(wanted.is_empty()) };
        for hash in wanted {
            let leaf = NodeKey::leaf(hash);
            let found = self.version.find(nodes, leaf.as_bytes(), self.at, self.shared.counters.mine())?;
            let Some(owner) = found.and_then(|((_, owner), _)| owner) else { return Ok(false) };
            let (id, key) = decode_owner(&owner).ok_or(Error::SnapshotDamaged { block: self.at })?;
            let domain = config.domains.get(id.index()).filter(|domain| domain.check_key(key).is_ok());
            let Some(domain) = domain else { return Ok(false) };
            let Some(value) = self.get(&domain.name, key)? else { return Ok(false) };
            leaves.push(*hash, Entry { domain: domain.name.clone(), key: key.to_vec(), value });
        }
        Ok(true)
    }

    /// Looks through the state for the keys with these hashes, which ascend. Returns the number of keys it looked at.
    fn find_leaves(&self, wanted: &[KeyHash], leaves: &mut Leaves) -> Result<u64, Error> {
        let (mut left, mut seen) = (wanted.len(), 0);
        for (id, domain) in self.shared.directory.config.declared_ids() {
            for entry in Entries::new(&self.version, id, &Scan::all(), self.at)? {
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

impl Asked<'_> {
    fn entry(&self, value: Vec<u8>) -> Entry {
        Entry { domain: self.domain.to_owned(), key: self.key.to_vec(), value }
    }
}
