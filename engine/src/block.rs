//! A block on its way in: changes are gathered, then the tree gives the root, the log makes it durable, the tables
//! make it readable.

use std::ops::Range;

use icecore_hot::Root;
use icecore_segments::step::{BlockNumber, Step};
use icecore_segments::{KEY_LEN_MAX, VALUE_LEN_MAX};

use crate::domain::DomainId;
use crate::error::Error;
use crate::memtable::node_key::NodeVersion;
use crate::memtable::step_table::{StepTable, add_block};
use crate::options::Durability;
use crate::read::read_state::Version;
use crate::wal::{BODY_LEN_MAX, ChangeRef, RecordRef};
use crate::write::writer::{Core, State};

/// One change: ranges of the writer's byte arena.
#[derive(Clone)]
struct Pending {
    domain: DomainId,
    key: Range<usize>,
    value: Option<Range<usize>>,
}

/// The block being written. Dropping it without [`BlockWriter::commit`] leaves no trace.
pub struct BlockWriter<'a> {
    pub(crate) core: &'a Core,
    height: BlockNumber,
    bytes: Vec<u8>,
    changes: Vec<Pending>,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(core: &'a Core, height: BlockNumber) -> Self {
        Self { core, height, bytes: Vec::new(), changes: Vec::new() }
    }

    /// The height of the block.
    pub fn height(&self) -> BlockNumber {
        self.height
    }

    /// Writes a key. The last write or deletion of a key in a block wins.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`]; [`Error::KeyLength`]; [`Error::TooLarge`] for a key over 1024 bytes or a value over 1 GiB.
    pub fn put(&mut self, domain: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.push(domain, key, Some(value))
    }

    /// Deletes a key. Deleting a key that is absent is recorded as a version too.
    pub fn delete(&mut self, domain: &str, key: &[u8]) -> Result<(), Error> {
        self.push(domain, key, None)
    }

    fn push(&mut self, domain: &str, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let domain = self.core.shared.directory.domain_of(domain, [key])?;
        check_len("key", key, KEY_LEN_MAX as u64)?;
        check_len("value", value.unwrap_or_default(), VALUE_LEN_MAX)?;
        let key = self.append(key);
        let value = value.map(|value| self.append(value));
        self.changes.push(Pending { domain, key, value });
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }

    /// Commits the block and returns the root of the state after it.
    ///
    /// `Ok` means committed and nothing else; maintenance that follows inside the call and fails is in
    /// [`Stats::failures`](crate::Stats::failures) and is tried again by later commits or by
    /// [`Archive::maintain`](crate::Archive::maintain).
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] when the log failed: the block is committed or not, the archive refuses writes, and opening it
    /// again tells which by its head.
    ///
    /// After any other error the block was not committed, and no later opening shows it. It can be tried again unless
    /// [`Archive::is_poisoned`](crate::Archive::is_poisoned).
    ///
    /// [`Error::NotRising`] when another block got ahead; [`Error::TooLarge`] for a block over 4 GiB; [`Error::HeldUp`] when
    /// complete steps pile up in memory because files cannot be written: try again when the cause is gone.
    ///
    /// # Durability
    /// As [`Durability`](crate::Durability) says. In every mode the block survives the death of this process.
    pub fn commit(mut self) -> Result<Root, Error> {
        self.settle();
        self.core.wait_for_files()?;
        let root = self.core.commit(self.height, &self.changes_by_domain())?;
        self.core.maintain_inline();
        Ok(root)
    }

    /// Orders the changes by domain and key and keeps the last of each key.
    pub(crate) fn settle(&mut self) {
        let bytes = &self.bytes;
        let place = |change: &Pending| (change.domain, &bytes[change.key.clone()]);
        // Stable, so that of equal keys the last written stays last.
        self.changes.sort_by(|a, b| place(a).cmp(&place(b)));
        let changes = std::mem::take(&mut self.changes);
        for change in changes {
            match self.changes.last_mut() {
                Some(last) if place(last) == place(&change) => *last = change,
                _ => self.changes.push(change),
            }
        }
    }

    pub(crate) fn changes_by_domain(&self) -> Vec<ChangeRef<'_>> {
        let slice = |range: &Range<usize>| &self.bytes[range.clone()];
        self.changes
            .iter()
            .map(|change| ChangeRef {
                domain: change.domain.0,
                key: slice(&change.key),
                value: change.value.as_ref().map(slice),
            })
            .collect()
    }
}

/// Measured before the tree takes the block, which cannot be taken back once the log refuses it.
fn check_block(changes: &[ChangeRef<'_>], max: u64) -> Result<(), Error> {
    let len = RecordRef::Block { height: 0, root: &[0; 32], changes }.body_len();
    if len > max { Err(Error::TooLarge { what: "block", len, max }) } else { Ok(()) }
}

fn check_len(what: &'static str, bytes: &[u8], max: u64) -> Result<(), Error> {
    let len = bytes.len() as u64;
    if len > max { Err(Error::TooLarge { what, len, max }) } else { Ok(()) }
}

impl Core {
    /// `changes` are ordered by domain, then key, each key once.
    fn commit(&self, height: BlockNumber, changes: &[ChangeRef<'_>]) -> Result<Root, Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.check_poison()?;
        let version = self.version();
        if let Some(head) = version.head.filter(|head| height <= *head) {
            return Err(Error::NotRising { head, got: height });
        }
        check_block(changes, BODY_LEN_MAX)?;
        let config = &self.shared.directory.config;
        self.ensure_tree(state)?;
        self.ready_log(state, config.step_len.step_of(height))?;
        let (root, nodes) = self.ensure_tree(state)?.apply(config, version.head, height, changes);
        // From here on the tree is ahead of the log: a failure poisons, and opening again starts from the log.
        let logged = self.log_block(state, height, root, changes);
        state.poisoned(logged).map_err(|error| Error::CommitUnknown { height, source: Box::new(error) })?;
        self.publish_block(&version, height, root, changes, nodes);
        self.changed.notify_all();
        Ok(root)
    }

    fn log_block(
        &self,
        state: &mut State,
        height: BlockNumber,
        root: Root,
        changes: &[ChangeRef<'_>],
    ) -> Result<(), Error> {
        let step = self.shared.directory.config.step_len.step_of(height);
        state.log.append(&RecordRef::Block { height, root: &root.0, changes }, Some(step))?;
        match self.options.durability {
            Durability::Block => state.log.sync(),
            Durability::Group { blocks } if state.log.unsynced() >= blocks => state.log.sync(),
            Durability::Group { .. } | Durability::Relaxed => Ok(()),
        }
    }

    /// Makes the log ready for a block of `step`: the steps before it are durable, and the file that takes it is named by the
    /// manifest before it has a record, so that its loss would be noticed.
    ///
    /// # Errors
    /// Where there is no space for a new file, nothing has changed and a later block tries again.
    fn ready_log(&self, state: &mut State, step: Step) -> Result<(), Error> {
        if state.log.begins_step(step) {
            if state.log.is_full() {
                let (next, manifest) = (state.log.create_next()?, state.manifest.clone());
                return self.store_manifest(state, manifest, Some(next));
            }
            let synced = state.log.sync();
            state.poisoned(synced)?;
        }
        Ok(())
    }

    /// Adds the block to the tables and lets readers see it, all at once.
    fn publish_block(
        &self,
        version: &Version,
        height: BlockNumber,
        root: Root,
        changes: &[ChangeRef<'_>],
        nodes: Vec<NodeVersion>,
    ) {
        let config = &self.shared.directory.config;
        let mut next = version.clone();
        next.add_block(config, height, &root.0, changes).add_nodes(nodes);
        self.shared.install(next);
    }
}

impl Version {
    /// Adds a block to the table of its step, which it returns, and makes it the head. `changes` are ordered by domain, then
    /// key.
    pub(crate) fn add_block(
        &mut self,
        config: &crate::options::Config,
        height: BlockNumber,
        root: &[u8; 32],
        changes: &[ChangeRef<'_>],
    ) -> &StepTable {
        self.first = self.first.or(Some(height));
        self.head = Some(height);
        add_block(&mut self.tables, config, height, root, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_measured_before_it_is_applied() {
        let change = |key, value| ChangeRef { domain: 1, key, value };
        let changes = [change(&b"key"[..], Some(&b"value"[..])), change(b"gone", None)];
        // Height, root, fingerprints and their checksum; domain, length, key, tag, value; domain, length, key, tag.
        let len = 40 + (4 + 2 * 4 + 8) + (1 + 1 + 3 + 1 + 5) + (1 + 1 + 4 + 1);
        check_block(&changes, len).unwrap();
        let refused = check_block(&changes, len - 1).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { what: "block", len: found, .. } if found == len));
    }
}
