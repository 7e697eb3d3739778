//! The archive that an ingest goes into: opened and compared with what is asked of it, or made.

use icecore::{Archive, Commitment, Domain, Error, Maintenance, OpenOptions};

use super::super::create::{Declared, Every, Switch, is_by_path, names};
use super::Args;
use crate::exit::Failure;
use crate::input::FormatName;
use crate::number::ByteSize;

/// The archive, where there is one.
pub(super) fn open_present(args: &Args) -> Result<Option<Archive>, Failure> {
    match Archive::open(&args.dir, options(args)) {
        Err(Error::NotAnArchive { .. }) if args.create => Ok(None),
        opened => {
            let archive = opened?;
            check_shape(&archive, args)?;
            Ok(Some(archive))
        }
    }
}

fn options(args: &Args) -> OpenOptions {
    let threads = std::thread::available_parallelism();
    let options = OpenOptions::new();
    let options = args.tree_memory.map_or(options, |ByteSize(bytes)| options.tree_memory(bytes));
    options
        .resident_budget(0)
        .durability(args.sync.0)
        .maintenance(if args.no_merge { Maintenance::EmitOnly } else { Maintenance::Background })
        .parallelism(threads.map_or(icecore::Parallelism::Off, icecore::Parallelism::Threads))
}

/// The domains of an archive that is yet to be made.
pub(super) fn declared(args: &Args) -> Vec<Domain> {
    if args.shape.commitment() == Commitment::Ethereum {
        return args.domains.iter().map(|declared| declared.0.clone()).collect();
    }
    let of_format = args.format.domains();
    if args.domains.is_empty() {
        return of_format.iter().map(|name| args.format.declare(name)).collect();
    }
    let declared = args.domains.iter().map(|declared| match declared.0.key_len {
        None if of_format.contains(&declared.0.name.as_str()) => args.format.declare(&declared.0.name),
        _ => declared.0.clone(),
    });
    declared.collect()
}

pub(super) fn create(args: &Args, domains: Vec<Domain>) -> Result<Archive, Failure> {
    // Creating opens with options of its own.
    Archive::create(&args.dir, args.shape.options(domains))?.close()?;
    Ok(Archive::open(&args.dir, options(args))?)
}

/// What was fixed at creation cannot be asked for differently later.
fn check_shape(archive: &Archive, args: &Args) -> Result<(), Failure> {
    let reader = archive.reader();
    let way_out = match reader.head() {
        Some(_) => String::new(),
        None => format!("; it has no block yet: remove {} and start again", args.dir.display()),
    };
    let differs = |option: &str, asked: String, there: String| {
        Err(Failure::usage(format!(
            "{}: the archive was created with {there}, which cannot be changed{way_out}",
            format!("{option} {asked}").trim_end()
        )))
    };
    match args.shape.blocks_per_step {
        Some(asked) if asked != reader.blocks_per_step() => {
            return differs("--blocks-per-step", asked.to_string(), reader.blocks_per_step().to_string());
        }
        _ => {}
    }
    match args.shape.reorg_window {
        Some(asked) if asked != reader.reorg_window() => {
            return differs("--reorg-window", asked.to_string(), reader.reorg_window().to_string());
        }
        _ => {}
    }
    let every = Every(reader.snapshot_period());
    match args.shape.snapshot_every {
        Some(asked) if asked != every => {
            return differs("--snapshot-every", asked.to_string(), every.to_string());
        }
        _ => {}
    }
    if args.shape.by_path && !is_by_path(reader.domains()) {
        return differs("--by-path", String::new(), "domains by key".to_owned());
    }
    if args.shape.is_committed() && args.shape.commitment() != reader.commitment() {
        let asked = args.shape.commitment().to_string();
        return differs("the commitment", asked, reader.commitment().to_string());
    }
    match (args.shape.rows, reader.keeps_rows()) {
        (Some(Switch::On), false) if reader.commitment() == Commitment::Ethereum => {
            return Err(Failure::usage(format!(
                "--rows on: the archive was created with off; `icecore rows {} --build` gives it rows",
                args.dir.display()
            )));
        }
        (Some(asked), has) if asked != Switch::of(has) => {
            return differs("--rows", asked.to_string(), Switch::of(has).to_string());
        }
        _ => {}
    }
    let there = reader.domains();
    let fits = |asked: &Declared, there: &Domain| {
        asked.0.name == there.name && asked.0.key_len.is_none_or(|len| there.key_len == Some(len))
    };
    let all_fit =
        args.domains.len() == there.len() && args.domains.iter().zip(there).all(|(a, b)| fits(a, b));
    if !args.domains.is_empty() && !all_fit {
        let asked: Vec<_> = args.domains.iter().map(|declared| declared.0.clone()).collect();
        return differs("--domain", names(&asked), names(there));
    }
    Ok(())
}

pub(super) fn check_domains(domains: &[Domain], format: FormatName) -> Result<(), Failure> {
    let is_there = |name: &str| domains.iter().any(|domain| domain.name == name);
    if format == FormatName::Jsonl || format.domains().iter().all(|name| is_there(name)) {
        return Ok(());
    }
    let name = if format == FormatName::EthChanges { "eth-changes" } else { "geth-diff" };
    Err(Failure::usage(format!(
        "the format {name} needs the domains {}; the archive has {}",
        format.domains().join(", "),
        names(domains)
    )))
}
