//! What is chosen at every opening of an archive.

use icecore_hot::Parallelism;

use crate::error::Error;

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
    pub(crate) tree_memory: Option<u64>,
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
            tree_memory: None,
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

    /// Sets the most bytes that the nodes of the Merkle tree take, in an archive with the commitment
    /// [`Ethereum`](crate::Commitment::Ethereum): an eighth of the memory of the machine, or of the control group of the process where that
    /// has less, by default. A tree that needs more keeps a reference in the place of some leaves, 64 at most, and a block reads the groups
    /// of leaves that it meets from the segments, all of them together: a page or two for each. With too little for the references groups
    /// become larger, and the references of the largest stay however little it is. Such a tree is written to the file `TREE` when the archive
    /// is closed and now and then before, so that the next opening reads the references and not the state.
    ///
    /// Room is left in it for the leaves that a block meets, up to an eighth. Not in it: what takes back the blocks of the reorg window, and
    /// the tables of blocks that are in no segment. Icecore's own tree lies in memory whole.
    pub fn tree_memory(mut self, bytes: u64) -> Self {
        self.tree_memory = Some(bytes);
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
