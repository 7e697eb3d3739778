//! Scripted histories: steps that an archive and the oracle both go through, so that a test can stop anywhere and still
//! know what must be there.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use icecore::storage::Storage;
use icecore::testing::SimStorage;
use icecore::{
    Archive, Commitment, Density, DensityRule, Domain, EncodingRule, Error, MergeOptions, OpenOptions,
    Options, ReindexRule, Root,
};

use super::{Change, DOMAINS, Oracle, Random, write};

/// Where every scripted archive lives.
pub(crate) const PATH: &str = "/archive";

/// One thing that a caller does.
#[derive(Clone)]
pub(crate) enum Step {
    Commit(u64, Vec<Change>),
    Emit,
    Merge,
    Reindex(u32),
    Rebuild,
    Prune(u64),
    Unwind(u64),
    Flush,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit(height, changes) => write!(f, "Commit({height}, {} changes)", changes.len()),
            Self::Emit => f.write_str("Emit"),
            Self::Merge => f.write_str("Merge"),
            Self::Reindex(m) => write!(f, "Reindex({m})"),
            Self::Rebuild => f.write_str("Rebuild"),
            Self::Prune(before) => write!(f, "Prune({before})"),
            Self::Unwind(to) => write!(f, "Unwind({to})"),
            Self::Flush => f.write_str("Flush"),
        }
    }
}

impl Step {
    /// Does it; the root is that of a commit.
    pub(crate) fn apply(&self, archive: &Archive) -> Result<Option<Root>, Error> {
        match self {
            Self::Commit(height, changes) => return write(archive, *height, changes).map(Some),
            Self::Emit => archive.emit()?,
            Self::Merge => drop(archive.merge(&MergeOptions::default(), &())?),
            Self::Reindex(m) => {
                let rule = DensityRule::Fixed(Density::new(*m).unwrap());
                archive.reindex(ReindexRule::Rule(rule), None, &())?;
            }
            Self::Rebuild => drop(archive.reindex(ReindexRule::Rebuild, None, &())?),
            Self::Prune(before) => archive.prune(*before, &())?,
            Self::Unwind(to) => archive.unwind(*to, &())?,
            Self::Flush => archive.flush()?,
        }
        Ok(None)
    }

    fn record(&self, oracle: &mut Oracle, root: Option<Root>) {
        match self {
            Self::Commit(height, changes) => oracle.commit(*height, changes, root.unwrap()),
            Self::Prune(before) => oracle.prune(*before),
            Self::Unwind(to) => oracle.unwind(*to),
            Self::Emit | Self::Merge | Self::Reindex(_) | Self::Rebuild | Self::Flush => {}
        }
    }

    /// Whether everything committed before it is durable when it returns, in every mode.
    pub(crate) fn flushes(&self) -> bool {
        matches!(self, Self::Flush | Self::Unwind(_) | Self::Prune(_))
    }
}

/// A script on its way, with the head that it has reached, and what an archive has there: a block of Ethereum follows from the state.
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    head: u64,
    random: Random,
    state: Oracle,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(Commitment::default(), seed)
    }

    pub(crate) fn of(commitment: Commitment, seed: u64) -> Self {
        Self { steps: Vec::new(), head: 4, random: Random(seed), state: Oracle::of(commitment) }
    }

    /// The next block, at the height that was reached.
    fn commit(&mut self) {
        let changes = self.state.draw(&mut self.random, 6);
        self.state.write(self.head, &changes, Root::EMPTY);
        self.steps.push(Step::Commit(self.head, changes));
    }

    pub(crate) fn commits(mut self, blocks: u64) -> Self {
        for _ in 0..blocks {
            self.head += if self.random.below(6) == 0 { 3 } else { 1 };
            self.commit();
        }
        self
    }

    /// A whole step and the first block of the next: both steps stay in memory, and each has a file of the log.
    pub(crate) fn begin_step(mut self) -> Self {
        self.head = (self.head / 4 + 1) * 4 - 1;
        for _ in 0..5 {
            self.head += 1;
            self.commit();
        }
        self
    }

    pub(crate) fn then(mut self, step: Step) -> Self {
        step.record(&mut self.state, None);
        self.steps.push(step);
        self
    }

    pub(crate) fn unwind(mut self, back: u64) -> Self {
        self.head -= back;
        let to = self.head;
        self.then(Step::Unwind(to))
    }

    pub(crate) fn prune(self, back: u64) -> Self {
        let before = self.head - back;
        self.then(Step::Prune(before))
    }

    /// Everything an archive can be asked to do, in steps of 4 blocks with a reorg window of 2.
    pub(crate) fn everything(commitment: Commitment, seed: u64) -> Vec<Step> {
        Self::of(commitment, seed)
            .commits(10)
            .then(Step::Merge)
            .commits(5)
            .unwind(1)
            .commits(3)
            .then(Step::Reindex(1))
            .prune(9)
            .commits(3)
            .unwind(7)
            .commits(6)
            .then(Step::Merge)
            .then(Step::Rebuild)
            .then(Step::Flush)
            .commits(3)
            .prune(0)
            .commits(2)
            .unwind(2)
            .commits(1)
            .then(Step::Emit)
            .steps
    }
}

/// The options of every scripted archive.
pub(crate) fn options() -> Options {
    let zstd = Domain::new(DOMAINS[1]).encoding(EncodingRule::Zstd);
    Options::new().domain(DOMAINS[0]).declare(zstd).blocks_per_step(4).reorg_window(2)
}

/// The same with domains by path.
pub(crate) fn options_by_path() -> Options {
    let zstd = Domain::new(DOMAINS[1]).encoding(EncodingRule::Zstd).by_path();
    Options::new().declare(Domain::new(DOMAINS[0]).by_path()).declare(zstd).blocks_per_step(4).reorg_window(2)
}

/// The same with a commitment of choice.
pub(crate) fn options_of(commitment: Commitment) -> Options {
    match commitment {
        Commitment::Ethereum => Options::new().commitment(commitment).blocks_per_step(4).reorg_window(2),
        _ => options().commitment(commitment),
    }
}

/// The same with a snapshot every `snapshot_period` blocks; 0 for none.
pub(crate) fn options_with(snapshot_period: u64) -> Options {
    options().snapshot_period(NonZeroU64::new(snapshot_period))
}

pub(crate) fn storage(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

/// A disk with an empty archive.
pub(crate) fn fresh(options: Options, open: OpenOptions) -> SimStorage {
    let disk = SimStorage::new();
    Archive::create_on(storage(&disk), PATH, options, open).unwrap().close().unwrap();
    disk.kill_clone()
}

/// Does one step that must succeed. Returns the oracle after it.
pub(crate) fn advance(archive: &Archive, step: &Step, mut oracle: Oracle) -> Oracle {
    let root = step.apply(archive).unwrap();
    step.record(&mut oracle, root);
    oracle
}

/// Goes through a script without any trouble. Returns the oracle after it.
pub(crate) fn play(archive: &Archive, steps: &[Step]) -> Oracle {
    let empty = Oracle::of_archive(archive.reader());
    steps.iter().fold(empty, |oracle, step| advance(archive, step, oracle))
}
