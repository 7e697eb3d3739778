//! The blocks of an input as the archive takes them.

use std::path::PathBuf;

use icecore::ethereum::{BlockState, Word, keccak256};
use icecore::{Archive, BlockWriter, Commitment, Comparison, Error, Scan, View};

use super::headers::Headers;
use crate::encoding::hex;
use crate::exit::Failure;
use crate::input::{BALANCE, Block, CODE, FormatName, NONCE, STORAGE};

/// How the blocks of an input become blocks of the archive.
pub(super) struct Form {
    /// The domains of the format, by number.
    pub(super) names: Vec<String>,
    /// Whether they are fields of accounts, of which the archive has records.
    is_state: bool,
    /// The block from which empty accounts are cleared.
    clear_empty_from: Option<u64>,
    headers: Option<Headers>,
}

impl Form {
    /// That of an archive. Roots are compared with those of `headers`, and blocks from `clear_empty_from` on clear empty accounts.
    pub(super) fn of(
        archive: &Archive,
        format: FormatName,
        headers: Option<PathBuf>,
        clear_empty_from: Option<u64>,
        names: Vec<String>,
    ) -> Self {
        let is_state = archive.reader().commitment() == Commitment::Ethereum && format != FormatName::Jsonl;
        Self { names, is_state, clear_empty_from, headers: headers.map(Headers::open) }
    }

    /// The block as it is written.
    pub(super) fn draft<'a>(
        &mut self,
        archive: &'a Archive,
        block: &Block,
    ) -> Result<BlockWriter<'a>, Failure> {
        let mut writer = if self.is_state {
            let clears_empty = self.clear_empty_from.is_some_and(|from| from <= block.height);
            draft_state(archive, block, clears_empty)?
        } else {
            draft(archive, &self.names, block)?
        };
        if let Some(headers) = &mut self.headers {
            writer.expect_root(headers.root_of(block.height)?);
        }
        Ok(writer)
    }

    /// An error of a commit, with the address and its line where it speaks of the path of an account.
    pub(super) fn told(&self, block: &Block, error: Error) -> Failure {
        let Error::NoState { reason, .. } = &error else { return error.into() };
        let of_path = |key: &&[u8]| {
            let path = key.first_chunk::<20>().map(|address| hex(&keccak256(address)[..20]));
            path.is_some_and(|path| reason.contains(&path[2..]))
        };
        let mut changed = block.changes.iter().filter(|_| self.is_state);
        let Some((domain, key, _)) = changed.find(|(_, key, _)| of_path(key)) else { return error.into() };
        let (place, address) = (block.place_of(domain, key), hex(&key[..20]));
        Failure::usage(format!("{place}: {error} (the account {address})"))
    }
}

/// Puts the changes of a block together.
fn draft<'a>(archive: &'a Archive, names: &[String], block: &Block) -> Result<BlockWriter<'a>, Error> {
    let mut writer = archive.draft(block.height);
    if !block.changes.wiped().is_empty()
        && let Some(view) = state_before(archive, block.height)?
    {
        for address in block.changes.wiped() {
            for slot in view.scan(&names[STORAGE], &Scan::prefix(address))? {
                writer.delete(&names[STORAGE], &slot?.key)?;
            }
        }
    }
    for (domain, key, value) in block.changes.iter() {
        match value {
            Some(value) => writer.put(&names[domain], key, value)?,
            None => writer.delete(&names[domain], key)?,
        }
    }
    Ok(writer)
}

/// The state that a block is written on: the newest, or for a block that is in the archive that of the block before it.
///
/// Below the floor of a prune there is no state any more: the block at the floor, which is only compared, is written on its own.
fn state_before(archive: &Archive, height: u64) -> Result<Option<View>, Error> {
    let (Some((first, head)), Some(before)) = (archive.reader().range(), height.checked_sub(1)) else {
        return Ok(None);
    };
    let is_floor = || -> Result<bool, Error> {
        Ok(height == first && archive.draft(before).compare()? == Comparison::Pruned)
    };
    match () {
        () if first <= before => archive.at(before.min(head)).map(Some),
        () if is_floor()? => archive.at(height).map(Some),
        () => Ok(None),
    }
}

/// Puts the changes of a block of an archive for Ethereum together: fields of accounts become records.
///
/// # Errors
/// A number is too large for the state; the archive cannot be read.
fn draft_state<'a>(
    archive: &'a Archive,
    block: &Block,
    clears_empty: bool,
) -> Result<BlockWriter<'a>, Failure> {
    let mut state = BlockState::new();
    if clears_empty {
        state.clear_empty_accounts();
    }
    for address in block.changes.wiped() {
        state.account(*address).wipes_storage = true;
    }
    for (domain, key, value) in block.changes.iter() {
        let (address, slot) = key.split_first_chunk().expect("keys of these formats begin with an address");
        let account = state.account(*address);
        match domain {
            BALANCE => account.balance = Some(value.map(word)),
            NONCE => {
                let nonce = |value| {
                    let place = block.place_of(domain, key);
                    let large = || Failure::usage(format!("{place}: a nonce has at most 64 bits"));
                    nonce(&word(value)).ok_or_else(large)
                };
                account.nonce = Some(value.map(nonce).transpose()?);
            }
            CODE => account.code = Some(value.map(<[u8]>::to_vec)),
            STORAGE => drop(account.slots.insert(word(slot), value.map(word).unwrap_or_default())),
            _ => unreachable!("the formats have four domains"),
        }
    }
    check_fields(block, &mut state)?;
    let before = state_before(archive, block.height)?;
    let mut writer = archive.draft(block.height);
    state.write(before.as_ref(), &mut writer)?;
    Ok(writer)
}

/// Refuses a block that says of an account that it is gone and that it is there.
fn check_fields(block: &Block, state: &mut BlockState) -> Result<(), Failure> {
    for (domain, key, value) in block.changes.iter().filter(|(domain, ..)| [BALANCE, NONCE].contains(domain))
    {
        let Some(address) = key.first_chunk().filter(|_| value.is_none()) else { continue };
        let account = state.account(*address);
        let (cleared, set, other) = match domain {
            BALANCE => ("balance", "nonce", account.nonce.is_some_and(|nonce| nonce.is_some())),
            _ => ("nonce", "balance", account.balance.is_some_and(|balance| balance.is_some())),
        };
        if other {
            let (place, address) = (block.place_of(domain, key), hex(address));
            return Err(Failure::usage(format!(
                "{place}: block {} clears the {cleared} of {address} and sets its {set}: an account that is there has both",
                block.height
            )));
        }
    }
    Ok(())
}

/// A number of up to 32 bytes, big-endian.
fn word(bytes: &[u8]) -> Word {
    let mut word = [0; 32];
    word[32 - bytes.len()..].copy_from_slice(bytes);
    word
}

fn nonce(word: &Word) -> Option<u64> {
    let (high, low) = word.split_last_chunk()?;
    high.iter().all(|byte| *byte == 0).then(|| u64::from_be_bytes(*low))
}
