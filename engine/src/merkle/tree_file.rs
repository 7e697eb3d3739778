//! The file `TREE`: the [outline](icecore_hot::ethereum::OutlinePart) of a tree that is larger than its memory, as it was at one block. A
//! [tree](crate::merkle::kept_tree) begins with it where there is one, so that opening does not read the state.
//!
//! All of it follows from segments and log, so nothing is lost with it: a file that is damaged, of another archive, of another version or of
//! a block that is not there is as good as none. `FORMAT.md` describes its bytes.

use std::io::Write;
use std::path::{Path, PathBuf};

use icecore_hot::Root;
use icecore_hot::ethereum::{OutlineLoader, OutlinePart, StateTrie, StorageOutline, TrieId};
use icecore_hot::{HashBackend, ethereum::KeyPath};
use icecore_segments::bytes::{array32_at, u32_at, u64_at};
use icecore_segments::checksum::{Checksum, ContentHasher};
use icecore_segments::step::BlockNumber;

use crate::error::{Error, Operation};
use crate::merkle::outline_part::PartCoder;
use crate::merkle::row_depths::RowDepth;
use crate::options::ArchiveId;
use crate::progress::ProgressListener;
use crate::storage::directory::Directory;
use crate::storage::{ReadFile, WriteFile, layout};

const MAGIC: [u8; 8] = *b"\x8AICT\r\n\x1A\n";

const VERSION: u32 = 1;

/// The head without its checksum, and with it.
const HEAD_LEN: usize = 88;
const HEAD_END: usize = HEAD_LEN + 32;

/// A block of parts is written when it has so many bytes; none has so many as the second.
const BLOCK_LEN: usize = 1 << 18;
const BLOCK_LEN_MAX: usize = 1 << 20;

/// What the outline is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeHead {
    pub(crate) archive: ArchiveId,
    pub(crate) block: BlockNumber,
    /// The root that the block has.
    pub(crate) root: Root,
    /// How many accounts the state has, and slots.
    pub(crate) accounts: u64,
    pub(crate) slots: u64,
}

impl TreeHead {
    fn encode(&self) -> [u8; HEAD_END] {
        let mut head = [0; HEAD_END];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[16..32].copy_from_slice(&self.archive.0);
        head[32..40].copy_from_slice(&self.block.to_le_bytes());
        head[40..72].copy_from_slice(&self.root.0);
        head[72..80].copy_from_slice(&self.accounts.to_le_bytes());
        head[80..88].copy_from_slice(&self.slots.to_le_bytes());
        let checksum = checksum(&[&head[..HEAD_LEN]]);
        head[HEAD_LEN..].copy_from_slice(&checksum.0);
        head
    }

    fn decode(head: &[u8; HEAD_END]) -> Result<Self, &'static str> {
        if head[..8] != MAGIC {
            return Err("it is another kind of file");
        }
        if u32_at(head, 8) != Some(VERSION) {
            return Err("it has another version");
        }
        if head[HEAD_LEN..] != checksum(&[&head[..HEAD_LEN]]).0 {
            return Err(DAMAGED);
        }
        let number = |at| u64_at(head, at).ok_or(DAMAGED);
        let archive = ArchiveId(*head[16..].first_chunk().ok_or(DAMAGED)?);
        let root = Root(array32_at(head, 40).ok_or(DAMAGED)?);
        Ok(Self { archive, block: number(32)?, root, accounts: number(72)?, slots: number(80)? })
    }
}

const DAMAGED: &str = "it is damaged";

fn checksum(parts: &[&[u8]]) -> Checksum {
    let mut hasher = ContentHasher::default();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finish()
}

/// Writes the outline of the trie of a block in the place of the one that is there.
///
/// # Durability
/// When this returns it survives a power loss. When it fails, the former one or this one does.
pub(crate) fn write(directory: &Directory, trie: &StateTrie, block: BlockNumber) -> Result<(), Error> {
    let (storage, fresh) = (&*directory.storage, directory.path.join(layout::TREE_NEW));
    storage.remove(&fresh)?;
    let archive = directory.config.id;
    let (root, accounts, slots) = (trie.root(), trie.accounts(), trie.slots());
    let head = TreeHead { archive, block, root, accounts, slots };
    let written = storage.create(&fresh).and_then(|file| TreeWriter::write(&fresh, file, head, trie));
    written.inspect_err(|_| {
        // What cannot be removed now is garbage that the next opening removes.
        let _ = storage.remove(&fresh);
    })?;
    storage.rename(&fresh, &directory.path.join(layout::TREE))?;
    storage.sync_dir(&directory.path)
}

struct TreeWriter<'p> {
    path: &'p Path,
    file: Box<dyn WriteFile>,
    /// That of the block before, or of the head.
    last: Checksum,
    body: Vec<u8>,
}

impl<'p> TreeWriter<'p> {
    fn write(
        path: &'p Path,
        file: Box<dyn WriteFile>,
        head: TreeHead,
        trie: &StateTrie,
    ) -> Result<(), Error> {
        let head = head.encode();
        let last = Checksum(*head.last_chunk().expect("a head ends with its checksum"));
        let mut writer = Self { path, file, last, body: Vec::with_capacity(BLOCK_LEN + 256) };
        writer.append(&head)?;
        let mut coder = PartCoder::default();
        trie.outline(|trie, part| {
            coder.put(&mut writer.body, trie, part);
            if writer.body.len() < BLOCK_LEN { Ok(()) } else { writer.end_block() }
        })?;
        if !writer.body.is_empty() {
            writer.end_block()?;
        }
        // An empty one ends the file.
        writer.end_block()?;
        writer.file.sync()
    }

    fn end_block(&mut self) -> Result<(), Error> {
        let body = std::mem::take(&mut self.body);
        let len = (body.len() as u32).to_le_bytes();
        self.last = checksum(&[&self.last.0, &len, &body]);
        let last = self.last;
        [&len[..], &body, &last.0].iter().try_for_each(|bytes| self.append(bytes))?;
        self.body = body;
        self.body.clear();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        let (operation, path) = (Operation::Write, self.path.to_owned());
        written.map_err(|source| Error::Io { operation, path, source })
    }
}

/// The file of an archive, its head read.
pub(crate) struct TreeFile {
    path: PathBuf,
    file: Box<dyn ReadFile>,
    pub(crate) head: TreeHead,
}

/// Why a file is of no use.
pub(crate) type Unfit = String;

/// A trie from its outline.
pub(crate) struct OutlinedTrie {
    pub(crate) trie: StateTrie,
    /// The accounts with so many slots that their storages may have rows.
    pub(crate) large: Vec<KeyPath>,
}

impl TreeFile {
    /// The file of an archive, if it has one.
    pub(crate) fn open(directory: &Directory) -> Result<Option<Self>, Unfit> {
        let path = directory.path.join(layout::TREE);
        let file = directory.storage.open(&path).map_err(|error| error.to_string())?;
        let Some(file) = file else { return Ok(None) };
        let mut head = [0; HEAD_END];
        read_exact(&*file, 0, &mut head)?;
        let head = TreeHead::decode(&head)?;
        if head.archive != directory.config.id {
            return Err("it is of another archive".to_owned());
        }
        Ok(Some(Self { path, file, head }))
    }

    /// Puts the trie together. Its root is that of the head.
    ///
    /// # Cost
    /// One pass over the file. Memory for the trie and for a block.
    pub(crate) fn load(&self, listener: &dyn ProgressListener) -> Result<OutlinedTrie, Unfit> {
        let len = self.file.len().map_err(|error| error.to_string())?;
        listener.begin(&format!("read {}, bytes", self.path.display()), Some(len));
        let loaded = self.load_parts(len, listener);
        listener.end();
        let loaded = loaded?;
        if loaded.trie.root() == self.head.root { Ok(loaded) } else { Err(DAMAGED.to_owned()) }
    }

    fn load_parts(&self, len: u64, listener: &dyn ProgressListener) -> Result<OutlinedTrie, Unfit> {
        let (mut loader, mut coder) = (OutlineLoader::new(HashBackend::default()), PartCoder::default());
        let (mut large, mut body) = (Vec::new(), Vec::new());
        let (mut at, mut last) = (HEAD_END as u64, checksum(&[&self.head.encode()[..HEAD_LEN]]));
        loop {
            let mut prefix = [0; 4];
            read_exact(&*self.file, at, &mut prefix)?;
            let body_len = u32::from_le_bytes(prefix) as usize;
            if body_len > BLOCK_LEN_MAX {
                return Err(DAMAGED.to_owned());
            }
            body.resize(body_len + 32, 0);
            read_exact(&*self.file, at + 4, &mut body)?;
            let (parts, found) = body.split_at(body_len);
            last = checksum(&[&last.0, &prefix, parts]);
            if found != last.0 {
                return Err(DAMAGED.to_owned());
            }
            at += (4 + body.len()) as u64;
            listener.advance((4 + body.len()) as u64);
            if parts.is_empty() {
                break;
            }
            let mut rest = parts;
            while !rest.is_empty() {
                let (trie, part) = coder.take(&mut rest).ok_or(DAMAGED)?;
                push(&mut loader, &mut large, &trie, &part)?;
            }
        }
        if at != len {
            return Err(DAMAGED.to_owned());
        }
        let trie = loader.finish(self.head.accounts, self.head.slots).map_err(|error| error.to_string())?;
        Ok(OutlinedTrie { trie, large })
    }
}

fn push(
    loader: &mut OutlineLoader,
    large: &mut Vec<KeyPath>,
    trie: &TrieId,
    part: &OutlinePart,
) -> Result<(), Unfit> {
    if let OutlinePart::Account { path, storage: StorageOutline::Open(slots), .. } = part
        && *slots >= RowDepth::LEAVES_MIN
    {
        large.push(*path);
    }
    loader.push(trie, part).map_err(|error| error.to_string())
}

fn read_exact(file: &dyn ReadFile, at: u64, bytes: &mut [u8]) -> Result<(), Unfit> {
    let read = file.read_at(at, bytes).map_err(|error| error.to_string())?;
    if read == bytes.len() { Ok(()) } else { Err("it is cut short".to_owned()) }
}
