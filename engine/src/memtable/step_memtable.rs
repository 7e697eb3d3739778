//! The versions of one step in memory: what has been committed and not yet emitted.
//!
//! One table per step. The writer adds the newest block to the last table while readers look things up; a reader
//! that is pinned to an older height does not see versions above it. A table is never thinned out: emission and
//! unwinding make a new list of tables, and readers that hold the old one keep its tables alive.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use icecore_hot::Root;
use icecore_segments::checksum::Checksum;
use icecore_segments::step::{BlockNumber, Step};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::domain::{DomainId, RootRow, root_height, root_key};
use crate::error::Error;
use crate::memtable::key_order::{self, KeyOrder, sort_by_key_bytes};
use crate::memtable::key_table::{KeyNumber, KeyTable};
use crate::memtable::node_key::NodeVersion;
use crate::memtable::node_table::{NodeTable, bytes_of};
use crate::memtable::{Direction, Found};
use crate::options::Config;
use crate::wal::ChangeRef;

/// All versions of one step, in memory.
#[derive(Debug)]
pub(crate) struct StepMemtable {
    step: Step,
    /// Of all domains but that of nodes, which is the last.
    domains: Vec<DomainTable>,
    nodes: NodeTable,
    bytes: AtomicU64,
}

/// The versions of one domain. Who locks both locks the order first.
#[derive(Debug)]
struct DomainTable {
    order: Mutex<KeyOrder>,
    keys: RwLock<KeyTable>,
}

impl DomainTable {
    fn new(keys: KeyTable) -> Self {
        Self { order: Mutex::default(), keys: RwLock::new(keys) }
    }
}

impl StepMemtable {
    pub(crate) fn new(step: Step, config: &Config) -> Self {
        Self::empty(step, config.domains.len() - usize::from(config.keeps_nodes()))
    }

    pub(super) fn empty(step: Step, domains: usize) -> Self {
        let domains = (0..domains).map(|_| DomainTable::new(KeyTable::new())).collect();
        Self { step, domains, nodes: NodeTable::default(), bytes: AtomicU64::new(0) }
    }

    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Bytes of keys and values held, a key counted with each of its versions.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many blocks are in the table: every block has a key among the roots.
    pub(crate) fn blocks(&self) -> u64 {
        self.keys(DomainId::ROOTS).len() as u64
    }

    /// The newest block in the table.
    pub(crate) fn last_height(&self) -> Option<BlockNumber> {
        self.keys(DomainId::ROOTS).last_block()
    }

    /// The blocks of a range, both ends inside, ascending.
    pub(crate) fn heights(&self, from: BlockNumber, to: BlockNumber) -> Vec<BlockNumber> {
        // A row is added for every block.
        let roots = self.keys(DomainId::ROOTS);
        roots.blocks().iter().copied().filter(|height| (from..=to).contains(height)).collect()
    }

    /// Adds the changes of one block to their domain, each key once. `height` is above every height in the table.
    pub(crate) fn add(&self, domain: DomainId, height: BlockNumber, changes: &[ChangeRef<'_>]) {
        self.domains[domain.index()].keys.write().add_block(height, changes);
        let bytes = |change: &ChangeRef<'_>| change.key.len() + change.value.map_or(0, <[u8]>::len);
        self.bytes.fetch_add(changes.iter().map(bytes).sum::<usize>() as u64, Ordering::Relaxed);
    }

    /// Adds what one block writes among the nodes, ascending by key. Its height is above those of all nodes in the table.
    pub(crate) fn add_nodes(&self, versions: Vec<NodeVersion>) {
        self.bytes.fetch_add(bytes_of(&versions), Ordering::Relaxed);
        self.nodes.push(versions);
    }

    /// The newest version of `key` at or below `at`.
    pub(crate) fn get(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Option<Found> {
        let Some(domain) = self.domains.get(domain.index()) else { return self.nodes.get(key, at) };
        domain.keys.read().get(key, at)
    }

    /// The versions of `key` at or below `at`, newest first.
    pub(crate) fn history(&self, domain: DomainId, key: &[u8], at: BlockNumber) -> Vec<Found> {
        let Some(domain) = self.domains.get(domain.index()) else { return self.nodes.history(key, at) };
        domain.keys.read().history(key, at)
    }

    /// Appends the blocks at or below `at` that changed `key`, newest first.
    pub(crate) fn change_blocks(
        &self,
        domain: DomainId,
        key: &[u8],
        at: BlockNumber,
        blocks: &mut Vec<BlockNumber>,
    ) {
        match self.domains.get(domain.index()) {
            Some(domain) => domain.keys.read().change_blocks(key, at, blocks),
            None => blocks.extend(self.nodes.history(key, at).into_iter().map(|(block, _)| block)),
        }
    }

    /// Up to `limit` keys inside `bounds` that have a version at or below `at`, each with the newest such version, in
    /// the direction given.
    ///
    /// # Cost
    /// The first range after blocks were added orders their new keys: see [`key_order`].
    pub(crate) fn range(
        &self,
        domain: DomainId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at: BlockNumber,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Vec<u8>, Found)> {
        if is_empty(bounds) {
            return Vec::new();
        }
        let Some(domain) = self.domains.get(domain.index()) else {
            return self.nodes.range(bounds, at, direction, limit);
        };
        let mut order = domain.order.lock();
        let mut keys = domain.keys.read();
        let runs = order.extend(&mut keys);
        drop(order);
        key_order::range(&keys, &runs, bounds, keys.blocks_up_to(at), direction, limit)
    }

    /// The keys of a domain that is not that of nodes.
    pub(crate) fn keys(&self, domain: DomainId) -> RwLockReadGuard<'_, KeyTable> {
        self.domains[domain.index()].keys.read()
    }

    /// The nodes.
    pub(crate) fn nodes(&self) -> &NodeTable {
        &self.nodes
    }

    /// A copy that has only the versions at or below `to`, and nodes only where they are asked for.
    pub(crate) fn unwound(&self, to: BlockNumber, with_nodes: bool) -> Self {
        let nodes = if with_nodes { self.nodes.unwound(to) } else { NodeTable::default() };
        let keys: Vec<KeyTable> = self.domains.iter().map(|domain| domain.keys.read().unwound(to)).collect();
        let bytes = nodes.bytes() + keys.iter().map(KeyTable::bytes).sum::<u64>();
        let domains = keys.into_iter().map(DomainTable::new).collect();
        Self { step: self.step, domains, nodes, bytes: AtomicU64::new(bytes) }
    }

    /// Shows every block of the table in order: height, root, changes ordered by domain and key.
    pub(crate) fn for_each_block(
        &self,
        config: &Config,
        mut show: impl FnMut(BlockNumber, Root, &[ChangeRef<'_>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let domains: Vec<_> = config.declared_ids().map(|(domain, _)| (domain, self.keys(domain))).collect();
        let mut changes: Vec<(BlockNumber, ChangeRef<'_>)> = Vec::new();
        for (domain, keys) in &domains {
            let mut numbers: Vec<KeyNumber> = (0..keys.len() as KeyNumber).collect();
            sort_by_key_bytes(&mut numbers, |number| keys.key(number));
            for number in numbers {
                let key = keys.key(number);
                changes.extend(
                    keys.versions(number)
                        .map(|(block, value)| (block, ChangeRef { domain: domain.0, key, value })),
                );
            }
        }
        changes.sort_by_key(|(block, _)| *block);
        let mut rest = changes.as_slice();
        // They came with their blocks, and so in order.
        let roots = self.keys(DomainId::ROOTS);
        for number in 0..roots.len() as KeyNumber {
            let row = roots.versions(number).next().and_then(|(_, row)| RootRow::decode(row?));
            let (Some(height), Some(row)) = (root_height(roots.key(number)), row) else { continue };
            let of_block = rest.partition_point(|(block, _)| *block <= height);
            let block: Vec<_> = rest[..of_block].iter().map(|(_, change)| *change).collect();
            rest = &rest[of_block..];
            show(height, row.root, &block)?;
        }
        Ok(())
    }
}

/// Adds a block to the table of its step, which it returns. `changes` are ordered by domain, then key,
/// and `digest` is theirs.
pub(crate) fn add_block<'t>(
    tables: &'t mut Vec<Arc<StepMemtable>>,
    config: &Config,
    height: BlockNumber,
    root: &[u8; 32],
    digest: Checksum,
    changes: &[ChangeRef<'_>],
) -> &'t StepMemtable {
    let step = config.step_len.step_of(height);
    if tables.last().is_none_or(|table| table.step() != step) {
        tables.push(Arc::new(StepMemtable::new(step, config)));
    }
    let table = tables.last().expect("a table was just ensured");
    for group in changes.chunk_by(|a, b| a.domain == b.domain) {
        table.add(DomainId(group[0].domain), height, group);
    }
    let row = RootRow::encode(root, digest);
    let change = ChangeRef { domain: DomainId::ROOTS.0, key: &root_key(height), value: Some(&row) };
    table.add(DomainId::ROOTS, height, &[change]);
    table
}

/// Tables without the blocks above `to`, and unless told otherwise without their nodes. No table is changed, since readers may hold
/// it. The last one that stays is copied, because blocks are added to it; those before stay as they are.
pub(crate) fn unwound(
    tables: &[Arc<StepMemtable>],
    to: BlockNumber,
    with_nodes: bool,
) -> Vec<Arc<StepMemtable>> {
    let mut kept: Vec<Arc<StepMemtable>> = Vec::new();
    for table in tables.iter().rev() {
        // Those before one that stays have blocks below `to` only.
        let stays_whole = !kept.is_empty() && (with_nodes || table.nodes.is_empty());
        let table = if stays_whole { Arc::clone(table) } else { Arc::new(table.unwound(to, with_nodes)) };
        if table.last_height().is_some() {
            kept.push(table);
        }
    }
    kept.reverse();
    kept
}

/// Whether bounds admit no key.
fn is_empty(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Excluded(upper))
        | (Bound::Excluded(lower), Bound::Included(upper)) => lower >= upper,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KV: DomainId = DomainId(1);

    fn table() -> StepMemtable {
        let table = StepMemtable::empty(Step(0), 2);
        let change = |key, value| ChangeRef { domain: KV.0, key, value };
        table.add(KV, 3, &[change(b"a", Some(&b"1"[..])), change(b"b", Some(b"2"))]);
        table.add(KV, 5, &[change(b"a", None)]);
        table
    }

    #[test]
    fn a_read_sees_the_newest_version_at_or_below_its_height() {
        let table = table();
        assert_eq!(table.get(KV, b"a", 2), None);
        assert_eq!(table.get(KV, b"a", 3), Some((3, Some(b"1".to_vec()))));
        assert_eq!(table.get(KV, b"a", 4), Some((3, Some(b"1".to_vec()))));
        assert_eq!(table.get(KV, b"a", 9), Some((5, None)));
        assert_eq!(table.history(KV, b"a", 9), vec![(5, None), (3, Some(b"1".to_vec()))]);
        assert_eq!(table.bytes(), 5);
    }

    #[test]
    fn ranges_go_both_ways_and_may_be_empty() {
        let table = table();
        let all = (Bound::Unbounded, Bound::Unbounded);
        let keys = |bounds, at, direction| {
            table.range(KV, bounds, at, direction, 10).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys(all, 9, Direction::Forward), [b"a", b"b"]);
        assert_eq!(keys(all, 9, Direction::Backward), [b"b", b"a"]);
        assert!(keys(all, 2, Direction::Forward).is_empty());
        assert!(keys((Bound::Excluded(b"a"), Bound::Excluded(b"a")), 9, Direction::Forward).is_empty());
        assert!(keys((Bound::Included(b"b"), Bound::Included(b"a")), 9, Direction::Backward).is_empty());
    }

    #[test]
    fn unwinding_copies_what_stays() {
        let table = table();
        let copy = table.unwound(4, true);
        assert_eq!(copy.get(KV, b"a", 9), Some((3, Some(b"1".to_vec()))));
        assert_eq!(copy.bytes(), 4);
        assert_eq!(table.get(KV, b"a", 9), Some((5, None)), "readers of the old table see it unchanged");
        assert_eq!(table.unwound(2, true).keys(KV).len(), 0);
    }

    #[test]
    fn unwinding_copies_one_table_of_many() {
        let tables: Vec<_> = (0..4)
            .map(|step| {
                let table = StepMemtable::empty(Step(step), 2);
                for height in [10 * step, 10 * step + 5] {
                    let row = ChangeRef { domain: 0, key: &root_key(height), value: Some(b"row") };
                    table.add(DomainId::ROOTS, height, &[row]);
                    table.add(KV, height, &[ChangeRef { domain: KV.0, key: b"a", value: Some(b"1") }]);
                }
                Arc::new(table)
            })
            .collect();
        for (to, stays) in [(40, 4), (35, 4), (34, 4), (29, 3), (25, 3), (5, 1)] {
            let kept = unwound(&tables, to, false);
            assert_eq!(kept.len(), stays, "{to}");
            let shared = kept.iter().zip(&tables).filter(|(kept, table)| Arc::ptr_eq(kept, table)).count();
            assert_eq!(shared, stays - 1, "{to}: blocks are added to the last one");
            let blocks = |tables: &[Arc<StepMemtable>]| -> Vec<BlockNumber> {
                let mut blocks = Vec::new();
                tables.iter().rev().for_each(|table| table.change_blocks(KV, b"a", 99, &mut blocks));
                blocks
            };
            let expected: Vec<_> = blocks(&tables).into_iter().filter(|block| *block <= to).collect();
            assert_eq!(blocks(&kept), expected, "{to}");
        }
    }
}
