//! The changes of a block as a batch for the tries of Ethereum, if they are changes of a state: for the
//! [writer](crate::merkle::ethereum_tree), and for whoever takes a [kept tree](crate::merkle::kept_tree) to another block.

use icecore_hot::ethereum::{Account, KeyPath, Nibbles, StateBatch, StateTrie, keccak256};

use crate::commitment::ACCOUNT_LEN;
use crate::domain::DomainId;
use crate::merkle::state_leaves::path_of;
use crate::wal::ChangeRef;

/// Fills the batch with the changes of a block, ordered by domain and key, to the state that the trie is of.
///
/// # Errors
/// What keeps them from being changes of a state.
pub(crate) fn gather(
    trie: &StateTrie,
    batch: &mut StateBatch,
    changes: &[ChangeRef<'_>],
) -> Result<(), String> {
    batch.clear();
    let of = |id: DomainId| {
        let from = changes.partition_point(|change| change.domain < id.0);
        let to = changes.partition_point(|change| change.domain <= id.0);
        &changes[from..to]
    };
    let (accounts, slots) = (of(DomainId::ACCOUNT), of(DomainId::STORAGE));
    for change in of(DomainId::CODE) {
        if change.value.is_some_and(|code| keccak256(code) != change.key) {
            return Err(format!("the key of code {} is not its hash", shown(change.key)));
        }
    }
    for change in accounts {
        let path = path_of(change.key);
        match change.value.map(Account::decode).transpose().map_err(|error| error.to_string())? {
            Some(account) => {
                batch.put_account(&path, account.nonce, account.balance, account.code_hash);
            }
            None => {
                check_emptied(trie, &path, slots)?;
                batch.delete_account(&path);
            }
        }
    }
    for of_account in slots.chunk_by(|a, b| a.key[..ACCOUNT_LEN] == b.key[..ACCOUNT_LEN]) {
        gather_slots(trie, batch, accounts, of_account)?;
    }
    Ok(())
}

/// Adds the slots of one account.
fn gather_slots(
    trie: &StateTrie,
    batch: &mut StateBatch,
    accounts: &[ChangeRef<'_>],
    slots: &[ChangeRef<'_>],
) -> Result<(), String> {
    let prefix = &slots[0].key[..ACCOUNT_LEN];
    let at = accounts.partition_point(|account| &account.key[..ACCOUNT_LEN] < prefix);
    let changed = accounts.get(at).filter(|account| account.key.starts_with(prefix));
    let account = match changed {
        Some(account) => Some(path_of(account.key)).filter(|_| account.value.is_some()),
        None => trie.account_with_prefix(prefix),
    };
    for slot in slots {
        let path = path_of(&slot.key[ACCOUNT_LEN..]);
        match (account, slot.value) {
            // Deleting what is not there changes nothing; an account that goes was found to lose all its slots.
            (None, None) => {}
            (None, Some(_)) => {
                return Err(format!(
                    "a slot is written of the account with the path {}.., which is not there",
                    shown(prefix)
                ));
            }
            (Some(account), None) => batch.delete_slot(&account, &path),
            (Some(_), Some(value)) if value.iter().all(|byte| *byte == 0) => {
                return Err("a slot is set to zero: delete it".to_owned());
            }
            (Some(account), Some(value)) => {
                batch.put_slot(&account, &path, value).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Refuses to delete an account whose slots stay in the domain of slots.
fn check_emptied(trie: &StateTrie, path: &KeyPath, slots: &[ChangeRef<'_>]) -> Result<(), String> {
    let len = trie.storage_len(path).unwrap_or(0);
    let from = slots.partition_point(|slot| slot.key[..ACCOUNT_LEN] < path[..ACCOUNT_LEN]);
    let own = slots[from..].iter().take_while(|slot| slot.key.starts_with(&path[..ACCOUNT_LEN]));
    let deleted = own
        .filter(|slot| slot.value.is_none() && trie.slot(path, &path_of(&slot.key[ACCOUNT_LEN..])).is_some());
    let left = len - deleted.count() as u64;
    if left == 0 {
        return Ok(());
    }
    Err(format!(
        "the account with the path {} is deleted and keeps {left} slots: delete them in the same block",
        Nibbles::prefix(path, 64)
    ))
}

/// A part of a path, to show it.
fn shown(bytes: &[u8]) -> Nibbles {
    let mut path = [0; 32];
    path[..bytes.len()].copy_from_slice(bytes);
    Nibbles::prefix(&path, 2 * bytes.len())
}
