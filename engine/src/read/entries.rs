//! The keys of a scan, for callers: an iterator that owns what it reads from.

use std::fmt;
use std::vec;

use icecore_segments::step::BlockNumber;

use crate::domain::{Domain, DomainId};
use crate::error::Error;
use crate::read::ahead::{WINDOW_MAX, WINDOW_MIN};
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;

/// Entries of the first chunk; each later one is twice as long, up to the longest. A chunk costs a seek in every segment of the
/// range, so short scans read little and long ones seek seldom.
const CHUNK_LENS: (usize, usize) = (16, 4096);

/// A chunk ends, too, when its keys and values have this many bytes.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A key with the value that it has at the height of a view: an item of [`Entries`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The block that wrote the value.
    pub block: BlockNumber,
}

/// The keys of a [`Scan`] in order, with their values: the iterator of [`View::scan`](crate::View::scan). Deleted keys are left out.
///
/// It is `Send` and owns the state it reads from, which it pins as a [`View`](crate::View) does.
///
/// # Cost
/// Nothing is read before the first `next`. Entries are read ahead in chunks, 16 at first, growing to 4096 or a megabyte. A
/// chunk costs one index page and one data page of each segment in the range, plus the data pages of its entries.
///
/// In a domain that is kept [by path](Domain::by_path) a prefix passes all keys, and reads their values.
///
/// # Errors
/// An item is an error where a file that the scan needs is damaged, or [not held](Error::NotHeld). It is the last.
pub struct Entries {
    version: Pinned,
    domain: DomainId,
    /// How keys are shown to callers, where they are stored in another form.
    shown: Option<ShownKeys>,
    at: BlockNumber,
    /// What was not read yet; `None` at the end.
    rest: Option<Scan>,
    /// How many entries may still come.
    left: u64,
    chunk: vec::IntoIter<Entry>,
    chunk_len: usize,
    /// Pages of each segment elsewhere that are requested at once for the next chunk.
    window: u64,
    /// Comes after the chunk.
    error: Option<Error>,
}

/// The keys of a domain that is kept by path, as callers know them: those with a prefix.
struct ShownKeys {
    domain: Domain,
    prefix: Vec<u8>,
}

impl Entries {
    /// The entries of a domain as they are stored.
    pub(crate) fn new(version: Pinned, domain: DomainId, scan: &Scan, at: BlockNumber) -> Self {
        let left = scan.limit.unwrap_or(u64::MAX);
        let (rest, chunk, error) = (Some(scan.clone()), Vec::new().into_iter(), None);
        let (chunk_len, window) = (CHUNK_LENS.0, WINDOW_MIN);
        Self { version, domain, shown: None, at, rest, left, chunk, chunk_len, window, error }
    }

    /// The entries of a declared domain as callers know them.
    ///
    /// # Errors
    /// [`Error::NoRange`] of a range of keys that are not in their order.
    pub(crate) fn of_domain(
        version: Pinned,
        (id, domain): (DomainId, &Domain),
        scan: &Scan,
        at: BlockNumber,
    ) -> Result<Self, Error> {
        if domain.order.head_len() == 0 {
            return Ok(Self::new(version, id, scan, at));
        }
        let no_range = || Error::NoRange { domain: domain.name.clone() };
        let prefix = scan.as_prefix().ok_or_else(no_range)?.to_vec();
        let stored = scan.unbounded(|key| domain.stored(key).into_owned());
        let shown = Some(ShownKeys { domain: domain.clone(), prefix });
        Ok(Self { shown, ..Self::new(version, id, &stored, at) })
    }

    /// Reads the next chunk of what `rest` has, and leaves in `rest` what is after it.
    fn fill(&mut self, rest: Scan) -> Vec<Entry> {
        let mut chunk = Vec::new();
        let filled = self.fill_chunk(&rest, &mut chunk);
        match filled {
            Ok(true) => {}
            Ok(false) => {
                if let Some(last) = chunk.last() {
                    let stored = self.shown.as_ref().map(|shown| shown.domain.stored(&last.key));
                    self.rest = Some(rest.after(stored.as_deref().unwrap_or(&last.key)));
                }
            }
            Err(error) => self.error = Some(error),
        }
        self.window = (2 * self.window).min(WINDOW_MAX);
        self.chunk_len = (2 * self.chunk_len).min(CHUNK_LENS.1);
        chunk
    }

    /// `true` at the end of the scan.
    fn fill_chunk(&self, rest: &Scan, chunk: &mut Vec<Entry>) -> Result<bool, Error> {
        self.version.read(|state| self.fill_from(state, rest, chunk))
    }

    fn fill_from(&self, state: &ReadState, rest: &Scan, chunk: &mut Vec<Entry>) -> Result<bool, Error> {
        chunk.clear();
        let len_max = self.left.min(self.chunk_len as u64);
        let mut bytes = 0;
        let mut scan = MergeScan::with_window(state, self.domain, rest, self.at, self.window)?;
        while (chunk.len() as u64) < len_max && bytes < CHUNK_BYTES_MAX {
            match scan.next_version()? {
                Some((key, (block, Some(value)))) => {
                    let Some(key) = self.shown(key)? else { continue };
                    bytes += key.len() + value.len();
                    chunk.push(Entry { key, value, block });
                }
                Some((_, (_, None))) => {}
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// A key as callers know it; `None` where it is not asked for.
    fn shown(&self, stored: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        let Some(shown) = &self.shown else { return Ok(Some(stored)) };
        let key = shown.domain.shown(stored)?;
        Ok(key.starts_with(&shown.prefix).then_some(key))
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.left == 0 {
                return None;
            }
            if let Some(entry) = self.chunk.next() {
                self.left -= 1;
                return Some(Ok(entry));
            }
            if let Some(error) = self.error.take() {
                self.left = 0;
                return Some(Err(error));
            }
            let rest = self.rest.take()?;
            self.chunk = self.fill(rest).into_iter();
        }
    }
}

impl std::iter::FusedIterator for Entries {}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("at", &self.at).field("rest", &self.rest).finish_non_exhaustive()
    }
}
