//! What a row of an export has: the columns of a domain, and the cells of a change.

use icecore::{Domain, Entry, StateChange};

use crate::encoding::Face;

/// The columns of a domain.
pub(super) struct Columns {
    /// The place of the domain among those of the archive.
    pub(super) number: usize,
    pub(super) domain: String,
    pub(super) face: Face,
    chain_id: Option<u64>,
    keys: Keys,
    /// The length of all keys, where the archive declares it.
    key_len: Option<usize>,
    is_state: bool,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Whether a row may have nothing there.
    pub(super) is_nullable: bool,
}

/// What a column has, for files whose columns have types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number.
    Number,
    /// Bytes of any length.
    Bytes,
    /// Bytes of this length.
    Fixed(usize),
    /// The big-endian bytes of a number of 64 bits.
    Bits64,
    /// The big-endian bytes of a number of 256 bits.
    Bits256,
}

/// How a key is split.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// It is one cell.
    Whole,
    /// It is an address.
    Address,
    /// It is an address and a slot.
    Slot,
}

/// What is said of a file that has other columns than these.
pub(super) const OTHER_COLUMNS: &str = "other columns";

/// The length of an address, in bytes.
const ADDRESS_LEN: usize = 20;

/// The length of the hash of a transaction, in bytes.
const HASH_LEN: usize = 32;

/// What one block did to one key, or in a state the key and its value.
pub(super) struct Row {
    pub(super) block: u64,
    pub(super) domain: usize,
    pub(super) key: Vec<u8>,
    /// Nothing in a state.
    pub(super) before: Option<Vec<u8>>,
    pub(super) after: Option<Vec<u8>>,
}

impl From<StateChange> for Row {
    fn from(StateChange { block, domain, key, before, after }: StateChange) -> Self {
        Self { block, domain, key, before, after }
    }
}

impl Row {
    pub(super) fn of_state(block: u64, domain: usize, Entry { key, value, .. }: Entry) -> Self {
        Self { block, domain, key, before: None, after: Some(value) }
    }
}

/// One cell of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'r> {
    Number(u64),
    Bytes(&'r [u8]),
    Null,
}

impl<'r> Cell<'r> {
    fn value(value: Option<&'r Vec<u8>>) -> Self {
        value.map_or(Self::Null, |value| Self::Bytes(value))
    }
}

impl Columns {
    pub(super) fn new(
        number: usize,
        domain: &Domain,
        is_ethereum: bool,
        is_state: bool,
        face: Face,
        chain_id: Option<u64>,
    ) -> Self {
        let keys = match (is_ethereum, domain.name.as_str()) {
            (true, "storage") => Keys::Slot,
            (true, _) => Keys::Address,
            (false, _) => Keys::Whole,
        };
        let (domain, key_len) = (domain.name.clone(), domain.scanned_key_len());
        Self { number, domain, face, chain_id, keys, key_len, is_state }
    }

    /// All of them, in order.
    pub(super) fn all(&self) -> Vec<Column> {
        let column = |name, kind, is_nullable| Column { name, kind, is_nullable };
        let key = self.key_len.map_or(Kind::Bytes, Kind::Fixed);
        let address = self.key_len.map_or(Kind::Bytes, |_| Kind::Fixed(ADDRESS_LEN));
        let slot = self.key_len.map_or(Kind::Bytes, |len| Kind::Fixed(len.saturating_sub(ADDRESS_LEN)));
        let value = match (self.keys, self.domain.as_str()) {
            (Keys::Address, "nonce") => Kind::Bits64,
            (Keys::Address, "balance") | (Keys::Slot, _) => Kind::Bits256,
            _ => Kind::Bytes,
        };
        let mut all = vec![column("block_number", Kind::Number, false)];
        if self.keys != Keys::Whole && !self.is_state {
            all.push(column("transaction_index", Kind::Number, true));
            all.push(column("transaction_hash", Kind::Fixed(HASH_LEN), true));
        }
        match self.keys {
            Keys::Whole => all.push(column("key", key, false)),
            Keys::Address => all.push(column("address", key, false)),
            Keys::Slot => all.extend([column("address", address, false), column("slot", slot, false)]),
        }
        if self.is_state {
            all.push(column("value", value, false));
        } else {
            all.extend([column("from_value", value, true), column("to_value", value, true)]);
        }
        if self.keys != Keys::Whole {
            all.push(column("chain_id", Kind::Number, true));
        }
        all
    }

    /// The cells of a row, in the order of the columns.
    pub(super) fn for_each_cell<'r, E>(
        &self,
        row: &'r Row,
        mut show: impl FnMut(Cell<'r>) -> Result<(), E>,
    ) -> Result<(), E> {
        show(Cell::Number(row.block))?;
        if self.keys != Keys::Whole && !self.is_state {
            show(Cell::Null)?;
            show(Cell::Null)?;
        }
        match self.keys {
            Keys::Slot => {
                // An archive from before lengths were declared may have keys of any.
                let (address, slot) = row.key.split_at(row.key.len().min(ADDRESS_LEN));
                show(Cell::Bytes(address))?;
                show(Cell::Bytes(slot))?;
            }
            Keys::Whole | Keys::Address => show(Cell::Bytes(&row.key))?,
        }
        if !self.is_state {
            show(Cell::value(row.before.as_ref()))?;
        }
        show(Cell::value(row.after.as_ref()))?;
        if self.keys != Keys::Whole {
            show(self.chain_id.map_or(Cell::Null, Cell::Number))?;
        }
        Ok(())
    }
}
