//! The [nodes](crate::memtable::node_key) of one step in memory.
//!
//! A snapshot writes a thousand nodes for a few hundred changes, few of them are asked for before their step is emitted,
//! and they come in order. So what a block writes stays as it came, a run of its own, and the writer searches nothing.
//! Emission puts the runs in order all at once. Whoever reads before merges runs that are many: the longer a run, the
//! seldomer it is merged again, and the writer does not wait for it.
//!
//! Invariants:
//! - `R1`: in a run, versions ascend by key, then by block.
//! - `R2`: every block of a run is below every block of the next.

use std::ops::Bound;
use std::sync::Arc;

use icecore_segments::step::BlockNumber;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::memtable::node_key::NodeVersion;
use crate::memtable::{Direction, Found};

/// Versions in order.
type Run = Arc<Vec<NodeVersion>>;

/// More runs than this are merged before a read.
const RUNS_MAX: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    runs: RwLock<Vec<Run>>,
    /// Held by the reader that merges: there is one at a time.
    merging: Mutex<()>,
}

impl NodeTable {
    /// Adds what one block writes, ascending by key. The block is above all blocks in the table.
    pub(crate) fn push(&self, versions: Vec<NodeVersion>) {
        debug_assert!(versions.is_sorted_by(|a, b| a.key < b.key), "R1: a block writes a key once");
        if !versions.is_empty() {
            self.runs.write().push(Arc::new(versions));
        }
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.read().is_empty()
    }

    /// The newest version of `key` at or below `at`.
    pub(crate) fn get(&self, key: &[u8], at: BlockNumber) -> Option<Found> {
        self.settled().iter().rev().find_map(|run| newest(versions_of(run, key), at)).map(NodeVersion::found)
    }

    /// The versions of `key` at or below `at`, newest first.
    pub(crate) fn history(&self, key: &[u8], at: BlockNumber) -> Vec<Found> {
        let runs = self.settled();
        let versions = runs.iter().rev().flat_map(|run| versions_of(run, key).iter().rev());
        versions.filter(|version| version.block <= at).map(NodeVersion::found).collect()
    }

    /// Up to `limit` keys inside `bounds` that have a version at or below `at`, each with the newest such version, in
    /// the direction given.
    pub(crate) fn range(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at: BlockNumber,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Vec<u8>, Found)> {
        let runs = self.settled();
        // The first n keys of all runs are among the first n of each.
        let mut found: Vec<&NodeVersion> = Vec::new();
        for run in runs.iter().rev() {
            let keys = inside(run, bounds).chunk_by(|a, b| a.key == b.key);
            let visible = |versions| newest(versions, at);
            match direction {
                Direction::Forward => found.extend(keys.filter_map(visible).take(limit)),
                Direction::Backward => found.extend(keys.rev().filter_map(visible).take(limit)),
            }
        }
        // Stable, so that of one key the newest run comes first.
        found.sort_by(|a, b| match direction {
            Direction::Forward => a.key.cmp(&b.key),
            Direction::Backward => b.key.cmp(&a.key),
        });
        found.dedup_by_key(|version| version.key);
        found.truncate(limit);
        found.into_iter().map(|version| (version.key.as_bytes().to_vec(), version.found())).collect()
    }

    /// All runs, for emission: nothing is added any more.
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.read().clone()
    }

    /// A copy that has only the versions at or below `to`.
    pub(crate) fn unwound(&self, to: BlockNumber) -> Self {
        let keep = |run: &Run| -> Run {
            if run.iter().all(|version| version.block <= to) {
                return Arc::clone(run);
            }
            Arc::new(run.iter().filter(|version| version.block <= to).cloned().collect())
        };
        let mut runs: Vec<Run> = self.runs.read().iter().map(keep).collect();
        runs.retain(|run| !run.is_empty());
        Self { runs: RwLock::new(runs), merging: Mutex::default() }
    }

    /// Bytes of keys and values held.
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.read().iter().map(|run| bytes_of(run)).sum()
    }

    /// The runs, few enough to search each of them.
    fn settled(&self) -> RwLockReadGuard<'_, Vec<Run>> {
        let runs = self.runs.read();
        if runs.len() <= RUNS_MAX {
            return runs;
        }
        drop(runs);
        let merging = self.merging.lock();
        let runs = self.runs();
        if runs.len() > RUNS_MAX {
            let from = merged_from(&runs);
            let merged = in_order(&runs[from..]).into_iter().cloned().collect();
            // The writer may have added some meanwhile, after these.
            self.runs.write().splice(from..runs.len(), [Arc::new(merged)]);
        }
        drop(merging);
        self.runs.read()
    }
}

/// All versions, ascending by key, then by block.
pub(crate) fn in_order(runs: &[Run]) -> Vec<&NodeVersion> {
    let mut versions: Vec<(u64, &NodeVersion)> =
        runs.iter().flat_map(|run| run.iter()).map(|version| (version.key.head(), version)).collect();
    // Stable, so that by R2 blocks stay in order, and fast on what is a row of runs. The first bytes tell most keys apart
    // without a look at the version, which is anywhere.
    versions.sort_by(|(head, version), (other_head, other)| {
        head.cmp(other_head).then_with(|| version.key.cmp(&other.key))
    });
    versions.into_iter().map(|(_, version)| version).collect()
}

/// Bytes of the keys and values of a run.
pub(crate) fn bytes_of(run: &[NodeVersion]) -> u64 {
    let bytes = |version: &NodeVersion| {
        version.key.as_bytes().len() + version.value.as_bytes().map_or(0, <[u8]>::len)
    };
    run.iter().map(|version| bytes(version) as u64).sum()
}

/// The first of the runs to merge: those before it stay because each is at least as long as all after it.
fn merged_from(runs: &[Run]) -> usize {
    let mut after = 0;
    let mut from = runs.len();
    for (at, run) in runs.iter().enumerate().rev() {
        if run.len() < after {
            from = at;
        }
        after += run.len();
    }
    from.min(runs.len().saturating_sub(2))
}

/// The part of a run inside bounds that admit a key.
fn inside<'r>(run: &'r [NodeVersion], (lower, upper): (Bound<&[u8]>, Bound<&[u8]>)) -> &'r [NodeVersion] {
    let below = |key: &[u8]| run.partition_point(|version| version.key.as_bytes() < key);
    let up_to = |key: &[u8]| run.partition_point(|version| version.key.as_bytes() <= key);
    let from = match lower {
        Bound::Unbounded => 0,
        Bound::Included(key) => below(key),
        Bound::Excluded(key) => up_to(key),
    };
    let to = match upper {
        Bound::Unbounded => run.len(),
        Bound::Included(key) => up_to(key),
        Bound::Excluded(key) => below(key),
    };
    &run[from..to]
}

fn versions_of<'r>(run: &'r [NodeVersion], key: &[u8]) -> &'r [NodeVersion] {
    inside(run, (Bound::Included(key), Bound::Included(key)))
}

/// Of the versions of one key the newest at or below `at`.
fn newest(versions: &[NodeVersion], at: BlockNumber) -> Option<&NodeVersion> {
    versions[..versions.partition_point(|version| version.block <= at)].last()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use icecore_hot::KeyHash;

    use super::*;
    use crate::memtable::node_key::{NodeKey, NodeValue};

    /// The versions of each key, as a table of the other kind would have them.
    type Model = BTreeMap<Vec<u8>, Vec<Found>>;

    /// A table that many blocks were pushed to: in each some nodes of one depth, every fifth of them deleted.
    fn filled(blocks: u64, read: impl Fn(&NodeTable)) -> (NodeTable, Model) {
        let (table, mut model) = (NodeTable::default(), Model::new());
        for block in 1..=blocks {
            let mut versions = Vec::new();
            for place in (0..=255).filter(|place| (place * 31 + block) % (3 + block % 11) == 0) {
                let hash = KeyHash([place as u8; 32]);
                let deleted = (place + block).is_multiple_of(5);
                let value = if deleted { NodeValue::Deleted } else { NodeValue::Inner([block as u8; 32]) };
                versions.push(NodeVersion { key: NodeKey::row(8, &hash), block, value });
            }
            for version in &versions {
                model.entry(version.key.as_bytes().to_vec()).or_default().push(version.found());
            }
            table.push(versions);
            read(&table);
        }
        (table, model)
    }

    fn expected(versions: &[Found], at: BlockNumber) -> Option<Found> {
        versions.iter().rfind(|(block, _)| *block <= at).cloned()
    }

    fn check(table: &NodeTable, model: &Model, at: BlockNumber) {
        for (key, versions) in model {
            assert_eq!(table.get(key, at), expected(versions, at), "{key:?} at {at}");
            let mut history = versions.clone();
            history.retain(|(block, _)| *block <= at);
            history.reverse();
            assert_eq!(table.history(key, at), history);
        }
        let (lower, upper) = ([8, 40], [8, 200]);
        let bounds = (Bound::Excluded(&lower[..]), Bound::Included(&upper[..]));
        let range = model.range::<[u8], _>(bounds);
        let visible = range.filter_map(|(key, found)| Some((key.clone(), expected(found, at)?)));
        let mut visible: Vec<_> = visible.collect();
        for limit in [1, 7, 1000] {
            let wanted = &visible[..limit.min(visible.len())];
            assert_eq!(table.range(bounds, at, Direction::Forward, limit), wanted);
        }
        visible.reverse();
        let wanted = &visible[..visible.len().min(9)];
        assert_eq!(table.range(bounds, at, Direction::Backward, 9), wanted);
    }

    #[test]
    fn runs_answer_as_a_map_whoever_merged_them() {
        const BLOCKS: u64 = 150;
        let (first, root) = (NodeKey::row(8, &KeyHash([0; 32])), NodeKey::ROOT);
        let (unread, model) = filled(BLOCKS, |_| {});
        let (often, _) = filled(BLOCKS, |table| drop(table.get(first.as_bytes(), 1)));
        assert_eq!(unread.runs().len() as u64, BLOCKS, "the writer merges nothing");
        assert!(often.runs().len() <= RUNS_MAX);
        for at in [0, 1, 2, 17, 99, BLOCKS, BLOCKS + 1] {
            check(&unread, &model, at);
            check(&often, &model, at);
        }
        assert_eq!(unread.get(root.as_bytes(), BLOCKS), None);
        let in_order_of = |table: &NodeTable| -> Vec<NodeVersion> {
            in_order(&table.runs()).into_iter().cloned().collect()
        };
        assert_eq!(in_order_of(&unread), in_order_of(&often));
        assert_eq!(unread.bytes(), often.bytes());
    }

    #[test]
    fn a_long_run_is_merged_seldom() {
        let (table, _) = filled(40, |_| {});
        drop(table.get(&[0], 1));
        let long = table.runs();
        assert_eq!(long.len(), 1);
        for block in 41..41 + RUNS_MAX as u64 {
            let key = NodeKey::ROOT;
            table.push(vec![NodeVersion { key, block, value: NodeValue::Inner([1; 32]) }]);
        }
        drop(table.get(&[0], 1));
        assert!(Arc::ptr_eq(&table.runs()[0], &long[0]), "the short ones are merged with each other");
        assert_eq!(table.runs().len(), 2);
    }

    #[test]
    fn unwinding_cuts_runs_that_were_merged() {
        let (table, mut model) = filled(50, |table| drop(table.get(&[0], 1)));
        let copy = table.unwound(30);
        model.values_mut().for_each(|versions| versions.retain(|(block, _)| *block <= 30));
        model.retain(|_, versions| !versions.is_empty());
        check(&copy, &model, 50);
        assert!(copy.bytes() < table.bytes());
        assert!(table.unwound(0).runs().is_empty());
    }
}
