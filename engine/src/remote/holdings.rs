//! What a bucket still has of its newest generation: a push relies on nothing else.

use std::collections::{HashMap, HashSet};

use crate::remote::blocks;
use crate::remote::bucket::Bucket;
use crate::remote::manifest::RemoteManifest;
use crate::remote::names::{self, Hash};
use crate::remote_error::RemoteError;

/// What a bucket has of the objects that its newest generation names.
#[derive(Default)]
pub(super) struct Holdings {
    /// Their lengths, by name.
    objects: HashMap<String, u64>,
    /// Whether the generation is there under its own name, not only as the hint.
    pub(super) has_generation: bool,
}

impl Holdings {
    /// Lists them: one request for each 1000 objects below the prefix, whoever names them. Where the archives have no prefix of their own, one
    /// at least for each of their folders, since anything may stand beside those.
    ///
    /// # Errors
    /// [`RemoteError::Request`], [`RemoteError::Denied`].
    pub(super) fn list(bucket: &Bucket, theirs: &RemoteManifest) -> Result<Self, RemoteError> {
        let mut wanted: HashSet<String> = theirs.files().map(|file| file.object()).collect();
        wanted.insert(names::bundle(&theirs.bundle.hash));
        if theirs.signature.is_some() {
            wanted.extend(theirs.files().map(|file| names::hashes(&file.id)));
        }
        let generation = names::manifest(&bucket.archive, theirs.generation());
        wanted.insert(generation.clone());
        let folders: &[&str] = if bucket.store.has_prefix() {
            &[""]
        } else {
            &[names::OBJECTS, names::BUNDLES, names::HASHES, names::MANIFESTS]
        };
        let mut objects = HashMap::with_capacity(wanted.len());
        for folder in folders {
            let listed = bucket.store.list(folder)?.into_iter();
            objects.extend(listed.map(|it| (it.name, it.len)).filter(|(name, _)| wanted.contains(name)));
        }
        let has_generation = objects.remove(&generation) == Some(theirs.encode().len() as u64);
        Ok(Self { objects, has_generation })
    }

    /// Whether an object is there and as long as it should be.
    pub(super) fn has(&self, name: &str, len: u64) -> bool {
        self.objects.get(name) == Some(&len)
    }

    /// Whether the hashes of the blocks of a file are there, or it needs none.
    pub(super) fn has_hashes(&self, id: &Hash, content_len: u64) -> bool {
        let blocks = blocks::count(content_len);
        blocks == 0 || self.has(&names::hashes(id), 32 * blocks)
    }

    /// Whether nothing of a generation was lost.
    pub(super) fn are_whole(&self, theirs: &RemoteManifest) -> bool {
        self.has(&names::bundle(&theirs.bundle.hash), theirs.bundle.len)
            && theirs.files().all(|file| {
                let is_hashed = theirs.signature.is_none() || self.has_hashes(&file.id, file.content_len());
                is_hashed && self.has(&file.object(), file.len())
            })
    }
}
