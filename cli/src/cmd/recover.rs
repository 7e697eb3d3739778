//! `icecore recover`.

use std::path::PathBuf;

use icecore::{Archive, LogDamage, LogDrop, Maintenance, OpenOptions};
use serde_json::{Value, json};

use super::tell_repairs;
use crate::ask::open_for_one_read;
use crate::exit::{Exit, Outcome};
use crate::print::Out;

/// Give up a damaged log from the damage on, and continue from the block before it.
///
/// The last resort where there is no copy of the log: segments stay, so do the log's blocks before the damage; the blocks
/// after it must be ingested again. The files that are given up are kept beside the log as `<name>.wal.damaged`. An archive
/// whose log is sound stays as it is.
#[derive(clap::Args)]
#[command(after_help = "\
A log that only ends in the middle of a record, as after a power loss, is not
damaged: every command that writes cuts it by itself.

Examples:
  icecore recover chain.ice --dry-run   what would be given up
  icecore recover chain.ice")]
pub(crate) struct Args {
    /// The archive
    dir: PathBuf,
    /// Only say what would be given up; takes no lock and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    json: bool,
}

fn as_json(drop: &LogDrop) -> Value {
    json!({
        "damage": drop.damage.to_string(),
        "head": drop.head,
        "dropped": drop.dropped,
        "files": drop.files,
    })
}

fn print(out: &mut Out, drop: &LogDrop, is_plan: bool) -> Outcome {
    let (end, dropped, kept) = if is_plan {
        ("would continue", "would be given up", "would be kept under this name")
    } else {
        ("continues", "were given up", "is kept under this name")
    };
    out.line(format_args!("damage: {}", drop.damage))?;
    match drop.dropped {
        Some((first, last)) => {
            out.line(format_args!("blocks {first} to {last} {dropped}, and what the damage itself held"))?;
        }
        None => out.line(format_args!("what follows the damage is unreadable; its blocks {dropped}"))?,
    }
    if drop.files.is_empty() {
        out.line("no log file is there to be kept")?;
    }
    for file in &drop.files {
        out.line(format_args!("{} {kept}", file.display()))?;
    }
    match drop.head {
        Some(head) => out.line(format_args!("the archive {end} after block {head}"))?,
        None => out.line(format_args!("no block is left; the archive {end} with any"))?,
    }
    Ok(Exit::Done)
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut out = Out::new();
    let archive;
    let planned;
    let drop = if args.dry_run {
        planned = open_for_one_read(&args.dir)?.plan_log_drop()?;
        planned.as_ref()
    } else {
        let options = OpenOptions::new().maintenance(Maintenance::EmitOnly).log_damage(LogDamage::DropAfter);
        archive = Archive::open(&args.dir, options)?;
        tell_repairs(&archive);
        archive.log_drop()
    };
    if args.json {
        out.json(&json!({ "recovered": drop.map(as_json) }))?;
    } else if let Some(drop) = drop {
        print(&mut out, drop, args.dry_run)?;
    } else {
        out.line(format_args!("the log is sound: nothing to give up"))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}
