//! `icecore create`.

use std::path::PathBuf;

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

Examples:
  icecore create chain.ice --domain kv
  icecore create chain.ice --domain accounts --domain storage \\
      --blocks-per-step 4096 --reorg-window 128")]
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
}

impl Shape {
    /// The options of an archive with these domains.
    pub(crate) fn options<'a>(&self, domains: impl IntoIterator<Item = &'a str>) -> Options {
        let mut options = domains.into_iter().fold(Options::new(), Options::domain);
        if let Some(blocks) = self.blocks_per_step {
            options = options.blocks_per_step(blocks);
        }
        if let Some(blocks) = self.reorg_window {
            options = options.reorg_window(blocks);
        }
        options
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let options = args.shape.options(args.domains.iter().map(String::as_str));
    let archive = Archive::create(&args.dir, options)?;
    let reader = archive.reader();
    let (step, window) = (reader.blocks_per_step(), reader.reorg_window());
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "dir": args.dir, "domains": args.domains, "blocks_per_step": step, "reorg_window": window,
        }))?;
    } else {
        let domains = args.domains.join(", ");
        out.line(format_args!(
            "{}: domains {domains}; {step} blocks a step, {window} in the reorg window",
            args.dir.display()
        ))?;
    }
    out.flush()?;
    archive.close()?;
    Ok(Exit::Done)
}
