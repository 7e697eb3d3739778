//! `icecore create`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use icecore::{Archive, Options};
use serde_json::json;

use crate::exit::{Exit, Outcome};
use crate::print::Out;

/// Make an empty archive.
#[derive(clap::Args)]
#[command(after_help = "\
A step is what leaves memory as one segment per domain, once its last block
has left the reorg window. Long steps keep more in memory and write fewer,
larger files.

With snapshots the archive keeps the nodes of its Merkle tree that changed: a
proof at such a block reads a few of them, at any other block it is rebuilt
from the whole state. Short periods cost time and space at every block.

Examples:
  icecore create chain.ice --domain kv
  icecore create chain.ice --domain accounts --domain storage \\
      --blocks-per-step 4096 --reorg-window 128 --snapshot-every 256")]
pub(crate) struct Args {
    /// The directory; must not exist or be empty
    dir: PathBuf,
    /// A domain: a keyspace of its own. At least one
    #[arg(long = "domain", short, value_name = "NAME", required = true, num_args = 1..)]
    domains: Vec<String>,
    #[command(flatten)]
    shape: Shape,
    /// Tell what was made as JSON
    #[arg(long)]
    json: bool,
}

/// What is fixed when an archive is made, beside its domains.
#[derive(clap::Args)]
pub(crate) struct Shape {
    /// Blocks in a step [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) blocks_per_step: Option<u64>,
    /// Blocks behind the head that stay in memory, cheap to unwind [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) reorg_window: Option<u64>,
    /// Make the first block of every N heights a snapshot, or `off` [default: off]
    #[arg(long, value_name = "N")]
    pub(crate) snapshot_every: Option<Every>,
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
        self.blocks_per_step.is_some() || self.reorg_window.is_some() || self.snapshot_every.is_some()
    }

    /// The options of an archive with these domains.
    pub(crate) fn options<'a>(&self, domains: impl IntoIterator<Item = &'a str>) -> Options {
        let mut options = domains.into_iter().fold(Options::new(), Options::domain);
        if let Some(blocks) = self.blocks_per_step {
            options = options.blocks_per_step(blocks);
        }
        if let Some(blocks) = self.reorg_window {
            options = options.reorg_window(blocks);
        }
        if let Some(every) = self.snapshot_every {
            options = options.snapshot_period(every.0);
        }
        options
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = args.shape.options(args.domains.iter().map(String::as_str));
    let archive = Archive::create(&args.dir, options)?;
    let reader = archive.reader();
    let (step, window) = (reader.blocks_per_step(), reader.reorg_window());
    let every = reader.snapshot_period();
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "dir": args.dir, "domains": args.domains, "blocks_per_step": step, "reorg_window": window,
            "snapshot_every": every,
        }))?;
    } else {
        let domains = args.domains.join(", ");
        out.line(format_args!(
            "{}: domains {domains}; {step} blocks a step, {window} in the reorg window; snapshots: {}",
            args.dir.display(),
            Every(every)
        ))?;
    }
    out.flush()?;
    archive.close()?;
    Ok(Exit::Done)
}
