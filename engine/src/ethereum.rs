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
use std::ops::RangeInclusive;

pub use icecore_hot::ethereum::range::{Beyond, RangeProofError};
pub use icecore_hot::ethereum::{Account, EMPTY_CODE_HASH, EMPTY_ROOT, NodeProofError, keccak256};

use icecore_segments::step::BlockNumber;

use crate::block::BlockWriter;
use crate::commitment::{ACCOUNT_LEN, Commitment};
use crate::domain::DomainId;
pub use crate::domain::{ACCOUNT, CODE, STORAGE};
use crate::error::Error;
pub use crate::merkle::account_proof::{
    AccountProof, AccountProofError, Address, AskedAccount, SlotProof, Word,
};
use crate::merkle::leaf_range::LeafRange;
use crate::merkle::multi_proof::MultiProofBuilder;
pub use crate::merkle::multi_proof::{
    MultiProof, MultiProofError, MultiProofReason, ProvenAccount, ProvenBlock,
};
use crate::merkle::prove_account::ProvenState;
pub use crate::merkle::range_proof::{AccountRange, SlotRange, SlotRangeError};
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

    /// Writes the records of the accounts that change, their codes and their slots. `before` is the state that the block is written on: that of
    /// the newest block below it, `None` for the first block. An account that is gone loses all its slots.
    ///
    /// # Cost
    /// A lookup for each account of which a field changes; a range read of the slots of each account whose storage is wiped.
    ///
    /// # Errors
    /// [`Error::NoState`] where `before` is not the state below the block; those of [`View::get`] and of [`BlockWriter::put`].
    pub fn write(&self, before: Option<&View>, block: &mut BlockWriter<'_>) -> Result<(), Error> {
        check_before(before, block)?;
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

/// Refuses a state that a block is not written on: fields that the block leaves as they are would be those of another one.
fn check_before(before: Option<&View>, block: &BlockWriter<'_>) -> Result<(), Error> {
    let (version, height) = (block.writer.read_state(), block.height());
    let below = match (version.range(), height.checked_sub(1)) {
        (Some((first, head)), Some(below)) if first <= below => Some(version.newest_root(below.min(head))?.0),
        _ => None,
    };
    let reason = match (before.map(View::height), below) {
        (None, Some(below)) => format!("it was not given, and the archive has block {below} below"),
        (Some(at), Some(below)) if at < below => {
            format!("it is that of block {at}, and block {below} is newer")
        }
        // The block at the floor of a prune has no state below any more, and is compared with itself.
        (Some(at), _) if at > height || (at == height && below.is_some()) => {
            format!("it is that of block {at}, which is not below")
        }
        _ => return Ok(()),
    };
    let reason = format!("the state that it is written on: {reason}");
    Err(Error::NoState { block: height, commitment: Commitment::Ethereum, reason })
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

    /// Proves accounts and slots of each at several blocks, in one proof in which each node stands once: of blocks that follow each other
    /// most nodes are the same.
    ///
    /// # Cost
    /// That of [`View::prove_accounts`] for each block.
    ///
    /// # Errors
    /// Those of [`Reader::at`] and of [`View::prove_accounts`].
    pub fn prove_many(&self, asked: &[(BlockNumber, &[AskedAccount<'_>])]) -> Result<MultiProof, Error> {
        let mut proofs = MultiProofBuilder::default();
        for (block, accounts) in asked {
            proofs.add(*block, accounts, self.at(*block)?.prove_accounts(accounts)?);
        }
        Ok(proofs.finish())
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
    pub fn prove_accounts(&self, asked: &[AskedAccount<'_>]) -> Result<Vec<AccountProof>, Error> {
        self.prove_state("a proof of an account", |state| state.prove_accounts(asked))
    }

    /// Proves that accounts are all that this state has from one path to another, both inside: at most `count`, the first ones, for who
    /// takes a state from an archive in parts. A path is the Keccak-256 of an address.
    ///
    /// # Cost
    /// The pages that have the accounts, and twice what [`prove_account`](Self::prove_account) takes.
    ///
    /// # Errors
    /// Those of [`prove_accounts`](Self::prove_accounts); [`Error::Options`] for a range that ends before it begins, or a count of zero.
    pub fn prove_account_range(
        &self,
        paths: RangeInclusive<Word>,
        count: usize,
    ) -> Result<AccountRange, Error> {
        let range = leaf_range(paths, count)?;
        self.prove_state("a proof of accounts", |state| state.prove_account_range(&range, count))
    }

    /// Proves that slots are all that an account has from one path to another, both inside: at most `count`, the first ones. A path is the
    /// Keccak-256 of a slot.
    ///
    /// # Cost
    /// The pages that have the slots, and three times what [`prove_account`](Self::prove_account) takes.
    ///
    /// # Errors
    /// Those of [`prove_account_range`](Self::prove_account_range).
    pub fn prove_slot_range(
        &self,
        address: &Address,
        paths: RangeInclusive<Word>,
        count: usize,
    ) -> Result<SlotRange, Error> {
        let range = leaf_range(paths, count)?;
        self.prove_state("a proof of slots", |state| state.prove_slot_range(address, &range, count))
    }

    fn prove_state<T>(
        &self,
        asked: &'static str,
        prove: impl Fn(&ProvenState<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Shared { directory, counters, .. } = &*self.shared;
        let config = &directory.config;
        check(config, asked)?;
        let nodes = config.nodes().expect("an archive for Ethereum has nodes");
        self.version.read(|version| {
            prove(&ProvenState { version, config, nodes, tally: counters.mine(), at: self.at })
        })
    }
}

fn leaf_range(paths: RangeInclusive<Word>, count: usize) -> Result<LeafRange, Error> {
    let (first, last) = paths.into_inner();
    let refused = |field, reason: &str| Err(Error::Options { field, reason: reason.to_owned() });
    match () {
        () if first > last => refused("paths", "the range ends before it begins"),
        () if count == 0 => refused("count", "no leaf at all"),
        () => Ok(LeafRange { first, last }),
    }
}
