//! What takes a block back.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ethereum::arena::{Body, Storage};
use crate::ethereum::nibbles::KeyPath;
use crate::ethereum::ptr::Ptr;
use crate::hash::Hash;

/// Takes a batch back, as long as it is the last that was applied and not yet undone.
///
/// A storage that the batch wiped is kept whole in here: wiping costs nothing by the slot, and neither does taking it
/// back. Dropping the undo lets the trie free it, a little with each batch.
#[derive(Debug)]
pub struct Undo {
    /// Ascending by path.
    pub(crate) accounts: Vec<AccountUndo>,
    pub(crate) garbage: Arc<Garbage>,
}

/// One account before the batch.
#[derive(Debug)]
pub(crate) struct AccountUndo {
    pub(crate) path: KeyPath,
    /// `None`: there was none.
    pub(crate) body: Option<Body>,
    /// The storage before, where the batch wiped it.
    pub(crate) wiped: Option<Detached>,
    /// The slots that the batch changed, ascending, and their values before; zero: none.
    pub(crate) slots: Vec<(KeyPath, Hash)>,
}

impl Undo {
    /// The number of accounts that the batch changed, and of slots.
    pub fn len(&self) -> usize {
        self.accounts.len() + self.accounts.iter().map(|account| account.slots.len()).sum::<usize>()
    }

    /// Whether the batch changed nothing.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }
}

/// Tries that nobody can get back.
#[derive(Debug, Default)]
pub(crate) struct Garbage(Mutex<Vec<Ptr>>);

impl Garbage {
    pub(crate) fn add(&self, node: Ptr) {
        if node != Ptr::NONE {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        }
    }

    /// Moves all of them to `nodes`.
    pub(crate) fn take(&self, nodes: &mut Vec<Ptr>) {
        nodes.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A storage that hangs on no account: garbage when it is dropped.
#[derive(Debug)]
pub(crate) struct Detached {
    storage: Storage,
    garbage: Arc<Garbage>,
}

impl Detached {
    pub(crate) fn new(storage: Storage, garbage: &Arc<Garbage>) -> Self {
        Self { storage, garbage: Arc::clone(garbage) }
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Hangs it on an account again.
    pub(crate) fn attach(mut self) -> Storage {
        std::mem::replace(&mut self.storage, Storage::EMPTY)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.garbage.add(self.storage.node);
    }
}
