//! What a row of an export has: the columns of a domain, and the cells of a change.

use icecore::{Entry, StateChange};

use crate::encoding::Face;

/// The columns of a domain.
pub(super) struct Columns {
    /// The place of the domain among those of the archive.
    pub(super) number: usize,
    pub(super) domain: String,
    pub(super) face: Face,
    chain_id: Option<u64>,
    keys: Keys,
    is_state: bool,
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

/// The length of an address, in bytes.
const ADDRESS_LEN: usize = 20;

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
        domain: &str,
        is_ethereum: bool,
        is_state: bool,
        face: Face,
        chain_id: Option<u64>,
    ) -> Self {
        let keys = match (is_ethereum, domain) {
            (true, "storage") => Keys::Slot,
            (true, _) => Keys::Address,
            (false, _) => Keys::Whole,
        };
        Self { number, domain: domain.to_owned(), face, chain_id, keys, is_state }
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let key: &[_] = match self.keys {
            Keys::Whole => &["key"],
            Keys::Address => &["address"],
            Keys::Slot => &["address", "slot"],
        };
        let (transaction, chain): (&[_], &[_]) = match (self.keys, self.is_state) {
            (Keys::Whole, _) => (&[], &[]),
            (_, true) => (&[], &["chain_id"]),
            (_, false) => (&["transaction_index", "transaction_hash"], &["chain_id"]),
        };
        let values: &[_] = if self.is_state { &["value"] } else { &["from_value", "to_value"] };
        [&["block_number"], transaction, key, values, chain].concat()
    }

    /// The cells of a row, in the order of the names.
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
