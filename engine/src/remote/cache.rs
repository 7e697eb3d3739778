//! What was read of objects, in sparse files on disk: the bytes of a page are asked for once.
//!
//! A file of the cache has the id of its object in its name, its length, and what came of it in its place. Only pages whose checksum holds
//! for their place are written, so neither a wrong answer of a store nor a write that a kill tore is ever believed: a page that is
//! not sound is asked for again. Hence nothing says which pages are here but the file itself, and nothing is synced. Processes may
//! share a folder: they write the same bytes to the same places. No place is touched through the mapping before it was written, so the
//! folder may be in memory, where touching a hole would take a page and end the process if there is none.
//!
//! An id says what a file is only to who has compared all of it: a hostile bucket may name any id and send other bytes. So the name of a file
//! in the cache also says who vouches for it, a public key or else the bucket itself, and all that it says of the bytes: length, header, tail,
//! and with a key the hash of the rest. Readers share a file where these are the same, and no others do.
//!
//! For a reader that believes only a key page checksums are no proof: whoever has the bucket makes them right. It compares whole blocks
//! with their hashes before any byte of them is kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_segments::checksum::{PAGE_SIZE, Salt, crc64, is_sealed};
use icecore_segments::frame::Kind;
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::remote::blocks::{BLOCK, BlockHashes};
use crate::remote::bucket::Bucket;
use crate::remote::claim::Source;
use crate::remote::names::{self, Hash};
use crate::remote::patience::TRIES;
use crate::remote::proof::Proof;
use crate::remote::room::{HASHES, Room, Share};
use crate::remote::runtime::Pending;
use crate::remote::store::{Landed, Store};
use crate::remote_error::RemoteError;
use crate::storage::Mapping;
use crate::storage::map::Origin;
use crate::storage::sparse::SparseFile;

const PAGE: u64 = PAGE_SIZE as u64;

/// The most bytes of one request.
const REQUEST_MAX: u64 = 4 << 20;

/// The most bytes that are asked for ahead of a reader who goes through a file.
const AHEAD_MAX: u64 = 2 << 20;

/// What reading from a bucket cost so far: part of [`Reader::remote_cost`](crate::Reader::remote_cost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteCost {
    /// Requests, those of opening included.
    pub requests: u64,
    /// Requests among them that repeated another.
    pub retries: u64,
    /// Bytes of files that came.
    pub bytes: u64,
    /// How often a read waited for the network; requests that were under way together are one wait.
    pub waits: u64,
}

/// What the files of a cache share.
pub(crate) struct Cache {
    pub(crate) store: Store,
    pub(crate) room: Arc<Room>,
    source: Source,
    /// Bytes of an aligned piece: what is asked for where one page is needed.
    fetch: u64,
    bytes: AtomicU64,
    waits: AtomicU64,
}

impl Cache {
    /// A cache of objects of `bucket`; `fetch` is a number of whole pages.
    pub(crate) fn new(bucket: &Bucket, room: Arc<Room>, fetch: u64) -> Self {
        let (store, bytes, waits) = (bucket.store.clone(), AtomicU64::new(0), AtomicU64::new(0));
        Self { store, room, source: Source::of(bucket), fetch, bytes, waits }
    }

    /// See [`RemoteCost`].
    pub(crate) fn cost(&self) -> RemoteCost {
        let (requests, retries) = self.store.requests();
        let (bytes, waits) = (self.bytes.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed));
        RemoteCost { requests, retries, bytes, waits }
    }
}

impl Cache {
    /// Counts bytes that came.
    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// One bit for each page of a file: what is here. Unlike those of `PageChecks` bits go again, and one that is seen says that another thread's
/// bytes are there.
struct PageSet(Box<[AtomicU64]>);

impl PageSet {
    fn new(pages: u64) -> Self {
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, page: u64) -> bool {
        self.0
            .get((page / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (page % 64) & 1 == 1)
    }

    fn insert(&self, page: u64) {
        if let Some(word) = self.0.get((page / 64) as usize) {
            word.fetch_or(1 << (page % 64), Ordering::Release);
        }
    }

    fn remove(&self, page: u64) {
        if let Some(word) = self.0.get((page / 64) as usize) {
            word.fetch_and(!(1 << (page % 64)), Ordering::Release);
        }
    }
}

/// A request that is under way.
struct Flight {
    /// The waits that had ended when it began.
    began: u64,
    answer: Mutex<Answer>,
}

enum Answer {
    Awaited(Pending<Result<(), RemoteError>>),
    Known(Result<(), RemoteError>),
}

impl Flight {
    /// Waits for the request. Each who does gets its answer.
    fn wait(&self, cache: &Cache) -> Result<(), RemoteError> {
        let mut answer = self.answer.lock();
        if let Answer::Awaited(pending) = &*answer {
            let known = pending.wait().and_then(|result| result);
            // What began before the last wait ended was waited for together with it.
            let _ = cache.waits.compare_exchange(
                self.began,
                self.began + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            *answer = Answer::Known(known);
        }
        match &*answer {
            Answer::Known(known) => known.clone(),
            Answer::Awaited(_) => unreachable!("it was waited for"),
        }
    }
}

/// An object, as far as it is here.
pub(crate) struct CachedFile {
    cache: Arc<Cache>,
    file: SparseFile,
    id: Hash,
    kind: Kind,
    /// The name of the object.
    object: String,
    /// That of the file.
    file_name: String,
    len: u64,
    /// What pages of this file are sealed with.
    salt: Salt,
    proof: Option<Arc<Proof>>,
    here: PageSet,
    /// By the piece that they bring.
    flights: Mutex<HashMap<u64, Arc<Flight>>>,
    /// The piece after the last that was waited for, and how many bytes were asked for ahead of it.
    next: AtomicU64,
    ahead: AtomicU64,
    /// Pieces that were known when it was opened.
    known: Vec<Range<u64>>,
    /// Of the folder.
    room: Share,
}

/// What is known of an object before it is read.
pub(crate) struct Object {
    pub(crate) id: Hash,
    pub(crate) kind: Kind,
    pub(crate) len: u64,
    pub(crate) salt: Salt,
    /// What its bytes are compared with before they are kept, for who believes only a key. Page checksums are made right by anybody.
    pub(crate) proof: Option<Arc<Proof>>,
}

impl CachedFile {
    /// Takes up what the cache has of an object. `known` are pieces of it that are known to be right: header and tail.
    ///
    /// # Errors
    /// [`Error::Io`] of the cache.
    pub(crate) fn open(cache: &Arc<Cache>, object: Object, known: &[(u64, &[u8])]) -> Result<Self, Error> {
        let content = object.proof.as_ref().map(|proof| &proof.content);
        let name = cache.source.file_name(&object.id, object.kind.extension(), object.len, content, known);
        Self::open_taking(cache, object, name, known, Share::take)
    }

    /// The same by the name of the file, with another way to take the room for `known`.
    fn open_taking(
        cache: &Arc<Cache>,
        object: Object,
        file_name: String,
        known: &[(u64, &[u8])],
        take: fn(&Share, u64) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let Object { id, kind, len, salt, proof } = object;
        let file = SparseFile::open(&cache.room.path_of(&file_name), len)?;
        let room = cache.room.share(&file_name, file.id, file.allocated()?);
        let here = PageSet::new(len / PAGE);
        for filled in file.filled()? {
            (filled.start.div_ceil(PAGE)..filled.end / PAGE).for_each(|page| here.insert(page));
        }
        for (offset, bytes) in known {
            let mut found = vec![0; bytes.len()];
            file.read_at(*offset, &mut found)?;
            if found != *bytes {
                let written = take(&room, bytes.len() as u64).and_then(|()| file.write_at(*offset, bytes));
                written.map_err(|error| cache.room.failure(error))?;
            }
            (offset / PAGE..(offset + bytes.len() as u64) / PAGE).for_each(|page| here.insert(page));
        }
        Ok(Self {
            cache: Arc::clone(cache),
            file,
            id,
            kind,
            object: names::object(&id, kind),
            file_name,
            len,
            salt,
            proof,
            here,
            flights: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
            ahead: AtomicU64::new(0),
            known: known.iter().map(|(offset, bytes)| *offset..offset + bytes.len() as u64).collect(),
            room,
        })
    }

    /// What the cache has of the object now, which is nothing where this file was given up.
    fn renewed(&self) -> Result<Self, Error> {
        let mut known = Vec::with_capacity(self.known.len());
        for range in &self.known {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.file.read_at(range.start, &mut bytes)?;
            known.push((range.start, bytes));
        }
        let known: Vec<(u64, &[u8])> = known.iter().map(|(offset, bytes)| (*offset, &bytes[..])).collect();
        let Self { id, kind, len, salt, .. } = *self;
        let (object, name) =
            (Object { id, kind, len, salt, proof: self.proof.clone() }, self.file_name.clone());
        // The file that was given up is still there, and its room soon is not taken any more.
        Self::open_taking(&self.cache, object, name, &known, Share::take_in_advance)
    }

    /// The bytes of it, which are brought when they are needed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn map(self: &Arc<Self>) -> Result<Mapping, Error> {
        self.file.map(Arc::new(Handle(Arc::clone(self))))
    }

    /// Whether a page is here and whole.
    fn is_sound(&self, page: u64) -> bool {
        let mut bytes = [0; PAGE_SIZE];
        self.file.read_at(page * PAGE, &mut bytes).is_ok() && is_sealed(&bytes, page, self.salt)
    }

    fn is_here(&self, range: &Range<u64>) -> bool {
        (range.start / PAGE..range.end.div_ceil(PAGE)).all(|page| self.here.has(page))
    }

    /// The hashes of the blocks, where bytes are compared with them.
    async fn hashes(self: Arc<Self>) -> Result<Option<Arc<BlockHashes>>, RemoteError> {
        match &self.proof {
            Some(proof) => {
                let Cache { store, room, .. } = &*self.cache;
                let content = Some(&proof.content);
                let name = self.cache.source.file_name(&proof.id, HASHES, proof.content_len, content, &[]);
                proof.hashes(store, room, &name).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Keeps what came and is what it must be.
    fn keep(&self, from: u64, bytes: &[u8], hashes: Option<&BlockHashes>) -> Result<(), RemoteError> {
        self.cache.count(bytes.len() as u64);
        let (Some(hashes), Some(proof)) = (hashes, &self.proof) else {
            return self.keep_sealed(from, bytes);
        };
        hashes.right(from, bytes).try_for_each(|(at, block)| self.keep_sealed(at, block))?;
        let footer_at = proof.content_len.checked_sub(from).map(|at| at as usize);
        let footer = footer_at.and_then(|at| bytes.get(at..)).filter(|footer| !footer.is_empty());
        match footer.filter(|footer| *blake3::hash(footer).as_bytes() == proof.id) {
            Some(footer) => self.keep_sealed(proof.content_len, footer),
            None => Ok(()),
        }
    }

    /// Keeps those pages that came whole.
    fn keep_sealed(&self, from: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        let first = from / PAGE;
        let pages = bytes.chunks_exact(PAGE_SIZE).enumerate();
        let sound: Vec<bool> = pages.map(|(i, page)| is_sealed(page, first + i as u64, self.salt)).collect();
        let mut at = 0;
        for run in sound.chunk_by(|a, b| a == b) {
            let (start, end) = (at, at + run.len());
            at = end;
            if run[0] {
                let bytes = &bytes[start * PAGE_SIZE..end * PAGE_SIZE];
                self.write(from + start as u64 * PAGE, bytes)?;
                (start..end).for_each(|i| self.here.insert(first + i as u64));
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        let room = &self.cache.room;
        let put = || self.room.take(bytes.len() as u64).and_then(|()| self.file.write_at(offset, bytes));
        let written = put().or_else(|error| match error.kind() {
            // Others filled the disk since files were counted.
            ErrorKind::NoSpace => room.yield_to_disk(bytes.len() as u64).and_then(|()| put()),
            _ => Err(error),
        });
        written.map_err(|error| room.failure(error))
    }
}

/// A handle whose requests outlive the call that began them.
struct Handle(Arc<CachedFile>);

impl Handle {
    fn piece_of(&self, offset: u64) -> u64 {
        offset / self.0.cache.fetch
    }

    /// Begins to bring pieces that nobody brings yet, in one request. At least the first of them is missing.
    fn begin_pieces(&self, pieces: Range<u64>, flights: &mut HashMap<u64, Arc<Flight>>) -> Arc<Flight> {
        let (file, fetch) = (Arc::clone(&self.0), self.0.cache.fetch);
        let range = pieces.start * fetch..(pieces.end * fetch).min(file.len);
        let (from, brought) = (range.start, pieces.clone());
        let beside = Arc::clone(&file).hashes();
        let land = move |answer: Result<Landed<Option<Arc<BlockHashes>>>, RemoteError>| {
            let kept = answer.and_then(|(bytes, hashes)| file.keep(from, &bytes, hashes.as_deref()));
            let mut flights = file.flights.lock();
            brought.for_each(|piece| drop(flights.remove(&piece)));
            kept
        };
        let cache = &self.0.cache;
        let pending = cache.store.begin_landing(&self.0.object, range, beside, land);
        let began = cache.waits.load(Ordering::Relaxed);
        let flight = Arc::new(Flight { began, answer: Mutex::new(Answer::Awaited(pending)) });
        pieces.for_each(|piece| drop(flights.insert(piece, Arc::clone(&flight))));
        flight
    }

    /// The request that brings a piece: the one under way, or a new one. A reader who did not ask ahead may go through the file.
    fn flight(&self, piece: u64) -> Arc<Flight> {
        let mut flights = self.0.flights.lock();
        if let Some(flight) = flights.get(&piece) {
            return Arc::clone(flight);
        }
        let flight = self.begin_pieces(piece..piece + 1, &mut flights);
        drop(flights);
        self.go_ahead(piece);
        flight
    }

    /// Asks ahead of a reader who goes through the file: twice as much each time.
    fn go_ahead(&self, piece: u64) {
        let fetch = self.0.cache.fetch;
        let goes_on = self.0.next.load(Ordering::Relaxed) == piece;
        let ahead = match self.0.ahead.load(Ordering::Relaxed) {
            _ if !goes_on => 0,
            before => (2 * before).clamp(fetch, AHEAD_MAX),
        };
        let next = piece + 1 + ahead.div_ceil(fetch);
        self.0.ahead.store(ahead, Ordering::Relaxed);
        self.0.next.store(next, Ordering::Relaxed);
        if ahead > 0 {
            self.begin((piece + 1) * fetch..next * fetch);
        }
    }
}

impl Origin for Handle {
    fn has_page(&self, number: u64) -> bool {
        self.0.here.has(number)
    }

    fn begin(&self, range: Range<u64>) {
        let (file, fetch) = (&self.0, self.0.cache.fetch);
        let most = file.cache.room.in_advance_max().max(fetch);
        let end = range.end.min(file.len).min(range.start.saturating_add(most));
        if range.start >= end {
            return;
        }
        let mut flights = file.flights.lock();
        let is_missing = |piece: u64, flights: &HashMap<u64, Arc<Flight>>| {
            let wanted = (piece * fetch).max(range.start)..((piece + 1) * fetch).min(end);
            !flights.contains_key(&piece) && !file.is_here(&wanted)
        };
        let mut piece = self.piece_of(range.start);
        let last = self.piece_of(end - 1);
        while piece <= last {
            let from = piece;
            while piece <= last && (piece - from) * fetch < REQUEST_MAX && is_missing(piece, &flights) {
                piece += 1;
            }
            if from < piece {
                self.begin_pieces(from..piece, &mut flights);
            } else {
                piece += 1;
            }
        }
    }

    fn bring_page(&self, number: u64) -> Result<(), RemoteError> {
        let file = &self.0;
        for _ in 0..TRIES {
            if file.here.has(number) && file.is_sound(number) {
                return Ok(());
            }
            // A page that was torn, or damaged since.
            file.here.remove(number);
            let piece = self.piece_of(number * PAGE);
            self.flight(piece).wait(&file.cache)?;
        }
        if file.here.has(number) {
            return Ok(());
        }
        let object = file.cache.store.shown(&file.object);
        Err(RemoteError::Damaged { object, reason: "its bytes are not those that its name says" })
    }

    fn renewed(&self) -> Result<Mapping, Error> {
        Arc::new(self.0.renewed()?).map()
    }

    fn bring_bytes(&self, range: Range<u64>, checksum: u64) -> Result<(), RemoteError> {
        let file = &self.0;
        let mut found = vec![0; (range.end - range.start) as usize];
        let is_read = file.file.read_at(range.start, &mut found).is_ok();
        if is_read && crc64(&found) == checksum {
            return Ok(());
        }
        // With a key whole blocks: less cannot be compared with their hashes.
        let mut wanted = range.clone();
        if file.proof.is_some() {
            wanted.start -= range.start % BLOCK;
            let end = range.end.checked_next_multiple_of(BLOCK).unwrap_or(range.end);
            wanted.end = end.min(file.len).max(range.end);
        }
        for _ in 0..TRIES {
            let began = file.cache.waits.load(Ordering::Relaxed);
            let hashes = file.cache.store.run(Arc::clone(file).hashes());
            let bytes = file.cache.store.begin_get(&file.object, wanted.clone()).wait()?;
            let hashes = hashes.wait()??;
            file.cache.waits.store(began + 1, Ordering::Relaxed);
            file.cache.count(bytes.len() as u64);
            let value = &bytes[(range.start - wanted.start) as usize..][..found.len()];
            let blocks = (range.end - wanted.start).div_ceil(BLOCK) as usize;
            let is_right = |hashes: Arc<BlockHashes>| hashes.right(wanted.start, &bytes).count() == blocks;
            if hashes.is_none_or(is_right) && crc64(value) == checksum {
                return file.write(range.start, value);
            }
        }
        let object = file.cache.store.shown(&file.object);
        Err(RemoteError::Damaged { object, reason: "its bytes are not those that its name says" })
    }
}
