//! The parts of the outline of a tree as bytes: what [`tree_file`](crate::merkle::tree_file) has in its blocks. `FORMAT.md` has them too.

use icecore_hot::ethereum::{Account, KeyPath, Nibbles, OutlinePart, Reference, StorageOutline, TrieId};
use icecore_segments::bytes::{put_varint, take_varint};

const ACCOUNT_GROUP: u8 = 0;
const SLOT_GROUP: u8 = 1;
const ACCOUNT: u8 = 2;
const SLOT: u8 = 3;

/// In the first byte of a group: its reference is a node.
const INLINED: u8 = 0x80;

const NO_STORAGE: u8 = 0;
const CLOSED: u8 = 1;
const OPEN: u8 = 2;

/// What the bytes of a part leave to those before it.
#[derive(Default)]
pub(crate) struct PartCoder {
    /// The path of the last part.
    last: KeyPath,
    /// That of the last account.
    account: KeyPath,
}

impl PartCoder {
    /// Appends a part.
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, trie: &TrieId, part: &OutlinePart) {
        match part {
            OutlinePart::Group { position, reference, leaves } => {
                let kind = if *trie == TrieId::Accounts { ACCOUNT_GROUP } else { SLOT_GROUP };
                out.push(kind | if reference.is_inline() { INLINED } else { 0 });
                let all: Vec<u8> = position.iter().collect();
                let last = Nibbles::prefix(&self.last, all.len());
                let shared = all.iter().zip(last.iter()).take_while(|(a, b)| **a == *b).count();
                out.extend([all.len() as u8, shared as u8]);
                let rest = all[shared..].chunks(2);
                out.extend(rest.map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)));
                if reference.is_inline() {
                    out.push(reference.bytes().len() as u8);
                }
                out.extend_from_slice(reference.bytes());
                put_varint(out, u64::from(*leaves));
            }
            OutlinePart::Account { path, account, storage } => {
                out.push(ACCOUNT);
                out.extend_from_slice(path);
                let slots = match *storage {
                    StorageOutline::None => None,
                    StorageOutline::Closed(slots) => Some((CLOSED, slots)),
                    StorageOutline::Open(slots) => Some((OPEN, slots)),
                };
                out.push(slots.map_or(NO_STORAGE, |(kind, _)| kind));
                if let Some((_, slots)) = slots {
                    put_varint(out, slots);
                }
                let record = account.encode();
                put_varint(out, record.len() as u64);
                out.extend_from_slice(&record);
                self.account = *path;
            }
            OutlinePart::Slot { path, value } => {
                out.push(SLOT);
                out.extend_from_slice(path);
                let zeros = value.iter().take_while(|byte| **byte == 0).count();
                out.push((value.len() - zeros) as u8);
                out.extend_from_slice(&value[zeros..]);
            }
        }
        self.last = *part.path();
    }

    /// Takes the next part; `None` for bytes that are none.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Option<(TrieId, OutlinePart)> {
        let storage = TrieId::Storage(self.account);
        let kind = take(bytes, 1)?[0];
        let (trie, part) = match kind & !INLINED {
            ACCOUNT_GROUP => (TrieId::Accounts, self.take_group(bytes, kind & INLINED != 0)?),
            SLOT_GROUP => (storage, self.take_group(bytes, kind & INLINED != 0)?),
            ACCOUNT if kind == ACCOUNT => (TrieId::Accounts, take_account(bytes)?),
            SLOT if kind == SLOT => {
                let (path, len) = (take_array(bytes)?, usize::from(take(bytes, 1)?[0]));
                let mut value = [0; 32];
                value[32_usize.checked_sub(len)?..].copy_from_slice(take(bytes, len)?);
                (storage, OutlinePart::Slot { path, value })
            }
            _ => return None,
        };
        if let OutlinePart::Account { path, .. } = &part {
            self.account = *path;
        }
        self.last = *part.path();
        Some((trie, part))
    }

    fn take_group(&self, bytes: &mut &[u8], is_inline: bool) -> Option<OutlinePart> {
        let [len, shared] = *take(bytes, 2)? else { return None };
        let (len, shared) = (usize::from(len), usize::from(shared));
        let rest = take(bytes, len.checked_sub(shared)?.div_ceil(2))?;
        if (len - shared) % 2 == 1 && rest.last()? & 0x0F != 0 {
            return None;
        }
        let known = Nibbles::prefix(&self.last, shared.min(64));
        let rest = rest.iter().flat_map(|byte| [byte >> 4, byte & 0x0F]).take(len - shared);
        let nibbles: Vec<u8> = known.iter().chain(rest).collect();
        let position = Nibbles::from_nibbles(&nibbles).filter(|position| position.len() == len)?;
        let reference = if is_inline {
            let len = usize::from(take(bytes, 1)?[0]);
            Reference::inline(take(bytes, len)?)?
        } else {
            Reference::hash(take_array(bytes)?)
        };
        let leaves = u32::try_from(take_number(bytes)?).ok()?;
        Some(OutlinePart::Group { position, reference, leaves })
    }
}

fn take_account(bytes: &mut &[u8]) -> Option<OutlinePart> {
    let (path, kind) = (take_array(bytes)?, take(bytes, 1)?[0]);
    let mut storage = StorageOutline::None;
    if kind != NO_STORAGE {
        let slots = take_number(bytes)?;
        storage = match kind {
            CLOSED => StorageOutline::Closed(slots),
            OPEN => StorageOutline::Open(slots),
            _ => return None,
        };
    }
    let len = usize::try_from(take_number(bytes)?).ok()?;
    let account = Account::decode(take(bytes, len)?).ok()?;
    Some(OutlinePart::Account { path, account, storage })
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

fn take_array(bytes: &mut &[u8]) -> Option<[u8; 32]> {
    take(bytes, 32)?.try_into().ok()
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut offset = 0;
    let number = take_varint(bytes, &mut offset)?;
    *bytes = bytes.get(offset..)?;
    Some(number)
}

#[cfg(test)]
mod tests {
    use icecore_hot::ethereum::EMPTY_ROOT;

    use super::*;

    #[test]
    fn parts_are_read_as_they_were_written_and_no_bytes_panic() {
        let path = |byte: u8| [byte; 32];
        let position = |byte: u8, len| Nibbles::prefix(&path(byte), len);
        let group =
            |position, leaves| OutlinePart::Group { position, reference: Reference::hash(path(9)), leaves };
        let account = |storage_root| Account { nonce: 7, storage_root, ..Account::default() };
        let open = OutlinePart::Account {
            path: path(0x23),
            account: account(path(5)),
            storage: StorageOutline::Open(300),
        };
        let closed = OutlinePart::Account {
            path: path(0x24),
            account: account(path(6)),
            storage: StorageOutline::Closed(0),
        };
        let plain = OutlinePart::Account {
            path: path(0x25),
            account: account(EMPTY_ROOT),
            storage: StorageOutline::None,
        };
        let inline = Reference::inline(&[0xC1, 0x20]).unwrap();
        let (of_storage, mut value) = (TrieId::Storage(path(0x23)), [0; 32]);
        value[30] = 1;
        let parts = [
            (TrieId::Accounts, group(position(0x11, 1), 64)),
            (TrieId::Accounts, group(position(0x12, 5), 1 << 20)),
            (TrieId::Accounts, open),
            (of_storage, group(position(0x12, 16), 1)),
            (of_storage, OutlinePart::Group { position: position(0x13, 2), reference: inline, leaves: 2 }),
            (of_storage, OutlinePart::Slot { path: path(0x14), value }),
            (of_storage, OutlinePart::Slot { path: path(0x15), value: path(1) }),
            (TrieId::Accounts, closed),
            (TrieId::Accounts, plain),
        ];
        let (mut bytes, mut coder) = (Vec::new(), PartCoder::default());
        parts.iter().for_each(|(trie, part)| coder.put(&mut bytes, trie, part));
        let read = |mut bytes: &[u8]| {
            let (mut coder, mut parts) = (PartCoder::default(), Vec::new());
            while let Some(part) = coder.take(&mut bytes) {
                parts.push(part);
            }
            (parts, bytes.len())
        };
        assert_eq!(read(&bytes), (parts.to_vec(), 0));
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).0.len() < parts.len());
            for flip in [1, 0x55, 0x80, 0xFF] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                assert_ne!(read(&other).0, parts, "byte {at}");
            }
        }
    }
}
