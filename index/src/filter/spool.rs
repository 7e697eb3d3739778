//! Where a builder leaves hashes that do not fit its memory.

use std::io;

/// Bytes that are appended and read back, by one owner, while a filter is built: a temporary file, for instance.
pub trait Spool {
    /// Appends `bytes` and returns the offset of the first of them.
    ///
    /// # Errors
    /// Whatever the medium says; the builder is of no use afterwards.
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64>;

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// Whatever the medium says, also when it ends before `buf` is full.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// A spool in memory: for tests, and for filters that are known to be small.
#[derive(Debug, Default)]
pub struct MemorySpool(Vec<u8>);

impl Spool for MemorySpool {
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        Ok(offset)
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|from| self.0.get(from..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
