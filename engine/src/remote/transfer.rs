//! Whole files over the network, in parts: checked as they come.

use std::collections::VecDeque;

use icecore_segments::checksum::{ContentHasher, PAGE_SIZE};

use crate::error::Error;
use crate::remote::manifest::RemoteFile;
use crate::remote::store::Store;

/// Bytes of one request. More make few requests cheaper, and a repeated one dearer.
pub(crate) const GET_PART: u64 = 4 << 20;

/// Requests of one file at a time.
const WINDOW: usize = 4;

/// Reads the rest of an object of `len` bytes, from `from`, and hands it over in order.
pub(crate) fn read_from(
    store: &Store,
    name: &str,
    from: u64,
    len: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut pending, mut next) = (VecDeque::new(), from);
    loop {
        while pending.len() < WINDOW && next < len {
            let end = (next + GET_PART).min(len);
            pending.push_back(store.begin_get(name, next..end));
            next = end;
        }
        let Some(first) = pending.pop_front() else { return Ok(()) };
        take(&first.wait()?)?;
    }
}

/// Compares the bytes of a file, as they come, with what a generation says of them.
pub(crate) struct ContentCheck {
    len: u64,
    at: u64,
    content: ContentHasher,
    footer: Vec<u8>,
}

impl ContentCheck {
    /// For a file of `len` bytes.
    pub(crate) fn new(len: u64) -> Self {
        Self { len, at: 0, content: ContentHasher::default(), footer: Vec::new() }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let content_left = self.len.saturating_sub(PAGE_SIZE as u64).saturating_sub(self.at);
        let (content, footer) = bytes.split_at(content_left.min(bytes.len() as u64) as usize);
        self.content.update(content);
        self.footer.extend_from_slice(footer);
        self.at += bytes.len() as u64;
    }

    /// Whether they were those of the file.
    pub(crate) fn holds(&self, file: &RemoteFile<'_>) -> bool {
        self.at == self.len
            && *blake3::hash(&self.footer).as_bytes() == file.id
            && self.content.finish() == file.record.file(file.kind).summary.content
    }
}
