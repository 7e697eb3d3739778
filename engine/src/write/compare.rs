//! Whether a block that is given again is the one that the archive has: what an import compares for each block below the head
//! before it passes over it.
//!
//! Expected cost where they are the same: one lookup among the roots and one hash over what was given. The digest of a
//! block's changes is kept beside its root, so that a block with *fewer* changes is recognised too, which no number of
//! lookups would tell. Only where the digests differ is the difference searched for.

use icecore_segments::step::BlockNumber;

use crate::domain::{DomainId, RootRow, root_key};
use crate::error::Error;
use crate::memtable::Found;
use crate::memtable::key_table::KeyNumber;
use crate::read::read_state::ReadState;
use crate::segment::live::LiveSegment;
use crate::wal::{ChangeRef, digest};
use crate::write::writer::Writer;

/// What the archive holds at the height of a block that is given again: the answer of
/// [`BlockWriter::compare`](crate::BlockWriter::compare).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// A block with the same changes.
    Same,
    /// A block with at least these changes. Whether it has others is not known: it was written before digests were kept, or
    /// it is the floor of a prune, which may have lost deletions.
    Contained,
    /// The height is below the floor of a prune: what was there is forgotten.
    Pruned,
    /// The height is above the head: the block was not committed yet.
    NotCommitted,
    /// No block, although there is one above: heights have a gap here, or begin later.
    NoBlock,
    /// A block with other changes.
    Different(Difference),
}

/// The first change, by domain and key, in which two blocks at one height differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the domain.
    pub domain: String,
    /// The key.
    pub key: Vec<u8>,
    /// What the block that was given does to the key.
    pub given: Written,
    /// What the block that the archive holds does to it.
    pub held: Written,
}

/// What a block does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing: it wrote no version of the key.
    Nothing,
    /// It deletes the key.
    Deletion,
    /// It sets the key to this value.
    Value(Vec<u8>),
}

impl From<Option<Vec<u8>>> for Written {
    fn from(value: Option<Vec<u8>>) -> Self {
        value.map_or(Self::Deletion, Self::Value)
    }
}

impl Writer {
    /// Compares a block given again with the one that the archive has at its height. `changes` are ordered by domain, then key.
    pub(crate) fn compare(
        &self,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<Comparison, Error> {
        let pruned_before = self.lock().manifest().pruned_before;
        let version = self.read_state();
        let Some((first, _)) = version.range().filter(|(_, head)| height <= *head) else {
            return Ok(Comparison::NotCommitted);
        };
        if height < first {
            return Ok(if pruned_before == 0 { Comparison::NoBlock } else { Comparison::Pruned });
        }
        let Some(row) = self.root_row(&version, height)? else { return Ok(Comparison::NoBlock) };
        // Pruning drops deletions that nothing below needs, and unwinding to the floor makes one block of all before it.
        let is_floor = 0 < pruned_before && first == height;
        if row.changes == Some(digest(changes)) {
            return Ok(Comparison::Same);
        }
        for change in changes {
            if let Some(held) = self.held_otherwise(&version, height, change, is_floor)? {
                let given = change.value.map(<[u8]>::to_vec).into();
                return Ok(Comparison::Different(self.difference(change, given, held)?));
            }
        }
        if is_floor || row.changes.is_none() {
            return Ok(Comparison::Contained);
        }
        match self.not_given(&version, height, changes)? {
            Some(difference) => Ok(Comparison::Different(difference)),
            None => Err(Error::DigestMismatch { block: height }),
        }
    }

    fn root_row(&self, version: &ReadState, height: BlockNumber) -> Result<Option<RootRow>, Error> {
        let tally = self.shared.counters.mine();
        let found = version.find(DomainId::ROOTS, &root_key(height), height, tally)?;
        let Some(((_, Some(value)), _)) = found else { return Ok(None) };
        RootRow::decode(&value).map(Some).ok_or(Error::RootMissing { block: height })
    }

    /// What the archive has at `height` for the key of `change`, where that is something else.
    fn held_otherwise(
        &self,
        version: &ReadState,
        height: BlockNumber,
        change: &ChangeRef<'_>,
        is_floor: bool,
    ) -> Result<Option<Written>, Error> {
        let found = version.find(DomainId(change.domain), change.key, height, self.shared.counters.mine())?;
        let found = found.map(|(found, _)| found);
        if is_floor {
            let value = found.and_then(|(_, value)| value);
            return Ok((value.as_deref() != change.value).then(|| value.into()));
        }
        Ok(match found {
            Some((block, value)) if block == height => {
                (value.as_deref() != change.value).then(|| value.into())
            }
            _ => Some(Written::Nothing),
        })
    }

    /// The first version of block `height` whose key is not among `changes`.
    fn not_given(
        &self,
        version: &ReadState,
        height: BlockNumber,
        changes: &[ChangeRef<'_>],
    ) -> Result<Option<Difference>, Error> {
        let is_given = |domain: DomainId, key: &[u8]| {
            changes.binary_search_by(|change| (change.domain, change.key).cmp(&(domain.0, key))).is_ok()
        };
        for (id, _) in self.shared.directory.config.declared_ids() {
            let found = first_of_block(version, id, height, |key| !is_given(id, key))?;
            if let Some((key, (_, value))) = found {
                let change = ChangeRef { domain: id.0, key: &key, value: None };
                return self.difference(&change, Written::Nothing, value.into()).map(Some);
            }
        }
        Ok(None)
    }

    fn difference(&self, change: &ChangeRef<'_>, given: Written, held: Written) -> Result<Difference, Error> {
        let domain = &self.shared.directory.config.domains[usize::from(change.domain)];
        Ok(Difference { domain: domain.name.clone(), key: domain.shown(change.key.to_vec())?, given, held })
    }
}

/// The first key, among those that `wanted` takes, that block `height` wrote or deleted.
fn first_of_block(
    version: &ReadState,
    domain: DomainId,
    height: BlockNumber,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<(Vec<u8>, Found)>, Error> {
    for table in version.memory()? {
        let keys = table.keys(domain);
        let numbers = (0..keys.len() as KeyNumber).filter(|number| keys.has_version(*number, height));
        if let Some(key) = numbers.map(|number| keys.key(number)).filter(|key| wanted(key)).min() {
            let found = keys.get(key, height);
            return Ok(found.map(|found| (key.to_vec(), found)));
        }
    }
    let covers = |blocks: (BlockNumber, BlockNumber)| blocks.0 <= height && height <= blocks.1;
    for segment in version.domain(domain).iter().filter(|segment| covers(segment.blocks)) {
        let kv = segment.kv.get()?;
        let mut cursor = kv.view().cursor();
        cursor.seek_first().map_err(|e| kv.error(e))?;
        while let Some(entry) = cursor.entry() {
            if entry.block == height && wanted(entry.key) {
                return Ok(Some((entry.key.to_vec(), (height, LiveSegment::load(kv, &entry.value)?))));
            }
            cursor.next().map_err(|e| kv.error(e))?;
        }
    }
    Ok(None)
}
