//! A batch as one edit per account, checked before anything is changed.

use crate::ethereum::arena::{AccountLeaf, Body, Storage};
use crate::ethereum::batch::{StateBatch, TrieError};
use crate::ethereum::nibbles::KeyPath;
use crate::hash::Hash;

/// What happens to an account.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) path: KeyPath,
    pub(crate) present: Option<AccountLeaf>,
    /// The account afterwards; `None`: there is none.
    pub(crate) body: Option<Body>,
    pub(crate) start: Start,
    /// Ascending; zero: deleted.
    pub(crate) slots: Vec<(KeyPath, Hash)>,
}

/// The storage to which the slots of an edit are put.
#[derive(Debug)]
pub(crate) enum Start {
    /// The present one.
    Keep,
    /// None: the present one is wiped.
    Empty,
    /// One that was wiped once.
    Attach(Storage),
}

/// Turns a batch into edits, ascending by path. `present` gives accounts before the batch.
///
/// # Errors
/// The batch puts slots of an account that is not there after it.
pub(crate) fn plan(
    batch: &StateBatch,
    present: impl Fn(&[KeyPath]) -> Vec<Option<AccountLeaf>>,
) -> Result<Vec<Edit>, TrieError> {
    let (accounts, wiped, slots) = (batch.sorted_accounts(), batch.sorted_wiped(), batch.sorted_slots());
    let mut paths: Vec<KeyPath> = accounts.iter().map(|(path, _)| *path).collect();
    paths.extend(&wiped);
    paths.extend(slots.iter().map(|slot| slot.account));
    paths.sort_unstable();
    paths.dedup();
    let (mut accounts, mut wiped) = (accounts.into_iter().peekable(), wiped.into_iter().peekable());
    let mut slots = slots.into_iter().peekable();
    let mut edits = Vec::with_capacity(paths.len());
    let present = present(&paths);
    for (path, present) in paths.into_iter().zip(present) {
        let put = accounts.next_if(|(of, _)| *of == path);
        let is_wiped = wiped.next_if_eq(&path).is_some();
        let body = put.map_or(present.map(|leaf| leaf.body), |(_, body)| body);
        let mut edit = Edit { path, present, body, start: Start::Keep, slots: Vec::new() };
        if is_wiped {
            edit.start = Start::Empty;
        }
        while let Some(slot) = slots.next_if(|slot| slot.account == path) {
            if body.is_some() {
                edit.slots.push((slot.slot, slot.value));
            } else if slot.value != [0; 32] {
                return Err(TrieError::NoAccount { account: path });
            }
        }
        if present.is_some() || body.is_some() {
            edits.push(edit);
        }
    }
    Ok(edits)
}
