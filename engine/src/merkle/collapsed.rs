//! Leaves that collapsed come back: the groups that a block meets are read, all of them together, before the block is applied.
//!
//! The [tree of Ethereum](crate::merkle::ethereum_tree) keeps to its memory by keeping references in the place of groups of leaves. A
//! group is as it is in the state at the tree's own block, and what is read is compared with its reference.

use std::collections::BTreeSet;

use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    Expansion, GroupLeaves, KeyPath, Nibbles, PartialTrieBuilder, StateTrie, Touched, TrieId, Undo,
};

use crate::commitment::ACCOUNT_LEN;
use crate::domain::{ACCOUNT, DomainId, STORAGE};
use crate::error::Error;
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::state_leaves::{StateLeaves, path_of, prefix_of};
use crate::wal::ChangeRef;

/// The state that groups are read from.
#[derive(Clone, Copy)]
pub(crate) struct GroupState<'v> {
    pub(crate) leaves: StateLeaves<'v>,
    /// The accounts, by what keys have of their paths, whose storage roots at this block are not among the nodes.
    pub(crate) unnoted: &'v BTreeSet<[u8; ACCOUNT_LEN]>,
}

/// Groups that are read together: the pages of the next ones are on their way meanwhile.
const GROUPS: usize = 1 << 11;

/// A group: its trie, and where it is.
type Group = (TrieId, Nibbles);

/// Expands the groups that the changes of a block meet, which are ordered by domain and key.
pub(crate) fn expand_for_block(
    trie: &mut StateTrie,
    state: GroupState<'_>,
    changes: &[ChangeRef<'_>],
) -> Result<(), Error> {
    let of = |id: DomainId| changes.iter().filter(move |change| change.domain == id.0);
    let touched = |change: &ChangeRef<'_>, path| Touched { path, may_vanish: change.value.is_none() };
    let slots: Vec<ChangeRef<'_>> = of(DomainId::STORAGE).copied().collect();
    let by_account = || slots.chunk_by(|a, b| a.key[..ACCOUNT_LEN] == b.key[..ACCOUNT_LEN]);
    let mut accounts: Vec<Touched> =
        of(DomainId::ACCOUNT).map(|change| touched(change, path_of(change.key))).collect();
    let changed = accounts.len();
    for slots in by_account() {
        let prefix = &slots[0].key[..ACCOUNT_LEN];
        let at = accounts[..changed].partition_point(|account| &account.path[..ACCOUNT_LEN] < prefix);
        if !accounts[..changed].get(at).is_some_and(|account| account.path.starts_with(prefix)) {
            let mut path = [0; 32];
            path[..ACCOUNT_LEN].copy_from_slice(prefix);
            accounts.push(Touched { path, may_vanish: false });
        }
    }
    accounts.sort_unstable_by_key(|account| account.path);
    let met = trie.collapsed_below(&TrieId::Accounts, &accounts);
    expand(trie, state, met.into_iter().map(|position| (TrieId::Accounts, position)).collect())?;
    let mut met: Vec<Group> = Vec::new();
    let mut meet = |account: KeyPath, slots: &[Touched]| {
        let storage = TrieId::Storage(account);
        met.extend(trie.collapsed_below(&storage, slots).into_iter().map(|position| (storage, position)));
    };
    for slots in by_account() {
        let Some(account) = trie.account_with_prefix(&slots[0].key[..ACCOUNT_LEN]) else { continue };
        let slots: Vec<Touched> =
            slots.iter().map(|slot| touched(slot, path_of(&slot.key[ACCOUNT_LEN..]))).collect();
        meet(account, &slots);
    }
    // Whether an account that goes leaves slots is known from its whole storage, if that is small.
    for gone in accounts.iter().filter(|account| account.may_vanish) {
        meet(gone.path, &[Touched { path: [0; 32], may_vanish: false }]);
    }
    met.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.paths().cmp(&b.1.paths())));
    met.dedup();
    expand(trie, state, met)
}

/// Expands the groups that taking a block back meets.
pub(crate) fn expand_for_undo(trie: &mut StateTrie, state: GroupState<'_>, undo: &Undo) -> Result<(), Error> {
    let met = trie.collapsed_below(&TrieId::Accounts, &undo.touched_accounts());
    expand(trie, state, met.into_iter().map(|position| (TrieId::Accounts, position)).collect())?;
    let mut met = Vec::new();
    for (account, slots) in undo.touched_slots() {
        let storage = TrieId::Storage(account);
        met.extend(trie.collapsed_below(&storage, &slots).into_iter().map(|position| (storage, position)));
    }
    expand(trie, state, met)
}

/// Expands the groups of a trie that are no deeper than a row that it is about to get.
pub(crate) fn expand_above(
    trie: &mut StateTrie,
    state: GroupState<'_>,
    of: &TrieId,
    depth: usize,
) -> Result<(), Error> {
    let above = trie.collapsed_above(of, depth);
    expand(trie, state, above.into_iter().map(|position| (*of, position)).collect())
}

fn expand(trie: &mut StateTrie, state: GroupState<'_>, groups: Vec<Group>) -> Result<(), Error> {
    let leaves = state.leaves;
    let has_nodes = groups.is_empty() || has_all_nodes(leaves);
    let mut chunks = groups.chunks(GROUPS).peekable();
    chunks.peek().map_or(Ok(()), |first| request(leaves, first))?;
    while let Some(chunk) = chunks.next() {
        chunks.peek().map_or(Ok(()), |next| request(leaves, next))?;
        let expansions =
            chunk.iter().map(|group| read(state, has_nodes, group)).collect::<Result<Vec<_>, _>>()?;
        trie.expand(&expansions).map_err(|error| {
            let domain = if error.trie == TrieId::Accounts { ACCOUNT } else { STORAGE };
            Error::RecordDamaged { domain, block: leaves.at }
        })?;
    }
    Ok(())
}

/// Requests the pages of groups.
fn request(leaves: StateLeaves<'_>, groups: &[Group]) -> Result<(), Error> {
    let (mut accounts, mut slots) = (Vec::new(), Vec::new());
    for (trie, position) in groups {
        match trie {
            TrieId::Accounts => accounts.push(LeafRange::below(position)),
            TrieId::Storage(account) => slots.push((prefix_of(account), LeafRange::below(position))),
        }
    }
    leaves.request_accounts(&accounts)?;
    leaves.request_slots(&slots)
}

fn read(state: GroupState<'_>, has_nodes: bool, &(trie, position): &Group) -> Result<Expansion, Error> {
    let GroupState { leaves, unnoted } = state;
    let range = LeafRange::below(&position);
    let leaves = match trie {
        TrieId::Accounts => {
            let mut accounts = leaves.accounts(&range)?;
            let is_noted = |path: &KeyPath| has_nodes && !unnoted.contains(&prefix_of(path));
            for (path, account) in accounts.iter_mut().filter(|(path, _)| !is_noted(path)) {
                account.storage_root = storage_root(leaves, path)?;
            }
            GroupLeaves::Accounts(accounts)
        }
        TrieId::Storage(account) => GroupLeaves::Slots(leaves.slots(&prefix_of(&account), &range)?),
    };
    Ok(Expansion { trie, position, leaves })
}

/// Whether there are nodes of all blocks in segments: not while [rows](crate::maintain::rows) are built.
fn has_all_nodes(leaves: StateLeaves<'_>) -> bool {
    let end_of = |domain, from| {
        let segments = leaves.version.domain(domain).iter().map(|segment| segment.record.steps);
        segments.fold(from, |end, steps| if steps.from() <= end { end.max(steps.to()) } else { end })
    };
    let roots = leaves.version.domain(DomainId::ROOTS).iter().map(|segment| segment.record.steps);
    roots.into_iter().all(|steps| end_of(leaves.nodes, steps.from()) >= steps.to())
}

/// The root of a storage that collapsed with its account, so that it is small.
fn storage_root(leaves: StateLeaves<'_>, account: &KeyPath) -> Result<[u8; 32], Error> {
    let slots = leaves.slots(&prefix_of(account), &LeafRange::below(&Nibbles::EMPTY))?;
    let damaged = |_| Error::RecordDamaged { domain: STORAGE, block: leaves.at };
    let mut builder = PartialTrieBuilder::new();
    slots.iter().try_for_each(|(path, value)| builder.push_slot(path, value)).map_err(damaged)?;
    Ok(builder.finish(HashBackend::default()).root().0)
}
