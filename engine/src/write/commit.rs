//! The way of a block into the archive: the tree gives the root, the log makes it durable, the tables make it readable.

use std::sync::atomic::Ordering;

use icecore_hot::Root;
use icecore_segments::step::BlockNumber;

use crate::error::Error;
use crate::merkle::live_tree::{Applied, Parent};
use crate::wal::{BODY_LEN_MAX, ChangeRef, RecordRef};
use crate::write::writer::Writer;

impl Writer {
    /// Checks that a block at `height` may follow.
    pub(crate) fn check_next(&self, height: BlockNumber) -> Result<(), Error> {
        self.lock().check_poison()?;
        check_height(self.read_state().head, height)
    }

    /// Makes everything committed durable.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.lock_unpoisoned()?.sync_log_marker()
    }

    /// `changes` are ordered by domain, then key, each key once; `unwinds` is how many there had been when the block was begun. The
    /// block is refused where its root is not the one `expected`.
    pub(crate) fn commit(
        &self,
        height: BlockNumber,
        unwinds: u64,
        changes: &[ChangeRef<'_>],
        expected: Option<Root>,
    ) -> Result<Root, Error> {
        let mut guard = self.lock_unpoisoned()?;
        if self.unwinds.load(Ordering::Relaxed) != unwinds {
            return Err(Error::StaleBlock { height });
        }
        let version = self.read_state();
        check_height(version.head, height)?;
        check_block(changes, BODY_LEN_MAX)?;
        let config = &self.shared.directory.config;
        guard.tree()?;
        guard.ready_log(config.step_len.step_of(height))?;
        let parent = Parent { version: &version, block: version.head, with_nodes: version.head };
        let Applied { root, nodes } = guard.tree()?.apply(config, parent, height, changes)?;
        if let Some(expected) = expected.filter(|expected| *expected != root) {
            match version.head {
                Some(head) => drop(guard.rewind_tree(head)),
                None => guard.drop_tree(),
            }
            return Err(Error::UnexpectedRoot {
                block: height,
                expected: expected.to_string(),
                found: root.to_string(),
            });
        }
        // From here on the tree is ahead of the log: a failure poisons, and opening again starts from the log.
        let logged = guard.log_block(height, root, changes);
        let digest = logged.map_err(|error| Error::CommitUnknown { height, source: Box::new(error) })?;
        let mut next = (*version).clone();
        next.add_block(config, height, &root.0, digest, changes).add_nodes(nodes);
        guard.install(next);
        Ok(root)
    }
}

/// Checks that a block at `height` may follow the head, and that another may follow it.
fn check_height(head: Option<BlockNumber>, height: BlockNumber) -> Result<(), Error> {
    match head {
        _ if height == BlockNumber::MAX => Err(Error::TooHigh { got: height }),
        Some(head) if height <= head => Err(Error::NotRising { head, got: height }),
        _ => Ok(()),
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
