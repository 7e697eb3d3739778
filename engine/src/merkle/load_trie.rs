//! The tries of Ethereum read from the state in segments, at any block: for the [writer](crate::merkle::ethereum_tree), and for whoever
//! compares a state with its root or proves without rows.

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{KeyPath, StateLoader, StateTrie, TrieId};
use icecore_segments::step::BlockNumber;

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{ACCOUNT, DomainId, STORAGE};
use crate::error::Error;
use crate::merkle::row_depths::{RowDepth, RowDepths};
use crate::merkle::state_leaves::{decode_account, path_of};
use crate::merkle::trie_rows::{StorageNode, accounts_depth};
use crate::options::Config;
use crate::progress::ProgressListener;
use crate::read::read_state::ReadState;
use crate::read::scan::MergeScan;
use crate::read::scan_range::Scan;
use crate::stats::Tally;

/// Leaves between two words to the listener.
const PROGRESS_EVERY: u64 = 1 << 12;

/// The depths of the rows that the tries have at `at`; `large` are the accounts whose storages may have some.
pub(crate) fn load_depths(
    version: &ReadState,
    config: &Config,
    at: BlockNumber,
    large: &[KeyPath],
) -> Result<RowDepths, Error> {
    let (mut depths, tally) = (RowDepths::default(), Tally::default());
    let Some(nodes) = config.nodes() else { return Ok(depths) };
    if let Some((_, depth)) = accounts_depth(version, nodes, at, &tally)? {
        depths.set(&TrieId::Accounts, depth);
    }
    for account in large {
        if let Some(storage) = StorageNode::of(version, nodes, account, at, &tally)? {
            depths.set(&TrieId::Storage(*account), storage.depth);
        }
    }
    Ok(depths)
}

/// A trie that was read.
pub(crate) struct LoadedTrie {
    pub(crate) trie: StateTrie,
    /// The accounts with so many slots that their storages may have rows.
    pub(crate) large: Vec<KeyPath>,
}

/// The trie of the state at `at`, whose root is the recorded one.
pub(crate) fn load_checked(
    version: &ReadState,
    at: BlockNumber,
    memory: u64,
    listener: &dyn ProgressListener,
) -> Result<LoadedTrie, Error> {
    let loaded = load_trie(version, at, memory, listener)?;
    version.check_root(at, loaded.trie.root())?;
    Ok(loaded)
}

/// The trie of the state at `at`, its root not compared yet. Leaves collapse where its nodes would take more than `memory`.
///
/// # Cost
/// Reads the newest version of every account and slot.
pub(crate) fn load_trie(
    version: &ReadState,
    at: BlockNumber,
    memory: u64,
    listener: &dyn ProgressListener,
) -> Result<LoadedTrie, Error> {
    listener.begin(&format!("build the trie of block {at}"), None);
    let damaged = |domain| Error::RecordDamaged { domain, block: at };
    let mut loader = StateLoader::within(HashBackend::default(), memory);
    let mut slots = MergeScan::new(version, DomainId::STORAGE, &Scan::all(), at)?;
    let mut slot = slots.next().transpose()?;
    let mut large = Vec::new();
    let mut loaded = 0;
    let mut advance = || {
        loaded += 1;
        if loaded % PROGRESS_EVERY == 0 {
            listener.advance(PROGRESS_EVERY);
        }
    };
    for account in MergeScan::new(version, DomainId::ACCOUNT, &Scan::all(), at)? {
        let (key, record) = account?;
        let path = path_of(&key);
        let of_account = decode_account(&record, at)?;
        loader.push_account_without_root(&path, &of_account).map_err(|_| damaged(ACCOUNT))?;
        advance();
        let mut len = 0;
        while let Some((key, value)) = slot.take_if(|(key, _)| key[..ACCOUNT_LEN] <= path[..ACCOUNT_LEN]) {
            if !key.starts_with(&path[..ACCOUNT_LEN]) {
                return Err(damaged(STORAGE));
            }
            let pushed = loader.push_slot(&path_of(&key[ACCOUNT_LEN..]), &value);
            pushed.map_err(|_| damaged(STORAGE))?;
            slot = slots.next().transpose()?;
            advance();
            len += 1;
        }
        if len >= RowDepth::LEAVES_MIN {
            large.push(path);
        }
    }
    if slot.is_some() {
        return Err(damaged(STORAGE));
    }
    let trie = loader.finish().map_err(|_| damaged(STORAGE))?;
    listener.end();
    Ok(LoadedTrie { trie, large })
}
