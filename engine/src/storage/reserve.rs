//! The reserve: a file that is there to be given up when the disk is full, so that what frees space has space to begin with.
//!
//! Pruning and unwinding of segments write before they free anything: a manifest at least. On a full disk they would fail as
//! everything else does. So every archive holds a little space that nothing else takes.

use crate::error::{Error, ErrorKind, Operation};
use crate::storage::directory::Directory;
use crate::storage::layout;

/// Enough for the manifest of ten thousand files.
pub(crate) const RESERVE_LEN: u64 = 512 << 10;

/// More than a record without changes and its mark take, in blocks of any file system.
const RECORD_ROOM: u64 = 64 << 10;

/// The right to the space of the reserve. When it is dropped, the reserve is taken again if there is room by then.
pub(crate) struct Reserve<'d>(&'d Directory);

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        // Who opens the archive for writing tries again.
        let _ = self.0.fill_reserve();
    }
}

impl Directory {
    /// Gives the reserve up for work that frees space, where less than that is left on the file system.
    pub(crate) fn draw_on_reserve(&self) -> Result<Reserve<'_>, Error> {
        self.draw_on_reserve_below(RESERVE_LEN)
    }

    /// Gives the reserve up for a record of the log that must not fail half way, where there is too little room for it.
    ///
    /// # Errors
    /// [`Error::NoRoom`] where there is too little even then.
    pub(crate) fn draw_on_reserve_for_record(&self, task: &str) -> Result<Reserve<'_>, Error> {
        let reserve = self.draw_on_reserve_below(RECORD_ROOM)?;
        match self.storage.free_space(&self.path)? {
            Some(free) if free < RECORD_ROOM => Err(Error::NoRoom {
                task: task.to_owned(),
                path: self.path.clone(),
                needed: RECORD_ROOM,
                free,
            }),
            _ => Ok(reserve),
        }
    }

    fn draw_on_reserve_below(&self, room: u64) -> Result<Reserve<'_>, Error> {
        let free = self.storage.free_space(&self.path)?;
        if free.is_some_and(|free| free < room) {
            self.storage.remove(&layout::reserve(&self.path))?;
        }
        Ok(Reserve(self))
    }

    /// Takes the reserve if it is not there. A file system without room for it leaves the archive without one.
    ///
    /// Nothing is synced: after a power loss a file of another length is written again.
    pub(crate) fn fill_reserve(&self) -> Result<(), Error> {
        let path = layout::reserve(&self.path);
        match self.storage.len(&path)? {
            Some(RESERVE_LEN) => return Ok(()),
            Some(_) => self.storage.remove(&path)?,
            None => {}
        }
        let free = self.storage.free_space(&self.path)?;
        if free.is_some_and(|free| free < RESERVE_LEN) {
            return Ok(());
        }
        let mut file = self.storage.create(&path)?;
        let written = file.write_all(&vec![0; RESERVE_LEN as usize]).and_then(|()| file.flush());
        let written =
            written.map_err(|source| Error::Io { operation: Operation::Write, path: path.clone(), source });
        match written {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.storage.remove(&path),
            written => written,
        }
    }
}
