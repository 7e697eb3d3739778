//! Rows for an archive of Ethereum that has none: its blocks are applied again, each root is compared with the recorded one, and the
//! segments of nodes are written anew, as they would be if rows had been kept from the first block.
//!
//! ```text
//! _roots   |----------- 0-64 -----------|----- 64-96 -----|--96-98--|  log
//! _nodes   |- 0-21 -|- 21-40 -|                           |--96-98--|        a build that has come to step 40
//!                                                          emitted meanwhile, without rows: built again at its turn
//! ```
//!
//! The first manifest drops the nodes that are there: without rows nobody reads them. Then each step is replayed, and what it writes is
//! published as a *piece*: a step, or as many as fit in [`PIECE_BYTES`]. Every manifest drops the nodes after its piece, so until the last
//! one there is a block in segments that has no nodes. That is how a build that was killed is recognised, and where it goes on: no
//! other mark is kept. The manifest with the last piece says that the archive keeps rows.
//!
//! Proofs stay right meanwhile: what a block has of rows is told by its own root row, and without rows that say so the tries are rebuilt.

use std::sync::Arc;

use icecore_segments::step::{BlockNumber, Step, StepRange};
use icecore_segments::{Entry, Value};

use crate::domain::{DomainId, RootRow, root_height, root_key};
use crate::error::Error;
use crate::maintain::emission::emit_entries;
use crate::maintain::file_work::FileWork;
use crate::maintain::merge::Merge;
use crate::maintain::unwind::cut;
use crate::memtable::node_key::NodeVersion;
use crate::memtable::node_table::bytes_of;
use crate::merkle::ethereum_tree::EthereumTree;
use crate::merkle::live_tree::{LiveTree, Parent};
use crate::merkle::load_trie::load_checked;
use crate::merkle::trie_rows::first_without_nodes;
use crate::progress::ProgressListener;
use crate::read::changes::{Changes, StateChange};
use crate::read::pinned::Pinned;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::segment::live::LiveSegment;
use crate::wal::ChangeRef;
use crate::write::version_edit::VersionEdit;
use crate::write::writer::{Writer, WriterGuard};

/// Keys and values of nodes after which a piece ends with its step.
pub(crate) const PIECE_BYTES: u64 = 32 << 20;

/// Changes between two looks at what else is to be done.
const LOOK_EVERY: u64 = 1 << 12;

/// Which archives [`Archive::build_rows`](crate::Archive::build_rows) gives rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowsRule {
    /// One that has none, or in part because a build of them was stopped.
    Missing,
    /// One that has all of them, too: they are dropped first. Repairs rows that are wrong.
    Again,
}

/// What [`Archive::build_rows`](crate::Archive::build_rows) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowsReport {
    /// The lowest block that was applied again; `None` where none was.
    pub first: Option<BlockNumber>,
    /// The number of blocks that were applied again.
    pub blocks: u64,
    /// The accounts and slots that they changed.
    pub updates: u64,
}

/// Gives the blocks in segments rows, and has the writer keep them from then on.
pub(crate) fn build_rows(
    writer: &Writer,
    rule: RowsRule,
    piece_bytes: u64,
    listener: &dyn ProgressListener,
) -> Result<RowsReport, Error> {
    let work = FileWork::begin(writer);
    writer.lock().check_poison()?;
    let version = writer.read_state();
    if version.keeps_rows && rule == RowsRule::Missing {
        return Ok(RowsReport::default());
    }
    let _long = work.begin_long();
    let start = Start::find(writer, &version)?;
    start.drop_nodes(writer, &work, &version, listener)?;
    let build = RowsBuild::begin(writer, &work, start, piece_bytes, listener)?;
    drop(version);
    build.run()
}

/// Where a build begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    /// The state before the blocks that are applied: `None` for that before the first one.
    base: Option<BlockNumber>,
    /// Whether `base` and all blocks before it have rows.
    goes_on: bool,
    /// The step that the first piece begins with, unless its segment of roots begins later.
    step: Step,
}

impl Start {
    fn find(writer: &Writer, version: &ReadState) -> Result<Self, Error> {
        let config = &writer.shared.directory.config;
        let base = match version.first.filter(|_| version.is_pruned) {
            Some(floor) => version.floor_kept(config, floor)?,
            None => None,
        };
        let step = base.map_or(Step(0), |base| config.step_len.step_of(base));
        let anew = Self { base, goes_on: false, step };
        if version.keeps_rows {
            return Ok(anew);
        }
        // Where every block has nodes they are from before the first build.
        let Some(missing) = first_without_nodes(version, config, base)? else { return Ok(anew) };
        let step = config.step_len.step_of(missing);
        let before = config.step_len.first_block(step).checked_sub(1);
        let last = before.map(|before| version.newest_block(before)).transpose()?.flatten();
        let last = last.map(|(last, _)| last).filter(|last| base.is_none_or(|base| base <= *last));
        Ok(last.map_or(anew, |last| Self { base: Some(last), goes_on: true, step }))
    }

    /// Drops the nodes that are built anew.
    fn drop_nodes(
        self,
        writer: &Writer,
        work: &FileWork<'_>,
        version: &ReadState,
        listener: &dyn ProgressListener,
    ) -> Result<(), Error> {
        let kept = if self.goes_on { self.step } else { Step(0) };
        let mut edit = VersionEdit::default();
        for segment in nodes_after(writer, version, kept) {
            if segment.record.steps.from() < kept {
                edit.added.extend(cut(writer, work, &segment, kept, listener)?.map(Arc::new));
            }
            edit.removed.push(segment);
        }
        if edit.removed.is_empty() && !version.keeps_rows {
            return Ok(());
        }
        // The tree of the writer may have groups that are read by way of these nodes.
        publish(&mut writer.lock_unpoisoned()?, edit, false, true)
    }
}

/// The steps of the segments of roots.
fn roots_of(version: &ReadState) -> Vec<StepRange> {
    version.domain(DomainId::ROOTS).iter().map(|segment| segment.record.steps).collect()
}

/// The segments of nodes that reach a step or one after it.
fn nodes_after(writer: &Writer, version: &ReadState, step: Step) -> Vec<Arc<LiveSegment>> {
    let nodes = writer.shared.directory.config.nodes();
    let all = nodes.map_or(&[][..], |nodes| version.domain(nodes));
    all.iter().filter(|segment| segment.record.steps.to() > step).cloned().collect()
}

/// Publishes segments of nodes, and whether the archive keeps rows. Where the tree is to be another one, the nodes of blocks in memory go
/// with it: the next makes them again.
fn publish(
    guard: &mut WriterGuard<'_>,
    edit: VersionEdit,
    keeps_rows: bool,
    renews_tree: bool,
) -> Result<(), Error> {
    guard.publish(edit, |manifest, next| {
        manifest.config.keeps_rows = keeps_rows;
        next.keeps_rows = keeps_rows;
        if let Some(head) = next.head.filter(|_| renews_tree) {
            next.unwind_tables(head, false);
        }
    })?;
    if renews_tree {
        guard.drop_tree();
    }
    Ok(())
}

/// A build under way.
struct RowsBuild<'w> {
    writer: &'w Writer,
    work: &'w FileWork<'w>,
    listener: &'w dyn ProgressListener,
    piece_bytes: u64,
    tree: EthereumTree,
    /// The newest block that is in the tree.
    last: Option<BlockNumber>,
    /// All steps before this one are in pieces.
    built: Step,
    /// What is in no piece yet, and its bytes.
    nodes: Vec<NodeVersion>,
    bytes: u64,
    is_complete: bool,
    report: RowsReport,
}

impl<'w> RowsBuild<'w> {
    fn begin(
        writer: &'w Writer,
        work: &'w FileWork<'w>,
        start: Start,
        piece_bytes: u64,
        listener: &'w dyn ProgressListener,
    ) -> Result<Self, Error> {
        let (version, config) = (writer.read_state(), &writer.shared.directory.config);
        let Start { base, goes_on, step } = start;
        let (tree, nodes) = match base.filter(|_| goes_on) {
            Some(base) => {
                let loaded = load_checked(&version, base, u64::MAX, listener)?;
                (EthereumTree::with_rows(&version, config, base, loaded)?, Vec::new())
            }
            None => EthereumTree::with_new_rows(&version, config, base, listener)?,
        };
        let bytes = bytes_of(&nodes);
        let report = RowsReport::default();
        Ok(Self {
            writer,
            work,
            listener,
            piece_bytes,
            tree,
            last: base,
            built: step,
            nodes,
            bytes,
            is_complete: false,
            report,
        })
    }

    /// Goes through the segments of roots, also those that come meanwhile.
    fn run(mut self) -> Result<RowsReport, Error> {
        // What a build that was stopped left in pieces.
        for steps in roots_of(&self.writer.read_state()) {
            if steps.to() <= self.built {
                self.merge_pieces(steps)?;
            }
        }
        loop {
            self.work.emit_pending()?;
            // What comes meanwhile is merged among itself: no merge takes a piece together with nodes after it.
            let _long = self.work.begin_long();
            let version = self.writer.read_state();
            let next = roots_of(&version).into_iter().find(|steps| steps.to() > self.built);
            let Some(steps) = next else { break };
            self.replay(&version, steps)?;
            drop(version);
            self.merge_pieces(steps)?;
        }
        if !self.is_complete {
            // Nothing is in segments, or all of it had rows.
            publish(&mut self.writer.lock_unpoisoned()?, VersionEdit::default(), true, true)?;
        }
        Ok(self.report)
    }

    /// Applies the blocks of a segment of roots that are not in the tree yet.
    fn replay(&mut self, version: &Arc<ReadState>, steps: StepRange) -> Result<(), Error> {
        let (shared, step_len) = (&self.writer.shared, self.writer.shared.directory.config.step_len);
        let (_, end) = step_len.blocks(steps);
        let first = self.last.map_or(0, |last| last.saturating_add(1));
        self.built = self.built.max(steps.from());
        let changes = Changes::of_blocks(
            Arc::clone(shared),
            Pinned::Here(Arc::clone(version)),
            (first <= end).then_some((first, end)),
        );
        let changes = changes.of_domains(&[DomainId::ACCOUNT, DomainId::STORAGE]).without_before().stored();
        let mut changes = changes.peekable();
        let scan = Scan::all().from(&root_key(first)).to_included(&root_key(end));
        self.listener.begin(&format!("build rows of steps {steps}, changes"), None);
        let mut looked = self.report.updates;
        for row in MergeScan::new(version, DomainId::ROOTS, &scan, end)? {
            let (key, row) = row?;
            let height = root_height(&key).ok_or(Error::RootMissing { block: end })?;
            let row = RootRow::decode(&row).ok_or(Error::RootMissing { block: height })?;
            let step = step_len.step_of(height);
            if self.bytes >= self.piece_bytes && self.last.is_some_and(|last| step_len.step_of(last) < step) {
                self.end_piece(step)?;
            }
            self.apply(version, height, &row, &mut changes)?;
            if self.report.updates - looked >= LOOK_EVERY {
                self.listener.advance(self.report.updates - looked);
                looked = self.report.updates;
                self.work.emit_pending()?;
            }
        }
        if let Some(change) = changes.next() {
            return Err(Error::RootMissing { block: change?.block });
        }
        self.end_piece(steps.to())?;
        self.listener.advance(self.report.updates - looked);
        self.listener.end();
        Ok(())
    }

    /// Applies the next block.
    fn apply(
        &mut self,
        version: &ReadState,
        height: BlockNumber,
        row: &RootRow,
        changes: &mut std::iter::Peekable<Changes>,
    ) -> Result<(), Error> {
        let mut of_block: Vec<StateChange> = Vec::new();
        while let Some(change) =
            changes.next_if(|change| !matches!(change, Ok(change) if height < change.block))
        {
            let change = change?;
            if change.block < height {
                return Err(Error::RootMissing { block: change.block });
            }
            of_block.push(change);
        }
        let refs = of_block.iter().map(|change| ChangeRef {
            // The first domain is the archive's own.
            domain: change.domain as u16 + 1,
            key: &change.key,
            value: change.after.as_deref(),
        });
        let refs: Vec<ChangeRef<'_>> = refs.collect();
        let parent = Parent { version, block: self.last, with_nodes: None };
        let applied = self.tree.apply(&self.writer.shared.directory.config, parent, height, &refs)?;
        if applied.root != row.root {
            let (expected, found) = (row.root.to_string(), applied.root.to_string());
            return Err(Error::RootMismatch { block: height, expected, found });
        }
        self.bytes += bytes_of(&applied.nodes);
        self.nodes.extend(applied.nodes);
        self.last = Some(height);
        self.report.first.get_or_insert(height);
        self.report.blocks += 1;
        self.report.updates += refs.len() as u64;
        Ok(())
    }

    /// Publishes what was collected as the piece that ends before `to`.
    fn end_piece(&mut self, to: Step) -> Result<(), Error> {
        let mut nodes = std::mem::take(&mut self.nodes);
        self.bytes = 0;
        // Stable, so that the blocks of a key stay in order.
        nodes.sort_by_key(|node| node.key);
        let (Some(steps), Some(domain)) =
            (StepRange::new(self.built, to), self.writer.shared.directory.config.nodes())
        else {
            return Ok(());
        };
        let keys: Vec<&[NodeVersion]> = nodes.chunk_by(|a, b| a.key == b.key).collect();
        let entries = keys.iter().flat_map(|versions| versions.iter().rev()).map(|version| Entry {
            key: version.key.as_bytes(),
            block: version.block,
            value: version.value.as_bytes().map_or(Value::Deletion, Value::Inline),
        });
        let mut edit = VersionEdit::default();
        let added = emit_entries(self.writer, steps, domain, keys.len() as u64, entries, &())?;
        edit.added.extend(added.map(Arc::new));
        drop(nodes);
        let mut guard = self.writer.lock_unpoisoned()?;
        let version = self.writer.read_state();
        edit.removed = nodes_after(self.writer, &version, steps.from());
        // Nothing is emitted while this one has the right to change files.
        self.is_complete = version.emitted_head <= self.last;
        publish(&mut guard, edit, self.is_complete, self.is_complete)?;
        self.built = to;
        Ok(())
    }

    /// Makes one segment of the pieces that have the steps of a segment of roots, as it was before, where that is what merging would do
    /// and there is room for it.
    fn merge_pieces(&mut self, steps: StepRange) -> Result<(), Error> {
        let Some(domain) = self.writer.shared.directory.config.nodes() else { return Ok(()) };
        let Some(merge) = Merge::of(self.writer, domain, steps)? else { return Ok(()) };
        merge.run(self.writer, self.listener, || self.work.emit_pending().map(|_| true))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use icecore_hot::Root;

    use super::*;
    use crate::archive::Archive;
    use crate::commitment::Commitment;
    use crate::ethereum::{BlockState, word};
    use crate::maintain::merge::MergeOptions;
    use crate::maintain::verify::{VerifyMode, verify_on};
    use crate::open_options::{Maintenance, OpenOptions};
    use crate::options::Options;
    use crate::storage::Storage;
    use crate::testing::SimStorage;

    const PATH: &str = "/archive";
    /// More than a trie has before it gets a row.
    const MANY: u64 = 8_200;
    const LAST: u64 = 13;

    fn address(number: u64) -> [u8; 20] {
        let mut address = [0; 20];
        address[12..].copy_from_slice(&number.to_be_bytes());
        address
    }

    fn commit(archive: &Archive, height: u64) -> Root {
        let mut state = BlockState::new();
        let accounts = if height == 2 { 0..MANY } else { height..height + 3 };
        accounts.for_each(|number| state.account(address(number)).nonce = Some(Some(height)));
        state.account(address(height)).slots.insert(word(1), word(height));
        let before = archive.reader().latest().ok();
        let mut block = archive.begin(height).unwrap();
        state.write(before.as_ref(), &mut block).unwrap();
        block.commit().unwrap()
    }

    fn open() -> OpenOptions {
        OpenOptions::new().maintenance(Maintenance::EmitOnly)
    }

    fn on(disk: &SimStorage) -> Arc<dyn Storage> {
        Arc::new(disk.clone())
    }

    /// Steps of two blocks, the first eight of one segment.
    fn archive(keeps_rows: bool) -> SimStorage {
        let disk = SimStorage::new();
        let options = Options::new().commitment(Commitment::Ethereum).keep_rows(keeps_rows);
        let options = options.blocks_per_step(2).reorg_window(1);
        let archive = Archive::create_on(on(&disk), PATH, options, open()).unwrap();
        for height in 1..=LAST {
            let _ = commit(&archive, height);
            archive.emit().unwrap();
            if height == 9 {
                archive.merge(&MergeOptions::new(), &()).unwrap();
            }
        }
        archive.close().unwrap();
        disk.kill_clone()
    }

    fn nodes(disk: &SimStorage) -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let is_kv = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("_nodes.") && path.extension().is_some_and(|kind| kind == "kv")
        };
        let mut files: Vec<_> = disk
            .files()
            .into_iter()
            .filter(|(path, _)| is_kv(path))
            .map(|(path, _)| (path.clone(), disk.bytes(&path)))
            .collect();
        files.sort();
        files
    }

    /// Every block proves, whatever there is of rows.
    fn check(archive: &Archive, what: &str) {
        for height in 2..=LAST {
            let view = archive.at(height).unwrap();
            let address = address(height + 1);
            let proof = view.prove_account(&address, &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
            proof.verify(&view.root().unwrap(), &address).unwrap();
        }
    }

    #[test]
    fn a_build_that_is_stopped_anywhere_goes_on_where_it_was() {
        let (kept, start) = (archive(true), archive(false));
        // The leaves of every block are read, those with slots without the roots that nodes have of storages.
        let go_on = |disk: &SimStorage| {
            let open = open().tree_memory(0);
            let archive = Archive::open_on(on(&disk.kill_clone()), PATH, open).unwrap();
            [LAST + 1, LAST + 2].map(|height| commit(&archive, height))
        };
        let next = go_on(&start);
        let build = |disk: &SimStorage| {
            let archive = Archive::open_on(on(disk), PATH, open()).unwrap();
            build_rows(&archive.writer, RowsRule::Missing, 1, &()).map(|report| (archive, report))
        };
        let run = |first: u64, every: u64| {
            let disk = start.kill_clone();
            disk.film(first, every);
            let (archive, report) = build(&disk).unwrap();
            assert_eq!(report.blocks, 11);
            drop(archive);
            assert!(nodes(&disk) == nodes(&kept), "as if they had been kept");
            (disk.operations(), disk.frames())
        };
        let (operations, frames) = run(1, 1);
        assert!(operations > 60 && frames.len() as u64 + 2 > operations, "{operations}");
        let (mut went_on, mut proved) = (0, 0);
        for (at, frame) in frames {
            for disk in [frame.kill_clone(), frame.crash_clone(at)] {
                let what = format!("operation {at}");
                if at % 4 == 0 {
                    check(&Archive::open_on(on(&disk), PATH, open()).unwrap(), &what);
                    assert_eq!(go_on(&disk), next, "{what}");
                    proved += 1;
                }
                let (archive, report) = build(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
                went_on += u64::from(0 < report.blocks && report.blocks < 11);
                assert!(archive.reader().keeps_rows());
                drop(archive);
                assert!(nodes(&disk) == nodes(&kept), "{what}");
                let report = verify_on(on(&disk), PATH, VerifyMode::Full, &()).unwrap();
                assert!(report.problems.is_empty() && report.garbage.is_empty(), "{what}: {report:?}");
            }
        }
        assert!(went_on > operations / 2 && proved > 10, "{went_on} of {operations}, {proved}");
    }
}
