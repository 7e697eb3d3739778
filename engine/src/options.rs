//! What is chosen once, when an archive is created.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use icecore_index::Density;
use icecore_segments::KEY_LEN_MAX;
use icecore_segments::step::BlockNumber;

use crate::commitment::{Commitment, DomainOrder};
use crate::domain::{DOMAINS_MAX, Domain, DomainId, domains_of};
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
    pub(crate) commitment: Commitment,
    pub(crate) keeps_rows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            blocks_per_step: 1024,
            reorg_window: 64,
            snapshot_period: None,
            density: DensityRule::default(),
            commitment: Commitment::default(),
            keeps_rows: true,
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
    /// the period is a snapshot, so a period of 1 makes one of every block. For domains by key, which is the default: those
    /// [by path](Domain::by_path) have [rows](Options::keep_rows) at every block.
    ///
    /// # Cost
    /// At a snapshot the nodes of the Merkle tree that changed are kept: more disk, and a slower commit. In return a proof there
    /// reads a few dozen nodes; anywhere else it reads the whole state.
    pub fn snapshot_period(mut self, heights: Option<NonZeroU64>) -> Self {
        self.snapshot_period = heights;
        self
    }

    /// Sets what the roots of the archive commit to: [`Commitment::Icecore`] by default. With [`Commitment::Ethereum`] the archive
    /// begins with that commitment's domains, which are not declared.
    pub fn commitment(mut self, commitment: Commitment) -> Self {
        self.commitment = commitment;
        self
    }

    /// Sets whether an archive for [Ethereum](Commitment::Ethereum), or one whose domains are [by path](Domain::by_path), keeps rows of its
    /// tree at every block, as it does by default. Without, a proof reads the whole state of its block.
    /// [`Archive::build_rows`](crate::Archive::build_rows) builds those of Ethereum later.
    ///
    /// # Cost
    /// About 40 bytes of disk for each key that a block changes, less where blocks change the same parts of a tree.
    pub fn keep_rows(mut self, keeps: bool) -> Self {
        self.keeps_rows = keeps;
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
        let commitment = self.commitment;
        if self.snapshot_period.is_some() && commitment != Commitment::Icecore {
            return refuse("snapshot_period", "snapshots are of the commitment icecore");
        }
        let declared: Vec<Domain> = domains_of(commitment).into_iter().chain(self.domains).collect();
        if declared.is_empty() {
            return refuse("domain", "an archive needs at least one");
        }
        check_orders(commitment, &declared)?;
        let snapshots = self.snapshot_period.map(|period| Snapshots { period });
        let is_by_path = is_by_path(commitment, &declared);
        if snapshots.is_some() && is_by_path {
            return refuse(
                "snapshot_period",
                "domains by path have rows at every block instead of snapshots",
            );
        }
        let nodes = || nodes(commitment, snapshots, is_by_path);
        let own = [Domain::roots()].into_iter().chain(nodes()).count();
        if declared.len() + own > DOMAINS_MAX {
            return refuse("domain", "an archive has at most 255, with nodes of its tree 254");
        }
        let mut domains = vec![Domain::roots()];
        for domain in declared {
            Domain::check_name(&domain.name)?;
            if !domain.has_possible_key_len() {
                let max = KEY_LEN_MAX - domain.order.head_len();
                return Err(Error::Options {
                    field: "domain",
                    reason: format!("the keys of '{}' must have 1 to {max} bytes", domain.name),
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
        domains.extend(nodes());
        let (id, reorg_window) = (ArchiveId::default(), self.reorg_window);
        let keeps_rows = self.keeps_rows && (commitment == Commitment::Ethereum || is_by_path);
        Ok(Config { id, domains, step_len: StepLen(len), reorg_window, snapshots, commitment, keeps_rows })
    }
}

/// The domain of an archive's nodes, where it keeps any.
fn nodes(commitment: Commitment, snapshots: Option<Snapshots>, is_by_path: bool) -> Option<Domain> {
    let keeps_nodes = match commitment {
        Commitment::None => false,
        Commitment::Icecore => snapshots.is_some() || is_by_path,
        Commitment::Ethereum => true,
    };
    keeps_nodes.then(Domain::nodes)
}

/// Whether domains, of which [`check_orders`] has found the orders to fit, are by path.
fn is_by_path(commitment: Commitment, declared: &[Domain]) -> bool {
    commitment == Commitment::Icecore
        && declared.first().is_some_and(|domain| domain.order == DomainOrder::PathThenKey)
}

/// Refuses orders that the commitment cannot keep its domains in.
///
/// # Errors
/// [`Error::Options`].
fn check_orders(commitment: Commitment, declared: &[Domain]) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::Options { field: "domain", reason });
    let others = &declared[domains_of(commitment).len()..];
    let Some(first) = others.first() else { return Ok(()) };
    if let Some(odd) = others.iter().find(|domain| domain.order != first.order) {
        let (odd, first) = (&odd.name, &first.name);
        return refuse(format!(
            "all domains are by path or none: '{odd}' is not as '{first}', and one tree is of both"
        ));
    }
    match (first.order, commitment) {
        (DomainOrder::Key, _) | (DomainOrder::PathThenKey, Commitment::Icecore) => Ok(()),
        _ => refuse(format!("'{}' cannot be by path: the commitment is {commitment}", first.name)),
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

/// Checked [`Options`], as the manifest keeps them: `domains[0]` is the domain of roots; where the archive keeps nodes of its tree the
/// last is theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) id: ArchiveId,
    pub(crate) domains: Vec<Domain>,
    pub(crate) step_len: StepLen,
    pub(crate) reorg_window: u64,
    pub(crate) snapshots: Option<Snapshots>,
    pub(crate) commitment: Commitment,
    /// Whether the nodes have rows of the tree at every block. Building them changes it: what an open archive goes by is in its
    /// [read state](crate::read::read_state).
    pub(crate) keeps_rows: bool,
}

impl Config {
    /// What the header of a log file of this archive says.
    pub(crate) fn log_file(&self, sequence: u64) -> LogFileId {
        LogFileId { archive: self.id, sequence }
    }

    /// The domains that were declared, those of the archive itself left out.
    pub(crate) fn declared(&self) -> &[Domain] {
        &self.domains[1..self.domains.len() - usize::from(self.keeps_nodes())]
    }

    /// The same with their numbers.
    pub(crate) fn declared_ids(&self) -> impl Iterator<Item = (DomainId, &Domain)> {
        (1..).map(DomainId).zip(self.declared())
    }

    /// Whether nodes of its tree are kept, in a domain of their own.
    pub(crate) fn keeps_nodes(&self) -> bool {
        nodes(self.commitment, self.snapshots, self.is_by_path()).is_some()
    }

    /// Whether the domains that are declared are kept [by path](Domain::by_path).
    pub(crate) fn is_by_path(&self) -> bool {
        is_by_path(self.commitment, &self.domains[1..])
    }

    /// Whether rows can be kept of its tree.
    pub(crate) fn can_keep_rows(&self) -> bool {
        self.commitment == Commitment::Ethereum || self.is_by_path()
    }

    /// Whether it is what archives were before there was a choice of commitments.
    pub(crate) fn is_of_first_commitment(&self) -> bool {
        self.commitment == Commitment::Icecore
            && self.domains.iter().all(|domain| domain.order == DomainOrder::Key)
    }

    /// Whether the domains are those that the commitment asks for, each in the order that it has there.
    pub(crate) fn is_of_commitment(&self) -> bool {
        let own = domains_of(self.commitment);
        let keeps = usize::from(self.keeps_nodes());
        if self.domains.len() < 2 + keeps || self.declared().len() < own.len() {
            return false;
        }
        let fixed = &self.declared()[..own.len()];
        let has_nodes = keeps == 0 || self.domains.last() == Some(&Domain::nodes());
        has_nodes
            && (self.snapshots.is_none() || self.commitment == Commitment::Icecore && !self.is_by_path())
            && fixed.iter().zip(&own).all(|(ours, own)| ours.is_same_keyspace(own))
            && check_orders(self.commitment, self.declared()).is_ok()
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
            () if self.commitment != wanted.commitment => "commitment",
            () if self.snapshots != wanted.snapshots => "snapshot_period",
            () if self.keeps_rows != wanted.keeps_rows => "keep_rows",
            () => return Ok(()),
        };
        Err(Error::Options { field, reason: "the archive that is there was created with another".to_owned() })
    }

    /// Whether `later` is of the same archive: all but what can be changed after creation is equal.
    pub(crate) fn is_same_archive(&self, later: &Self) -> bool {
        let later = Self { keeps_rows: self.keeps_rows, ..later.clone() };
        self.id == later.id && self.check_same(&later).is_ok()
    }

    /// The name of a domain.
    pub(crate) fn name(&self, domain: DomainId) -> &str {
        &self.domains[domain.index()].name
    }

    /// The domain of nodes.
    pub(crate) fn nodes(&self) -> Option<DomainId> {
        self.keeps_nodes().then(|| DomainId(self.domains.len() as u16 - 1))
    }
}
