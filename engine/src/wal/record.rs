//! The bytes of the log: file header, record header, record bodies. Described in `FORMAT.md`.
//!
//! The one place that encodes and decodes them. Nothing here reads or writes a file.

use icecore_index::FilterHash;
use icecore_segments::bytes::{array32_at, put_varint, take_varint, u32_at, u64_at};
use icecore_segments::checksum::crc64;
use icecore_segments::step::BlockNumber;
use icecore_segments::{KEY_LEN_MAX, VALUE_LEN_MAX};

use super::header::{FILE_HEADER_LEN, FileHeader, VERSION_WITHOUT_FINGERPRINTS};
use crate::domain::DomainId;
use crate::options::Config;

/// The length of what stands before each record's body, in bytes.
pub(crate) const RECORD_HEADER_LEN: usize = 32;

/// The longest body, in bytes: what its length field can say.
pub(crate) const BODY_LEN_MAX: u64 = u32::MAX as u64;

pub(super) const HEADER_SUM_AT: usize = 0;
pub(super) const BODY_SUM_AT: usize = 8;
pub(super) const LEN_AT: usize = 16;
pub(super) const KIND_AT: usize = 20;
pub(super) const DURABLE_AT: usize = 24;

const ROOT_AT: usize = 8;
const COUNT_AT: usize = 40;
const FINGERPRINTS_AT: usize = 44;
const FINGERPRINT_LEN: usize = 4;
const SUM_LEN: usize = 8;

/// The bytes of a block's body that tell how long its head is.
pub(super) const HEAD_START: usize = FINGERPRINTS_AT;

const _: () = assert!(DURABLE_AT + 8 == RECORD_HEADER_LEN);

/// One record of the log, as replay sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A block was committed.
    Block(BlockRecord),
    /// The blocks above a height were forgotten.
    Unwind {
        /// The new head.
        to: BlockNumber,
    },
}

/// A committed block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    /// Its height.
    pub(crate) height: BlockNumber,
    /// The root of the state after it.
    pub(crate) root: [u8; 32],
    /// What it changed, strictly ascending by domain, then key.
    pub(crate) changes: Vec<Change>,
}

/// One change of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The number of the domain.
    pub(crate) domain: u16,
    /// The key.
    pub(crate) key: Vec<u8>,
    /// The new value; `None` deletes.
    pub(crate) value: Option<Vec<u8>>,
}

/// A record that is about to be appended, borrowed from wherever it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordRef<'a> {
    /// A block is being committed.
    Block {
        /// Its height.
        height: BlockNumber,
        /// The root of the state after it.
        root: &'a [u8; 32],
        /// What it changes, strictly ascending by domain, then key.
        changes: &'a [ChangeRef<'a>],
    },
    /// The blocks above a height are being forgotten.
    Unwind {
        /// The new head.
        to: BlockNumber,
    },
}

/// A [`Change`], borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeRef<'a> {
    /// The number of the domain.
    pub(crate) domain: u16,
    /// The key.
    pub(crate) key: &'a [u8],
    /// The new value; `None` deletes.
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> From<&'a Change> for ChangeRef<'a> {
    fn from(change: &'a Change) -> Self {
        Self { domain: change.domain, key: &change.key, value: change.value.as_deref() }
    }
}

impl From<ChangeRef<'_>> for Change {
    fn from(change: ChangeRef<'_>) -> Self {
        Self { domain: change.domain, key: change.key.to_vec(), value: change.value.map(<[u8]>::to_vec) }
    }
}

impl RecordRef<'_> {
    /// What kind of record this is in the file.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Block { .. } => Kind::Block,
            Self::Unwind { .. } => Kind::Unwind,
        }
    }

    /// The length of the body in bytes, as files of the newest version have it; those of older ones have less.
    pub(crate) fn body_len(&self) -> u64 {
        match self {
            Self::Block { changes, .. } => {
                // Height and root, the number of changes, their fingerprints, the checksum of all that.
                let head = (FINGERPRINTS_AT + changes.len() * FINGERPRINT_LEN + SUM_LEN) as u64;
                changes.iter().fold(head, |len, change| len + change_len(change))
            }
            Self::Unwind { .. } => 8,
        }
    }

    /// Appends the body, as files of this version have it. Returns where in `out` the changes of a block begin.
    pub(super) fn encode_body(&self, out: &mut Vec<u8>, version: u16) -> usize {
        match self {
            Self::Block { height, root, changes } => {
                let from = out.len();
                out.extend_from_slice(&height.to_le_bytes());
                out.extend_from_slice(*root);
                if version != VERSION_WITHOUT_FINGERPRINTS {
                    // A body is shorter than 4 GiB, so this is its number of changes or the body is refused.
                    out.extend_from_slice(&(changes.len() as u32).to_le_bytes());
                    for change in *changes {
                        out.extend_from_slice(&fingerprint(change.domain, change.key).to_le_bytes());
                    }
                    let sum = crc64(&out[from..]);
                    out.extend_from_slice(&sum.to_le_bytes());
                }
                let changes_at = out.len();
                changes.iter().for_each(|change| encode_change(out, change));
                changes_at
            }
            Self::Unwind { to } => {
                out.extend_from_slice(&to.to_le_bytes());
                out.len()
            }
        }
    }
}

/// What a block keeps of each key in its head: a lookup reads the changes of those blocks alone that have that of its key.
pub(crate) fn fingerprint(domain: u16, key: &[u8]) -> u32 {
    let mixed = FilterHash::of(key).to_u64() ^ u64::from(domain).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

/// Changes one after another, as a body has them after height and root.
pub(crate) fn encode_changes(changes: &[ChangeRef<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    changes.iter().for_each(|change| encode_change(&mut out, change));
    out
}

fn change_len(change: &ChangeRef<'_>) -> u64 {
    let (key, value) = (change.key.len() as u64, change.value.map_or(0, |value| value.len() as u64));
    let tag = change.value.map_or(0, |_| value + 1);
    varint_len(u64::from(change.domain)) + varint_len(key) + key + varint_len(tag) + value
}

fn varint_len(number: u64) -> u64 {
    u64::from((u64::BITS - (number | 1).leading_zeros()).div_ceil(7))
}

fn encode_change(out: &mut Vec<u8>, change: &ChangeRef<'_>) {
    put_varint(out, u64::from(change.domain));
    put_varint(out, change.key.len() as u64);
    out.extend_from_slice(change.key);
    // One more than the length, so that zero is left for the deletion.
    put_varint(out, change.value.map_or(0, |value| value.len() as u64 + 1));
    out.extend_from_slice(change.value.unwrap_or_default());
}

/// What a record is, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A [`Record::Block`].
    Block,
    /// A [`Record::Unwind`].
    Unwind,
    /// Nothing but the statement how far the file was durable.
    Mark,
    /// The last record of a sealed file.
    End,
}

impl Kind {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Block => 1,
            Self::Unwind => 2,
            Self::Mark => 3,
            Self::End => 4,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::Block, Self::Unwind, Self::Mark, Self::End].into_iter().find(|kind| kind.code() == code)
    }

    /// Whether replay has something to learn from it; the others have no body.
    pub(super) fn is_record(self) -> bool {
        matches!(self, Self::Block | Self::Unwind)
    }

    /// Reads a body whose checksum holds, of a file of this version. Of an archive with this `config`, a writer writes no other: see
    /// [`for_each_change`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode_body(
        self,
        body: &[u8],
        version: u16,
        config: &Config,
    ) -> Result<Record, &'static str> {
        match self {
            Self::Block => {
                let head = BlockHead::decode(body, version).ok_or(BAD_FIELD)?;
                let mut changes = Vec::new();
                for_each_change(body, version, config, |change| changes.push(Change::from(change)))?;
                Ok(Record::Block(BlockRecord { height: head.height, root: head.root, changes }))
            }
            Self::Unwind => decode_unwind(body).map(|to| Record::Unwind { to }).ok_or(BAD_FIELD),
            Self::Mark | Self::End => Err(BAD_FIELD),
        }
    }
}

/// The reason for a body that cannot be taken apart.
const BAD_FIELD: &str = "a field of a record";

/// The height that an unwind goes back to.
pub(super) fn decode_unwind(body: &[u8]) -> Option<BlockNumber> {
    if body.len() == 8 { u64_at(body, 0) } else { None }
}

/// What a block's body begins with: all that need be read of it to know whether it has a key.
pub(super) struct BlockHead {
    pub(super) height: BlockNumber,
    pub(super) root: [u8; 32],
    /// Of each change in order; none in files of the first version.
    pub(super) fingerprints: Vec<u32>,
    /// How long the head is. The changes follow it.
    pub(super) len: usize,
}

impl BlockHead {
    /// How long the head is of a body that begins so. `start` has [`HEAD_START`] bytes, or the body has fewer.
    pub(super) fn len(start: &[u8], version: u16) -> Option<u64> {
        if version == VERSION_WITHOUT_FINGERPRINTS {
            return Some(COUNT_AT as u64);
        }
        let count = u64::from(u32_at(start, COUNT_AT)?);
        Some((FINGERPRINTS_AT + SUM_LEN) as u64 + count * FINGERPRINT_LEN as u64)
    }

    /// Reads the head of a body. `None`: no writer wrote it.
    pub(super) fn decode(body: &[u8], version: u16) -> Option<Self> {
        let len = usize::try_from(Self::len(body, version)?).ok()?;
        let head = body.get(..len)?;
        let (height, root) = (u64_at(head, 0)?, array32_at(head, ROOT_AT)?);
        let mut fingerprints = Vec::new();
        if version != VERSION_WITHOUT_FINGERPRINTS {
            let sum_at = len - SUM_LEN;
            if u64_at(head, sum_at)? != crc64(&head[..sum_at]) {
                return None;
            }
            let bytes = head[FINGERPRINTS_AT..sum_at].chunks_exact(FINGERPRINT_LEN);
            fingerprints = bytes.filter_map(|bytes| u32_at(bytes, 0)).collect();
        }
        Some(Self { height, root, fingerprints, len })
    }
}

/// Shows the changes of a block one by one, without copying any. Of an archive with this `config`, a writer writes no others:
/// changes of declared domains alone, in order, each of a size that a segment can hold, and each with its fingerprint in
/// the head.
///
/// # Errors
/// What is wrong with the body; some changes may have been shown by then.
pub(super) fn for_each_change<'b>(
    body: &'b [u8],
    version: u16,
    config: &Config,
    mut show: impl FnMut(ChangeRef<'b>),
) -> Result<(), &'static str> {
    let head = BlockHead::decode(body, version).ok_or(BAD_FIELD)?;
    let (mut offset, mut previous) = (head.len, None);
    let mut fingerprints = head.fingerprints.iter();
    while offset < body.len() {
        let change = take_change(body, &mut offset).ok_or(BAD_FIELD)?;
        change.check(previous, config)?;
        let told = fingerprints.next();
        let is_told = told == Some(&fingerprint(change.domain, change.key));
        if version != VERSION_WITHOUT_FINGERPRINTS && !is_told {
            return Err("a fingerprint of a block is not that of its change");
        }
        previous = Some((change.domain, change.key));
        show(change);
    }
    if fingerprints.next().is_some() {
        return Err("a block has more fingerprints than changes");
    }
    Ok(())
}

impl ChangeRef<'_> {
    /// What keeps this change from following the key `previous` in a block of an archive with this `config`.
    fn check(&self, previous: Option<(u16, &[u8])>, config: &Config) -> Result<(), &'static str> {
        let domain = config.declared_domain(DomainId(self.domain));
        let domain = domain.ok_or("a block changes a domain that was not declared")?;
        if !domain.is_stored_len(self.key.len()) {
            return Err("a block has a key of another length than its domain declares");
        }
        if self.key.len() > KEY_LEN_MAX {
            return Err("a block has a key that is too long");
        }
        if self.value.is_some_and(|value| value.len() as u64 > VALUE_LEN_MAX) {
            return Err("a block has a value that is too long");
        }
        if previous.is_some_and(|previous| previous >= (self.domain, self.key)) {
            return Err("the changes of a block are out of order");
        }
        Ok(())
    }
}

pub(super) fn take_change<'b>(body: &'b [u8], offset: &mut usize) -> Option<ChangeRef<'b>> {
    let domain = u16::try_from(take_varint(body, offset)?).ok()?;
    let key_len = take_varint(body, offset)?;
    let key = take_bytes(body, offset, key_len)?;
    let value = match take_varint(body, offset)? {
        0 => None,
        len_and_one => Some(take_bytes(body, offset, len_and_one - 1)?),
    };
    Some(ChangeRef { domain, key, value })
}

fn take_bytes<'a>(body: &'a [u8], offset: &mut usize, len: u64) -> Option<&'a [u8]> {
    let end = offset.checked_add(usize::try_from(len).ok()?)?;
    let bytes = body.get(*offset..end)?;
    *offset = end;
    Some(bytes)
}

/// What stands before a record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// The length of the body.
    pub(super) len: u32,
    /// What it is.
    pub(super) kind: Kind,
    /// Every byte of the file before this offset was synced when the record was written.
    pub(super) durable: u64,
    pub(super) body_sum: u64,
}

impl RecordHeader {
    /// Reads the header at `offset` of a file. `None`: there is no sound one.
    ///
    /// Cheapest first, because the search after a bad record asks this at every offset.
    pub(super) fn at(file: &[u8], offset: usize, of_file: FileHeader) -> Option<Self> {
        Self::parse(file.get(offset..)?, offset as u64, of_file)
    }

    /// The same from the bytes that begin at `offset` of the file.
    pub(super) fn parse(bytes: &[u8], offset: u64, of_file: FileHeader) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_LEN)?;
        let kind = Kind::from_code(u32_at(bytes, KIND_AT)?)?;
        let durable = u64_at(bytes, DURABLE_AT)?;
        if durable < FILE_HEADER_LEN as u64 || durable > offset {
            return None;
        }
        let sum = header_sum(bytes, offset, of_file);
        let sound = left_out!(LogHeaderChecksum) || u64_at(bytes, HEADER_SUM_AT)? == sum;
        let (len, body_sum) = (u32_at(bytes, LEN_AT)?, u64_at(bytes, BODY_SUM_AT)?);
        (sound && (kind.is_record() || len == 0)).then_some(Self { len, kind, durable, body_sum })
    }

    /// Whether these bytes are the body.
    pub(super) fn fits(&self, body: &[u8]) -> bool {
        is_body(body, self.body_sum)
    }
}

/// Whether a body has this checksum.
pub(super) fn is_body(body: &[u8], sum: u64) -> bool {
    left_out!(LogBodyChecksum) || crc64(body) == sum
}

/// The place is mixed in by an odd multiplier, as in the pages of a segment: a bijection, so two places of a file
/// never share a checksum by cancelling.
fn header_sum(header: &[u8], offset: u64, of_file: FileHeader) -> u64 {
    crc64(&header[BODY_SUM_AT..RECORD_HEADER_LEN])
        ^ (offset ^ of_file.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Fills in the header of a record whose body stands after [`RECORD_HEADER_LEN`] free bytes.
///
/// # Panics
/// If the body is longer than [`BODY_LEN_MAX`]: the writer refuses it before.
pub(super) fn finish_record(record: &mut [u8], kind: Kind, offset: u64, durable: u64, of_file: FileHeader) {
    let (header, body) = record.split_at_mut(RECORD_HEADER_LEN);
    let len = u32::try_from(body.len()).expect("a body that its length field can hold");
    header[BODY_SUM_AT..][..8].copy_from_slice(&crc64(body).to_le_bytes());
    header[LEN_AT..][..4].copy_from_slice(&len.to_le_bytes());
    header[KIND_AT..][..4].copy_from_slice(&kind.code().to_le_bytes());
    header[DURABLE_AT..][..8].copy_from_slice(&durable.to_le_bytes());
    let sum = header_sum(header, offset, of_file);
    header[HEADER_SUM_AT..][..8].copy_from_slice(&sum.to_le_bytes());
}
