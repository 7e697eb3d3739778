//! The way of a block into the archive: the tree gives the root, the log makes it durable, the tables make it readable.

use icecore_hot::Root;
use icecore_segments::step::{BlockNumber, Step};

use crate::error::Error;
use crate::memtable::node_key::NodeVersion;
use crate::options::Durability;
use crate::read::read_state::Version;
use crate::wal::{BODY_LEN_MAX, ChangeRef, RecordRef};
use crate::write::writer::{Core, State};

impl Core {
    /// `changes` are ordered by domain, then key, each key once.
    pub(crate) fn commit(&self, height: BlockNumber, changes: &[ChangeRef<'_>]) -> Result<Root, Error> {
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
            if state.log.is_full(step) {
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

/// Measured before the tree takes the block, which cannot be taken back once the log refuses it.
fn check_block(changes: &[ChangeRef<'_>], max: u64) -> Result<(), Error> {
    let len = RecordRef::Block { height: 0, root: &[0; 32], changes }.body_len();
    if len > max { Err(Error::TooLarge { what: "block", len, max }) } else { Ok(()) }
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
