//! The state at one block: lookups, scans and proofs.
//!
//! A view pins the version it was made from: whatever is committed, merged, pruned or unwound meanwhile, it answers the same.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use icecore_hot::{BatchProof, Parallelism, Proof, Root};
use icecore_segments::step::BlockNumber;

use crate::commitment::Commitment;
use crate::error::{Error, ErrorKind};
use crate::handle::{AsDomain, DomainHandle, borrowed, id_of, stored_keys, with_stored_key};
use crate::merkle::leaves::ProofCost;
use crate::merkle::prove::prove;
use crate::read::change_blocks::ChangeBlocks;
use crate::read::entries::Entries;
use crate::read::get::Origin;
use crate::read::history::{Change, History};
use crate::read::pinned::Pinned;
use crate::read::scan_range::Scan;
use crate::read::shared::Shared;

/// Where the answer to a lookup was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In memory: the block is in no segment yet.
    Memory,
    /// In a segment, by its name: `storage.0-64`.
    Segment(String),
}

/// The version that answers a lookup, and where it was found: the answer of [`View::lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// The version: the block that wrote it, and its value or `None` for a deletion.
    pub change: Change,
    /// Where it was found.
    pub source: Source,
}

/// The state at the end of one block: lookups, scans, histories and proofs. Cheap to clone, `Send` and `Sync`.
///
/// A view pins the archive as it was when the view was made: commits, merges, prunes and unwindings after that change nothing it
/// answers, and it outlives the archive. Files that only a view still needs are removed when it is dropped.
#[derive(Clone)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) version: Pinned,
    pub(crate) at: BlockNumber,
}

impl View {
    /// A handle for a domain.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`].
    pub fn domain(&self, name: &str) -> Result<DomainHandle, Error> {
        DomainHandle::new(&self.shared.directory.config, name)
    }

    /// The height that was asked for. In a gap of heights [`View::block`] is lower.
    pub fn height(&self) -> BlockNumber {
        self.at
    }

    /// The block whose state this is: the newest at or below [`View::height`].
    ///
    /// # Cost
    /// One lookup.
    ///
    /// # Errors
    /// [`Error::RootMissing`], and damage of a file that is read.
    pub fn block(&self) -> Result<BlockNumber, Error> {
        self.version.read(|state| state.newest_root(self.at)).map(|(block, _)| block)
    }

    /// The value of a key; `None` when it is absent or deleted.
    ///
    /// # Cost
    /// Free from memory. Otherwise one filter page per segment searched, plus one index and one data page in the segment that
    /// has the key. Filter pages and the upper index levels are usually in memory already.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; damage of a `.kv` or log file that is read. A damaged accessor costs reads
    /// and is no error. In a partial copy [`Error::NotHeld`], unless the key is in a segment that is newer than all that are not held.
    pub fn get<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        with_stored_key(&self.shared.directory.config, domain, key, |domain, key| {
            let tally = self.shared.counters.mine();
            self.version.read(|state| {
                let found = state.find(domain, key, self.at, tally)?;
                Ok(found.and_then(|((_, value), _)| value))
            })
        })
    }

    /// The version of a key that [`View::get`] answers with, deletions included, and where it was found. `None` when the key was never
    /// written at or below this height.
    ///
    /// # Cost
    /// That of [`View::get`].
    ///
    /// # Errors
    /// Those of [`View::get`].
    pub fn lookup<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Option<Lookup>, Error> {
        let (tally, config) = (self.shared.counters.mine(), &self.shared.directory.config);
        with_stored_key(config, domain, key, |domain, key| {
            self.version.read(|state| {
                let found = state.find(domain, key, self.at, tally)?;
                Ok(found.map(|((block, value), origin)| {
                    let source = match origin {
                        Origin::Memory => Source::Memory,
                        Origin::Segment(segment) => Source::Segment(segment.record.stem(config)),
                    };
                    Lookup { change: Change { block, value }, source }
                }))
            })
        })
    }

    /// The values of many keys of one domain, in the order given; `None` for a key that is absent or deleted. Pages are planned
    /// first and fetched together, so that a cold call keeps the disk busy.
    ///
    /// # Cost
    /// The pages of [`View::get`], but about three waits for the disk per segment instead of three per key.
    ///
    /// # Errors
    /// Those of [`View::get`], for any of the keys.
    pub fn multi_get<D: AsDomain + ?Sized, K: AsRef<[u8]>>(
        &self,
        domain: &D,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let config = &self.shared.directory.config;
        let domain = id_of(config, domain)?;
        let declared = &config.domains[domain.index()];
        let stored = keys.iter().map(AsRef::as_ref).map(|key| {
            declared.check_key(key)?;
            Ok(declared.stored(key))
        });
        let keys = stored.collect::<Result<Vec<Cow<'_, [u8]>>, Error>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        in_parts(&keys, |keys| {
            let tally = self.shared.counters.mine();
            self.version.read(|state| state.multi_get(domain, keys, self.at, tally))
        })
    }

    /// The values of many keys of several domains, in the order given; `None` for a key that is absent or deleted.
    ///
    /// # Cost
    /// That of one [`View::multi_get`] per domain.
    ///
    /// # Errors
    /// Those of [`View::get`], for any of the keys.
    pub fn multi_get_across<D: AsDomain, K: AsRef<[u8]>>(
        &self,
        keys: &[(D, K)],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys = stored_keys(&self.shared.directory.config, keys)?;
        in_parts(&borrowed(&keys), |keys| {
            let tally = self.shared.counters.mine();
            self.version.read(|state| state.multi_get_across(keys, self.at, tally))
        })
    }

    /// The keys that `scan` selects with their values, in order, as an iterator. Absent and deleted keys are left out.
    ///
    /// # Cost
    /// That of [`Entries`], as far as it is consumed.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::NoRange`] of a range in a domain [by path](crate::Domain::by_path). Damage, and
    /// [`Error::NotHeld`], are items of the iterator.
    pub fn scan<D: AsDomain + ?Sized>(&self, domain: &D, scan: &Scan) -> Result<Entries, Error> {
        let config = &self.shared.directory.config;
        let id = id_of(config, domain)?;
        Entries::of_domain(self.version.clone(), (id, &config.domains[id.index()]), scan, self.at)
    }

    /// The versions of a key at or below this height, newest first, as an iterator.
    ///
    /// # Cost
    /// That of [`History`], as far as it is consumed.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]. Damage is an item of the iterator.
    pub fn history<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<History, Error> {
        with_stored_key(&self.shared.directory.config, domain, key, |domain, key| {
            let (shared, version) = (Arc::clone(&self.shared), self.version.clone());
            Ok(History::new(shared, version, domain, key, Some(self.at)))
        })
    }

    /// The blocks at or below this height that wrote or deleted a key, newest first, as an iterator. Values are not read, and any
    /// height is a place to begin: the blocks of a key that changes often are found by index, not passed over.
    ///
    /// ```
    /// # use icecore::{Archive, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let archive = Archive::create(dir.path().join("a.ice"), Options::new().domain("accounts"))?;
    /// for height in [3, 5, 8] {
    ///     let mut block = archive.begin(height)?;
    ///     block.put("accounts", b"alice", b"100")?;
    ///     block.commit()?;
    /// }
    /// let mut blocks = Vec::new();
    /// archive.at(7)?.change_blocks("accounts", b"alice")?.read_to_end(&mut blocks)?;
    /// assert_eq!(blocks, [5, 3]);
    /// # Ok::<(), icecore::Error>(())
    /// ```
    ///
    /// # Cost
    /// That of [`ChangeBlocks`], as far as it is consumed.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]. Damage is an item of the iterator.
    pub fn change_blocks<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<ChangeBlocks, Error> {
        with_stored_key(&self.shared.directory.config, domain, key, |domain, key| {
            let (shared, version) = (Arc::clone(&self.shared), self.version.clone());
            Ok(ChangeBlocks::new(shared, version.state(), domain, key, self.at))
        })
    }

    /// The newest block at or below this height that wrote or deleted a key; `None` when none did. Its value is not read. *Was the key
    /// changed at block n?* is `archive.at(n)?.last_change(domain, key)? == Some(n)`.
    ///
    /// # Cost
    /// That of [`View::get`], less what a large value takes.
    ///
    /// # Errors
    /// Those of [`View::get`].
    pub fn last_change<D: AsDomain + ?Sized>(
        &self,
        domain: &D,
        key: &[u8],
    ) -> Result<Option<BlockNumber>, Error> {
        with_stored_key(&self.shared.directory.config, domain, key, |domain, key| {
            let tally = self.shared.counters.mine();
            let found = self.version.read(|state| state.newest_change(domain, key, self.at, tally))?;
            Ok(found.map(|written| written.block))
        })
    }

    /// The root of this state, as it was recorded when the block was committed.
    ///
    /// # Cost
    /// One lookup.
    ///
    /// # Errors
    /// [`Error::Commitment`] in an archive without one; [`Error::RootMissing`], and damage of a file that is read.
    pub fn root(&self) -> Result<Root, Error> {
        let commitment = self.shared.directory.config.commitment;
        if commitment == Commitment::None {
            return Err(Error::Commitment { asked: "a root", commitment });
        }
        self.version.read(|state| state.root(self.at))
    }

    /// Proves to whoever knows [`View::root`] which value a key has in this state, or that it has none.
    ///
    /// # Cost
    /// Of domains [by path](crate::Domain::by_path), at every block some hundred lookups of nodes, together, and a range read of at most some
    /// thousand leaves: a state of up to 8,192 keys is read whole. Of domains by key, at a snapshot a few dozen nodes and leaves, read in
    /// one range per row of the tree. Where the block has neither (with [`Options::keep_rows`](crate::Options::keep_rows) off, and for blocks
    /// in the log beside a writer in another process) the tree is rebuilt: the whole state is read once, twice for an absent key in an archive without snapshots, and takes about 120
    /// bytes of memory per key meanwhile. [`View::prove_counted`] tells what it took.
    ///
    /// # Errors
    /// [`Error::Commitment`] in an archive with another commitment than [`Commitment::Icecore`]; [`Error::UnknownDomain`]; [`Error::KeyLength`]; [`Error::RootMismatch`], [`Error::SnapshotDamaged`] or [`Error::NodeDamaged`] when what was read
    /// does not have the recorded root; damage of a file that is read; [`Error::NotHeld`].
    pub fn prove<D: AsDomain + ?Sized>(&self, domain: &D, key: &[u8]) -> Result<Proof, Error> {
        let (mut batch, _) = self.prove_counted(&[(domain, key)], Parallelism::Off)?;
        Ok(batch.proofs.pop().expect("one key was asked for"))
    }

    /// Proves many keys of any domains in this state, in the order given.
    ///
    /// # Cost
    /// By path and at a snapshot the rows of the tree are read from the root down, each for all keys at once: their pages are requested
    /// together, and leaves or nodes split between the threads that `parallelism` allows. At any other block the tree is rebuilt once, by
    /// as many threads.
    ///
    /// # Errors
    /// Those of [`View::prove`], for any of the keys.
    pub fn prove_batch<D: AsDomain, K: AsRef<[u8]>>(
        &self,
        keys: &[(D, K)],
        parallelism: Parallelism,
    ) -> Result<BatchProof, Error> {
        self.prove_counted(keys, parallelism).map(|(batch, _)| batch)
    }

    /// Proves many keys like [`View::prove_batch`], and tells what it took.
    ///
    /// # Errors
    /// Those of [`View::prove`], for any of the keys.
    pub fn prove_counted<D: AsDomain, K: AsRef<[u8]>>(
        &self,
        keys: &[(D, K)],
        parallelism: Parallelism,
    ) -> Result<(BatchProof, ProofCost), Error> {
        let Shared { directory, counters, .. } = &*self.shared;
        let commitment = directory.config.commitment;
        if commitment != Commitment::Icecore {
            return Err(Error::Commitment { asked: "a proof of ICS23", commitment });
        }
        let keys = stored_keys(&directory.config, keys)?;
        let keys = borrowed(&keys);
        self.version.read(|state| prove(state, &directory.config, counters, self.at, &keys, parallelism))
    }
}

/// Asks for many keys: together, or in parts where a cache has no room for the pages of all.
fn in_parts<K>(
    keys: &[K],
    get: impl Fn(&[K]) -> Result<Vec<Option<Vec<u8>>>, Error>,
) -> Result<Vec<Option<Vec<u8>>>, Error> {
    let (mut answers, mut len) = (Vec::with_capacity(keys.len()), keys.len());
    while answers.len() < keys.len() {
        let part = &keys[answers.len()..keys.len().min(answers.len() + len)];
        match get(part) {
            Err(error) if error.kind() == ErrorKind::NoSpace && part.len() > 1 => {
                len = part.len().div_ceil(2);
            }
            got => answers.extend(got?),
        }
    }
    Ok(answers)
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
    shareable::<ChangeBlocks>();
};
