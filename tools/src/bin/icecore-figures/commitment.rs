//! The figures of Ethereum's state trie against their goals, beside what this machine can do of Keccak.
//!
//! Blocks of 465 updates, as mainnet has them, change random keys of a loaded state; the trie counts the permutations that its
//! messages take, and the roof is how many the machine makes of one-block messages in the same run, by the same lanes.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use icecore_hot::HashBackend;
use icecore_hot::ethereum::{
    Account, EMPTY_CODE_HASH, EMPTY_ROOT, KeyPath, StateBatch, StateLoader, StateTrie, keccak256_batch,
};
use icecore_hot::measure::mix;
use icecore_tools::machine::{Conditions, load_average};
use icecore_tools::measure::cpu::Times;
use serde::Serialize;

use crate::report::Figures;

/// The updates of a block of mainnet, on average.
const BLOCK: u64 = 465;
const BLOCKS: u64 = 200;
const PASSES: u64 = 3;
/// The slots of each contract of the mixed state.
const SLOTS: u64 = 1 << 10;
/// Messages hashed for the roof, each of one permutation.
const MESSAGES: u64 = 1 << 12;

/// How to measure the figures of Ethereum's state trie.
#[derive(Args)]
pub(crate) struct CommitmentArgs {
    /// A trial run: every state 256 times smaller, under the names of the full run. No figure of it counts.
    #[arg(long)]
    small: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Under which conditions it was measured.
#[derive(Serialize)]
struct CommitmentConditions {
    /// Whether the states were smaller than the names say: then no figure counts.
    trial: bool,
    machine: Conditions,
    hash_backend: String,
    workload: &'static str,
    clock: &'static str,
    repetitions: &'static str,
    /// At the beginning and at the end.
    load_average: [Option<f64>; 2],
}

const WORKLOAD: &str = "blocks of 465 updates: new values of random keys; accounts: nonce and balance; mixed: of the keys 1 in 1024 is a contract, \
     the others are slots of theirs, and two updates of three are of slots; paths are hashed before";

const CLOCK: &str = "time of one thread on a processor";

const REPETITIONS: &str =
    "the best of 3 passes over 200 blocks, each of other keys; the roof: the best of 5 passes; load once";

/// The states that are measured, as their figures are called.
const STATES: [(&str, u32, bool); 3] =
    [("2^20 accounts", 20, false), ("2^22 accounts", 22, false), ("2^22 keys, mixed", 22, true)];

/// Measures and prints.
pub(crate) fn run(args: &CommitmentArgs) -> Result<(), Box<dyn Error>> {
    let load_before = load_average();
    let mut figures = Figures::new();
    let widest = HashBackend::Auto.resolve();
    let mut backends = vec![(widest, name(widest))];
    if widest != HashBackend::Portable {
        backends.push((HashBackend::Portable, name(HashBackend::Portable)));
    }
    for (backend, lanes) in backends {
        let roof = roof(backend);
        figures.add(&format!("keccak, {lanes}: permutations"), roof / 1e6);
        for (state, bits, is_mixed) in STATES {
            let keys = 1 << (bits - if args.small { 8 } else { 0 });
            let measured = measure(backend, keys, is_mixed)?;
            let mut add = |what: &str, figure: f64| figures.add(&format!("{state}, {lanes}: {what}"), figure);
            add("load", measured.load / 1e3);
            add("updates", measured.updates / 1e3);
            add("updates, share of the keccak roof", 100.0 * measured.updates * measured.permutations / roof);
            add("permutations an update", measured.permutations);
            add("undo", measured.undo / 1e3);
            add("memory", measured.memory);
        }
    }
    let conditions = CommitmentConditions {
        trial: args.small,
        machine: Conditions::of(Path::new(".")),
        hash_backend: format!("{widest:?}"),
        workload: WORKLOAD,
        clock: CLOCK,
        repetitions: REPETITIONS,
        load_average: [load_before, load_average()],
    };
    figures.print(&conditions, args.json)?;
    Ok(())
}

fn name(backend: HashBackend) -> &'static str {
    match backend {
        HashBackend::Avx512 => "AVX-512",
        HashBackend::Avx2 => "AVX2",
        HashBackend::Neon => "NEON",
        _ => "portable",
    }
}

/// Permutations a second.
fn roof(backend: HashBackend) -> f64 {
    let messages: Vec<[u8; 108]> = (0..MESSAGES).map(|i| [i as u8; 108]).collect();
    let time = (0..5).map(|_| Times::of(|| keccak256_batch(&messages, backend)).0.cpu).min();
    MESSAGES as f64 / time.unwrap_or_default().as_secs_f64()
}

/// What was measured of one state; rates are a second.
struct Measured {
    load: f64,
    updates: f64,
    undo: f64,
    /// Of an update.
    permutations: f64,
    /// Bytes of a key.
    memory: f64,
}

fn measure(backend: HashBackend, keys: u64, is_mixed: bool) -> Result<Measured, Box<dyn Error>> {
    let state = State::new(backend, keys, is_mixed);
    let (loaded, trie) = Times::of(|| state.load(backend));
    let mut trie = trie?;
    let before = (trie.root(), trie.permutations());
    let (mut best, mut undone) = (Duration::MAX, Duration::MAX);
    let mut applied_permutations = 0;
    for pass in 0..PASSES {
        let batches: Vec<StateBatch> =
            (0..BLOCKS).map(|block| state.batch(pass * BLOCKS + block)).collect::<Result<_, _>>()?;
        let start = trie.permutations();
        let (time, undos) = Times::of(|| {
            let applied = batches.iter().map(|batch| trie.apply(batch).map(|applied| applied.undo));
            applied.collect::<Result<Vec<_>, _>>()
        });
        best = best.min(time.cpu);
        applied_permutations = trie.permutations() - start;
        let undos = undos?;
        let (time, ()) = Times::of(|| {
            for undo in undos.into_iter().rev() {
                trie.undo(undo);
            }
        });
        undone = undone.min(time.cpu);
    }
    assert_eq!(trie.root(), before.0, "undo gives back the root");
    let updates = (BLOCK * BLOCKS) as f64;
    Ok(Measured {
        load: keys as f64 / loaded.cpu.as_secs_f64(),
        updates: updates / best.as_secs_f64(),
        undo: updates / undone.as_secs_f64(),
        permutations: applied_permutations as f64 / updates,
        memory: trie.memory().bytes_per_key(),
    })
}

/// Which keys there are: paths of accounts, and of slots, which all contracts have.
struct State {
    accounts: Vec<KeyPath>,
    slots: Vec<KeyPath>,
}

impl State {
    fn new(backend: HashBackend, keys: u64, is_mixed: bool) -> Self {
        let paths = |count: u64, salt: u64| {
            let messages: Vec<[u8; 8]> = (0..count).map(|i| mix(i + salt).to_be_bytes()).collect();
            let mut paths = keccak256_batch(&messages, backend);
            paths.sort_unstable();
            paths
        };
        let slots = if is_mixed { SLOTS.min(keys / 4) } else { 0 };
        Self { accounts: paths(keys / slots.max(1), 0), slots: paths(slots, 1 << 40) }
    }

    fn load(&self, backend: HashBackend) -> Result<StateTrie, Box<dyn Error>> {
        // The storage of all contracts is the same, and so is its root.
        let storage_root = if self.slots.is_empty() { EMPTY_ROOT } else { self.storage_root(backend)? };
        let code_hash = if self.slots.is_empty() { EMPTY_CODE_HASH } else { [0xC0; 32] };
        let mut loader = StateLoader::new(backend);
        for account in &self.accounts {
            let nonce = u64::from(account[0]);
            loader.push_account(
                account,
                &Account { nonce, balance: balance(nonce), code_hash, storage_root },
            )?;
            for slot in &self.slots {
                loader.push_slot(slot, &slot[..12])?;
            }
        }
        Ok(loader.finish()?)
    }

    fn storage_root(&self, backend: HashBackend) -> Result<KeyPath, Box<dyn Error>> {
        let (mut batch, account) = (StateBatch::new(), [0; 32]);
        batch.put_account(&account, 1, balance(0), EMPTY_CODE_HASH);
        for slot in &self.slots {
            batch.put_slot(&account, slot, &slot[..12])?;
        }
        let applied = StateTrie::new(backend).apply(&batch)?;
        Ok(applied.storage_roots.first().map_or(EMPTY_ROOT, |(_, root)| *root))
    }

    /// Block `number`.
    fn batch(&self, number: u64) -> Result<StateBatch, Box<dyn Error>> {
        let code_hash = if self.slots.is_empty() { EMPTY_CODE_HASH } else { [0xC0; 32] };
        let mut batch = StateBatch::new();
        for i in 0..BLOCK {
            let draw = mix(number * BLOCK + i);
            let account = &self.accounts[(draw % self.accounts.len() as u64) as usize];
            if self.slots.is_empty() || i % 3 == 0 {
                batch.put_account(account, 1000 + number, balance(draw), code_hash);
            } else {
                let slot = &self.slots[((draw >> 32) % self.slots.len() as u64) as usize];
                batch.put_slot(account, slot, &draw.to_be_bytes())?;
            }
        }
        Ok(batch)
    }
}

fn balance(seed: u64) -> [u8; 32] {
    let mut balance = [0; 32];
    balance[22..30].copy_from_slice(&mix(seed).to_be_bytes());
    balance
}
