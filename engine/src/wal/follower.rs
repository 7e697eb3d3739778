//! Follows a log file that a writer of another process may be appending to.
//!
//! What [`WalReader`](super::WalReader) is to recovery this is to readers: it goes from record to record by their headers and
//! keeps where each block is, so that a lookup reads the blocks and opening does not. What it yields is what recovery
//! would find in the file at that moment, whether or not it was synced: a reader sees every block that was handed to the
//! system, in every mode of durability and with no writer left.
//!
//! Of a block the head is read: height, root, and a fingerprint of each key, with a checksum of their own. Bodies before the
//! last offset that some record calls durable are checked when they are read, as pages are. Those
//! after it may be torn, so they are checked here, and the first that does not hold ends the file. A file that looks
//! damaged may have been met in the midst of a recovery, which cuts and appends, so it is looked at again before that is
//! said.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use icecore_segments::step::BlockNumber;

use super::ChangeRef;
use super::header::{FILE_HEADER_LEN, FileHeader, VERSION_WITHOUT_FINGERPRINTS, check_file_header};
use super::reader::bad_header;
use super::record::{
    BODY_LEN_MAX, BlockHead, HEAD_START, Kind, RECORD_HEADER_LEN, RecordHeader, decode_unwind, fingerprint,
    for_each_change, is_body,
};
use crate::error::Error;
use crate::options::{Config, LogFileId};
use crate::storage::{ReadFile, Storage};

/// Bytes read at once where headers are looked for: a header and, of small blocks, all.
const WINDOW: usize = 4096;

/// How often a file that looks damaged is looked at before it is said to be.
const LOOKS: u32 = 4;

/// How long to wait between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// More bytes after the last sound record than an append can have left that was interrupted: some of the longest records. They are damage.
const UNSYNCED_MAX: u64 = 4 * BODY_LEN_MAX;

/// Bytes that are read at once in search of a record header.
const SEARCHED_AT_ONCE: usize = 1 << 20;

/// A log file, read up to a record.
pub(crate) struct WalFollower {
    config: Arc<Config>,
    path: Arc<Path>,
    file: Arc<dyn ReadFile>,
    sequence: u64,
    header: FileHeader,
    seen: Seen,
    /// The length of the file when it was last read.
    len: u64,
}

/// How far a file was read.
#[derive(Clone, Copy)]
struct Seen {
    /// Where the next record begins.
    end: u64,
    /// Where the last record ends that is no mark.
    records_end: u64,
    /// The furthest offset that a record calls durable.
    durable: u64,
    /// Whether the end record was met.
    ended: bool,
}

/// Where a record is.
pub(crate) struct Place {
    path: Arc<Path>,
    offset: u64,
}

/// A block in a log file.
pub(crate) struct LogBlock {
    pub(crate) height: BlockNumber,
    pub(crate) root: [u8; 32],
    /// Of each change, in order.
    fingerprints: Vec<u32>,
    version: u16,
    path: Arc<Path>,
    file: Arc<dyn ReadFile>,
    body_at: u64,
    body_len: u32,
    body_sum: u64,
}

/// What a record says.
pub(crate) enum LogEvent {
    /// A block was committed.
    Block(Arc<LogBlock>),
    /// The blocks above a height were forgotten.
    Unwind {
        /// The new head.
        to: BlockNumber,
        place: Place,
    },
}

/// The first place where something does not hold.
struct Bad {
    offset: u64,
    reason: &'static str,
}

impl WalFollower {
    /// Opens the file; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a header that is not that of the file, [`Error::Unsupported`] for a newer format.
    pub(crate) fn open(
        storage: &dyn Storage,
        config: &Arc<Config>,
        path: &Path,
        id: LogFileId,
    ) -> Result<Option<Self>, Error> {
        let Some(file) = storage.open(path)? else { return Ok(None) };
        let mut bytes = [0; FILE_HEADER_LEN];
        let read = file.read_at(0, &mut bytes)?;
        let header = check_file_header(&bytes[..read], id).map_err(|bad| bad_header(bad, path))?;
        let start = FILE_HEADER_LEN as u64;
        let seen = Seen { end: start, records_end: start, durable: start, ended: false };
        let config = Arc::clone(config);
        Ok(Some(Self {
            config,
            path: Arc::from(path),
            file: Arc::from(file),
            sequence: id.sequence,
            header,
            seen,
            len: 0,
        }))
    }

    /// The number of the file.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Where the last record ends that is no mark, of those that were read.
    pub(crate) fn records_end(&self) -> u64 {
        self.seen.records_end
    }

    /// Whether the last look met the end record.
    pub(crate) fn is_ended(&self) -> bool {
        self.seen.ended
    }

    /// Whether the file may have changed since it was last read. A torn tail may have been replaced by a record of its length.
    pub(crate) fn has_news(&self) -> Result<bool, Error> {
        let is_torn = self.seen.end < self.len && !self.seen.ended;
        Ok(is_torn || self.file.len()? != self.len)
    }

    /// Reads on from where the last call ended. `is_sealed`: the manifest names a successor, so the file must be whole.
    ///
    /// # Errors
    /// [`Error::Damaged`] where what was once durable does not hold; nothing is taken of the file then.
    pub(crate) fn advance(&mut self, is_sealed: bool) -> Result<Vec<LogEvent>, Error> {
        let mut looks = 1;
        loop {
            let mut events = Vec::new();
            match self.look(is_sealed, &mut events)? {
                Ok(seen) => {
                    self.seen = seen;
                    return Ok(events);
                }
                Err(bad) if looks == LOOKS => {
                    return Err(Error::Damaged {
                        path: self.path.to_path_buf(),
                        offset: bad.offset,
                        reason: bad.reason,
                    });
                }
                Err(_) => thread::sleep(BETWEEN_LOOKS),
            }
            looks += 1;
        }
    }

    fn look(&mut self, is_sealed: bool, events: &mut Vec<LogEvent>) -> Result<Result<Seen, Bad>, Error> {
        self.len = self.file.len()?;
        // The next writer goes on in the place of an end record that no manifest made the file's last word.
        let (mut seen, mut bad) = (Seen { ended: false, ..self.seen }, None);
        // Where each event's record begins and ends.
        let mut places = Vec::new();
        let mut window = Window { start: 0, bytes: Vec::new() };
        while !seen.ended && seen.end < self.len {
            let at = seen.end;
            match self.record_at(at, &mut window, &mut seen)? {
                Ok(Some(event)) => {
                    events.push(event);
                    places.push((at, seen.end));
                }
                Ok(None) => {}
                Err(reason) => {
                    bad = Some(Bad { offset: at, reason });
                    break;
                }
            }
        }
        if let Some((first, offset)) = first_torn(events, &places, seen.durable)? {
            events.truncate(first);
            let before = first.checked_sub(1).map_or(self.seen.records_end, |before| places[before].1);
            seen = Seen { end: offset, records_end: before, ended: false, ..seen };
            bad = Some(Bad { offset, reason: "record checksum" });
        }
        let end = seen.end;
        Ok(match bad {
            Some(bad) if is_sealed || self.was_durable(&bad, seen.durable)? => Err(bad),
            None if is_sealed && !seen.ended && !left_out!(SealedEnd) => {
                Err(Bad { offset: end, reason: "no end record" })
            }
            _ => Ok(seen),
        })
    }

    /// Reads the record at an offset and moves `seen` after it; `None` for one that replay has nothing to learn from.
    fn record_at(
        &self,
        at: u64,
        window: &mut Window,
        seen: &mut Seen,
    ) -> Result<Result<Option<LogEvent>, &'static str>, Error> {
        let bytes = window.at(&*self.file, at, RECORD_HEADER_LEN + HEAD_START)?;
        let Some(header) = RecordHeader::parse(bytes, at, self.header) else {
            return Ok(Err("record header"));
        };
        let body_at = at + RECORD_HEADER_LEN as u64;
        let end = body_at + u64::from(header.len);
        if end > self.len {
            return Ok(Err("record runs past the end"));
        }
        if header.durable < seen.durable {
            return Ok(Err("a record knows of fewer durable bytes than the one before"));
        }
        let event = match header.kind {
            Kind::Block => match self.block_at(body_at, &header, window)? {
                Some(block) => Some(LogEvent::Block(Arc::new(block))),
                None => return Ok(Err("record checksum")),
            },
            Kind::Unwind => {
                let body = bytes.get(RECORD_HEADER_LEN..RECORD_HEADER_LEN + header.len as usize);
                match body.filter(|body| header.fits(body)).and_then(decode_unwind) {
                    Some(to) => Some(LogEvent::Unwind {
                        to,
                        place: Place { path: Arc::clone(&self.path), offset: at },
                    }),
                    None => return Ok(Err("record checksum")),
                }
            }
            Kind::Mark => None,
            Kind::End if end == self.len => {
                // A writer that comes back to the file goes on in the place of the end record.
                *seen = Seen { ended: true, durable: header.durable, ..*seen };
                return Ok(Ok(None));
            }
            Kind::End => return Ok(Err("bytes after the end record")),
        };
        let records_end = if header.kind == Kind::Mark { seen.records_end } else { end };
        *seen = Seen { end, records_end, durable: header.durable, ended: false };
        Ok(Ok(event))
    }

    /// Reads the head of a block, and where the format does not protect that, all of it. `None`: it does not hold.
    fn block_at(
        &self,
        body_at: u64,
        header: &RecordHeader,
        window: &mut Window,
    ) -> Result<Option<LogBlock>, Error> {
        let version = self.header.version;
        let start = window.at(&*self.file, body_at, HEAD_START.min(header.len as usize))?;
        let Some(len) = BlockHead::len(start, version).filter(|len| *len <= u64::from(header.len)) else {
            return Ok(None);
        };
        let head = window.at(&*self.file, body_at, len as usize)?;
        let Some(head) = BlockHead::decode(head, version) else { return Ok(None) };
        let mut block = LogBlock {
            height: head.height,
            root: head.root,
            fingerprints: head.fingerprints,
            version,
            path: Arc::clone(&self.path),
            file: Arc::clone(&self.file),
            body_at,
            body_len: header.len,
            body_sum: header.body_sum,
        };
        let is_whole = version != VERSION_WITHOUT_FINGERPRINTS || block.take_fingerprints(&self.config)?;
        Ok(is_whole.then_some(block))
    }

    /// Whether any sound record header, before a bad place (these say `durable`) or after it, says that the byte there was
    /// synced.
    fn was_durable(&self, bad: &Bad, durable: u64) -> Result<bool, Error> {
        if left_out!(TornTail) || bad.offset < durable {
            return Ok(!left_out!(TornTail));
        }
        if self.len - bad.offset > UNSYNCED_MAX {
            return Ok(true);
        }
        let (mut window, mut from) = (vec![0; SEARCHED_AT_ONCE + RECORD_HEADER_LEN], bad.offset + 1);
        while from < self.len {
            let read = self.file.read_at(from, &mut window)?.min((self.len - from) as usize);
            let says_so = |at: usize| {
                let header = RecordHeader::parse(&window[at..read], from + at as u64, self.header);
                header.is_some_and(|header| header.durable > bad.offset)
            };
            if (0..read.min(SEARCHED_AT_ONCE)).any(says_so) {
                return Ok(true);
            }
            from += SEARCHED_AT_ONCE as u64;
        }
        Ok(false)
    }
}

impl Place {
    /// The error for a record that does not hold, or that does not follow on those before it.
    pub(crate) fn damaged(&self, reason: &'static str) -> Error {
        Error::Damaged { path: self.path.to_path_buf(), offset: self.offset, reason }
    }
}

impl LogBlock {
    /// Reads the body; `false` when it does not have its checksum.
    fn read(&self, body: &mut Vec<u8>) -> Result<bool, Error> {
        body.resize(self.body_len as usize, 0);
        let read = self.file.read_at(self.body_at, body)?;
        Ok(read == body.len() && is_body(body, self.body_sum))
    }

    /// Bytes of the block in its file.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.body_len)
    }

    /// Where its record is.
    pub(crate) fn place(&self) -> Place {
        Place { path: Arc::clone(&self.path), offset: self.body_at - RECORD_HEADER_LEN as u64 }
    }

    /// Whether the block may have changed a key. `fingerprint` is that of the key.
    pub(crate) fn may_have(&self, fingerprint: u32) -> bool {
        self.fingerprints.contains(&fingerprint)
    }

    /// Takes the fingerprints from the changes of a block whose file does not keep them; `false` when its body does not hold.
    fn take_fingerprints(&mut self, config: &Config) -> Result<bool, Error> {
        let (mut body, mut fingerprints) = (Vec::new(), Vec::new());
        if !self.read(&mut body)? {
            return Ok(false);
        }
        let taken = for_each_change(&body, self.version, config, |change| {
            fingerprints.push(fingerprint(change.domain, change.key));
        });
        taken.map_err(|reason| self.place().damaged(reason))?;
        self.fingerprints = fingerprints;
        Ok(true)
    }

    /// Shows the changes one by one. `body` is a buffer for the bytes of the block.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a body that does not have its checksum, or that no writer wrote.
    pub(crate) fn for_each_change<'b>(
        &self,
        config: &Config,
        body: &'b mut Vec<u8>,
        show: impl FnMut(ChangeRef<'b>),
    ) -> Result<(), Error> {
        if !self.read(body)? {
            return Err(self.place().damaged("record checksum"));
        }
        for_each_change(body, self.version, config, show).map_err(|reason| self.place().damaged(reason))
    }
}

/// The first block that ends after the durable bytes and is not whole: its number and its offset.
fn first_torn(
    events: &[LogEvent],
    places: &[(u64, u64)],
    durable: u64,
) -> Result<Option<(usize, u64)>, Error> {
    let mut body = Vec::new();
    for (number, (event, (start, end))) in events.iter().zip(places).enumerate() {
        if let LogEvent::Block(block) = event
            && *end > durable
            && !block.read(&mut body)?
        {
            return Ok(Some((number, *start)));
        }
    }
    Ok(None)
}

/// The part of a file that was read last.
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// At least `len` bytes from an offset on, fewer at the end of the file.
    fn at(&mut self, file: &dyn ReadFile, offset: u64, len: usize) -> Result<&[u8], Error> {
        let held = self.start..self.start + self.bytes.len() as u64;
        if offset < held.start || offset + len as u64 > held.end {
            self.bytes.resize(len.max(WINDOW), 0);
            let read = file.read_at(offset, &mut self.bytes)?;
            self.bytes.truncate(read);
            self.start = offset;
        }
        Ok(&self.bytes[(offset - self.start) as usize..])
    }
}
