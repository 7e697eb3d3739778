//! Archives whose commitment is the state trie of Ethereum: their domains, what they hold, and the changes of a block by account.
//!
//! | domain | plain key | value |
//! |---|---|---|
//! | [`ACCOUNT`] | address, 20 bytes | [`Account::encode`]: nonce, balance and code hash; the storage root is the trie's to say |
//! | [`CODE`] | Keccak-256 of the code, 32 bytes | the code, once for all accounts that have it |
//! | [`STORAGE`] | address and slot, 20 + 32 bytes | 32 bytes, big-endian |
//!
//! Accounts and slots are kept in the order of the trie, so that what is below one of its nodes is one range of a file.
//!
//! ```
//! use icecore::ethereum::{BlockState, word};
//! use icecore::{Archive, Commitment, Options};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let archive = Archive::create(dir.path().join("eth.ice"), Options::new().commitment(Commitment::Ethereum))?;
//! let mut state = BlockState::new();
//! let account = state.account([7; 20]);
//! account.balance = Some(Some(word(1_000)));
//! account.slots.insert(word(1), word(42));
//! let mut block = archive.begin(1)?;
//! state.write(None, &mut block)?;
//! let root = block.commit()?;
//!
//! let proof = archive.at(1)?.prove_account(&[7; 20], &[word(1), word(2)])?;
//! let slots = proof.verify(&root, &[7; 20])?;
//! assert_eq!(slots, [word(42), word(0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;

pub use icecore_hot::ethereum::{Account, EMPTY_CODE_HASH, EMPTY_ROOT, NodeProofError, keccak256};

use crate::block::BlockWriter;
use crate::commitment::{ACCOUNT_LEN, Commitment};
use crate::domain::DomainId;
pub use crate::domain::{ACCOUNT, CODE, STORAGE};
use crate::error::Error;
pub use crate::merkle::account_proof::{AccountProof, AccountProofError, Address, SlotProof, Word};
use crate::merkle::prove_account::prove_accounts;
use crate::merkle::state_leaves::decode_account;
use crate::options::Config;
use crate::read::scan_range::Scan;
use crate::read::shared::Shared;
use crate::reader::Reader;
use crate::view::View;

/// A number as a word.
pub fn word(number: u64) -> Word {
    let mut word = [0; 32];
    word[24..].copy_from_slice(&number.to_be_bytes());
    word
}

/// What a block changes, by account, as feeds of Ethereum tell it: fields of accounts, and slots. [`BlockState::write`] makes records of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockState {
    accounts: BTreeMap<Address, AccountChange>,
    clears_empty: bool,
}

/// What a block changes of one account. Fields that are `None` stay as they are; `Some(None)` says that the account has none any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    /// The balance after the block.
    pub balance: Option<Option<Word>>,
    /// The nonce after the block.
    pub nonce: Option<Option<u64>>,
    /// The code after the block.
    pub code: Option<Option<Vec<u8>>>,
    /// Whether all slots from before the block are gone.
    pub wipes_storage: bool,
    /// The slots that the block writes, with their values after it; zero clears a slot.
    pub slots: BTreeMap<Word, Word>,
}

impl AccountChange {
    /// The account after the change; `None` where it is gone: without a nonce or a balance, and with no field that is set.
    fn account(&self, before: Option<Account>) -> Option<Account> {
        let clears = matches!(self.balance, Some(None)) || matches!(self.nonce, Some(None));
        let sets = matches!(self.balance, Some(Some(_)))
            || matches!(self.nonce, Some(Some(_)))
            || matches!(self.code, Some(Some(_)));
        if !sets && (clears || before.is_none()) {
            return None;
        }
        let mut account = before.unwrap_or_default();
        if let Some(balance) = self.balance {
            account.balance = balance.unwrap_or_default();
        }
        if let Some(nonce) = self.nonce {
            account.nonce = nonce.unwrap_or_default();
        }
        if let Some(code) = &self.code {
            account.code_hash = code.as_deref().map_or(EMPTY_CODE_HASH, keccak256);
        }
        Some(account)
    }
}

impl BlockState {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// The change of an account.
    pub fn account(&mut self, address: Address) -> &mut AccountChange {
        self.accounts.entry(address).or_default()
    }

    /// Clears the accounts of this block that are empty after it, as EIP-161 has it: those without nonce, balance and code go with their
    /// slots. It is for the blocks from the one on at which the chain has that rule, for feeds that list every account that a block
    /// touches and leave the rule to the reader, as block access lists do. Without it the feed says what goes, and an empty
    /// account is an account.
    pub fn clear_empty_accounts(&mut self) {
        self.clears_empty = true;
    }

    /// Writes the records of the accounts that change, their codes and their slots. `before` is the state that the block is written on;
    /// `None` for the first block. An account that is gone loses all its slots.
    ///
    /// # Cost
    /// A lookup for each account of which a field changes; a range read of the slots of each account whose storage is wiped.
    ///
    /// # Errors
    /// Those of [`View::get`] and of [`BlockWriter::put`].
    pub fn write(&self, before: Option<&View>, block: &mut BlockWriter<'_>) -> Result<(), Error> {
        for (address, change) in &self.accounts {
            let former = before.map_or(Ok(None), |view| view.account(address))?;
            let after = change.account(former);
            let account = after.filter(|account| !self.clears_empty || !is_empty(account));
            let is_wiped = change.wipes_storage || (account.is_none() && former.is_some());
            if let Some(view) = before.filter(|_| is_wiped) {
                wipe(view, address, block)?;
            }
            if account != former {
                match account {
                    Some(account) => block.put(ACCOUNT, address, &account.encode())?,
                    None => block.delete(ACCOUNT, address)?,
                }
            }
            if let Some(Some(code)) = &change.code {
                let hash = keccak256(code);
                // The same for every account, so a version of it for each would say nothing.
                if before.map_or(Ok(None), |view| view.get(CODE, &hash))?.is_none() {
                    block.put(CODE, &hash, code)?;
                }
            }
            // What a cleared account wrote into its storage goes with it.
            let slots = change.slots.iter().filter(|_| account == after);
            for (slot, value) in slots {
                let key = [&address[..], slot].concat();
                if *value == Word::default() {
                    block.delete(STORAGE, &key)?;
                } else {
                    block.put(STORAGE, &key, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether an account is empty by EIP-161, which does not ask for its storage.
fn is_empty(account: &Account) -> bool {
    account.nonce == 0 && account.balance == Word::default() && account.code_hash == EMPTY_CODE_HASH
}

/// Deletes all slots of an account.
fn wipe(view: &View, address: &Address, block: &mut BlockWriter<'_>) -> Result<(), Error> {
    let path = keccak256(address);
    for slot in view.scan(STORAGE, &Scan::prefix(&path[..ACCOUNT_LEN]))? {
        block.delete_stored(DomainId::STORAGE, &slot?.key);
    }
    Ok(())
}

/// Refuses a call that is for archives of Ethereum.
pub(crate) fn check(config: &Config, asked: &'static str) -> Result<(), Error> {
    match config.commitment {
        Commitment::Ethereum => Ok(()),
        commitment => Err(Error::Commitment { asked, commitment }),
    }
}

impl Reader {
    /// Whether rows of the tree are kept at every block. See [`Options::keep_rows`](crate::Options::keep_rows).
    pub fn keeps_rows(&self) -> bool {
        self.shared.read_state().keeps_rows
    }
}

impl View {
    /// An account of an archive for Ethereum, its storage root left empty: the trie has that. `None` where there is none.
    ///
    /// # Cost
    /// That of [`View::get`].
    ///
    /// # Errors
    /// [`Error::Commitment`] in other archives; [`Error::RecordDamaged`]; those of [`View::get`].
    pub fn account(&self, address: &Address) -> Result<Option<Account>, Error> {
        check(&self.shared.directory.config, "an account")?;
        let record = self.get(ACCOUNT, address)?;
        record.map(|record| decode_account(&record, self.at)).transpose()
    }

    /// Proves an account and some of its slots in this state, or that they are not there: what `eth_getProof` answers.
    ///
    /// # Cost
    /// That of [`prove_accounts`](Self::prove_accounts).
    ///
    /// # Errors
    /// Those of [`prove_accounts`](Self::prove_accounts).
    pub fn prove_account(&self, address: &Address, slots: &[Word]) -> Result<AccountProof, Error> {
        let mut proofs = self.prove_accounts(&[(*address, slots)])?;
        Ok(proofs.pop().expect("one account was asked for"))
    }

    /// Proves accounts and slots of each, in the order asked; what several of them need is read once.
    ///
    /// # Cost
    /// For an account, and for each storage of which slots are asked: some hundred lookups of nodes, together, and a range read of at
    /// most some thousand leaves; a storage of up to 8,192 slots is read whole. Where the nodes of the block are not there (with
    /// [`Options::keep_rows`](crate::Options::keep_rows) off, and for blocks in the log beside a writer in another process) the tries are rebuilt: every
    /// account and slot is read once, and takes about 110 bytes of memory meanwhile.
    ///
    /// # Errors
    /// [`Error::Commitment`] in archives that are not for Ethereum; [`Error::RootMismatch`] or [`Error::RecordDamaged`] when what was
    /// read does not have the recorded root; damage of a file that is read; [`Error::NotHeld`].
    pub fn prove_accounts(&self, asked: &[(Address, &[Word])]) -> Result<Vec<AccountProof>, Error> {
        let Shared { directory, counters, .. } = &*self.shared;
        check(&directory.config, "a proof of an account")?;
        self.version.read(|state| prove_accounts(state, &directory.config, counters.mine(), self.at, asked))
    }
}
