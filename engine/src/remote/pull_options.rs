//! What a [pull](crate::remote::pull()) brings, and how.

use std::ops::{Bound, RangeBounds};

use icecore_segments::frame::Kind;
use icecore_segments::step::BlockNumber;

use crate::remote::jobs::JOBS;

/// How to pull.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PullOptions {
    pub(super) jobs: usize,
    pub(super) generation: Option<u64>,
    pub(super) accessors: Accessors,
    pub(super) check: bool,
    pub(super) domains: Vec<String>,
    /// Both included.
    pub(super) blocks: Option<(BlockNumber, BlockNumber)>,
}

/// Which accessors come with a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Accessors {
    /// None: some 4 % less to transfer. Lookups in the copy are right and slow until it is opened for writing, or reindexed, which
    /// builds them again; to a partial copy, which cannot be, another pull brings them.
    None,
    /// The pivot indexes, without which a lookup searches a whole segment.
    Bt,
    /// All: the copy is as fast as the archive.
    #[default]
    All,
}

impl Accessors {
    pub(crate) fn has(self, kind: Kind) -> bool {
        match kind {
            Kind::Segment => true,
            Kind::PivotIndex => self != Self::None,
            Kind::ExistenceFilter | Kind::BlockIndex => self == Self::All,
        }
    }
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            jobs: JOBS,
            generation: None,
            accessors: Accessors::All,
            check: false,
            domains: Vec::new(),
            blocks: None,
        }
    }
}

impl PullOptions {
    /// Eight files at once, of the newest generation.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many files come at once. Each needs up to 16 MiB of memory.
    pub fn jobs(self, jobs: usize) -> Self {
        Self { jobs, ..self }
    }

    /// Which accessors come; all unless it is set.
    pub fn accessors(self, accessors: Accessors) -> Self {
        Self { accessors, ..self }
    }

    /// Compares the files that a copy has with their hashes as well, and pulls those again that are damaged. Otherwise length and footer say
    /// which files are there, unless the bucket was opened with a key.
    pub fn check(self, check: bool) -> Self {
        Self { check, ..self }
    }

    /// An older generation. Its objects may have been collected.
    pub fn generation(self, generation: u64) -> Self {
        Self { generation: Some(generation), ..self }
    }

    /// Only segments of this domain, and of others that are named by further calls; of all unless it is called.
    ///
    /// The roots of all blocks come with every copy. `_nodes`, which proofs are made from, come where all domains do, or where they are
    /// named: `account` and `_nodes` of an archive for Ethereum prove accounts, with `storage` slots as well. In other archives a proof
    /// may show a key of any domain, so that it needs all.
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domains.push(name.into());
        self
    }

    /// Only segments whose steps have one of these blocks; all unless it is set.
    ///
    /// A segment comes as a whole, so a copy may hold more. A read at a block goes back to whatever block wrote the key last: `..b` holds
    /// the state at every block before `b` and all that changed it. Of `a..b` the keys that these blocks wrote are found, and no others;
    /// [`Changes`](crate::Changes) want the value before each change, which may be older.
    pub fn blocks(self, blocks: impl RangeBounds<BlockNumber>) -> Self {
        let from = match blocks.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(below) => below.saturating_add(1),
            Bound::Unbounded => 0,
        };
        // A range of none is refused by the pull.
        let none = (1, 0);
        let blocks = match blocks.end_bound() {
            Bound::Included(to) => (from, *to),
            Bound::Excluded(above) => above.checked_sub(1).map_or(none, |to| (from, to)),
            Bound::Unbounded => (from, BlockNumber::MAX),
        };
        Self { blocks: Some(blocks), ..self }
    }
}
