//! The directory of one archive: where it is, what it is, and who may still remove files of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::options::Config;
use crate::storage::Storage;

/// Where an archive lives and what it is: shared by everything that touches its files.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) path: PathBuf,
    pub(crate) config: Arc<Config>,
    pub(crate) removals: Removals,
}

/// The right to remove files of a directory. It ends with the writer's lock: the next writer may use a name again that
/// a reader of this one still holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removals {
    ended: Arc<Mutex<bool>>,
}

impl Removals {
    /// Nothing is removed any more when this returns.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
    }

    pub(crate) fn while_allowed(&self, remove: impl FnOnce()) {
        let ended = self.ended.lock();
        if !*ended {
            remove();
        }
    }
}

impl Directory {
    pub(crate) fn new(storage: &Arc<dyn Storage>, path: &Path, config: &Config) -> Self {
        Self {
            storage: Arc::clone(storage),
            path: path.to_owned(),
            config: Arc::new(config.clone()),
            removals: Removals::default(),
        }
    }
}
