//! `icecore checkpoint`.

use std::path::PathBuf;

use serde_json::json;

use crate::ask::open_for_one_read;
use crate::exit::{Exit, Outcome};
use crate::print::{Out, bytes, plural};
use crate::progress::Bars;

/// Make a consistent copy of an archive, also beside a running writer.
#[derive(clap::Args)]
#[command(after_help = "\
On the same file system the copy is made of hard links and takes no space of
its own but for the newest blocks; elsewhere all bytes are copied. It is an
archive of its own: either may be written, merged or removed without the other.
What a killed checkpoint leaves says that it is not finished; the same command
begins again.

Examples:
  icecore checkpoint chain.ice chain-monday.ice
  icecore checkpoint chain.ice /mnt/backup/chain.ice --json | jq .head")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Where the copy goes; must not exist or be empty
    copy: PathBuf,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let made = open_for_one_read(&args.dir)?.checkpoint(&args.copy, &Bars::new())?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "first": made.range.map(|(first, _)| first),
            "head": made.range.map(|(_, head)| head),
            "files_linked": made.files_linked,
            "bytes_linked": made.bytes_linked,
            "files_copied": made.files_copied,
            "bytes_copied": made.bytes_copied,
        }))?;
    } else {
        let blocks = match made.range {
            Some((first, head)) => format!("blocks {first} to {head}"),
            None => "no block yet".to_owned(),
        };
        out.summary(format_args!(
            "{blocks}: {} linked ({}), {} copied ({})",
            plural(made.files_linked, "file"),
            bytes(made.bytes_linked),
            plural(made.files_copied, "file"),
            bytes(made.bytes_copied),
        ))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
