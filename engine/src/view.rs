//! The state at one block: lookups, scans and proofs.
//!
//! A view pins the version it was made from: whatever is committed, merged, pruned or unwound meanwhile, it answers the same.

use std::fmt;
use std::sync::Arc;

use icecore_hot::{BatchProof, Parallelism, Proof, Root};
use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::handle::{AsDomain, id_for_keys, id_of, known_keys};
use crate::merkle::leaves::ProofCost;
use crate::merkle::prove::prove;
use crate::read::entries::Entries;
use crate::read::get::Origin;
use crate::read::history::{Change, History};
use crate::read::read_state::ReadState;
use crate::read::scan::Scan;
use crate::read::shared::Shared;

/// Where an answer came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The versions in memory.
    Memory,
    /// A segment, named as in the directory without its extension: `storage.0-64`.
    Segment(String),
}

/// The answer to a lookup, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// The version that answers.
    pub change: Change,
    /// Where it was found.
    pub source: Source,
}

/// The state at the end of one block. Pins what it reads from; drop it to let obsolete files go.
#[derive(Clone)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) version: Arc<ReadState>,
    pub(crate) at: BlockNumber,
}

impl View {
    /// The height asked for.
    pub fn height(&self) -> BlockNumber {
        self.at
    }

    /// The block that answers: the newest at or below [`View::height`].
    pub fn block(&self) -> Result<BlockNumber, Error> {
        self.version.newest_root(self.at).map(|(block, _)| block)
    }

    /// The value of a key, `None` when it is absent or deleted.
    ///
    /// # Cost
    /// From memory none; else a filter page per segment down to the one that has the key, there an index page and a data page.
    pub fn get<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let domain = id_for_keys(&self.shared.directory.config, domain, [key])?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.and_then(|((_, value), _)| value))
    }

    /// The version that answers for a key, deletions included, and where it was found.
    pub fn lookup<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Option<Lookup>, Error> {
        let domain = id_for_keys(&self.shared.directory.config, domain, [key])?;
        let found = self.version.find(domain, key, self.at, self.shared.counters.mine())?;
        Ok(found.map(|((block, value), origin)| {
            let source = match origin {
                Origin::Memory => Source::Memory,
                Origin::Segment(segment) => {
                    Source::Segment(segment.record.stem(&self.shared.directory.config))
                }
            };
            Lookup { change: Change { block, value }, source }
        }))
    }

    /// The values of many keys, in the order given. Pages are planned first and fetched together, so that a cold call
    /// keeps the disk busy.
    ///
    /// # Cost
    /// The pages of [`View::get`], waited for about three times per segment instead of three times per key.
    pub fn multi_get<D: AsDomain + ?Sized>(
        &self,
        domain: &D,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let domain = id_for_keys(&self.shared.directory.config, domain, keys.iter().copied())?;
        self.version.multi_get(domain, keys, self.at, self.shared.counters.mine())
    }

    /// The same for keys of several domains.
    ///
    /// # Cost
    /// Each domain is planned by itself.
    pub fn multi_get_across<D: AsDomain>(&self, keys: &[(D, &[u8])]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys = known_keys(&self.shared.directory.config, keys)?;
        self.version.multi_get_across(&keys, self.at, self.shared.counters.mine())
    }

    /// The keys of a range with their values, in order.
    pub fn scan<D: AsDomain + ?Sized>(&self, domain: &D, scan: &Scan) -> Result<Entries, Error> {
        let domain = id_of(&self.shared.directory.config, domain)?;
        Ok(Entries::new(Arc::clone(&self.version), domain, scan, self.at))
    }

    /// The versions of a key at or below this height, newest first.
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        let domain = id_for_keys(&self.shared.directory.config, domain, [key])?;
        let (shared, version) = (Arc::clone(&self.shared), Arc::clone(&self.version));
        Ok(History::new(shared, version, domain, key, Some(self.at)))
    }

    /// The root of this state.
    pub fn root(&self) -> Result<Root, Error> {
        self.version.root(self.at)
    }

    /// Proves the value of a key at this block, or its absence, against [`View::root`].
    ///
    /// # Cost
    /// At a snapshot a few dozen nodes and leaves, found in one range each row of the tree. At any other block the tree is
    /// rebuilt: the state at the block is read once, and about 120 bytes of memory per key are taken for the time; for an
    /// absent key the state is read twice where there are no snapshots. [`View::prove_counted`] tells.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when what was read does not have the recorded root.
    pub fn prove<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Proof, Error> {
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
    pub fn prove_batch<D: AsDomain>(
        &self,
        keys: &[(D, &[u8])],
        parallelism: Parallelism,
    ) -> Result<BatchProof, Error> {
        self.prove_counted(keys, parallelism).map(|(batch, _)| batch)
    }

    /// The same, and what it took.
    ///
    /// # Errors
    /// As [`View::prove`].
    pub fn prove_counted<D: AsDomain>(
        &self,
        keys: &[(D, &[u8])],
        parallelism: Parallelism,
    ) -> Result<(BatchProof, ProofCost), Error> {
        let Shared { directory, counters, .. } = &*self.shared;
        let keys = known_keys(&directory.config, keys)?;
        prove(&self.version, &directory.config, counters, self.at, &keys, parallelism)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.shared.directory.path;
        f.debug_struct("View").field("path", path).field("height", &self.at).finish_non_exhaustive()
    }
}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<View>();
    shareable::<Entries>();
    shareable::<History>();
};
