//! Where the log of an archive ends, by what its manifest says: a last file that was cut, and a manifest that is older than the
//! log, would otherwise pass for an archive with fewer blocks.

use std::path::Path;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::storage::{Storage, layout};
use crate::wal::{Record, Tail, WalReader};

impl Manifest {
    /// Checks that the last log file has what it had when this manifest was written. `records_end` is where its records end.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a log that was cut.
    pub(crate) fn check_log_end(&self, dir: &Path, records_end: u64) -> Result<(), Error> {
        if self.wal_reached <= records_end || left_out!(LogEnd) {
            return Ok(());
        }
        let (path, offset) = (layout::wal_file(dir, self.wal_last), records_end);
        Err(Error::Damaged { path, offset, reason: "the log ends before what the manifest says was synced" })
    }

    /// Checks that the log does not go on in a file after the last that this manifest names (W2): then a newer manifest named
    /// it, and this one was put back in its place.
    ///
    /// A deep unwind that a crash interrupted leaves such a file too, with blocks of steps that are in segments; any later
    /// block, and an unwind of one, was appended after a manifest named the file.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the manifest.
    pub(crate) fn check_log_is_last(&self, storage: &dyn Storage, dir: &Path) -> Result<(), Error> {
        let path = layout::wal_file(dir, self.wal_last + 1);
        let Some(bytes) = storage.read(&path)? else { return Ok(()) };
        // A file that is not sound was not named yet when a crash left it.
        let first = WalReader::open(&path, &bytes, self.config.log_file(self.wal_last + 1), Tail::Open).ok();
        let first = first.and_then(|reader| reader.records(&self.config).next());
        let goes_on = match first {
            Some(Ok((_, Record::Block(block)))) => {
                self.config.step_len.step_of(block.height) >= self.emitted_to
            }
            Some(Ok((_, Record::Unwind { .. }))) => true,
            Some(Err(_)) | None => false,
        };
        if !goes_on || left_out!(LogIsLast) {
            return Ok(());
        }
        let reason = "the manifest is an older one: the log goes on after the last file that it names";
        Err(Error::Damaged { path: dir.join(layout::MANIFEST), offset: 0, reason })
    }
}
