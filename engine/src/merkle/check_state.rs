//! Whether the state and what is kept of its trees belong together: what a full [`verify`](crate::maintain::verify) asks.
//!
//! Where rows are kept the tree of the newest state in segments is built and each node that is kept of it compared: rows, and of an archive
//! for Ethereum storage roots. Of the blocks before it the rows at depth 1 are put together to the root that was recorded. The blocks in the
//! log are applied, and each gives its root.

use std::collections::BTreeMap;
use std::iter::Peekable;

use icecore_hot::ethereum::{EMPTY_ROOT, KeyPath, Nibbles, PartialTrieBuilder, StateTrie, TrieId};
use icecore_hot::{Options, Root};
use icecore_segments::step::BlockNumber;

use crate::commitment::{ACCOUNT_LEN, Commitment};
use crate::domain::{DomainId, RootRow, root_height, root_key};
use crate::error::Error;
use crate::memtable::node_key::{NodeKey, NodeValue, NodeVersion, STORAGE};
use crate::merkle::build::build_tree;
use crate::merkle::ethereum_tree::EthereumTree;
use crate::merkle::icecore_tree::IcecoreTree;
use crate::merkle::live_tree::{LiveTree, Parent};
use crate::merkle::load_trie::{LoadedTrie, load_checked, load_depths};
use crate::merkle::node_error::{is_of_nodes, node_damaged};
use crate::merkle::row_depths::{RowDepth, RowDepths};
use crate::merkle::state_leaves::path_of;
use crate::merkle::state_root::state_root;
use crate::merkle::state_rows::StateRows;
use crate::merkle::tree_rows::TreeRows;
use crate::merkle::trie_rows::{KeptTrie, StorageNode, accounts_depth, row_version, top_key};
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::stats::{Counters, Tally};

/// Blocks between two words to the listener.
const PROGRESS_EVERY: u64 = 1 << 10;

/// Compares the state with the roots that were recorded, and rows that are kept with the state, unless they are not `held`. Nodes of an
/// archive without rows are never read, and not looked at here.
///
/// # Cost
/// Builds the tree: 110 bytes of memory for each key. With rows 17 lookups for each block.
///
/// # Errors
/// [`Error::RootMismatch`]; [`Error::NodeDamaged`]; damage of a file.
pub(crate) fn check_state(
    version: &ReadState,
    config: &Config,
    nodes_are_held: bool,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let Some(head) = version.head else { return Ok(()) };
    let nodes = config.nodes().filter(|_| version.keeps_rows);
    let (Some(nodes), Some(base)) = (nodes.filter(|_| nodes_are_held), version.emitted_head) else {
        let root = state_root(version, config, head, listener)?;
        return root.map_or(Ok(()), |root| version.check_root(head, root));
    };
    let mut tree: Box<dyn LiveTree> = if config.commitment == Commitment::Ethereum {
        let loaded = load_checked(version, base, u64::MAX, listener)?;
        NodesCheck::new(version, config, nodes, base, &loaded)?.compare()?;
        Box::new(EthereumTree::without_rows(config, loaded.trie, Some(base)))
    } else {
        let built = build_tree(version, config, base, None, Options::default(), listener)?;
        version.check_root(base, built.tree.root())?;
        tree_rows(version, config, nodes, &Counters::default(), base).compare(&built.tree)?;
        Box::new(IcecoreTree::without_rows(built.tree, base))
    };
    check_past(version, config, nodes, base, listener)?;
    let mut previous = Some(base);
    for table in version.memory()? {
        table.for_each_block(config, |height, recorded, changes| {
            let parent = Parent { version, block: previous, with_nodes: Some(base) };
            let found = tree.apply(config, parent, height, changes)?.root;
            previous = Some(height);
            if found == recorded {
                return Ok(());
            }
            let (expected, found) = (recorded.to_string(), found.to_string());
            Err(Error::RootMismatch { block: height, expected, found })
        })?;
    }
    Ok(())
}

/// The rows of Icecore's tree at a block.
fn tree_rows<'v>(
    version: &'v ReadState,
    config: &'v Config,
    nodes: DomainId,
    counters: &'v Counters,
    at: BlockNumber,
) -> TreeRows<'v> {
    TreeRows { version, config, nodes, counters, at, workers: 1 }
}

/// Puts the rows of the state at depth 1 together at each block in segments.
fn check_past(
    version: &ReadState,
    config: &Config,
    nodes: DomainId,
    last: BlockNumber,
    listener: &dyn ProgressListener,
) -> Result<(), Error> {
    let Some(first) = version.first.filter(|first| *first <= last) else { return Ok(()) };
    let counters = Counters::default();
    listener.begin("verify rows of blocks", Some(last - first));
    let mut told = first;
    let scan = Scan::all().from(&root_key(first)).to_included(&root_key(last));
    for row in MergeScan::new(version, DomainId::ROOTS, &scan, last)? {
        let (key, row) = row?;
        let block = root_height(&key).ok_or(Error::RootMissing { block: last })?;
        let row = RootRow::decode(&row).ok_or(Error::RootMissing { block })?;
        check_row_at(version, config, nodes, &counters, block, row.root)?;
        if block - told >= PROGRESS_EVERY {
            listener.advance(block - told);
            told = block;
        }
    }
    listener.end();
    Ok(())
}

/// Puts the rows of the state at depth 1 together at `to`, a block in segments, where they are kept and can be read.
pub(crate) fn check_rows(version: &ReadState, config: &Config, to: BlockNumber) -> Result<(), Error> {
    let Some(nodes) = config.nodes().filter(|_| version.keeps_rows) else { return Ok(()) };
    let (counters, (block, root)) = (Counters::default(), version.newest_root(to)?);
    match check_row_at(version, config, nodes, &counters, block, root) {
        Err(error) if is_of_nodes(version, nodes, &error) => Ok(()),
        checked => checked,
    }
}

fn check_row_at(
    version: &ReadState,
    config: &Config,
    nodes: DomainId,
    counters: &Counters,
    block: BlockNumber,
    recorded: Root,
) -> Result<(), Error> {
    let root = match config.commitment {
        Commitment::Ethereum => root_of_accounts(version, nodes, counters.mine(), block)?,
        _ => tree_rows(version, config, nodes, counters, block).root_of_first_row()?,
    };
    if root.is_none_or(|root| root == recorded) {
        return Ok(());
    }
    Err(node_damaged(version, nodes, NodeKey::trie_row(None, 1, &[0; 32]).as_bytes(), block))
}

/// The root that follows from the first row of accounts; `None` of a block that has no rows.
fn root_of_accounts(
    version: &ReadState,
    nodes: DomainId,
    tally: &Tally,
    block: BlockNumber,
) -> Result<Option<Root>, Error> {
    let wrong = |key: NodeKey| node_damaged(version, nodes, key.as_bytes(), block);
    let depth = match accounts_depth(version, nodes, block, tally)? {
        Some((of, depth)) if of == block => depth,
        _ => return Err(wrong(NodeKey::ROOT)),
    };
    let Some(top) = depth.top() else { return Ok(None) };
    let trie = KeptTrie { version, nodes, at: block, account: None, depth: top };
    let opened = trie.open(&[], tally)?;
    // Where a row has nothing there is a leaf or none.
    let accounts = StateRows { version, nodes, tally, at: block }.accounts(&opened.ranges)?;
    let trie = opened.complete(&accounts, PartialTrieBuilder::push_account);
    trie.map(|trie| Some(trie.root())).ok_or_else(|| wrong(NodeKey::trie_row(None, 1, &[0; 32])))
}

/// The nodes of the state at a block beside its trie.
struct NodesCheck<'v> {
    version: &'v ReadState,
    nodes: DomainId,
    at: BlockNumber,
    trie: &'v StateTrie,
    depths: RowDepths,
    /// The accounts whose storages may have rows, by what their keys have of them.
    large: BTreeMap<[u8; ACCOUNT_LEN], KeyPath>,
}

impl<'v> NodesCheck<'v> {
    fn new(
        version: &'v ReadState,
        config: &Config,
        nodes: DomainId,
        at: BlockNumber,
        loaded: &'v LoadedTrie,
    ) -> Result<Self, Error> {
        let depths = load_depths(version, config, at, &loaded.large)?;
        let prefixed = loaded.large.iter().filter_map(|path| Some((*path.first_chunk()?, *path)));
        let large = prefixed.collect();
        Ok(Self { version, nodes, at, trie: &loaded.trie, depths, large })
    }

    fn wrong(&self, key: &[u8]) -> Error {
        node_damaged(self.version, self.nodes, key, self.at)
    }

    /// Goes through what is kept and what is due, side by side.
    fn compare(&self) -> Result<(), Error> {
        self.check_depths()?;
        let mut kept = MergeScan::new(self.version, self.nodes, &Scan::all(), self.at)?.peekable();
        self.for_each_due(|key, value| {
            self.pass_rest(&mut kept, Some(key))?;
            match kept.next().transpose()? {
                Some(found) if found.0 == key && found.1 == value => Ok(()),
                _ => Err(self.wrong(key)),
            }
        })?;
        self.pass_rest(&mut kept, None)
    }

    /// Whether each trie has the rows that its leaves ask for.
    fn check_depths(&self) -> Result<(), Error> {
        let storages = self.large.values().map(|path| TrieId::Storage(*path));
        for trie in std::iter::once(TrieId::Accounts).chain(storages) {
            let depth = self.depths.of(&trie);
            if depth.follow(self.trie.trie_len(&trie)) != depth {
                return Err(self.wrong(top_key(&trie).as_bytes()));
            }
        }
        Ok(())
    }

    /// Passes what is kept below a key, or all of it: rows that their trie no longer has.
    fn pass_rest(&self, kept: &mut Peekable<MergeScan<'_>>, below: Option<&[u8]>) -> Result<(), Error> {
        let is_below = |key: &[u8]| below.is_none_or(|below| key < below);
        while let Some(node) = kept.next_if(|node| node.as_ref().map_or(true, |(key, _)| is_below(key))) {
            let (key, _) = node?;
            if self.would_be_read(&key) {
                return Err(self.wrong(&key));
            }
        }
        Ok(())
    }

    /// Whether a proof at this block would read a key, if it were there.
    fn would_be_read(&self, key: &[u8]) -> bool {
        let has_row =
            |trie: &TrieId, depth: u8| self.depths.of(trie).rows().any(|row| row == usize::from(depth));
        match key.split_first() {
            Some((depth, _)) if RowDepth::is_of_row(*depth) => has_row(&TrieId::Accounts, *depth),
            Some((tag, rest)) if RowDepth::is_of_row(tag ^ STORAGE) => {
                let account = rest.first_chunk().and_then(|prefix| self.large.get(prefix));
                account.is_some_and(|account| has_row(&TrieId::Storage(*account), tag ^ STORAGE))
            }
            _ => true,
        }
    }

    /// Shows each node that is due, ascending by key.
    fn for_each_due(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut show = |NodeVersion { key, value, .. }: NodeVersion| match value.as_bytes() {
            Some(value) => visit(key.as_bytes(), value),
            None => Ok(()),
        };
        let row = |trie: &TrieId, depth: usize| {
            let trie = *trie;
            Nibbles::EMPTY.extended_to(depth).map(move |position| {
                row_version(self.at, &trie, &position, self.trie.node_at(&trie, &position))
            })
        };
        let top = |trie: &TrieId, value| NodeVersion { key: top_key(trie), block: self.at, value };
        let depth = [self.depths.of(&TrieId::Accounts).encode()];
        show(top(&TrieId::Accounts, NodeValue::Row(depth[..].into())))?;
        for depth in self.depths.of(&TrieId::Accounts).rows() {
            row(&TrieId::Accounts, depth).try_for_each(&mut show)?;
        }
        for account in MergeScan::new(self.version, DomainId::ACCOUNT, &Scan::all(), self.at)? {
            let path = path_of(&account?.0);
            let root = self.trie.account(&path).map_or(EMPTY_ROOT, |account| account.storage_root);
            if root != EMPTY_ROOT {
                let trie = TrieId::Storage(path);
                show(top(&trie, StorageNode { root, depth: self.depths.of(&trie) }.encode()))?;
            }
        }
        for depth in (1..=u8::MAX).take_while(|depth| RowDepth::is_of_row(*depth)).map(usize::from) {
            for account in self.large.values() {
                let trie = TrieId::Storage(*account);
                if self.depths.of(&trie).rows().any(|row| row == depth) {
                    row(&trie, depth).try_for_each(&mut show)?;
                }
            }
        }
        Ok(())
    }
}

/// Says of nodes and a state at a block from which no proof could be made which of them is wrong; `None` where neither is.
///
/// # Cost
/// Builds the trie.
pub(crate) fn explain(
    version: &ReadState,
    config: &Config,
    nodes: DomainId,
    at: BlockNumber,
) -> Option<Error> {
    let loaded = match load_checked(version, at, u64::MAX, &()) {
        Ok(loaded) => loaded,
        Err(error) => return Some(error),
    };
    NodesCheck::new(version, config, nodes, at, &loaded).and_then(|check| check.compare()).err()
}
