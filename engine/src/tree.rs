//! The Merkle tree of the latest state, and proofs at any block.
//!
//! The tree lives beside the writer and is built from the state when the first block is begun; the root it gives must be
//! the one recorded at the head. A proof at another block is rebuilt from the state at that block.

use icecore_hot::{Entry, HotTree, KeyHash, Loader, PathProof, Proof, Root};
use icecore_segments::step::BlockNumber;

use crate::core::{Core, State};
use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::reader::View;
use crate::scan::{Entries, Scan};
use crate::version::Version;

impl Core {
    /// Builds the tree from the state at the head, if it is not there.
    ///
    /// # Cost
    /// Reads the latest version of every key.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when the state does not have the root that was recorded for it: writing on would spread
    /// the damage.
    pub(crate) fn ensure_tree(&self, state: &mut State, version: &Version) -> Result<(), Error> {
        if state.tree.is_none() {
            let mut options = icecore_hot::Options::default();
            options.parallelism = self.options.parallelism;
            let Some(head) = version.head else {
                state.tree = Some(HotTree::new(options));
                return Ok(());
            };
            let tree =
                version.build_tree(&self.shared.directory.config.domains, head, options, |_, _, _| {})?;
            version.check_root(head, tree.root())?;
            state.tree = Some(tree);
        }
        Ok(())
    }
}

impl Version {
    /// Builds the tree of the state at `at`. `seen` is shown every key with its value.
    pub(crate) fn build_tree(
        &self,
        domains: &[Domain],
        at: BlockNumber,
        options: icecore_hot::Options,
        mut seen: impl FnMut(&str, &[u8], &[u8]),
    ) -> Result<HotTree, Error> {
        let mut loader = Loader::new(options);
        for (index, domain) in domains.iter().enumerate().skip(1) {
            for entry in Entries::new(self, DomainId(index as u16), &Scan::all(), at)? {
                let (key, value) = entry?;
                seen(&domain.name, &key, &value);
                loader.push(&domain.name, &key, &value);
            }
        }
        Ok(loader.finish())
    }

    /// Compares a root that the state gave with the one that was recorded.
    pub(crate) fn check_root(&self, at: BlockNumber, found: Root) -> Result<(), Error> {
        let (block, expected) = self.newest_root(at)?;
        if expected == found {
            return Ok(());
        }
        Err(Error::RootMismatch { block, expected: expected.to_string(), found: found.to_string() })
    }
}

impl View {
    /// Proves the value of a key at this block, or its absence, against [`View::root`].
    ///
    /// # Cost
    /// The tree of this block is rebuilt: the state at the block is read once, twice for an absent key, and about
    /// 120 bytes of memory per key are taken for the time.
    ///
    /// # Errors
    /// [`Error::RootMismatch`] when the state at the block does not have the recorded root.
    pub fn prove(&self, domain: &str, key: &[u8]) -> Result<Proof, Error> {
        self.shared.directory.domain(domain)?;
        let domains = &self.shared.directory.config.domains;
        let options = icecore_hot::Options::default();
        let tree = self.version.build_tree(domains, self.at, options, |_, _, _| {})?;
        self.version.check_root(self.at, tree.root())?;
        let path = tree.prove(&KeyHash::of(domain, key));
        drop(tree);
        self.complete(path, domain, key)
    }

    /// Adds to a path the keys and values of the leaves that it shows.
    fn complete(&self, path: PathProof, domain: &str, key: &[u8]) -> Result<Proof, Error> {
        let mut leaves = Vec::new();
        if let PathProof::Present(_) = path {
            let value = self.get(domain, key)?.unwrap_or_default();
            leaves.push((
                KeyHash::of(domain, key),
                Entry { domain: domain.to_owned(), key: key.to_vec(), value },
            ));
        } else {
            let wanted: Vec<KeyHash> = path.neighbours().copied().collect();
            self.find_leaves(&wanted, &mut leaves)?;
        }
        let take =
            |wanted: &KeyHash| leaves.iter().find(|(hash, _)| hash == wanted).map(|(_, entry)| entry.clone());
        Ok(path.complete(domain, key, take).expect("the state that made the tree has its leaves"))
    }

    /// Looks through the state for the keys with these hashes.
    fn find_leaves(&self, wanted: &[KeyHash], found: &mut Vec<(KeyHash, Entry)>) -> Result<(), Error> {
        for (index, domain) in self.shared.directory.config.domains.iter().enumerate().skip(1) {
            for entry in Entries::new(&self.version, DomainId(index as u16), &Scan::all(), self.at)? {
                let (key, value) = entry?;
                let hash = KeyHash::of(&domain.name, &key);
                if wanted.contains(&hash) {
                    found.push((hash, Entry { domain: domain.name.clone(), key, value }));
                }
                if found.len() == wanted.len() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
