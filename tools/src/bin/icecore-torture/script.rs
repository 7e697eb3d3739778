//! What the driver does: operations on an archive, all a function of a seed, and the state of the model before and after each.

use std::fmt;
use std::num::NonZeroU64;

use icecore::{Commitment, Domain, EncodingRule, Options};
use icecore_tools::workload::SplitMix64;

use crate::ethereum;
use crate::model::{Change, DOMAINS, Model, Value};

/// One thing that a caller does.
#[derive(Clone)]
pub(crate) enum Op {
    Create,
    Commit {
        height: u64,
        changes: Vec<Change>,
    },
    Emit,
    Merge,
    /// To one M for all segments.
    Reindex {
        m: u32,
    },
    Rebuild,
    Prune {
        before: u64,
    },
    Unwind {
        to: u64,
    },
    Flush,
    /// A copy beside the archive.
    Checkpoint,
    /// Open again, with or without closing before.
    Reopen {
        close: bool,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("create"),
            Self::Commit { height, changes } => write!(f, "commit {height} ({} changes)", changes.len()),
            Self::Emit => f.write_str("emit"),
            Self::Merge => f.write_str("merge"),
            Self::Reindex { m } => write!(f, "reindex to M={m}"),
            Self::Rebuild => f.write_str("rebuild"),
            Self::Prune { before } => write!(f, "prune before {before}"),
            Self::Unwind { to } => write!(f, "unwind to {to}"),
            Self::Flush => f.write_str("flush"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Reopen { close: true } => f.write_str("close and open"),
            Self::Reopen { close: false } => f.write_str("drop and open"),
        }
    }
}

impl Op {
    /// Whether the state tells that it was done.
    pub(crate) fn shows(&self) -> bool {
        matches!(self, Self::Commit { .. } | Self::Prune { .. } | Self::Unwind { .. })
    }

    /// What it does to the model.
    fn apply(&self, model: &mut Model) {
        match self {
            Self::Create => model.exists = true,
            Self::Commit { height, changes } => model.commit(*height, changes),
            Self::Prune { before } => model.prune(*before),
            Self::Unwind { to } => model.unwind(*to),
            Self::Emit
            | Self::Merge
            | Self::Reindex { .. }
            | Self::Rebuild
            | Self::Flush
            | Self::Checkpoint
            | Self::Reopen { .. } => {}
        }
    }
}

/// Every so many seeds one is of an archive for Ethereum.
const ETHEREUM_EVERY: u64 = 3;

/// Every so many of the other seeds one is of an archive by path.
const BY_PATH_EVERY: u64 = 4;

/// A script: options, operations, and `states[i]`, what there is before operation `i`. The last state is what remains.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) options: Options,
    pub(crate) blocks_per_step: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) states: Vec<Model>,
}

impl Script {
    /// The script of a seed: `len` operations after creation.
    pub(crate) fn new(seed: u64, len: usize) -> Self {
        let mut random = SplitMix64::new(seed);
        let blocks_per_step = 1 + random.below(8);
        let window = random.below(13);
        let snapshots = if random.below(2) == 0 { 0 } else { 1 + random.below(5) };
        let is_ethereum = seed % ETHEREUM_EVERY == ETHEREUM_EVERY - 1;
        let is_by_path = !is_ethereum && seed % BY_PATH_EVERY == 1;
        let zstd = Domain::new(DOMAINS[1]).encoding(EncodingRule::Zstd);
        let (commitment, options) = if is_ethereum {
            (Commitment::Ethereum, ethereum::options())
        } else if is_by_path {
            let options = Options::new().declare(Domain::new(DOMAINS[0]).by_path());
            (Commitment::Icecore, options.declare(zstd.by_path()))
        } else {
            let options = Options::new().domain(DOMAINS[0]).declare(zstd);
            (Commitment::Icecore, options.snapshot_period(NonZeroU64::new(snapshots)))
        };
        let options = options.blocks_per_step(blocks_per_step).reorg_window(window);
        let mut writer = Writer { random, head: random_start(seed), is_bulk: false };
        let states = vec![Model::new(commitment, is_by_path, blocks_per_step)];
        let mut script = Self { options, blocks_per_step, ops: Vec::new(), states };
        script.push(Op::Create);
        for _ in 0..len {
            script.push(writer.next(script.last()));
        }
        script
    }

    fn push(&mut self, op: Op) {
        let mut model = self.last().clone();
        op.apply(&mut model);
        self.ops.push(op);
        self.states.push(model);
    }

    /// What remains.
    pub(crate) fn last(&self) -> &Model {
        self.states.last().expect("a script has a last state")
    }

    /// The same operations with other values of the same length: its archive has files of the same names, steps and lengths.
    pub(crate) fn twin(&self) -> Self {
        let mut twin = Self { ops: Vec::new(), states: vec![self.states[0].clone()], ..self.clone() };
        let is_ethereum = self.last().is_ethereum();
        for op in &self.ops {
            let mut op = op.clone();
            if let Op::Commit { changes, .. } = &mut op {
                let free = changes.iter_mut().filter(|(key, _)| !is_ethereum || ethereum::is_free(key));
                let last_bytes = free.filter_map(|(_, value)| value.as_mut()?.last_mut());
                last_bytes.for_each(|byte| *byte ^= 1);
            }
            twin.push(op);
        }
        twin
    }
}

/// The height before the first block.
fn random_start(seed: u64) -> u64 {
    seed % 7
}

/// Draws operations.
struct Writer {
    random: SplitMix64,
    /// The highest block so far, or where the first may begin.
    head: u64,
    /// Whether several blocks are to come, so that steps get complete.
    is_bulk: bool,
}

impl Writer {
    fn next(&mut self, model: &Model) -> Op {
        self.is_bulk = if self.is_bulk { self.random.below(4) != 0 } else { self.random.below(6) == 0 };
        if self.is_bulk || model.head().is_none() {
            return self.commit(model);
        }
        match self.random.below(28) {
            0..=1 => Op::Emit,
            2..=4 => Op::Merge,
            5 => Op::Reindex { m: [1, 4, 16, 100][self.random.below(4) as usize] },
            6 => Op::Rebuild,
            7..=8 => self.prune(model),
            9..=11 => self.unwind(model, 4),
            12..=14 => self.unwind(model, usize::MAX),
            15 => Op::Flush,
            16..=17 => Op::Checkpoint,
            18..=19 => Op::Reopen { close: self.random.below(2) == 0 },
            _ => self.commit(model),
        }
    }

    fn commit(&mut self, model: &Model) -> Op {
        let skipped = if self.random.below(6) == 0 { self.random.below(4) } else { 0 };
        self.head = model.head().unwrap_or(self.head) + 1 + skipped;
        if model.is_ethereum() {
            return Op::Commit { height: self.head, changes: ethereum::draw(&mut self.random, model) };
        }
        let count = self.random.below(7);
        let changes = (0..count).map(|_| self.change()).collect();
        Op::Commit { height: self.head, changes }
    }

    fn change(&mut self) -> Change {
        let domain = self.random.below(2) as usize;
        ((domain, self.key()), self.value())
    }

    /// A key from few prefixes, so that keys collide and are prefixes of each other.
    fn key(&mut self) -> Vec<u8> {
        let prefix: &[u8] = [&b""[..], b"a", b"ab", b"abc\xFF", b"\xFF\xFF"][self.random.below(5) as usize];
        let len = self.random.below(3);
        let more = (0..len).map(|_| b"abz\0\xFF"[self.random.below(5) as usize]);
        prefix.iter().copied().chain(more).collect()
    }

    /// Mostly short values; some are larger than a page.
    fn value(&mut self) -> Value {
        let len = match self.random.below(14) {
            0..=2 => return None,
            3 => 0,
            4 => 1500 + self.random.below(5000),
            _ => 1 + self.random.below(9),
        };
        let mut value = vec![0; len as usize];
        self.random.fill(&mut value);
        Some(value)
    }

    fn prune(&mut self, model: &Model) -> Op {
        let blocks: Vec<u64> = model.blocks().collect();
        let before = blocks[self.random.below(blocks.len() as u64) as usize / 2];
        Op::Prune { before: self.between(before, model) }
    }

    /// Back to one of the last `depth` blocks.
    fn unwind(&mut self, model: &Model, depth: usize) -> Op {
        let blocks: Vec<u64> = model.blocks().rev().take(depth).collect();
        let to = blocks[self.random.below(blocks.len() as u64) as usize];
        Op::Unwind { to: self.between(to, model) }
    }

    /// A block, or a height between it and the next one.
    fn between(&mut self, block: u64, model: &Model) -> u64 {
        let next = model.blocks().find(|next| *next > block).unwrap_or(block + 1);
        block + self.random.below(next - block)
    }
}
