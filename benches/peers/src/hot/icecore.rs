//! The tree of Icecore.

use std::num::NonZeroUsize;
use std::path::Path;

use icecore_hot::{Batch, HotTree, Options, Parallelism};

use super::{Peer, Run};
use crate::Outcome;

const DOMAIN: &str = "storage";

/// The tree with default options.
pub(super) struct IcecoreHot;

impl Peer for IcecoreHot {
    fn name(&self) -> &'static str {
        "icecore-hot"
    }

    fn settings(&self) -> &'static str {
        "this tree; BLAKE3; default options; in memory, nothing durable (the engine's log is); only the latest state, with an undo of each batch; \
         proofs of existence and of absence"
    }

    fn is_parallel(&self) -> bool {
        true
    }

    fn run(&self, threads: usize, _: &Path, run: &mut Run) -> Outcome {
        let mut options = Options::default();
        let more = NonZeroUsize::new(threads).filter(|threads| threads.get() > 1);
        options.parallelism = more.map_or(Parallelism::Off, Parallelism::Threads);
        let mut tree = HotTree::new(options);
        let mut batch = Batch::new();
        while let Some(changes) = run.next() {
            batch.clear();
            for change in &changes {
                match &change.value {
                    Some(value) => batch.put(DOMAIN, &change.key, value),
                    None => batch.delete(DOMAIN, &change.key),
                }
            }
            let (root, undo) = tree.apply(&batch);
            drop(undo);
            run.applied(root.0)?;
        }
        Ok(())
    }
}
