//! What is chosen once, when an archive is created, and what is chosen at every opening.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use icecore_hot::Parallelism;
use icecore_index::Density;
use icecore_segments::KEY_LEN_MAX;
use icecore_segments::step::BlockNumber;

use crate::domain::{DOMAINS_MAX, Domain, DomainId};
use crate::error::Error;
use crate::steps::StepLen;

/// How dense the pivot index of a segment is, and how many bits its existence filter has. The rule of an archive decides for new
/// segments and, as they age, for existing ones; [`Archive::reindex`](crate::Archive::reindex) applies it at once. Answers do not
/// depend on it, only sizes and costs.
///
/// A dense index (small M) points at one page and takes more memory; a sparse one is small and leaves a few pages to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DensityRule {
    /// Dense for fresh segments, sparse for old ones: M of 16, 64 and 256 by distance from the head.
    #[default]
    Recency,
    /// All pivot indexes together take at most this many bytes, at least 1; the freshest segments get the densest.
    Budget {
        /// Bytes of all `.bt` files together.
        bytes: u64,
    },
    /// The same M for every segment.
    Fixed(Density),
}

impl DensityRule {
    /// Refuses a rule that no archive can follow.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Budget { bytes: 0 } => {
                Err(Error::Options { field: "density", reason: "a budget has at least 1 byte".to_owned() })
            }
            Self::Budget { .. } | Self::Recency | Self::Fixed(_) => Ok(()),
        }
    }
}

/// The most heights of a step and of the reorg window. More is a mistake, such as `u64::MAX` for *no limit*: no block would ever
/// leave memory.
const HEIGHTS_MAX: u64 = 1 << 40;

/// What an archive is. Chosen when it is created, kept in its manifest, and the same from then on, but for the density rule and the
/// encodings of domains.
///
/// Lengths here count heights, not blocks. On a chain that leaves heights out, a window of 64 heights may hold one block.
///
/// ```
/// let options = icecore::Options::new().domain("accounts").domain("storage").blocks_per_step(1024).reorg_window(64);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub(crate) domains: Vec<Domain>,
    pub(crate) blocks_per_step: u64,
    pub(crate) reorg_window: u64,
    pub(crate) snapshot_period: Option<NonZeroU64>,
    pub(crate) density: DensityRule,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            blocks_per_step: 1024,
            reorg_window: 64,
            snapshot_period: None,
            density: DensityRule::default(),
        }
    }
}

impl Options {
    /// The defaults: 1024 heights a step, a reorg window of 64 heights, no snapshots, density by recency. Domains must be added.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a domain: a keyspace of its own, with keys of any length. An archive has 1 to 255, with snapshots 254, and their
    /// order is part of what it is.
    pub fn domain(self, name: &str) -> Self {
        self.declare(Domain::new(name))
    }

    /// Declares a domain whose key length or encoding is fixed.
    pub fn declare(mut self, domain: Domain) -> Self {
        self.domains.push(domain);
        self
    }

    /// Sets the length of a step: 1 to 2^40 heights, 1024 by default. A step is what leaves memory together, as one segment per
    /// domain. Step `s` covers the heights from `s * heights` to `(s + 1) * heights - 1`, however many of them have a block.
    pub fn blocks_per_step(mut self, heights: u64) -> Self {
        self.blocks_per_step = heights;
        self
    }

    /// Sets the reorg window: the newest heights, at most 2^40 and 64 by default, whose blocks stay in memory so that unwinding
    /// them is cheap. Counted in heights from the head down: after blocks 0, 100 and 200 a window of 64 holds block 200 alone.
    pub fn reorg_window(mut self, heights: u64) -> Self {
        self.reorg_window = heights;
        self
    }

    /// Sets the snapshot period in heights, or `None`, the default, for no snapshots. The first block at or above each multiple of
    /// the period is a snapshot, so a period of 1 makes one of every block.
    ///
    /// # Cost
    /// At a snapshot the nodes of the Merkle tree that changed are kept: more disk, and a slower commit. In return a proof there
    /// reads a few dozen nodes; anywhere else it reads the whole state.
    pub fn snapshot_period(mut self, heights: Option<NonZeroU64>) -> Self {
        self.snapshot_period = heights;
        self
    }

    /// Sets the density rule that the archive begins with. [`Archive::set_density_rule`](crate::Archive::set_density_rule)
    /// changes it later.
    pub fn density(mut self, rule: DensityRule) -> Self {
        self.density = rule;
        self
    }

    /// Checks the options and turns them into what the manifest keeps.
    pub(crate) fn into_config(self) -> Result<Config, Error> {
        let refuse = |field, reason: &str| Err(Error::Options { field, reason: reason.to_owned() });
        let Some(len) = NonZeroU64::new(self.blocks_per_step) else {
            return refuse("blocks_per_step", "must be at least 1");
        };
        if HEIGHTS_MAX < self.blocks_per_step {
            return refuse("blocks_per_step", "must be at most 2^40");
        }
        if HEIGHTS_MAX < self.reorg_window {
            return refuse("reorg_window", "must be at most 2^40");
        }
        self.density.check()?;
        if self.domains.is_empty() {
            return refuse("domain", "an archive needs at least one");
        }
        let snapshots = self.snapshot_period.map(|period| Snapshots { period });
        if self.domains.len() + 1 + usize::from(snapshots.is_some()) > DOMAINS_MAX {
            return refuse("domain", "an archive has at most 255, with snapshots 254");
        }
        let mut domains = vec![Domain::roots()];
        for domain in self.domains {
            Domain::check_name(&domain.name)?;
            if domain.key_len.is_some_and(|len| !Domain::is_key_len(len)) {
                return Err(Error::Options {
                    field: "domain",
                    reason: format!("the keys of '{}' must have 1 to {KEY_LEN_MAX} bytes", domain.name),
                });
            }
            if domains.iter().any(|known| known.name == domain.name) {
                return Err(Error::Options {
                    field: "domain",
                    reason: format!("'{}' is declared twice", domain.name),
                });
            }
            domains.push(domain);
        }
        domains.extend(snapshots.map(|_| Domain::nodes()));
        let (id, reorg_window) = (ArchiveId::default(), self.reorg_window);
        Ok(Config { id, domains, step_len: StepLen(len), reorg_window, snapshots })
    }
}

/// Which blocks are snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshots {
    pub(crate) period: NonZeroU64,
}

impl Snapshots {
    /// Whether the block at `height` is a snapshot, when the block before it is `previous`.
    pub(crate) fn is_due(self, height: BlockNumber, previous: Option<BlockNumber>) -> bool {
        previous.is_none_or(|previous| previous / self.period != height / self.period)
    }

    /// The lowest height that the last snapshot at or below `height` can have: it is the first block from there.
    pub(crate) fn last_from(self, height: BlockNumber) -> BlockNumber {
        height - height % self.period
    }
}

/// Tells an archive from others of the same options: random bytes, drawn when it is created. A copy of it has the same; zero in
/// archives from before manifest version 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchiveId(pub(crate) [u8; 16]);

/// Which log file a file is: what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFileId {
    pub(crate) archive: ArchiveId,
    /// Its number.
    pub(crate) sequence: u64,
}

impl ArchiveId {
    /// Another one each time.
    pub(crate) fn draw() -> Self {
        // The keys of the standard library's hash tables are random bytes of the system.
        let random = RandomState::new();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
        id[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
        Self(id)
    }
}

/// Checked [`Options`], as the manifest keeps them: `domains[0]` is the domain of roots; with snapshots the last is that of
/// nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) id: ArchiveId,
    pub(crate) domains: Vec<Domain>,
    pub(crate) step_len: StepLen,
    pub(crate) reorg_window: u64,
    pub(crate) snapshots: Option<Snapshots>,
}

impl Config {
    /// What the header of a log file of this archive says.
    pub(crate) fn log_file(&self, sequence: u64) -> LogFileId {
        LogFileId { archive: self.id, sequence }
    }

    /// The domains that were declared, those of the archive itself left out.
    pub(crate) fn declared(&self) -> &[Domain] {
        &self.domains[1..self.domains.len() - usize::from(self.snapshots.is_some())]
    }

    /// The same with their numbers.
    pub(crate) fn declared_ids(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (1..).map(DomainId).zip(self.declared())
    }

    /// Whether no two domains have one name, and so one set of files.
    pub(crate) fn names_are_distinct(&self) -> bool {
        let names: BTreeSet<&str> = self.domains.iter().map(|domain| domain.name.as_str()).collect();
        names.len() == self.domains.len()
    }

    /// A declared domain by its number; `None` for the archive's own and for numbers that none has.
    pub(crate) fn declared_domain(&self, id: DomainId) -> Option<&Domain> {
        self.declared().get(id.index().checked_sub(1)?)
    }

    /// Whether segments of a domain have a block index: nobody asks for the changes of the archive's own.
    pub(crate) fn has_block_index(&self, id: DomainId) -> bool {
        self.declared_domain(id).is_some()
    }

    /// The number of a declared domain.
    ///
    /// # Errors
    /// [`Error::UnknownDomain`] with the names there are.
    pub(crate) fn domain(&self, name: &str) -> Result<DomainId, Error> {
        let found = self.declared_ids().find(|(_, domain)| domain.name == name).map(|(id, _)| id);
        found.ok_or_else(|| {
            let names: Vec<_> = self.declared().iter().map(|domain| domain.name.as_str()).collect();
            Error::UnknownDomain { name: name.to_owned(), declared: names.join(", ") }
        })
    }

    /// Checks that an archive is what it would be created as.
    ///
    /// # Errors
    /// [`Error::Options`] with the first option that differs.
    pub(crate) fn check_same(&self, wanted: &Self) -> Result<(), Error> {
        let are_same_domains = self.domains.len() == wanted.domains.len()
            && self.domains.iter().zip(&wanted.domains).all(|(ours, wanted)| ours.is_same_keyspace(wanted));
        let field = match () {
            () if !are_same_domains => "domain",
            () if self.step_len != wanted.step_len => "blocks_per_step",
            () if self.reorg_window != wanted.reorg_window => "reorg_window",
            () if self.snapshots != wanted.snapshots => "snapshot_period",
            () => return Ok(()),
        };
        Err(Error::Options { field, reason: "the archive that is there was created with another".to_owned() })
    }

    /// Whether `later` is of the same archive: all but what can be changed after creation is equal.
    pub(crate) fn is_same_archive(&self, later: &Self) -> bool {
        self.id == later.id && self.check_same(later).is_ok()
    }

    /// The name of a domain.
    pub(crate) fn name(&self, domain: DomainId) -> &str {
        &self.domains[domain.index()].name
    }

    /// The domain of nodes.
    pub(crate) fn nodes(&self) -> Option<DomainId> {
        self.snapshots.map(|_| DomainId(self.domains.len() as u16 - 1))
    }
}

/// When a committed block is durable.
///
/// In every mode a block is with the operating system before `commit` returns, so a killed process loses nothing. The modes
/// differ in what a power loss or a crash of the system can take: always the newest blocks, never one in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Each block is synced before its `commit` returns: no committed block is lost.
    #[default]
    Block,
    /// One sync for every `blocks` blocks: up to that many of the newest can be lost.
    Group {
        /// Blocks per sync, at least 1.
        blocks: u32,
    },
    /// Synced when a step ends, by [`Archive::flush`](crate::Archive::flush), [`unwind`](crate::Archive::unwind),
    /// [`prune`](crate::Archive::prune) and [`close`](crate::Archive::close): up to a step of the newest blocks can be lost.
    Relaxed,
}

/// Who emits finished steps, merges segments and reindexes them.
///
/// Small steps that are finished wait in memory, and in the log, until they have 16 blocks or a megabyte together, or 256 blocks
/// where gaps in heights leave steps without any: they share the syncs of one emission. [`Archive::emit`](crate::Archive::emit)
/// does not wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Maintenance {
    /// A thread of the archive. `commit` waits only when emission or merging falls behind.
    #[default]
    Background,
    /// `commit` itself, before it returns. Accessors are built and checked by the calling thread alone, at opening too.
    Inline,
    /// `commit` emits; merging and reindexing are left to [`Archive::maintain`](crate::Archive::maintain),
    /// [`merge`](crate::Archive::merge) and [`reindex`](crate::Archive::reindex).
    EmitOnly,
}

/// How an archive is opened for reading alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    pub(crate) resident_budget: Option<u64>,
}

impl ReadOptions {
    /// Filters and pivot indexes are read in the background where they fit an eighth of the memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most bytes that filters and pivot indexes of the archive together may have to be read when it is opened: from front to
    /// back, by a thread of its own, about 4 % of the size of the archive. A lookup then waits for the disk once, for its data
    /// page. Larger ones are read page by page when lookups need them, as all are with 0. Nothing is pinned: the system may drop
    /// from its cache what was read.
    ///
    /// Default: an eighth of the memory of the machine, or of the control group of the process where that has less;
    /// [`Stats::resident_budget`](crate::Stats::resident_budget) tells. For a process that opens an archive for a single lookup, 0.
    pub fn resident_budget(mut self, bytes: u64) -> Self {
        self.resident_budget = Some(bytes);
        self
    }
}

/// What opening for writing does about a write-ahead log that is damaged before its end. A torn tail, which an interrupted append
/// leaves, is no damage: it is cut in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LogDamage {
    /// Opening fails with the file and the place of the damage, and changes nothing.
    #[default]
    Refuse,
    /// Opening gives up the log from the damage on and continues from the last block before it. Blocks in segments stay, and the
    /// caller commits the dropped ones again. The files that are given up are kept beside the log as
    /// `<sequence>.wal.damaged`; [`Archive::log_drop`](crate::Archive::log_drop) reports what was dropped.
    ///
    /// An unwinding after the damage is given up as well, so blocks that it took back may be there again.
    ///
    /// For one opening, by an operator who has no copy. [`Reader::plan_log_drop`](crate::Reader::plan_log_drop) tells beforehand
    /// what would be dropped.
    DropAfter,
}

/// What is chosen at every opening of an archive for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) durability: Durability,
    pub(crate) maintenance: Maintenance,
    pub(crate) merge_span_max: u64,
    pub(crate) parallelism: Parallelism,
    pub(crate) log_damage: LogDamage,
    pub(crate) resident_budget: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            maintenance: Maintenance::default(),
            merge_span_max: u64::MAX,
            parallelism: Parallelism::Off,
            log_damage: LogDamage::default(),
            resident_budget: None,
        }
    }
}

impl OpenOptions {
    /// The defaults: a sync per block, maintenance in the background, merges of any span, a Merkle tree of one thread, and a
    /// damaged log refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets when a committed block is durable; [`Durability::Block`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets who emits, merges and reindexes; [`Maintenance::Background`] by default.
    pub fn maintenance(mut self, maintenance: Maintenance) -> Self {
        self.maintenance = maintenance;
        self
    }

    /// As [`ReadOptions::resident_budget`]. With [`Maintenance::Inline`] nothing is read: that uses no other thread for files.
    pub fn resident_budget(mut self, bytes: u64) -> Self {
        self.resident_budget = Some(bytes);
        self
    }

    /// The same for reading. `Inline` reads nothing.
    pub(crate) fn read_options(&self) -> ReadOptions {
        match self.maintenance {
            Maintenance::Inline => ReadOptions { resident_budget: Some(0) },
            Maintenance::Background | Maintenance::EmitOnly => {
                ReadOptions { resident_budget: self.resident_budget }
            }
        }
    }

    /// Sets the longest segment that automatic merging makes, in steps: at least 1, no limit by default. With 1 nothing is merged.
    pub fn merge_span_max(mut self, steps: u64) -> Self {
        self.merge_span_max = steps;
        self
    }

    /// Sets how many threads the Merkle tree uses for a block; [`Parallelism::Off`], the calling thread alone, by default.
    pub fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// Sets what to do about a damaged log; [`LogDamage::Refuse`] by default.
    pub fn log_damage(mut self, damage: LogDamage) -> Self {
        self.log_damage = damage;
        self
    }

    /// Refuses invalid options.
    ///
    /// # Errors
    /// [`Error::Options`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.merge_span_max == 0 {
            return Err(Error::Options { field: "merge_span_max", reason: "must be at least 1".to_owned() });
        }
        match self.durability {
            Durability::Group { blocks: 0 } => {
                Err(Error::Options { field: "durability", reason: "a group has at least 1 block".to_owned() })
            }
            Durability::Group { .. } | Durability::Block | Durability::Relaxed => Ok(()),
        }
    }

    /// How accessors are checked and built.
    pub(crate) fn file_parallelism(&self) -> icecore_index::BuildParallelism {
        match self.maintenance {
            Maintenance::Inline => icecore_index::BuildParallelism::Off,
            Maintenance::Background | Maintenance::EmitOnly => icecore_index::BuildParallelism::Rayon,
        }
    }
}
