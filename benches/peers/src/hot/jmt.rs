//! The Jellyfish Merkle tree of Penumbra over a map in memory that keeps the latest version only.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::RandomState;
use jmt::storage::{LeafNode, Node, NodeKey, TreeReader, TreeUpdateBatch};
use jmt::{JellyfishMerkleTree, KeyHash, OwnedValue, Version};
use sha2::Sha256;

use super::{Peer, Run};
use crate::Outcome;

/// The tree over [`Nodes`].
pub(super) struct Jmt;

impl Peer for Jmt {
    fn name(&self) -> &'static str {
        "jmt"
    }

    fn settings(&self) -> &'static str {
        "jmt 0.12; SHA-256 (its default); put_value_set per batch; nodes in a hash map, stale nodes removed after each batch, values not kept; \
         in memory, nothing durable; one thread (it has no other mode)"
    }

    fn is_parallel(&self) -> bool {
        false
    }

    fn run(&self, _: usize, _: &Path, run: &mut Run) -> Outcome {
        let mut nodes = Nodes::default();
        let mut version = 0;
        while let Some(changes) = run.next() {
            let set = changes
                .iter()
                .map(|change| (KeyHash::with::<Sha256>(change.key), change.value.map(Vec::from)));
            let tree = JellyfishMerkleTree::<_, Sha256>::new(&nodes);
            let (root, update) = tree.put_value_set(set, version)?;
            nodes.take(update);
            version += 1;
            run.applied(root.0)?;
        }
        Ok(())
    }
}

/// The nodes of the latest version.
#[derive(Default)]
struct Nodes(HashMap<NodeKey, Node, RandomState>);

impl Nodes {
    fn take(&mut self, update: TreeUpdateBatch) {
        let new = update.node_batch.nodes().iter();
        self.0.extend(new.map(|(key, node)| (key.clone(), node.clone())));
        for stale in &update.stale_node_index_batch {
            self.0.remove(&stale.node_key);
        }
    }
}

impl TreeReader for Nodes {
    fn get_node_option(&self, key: &NodeKey) -> anyhow::Result<Option<Node>> {
        Ok(self.0.get(key).cloned())
    }

    fn get_value_option(&self, _: Version, _: KeyHash) -> anyhow::Result<Option<OwnedValue>> {
        anyhow::bail!("values are not kept")
    }

    fn get_rightmost_leaf(&self) -> anyhow::Result<Option<(NodeKey, LeafNode)>> {
        anyhow::bail!("only a restore asks for this")
    }
}
