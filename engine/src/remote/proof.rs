//! What the bytes of a file in a bucket must be, for a reader that believes only a key: hashes that its generation names, and those of the blocks.
//!
//! Used by the cache, which compares what comes before it keeps a byte.

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::remote::blocks::{self, BlockHashes};
use crate::remote::names::{self, Hash};
use crate::remote::patience::TRIES;
use crate::remote::room::Room;
use crate::remote::store::Store;
use crate::remote_error::RemoteError;
use crate::storage::sparse::SparseFile;

/// What the bytes of an object must be.
pub(crate) struct Proof {
    /// The hash of its footer page.
    pub(crate) id: Hash,
    /// The hash of all before it.
    pub(crate) content: Hash,
    pub(crate) content_len: u64,
    /// Of its blocks, once they are here.
    hashes: OnceCell<Arc<BlockHashes>>,
}

impl Proof {
    /// For an object with this id and this content.
    pub(crate) fn new(id: Hash, content: Hash, content_len: u64) -> Arc<Self> {
        Arc::new(Self { id, content, content_len, hashes: OnceCell::new() })
    }

    /// The hashes of the blocks: those in the cache, or else those of the bucket.
    pub(crate) async fn hashes(
        &self,
        store: &Store,
        room: &Arc<Room>,
        file_name: &str,
    ) -> Result<Arc<BlockHashes>, RemoteError> {
        let load = || async { self.load(store, room, file_name).await.map(Arc::new) };
        let hashes = self.hashes.get_or_try_init(load);
        hashes.await.cloned()
    }

    /// # Errors
    /// [`RemoteError::Damaged`]; those of a request, and of the cache.
    async fn load(&self, store: &Store, room: &Arc<Room>, name: &str) -> Result<BlockHashes, RemoteError> {
        let read = |bytes: &[u8]| BlockHashes::read(bytes, self.content_len, self.content);
        let len = 32 * blocks::count(self.content_len);
        if let Some(hashes) = read(&[]).filter(|_| len == 0) {
            return Ok(hashes);
        }
        let kept = SparseFile::open(&room.path_of(name), len).and_then(|file| {
            let share = room.share(name, file.id, file.allocated()?);
            let mut bytes = vec![0; len as usize];
            file.read_at(0, &mut bytes)?;
            Ok((file, share, bytes))
        });
        let (file, share, bytes) = kept.map_err(|error| room.failure(error))?;
        if let Some(hashes) = read(&bytes) {
            return Ok(hashes);
        }
        let object = names::hashes(&self.id);
        for _ in 0..TRIES {
            let bytes = store.part(&object, 0..len).await?;
            if let Some(hashes) = read(&bytes) {
                let written = share.take(len).and_then(|()| file.write_at(0, &bytes));
                written.map_err(|error| room.failure(error))?;
                return Ok(hashes);
            }
        }
        let reason = "they are not the hashes of its file";
        Err(RemoteError::Damaged { object: store.shown(&object), reason })
    }
}
