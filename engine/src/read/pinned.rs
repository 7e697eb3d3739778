//! The read state that a view pins: it answers the same whatever happens meanwhile.
//!
//! On a disk of this machine that is the read state itself. Of a bucket it is one whose files may be exchanged for empty ones of the same
//! objects, so that who keeps a view does not keep the cache full.

use std::sync::Arc;

use crate::error::Error;
use crate::read::read_state::ReadState;
#[cfg(feature = "object-store")]
use crate::read::renewal::Renewable;

/// See the module.
#[derive(Clone)]
pub(crate) enum Pinned {
    /// What it needs stays where it is.
    Here(Arc<ReadState>),
    /// What it needs comes into a cache, which may be full of what was read before.
    #[cfg(feature = "object-store")]
    Elsewhere(Arc<Renewable>),
}

impl Pinned {
    /// Reads. Where the cache is full, `read` is called again with one that is not, and must begin anew.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        mut read: impl FnMut(&Arc<ReadState>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self {
            Self::Here(state) => read(state),
            #[cfg(feature = "object-store")]
            Self::Elsewhere(renewable) => renewable.read(&mut read),
        }
    }

    /// The state as it is now. Who holds it holds its files.
    pub(crate) fn state(&self) -> Arc<ReadState> {
        match self {
            Self::Here(state) => Arc::clone(state),
            #[cfg(feature = "object-store")]
            Self::Elsewhere(renewable) => renewable.state(),
        }
    }
}
