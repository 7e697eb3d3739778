//! A file that a thread of its own writes, while whoever makes the bytes goes on.
//!
//! Copying bytes to the system's cache takes a third of the time of a merge: the system has to find a page for each 4096 of them.

use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use super::WriteFile;
use crate::error::{Error, Operation};

/// What is handed over at once, in bytes.
const CHUNK_LEN: usize = 1 << 20;

/// Chunks that may be handed over and not yet written.
const CHUNKS_AHEAD: usize = 2;

/// See the module. An error of a write is that of a later one, or of the sync.
pub(crate) struct WriteBehind {
    path: PathBuf,
    chunk: Vec<u8>,
    state: State,
}

enum State {
    Behind(Writer),
    /// After the last byte, and where there is no thread to be had.
    Direct(Box<dyn WriteFile>),
    Failed,
}

struct Writer {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<Box<dyn WriteFile>>>,
}

impl Writer {
    /// Waits until everything is written.
    fn finish(self) -> io::Result<Box<dyn WriteFile>> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl WriteBehind {
    /// Starts a thread that writes to `file`, which is at `path`.
    pub(crate) fn new(path: &Path, file: Box<dyn WriteFile>) -> Self {
        let (full, chunks) = sync_channel::<Vec<u8>>(CHUNKS_AHEAD);
        let (spent, empty) = channel();
        // The file goes this way, so that it is still there when no thread was to be had.
        let (give, take) = channel::<Box<dyn WriteFile>>();
        let write = move || {
            let mut file = take.recv().map_err(io::Error::other)?;
            for mut chunk in chunks {
                file.write_all(&chunk)?;
                chunk.clear();
                // After the last chunk nobody takes one back.
                let _ = spent.send(chunk);
            }
            Ok(file)
        };
        let state = match thread::Builder::new().name("icecore-write".to_owned()).spawn(write) {
            Ok(thread) => match give.send(file) {
                Ok(()) => State::Behind(Writer { full, empty, thread }),
                Err(refused) => State::Direct(refused.0),
            },
            Err(_) => State::Direct(file),
        };
        Self { path: path.to_owned(), chunk: Vec::new(), state }
    }

    /// Hands over what is gathered.
    fn hand_over(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Behind(writer) => {
                let next = writer.empty.try_recv().unwrap_or_default();
                if writer.full.send(mem::replace(&mut self.chunk, next)).is_ok() {
                    return Ok(());
                }
                // It ended before its time, so it has an error to tell.
                self.settle().map(drop)
            }
            State::Direct(file) => {
                let written = file.write_all(&self.chunk);
                self.chunk.clear();
                written
            }
            State::Failed => Err(earlier()),
        }
    }

    /// Waits until everything handed over is written.
    fn settle(&mut self) -> io::Result<&mut dyn WriteFile> {
        self.state = match mem::replace(&mut self.state, State::Failed) {
            State::Behind(writer) => State::Direct(writer.finish()?),
            other => other,
        };
        match &mut self.state {
            State::Direct(file) => Ok(&mut **file),
            State::Behind(_) | State::Failed => Err(earlier()),
        }
    }
}

fn earlier() -> io::Error {
    io::Error::other("an earlier write failed")
}

impl Write for WriteBehind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_LEN {
            self.hand_over()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.settle()?.flush()
    }
}

impl WriteFile for WriteBehind {
    fn sync(&mut self) -> Result<(), Error> {
        let path = self.path.clone();
        let failed = |source| Error::Io { operation: Operation::Write, path: path.clone(), source };
        self.hand_over().map_err(failed)?;
        self.settle().map_err(failed)?.sync()
    }
}

impl Drop for WriteBehind {
    /// No thread is left that writes to a file which nobody wants any more.
    fn drop(&mut self) {
        let _ = self.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Keeps what is written, up to a number of bytes, and whether it was synced.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<(Vec<u8>, bool)>>, usize);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.0.lock();
            if kept.0.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            kept.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl WriteFile for Kept {
        fn sync(&mut self) -> Result<(), Error> {
            self.0.lock().1 = true;
            Ok(())
        }
    }

    fn open(room: usize) -> (Kept, WriteBehind) {
        let kept = Kept(Arc::default(), room);
        (kept.clone(), WriteBehind::new(Path::new("file"), Box::new(kept)))
    }

    #[test]
    fn all_bytes_are_written_in_order_before_the_sync() {
        for parts in [0, 1, 7, 4000] {
            let (kept, mut file) = open(usize::MAX);
            let bytes: Vec<u8> = (0..parts * 1000).map(|at| (at / 7) as u8).collect();
            bytes.chunks(1000).for_each(|part| file.write_all(part).unwrap());
            file.sync().unwrap();
            assert!(*kept.0.lock() == (bytes, true), "{parts}");
        }
    }

    #[test]
    fn a_write_that_fails_is_told_at_a_later_one_or_at_the_sync_and_nothing_is_synced() {
        for parts in [1, 3, 40] {
            let (kept, mut file) = open(CHUNK_LEN / 2);
            let written = (0..parts).try_for_each(|_| file.write_all(&vec![1; CHUNK_LEN]));
            let error = match written {
                Err(error) => error,
                Ok(()) => match file.sync() {
                    Err(Error::Io { operation: Operation::Write, source, .. }) => source,
                    other => panic!("{other:?}"),
                },
            };
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{parts}");
            assert!(file.sync().is_err());
            assert_eq!(*kept.0.lock(), (vec![], false));
        }
    }
}
