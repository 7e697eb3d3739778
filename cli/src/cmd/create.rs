//! `icecore create`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use icecore::{Archive, Commitment, Domain, DomainOrder, Options};
use serde_json::json;

use crate::exit::{Exit, Outcome};
use crate::print::Out;

/// Make an empty archive.
#[derive(clap::Args)]
#[command(after_help = "\
A step is what leaves memory as one segment per domain, once its last height
has left the reorg window. Long steps keep more in memory and write fewer,
larger files. Both are counted in heights: where a chain leaves heights out,
they hold fewer blocks.

With snapshots the archive keeps the nodes of its Merkle tree that changed: a
proof at such a block reads a few of them, at any other block it is rebuilt
from the whole state. Short periods cost time and space at every block.

--by-path keeps the domains in the order of the tree instead of their own, and
the tree as rows, about 40 bytes for each change: a proof at any block then
takes milliseconds. Keys are given and printed as ever, but lists of them are
in no order that means anything, and a scan has no --from and --to.

--profile ethereum makes an archive of the state of an Ethereum chain: domains
account, code and storage, and the state root of every block as its header has
it. Its tries are kept as rows, about 40 bytes for each change, so that a proof
at any block takes milliseconds; with --rows off it reads the whole state of
the block, until `icecore rows DIR --build`. --commitment none makes one without
roots and proofs, and without a tree in memory.

Examples:
  icecore create chain.ice --domain kv
  icecore create chain.ice --domain accounts:20 --domain storage:52 \\
      --blocks-per-step 4096 --reorg-window 128 --snapshot-every 256
  icecore create tokens.ice --domain owners:20 --by-path
  icecore create eth.ice --profile ethereum")]
pub(crate) struct Args {
    /// The directory; must be absent or empty
    dir: PathBuf,
    /// A domain: a keyspace of its own, with keys of any length or of this many bytes. At least one; several with commas or one
    /// a flag. None can be added later
    #[arg(
        long = "domain",
        short,
        value_name = "NAME[:BYTES]",
        required_unless_present = "profile",
        value_delimiter = ','
    )]
    domains: Vec<Declared>,
    #[command(flatten)]
    shape: Shape,
    /// Tell what was made as JSON
    #[arg(long)]
    json: bool,
}

/// What is fixed when an archive is made, beside its domains.
#[derive(clap::Args)]
pub(crate) struct Shape {
    /// Heights in a step, which leaves memory as a whole [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) blocks_per_step: Option<u64>,
    /// Heights below the head whose blocks stay in memory, cheap to unwind [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) reorg_window: Option<u64>,
    /// Make the first block of every N heights a snapshot, or `off` [default: off]
    #[arg(long, value_name = "N")]
    pub(crate) snapshot_every: Option<Every>,
    /// What the root of a block commits to [default: icecore]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) commitment: Option<Committed>,
    /// Keep all domains in the order of the tree, so that every block is proven in milliseconds
    #[arg(long, group = "has_rows")]
    pub(crate) by_path: bool,
    /// Domains and commitment of a chain
    #[arg(long, value_enum, value_name = "CHAIN", conflicts_with = "commitment", group = "has_rows")]
    pub(crate) profile: Option<Profile>,
    /// Whether the tree is kept as rows, from which every block is proven: of a profile or by path [default: on]
    #[arg(long, value_enum, value_name = "on|off", requires = "has_rows")]
    pub(crate) rows: Option<Switch>,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is
    On,
    /// It is not
    Off,
}

impl Switch {
    /// That of a condition.
    pub(crate) fn of(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

impl std::fmt::Display for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// The commitments that any domains can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Committed {
    /// Nothing: there are no roots and no proofs
    None,
    /// A Merkle tree of all domains, with proofs of ICS23
    Icecore,
}

/// Chains whose state has a form of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Accounts, code and storage; roots and proofs are those of Ethereum
    Ethereum,
}

/// A domain as it is declared on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared(pub(crate) Domain);

impl FromStr for Declared {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, len)) = text.split_once(':') else { return Ok(Self(Domain::new(text))) };
        let len = len.parse().map_err(|_| "NAME:BYTES needs the length of the keys in bytes".to_owned())?;
        Ok(Self(Domain::new(name).key_len(len)))
    }
}

/// Whether domains, all of which are in one order where they are no chain's, are by path.
pub(crate) fn is_by_path(domains: &[Domain]) -> bool {
    domains.iter().any(|domain| domain.order == DomainOrder::PathThenKey)
}

/// The names of domains, for people.
pub(crate) fn names(domains: &[Domain]) -> String {
    let shown = domains.iter().map(|domain| match domain.key_len {
        Some(len) => format!("{}:{len}", domain.name),
        None => domain.name.clone(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A period in blocks, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Every(pub(crate) Option<NonZeroU64>);

impl FromStr for Every {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self(None)),
            blocks => blocks
                .parse()
                .map(|blocks| Self(Some(blocks)))
                .map_err(|_| "must be a number of blocks, or off"),
        }
    }
}

impl std::fmt::Display for Every {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(blocks) => blocks.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl Shape {
    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        self.blocks_per_step.is_some()
            || self.reorg_window.is_some()
            || self.snapshot_every.is_some()
            || self.by_path
            || self.is_committed()
    }

    /// Whether anything was said of the commitment.
    pub(crate) fn is_committed(&self) -> bool {
        self.commitment.is_some() || self.profile.is_some()
    }

    /// What the roots are to commit to.
    pub(crate) fn commitment(&self) -> Commitment {
        match (self.profile, self.commitment) {
            (Some(Profile::Ethereum), _) => Commitment::Ethereum,
            (None, Some(Committed::None)) => Commitment::None,
            (None, Some(Committed::Icecore) | None) => Commitment::Icecore,
        }
    }

    /// The options of an archive with these domains.
    pub(crate) fn options(&self, domains: impl IntoIterator<Item = Domain>) -> Options {
        let order = |domain: Domain| if self.by_path { domain.by_path() } else { domain };
        let domains = domains.into_iter().map(order);
        let mut options = domains.fold(Options::new(), Options::declare).commitment(self.commitment());
        if let Some(blocks) = self.blocks_per_step {
            options = options.blocks_per_step(blocks);
        }
        if let Some(blocks) = self.reorg_window {
            options = options.reorg_window(blocks);
        }
        if let Some(every) = self.snapshot_every {
            options = options.snapshot_period(every.0);
        }
        if let Some(rows) = self.rows {
            options = options.keep_rows(rows == Switch::On);
        }
        options
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = args.shape.options(args.domains.iter().map(|declared| declared.0.clone()));
    let archive = Archive::create(&args.dir, options)?;
    let reader = archive.reader();
    let (step, window) = (reader.blocks_per_step(), reader.reorg_window());
    let every = reader.snapshot_period();
    let listed: Vec<_> = reader.domains().iter().map(|domain| domain.name.as_str()).collect();
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "dir": args.dir, "domains": listed, "blocks_per_step": step, "reorg_window": window,
            "snapshot_every": every, "commitment": reader.commitment().name(), "rows": reader.keeps_rows(),
            "by_path": is_by_path(reader.domains()),
        }))?;
    } else {
        let domains = names(reader.domains());
        out.summary(format_args!(
            "{}: domains {domains}{}; {step} heights a step, {window} in the reorg window; snapshots: {}; commitment: {}",
            args.dir.display(),
            if is_by_path(reader.domains()) { " by path" } else { "" },
            Every(every),
            reader.commitment()
        ))?;
    }
    out.flush()?;
    archive.close()?;
    Ok(Exit::Done)
}
